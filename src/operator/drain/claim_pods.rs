//! The pods that use the claims of a disk's volumes: a person stops them before a claim is deleted, which waits for them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};

use super::objects::all_of;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::pod_claims::claims;
use crate::operator::volume::ClaimName;

/// So many pods of a claim are named: a CronJob leaves many that have ended.
const MOST_NAMED: usize = 8;

/// The pods of each claim that has some. Those that run come before those that have ended.
#[derive(Debug, Default)]
pub struct ClaimPods(BTreeMap<ClaimName, BTreeSet<ClaimPod>>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimPod {
    has_ended: bool,
    name: String,
}

impl ClaimPods {
    /// Those of these claims. Of a namespace the pods are listed once, and also those that no node has yet.
    pub async fn read(client: &Client, wanted: &BTreeSet<ClaimName>) -> Result<Self, OperatorError> {
        let mut found = Self::default();
        let namespaces: BTreeSet<&str> = wanted.iter().map(ClaimName::namespace).collect();
        for namespace in namespaces {
            let here: Vec<&ClaimName> = wanted.iter().filter(|claim| claim.namespace() == namespace).collect();
            let (pods, what): (Api<Pod>, _) =
                (Api::namespaced(client.clone(), namespace), format!("listing the pods of {namespace}"));
            let fetch = async |params| within(&what, pods.list(&params)).await;
            let uses_one = |pod: &Pod| claims(pod).iter().any(|name| here.iter().any(|claim| claim.name() == name));
            found.take_in(&here, &all_of(fetch, uses_one).await?);
        }
        Ok(found)
    }

    /// The pods of the namespace that these claims are in.
    pub fn take_in(&mut self, wanted: &[&ClaimName], pods: &[Pod]) {
        for pod in pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
            let used = claims(pod);
            for claim in wanted.iter().filter(|claim| used.iter().any(|name| name == claim.name())) {
                let pod = ClaimPod { has_ended, name: pod.name_any() };
                self.0.entry((*claim).clone()).or_default().insert(pod);
            }
        }
    }

    /// Who uses the claim, in words.
    pub fn words(&self, claim: &ClaimName) -> String {
        let Some(pods) = self.0.get(claim) else { return "used by no pod".to_owned() };
        let words = |pod: &ClaimPod| if pod.has_ended { format!("{} (ended)", pod.name) } else { pod.name.clone() };
        let mut named: Vec<String> = pods.iter().take(MOST_NAMED).map(words).collect();
        named.extend(pods.len().checked_sub(MOST_NAMED + 1).map(|more| format!("{} more", more + 1)));
        let what = if pods.len() == 1 { "pod" } else { "pods" };
        format!("used by {what} {}", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, claim: &str, phase: &str) -> Pod {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        let pod = json!({
            "metadata": {"name": name, "namespace": "d"}, "spec": {"containers": [], "volumes": [volume]},
            "status": {"phase": phase},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn those_that_run_are_named_before_those_that_have_ended_and_never_more_than_a_few() {
        let claim = |text: &str| text.parse::<ClaimName>().expect("a name");
        let (data, log, idle) = (claim("d/data"), claim("d/log"), claim("d/idle"));
        let mut found = ClaimPods::default();
        let pods = [
            pod("a-load", "data", "Succeeded"),
            pod("db-1", "data", "Pending"),
            pod("db-0", "data", "Running"),
            pod("db-0", "other", "Running"),
        ];
        found.take_in(&[&data, &log, &idle], &pods);
        let jobs: Vec<Pod> = (10..20).map(|number| pod(&format!("job-{number}"), "log", "Failed")).collect();
        found.take_in(&[&data, &log], &jobs);
        assert_eq!(found.words(&data), "used by pods db-0, db-1, a-load (ended)");
        assert_eq!(found.words(&idle), "used by no pod");
        let many = found.words(&log);
        assert!(many.starts_with("used by pods job-10 (ended), job-11 (ended), "), "{many}");
        assert!(many.ends_with("job-17 (ended), 2 more"), "{many}");
        let mut one = ClaimPods::default();
        one.take_in(&[&data], &[pod("db-0", "data", "Running")]);
        assert_eq!(one.words(&data), "used by pod db-0");
    }
}
