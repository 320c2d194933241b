//! The custom resources: their types, their schemas, and the list that `localpool crds` prints.
//!
//! A set's spec stays untyped JSON (`LocalVolumeSet` has no typed spec): our own strict parser names unknown fields,
//! and a typed spec would drop them. Every CRD has the number of its schema.

mod benchmark;
mod device_pool;
mod discovery_reason;
mod health;
mod kind;
mod local_volume;
mod local_volume_discovery;
mod local_volume_discovery_result;
mod local_volume_set;
mod named_disk;
mod node_disk_setup;
mod order_reason;
mod pool_reason;
mod pool_volume;
mod pruning;
mod question;
mod readable_ids;
mod schema;
mod set_reason;
mod setup_reason;
mod volume_reason;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use benchmark::{BenchmarkRequest, BenchmarkState, CommandBegun, CommandEnded, DiskBenchmark, PodBenchmark};
pub use device_pool::{
    DevicePool, DevicePoolSpec, DevicePoolStatus, DiskChoice, DiskOrder, DiskOrderStatus, DiskPartitioning, DiskState,
    DiskStatus, OrderState, PartitioningState, READY, SetOffer, Unmatched, WatchedVolume, WatchedVolumeStatus,
};
pub use discovery_reason::DiscoveryReason;
pub use health::HealthEntry;
pub use local_volume::{LocalVolume, LocalVolumeStatus, volume_crd};
pub use local_volume_discovery::{
    DISCOVERY_NAME, DiscoveryPhase, LocalVolumeDiscovery, LocalVolumeDiscoveryStatus, discovery_crd,
};
pub use local_volume_discovery_result::{
    DeviceState, DeviceStatus, DiscoveredDevice, DiscoveryResultSpec, DiscoveryResultStatus,
    LocalVolumeDiscoveryResult, discovery_result_crd,
};
pub use local_volume_set::{LocalVolumeSet, LocalVolumeSetStatus, set_crd};
pub use named_disk::{FolderQuota, NamedDiskStatus};
pub use node_disk_setup::{ACCEPTED, DEFAULT_CLASS, NodeDiskSetup, NodeDiskSetupStatus, node_disk_setup_crd};
pub use order_reason::OrderReason;
pub use pool_reason::PoolReason;
pub use pool_volume::{
    CLAIM_ANNOTATION, CLAIM_UID_ANNOTATION, Intent, NEW_ANNOTATION, PERSISTENT_VOLUME_ANNOTATION, Phase, PoolVolume,
    PoolVolumeSpec, PoolVolumeStatus, VolumeOrder,
};
pub use question::{NamedVolume, PoolAnswer, PoolQuestion, PromisedPath};
pub use set_reason::SetReason;
pub use setup_reason::SetupReason;
pub use volume_reason::VolumeReason;

/// Keeps the object of a volume until its node's agent lets it go.
pub const FINALIZER: &str = "localpool.dev/volume";
/// On each CRD: the number of the schema that this code was built with.
pub const SCHEMA_ANNOTATION: &str = "localpool.dev/schema";
/// Grows with each change of a schema that a running agent must know of before it claims anything.
pub const SCHEMA: &str = "1";
/// The usual label for the tool that manages an object.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "localpool");

/// All of our CRDs, by name.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        DevicePool::crd(),
        discovery_crd(),
        discovery_result_crd(),
        volume_crd(),
        set_crd(),
        node_disk_setup_crd(),
        PoolVolume::crd(),
    ];
    for crd in &mut crds {
        let metadata = &mut crd.metadata;
        metadata.annotations.get_or_insert_default().insert(SCHEMA_ANNOTATION.to_owned(), SCHEMA.to_owned());
        metadata.labels.get_or_insert_default().insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    }
    crds
}

/// Whether a CRD in the cluster has the schema that this code needs: its own, or a later one that keeps all of it.
pub fn has_our_schema(crd: &CustomResourceDefinition) -> bool {
    why_not_ours(crd).is_none()
}

/// What is wrong with a CRD in the cluster. The annotation alone proves nothing: it also stays when another owner
/// replaces our schema.
pub fn why_not_ours(crd: &CustomResourceDefinition) -> Option<String> {
    match crd.metadata.annotations.as_ref().and_then(|all| all.get(SCHEMA_ANNOTATION)) {
        None => return Some("another owner applied it".to_owned()),
        Some(number) if !is_late_enough(number) => {
            return Some(format!("it has schema {number}, and {SCHEMA} is needed"));
        }
        Some(_) => {}
    }
    let ours = all().into_iter().find(|ours| ours.metadata.name == crd.metadata.name)?;
    let dropped = pruning::first_dropped(crd, &ours)?;
    Some(format!("another schema replaced it, which drops unknown fields, such as {dropped}"))
}

/// During an upgrade or downgrade of a cluster, agents run under the CRDs of another version.
fn is_late_enough(number: &str) -> bool {
    let read = |text: &str| text.parse::<u64>().ok();
    read(number).zip(read(SCHEMA)).is_some_and(|(served, needed)| served >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_schema_is_ours_where_it_keeps_all_that_we_write_and_an_older_one_is_not() {
        let with = |number: &str, drops: bool| {
            let mut crd = all().into_iter().find(|crd| crd.metadata.name == set_crd().metadata.name).expect("a CRD");
            crd.metadata.annotations.get_or_insert_default().insert(SCHEMA_ANNOTATION.to_owned(), number.to_owned());
            if drops {
                let schema = crd.spec.versions[0].schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
                let spec = schema.and_then(|s| s.properties.as_mut()?.get_mut("spec")).expect("a spec");
                spec.x_kubernetes_preserve_unknown_fields = None;
            }
            why_not_ours(&crd)
        };
        assert_eq!((with(SCHEMA, false), with("2", false), with("10", false)), (None, None, None));
        assert!(with("2", true).is_some_and(|why| why.contains("drops unknown fields")));
        for older in ["0", "", "one"] {
            assert!(with(older, false).is_some_and(|why| why.contains("is needed")), "{older:?}");
        }
    }

    #[test]
    fn every_crd_has_a_structural_schema_a_status_and_the_number_of_its_schema() {
        let names: Vec<String> = all().iter().filter_map(|crd| crd.metadata.name.clone()).collect();
        assert_eq!(
            names,
            [
                "devicepools.localpool.dev",
                "localvolumediscoveries.local.storage.openshift.io",
                "localvolumediscoveryresults.local.storage.openshift.io",
                "localvolumes.local.storage.openshift.io",
                "localvolumesets.local.storage.openshift.io",
                "nodedisksetups.localpool.dev",
                "poolvolumes.localpool.dev"
            ]
        );
        for crd in all() {
            assert!(has_our_schema(&crd));
            for version in &crd.spec.versions {
                let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).expect("a schema");
                assert_eq!(schema.type_.as_deref(), Some("object"));
                assert!(version.subresources.as_ref().is_some_and(|sub| sub.status.is_some()));
                assert!(version.additional_printer_columns.as_ref().is_some_and(|columns| !columns.is_empty()));
            }
        }
    }
}
