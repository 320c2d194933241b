//! The watches of what the cluster asks of this node.
//!
//! Takes in its sets and LocalVolumes, its Node and DevicePool, and the pods of the Local Storage Operator; hands the
//! rules to the agent and the [`NodeConfig`] to the tasks, each only when it changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Api;
use kube::runtime::watcher;
use serde_json::Value;
use tokio::sync::{Notify, watch as channel};

use super::node_config::{NodeConfig, NodeObjects, Readers, node_config_of};
use super::parsed::SetObject;
use crate::api::crd::{LocalVolume, LocalVolumeSet};
use crate::operator::api_server::object_key::Uid;
use crate::operator::api_server::watch::{ReportOn, Watched, mirror};
use crate::operator::crds::definition::{Definition, Definitions, NotBelieved};
use crate::operator::node::context::NodeOperator;

/// The wait after a CRD was replaced, until the API server certainly uses the new one.
const SETTLED: Duration = Duration::from_secs(5);
/// The wait before a CRD that could not be read is read again.
const UNREAD: Duration = Duration::from_secs(30);
/// The pods of the operator's DaemonSet.
const DISKMAKER: &str = "app=diskmaker-manager";

/// The specs that there are, by UID. The definition is read again for each new spec, as another owner's definition may
/// have come in between and pruned it. A later definition also prunes stored objects when they are read, and their
/// generation stays: so the spec itself is compared.
#[derive(Debug, Default, PartialEq)]
struct Written {
    sets: Specs<LocalVolumeSet>,
    volumes: Specs<LocalVolume>,
}

type Specs<K> = BTreeMap<Option<Uid<K>>, (Option<i64>, Value)>;

impl Written {
    fn of(objects: &NodeObjects) -> Self {
        Self {
            sets: specs(objects.sets.iter().flat_map(BTreeMap::values)),
            volumes: specs(objects.volumes.iter().flat_map(BTreeMap::values)),
        }
    }
}

fn specs<'a, K: SetObject + 'a>(objects: impl Iterator<Item = &'a Arc<K>>) -> Specs<K> {
    objects.map(|object| (Uid::of(&**object), (object.meta().generation, object.spec().clone()))).collect()
}

/// Watches the sets, the node and its DevicePool, and keeps `config` and the pool's rules in step.
pub async fn keep(operator: NodeOperator, config: channel::Sender<Arc<NodeConfig>>) {
    loop {
        // Before anything is listed: whatever is seen from now on was decoded by these definitions or by later ones.
        let definitions = Definitions::read(&operator.client).await;
        follow(&operator, &config, &definitions).await;
        tokio::time::sleep(SETTLED).await;
    }
}

/// Returns when the definitions have changed; by then nothing new is claimed.
async fn follow(operator: &NodeOperator, config: &channel::Sender<Arc<NodeConfig>>, definitions: &Definitions) {
    let objects = Mutex::new(NodeObjects {
        schema: definitions.of_sets.believed("nothing new is claimed"),
        volume_schema: definitions.of_volumes.believed("LocalVolumes claim nothing new"),
        // Without the CRD there are none; the watch reports them when it comes.
        volumes: (definitions.of_volumes == Definition::Absent).then(BTreeMap::new),
        ..NodeObjects::default()
    });
    let changed = Notify::new();
    tokio::select! {
        () = watch(operator, &objects, &changed) => {}
        () = hand_over(operator, config, definitions, &objects, &changed) => {}
        () = tokio::time::sleep(UNREAD), if definitions.are_unread() => {}
    }
}

