//! What PersistentVolumes of other provisioners promise of this node's disks. Read before a claim, and only then: a
//! watch of all PersistentVolumes of a cluster would cost each node more memory than everything else.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolume};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::runtime::Handle;

use super::persistent_volumes::PROVISIONED_BY;
use crate::api::{Node, node_selector};
use crate::claim::{AskPromises, NoAnswer, Promise};
use crate::device::NodeName;
use crate::host::links;
use crate::host::timeout::Timeouts;
use crate::operator::client::find_in_pages;
use crate::operator::error::OperatorError;

/// How many PersistentVolumes are read at once.
const PAGE: u32 = 250;
/// How long the API server may take for all of them.
const ENOUGH: Duration = Duration::from_secs(30);
/// How long it may take to read a promised path: it may be on a server that is gone.
const PATH_TIMEOUT: Duration = Duration::from_secs(5);

/// A path of this node that a PersistentVolume names.
#[derive(Debug, PartialEq, Eq)]
struct ForeignVolume {
    volume: String,
    provisioner: Option<String>,
    path: PathBuf,
}

/// Asks the API server, on a thread of its own: it blocks.
pub fn ask(client: Client, node: NodeName, runtime: Handle) -> AskPromises {
    let mut timeouts = Timeouts::new(PATH_TIMEOUT);
    Box::new(move || {
        let listed = runtime.block_on(async { tokio::time::timeout(ENOUGH, list(&client, &node)).await });
        let named = listed.map_err(|_| NoAnswer::Late { within: ENOUGH })?.map_err(OperatorError::no_answer)?;
        timeouts.forget(|path| named.iter().any(|named| named.path == *path));
        let resolve = |ForeignVolume { volume, provisioner, path }| {
            let asked = path.clone();
            let device = timeouts.ask(&path, move || links::device_on_host(&asked));
            match device {
                Ok(device) => Ok(Promise { volume, provisioner, path, device }),
                Err(source) => Err(NoAnswer::Path { path, volume, source }),
            }
        };
        named.into_iter().map(resolve).collect()
    })
}

async fn list(client: &Client, name: &NodeName) -> Result<Vec<ForeignVolume>, OperatorError> {
    let nodes: Api<KubeNode> = Api::all(client.clone());
    let node = nodes.get(name).await.map_err(OperatorError::api(format!("reading the Node {name}")))?;
    let here = Node { name: name.clone(), labels: node.labels().clone() };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut named = Vec::new();
    let fetch = async |params| volumes.list(&params).await.map_err(OperatorError::api("listing PersistentVolumes"));
    let add = |found: Vec<PersistentVolume>| {
        named.extend(found.iter().filter_map(|volume| named_by(volume, &here)));
        None::<()>
    };
    find_in_pages(ListParams::default().limit(PAGE), fetch, add).await?;
    Ok(named)
}

/// The path that a PersistentVolume has on this node. An affinity that cannot be understood excludes no node.
fn named_by(volume: &PersistentVolume, here: &Node) -> Option<ForeignVolume> {
    let spec = volume.spec.as_ref()?;
    let local = spec.local.as_ref().map(|local| local.path.as_str());
    let path = local.or_else(|| spec.host_path.as_ref().map(|host| host.path.as_str()))?;
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let required = required.and_then(|terms| serde_json::to_value(terms).ok());
    if required.is_some_and(|terms| !node_selector::may_select(&terms, here)) {
        return None;
    }
    let provisioner = volume.annotations().get(PROVISIONED_BY).cloned();
    Some(ForeignVolume { volume: volume.name_any(), provisioner, path: path.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(spec: Value) -> Option<String> {
        let annotations = json!({PROVISIONED_BY: "local-volume-provisioner-n"});
        let volume = json!({"metadata": {"name": "local-pv-1", "annotations": annotations}, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a PersistentVolume");
        let named = named_by(&volume, &Node::standalone("n"))?;
        assert_eq!(
            (named.volume.as_str(), named.provisioner.as_deref()),
            ("local-pv-1", Some("local-volume-provisioner-n"))
        );
        Some(named.path.display().to_string())
    }

    fn affinity(key: &str, value: &str) -> Value {
        let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
        json!({"required": {"nodeSelectorTerms": [term]}})
    }

    #[test]
    fn local_and_host_paths_of_this_node_are_promised_and_nothing_else() {
        let path = "/mnt/local-storage/fast/nvme-x";
        let local = |affinity: Value| named(json!({"local": {"path": path}, "nodeAffinity": affinity}));
        assert_eq!(local(affinity("kubernetes.io/hostname", "n")).as_deref(), Some(path));
        assert_eq!(local(affinity("kubernetes.io/hostname", "m")), None);
        assert_eq!(named(json!({"hostPath": {"path": "/dev/sdx"}})).as_deref(), Some("/dev/sdx"), "of every node");
        assert_eq!(named(json!({"csi": {"driver": "csi.localpool.dev", "volumeHandle": "x"}})), None);
        assert_eq!(named(json!({"nfs": {"path": "/dev/sda", "server": "s"}})), None);
    }

    #[test]
    fn an_affinity_that_makes_no_sense_keeps_no_node_out() {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]});
        let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
        assert!(named(json!({"local": {"path": "/x"}, "nodeAffinity": affinity})).is_some());
    }
}
