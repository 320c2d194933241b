//! The alerts: each has a runbook and uses metrics that exist, and the chart renders them if its values ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use localpool::health::{REASONS, Severity, Source, Subject};
use localpool::operator::controller::Why;
use regex::Regex;
use serde_json::{Value, json};

use super::helm::{self, name, of_kind};
use super::metrics::{Asked, asked, documented, source_of};
use super::{chart, repository};

/// Commands that change nothing.
const READ_ONLY: &str =
    r"^kubectl (-n [^ ]+ )?(get|describe|logs|exec \$AGENT -- localpool (devices|health|volumes)( -o wide)?( \||$))";
/// What they print goes into nothing but these.
const PIPES: &str = r"^ (jq|grep|cut) [^|;&$`<>]*$";
/// The parts of a runbook.
const PARTS: [&str; 4] = ["Meaning", "Look at", "Do", "Undo"];

fn alerts() -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(chart().join("files/alerts.yaml")).unwrap()).unwrap()
}

fn rules(alerts: &Value) -> Vec<&Value> {
    let groups = alerts["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

#[test]
fn every_alert_says_what_is_wrong_and_what_it_means() {
    let alerts = alerts();
    let mut names = BTreeSet::new();
    for rule in rules(&alerts) {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("Localpool") && names.insert(name), "{name}");
        for words in ["summary", "description"] {
            assert!(rule["annotations"][words].as_str().is_some_and(|words| words.len() > 20), "{name}: {words}");
        }
        assert!(["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
    }
    assert!(names.len() >= 10, "{names:?}");
}

/// The parts of a runbook without words or out of order, commands that no one may simply try, and links that
/// lead to no heading.
fn wrong_in(page: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<(&str, &str)> = text.split("\n## ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    if !text.starts_with(&format!("# {page}\n")) || !parts.iter().map(|(head, _)| head).eq(&PARTS) {
        wrong.push(format!("{page}: its headings are not its name and {PARTS:?}"));
    }
    wrong.extend(parts.iter().filter(|(_, body)| body.trim().is_empty()).map(|(head, _)| format!("{page}: {head}")));
    let part = parts.iter().find(|(head, _)| *head == "Look at").map_or("", |(_, body)| *body);
    wrong.extend(wrong_in_part(part).into_iter().map(|what| format!("{page}: {what}")));
    for (head, body) in parts.iter().filter(|(head, _)| ["Do", "Undo"].contains(head)) {
        wrong.extend(unshown(body).into_iter().map(|command| format!("{page}, {head}: no output of {command}")));
    }
    let links = Regex::new(r"\]\(([^)#]+)(?:#([^)]*))?\)").unwrap();
    for link in links.captures_iter(text) {
        let there = std::fs::read_to_string(runbooks().join(&link[1])).unwrap_or_default();
        let anchor = |line: &str| -> String {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
        };
        let has = |wanted: &str| there.lines().any(|line| line.starts_with('#') && anchor(line) == wanted);
        if there.is_empty() || link.get(2).is_some_and(|wanted| !has(wanted.as_str())) {
            wrong.push(format!("{page}: {} leads nowhere", &link[0]));
        }
    }
    wrong
}

/// The blocks of a part: its language, what is in it, and the words up to the next one.
fn blocks(part: &str) -> Vec<(&str, &str, &str)> {
    let mut pieces = part.split("```").skip(1);
    let mut blocks = Vec::new();
    while let Some((language, block)) = pieces.next().and_then(|block| block.split_once('\n')) {
        blocks.push((language, block, pieces.next().unwrap_or_default()));
    }
    blocks
}

/// The commands of a part below which is not what they print.
fn unshown(part: &str) -> Vec<&str> {
    let blocks = blocks(part);
    let below = blocks.iter().skip(1).map(Some).chain([None]);
    let is_shown = |next: Option<&(&str, &str, &str)>| {
        next.is_some_and(|(language, block, _)| *language == "text" && !block.trim().is_empty())
    };
    let commands = blocks.iter().zip(below).filter(|((language, ..), _)| *language == "sh");
    commands.filter(|(_, next)| !is_shown(*next)).map(|((_, command, _), _)| command.trim_end()).collect()
}

/// Whether a command picks what is wrong: then there may be nothing, and the page says what that means.
fn may_print_nothing(command: &str) -> bool {
    ["select(", "--field-selector reason="].iter().any(|picks| command.contains(picks))
}

/// The cluster tier types each command of the part "Look at" (tests/cluster/together/runbooks.rs). So each has its
/// output below it, and none of them changes anything.
fn wrong_in_part(part: &str) -> Vec<String> {
    let blocks = blocks(part);
    let (mut wrong, read_only, pipes) = (Vec::new(), Regex::new(READ_ONLY).unwrap(), Regex::new(PIPES).unwrap());
    let quoted = Regex::new("'[^']*'").unwrap();
    if blocks.is_empty() {
        wrong.push("no command to look with".to_owned());
    }
    for pair in blocks.chunks(2) {
        let [("sh", command, _), ("text", shown, words)] = pair else {
            wrong.push(format!("not one command and what it prints: {pair:?}"));
            continue;
        };
        let command = command.trim_end();
        if shown.trim().is_empty() {
            wrong.push(format!("nothing is printed by {command}"));
        }
        if may_print_nothing(command)
            && !["It prints nothing if ", "It prints only "].iter().any(|say| words.contains(say))
        {
            wrong.push(format!("not what it means if nothing is printed by {command}"));
        }
        let (names, last) = command.rsplit_once('\n').unwrap_or(("", command));
        let are_names = names.lines().all(|line| line.split_once('=').is_some_and(|(name, _)| name == "POD"));
        let outside = quoted.replace_all(last, "''");
        let mut piped = outside.split('|');
        let first = piped.next().unwrap_or_default().replace("$AGENT", "").replace("$POD", "");
        let is_one = !first.contains([';', '&', '$', '`', '<', '>']) && piped.all(|to| pipes.is_match(to));
        if !are_names || !read_only.is_match(last) || !is_one {
            wrong.push(format!("not a command that only looks: {command}"));
        }
    }
    wrong
}

fn runbooks() -> PathBuf {
    repository().join("docs/runbooks")
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts = alerts();
    let names: BTreeSet<String> =
        rules(&alerts).iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    let files = std::fs::read_dir(runbooks()).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let pages: BTreeSet<String> = pages.filter(|page| page != "README").collect();
    assert_eq!(pages, names);
    let text = |page: &str| std::fs::read_to_string(runbooks().join(format!("{page}.md"))).unwrap();
    let wrong: Vec<String> = pages.iter().flat_map(|page| wrong_in(page, &text(page))).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The alerts that pick this reason of a metric, by name.
fn alerts_of(alerts: &Value, metric: &str, reason: &str) -> Vec<String> {
    let picks = |rule: &&Value| -> bool {
        let Asked { metrics, picked, .. } = asked(rule["expr"].as_str().unwrap());
        let is_picked = |(label, value): &(String, String)| label == "reason" && value == reason;
        metrics.iter().any(|asked| asked == metric) && picked.iter().any(is_picked)
    };
    rules(alerts).into_iter().filter(picks).map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

/// Each reason of the table has exactly one alert on the volumes that have it, which fits its severity. One that a
/// checkup of a disk finds has an alert on the disks as well: there may be no volume on it.
#[test]
fn every_reason_of_health_has_an_alert_that_says_how_bad_it_is() {
    let alerts = alerts();
    for row in REASONS.iter().filter(|row| row.word != "BackgroundWorkFails") {
        let of_marked = alerts_of(&alerts, "localpool_controller_marked_persistent_volumes", row.word);
        if row.subject == Subject::PersistentVolume {
            assert_eq!(of_marked, ["LocalpoolPersistentVolumeMarked"], "{}", row.word);
            continue;
        }
        let wanted: &[&str] = match row.word {
            "NotMountPoint" => &["LocalpoolLocalVolumeNotMounted"],
            "DiskNotAnswering" | "FilesystemReadOnly" | "FilesystemShutDown" | "FilesystemErrors" => {
                &["LocalpoolPersistentVolumeMarked"]
            }
            _ => &[],
        };
        assert_eq!(of_marked, wanted, "{}", row.word);
        let wanted = match (row.word, row.severity) {
            ("Conflict", _) => "LocalpoolVolumeInConflict",
            ("DiskElsewhere", _) => "LocalpoolVolumeElsewhere",
            ("NodeGone", _) => "LocalpoolVolumeWithoutNode",
            ("NotMountPoint" | "WrongDevice", _) => "LocalpoolVolumeNotMounted",
            (_, Severity::Degraded) => "LocalpoolVolumeDegraded",
            (_, Severity::Inaccessible | Severity::DataLoss) => "LocalpoolVolumeUnusable",
        };
        assert_eq!(alerts_of(&alerts, "localpool_controller_abnormal_volumes", row.word), [wanted], "{}", row.word);
        let of_disks = alerts_of(&alerts, "localpool_pool_unhealthy_disks", row.word);
        let is_of_disk = row.subject == Subject::Disk && row.source == Source::Checkup;
        let wanted: &[&str] = if is_of_disk { &["LocalpoolDiskUnhealthy"] } else { &[] };
        assert_eq!(of_disks, wanted, "{}", row.word);
    }
}

#[test]
fn every_alert_asks_for_metrics_that_are_served_and_names_labels_that_they_have() {
    for rule in rules(&alerts()) {
        let expression = rule["expr"].as_str().unwrap();
        let Asked { metrics, picked, grouped, is_aggregate } = asked(expression);
        assert!(metrics.iter().any(|metric| metric != "up"), "{expression}");
        let of_ours: Vec<&String> = metrics.iter().filter(|metric| *metric != "up").collect();
        assert!(of_ours.iter().all(|metric| documented().contains(*metric)), "{of_ours:?} are not all documented");
        let sources =
            of_ours.iter().map(|metric| source_of(metric).unwrap_or_else(|| panic!("nothing serves {metric}")));
        let mut sources: Vec<String> = sources.collect();
        if picked.iter().any(|(label, _)| label == "reason") {
            sources.extend(REASONS.iter().map(|row| format!("\"{}\"", row.word)));
        }
        if picked.iter().any(|(label, _)| label == "why") {
            sources.extend(Why::ALL.iter().map(|why| format!("\"{}\"", why.word())));
        }
        let is_served = |word: &str| sources.iter().any(|text| text.contains(&format!("\"{word}\"")));
        // Prometheus has `up`, and the chart gives it these labels, and gives `node` to every metric of an agent.
        let is_of_agent = |metric: &String| metric == "up" || !metric.starts_with("localpool_controller_");
        let is_given = |label: &str| {
            label == "node" && metrics.iter().all(is_of_agent)
                || label == "job" && metrics.iter().any(|metric| metric == "up")
        };
        for (label, value) in &picked {
            let is_there = is_served(label) && is_served(value);
            assert!(is_there || is_given(label), "{label}={value} in {expression}");
        }
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        let named: Vec<&str> = summary.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()).collect();
        for label in grouped.iter().map(String::as_str).chain(named.iter().copied()) {
            assert!(is_served(label) || is_given(label), "{label} in {expression}, {summary}");
        }
        let is_kept = |label: &&str| !is_aggregate || grouped.iter().any(|group| group == label);
        assert!(named.iter().all(is_kept), "{expression} has no such label any more: {summary}");
    }
}

#[test]
fn a_scrape_keeps_the_labels_that_alerts_name_and_says_which_node_is_silent() {
    let Some(helms) = helm::both() else { return };
    let job = |component: &str| json!({"targetLabel": "job", "replacement": format!("localpool-{component}")});
    let node = json!({"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"});
    for rule in rules(&alerts()) {
        let picked = asked(rule["expr"].as_str().unwrap()).picked;
        let mut jobs = picked.iter().filter(|(label, _)| label == "job");
        assert!(jobs.all(|(_, job)| job == "localpool-node"), "{picked:?}");
    }
    for helm in helms {
        // The name of the release does not matter.
        let objects = helm.objects(&["--set", "serviceMonitor.enabled=true,fullnameOverride=disks"]);
        let mut found = BTreeMap::new();
        for monitor in of_kind(&objects, "ServiceMonitor") {
            let endpoints = monitor["spec"]["endpoints"].as_array().unwrap();
            let of_ours = endpoints.iter().find(|endpoint| endpoint["port"] == "http").unwrap();
            assert_eq!(of_ours["honorLabels"], true, "a set's namespace would be that of the pods");
            found.insert(name(monitor), of_ours["relabelings"].clone());
        }
        let expected = [("disks-controller", json!([job("controller")])), ("disks-node", json!([job("node"), node]))];
        assert_eq!(found, BTreeMap::from(expected));
    }
}

#[test]
fn the_alerts_are_made_only_when_they_are_wanted_and_each_leads_to_its_runbook() {
    let Some(helms) = helm::both() else { return };
    for helm in helms {
        assert!(of_kind(&helm.objects(&[]), "PrometheusRule").is_empty());
        for (value, place) in
            [("docs/runbooks", "docs/runbooks"), ("https://wiki.example.com/l/", "https://wiki.example.com/l")]
        {
            let url = format!("prometheusRule.runbookUrl={value}");
            let on = ["prometheusRule.enabled=true", "prometheusRule.additionalLabels.release=prometheus", &url];
            let objects = helm.objects(&["--set", on[0], "--set", on[1], "--set", on[2]]);
            let made = of_kind(&objects, "PrometheusRule");
            let [rule] = made[..] else { panic!("{} PrometheusRules", made.len()) };
            let mut expected = alerts();
            for rule in expected["groups"]
                .as_array_mut()
                .unwrap()
                .iter_mut()
                .flat_map(|group| group["rules"].as_array_mut().unwrap())
            {
                let page = format!("{place}/{}.md", rule["alert"].as_str().unwrap());
                rule["annotations"]["runbook_url"] = page.into();
            }
            assert_eq!((name(rule), &rule["spec"]), ("localpool", &expected));
            assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
        }
    }
}

/// What `promtool test rules` asks at one time of one test.
struct Asking {
    minute: u64,
    /// The names of the alerts that it would see.
    seen: Regex,
    /// The alerts that fire then.
    fire: BTreeSet<String>,
}

impl Asking {
    fn of(asked: &Value) -> Self {
        let time = asked["eval_time"].as_str().unwrap();
        let (number, unit) = time.split_at(time.len() - 1);
        let minutes = match unit {
            "m" => 1,
            "h" => 60,
            _ => panic!("a time in minutes or hours: {time}"),
        };
        let expression = asked["expr"].as_str().unwrap();
        assert!(expression.contains(r#"alertstate="firing""#), "{expression}");
        let after =
            |text: &str, word: &str| -> Option<String> { Some(text.split_once(word)?.1.split_once('"')?.0.to_owned()) };
        let exact = |text: &str| after(text, r#"alertname=""#);
        let pattern = exact(expression).or_else(|| after(expression, r#"alertname=~""#));
        let seen = Regex::new(&format!("^(?:{})$", pattern.as_deref().unwrap_or(".*"))).unwrap();
        let samples = asked["exp_samples"].as_array().cloned().unwrap_or_default();
        // Without the name among its labels, a sample is of the alert that the expression picks.
        let fires = |sample: &Value| exact(sample["labels"].as_str().unwrap()).or_else(|| exact(expression)).unwrap();
        let fire = samples.iter().map(fires).collect();
        Self { minute: number.parse::<u64>().unwrap() * minutes, seen, fire }
    }

    fn is_quiet_about(&self, alert: &str) -> bool {
        self.seen.is_match(alert) && !self.fire.contains(alert)
    }
}

/// Whether one of these tests sees the alert first not firing, and then firing.
fn is_tried(tests: &[Vec<Asking>], alert: &str) -> bool {
    let is_one = |test: &Vec<Asking>| {
        let fires = test.iter().filter(|asking| asking.fire.contains(alert)).map(|asking| asking.minute).max();
        let quiet = test.iter().filter(|asking| asking.is_quiet_about(alert));
        quiet.map(|asking| asking.minute).min().zip(fires).is_some_and(|(quiet, fires)| quiet < fires)
    };
    tests.iter().any(is_one)
}

#[test]
fn of_every_alert_a_test_of_promtool_has_when_it_does_not_fire_yet_and_when_it_does() {
    let text = std::fs::read_to_string(repository().join("tests/chart/alerts.test.yaml")).unwrap();
    let tests: Value = serde_saphyr::from_str(&text).unwrap();
    let askings = |test: &Value| test["promql_expr_test"].as_array().unwrap().iter().map(Asking::of).collect();
    let tests: Vec<Vec<Asking>> = tests["tests"].as_array().unwrap().iter().map(askings).collect();
    let alerts = alerts();
    let names: BTreeSet<&str> = rules(&alerts).iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    let unknown: Vec<&String> = tests
        .iter()
        .flatten()
        .flat_map(|asking| &asking.fire)
        .filter(|alert| !names.contains(alert.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} are no alerts");
    let untried: Vec<&str> = names.into_iter().filter(|alert| !is_tried(&tests, alert)).collect();
    assert!(untried.is_empty(), "tests/chart/alerts.test.yaml does not try {untried:?}");
}

/// The reasons to wait for which nobody is called, and why.
const NOT_CALLED: [(&[&str], &str); 4] = [
    (
        &["ClassNotChosen", "MarkNotCounted", "Recovering", "NodeIsBack", "ClockJumped", "NamespaceNotChosen"],
        "as it is meant",
    ),
    (&["DiskElsewhere"], "LocalpoolVolumeElsewhere"),
    (&["Paused", "DryRun", "SwitchedOff", "PolicyChanged", "SetBusy"], "a person wants it, or it ends by itself"),
    (&["WaitsForPod", "WaitsForClaim", "WaitsForSet", "WaitsForBinding", "WaitsForReady"], "LocalpoolReactionStuck"),
];

#[test]
fn every_reason_to_wait_calls_somebody_or_need_not_and_its_runbook_has_its_word() {
    let alerts = alerts();
    let expression = |alert: &str| {
        let rule = rules(&alerts).into_iter().find(|rule| rule["alert"] == alert).expect("an alert");
        rule["expr"].as_str().unwrap().to_owned()
    };
    let page = |alert: &str| std::fs::read_to_string(runbooks().join(format!("{alert}.md"))).unwrap();
    let mut wrong = Vec::new();
    for why in Why::ALL {
        let calls = ["LocalpoolReactionHeld", "LocalpoolReactionStopped"].into_iter().find(|alert| {
            let words: BTreeSet<String> = expression(alert).split(['"', '|']).map(str::to_owned).collect();
            words.contains(why.word())
        });
        let quiet = NOT_CALLED.iter().filter(|(words, _)| words.contains(&why.word())).count();
        if usize::from(calls.is_some()) + quiet != 1 {
            wrong.push(format!("{}: {calls:?}, {quiet}", why.word()));
        }
        if let Some(alert) = calls.filter(|alert| *alert == "LocalpoolReactionHeld") {
            let is_there = page(alert).contains(&format!("`{}`", why.word()));
            wrong.extend((!is_there).then(|| format!("{alert}: no {}", why.word())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