/// Keeps the objects in step with the API server.
async fn watch(operator: &NodeOperator, objects: &Mutex<NodeObjects>, changed: &Notify) {
    let update = |change: &dyn Fn(&mut NodeObjects)| {
        change(&mut objects.lock().unwrap_or_else(PoisonError::into_inner));
        // One waiting notice is enough: whoever takes it looks at everything.
        changed.notify_one();
    };
    let client = || operator.client.clone();
    let named = watcher::Config::default().fields(&format!("metadata.name={}", operator.node));
    let on_node = watcher::Config::default().labels(DISKMAKER).fields(&format!("spec.nodeName={}", operator.node));
    let watched = Watched::all(Api::all(client()), "LocalVolumeSets");
    let sets = mirror(watched, ReportOn::Lists, |sets| {
        update(&|objects| (objects.sets, objects.report_count) = (Some(sets.clone()), objects.report_count + 1));
    });
    let watched = Watched::all(Api::all(client()), "LocalVolumes");
    let volumes = mirror(watched, ReportOn::Lists, |volumes| {
        update(&|objects| (objects.volumes, objects.report_count) = (Some(volumes.clone()), objects.report_count + 1));
    });
    let watched = Watched::some(Api::all(client()), named.clone(), "Nodes");
    let node = mirror(watched, ReportOn::Changes, |nodes| {
        update(&|objects| objects.node = nodes.values().next().cloned());
    });
    let watched = Watched::some(Api::all(client()), named, "DevicePools");
    let pool = mirror(watched, ReportOn::Changes, |pools| {
        update(&|objects| objects.take_in_pool(pools.values().next().cloned()));
    });
    let watched = Watched::some(Api::all(client()), on_node, "Pods");
    let diskmakers = mirror(watched, ReportOn::Changes, |pods| {
        update(&|objects| objects.diskmakers = Some(pods.clone()));
    });
    tokio::join!(sets, volumes, node, pool, diskmakers);
}

/// Makes the config of the objects after each change, and hands it over if it is new. Returns when a CRD has changed.
async fn hand_over(
    operator: &NodeOperator,
    config: &channel::Sender<Arc<NodeConfig>>,
    definitions: &Definitions,
    objects: &Mutex<NodeObjects>,
    changed: &Notify,
) {
    let ours = definitions.of_sets.is_ours() && definitions.of_volumes.is_ours();
    let (mut handed_over, readers) = (None, Readers::default());
    let (mut judged, mut report_count) = (Written::default(), 0);
    loop {
        changed.notified().await;
        let mut now = objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let written = Written::of(&now);
        // While a CRD is another owner's, each new list may be the first one under ours.
        let asks = written != judged || (!ours && now.report_count != report_count);
        let replaced = asks && Definitions::read(&operator.client).await != *definitions;
        if replaced {
            let why = Some(Err(NotBelieved::Replaced));
            (now.schema, now.volume_schema) = (why.clone(), why);
        }
        (judged, report_count) = (written, now.report_count);
        let next = Arc::new(node_config_of(&now, &operator.node, &readers));
        // Before any volume is placed by the rules.
        if let Some(pool) = now.pool.as_ref().filter(|_| next.complete) {
            operator.take_in_disks(pool.as_deref());
            operator.name_filesystems(pool.as_deref(), next.default_disks.asked());
        }
        let rules = next.rules();
        if next.complete && handed_over.as_ref() != Some(&rules) {
            operator.agent_handle.set_rules(rules.clone());
            handed_over = Some(rules);
        }
        operator.watch(&next.watched);
        if **config.borrow() != *next {
            config.send_replace(next);
        }
        if replaced {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(spec: Value) -> Written {
        let set = json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": "s", "namespace": "d", "uid": "u", "generation": 1}, "spec": spec,
        });
        let set = Arc::new(serde_json::from_value(set).expect("a set"));
        Written::of(&NodeObjects { sets: Some(BTreeMap::from([("d/s".into(), set)])), ..NodeObjects::default() })
    }

    #[test]
    fn a_spec_that_was_pruned_as_it_was_read_is_another_though_its_generation_is_the_same() {
        let dry = || json!({"storageClassName": "fast", "dryRun": true});
        assert_eq!(written(dry()), written(dry()));
        assert_ne!(written(dry()), written(json!({"storageClassName": "fast"})));
    }
}
