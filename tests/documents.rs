//! What README, CONTRIBUTING and `make help` tell a person to run is run by `.ci/run`: as a stage, by something that a
//! stage runs, or not, with the reason. What nothing runs breaks unseen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

/// What becomes of a command that is no stage of `.ci/run` itself.
enum Else {
    /// This file has it, by these words, and a stage runs the file.
    In(&'static str, &'static str),
    Not(&'static str),
}

use Else::{In, Not};

const ONE_TIER: Else = In("scripts/test", "asked=(unit loop apiserver sanity)");
const BY_HAND: Else = In("tests/loop_readme.rs", "## By hand, on a loop disk");
const CLUSTER: Else = In("scripts/test-cluster", "install_lines");
const WHILE_WORKING: Else = Not("a part of a stage, for somebody who changes that part");

/// Of commands, by how they begin: the longest that fits counts.
const ELSEWHERE: &[(&str, Else)] = &[
    (
        "make bench",
        Not("half an hour of figures; make bench-check and scripts/test-cluster bench --short are its short form"),
    ),
    ("make clean", Not("the stages after it would build everything again")),
    ("make cluster-build", In("scripts/test-cluster", "run cluster/build")),
    ("make cluster-check", Not("proves the cluster itself: for changes below cluster/; make test-cluster works on it")),
    ("make cluster-down", In("scripts/test-cluster", "localpool-cluster\" down")),
    ("make cluster-up", In("scripts/test-cluster", "localpool-cluster up")),
    ("make sanity", ONE_TIER),
    ("make test-apiserver", ONE_TIER),
    ("make test-loop", ONE_TIER),
    ("make test-unit", ONE_TIER),
    ("KEEP=1 make test-cluster", Not("leaves the cluster up")),
    (".ci/run", Not("it is what runs the others")),
    ("cargo install --locked cargo-deny", Not("once on a machine, and make lint asks for it where it is missing")),
    ("cargo test", WHILE_WORKING),
    ("scripts/test loop", ONE_TIER),
    ("scripts/test-cluster", WHILE_WORKING),
    ("scripts/test-vm", WHILE_WORKING),
    // Of README's blocks.
    ("kubectl create namespace localpool", CLUSTER),
    ("kubectl label namespace localpool", CLUSTER),
    ("helm install localpool", CLUSTER),
    ("kubectl -n localpool rollout status", CLUSTER),
    ("kubectl apply -n localpool -f examples/set-carved.yaml", In("scripts/test-cluster", "examples/set-$set.yaml")),
    ("kubectl apply -f examples/pod.yaml", In("tests/cluster/together/examples.rs", "\"pod.yaml\"")),
    ("kubectl get pod,pvc,devicepools,poolvolumes", In("tests/cluster", "devicepools")),
    ("export PATH=$PWD/target/release", BY_HAND),
    ("mkdir /var/tmp/localpool-try", BY_HAND),
    ("truncate -s 4G disk.img", BY_HAND),
    ("DISK=$(losetup", BY_HAND),
    ("cat > sets.yaml", BY_HAND),
    ("export LOCALPOOL_STATE_DIR", BY_HAND),
    ("kill %1; wait", BY_HAND),
    ("losetup -d $DISK", BY_HAND),
    ("cd / && rm -r /var/tmp/localpool-try", BY_HAND),
    // Of the binary. That each of them ends well where nobody reads is in tests/command_line.rs.
    ("localpool standalone", BY_HAND),
    ("localpool devices", BY_HAND),
    ("localpool disk release", BY_HAND),
    ("localpool disk adopt", In("tests/loop_csi/record.rs", "\"disk\", \"adopt\"")),
    ("localpool discovery", In("tests/cluster/together/discovery.rs", "\"discovery\"")),
    ("localpool set plan", In("tests/loop_csi/dry_run.rs", "\"set\", \"plan\"")),
    ("localpool volume adopt", In("tests/loop_csi/record.rs", "\"volume\", \"adopt\"")),
    ("localpool volume abandon", In("tests/apiserver", "abandon")),
    ("localpool volume settle", In("tests/loop_csi/conflict.rs", "\"volume\", \"settle\"")),
    ("localpool volumes", In("tests/loop_csi/conflict.rs", "\"volumes\", \"-o\", \"json\"")),
    ("localpool state set-aside journal", In("tests/loop_csi/bad_start.rs", "\"state\", \"set-aside\", \"journal\"")),
    ("localpool state set-aside cluster", In("src/cli/ask.rs", "fn the_cluster_of_a_node_is_forgotten")),
    ("localpool udev-rules", In("tests/vm/host_rules.rs", "udev-rules --install-in")),
    ("localpool crds", In("tests/chart", "crds")),
    ("localpool demo", In("tests/loop_demo.rs", "command.arg(\"demo\")")),
    ("localpool controller", In("tests/apiserver/role.rs", "\"controller\"")),
    ("localpool node", In("charts/localpool/templates/node/daemonset.yaml", "command: [localpool, node]")),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Commands of a document: the lines of its shell blocks, and in its sentences what is set as code and begins like one.
fn shown(document: &str) -> Vec<String> {
    let (mut blocks, mut prose, mut here, mut language) = (Vec::new(), String::new(), None, None);
    for line in document.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(name), None) => language = Some(name),
            (None, None) => prose.extend([line, "\n"]),
            (None, Some("sh")) => match here {
                Some(end) if line == end => here = None,
                Some(_) => {}
                None => {
                    here = line.split_once("<<'").and_then(|(_, rest)| rest.strip_suffix('\''));
                    blocks.push(line.split("  #").next().unwrap_or_default().trim().to_owned());
                }
            },
            (None, Some(_)) => {}
        }
    }
    let code = Regex::new("`([^`]+)`").unwrap();
    let command =
        Regex::new(r"^(make|cargo|kubectl|helm|localpool|KEEP=1 make|scripts/[a-z-]+|\.ci/run)( |$)").unwrap();
    let spans = code.captures_iter(&prose).map(|span| span[1].split_whitespace().collect::<Vec<_>>().join(" "));
    let spans = spans.filter(|span| command.is_match(span) && span != "localpool");
    // A script that is only named, as a file that does something, is no command.
    let spans = spans.filter(|span| !span.starts_with("scripts/") || span.contains(' '));
    blocks.into_iter().filter(|line| !line.is_empty()).chain(spans).collect()
}

