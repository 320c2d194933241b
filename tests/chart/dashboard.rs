//! The dashboard: each panel asks for metrics that exist and for values that Grafana can choose, and the chart renders
//! it if its values ask for it.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{self, name, of_kind};
use super::metrics::{asked, documented, source_of};
use super::{chart, repository};

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(chart().join("files/dashboard.json")).unwrap()).unwrap()
}

fn expressions(panel: &Value) -> Vec<&str> {
    panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap()).collect()
}

/// The panels that are no title of a row, and their expressions.
fn panels(dashboard: &Value) -> Vec<(&Value, Vec<&str>)> {
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    panels.map(|panel| (panel, expressions(panel))).collect()
}

/// Every `datasource` in it.
fn datasources<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("datasource"));
            fields.values().for_each(|value| datasources(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| datasources(item, found)),
        _ => {}
    }
}

#[test]
fn every_panel_asks_for_metrics_that_are_documented_and_names_labels_that_they_have() {
    let (dashboard, documented) = (dashboard(), documented());
    let panels = panels(&dashboard);
    assert!(panels.len() > 20, "{}", panels.len());
    for (panel, expressions) in panels {
        let title = panel["title"].as_str().unwrap();
        for expression in expressions {
            let asked = asked(expression);
            let metrics: Vec<&str> =
                asked.metrics.iter().map(|metric| metric.strip_suffix("_bucket").unwrap_or(metric)).collect();
            assert!(metrics.iter().any(|metric| metric.starts_with("localpool_")), "{title}: {expression}");
            for metric in metrics.iter().filter(|metric| **metric != "vector") {
                assert!(documented.contains(*metric), "{title}: {metric} is not in docs/kubernetes.md");
                let text = source_of(metric).unwrap();
                let is_of_agent = !metric.starts_with("localpool_controller_");
                let has = |label: &str| {
                    label == "le" || label == "node" && is_of_agent || text.contains(&format!("\"{label}\""))
                };
                for label in asked.picked.iter().map(|(label, _)| label).chain(&asked.grouped) {
                    assert!(has(label), "{title}: {metric} has no label {label}");
                }
            }
        }
    }
}

/// As a file of rules, because promtool checks no single expressions.
#[test]
fn prometheus_understands_every_panel() {
    let Some(promtool) = helm::built("promtool") else { return };
    let dashboard = dashboard();
    let expressions = panels(&dashboard).into_iter().flat_map(|(_, expressions)| expressions);
    let plain = expressions.map(|expression| expression.replace("$__rate_interval", "5m"));
    let rules: Vec<Value> = plain
        .enumerate()
        .map(|(index, expression)| json!({"record": format!("panel:{index}"), "expr": expression}))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, json!({"groups": [{"name": "panels", "rules": rules}]}).to_string()).unwrap();
    let done = Command::new(promtool).args(["check", "rules"]).arg(file.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_person_chooses_prometheus_the_nodes_and_the_classes() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "node", "class"]);
    assert_eq!((&variables[0]["type"], &variables[0]["query"]), (&"datasource".into(), &"prometheus".into()));
    for variable in &variables[1..] {
        let name = variable["name"].as_str().unwrap();
        let metric = if name == "node" { "localpool_pool_volumes" } else { "localpool_class_bytes" };
        assert_eq!(variable["definition"], format!("label_values({metric}, {name})"));
        assert!(documented().contains(metric));
    }
    let mut found = Vec::new();
    datasources(&dashboard, &mut found);
    assert!(found.iter().all(|source| **source == json!({"type": "prometheus", "uid": "${datasource}"})));
    for (panel, expressions) in panels(&dashboard) {
        for expression in expressions {
            let chosen = expression.split('$').skip(1);
            let known = ["node\"", "class\"", "__rate_interval]"];
            let wrong: Vec<&str> = chosen.filter(|rest| !known.iter().any(|known| rest.starts_with(known))).collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}", panel["title"]);
        }
    }
}

#[test]
fn panels_do_not_overlap_and_a_description_that_names_an_alert_names_one_that_exists() {
    let dashboard = dashboard();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(ids.insert(panel["id"].as_u64().unwrap()) && x + width <= 24, "{panel}");
        for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} lies on another panel", panel["title"]);
        }
        let description = panel["description"].as_str().unwrap_or_default();
        let words = description.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with("Localpool"));
        for alert in words {
            assert!(repository().join(format!("docs/runbooks/{alert}.md")).exists(), "{alert}");
        }
    }
}

#[test]
fn the_picture_in_the_documents_has_every_panel() {
    let picture = std::fs::read_to_string(repository().join("docs/images/dashboard.svg")).unwrap();
    let dashboard = dashboard();
    let titles = dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["title"].as_str().unwrap());
    let missing: Vec<&str> = titles.filter(|title| !picture.contains(&format!(">{title}</text>"))).collect();
    assert!(missing.is_empty(), "CONTRIBUTING says how it is drawn again, as it lacks {missing:?}");
}

#[test]
fn the_dashboard_is_made_only_when_it_is_wanted_and_as_it_is_written() {
    let Some(helms) = helm::both() else { return };
    for helm in helms {
        assert!(of_kind(&helm.objects(&[]), "ConfigMap").is_empty());
        let objects = helm.objects(&["--set", "grafanaDashboard.enabled=true"]);
        let made = of_kind(&objects, "ConfigMap");
        let [map] = made[..] else { panic!("{} ConfigMaps", made.len()) };
        assert_eq!(name(map), "localpool-dashboard");
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let text = map["data"]["localpool.json"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), dashboard());
    }
}
