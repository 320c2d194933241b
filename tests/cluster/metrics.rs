//! What the pods of the chart serve at /metrics.

use crate::cluster::{Cluster, HOME, SOON, attempt, eventually, name};

/// The components that serve metrics, and where.
const PORTS: [(&str, u16); 2] = [("node", 9808), ("controller", 9809)];

impl Cluster {
    /// The series of all pods of a component, one in each line.
    pub async fn series(&self, component: &str) -> Result<Vec<String>, String> {
        let (_, port) = PORTS.iter().find(|(known, _)| *known == component).expect("it serves metrics");
        let mut all = Vec::new();
        for pod in self.list("Pod", Some(HOME)).await {
            // Nobody runs those of simulated nodes.
            let is_it = pod["metadata"]["labels"]["app.kubernetes.io/component"] == component;
            if is_it && pod["status"]["podIP"].is_string() {
                let path = format!("/api/v1/namespaces/{HOME}/pods/{}:{port}/proxy/metrics", name(&pod));
                let text = attempt("kubectl", &["get", "--raw", &path]).await?;
                all.extend(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
            }
        }
        Ok(all)
    }

    /// Waits until a metric of a component has a series with these words, which is not 0.
    pub async fn until_served(&self, component: &str, metric: &str, words: &[&str]) {
        let is_it = |line: &String| {
            line.split(['{', ' ']).next() == Some(metric)
                && words.iter().all(|word| line.contains(word))
                && !line.ends_with(" 0")
        };
        let poll = async || {
            let all = self.series(component).await?;
            if all.iter().any(&is_it) { Ok(()) } else { Err(all.join("\n")) }
        };
        eventually(&format!("{metric} has a series with {words:?}"), SOON, poll).await;
    }
}