fn help() -> Vec<String> {
    let said = Command::new("make").args(["--no-print-directory", "help"]).current_dir(root()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    let targets = Regex::new("make [a-z][a-z-]*").unwrap();
    targets.find_iter(&said).map(|found| found.as_str().to_owned()).collect()
}

fn stages() -> BTreeSet<String> {
    read(".ci/run").lines().filter_map(|line| line.strip_prefix("stage ")).map(str::to_owned).collect()
}

/// The row that is meant, if there is one.
fn row(command: &str) -> Option<usize> {
    let fits = |start: &str| command.strip_prefix(start).is_some_and(|rest| !rest.starts_with(['-', '_']));
    let rows = ELSEWHERE.iter().enumerate().filter(|(_, (start, _))| fits(start));
    rows.max_by_key(|(_, (start, _))| start.len()).map(|(index, _)| index)
}

fn has(place: &Path, words: &str) -> bool {
    if place.is_dir() {
        return std::fs::read_dir(place).unwrap().any(|entry| has(&entry.unwrap().path(), words));
    }
    std::fs::read_to_string(place).is_ok_and(|text| text.contains(words))
}

#[test]
fn every_command_that_is_shown_is_run_by_ci_or_has_a_reason_why_not() {
    let stages = stages();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let documents = ["README.md", "CONTRIBUTING.md"];
    let shown = documents.iter().flat_map(|file| shown(&read(file)).into_iter().map(move |command| (*file, command)));
    let all: Vec<(&str, String)> = shown.chain(help().into_iter().map(|command| ("make help", command))).collect();
    assert!(all.len() > 50, "only {} commands were found: {all:?}", all.len());
    for (file, command) in &all {
        match row(command) {
            _ if stages.contains(command) => {}
            Some(row) => drop(used.insert(row)),
            None => wrong.push(format!("{file}: `{command}` is neither a stage of .ci/run nor a row of ELSEWHERE")),
        }
    }
    for (index, (start, _)) in ELSEWHERE.iter().enumerate() {
        let spare = stages.contains(*start) || (!used.contains(&index) && !start.starts_with("localpool"));
        if spare {
            wrong.push(format!("`{start}` needs no row in ELSEWHERE: nothing shows it, or it is a stage"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn what_is_said_to_be_run_elsewhere_is_there() {
    for (start, what) in ELSEWHERE {
        match what {
            In(file, words) => assert!(has(&root().join(file), words), "{file} has nothing of `{start}`: {words:?}"),
            Not(why) => assert!(why.split(' ').count() > 3, "`{start}`: {why:?} is no reason"),
        }
    }
}

#[test]
fn every_target_of_make_is_in_its_help() {
    let makefile = read("Makefile");
    let phony = makefile.lines().filter_map(|line| line.strip_prefix(".PHONY:")).flat_map(str::split_whitespace);
    let help = help();
    for target in phony.filter(|target| *target != "help") {
        assert!(help.contains(&format!("make {target}")), "make help says nothing of `make {target}`");
    }
}

#[test]
fn commands_are_found_in_blocks_and_sentences_and_nowhere_else() {
    let text = "Run `make x` or `scripts/y up\nnow`; scripts/z is `scripts/z`, and `other x` is none.\n\
                ```sh\nmake a    # why\ncat > f <<'END'\nmake no\nEND\nb c\n```\n```text\n`make never`\n```\n";
    assert_eq!(shown(text), ["make a", "cat > f <<'END'", "b c", "make x", "scripts/y up now"]);
    assert!(row("make bench-other").is_none(), "a name that only begins so is another one");
    assert_eq!(ELSEWHERE[row("localpool devices -o wide").unwrap()].0, "localpool devices");
}
