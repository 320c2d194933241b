//! Whatever `make help` and the pages of `SHOWN` tell a person to run is run by `.ci/run`: as a stage, by something that a
//! stage runs, or not at all, with the reason. A command that nothing runs breaks unseen. `verbs` covers other mentions
//! of `localpool`, `tables` what documents say about facts and filters, `paths` the files that they name, `guides` what they
//! say of the chart's values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod guides;
mod links;
mod named_tests;
mod paths;
mod plots;
mod questions;
mod runbooks;
mod tables;
mod verbs;
mod workflows;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use regex::Regex;

/// Where a command runs that is no stage of `.ci/run` itself.
enum Else {
    /// In this file, a test of this name runs it with these words.
    Test(&'static str, &'static str, &'static str),
    /// `scripts/test-cluster` runs it in xtask, by this source with these words.
    ClusterTier(&'static str, &'static str),
    /// A tier of `scripts/test`, which runs all of them if none is named.
    Tier(&'static str),
    Not(&'static str),
}

use Else::{ClusterTier, Not, Test, Tier};

const BY_HAND: Else =
    Test(STANDALONE, "loop_the_lines_that_the_page_shows_for_a_loop_disk_do_what_it_says", "blocks(\"sh\")");
const STANDALONE: &str = "tests/loop_standalone.rs";
const CLUSTER: Else = ClusterTier("xtask/src/cluster/chart.rs", "let lines = install_lines(");
const TRIAL: Else = Test(
    "tests/cluster/together/examples.rs",
    "the_lines_for_a_laptop_give_a_pod_a_volume_on_a_loop_disk_and_take_all_of_it_back",
    "section(\"../README.md\",",
);
const WHY: Else = Test(
    "tests/apiserver/plugin.rs",
    "whoever_only_looks_learns_why_a_claim_waits_and_who_may_nothing_learns_that",
    "&[\"why\", \"pvc\", &pvc]",
);
const TABLES: Else = Test(
    "tests/cluster/together/show.rs",
    "kubectl_get_answers_what_is_free_where_and_whose_each_volume_is",
    "\"get\", \"devicepools\"",
);
const WITH_DOCKER: Else = Not("CI has no Docker, and makes the image of the same Containerfile by make image");
const WHILE_WORKING: Else = Not("a part of a stage, for somebody who changes that part");
const CORDONS: &str = "the_verbs_cordon_a_disk_and_take_that_back_and_dry_they_write_nothing";
const ADOPTED: &str = "loop_a_disk_of_another_node_is_left_alone_until_it_and_its_volumes_are_adopted";
const HEALTH: &str = "loop_what_somebody_unmounts_is_in_the_health_of_the_volume_until_it_is_mounted_again";
const CONFLICT: &str = "loop_a_conflict_is_shown_and_settled_by_command";

/// Pages whose commands are held to a run.
const SHOWN: &[&str] = &["README.md", "CONTRIBUTING.md", "docs/development.md", "docs/standalone.md"];

/// Commands by their prefix: the longest match counts.
const ELSEWHERE: &[(&str, Else)] = &[
    (
        "make bench",
        Not("half an hour of figures; make bench-check and scripts/test-cluster bench --short are its short form"),
    ),
    ("make clean", Not("the stages after it would build everything again")),
    ("make cluster-down", ClusterTier("xtask/src/cluster/mod.rs", "down.arg(\"down\")")),
    ("make cluster-up", ClusterTier("xtask/src/cluster/mod.rs", "self.run(\"localpool-cluster\", &[\"up\"])")),
    ("make release", Not("asks for an entry in CHANGELOG.md; make release-check makes the same files")),
    ("make sanity", Tier("sanity")),
    ("make test-apiserver", Tier("apiserver")),
    ("make test-loop", Tier("loop")),
    ("make test-page", WHILE_WORKING),
    ("make test-unit", Tier("unit")),
    ("KEEP=1 make test-cluster", Not("leaves the cluster up, and is make test-cluster up to there")),
    (".ci/run", Not("it is what runs the others")),
    ("cargo install --locked cargo-deny", Not("once on a machine, and make lint asks for it where it is missing")),
    ("cargo test", WHILE_WORKING),
    ("scripts/test loop", Tier("loop")),
    ("scripts/test-cluster", WHILE_WORKING),
    ("scripts/test-vm", WHILE_WORKING),
    // From the blocks of README and of docs/standalone.md.
    ("kubectl create namespace localpool", CLUSTER),
    ("kubectl label namespace localpool", CLUSTER),
    ("helm install localpool", CLUSTER),
    ("kubectl -n localpool rollout status", CLUSTER),
    (
        "kubectl apply -n localpool -f examples/set-carved.yaml",
        ClusterTier("xtask/src/cluster/chart.rs", "format!(\"set-{set}.yaml\")"),
    ),
    (
        "kubectl apply -f examples/pod.yaml",
        Test("tests/cluster/together/examples.rs", "the_examples_of_pods_run_as_they_are", "\"pod.yaml\""),
    ),
    (
        "kubectl get pod,pvc,devicepools,poolvolumes",
        Test(
            "tests/cluster/together/examples.rs",
            "the_examples_of_pods_run_as_they_are",
            "\"get\", \"pod,pvc,devicepools,poolvolumes\"",
        ),
    ),
    ("export LOCALPOOL_IMAGE", WITH_DOCKER),
    ("docker build -f Containerfile", WITH_DOCKER),
    ("docker push", WITH_DOCKER),
    ("kubectl -n localpool exec -i ds/localpool-node -- localpool set plan -f -", TRIAL),
    ("DISK=$(kubectl -n localpool exec ds/localpool-node", TRIAL),
    ("kubectl apply -n localpool -f examples/set-loop.yaml", TRIAL),
    ("kubectl apply -f examples/pod-loop.yaml", TRIAL),
    ("kubectl -n localpool exec ds/localpool-node -- localpool devices", TRIAL),
    ("kubectl wait --for=condition=Ready pod/loop-writer", TRIAL),
    ("kubectl logs loop-writer", TRIAL),
    ("kubectl delete -f examples/pod-loop.yaml", TRIAL),
    ("kubectl delete -n localpool -f examples/set-loop.yaml", TRIAL),
    ("kubectl -n localpool exec ds/localpool-node -- localpool disk release", TRIAL),
    ("kubectl -n localpool exec ds/localpool-node -- losetup --detach", TRIAL),
    ("kubectl get devicepools", TABLES),
    ("kubectl localpool why pvc", WHY),
    ("kubectl get poolvolumes", TABLES),
    ("export PATH=$PWD/target/release", BY_HAND),
    ("mkdir /var/tmp/localpool-try", BY_HAND),
    ("truncate -s 4G disk.img", BY_HAND),
    ("DISK=$(losetup", BY_HAND),
    ("cat > sets.yaml", BY_HAND),
    ("export LOCALPOOL_STATE_DIR", BY_HAND),
    ("kill %1; wait", BY_HAND),
    ("losetup -d $DISK", BY_HAND),
    ("cd / && rm -r /var/tmp/localpool-try", BY_HAND),
    // Of the binary. tests/command_line checks that each of them ends well if nobody reads.
    ("localpool standalone", BY_HAND),
    ("localpool devices", BY_HAND),
    (
        "localpool disk drain",
        Test(
            "tests/apiserver/disk_orders.rs",
            "the_verb_orders_a_drain_once_and_says_at_each_step_what_is_on_the_disk_and_what_is_next",
            "drain(stage.client",
        ),
    ),
    (
        "localpool disk locate",
        Test(
            "src/agent/admin/locate/tests.rs",
            "a_disk_is_found_by_the_light_of_its_slot_and_a_dry_run_changes_nothing",
            "Verb::LocateDisk",
        ),
    ),
    (
        "localpool cluster",
        Test(
            "tests/apiserver/plugin.rs",
            "whoever_only_looks_learns_why_a_claim_waits_and_who_may_nothing_learns_that",
            "\"cluster\"",
        ),
    ),
    (
        "localpool completion",
        Test(
            "tests/command_line/shells.rs",
            "bash_offers_the_names_of_the_cluster_and_only_those_that_begin_so",
            "completion bash",
        ),
    ),
    ("localpool man", Test("tests/command_line/shells.rs", "every_command_has_a_manual_page_that_names_it", "\"man\"")),
    (
        "localpool disk add",
        Test(
            "tests/apiserver/named_disks.rs",
            "a_disk_is_added_by_a_verb_under_a_random_name_once_and_a_node_asks_for_default_disks_by_an_annotation",
            "add(stage.client",
        ),
    ),
    ("localpool disk cordon", Test("tests/apiserver/disk_orders.rs", CORDONS, "cordon(client()")),
    ("localpool disk uncordon", Test("tests/apiserver/disk_orders.rs", CORDONS, "uncordon(client()")),
    (
        "localpool disk give-up",
        Test(
            "tests/pool/faults/dead.rs",
            "giving_up_is_a_verb_of_its_own_that_does_nothing_to_a_disk_that_is_here",
            "Verb::GiveUpDisk",
        ),
    ),
    (
        "localpool pool forget",
        Test(
            "tests/apiserver/leader.rs",
            "a_node_that_is_gone_is_forgotten_by_one_verb_and_never_while_it_or_its_agent_is_there",
            "forget(stage.client",
        ),
    ),
    ("localpool disk release", BY_HAND),
    ("localpool disk", Test("tests/loop_csi/record.rs", ADOPTED, "\"disk\", \"adopt\"")),
    ("localpool disk adopt", Test("tests/loop_csi/record.rs", ADOPTED, "\"disk\", \"adopt\"")),
    (
        "localpool discovery",
        Test(
            "tests/apiserver/discovery_result.rs",
            "loop_a_disk_that_is_added_is_in_the_result_without_an_agent_and_with_one",
            "\"discovery\"",
        ),
    ),
    (
        "localpool set plan",
        Test(
            "tests/loop_csi/dry_run.rs",
            "loop_a_plan_names_each_device_and_why_it_is_left_with_an_agent_or_without",
            "\"set\", \"plan\"",
        ),
    ),
    (
        "localpool volume list",
        Test(
            "tests/command_line/main.rs",
            "every_subcommand_survives_a_reader_that_is_gone_and_a_full_disk",
            "verbs(program)",
        ),
    ),
    ("localpool volume adopt", Test("tests/loop_csi/record.rs", ADOPTED, "\"volume\", \"adopt\"")),
    (
        "localpool volume abandon",
        Test(
            "tests/chart/tried.rs",
            "a_volume_is_given_up_and_a_disk_drained_in_the_controllers_pod_and_definitions_are_applied_in_the_jobs_alone",
            "\"volume\", \"abandon\"",
        ),
    ),
    (
        "localpool volume erase",
        Test(
            "tests/apiserver/orders.rs",
            "the_verb_erases_a_ready_volume_only_when_nobody_has_named_it_for_a_while_and_dry_changes_nothing",
            "erase(stage.client",
        ),
    ),
    (
        "localpool volume pv",
        Test(
            "tests/apiserver/orders.rs",
            "the_manifest_of_a_found_volume_gives_it_to_a_claim_whose_name_the_object_then_has",
            "manifest(stage.client",
        ),
    ),
    ("localpool volume settle", Test("tests/loop_csi/conflict.rs", CONFLICT, "\"volume\", \"settle\"")),
    ("localpool health", Test("tests/loop_csi/health.rs", HEALTH, "\"health\"")),
    ("localpool volumes", Test("tests/loop_csi/conflict.rs", CONFLICT, "\"volumes\", \"-o\", \"json\"")),
    (
        "localpool state set-aside journal",
        Test(
            "tests/loop_csi/bad_start.rs",
            "loop_a_journal_cut_short_is_kept_and_nothing_is_claimed_until_it_is_set_aside",
            "\"state\", \"set-aside\", \"journal\"",
        ),
    ),
    (
        "localpool state set-aside cluster",
        Test(
            "src/cli/ask.rs",
            "the_cluster_of_a_node_is_forgotten_and_kept_under_another_name_and_a_dry_run_does_nothing",
            "set_aside_cluster(",
        ),
    ),
    (
        "localpool udev-rules",
        Test(
            "tests/vm/host_rules.rs",
            "with the udev rules alone a boot starts no group or array of labelled volumes, and goes by no UUID in them",
            "udev-rules --install-in",
        ),
    ),
    (
        "localpool lvm-filter",
        Test(
            "tests/vm/host_rules.rs",
            "with the filter of LVM, vgs and vgchange see no group of labelled volumes, and all of the host's own",
            "lvm-filter --install-in",
        ),
    ),
    (
        "localpool crds",
        Test("tests/chart/definitions.rs", "the_definitions_in_the_chart_are_those_that_localpool_prints", "printed()"),
    ),
    (
        "localpool crds --apply",
        Test(
            "tests/cluster/turns/definitions.rs",
            "pods_run_on_without_the_definitions_and_everything_is_back_when_they_are",
            "define(",
        ),
    ),
    (
        "localpool demo",
        Test(
            "tests/loop_demo.rs",
            "loop_the_demo_does_every_step_and_leaves_a_blank_disk_beside_it_untouched_and_nothing_behind",
            "Demo::start()",
        ),
    ),
    (
        "localpool controller",
        Test(
            "tests/apiserver/role.rs",
            "the_controller_waits_for_its_crds_serves_csi_and_hands_its_lease_over",
            "Controller::start(",
        ),
    ),
    ("localpool node", Test("sanity/sanity_test.go", "TestSanity", "startOnKubernetes")),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The commands in a document: the lines of its shell blocks, and code in its sentences that begins like a command.
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
    let text = Command::new("make").args(["--no-print-directory", "help"]).current_dir(root()).output().unwrap();
    assert!(text.status.success(), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    let targets = Regex::new("make [a-z][a-z-]*").unwrap();
    targets.find_iter(&text).map(|found| found.as_str().to_owned()).collect()
}

fn stages() -> BTreeSet<String> {
    let text = read(".ci/run");
    // A red `stage` ends its lane, a red `check` does not.
    let command = |line: &str| line.strip_prefix("stage ").or_else(|| line.strip_prefix("check ")).map(str::to_owned);
    text.lines().filter_map(|line| command(line.trim_start())).collect()
}

/// The row for a command, if there is one.
fn row(command: &str) -> Option<usize> {
    let fits = |start: &str| command.strip_prefix(start).is_some_and(|rest| !rest.starts_with(['-', '_']));
    let rows = ELSEWHERE.iter().enumerate().filter(|(_, (start, _))| fits(start));
    rows.max_by_key(|(_, (start, _))| start.len()).map(|(index, _)| index)
}

/// The text of the test with that name; for the vm tier, whose checks are named in sentences, the whole file.
fn text_of_test(file: &str, name: &str) -> Option<String> {
    let text = read(file);
    if text.contains(&format!("\"{name}\"")) {
        return Some(text);
    }
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.contains(&format!("fn {name}(")) || line.starts_with(&format!("func {name}("));
    let first = lines.iter().position(begins)?;
    let is_test = file.ends_with(".go")
        || lines[..first].last()?.trim().split(['[', '(', ']']).any(|word| word.ends_with("test"));
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let body: Vec<&str> = lines[first..].iter().take_while(|line| **line != end).copied().collect();
    is_test.then(|| body.join("\n"))
}

/// What make would run by `make -n`, without the check for missing packages; a command that is no target of make stays
/// as it is.
fn expanded(command: &str) -> Vec<String> {
    let Some(target) = command.strip_prefix("make ") else { return vec![command.to_owned()] };
    let text = Command::new("make").args(["-n", "--no-print-directory", target]).current_dir(root()).output().unwrap();
    assert!(text.status.success(), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    text.lines().filter(|line| !line.starts_with("scripts/deps")).map(str::to_owned).collect()
}

fn targets() -> Vec<String> {
    let makefile = read("Makefile");
    let phony = makefile.lines().filter_map(|line| line.strip_prefix(".PHONY:")).flat_map(str::split_whitespace);
    phony.map(str::to_owned).collect()
}

#[test]
fn every_command_that_is_shown_is_run_by_ci_or_has_a_reason_why_not() {
    let stages = stages();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let shown = SHOWN.iter().flat_map(|file| shown(&read(file)).into_iter().map(move |command| (*file, command)));
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
    let stages = stages();
    let run: BTreeSet<String> = stages.iter().flat_map(|stage| expanded(stage)).collect();
    let planned = Command::new(root().join("scripts/test")).arg("--plan").output().unwrap();
    let planned = String::from_utf8(planned.stdout).unwrap();
    for (start, what) in ELSEWHERE {
        match what {
            Test(file, name, words) => {
                let page = read("docs/standalone.md");
                let by_hand = page.split("\n## ").find(|part| part.starts_with("By hand"));
                let is_there = *file != STANDALONE || by_hand.is_some_and(|part| part.contains(start));
                assert!(is_there, "`{start}` is not in the part of docs/standalone.md that {name} runs");
                let body = text_of_test(file, name).unwrap_or_else(|| panic!("`{start}`: {file} has no test {name}"));
                assert!(body.contains(words), "`{start}`: {name} in {file} has nothing of it: {words:?}");
                let stage = match file {
                    _ if file.starts_with("tests/cluster/") => "make test-cluster",
                    _ if file.starts_with("tests/vm/") => "make test-vm",
                    _ => "make test",
                };
                assert!(stages.contains(stage), "`{start}`: {file} is of `{stage}`, which is no stage of .ci/run");
            }
            ClusterTier(source, words) => {
                assert!(read(source).contains(words), "`{start}`: {source} has nothing of it: {words:?}");
                let script = "scripts/test-cluster";
                assert!(read(script).contains("\"$xtask\" cluster up"), "{script} runs nothing of {source}");
                assert!(run.contains(script), "`{start}`: no stage of .ci/run runs {script}");
            }
            Tier(tier) => {
                assert!(planned.lines().any(|line| line == *tier), "scripts/test has no tier {tier}: {planned}");
                assert!(run.contains("scripts/test"), "`{start}`: no stage of .ci/run runs every tier");
            }
            Not(why) => assert!(why.split(' ').count() > 3, "`{start}`: {why:?} is no reason"),
        }
    }
}

#[test]
fn each_target_of_make_comes_to_commands_that_ci_runs() {
    let stages = stages();
    let run: BTreeSet<String> = stages.iter().flat_map(|stage| expanded(stage)).collect();
    for target in targets() {
        let shown = format!("make {target}");
        for command in expanded(&shown).into_iter().filter(|command| !run.contains(command)) {
            let row = row(&shown).map(|row| &ELSEWHERE[row].1);
            let by = match row {
                Some(Tier(tier)) => command == format!("scripts/test {tier}"),
                // The build before it has a row of its own.
                Some(ClusterTier(..)) => {
                    let own = shown.replace("make cluster-", "localpool-cluster ");
                    command.ends_with(&own) || command == "cluster/build"
                }
                Some(Not(_)) => true,
                Some(Test(..)) | None => false,
            };
            assert!(by, "`{shown}` runs `{command}`, which no stage of .ci/run does");
        }
    }
}

#[test]
fn every_target_of_make_is_in_its_help() {
    let help = help();
    for target in targets().iter().filter(|target| *target != "help") {
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
