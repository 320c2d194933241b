//! A real Prometheus scrapes what the chart's ServiceMonitors say, evaluates its alerts, and answers the panels of its
//! dashboard. With LOCALPOOL_TEST_PICTURE, the name of a file, it also draws the panels after some minutes with volumes
//! that come and go.

mod panel;
mod picture;
mod scrape;
mod server;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, run};
use crate::pods::As;

use super::show::{NAMED_METRICS, is_none_while_well, metrics_in};
use panel::{Panel, Series, Window};
use picture::Answered;
use server::Server;

/// How long a picture watches.
const WATCHED: Duration = Duration::from_secs(300);

/// The alerts that fire if metrics are away.
const ABSENCE: [&str; 3] = ["LocalpoolNoAgent", "LocalpoolAgentGone", "LocalpoolNoController"];

/// The chart with all that is for Prometheus and Grafana, as this cluster would have it.
async fn chart() -> Vec<Value> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
    let values = format!("--values={chart}/ci/cluster-values.yaml");
    let on = "--set=serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true";
    let words = ["template", "localpool", chart, "--namespace", HOME, "--kube-version=1.32.0", &values, on];
    serde_saphyr::from_multiple(&run("helm", &words).await).unwrap()
}

fn only<'a>(chart: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = chart.iter().filter(|object| object["kind"] == kind).collect();
    let [object] = found[..] else { panic!("the chart has {} objects of {kind}", found.len()) };
    object
}

/// Lists under this name, one in each of these objects.
fn all<'a>(objects: &'a Value, list: &str) -> Vec<&'a Value> {
    objects.as_array().unwrap().iter().flat_map(|object| object[list].as_array().unwrap()).collect()
}

async fn every_target_is_up(server: &Server, scrapes: &Value) {
    let wanted = all(scrapes, "static_configs").len();
    let poll = async || {
        let found = server.get("/api/v1/targets", &[("state", "active")]).await?;
        let targets = found["activeTargets"].as_array().unwrap();
        let down: Vec<String> = targets
            .iter()
            .filter(|target| target["health"] != "up")
            .map(|target| format!("{}: {}", target["scrapeUrl"], target["lastError"]))
            .collect();
        if down.is_empty() && targets.len() == wanted { Ok(()) } else { Err(format!("{}, {down:?}", targets.len())) }
    };
    eventually(&format!("{wanted} targets are up"), SOON, poll).await;
}

/// Alerts that something has no metrics are quiet, so Prometheus has found what they ask for.
async fn every_alert_is_evaluated(server: &Server, rules: &Value) {
    let wanted = all(&rules["groups"], "rules").len();
    let poll = async || {
        let found = server.get("/api/v1/rules", &[]).await?;
        let rules = all(&found["groups"], "rules");
        let is_wrong = |rule: &&&Value| {
            let is_of_absence = ABSENCE.iter().any(|name| rule["name"] == *name);
            rule["health"] != "ok" || is_of_absence && rule["state"] != "inactive"
        };
        let message =
            |rule: &&Value| format!("{}: {} {} {}", rule["name"], rule["health"], rule["state"], rule["lastError"]);
        let wrong: Vec<String> = rules.iter().filter(is_wrong).map(message).collect();
        if wrong.is_empty() && rules.len() == wanted { Ok(()) } else { Err(format!("{}, {wrong:?}", rules.len())) }
    };
    eventually(&format!("{wanted} alerts are evaluated"), SOON, poll).await;
}

async fn every_metric_has_a_series(server: &Server) {
    let named: BTreeSet<String> = NAMED_METRICS.iter().flat_map(|text| metrics_in(text)).collect();
    let poll = async || {
        let found = server.get("/api/v1/label/__name__/values", &[]).await?;
        let found = metrics_in(&found.to_string());
        let missing = named.difference(&found).filter(|name| !is_none_while_well(name));
        let missing: Vec<&String> = missing.collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("alerts or panels ask for {missing:?}")) }
    };
    eventually("each metric that an alert or a panel names has a series", SOON, poll).await;
}

/// What LocalpoolAgentGone needs: it knows an agent that does not answer only by these labels.
async fn every_agent_has_its_node_at_the_metric_up(pods: &[Value], server: &Server) {
    let agents = pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "node");
    let nodes: BTreeSet<&str> = agents.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    let query = ("query", "count by (node) (up{job=\"localpool-node\"})");
    let found = server.get("/api/v1/query", &[query]).await.unwrap();
    let found = found["result"].as_array().unwrap().iter().filter_map(|up| up["metric"]["node"].as_str());
    assert_eq!(found.collect::<BTreeSet<&str>>(), nodes);
}

/// Whether a panel may find nothing.
fn is_about_trouble(expression: &str) -> bool {
    expression.contains("!=") || metrics_in(expression).iter().any(|name| is_none_while_well(name))
}

/// The answers to all panels.
async fn answers(server: &Server, dashboard: &Value, length: Duration) -> Result<(Vec<Answered>, Window), String> {
    let window = Window::last(length);
    let mut answered = Vec::new();
    for panel in Panel::of(dashboard) {
        let mut found = Vec::new();
        for target in &panel.targets {
            let series = target.ask(server, window).await?;
            if series.is_empty() && !is_about_trouble(&target.expression) {
                return Err(format!("{}: nothing for {}", panel.title, target.expression));
            }
            let is_without = |series: &&Series| series.name.contains("{{");
            if let Some(series) = series.iter().find(is_without) {
                return Err(format!("{}: no label for {} in {:?}", panel.title, series.name, series.labels));
            }
            found.push(series);
        }
        answered.push((panel, found));
    }
    Ok((answered, window))
}

/// Volumes come and go.
async fn keep_busy(space: &Space, length: Duration) {
    let until = Instant::now() + length;
    let volumes =
        [("one", "local-carved"), ("two", "local-whole"), ("three", "local-carved"), ("four", "local-carved")];
    while Instant::now() < until {
        for (name, class) in volumes {
            space.running(name, class, "1536Mi", As::Folder).await;
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
        for (name, _) in volumes {
            space.remove_pod(name).await;
            space.remove_claim(name).await;
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
    }
}

#[test]
fn prometheus_reads_every_pod_evaluates_every_alert_and_answers_every_panel() {
    check(Needs::Machine, async |space| {
        // The leader writes its status, so that there are writes to count.
        space.create(&space.set("nowhere", "/nowhere/*")).await;
        let chart = chart().await;
        let pods = space.list("Pod", Some(HOME)).await;
        let scrapes = scrape::configs(&chart, &pods);
        let rules = &only(&chart, "PrometheusRule")["spec"];
        let server = Server::start(&scrapes, rules).await;
        every_target_is_up(&server, &scrapes).await;
        every_alert_is_evaluated(&server, rules).await;
        every_metric_has_a_series(&server).await;
        every_agent_has_its_node_at_the_metric_up(&pods, &server).await;
        let dashboard = only(&chart, "ConfigMap")["data"]["localpool.json"].as_str().unwrap();
        let dashboard: Value = serde_json::from_str(dashboard).unwrap();
        let poll = async || answers(&server, &dashboard, Duration::from_secs(60)).await;
        eventually("Prometheus answers each panel", SOON, poll).await;
        if let Some(file) = std::env::var_os("LOCALPOOL_TEST_PICTURE") {
            keep_busy(space, WATCHED).await;
            let poll = async || answers(&server, &dashboard, WATCHED).await;
            let (answered, window) = eventually("Prometheus answers each panel", SOON, poll).await;
            std::fs::write(file, picture::draw(&answered, window)).unwrap();
        }
    });
}
