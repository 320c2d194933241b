//! The CRD of NodeDiskSetup: the disks of some nodes as one array, mounted and offered, and their benchmark for those who
//! tune by it.
//!
//! The spec stays untyped JSON: our own strict parser names unknown fields, and those that localpool does not read.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::{WrittenObject, definition, kind};
use super::schema::{column, conditions, integer, node_selector, text, tolerations};

/// A NodeDiskSetup, with its spec as it was written.
pub type NodeDiskSetup = WrittenObject<NodeDiskSetupStatus>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDiskSetupStatus {
    pub observed_generation: i64,
    /// Nodes that it selects and no older one does.
    pub nodes: i64,
    /// Those of them whose disks are set up and ready.
    pub ready: i64,
    /// Bound volumes of this driver on these nodes.
    pub volumes: i64,
    /// Those of them that wait for figures.
    pub waiting: i64,
    /// What a person should look at first: the message of one of the conditions.
    pub message: String,
    pub conditions: Vec<Condition>,
}

/// Type of the condition that says whether a NodeDiskSetup is valid.
pub const ACCEPTED: &str = "Accepted";
/// The class of the disks, if the object names none.
pub const DEFAULT_CLASS: &str = "local-raid-disks";

impl NodeDiskSetup {
    /// The StorageClass of its disks, also if it has a slip elsewhere.
    pub fn class(&self) -> &str {
        self.spec["pvProvisionerOptions"]["storageClass"].as_str().unwrap_or(DEFAULT_CLASS)
    }

    /// Why it is not valid, as its condition says.
    pub fn slip(&self) -> Option<&str> {
        let conditions = &self.status.as_ref()?.conditions;
        let accepted = conditions.iter().find(|one| one.type_ == ACCEPTED && one.status == "False")?;
        Some(&accepted.message)
    }
}

kind!(NodeDiskSetup, ClusterResourceScope, "localpool.dev", "v1alpha1", "nodedisksetups");

fn switch(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

/// An object whose fields are named by whoever reads it.
fn object(description: &str, properties: Value) -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "description": description,
        "properties": properties,
    })
}

fn placement() -> Value {
    let labels = json!({
        "type": "object",
        "description": "The labels of the nodes that it is for. Absent: all nodes.",
        "additionalProperties": {"type": "string"},
    });
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": node_selector()});
    let of_nodes =
        json!({"nodeAffinity": object("What is preferred is refused: a node is selected or not.", required)});
    object(
        "The nodes that it is for. Of several objects that select a node the oldest valid one counts there.",
        json!({
            "nodeSelector": labels,
            "affinity": object("Nodes by more than their labels. Affinity to pods is refused.", of_nodes),
            "tolerations": tolerations(),
        }),
    )
}

fn spec() -> Value {
    let provisioner = json!({
        "storageClass": text("The class that offers the disks. Default: local-raid-disks."),
    });
    let options = json!({
        "ignorePrecomputed": switch("Measure the disks of known types of machines, too."),
        "mountPoint": text("The path in the pod at which the volume is mounted, as the result names it. By default /var/lib/scylla."),
        "runIn": {
            "type": "string", "enum": ["Node", "Pod"],
            "description": "Node: the node's agent measures, with fio. Pod: a command of yours does, in the pod that waits, in the namespaces of the chart's value controller.nodeDiskSetup.execNamespaces; elsewhere the agent. By default Node.",
        },
        "command": {
            "type": "array", "items": {"type": "string"},
            "description": "What runIn: Pod runs, without a shell: a program and its arguments. It prints what Scylla reads as io_properties.yaml, and nothing else.",
        },
        "container": text("The container of the pod in which the command runs, which may be an init container. By default the first one that runs and has the volume at mountPoint."),
        "timeoutSeconds": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 3600, "description": "How long the command may take. By default 600."},
    });
    let count =
        |description: &str| json!({"type": "integer", "format": "int32", "minimum": 0, "description": description});
    object(
        "What is set up. Each part can be switched off alone.",
        json!({
            "placement": placement(),
            "diskSetupDisabled": switch("Set up no disks. Those that are set up stay as they are."),
            "localDisksPath": text("The folder of the node below which the disks are mounted. Disks that are mounted stay where they are. It must be one of the chart's value node.hostMountDirs, or in one. Default: /mnt/raid-disks."),
            "pvProvisionerDisabled": switch("Mount the disks and offer them to no class: they are for a provisioner of yours."),
            "pvProvisionerOptions": object("How the disks are offered.", provisioner),
            "deviceInclusionSpec": object("Which disks are taken, as in a LocalVolumeSet. Absent: all local ones that nobody uses.", json!({})),
            "deviceExclusionSpec": object("Which of them are not, as in a LocalVolumeSet. Those that are attached over a network never are.", json!({})),
            "minDeviceCount": count("If fewer disks of a node match, no array is made of them."),
            "maxDeviceCount": count("The largest number of disks of a node that are taken."),
            "quota": {"type": "string", "enum": ["project", "none"], "description": "What keeps a volume within its size, as in a LocalVolumeSet."},
            "diskBenchmarkDisabled": switch("Write an empty value for each volume, so that pods that wait for one go on."),
            "diskBenchmarkOptions": object("How disks are measured.", options),
        }),
    )
}

/// The CRD, without what all of our CRDs have in common.
pub fn node_disk_setup_crd() -> CustomResourceDefinition {
    let columns = [
        column("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status"),
        column("DisksReady", "string", ".status.conditions[?(@.type==\"DisksReady\")].status"),
        column("Nodes", "integer", ".status.nodes"),
        column("SetUp", "integer", ".status.ready"),
        column("Volumes", "integer", ".status.volumes"),
        column("Waiting", "integer", ".status.waiting"),
        column("Message", "string", ".status.message"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let schema = json!({
        "description": "What is set up on the nodes that it selects: one array of the local disks of each, mounted at a path \
                        and offered to a class; and the speed of the disks of volumes, written into the ConfigMap \
                        localpool-node-tuner of each claim's namespace. It has no effect without the chart's value \
                        controller.nodeDiskSetup.enabled.",
        "properties": {
            "spec": spec(),
            "status": {
                "type": "object",
                "description": "What is set up, and what is not.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "observedGeneration": integer("The generation that this is about."),
                    "nodes": integer("How many nodes it selects that no older one does."),
                    "ready": integer("On how many of them the disks are set up and ready."),
                    "volumes": integer("How many bound volumes are on them."),
                    "waiting": integer("How many of these wait for figures."),
                    "message": text("The message of the first condition that does not hold, or of Accepted."),
                    "conditions": conditions(),
                },
            },
        },
    });
    let mut crd = definition::<NodeDiskSetup>("nds", &columns, schema);
    "Cluster".clone_into(&mut crd.spec.scope);
    crd
}
