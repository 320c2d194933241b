//! The pods that use the claims of a disk's volumes: a person stops them before a claim is deleted,
//! which waits for them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};

use crate::operator::api_server::error::OperatorError;
use crate::operator::persistent_volume::pod_pvcs::{each_pod, pvc_names};
use crate::operator::volume::PvcName;

/// How many pods of a claim are named at most: a CronJob leaves many that have ended.
const MOST_NAMED: usize = 8;

/// The pods of each claim that has some. Those that run come before those that have ended.
#[derive(Debug, Default)]
pub struct PvcPods(BTreeMap<PvcName, BTreeSet<PvcPod>>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PvcPod {
    has_ended: bool,
    name: String,
}

impl PvcPods {
    /// Those of these claims. Of a namespace the pods are listed once, and also those that no node has yet.
    pub async fn read(client: &Client, wanted: &BTreeSet<PvcName>) -> Result<Self, OperatorError> {
        let mut found = Self::default();
        let namespaces: BTreeSet<&str> = wanted.iter().map(PvcName::namespace).collect();
        for namespace in namespaces {
            let here: Vec<&PvcName> = wanted.iter().filter(|pvc| pvc.namespace() == namespace).collect();
            each_pod(client, namespace, |pod| found.take_in(&here, &[pod])).await?;
        }
        Ok(found)
    }

    /// The pods of the namespace that these claims are in.
    pub fn take_in(&mut self, wanted: &[&PvcName], pods: &[Pod]) {
        for pod in pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
            let used = pvc_names(pod);
            for pvc in wanted.iter().filter(|pvc| used.iter().any(|name| name == pvc.name())) {
                let pod = PvcPod { has_ended, name: pod.name_any() };
                self.0.entry((*pvc).clone()).or_default().insert(pod);
            }
        }
    }

    /// Which pods use the claim, as a part of a sentence.
    pub fn used_by(&self, pvc: &PvcName) -> String {
        let Some(pods) = self.0.get(pvc) else { return "used by no pod".to_owned() };
        let name = |pod: &PvcPod| if pod.has_ended { format!("{} (ended)", pod.name) } else { pod.name.clone() };
        let mut named: Vec<String> = pods.iter().take(MOST_NAMED).map(name).collect();
        named.extend(pods.len().checked_sub(MOST_NAMED + 1).map(|more| format!("{} more", more + 1)));
        let what = if pods.len() == 1 { "pod" } else { "pods" };
        format!("used by {what} {}", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, pvc: &str, phase: &str) -> Pod {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": pvc}});
        let pod = json!({
            "metadata": {"name": name, "namespace": "d"}, "spec": {"containers": [], "volumes": [volume]},
            "status": {"phase": phase},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn those_that_run_are_named_before_those_that_have_ended_and_never_more_than_a_few() {
        let pvc = |text: &str| text.parse::<PvcName>().expect("a name");
        let (data, log, idle) = (pvc("d/data"), pvc("d/log"), pvc("d/idle"));
        let mut found = PvcPods::default();
        let pods = [
            pod("a-load", "data", "Succeeded"),
            pod("db-1", "data", "Pending"),
            pod("db-0", "data", "Running"),
            pod("db-0", "other", "Running"),
        ];
        found.take_in(&[&data, &log, &idle], &pods);
        let jobs: Vec<Pod> = (10..20).map(|number| pod(&format!("job-{number}"), "log", "Failed")).collect();
        found.take_in(&[&data, &log], &jobs);
        assert_eq!(found.used_by(&data), "used by pods db-0, db-1, a-load (ended)");
        assert_eq!(found.used_by(&idle), "used by no pod");
        let many = found.used_by(&log);
        assert!(many.starts_with("used by pods job-10 (ended), job-11 (ended), "), "{many}");
        assert!(many.ends_with("job-17 (ended), 2 more"), "{many}");
        let mut one = PvcPods::default();
        one.take_in(&[&data], &[pod("db-0", "data", "Running")]);
        assert_eq!(one.used_by(&data), "used by pod db-0");
    }
}
