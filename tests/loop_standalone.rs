//! docs/standalone.md, "By hand, on a loop disk", as a person would follow it: its blocks are run in their order, by one
//! shell, and must print what the page shows. Needs root and a loop device.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;

use localpool_testing::is_root;
use regex::Regex;

const SECTION: &str = "## By hand, on a loop disk";
/// The folder that the page uses; the test has its own.
const FOLDER: &str = "/var/tmp/localpool-try";

/// The section's blocks in a language.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/standalone.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split_once(SECTION).unwrap().1.split("\n## ").next().unwrap().to_owned();
    let begin = format!("```{language}\n");
    section.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Without the number and the id, which differ from disk to disk; and with single blanks, as these change the columns.
fn plain(text: &str) -> String {
    let text = Regex::new("loop[0-9]+").unwrap().replace_all(text, "loopN");
    let text = Regex::new("gpt-[0-9a-f-]{36}").unwrap().replace_all(&text, "gpt-ID");
    Regex::new(" +").unwrap().replace_all(&text, " ").into_owned()
}

/// What the page shows for this disk, without the other disks of that machine.
fn wanted(block: &str) -> Vec<String> {
    let other = |line: &&str| line.contains("loop") && !line.contains("without a file");
    block.lines().filter(other).map(plain).collect()
}

#[test]
fn loop_the_lines_that_the_page_shows_for_a_loop_disk_do_what_it_says() {
    if !is_root() {
        return;
    }
    let (shell, shown) = (blocks("sh"), blocks("text"));
    let ([make, release, tidy], [alone, young, claimed, released]) = (&shell[..], &shown[..]) else {
        panic!("the page has other blocks now: {} and {}", shell.len(), shown.len());
    };
    let parent = tempfile::Builder::new().prefix("localpool-readme-").tempdir_in("/var/tmp").unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_localpool")).parent().unwrap();
    let folder = parent.path().join("try");
    let ours = |block: &str| {
        let block = block.replace("make build\n", "").replace("$PWD/target/release", binary.to_str().unwrap());
        // The driver would take every disk with the node's name, whoever made it.
        let block = block.replace("NODE_NAME=try", &format!("NODE_NAME=try-{}", std::process::id()));
        block.replace(FOLDER, folder.to_str().unwrap())
    };
    // Scans until the disk is in the expected state; the last scan is the answer.
    let script = format!(
        "set -euo pipefail
DISK=
trap '[[ -z $DISK ]] || {{ kill %1 && wait; partx --delete $DISK; losetup --detach $DISK; }} 2>/dev/null || true' EXIT
until_said() {{ for try in {{1..200}}; do localpool devices >now; ! grep \"^$DISK .*$1\" now || break; sleep 0.1; done; }}
{}
until_said 'seen too recently'
until_said 'in pool'
{}
{}
DISK=
",
        ours(make),
        ours(release),
        ours(tidy)
    );
    let done = Command::new("bash").args(["-c", &script]).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{errors}");
    let text: Vec<String> = out.lines().map(plain).collect();
    // The remaining seconds differ at each scan.
    let rest = |line: &str| Regex::new("for [0-9]+ s more").unwrap().replace(line, "for N s more").into_owned();
    let text: Vec<String> = text.iter().map(|line| rest(line)).collect();
    for block in [alone, young, claimed, released] {
        for line in wanted(block) {
            assert!(text.contains(&rest(&line)), "the page says {line:?}, and what came is {out}");
        }
    }
    assert!(!folder.exists(), "the last lines leave {}", folder.display());
}
