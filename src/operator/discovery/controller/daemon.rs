//! The DaemonSet of a LocalVolumeDiscovery: the chart's pod, on the nodes and with the tolerations of the object.
//! Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use uuid::Uuid;

use crate::api::DiscoverySpec;
use crate::api::crd::LocalVolumeDiscovery;

/// On the DaemonSet: the object that it belongs to, as an owner reference cannot reach another namespace.
pub const DISCOVERY_ANNOTATION: &str = "localpool.dev/discovery";

/// On the DaemonSet: what it was made from. Without it, a DaemonSet with more fields than are wanted now would look
/// right.
const WANTED: &str = "localpool.dev/wanted";
/// The UUID namespace of such names.
const NAMES: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_da3305e70001);

/// Why a template is not valid.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("it is not a DaemonSet")]
    Json(#[from] serde_json::Error),
    #[error("it has no {0}")]
    Missing(&'static str),
}

/// The DaemonSet from the chart, without what the object decides.
#[derive(Clone, Debug)]
pub struct DaemonTemplate {
    daemon: Arc<DaemonSet>,
    pub name: String,
    /// Finds its pods: `key=value,…`.
    pub selector: String,
}

impl std::str::FromStr for DaemonTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let daemon: DaemonSet = serde_json::from_str(text)?;
        let missing = TemplateError::Missing;
        let name = daemon.metadata.name.clone().ok_or(missing("metadata.name"))?;
        let spec = daemon.spec.as_ref().ok_or(missing("spec"))?;
        let labels = spec.selector.match_labels.as_ref().filter(|labels| !labels.is_empty());
        let labels = labels.ok_or(missing("spec.selector.matchLabels"))?;
        let selector = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let pod = spec.template.spec.as_ref().ok_or(missing("spec.template.spec"))?;
        if pod.containers.is_empty() {
            return Err(missing("container"));
        }
        Ok(Self { daemon: Arc::new(daemon), name, selector })
    }
}

impl DaemonTemplate {
    /// The DaemonSet that an object wants in `namespace`, which is ours, wherever the object is.
    pub fn daemon(
        &self,
        namespace: &str,
        object: &LocalVolumeDiscovery,
        read: &DiscoverySpec,
    ) -> Result<DaemonSet, TemplateError> {
        let DiscoverySpec { node_selector, tolerations, node: _ } = read;
        let mut daemon = DaemonSet::clone(&self.daemon);
        let home = object.namespace().unwrap_or_default();
        daemon.metadata.namespace = Some(namespace.to_owned());
        if home == namespace {
            daemon.metadata.owner_references = object.controller_owner_ref(&()).map(|owner| vec![owner]);
        }
        daemon.annotations_mut().insert(DISCOVERY_ANNOTATION.to_owned(), format!("{home}/{}", object.name_any()));
        let spec = daemon.spec.as_mut().ok_or(TemplateError::Missing("spec"))?;
        let pod = spec.template.spec.as_mut().ok_or(TemplateError::Missing("spec.template.spec"))?;
        if let Some(selector) = node_selector {
            let nodes = pod.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
            let selector: NodeSelector = serde_json::from_value(selector.clone())?;
            nodes.required_during_scheduling_ignored_during_execution = Some(selector);
        }
        let tolerations: Option<Vec<Toleration>> = tolerations.clone().map(serde_json::from_value).transpose()?;
        pod.tolerations = tolerations.filter(|all| !all.is_empty());
        let container = pod.containers.first_mut().ok_or(TemplateError::Missing("container"))?;
        container.args.get_or_insert_default().push(format!("--namespace={home}"));
        let text = serde_json::to_vec(&daemon)?;
        daemon.annotations_mut().insert(WANTED.to_owned(), Uuid::new_v5(&NAMES, &text).to_string());
        Ok(daemon)
    }
}

/// Whether `live` has all that `wanted` has; an API server adds defaults to it.
pub fn covers(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            let is_covered = |(key, value): (&String, &Value)| live.get(key).is_some_and(|live| covers(value, live));
            wanted.iter().all(is_covered)
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| covers(wanted, live))
        }
        _ => wanted == live,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::{discovery, template};
    use super::*;
    use crate::api::{Node, parse_discovery};

    fn made(namespace: &str, spec: Value) -> Value {
        let object = discovery("storage", spec);
        let value = serde_json::to_value(&object).expect("written");
        let read = parse_discovery(&value, &Node::standalone("n")).expect("valid");
        serde_json::to_value(template().daemon(namespace, &object, &read).expect("made")).expect("written")
    }

    #[test]
    fn the_pods_get_the_selector_with_all_its_parts_the_tolerations_and_the_namespace_of_the_result() {
        let selector = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disks", "operator": "Gt", "values": ["3"]},
                                  {"key": "edge", "operator": "DoesNotExist"}],
             "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b", "c"]}]},
        ]});
        let tolerations = json!([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]);
        let daemon = made("storage", json!({"nodeSelector": selector, "tolerations": tolerations}));
        let pod = &daemon["spec"]["template"]["spec"];
        let nodes = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!((nodes, &pod["tolerations"]), (&selector, &tolerations));
        assert_eq!(pod["containers"][0]["args"], json!(["--state-dir=/var/lib/localpool", "--namespace=storage"]));
        let plain = made("storage", json!({}));
        assert!(plain["spec"]["template"]["spec"]["affinity"].is_null());
        assert!(plain["spec"]["template"]["spec"]["tolerations"].is_null());
    }

    #[test]
    fn it_is_owned_where_an_owner_can_be_named_and_runs_in_our_namespace_wherever_the_object_is() {
        let own = made("storage", json!({}));
        assert_eq!(own["metadata"]["ownerReferences"][0]["name"], "auto-discover-devices");
        assert_eq!(own["metadata"]["ownerReferences"][0]["uid"], "u");
        let other = made("localpool", json!({}));
        assert_eq!(other["metadata"]["namespace"], "localpool");
        assert!(other["metadata"]["ownerReferences"].is_null(), "an owner elsewhere would count as gone");
        assert_eq!(other["metadata"]["annotations"][DISCOVERY_ANNOTATION], "storage/auto-discover-devices");
    }

    #[test]
    fn defaults_are_no_difference_and_another_image_is() {
        let wanted = made("storage", json!({}));
        let mut live = wanted.clone();
        live["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
        assert!(covers(&wanted, &live));
        live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
        assert!(!covers(&wanted, &live));
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        let more = made("storage", json!({"nodeSelector": selector}));
        assert!(!covers(&wanted, &more), "what is not wanted any more goes");
        let mut less = wanted.clone();
        less["spec"]["template"]["spec"]["containers"][0]["args"] = json!([]);
        assert!(!covers(&wanted, &less));
    }

    #[test]
    fn a_template_that_is_none_is_refused() {
        for (text, message) in
            [("{", "not a DaemonSet"), ("{}", "metadata.name"), (r#"{"metadata": {"name": "d"}}"#, "no spec")]
        {
            let error = text.parse::<DaemonTemplate>().expect_err("refused");
            assert!(error.to_string().contains(message), "{text}: {error}");
        }
    }
}
