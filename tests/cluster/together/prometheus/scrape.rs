//! What to scrape: the ServiceMonitors of the chart and the pods of a cluster in, scrape configs of Prometheus out, as
//! the Prometheus Operator makes them.

use serde_json::{Map, Value, json};

use crate::cluster::name;

/// One config for each endpoint of each ServiceMonitor.
pub fn configs(chart: &[Value], pods: &[Value]) -> Value {
    let of_kind = |kind: &'static str| chart.iter().filter(move |object| object["kind"] == kind);
    let mut configs = Vec::new();
    for monitor in of_kind("ServiceMonitor") {
        let chosen = |service: &&Value| has(service, &monitor["spec"]["selector"]["matchLabels"]);
        let service = of_kind("Service").find(chosen).expect("a ServiceMonitor selects a Service of the chart");
        for endpoint in monitor["spec"]["endpoints"].as_array().unwrap() {
            let targets = targets(endpoint, service, pods);
            assert!(!targets.is_empty(), "no pod has the port of {endpoint}");
            let relabelings = endpoint["relabelings"].as_array().into_iter().flatten();
            configs.push(json!({
                "job_name": format!("{}/{}", name(monitor), endpoint["port"].as_str().unwrap()),
                "metrics_path": endpoint["path"],
                "honor_labels": endpoint["honorLabels"] == true,
                "relabel_configs": relabelings.map(in_snake_case).collect::<Vec<Value>>(),
                "static_configs": targets,
            }));
        }
    }
    Value::Array(configs)
}

/// The pods that an endpoint leads to, each with the labels that the operator gives a target before its relabelings.
fn targets(endpoint: &Value, service: &Value, pods: &[Value]) -> Vec<Value> {
    let ports = service["spec"]["ports"].as_array().unwrap();
    let served = ports.iter().find(|port| port["name"] == endpoint["port"]).expect("the Service has the port");
    let target = |pod: &Value| {
        let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let mut ports =
            lists.into_iter().flatten().flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let port = ports.find(|port| port["name"] == served["targetPort"])?;
        Some(json!({
            "targets": [format!("{}:{}", pod["status"]["podIP"].as_str()?, port["containerPort"])],
            "labels": {
                "job": name(service), "service": name(service), "endpoint": endpoint["port"],
                "namespace": pod["metadata"]["namespace"], "pod": name(pod),
                "__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"],
            },
        }))
    };
    pods.iter().filter(|pod| has(pod, &service["spec"]["selector"])).filter_map(target).collect()
}

fn has(object: &Value, labels: &Value) -> bool {
    labels.as_object().unwrap().iter().all(|(label, value)| object["metadata"]["labels"][label] == *value)
}

/// A relabeling of a ServiceMonitor, with the field names of Prometheus.
fn in_snake_case(relabeling: &Value) -> Value {
    let snake = |name: &str| name.replace("sourceLabels", "source_labels").replace("targetLabel", "target_label");
    let fields = relabeling.as_object().unwrap().iter().map(|(name, value)| (snake(name), value.clone()));
    Value::Object(fields.collect::<Map<String, Value>>())
}
