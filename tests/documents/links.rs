//! Each link of a page leads to a file that is there, and to a heading of it; and what README claims has its test: each
//! *yes* of ours beside others, each reason why, each version, and what it shows of `localpool devices`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use crate::{read, root};

/// Each page of the repository, from its root.
pub fn pages() -> Vec<String> {
    let mut open = [".github", "charts", "cluster", "docs", "examples", "sanity"].map(|top| root().join(top)).to_vec();
    let mut all: Vec<PathBuf> = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { all.push(path) }
        }
    }
    all.retain(|path| path.extension().is_some_and(|end| end == "md"));
    all.iter().map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect()
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Where the links of a page lead, but for those to other sites.
fn links(page: &str) -> Vec<String> {
    let code = Regex::new("`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let text = prose(page);
    let found = link.captures_iter(&code.replace_all(&text, "")).map(|link| link[1].to_owned()).collect::<Vec<_>>();
    found.into_iter().filter(|to| !to.contains("://")).collect()
}

/// The headings of a page as a browser finds them: in lower case, with hyphens for blanks, without other marks.
fn anchors(page: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let heads = prose(page).lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    let anchor = |head: &String| {
        let text = link.replace_all(head.trim_start_matches('#').trim(), "$1").to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.collect::<String>().replace(' ', "-")
    };
    heads.iter().map(anchor).collect()
}

/// What is wrong with a link of a page.
fn wrong(page: &str, to: &str) -> Option<String> {
    let (path, anchor) = to.split_once('#').unwrap_or((to, ""));
    let file = match path {
        "" => root().join(page),
        path => root().join(page).parent().unwrap().join(path),
    };
    if !file.exists() {
        return Some(format!("{page}: {to} leads to nothing"));
    }
    let is_there = anchor.is_empty() || anchors(&std::fs::read_to_string(&file).unwrap()).contains(anchor);
    (!is_there).then(|| format!("{page}: {to} has no such heading"))
}

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading_that_are_there() {
    let pages = pages();
    let (mut problems, mut count) = (Vec::new(), 0);
    for page in &pages {
        let found = links(&read(page));
        count += found.len();
        problems.extend(found.iter().filter_map(|to| wrong(page, to)));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert!(count > 300 && pages.iter().any(|page| page == "docs/runbooks/README.md"), "only {count} were found");
}

#[test]
fn a_link_that_leads_to_nothing_is_told() {
    let page = "[a](docs/health.md#reasons) `[b](no.md)`\n```sh\n[c](no.md)\n```\n[d](https://e.org/f.md) [g\nh](#i)\n";
    assert_eq!(links(page), ["docs/health.md#reasons", "#i"]);
    assert_eq!(anchors("# A `b`: [c d](e.md)?\n## 2_3 – 4\n"), ["2_3--4", "a-b-c-d"].map(str::to_owned).into());
    assert_eq!(wrong("README.md", "docs/health.md#reasons"), None);
    for to in ["docs/no.md", "docs/health.md#no", "#no"] {
        assert!(wrong("README.md", to).is_some(), "{to}");
    }
}

/// A part of README, by its heading.
fn part(title: &str) -> String {
    let readme = read("README.md");
    let found = readme.split("\n## ").find(|part| part.starts_with(&format!("{title}\n")));
    found.unwrap_or_else(|| panic!("README has no part {title}")).to_owned()
}

/// Whether a text links to a file with tests, and only such files below `tests` and `src` as have some.
fn has_tests(text: &str) -> bool {
    let files: Vec<String> =
        links(text).into_iter().filter(|to| to.starts_with("tests/") || to.starts_with("src/")).collect();
    let tests = |file: &String| {
        let text = read(file);
        Path::new(file).extension().is_some_and(|end| end == "rs")
            && (text.contains("#[test]") || text.contains("#[tokio::test"))
    };
    !files.is_empty() && files.iter().all(tests)
}

#[test]
fn each_yes_of_ours_beside_others_and_each_reason_why_leads_to_a_test() {
    let table = part("Compared with others");
    let sources = read("docs/comparison.md");
    let (mut wrong, mut ours) = (Vec::new(), 0);
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 8, "{row}");
        let yes = cells[1].contains("yes") || cells[1].contains("](");
        ours += usize::from(yes);
        if yes && !has_tests(cells[1]) {
            wrong.push(format!("{}: {} leads to no test", cells[0], cells[1]));
        }
        if sources.matches(&format!("\n| {} | ", cells[0])).count() != 6 {
            wrong.push(format!("{}: docs/comparison.md has not six answers with their sources", cells[0]));
        }
    }
    let why = part("Why");
    let reasons: Vec<&str> = why.split("\n- **").skip(1).map(|reason| reason.split("\n\n").next().unwrap()).collect();
    wrong.extend(reasons.iter().filter(|why| !has_tests(why)).map(|why| format!("Why: no test of {why}")));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(ours > 8 && reasons.len() > 5, "{ours} of ours, {} reasons", reasons.len());
}

#[test]
fn the_versions_that_pages_name_are_those_of_the_tree() {
    let after = |file: &str, words: &str| {
        let text = read(file);
        let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("{file} has no {words}"));
        rest.split(|c: char| c.is_whitespace() || "\",-".contains(c)).next().unwrap().to_owned()
    };
    let ours = after("Cargo.toml", "\nversion = \"");
    let minor = after("charts/localpool/Chart.yaml", "kubeVersion: \">=").trim_end_matches(".0").to_owned();
    let values = read("charts/localpool/values.yaml");
    let tag = |sidecar: &str| {
        let (_, rest) = values.split_once(&format!("sig-storage/{sidecar}\n")).unwrap();
        rest.split("tag: ").nth(1).unwrap().split('\n').next().unwrap().to_owned()
    };
    for (page, claim) in [
        ("README.md", format!("before its first release ({ours} is being prepared)")),
        ("README.md", format!("docker build -f Containerfile -t $LOCALPOOL_IMAGE:{ours} ")),
        ("README.md", format!("kind load docker-image localpool.dev/localpool:{ours}`")),
        ("README.md", format!("Kubernetes {minor} or newer, Helm 3 or 4.")),
        ("README.md", format!("run on {} |", after("cluster/node/go.mod", "k8s.io/kubernetes v"))),
        ("README.md", format!("csi-provisioner {} and csi-resizer {} |", tag("csi-provisioner"), tag("csi-resizer"))),
        ("README.md", format!("csi-sanity of csi-test {},", after("sanity/go.mod", "csi-test/v5 "))),
        (
            "README.md",
            format!("| CSI | {};", after("proto/csi.proto", "The Container Storage Interface ").trim_end_matches(".0")),
        ),
        ("docs/development.md", format!("Rust ({} or newer)", after("Cargo.toml", "rust-version = \""))),
    ] {
        assert!(read(page).contains(&claim), "{page} does not say: {claim}");
    }
}

#[test]
fn the_table_of_devices_in_readme_has_the_columns_that_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["devices", "--state-dir", folder.path().to_str().unwrap()];
    let printed = Command::new(env!("CARGO_BIN_EXE_localpool")).args(arguments).output().unwrap();
    let head =
        |text: &str| text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let shown = part("What you get");
    let (_, table) = shown.split_once("localpool devices\n```\n```text\n").expect("its table");
    assert_eq!(head(table), head(&String::from_utf8(printed.stdout).unwrap()));
}
