//! What shells and `man` get: the script of bash in a real bash, and the pages.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use localpool::cli::Plugin;
use localpool_testing::skipped;

use crate::answers::Answers;
use crate::{Kept, NOBODY, World, arguments, commands, folder};

#[test]
fn bash_offers_the_names_of_the_cluster_and_only_those_that_begin_so() {
    let folder = folder();
    let answers = Answers::begin(folder.path());
    let world = World::with(folder.path(), &answers).called("kubectl-localpool");
    symlink(env!("CARGO_BIN_EXE_localpool"), folder.path().join("kubectl-localpool")).unwrap();
    let script = world.run(&arguments("completion bash"), Kept, Kept);
    fs::write(folder.path().join("script"), script.stdout).unwrap();
    let offered = |words: &[&str]| {
        let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let at = words.len() - 1;
        let ask = format!(
            ". ./script; COMP_WORDS=({list}); COMP_CWORD={at}; _kubectl_localpool; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["--norc", "-c", &ask])
            .current_dir(folder.path())
            .env("KUBECONFIG", &world.kubeconfig)
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    if Command::new("bash").arg("--version").output().is_err() {
        return skipped("needs bash");
    }
    assert_eq!(offered(&["kubectl-localpool", "why", "p"]), "pvc\n");
    assert_eq!(offered(&["kubectl-localpool", "disk", "drain", ""]), format!("{NOBODY}\n"));
    assert_eq!(offered(&["kubectl-localpool", "why", "disk", "some"]), format!("somebody/{NOBODY}\n"));
    assert_eq!(offered(&["kubectl-localpool", "why", "disk", "nobody"]).trim(), "");
    let of_kubectl = world.run(&arguments("__complete --kubectl -- why d"), Kept, Kept);
    let text = String::from_utf8(of_kubectl.stdout).unwrap();
    assert!(text.starts_with("disk\t") && text.ends_with("\n:4\n") && text.lines().count() == 2, "{text}");
}

#[test]
fn every_command_has_a_manual_page_that_names_it() {
    let folder = folder();
    let world = World::without_anybody(folder.path()).called("kubectl-localpool");
    for (words, _) in commands(Plugin::command) {
        let asked: Vec<OsString> = [OsString::from("man")].into_iter().chain(words.iter().cloned()).collect();
        let page = world.run(&asked, Kept, Kept);
        let text = String::from_utf8(page.stdout).unwrap();
        assert!(page.status.success() && text.contains(".SH SYNOPSIS"), "{asked:?}: {text}");
        let last = words.last().map_or("localpool".into(), |word| word.to_string_lossy());
        assert!(text.replace("\\-", "-").contains(&*last), "{asked:?}: {text}");
    }
}
