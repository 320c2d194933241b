//! The alerts: each says what to do and asks for metrics that exist, and the chart makes them when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm::{self, name, of_kind};
use super::{chart, repository};

fn alerts() -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(chart().join("files/alerts.yaml")).unwrap()).unwrap()
}

fn rules(alerts: &Value) -> Vec<&Value> {
    let groups = alerts["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

#[test]
fn every_alert_says_what_is_wrong_what_it_means_and_what_to_do() {
    let alerts = alerts();
    let mut names = BTreeSet::new();
    for rule in rules(&alerts) {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("Localpool") && names.insert(name), "{name}");
        for words in ["summary", "description", "runbook"] {
            assert!(rule["annotations"][words].as_str().is_some_and(|words| words.len() > 20), "{name}: {words}");
        }
        assert!(["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
    }
    assert!(names.len() >= 7, "{names:?}");
}

#[test]
fn every_alert_asks_for_a_metric_that_is_served_and_names_labels_that_it_has() {
    let source = |path: &str| std::fs::read_to_string(repository().join("src").join(path)).unwrap();
    let all = [source("role/metrics.rs"), source("role/set_metrics.rs"), source("operator/controller/metrics.rs")];
    // The first half of such a name is in a `format!`.
    let served = |metric: &str| {
        let tail = ["localpool_set_", "localpool_controller_"].iter().find_map(|start| metric.strip_prefix(start));
        all.iter().any(|text| [Some(metric), tail].iter().flatten().any(|word| text.contains(&format!("\"{word}\""))))
    };
    for rule in rules(&alerts()) {
        let expression = rule["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("localpool_")).collect();
        assert!(!metrics.is_empty() && metrics.iter().all(|metric| served(metric)), "{metrics:?}");
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        let mut labels = summary.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap());
        assert!(labels.all(|label| ["node", "namespace", "set"].contains(&label)), "{summary}");
    }
}

#[test]
fn a_scrape_keeps_the_labels_that_alerts_name_and_says_which_node_is_silent() {
    let Some(helms) = helm::both() else { return };
    let job = |component: &str| json!({"targetLabel": "job", "replacement": format!("localpool-{component}")});
    let node = json!({"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"});
    for helm in helms {
        // Whatever the release is called.
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
fn the_alerts_are_made_only_when_they_are_wanted_and_as_they_are_written() {
    let Some(helms) = helm::both() else { return };
    for helm in helms {
        assert!(of_kind(&helm.objects(&[]), "PrometheusRule").is_empty());
        let on = ["prometheusRule.enabled=true", "prometheusRule.additionalLabels.release=prometheus"];
        let objects = helm.objects(&["--set", on[0], "--set", on[1]]);
        let made = of_kind(&objects, "PrometheusRule");
        let [rule] = made[..] else { panic!("{} PrometheusRules", made.len()) };
        assert_eq!((name(rule), &rule["spec"]), ("localpool", &alerts()));
        assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    }
}
