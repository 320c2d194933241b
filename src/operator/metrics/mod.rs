//! What the controller reports about itself at `/metrics`.

pub(in crate::operator) mod reaction;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::api::crd::{DevicePool, Phase};
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::operator::bytes::signed;
use crate::operator::metrics::reaction::ReactionMetrics;
use crate::operator::pool::agent_life::silence;
use crate::operator::pool_volume::{self, NODE_GONE, NodeObject, phase};
use crate::operator::stores::Stores;

const PHASES: [(Phase, &str); 7] = [
    (Phase::Pending, "Pending"),
    (Phase::Rejected, "Rejected"),
    (Phase::Accepted, "Accepted"),
    (Phase::Failed, "Failed"),
    (Phase::Ready, "Ready"),
    (Phase::Found, "Found"),
    (Phase::Deleting, "Deleting"),
];

#[derive(Clone)]
pub struct Metrics {
    volumes: IntGaugeVec,
    abnormal: IntGaugeVec,
    accepted: IntGauge,
    /// By reason: the leader's monitor counts them.
    pub marked: IntGaugeVec,
    /// The leader's monitor counts them, too.
    pub unclaimed: IntGauge,
    /// And these.
    pub unwatched: IntGauge,
    pub reaction: ReactionMetrics,
    silent: IntGauge,
    deleted: IntGauge,
    deleted_sets: IntGaugeVec,
    pub leader: IntGauge,
    /// By controller: how many times it wrote something, and how many of these writes failed.
    pub writes: IntCounterVec,
    pub errors: IntCounterVec,
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(format!("localpool_controller_{name}"), help);
        let volumes = IntGaugeVec::new(opts("volumes", "PoolVolumes of the cluster, by phase."), &["phase"])?;
        let abnormal = opts("abnormal_volumes", "Volumes that are not healthy, by the worst reason of each.");
        let abnormal = IntGaugeVec::new(abnormal, &["reason"])?;
        let marked = opts(
            "marked_persistent_volumes",
            "Local PersistentVolumes of other provisioners that are marked, and those of this driver that promise more than their volume has, by each reason.",
        );
        let marked = IntGaugeVec::new(marked, &["reason"])?;
        registry.register(Box::new(marked.clone()))?;
        let unclaimed = "Volumes that no PersistentVolume has named for ten minutes.";
        let unclaimed = IntGauge::with_opts(opts("unclaimed_volumes", unclaimed))?;
        registry.register(Box::new(unclaimed.clone()))?;
        let unwatched = "Local PersistentVolumes of other provisioners that no agent looks at.";
        let unwatched = IntGauge::with_opts(opts("unwatched_persistent_volumes", unwatched))?;
        registry.register(Box::new(unwatched.clone()))?;
        let deleted = opts("set_deletion_timestamp_seconds", "Deletion time of a set that still exists.");
        let accepted = "Creation time of the oldest volume that is accepted but not ready; 0 if there is none.";
        let accepted = IntGauge::with_opts(opts("accepted_timestamp_seconds", accepted))?;
        registry.register(Box::new(accepted.clone()))?;
        let oldest = "Deletion time of the PoolVolume that was deleted first and still exists; 0 if there is none.";
        let oldest = IntGauge::with_opts(opts("deletion_timestamp_seconds", oldest))?;
        registry.register(Box::new(oldest.clone()))?;
        let silent = "Nodes that exist and whose agent does not answer, as their DevicePools say.";
        let silent = IntGauge::with_opts(opts("silent_agents", silent))?;
        registry.register(Box::new(silent.clone()))?;
        let deleted_sets = IntGaugeVec::new(deleted, &["namespace", "set"])?;
        let leader = IntGauge::with_opts(opts("leader", "1 if this replica holds the lease."))?;
        let writes = opts("reconciles_total", "Reconciliations of the leader, by controller.");
        let writes = IntCounterVec::new(writes, &["controller"])?;
        let errors =
            opts("reconcile_errors_total", "Failed reconciliations of the leader, by controller; each is tried again.");
        let errors = IntCounterVec::new(errors, &["controller"])?;
        registry.register(Box::new(volumes.clone()))?;
        registry.register(Box::new(abnormal.clone()))?;
        registry.register(Box::new(deleted_sets.clone()))?;
        registry.register(Box::new(leader.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        let reaction = ReactionMetrics::new(registry)?;
        Ok(Self {
            volumes,
            abnormal,
            accepted,
            marked,
            unclaimed,
            unwatched,
            reaction,
            silent,
            deleted: oldest,
            deleted_sets,
            leader,
            writes,
            errors,
        })
    }

    /// Counts a write of a controller. One that failed is logged; `None`: it did.
    pub fn note<T>(&self, controller: &str, written: Result<T, OperatorError>) -> Option<T> {
        match written {
            Ok(done) => {
                self.writes.with_label_values(&[controller]).inc();
                Some(done)
            }
            Err(error) => {
                self.failed(controller, &error);
                None
            }
        }
    }

    /// Counts and logs what a controller failed in.
    pub fn failed(&self, controller: &str, error: &OperatorError) {
        self.errors.with_label_values(&[controller]).inc();
        tracing::warn!(controller, "{}; trying again", error_message(error));
    }

    /// Counts the volumes at a scrape, not at each change.
    pub fn refresh(&self, stores: &Stores) {
        let all = stores.volumes.all();
        for (wanted, name) in PHASES {
            let count = all.iter().filter(|volume| phase(volume) == wanted).count();
            self.volumes.with_label_values(&[name]).set(signed(count));
        }
        let accepted = all.iter().filter(|volume| phase(volume) == Phase::Accepted);
        let made = accepted.filter_map(|volume| Some(volume.metadata.creation_timestamp.as_ref()?.0.as_second()));
        self.accepted.set(made.min().unwrap_or(0));
        let deleted = all.iter().filter_map(|volume| volume.metadata.deletion_timestamp.as_ref());
        self.deleted.set(deleted.map(|time| time.0.as_second()).min().unwrap_or(0));
        // Of a deleted node nobody expects an answer: its volumes have an alert of their own.
        let is_silent = |pool: &DevicePool| silence(pool).is_some() && stores.nodes.get(&pool.node()).is_some();
        self.silent.set(signed(stores.pools.all().iter().filter(|pool| is_silent(pool)).count()));
        self.abnormal.reset();
        for object in &all {
            let node = NodeObject::of(stores.nodes.get(&object.spec.node));
            let Some(volume) = pool_volume::volume(object, node) else { continue };
            // A volume without a node has an alert of its own, whatever else was found of it before.
            let word = match node {
                NodeObject::Deleted => NODE_GONE,
                NodeObject::Exists if volume.condition.is_healthy() => continue,
                NodeObject::Exists => volume.condition.word(),
            };
            self.abnormal.with_label_values(&[word]).inc();
        }
        self.deleted_sets.reset();
        for set in stores.sets.all() {
            if let Some(Time(deleted)) = &set.metadata.deletion_timestamp {
                let names = [set.namespace().unwrap_or_default(), set.name_any()];
                self.deleted_sets.with_label_values(&names).set(deleted.as_second());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

    use crate::operator::recorded_failures::{RecordedFailure, words};
    use crate::operator::status::health;
    use crate::operator::volume::sample::{in_phase, status_condition};

    #[test]
    fn a_set_that_is_deleted_and_still_there_tells_since_when_and_a_set_that_is_gone_does_not() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let set = |deleted: Option<&str>| {
            let metadata = serde_json::json!({"name": "s", "namespace": "d", "deletionTimestamp": deleted});
            let value = serde_json::json!({"metadata": metadata, "spec": {"storageClassName": "fast"}});
            let set: crate::api::crd::LocalVolumeSet = serde_json::from_value(value).expect("a set");
            Stores { sets: crate::operator::api_server::store::Store::of([set], |_, _| false), ..Stores::default() }
        };
        let reported = || prometheus::core::Collector::collect(&metrics.deleted_sets)[0].get_metric().len();
        metrics.refresh(&set(None));
        assert_eq!(reported(), 0);
        metrics.refresh(&set(Some("2026-01-01T00:00:00Z")));
        assert_eq!(metrics.deleted_sets.with_label_values(&["d", "s"]).get(), 1_767_225_600);
        metrics.refresh(&Stores::default());
        assert_eq!(reported(), 0);
    }

    #[test]
    fn volumes_that_cannot_be_used_are_counted_by_reason_and_no_longer_when_they_are_well() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let metadata = || ObjectMeta { name: Some("n".to_owned()), ..ObjectMeta::default() };
        let node = || Node { metadata: metadata(), ..Node::default() };
        let refresh = |conditions: Vec<Condition>, node: Option<Node>| {
            let mut volume = in_phase(Phase::Ready);
            volume.status.as_mut().expect("set").conditions = conditions;
            let volumes = crate::operator::api_server::store::Store::of([volume], |_, _| false);
            let nodes = crate::operator::api_server::store::Store::of(node, |_, _| false);
            metrics.refresh(&Stores { volumes, nodes, ..Stores::default() });
            let reported = prometheus::core::Collector::collect(&metrics.abnormal);
            let value = |metric: &prometheus::proto::Metric| {
                (metric.get_label()[0].value().to_owned(), metric.get_gauge().get_value())
            };
            reported[0].get_metric().iter().map(value).collect::<Vec<_>>()
        };
        let conflict = status_condition("Healthy", "False", "Conflict", "it is on two disks");
        assert_eq!(refresh(vec![conflict.clone()], Some(node())), [("Conflict".to_owned(), 1.0)]);
        assert_eq!(refresh(vec![conflict], None), [("NodeGone".to_owned(), 1.0)]);
        assert_eq!(refresh(vec![], Some(node())), []);
    }

    /// The chain from a real kernel to the metric: the vm tier holds the reasons, this what becomes of them.
    #[test]
    fn what_each_failure_on_a_real_kernel_reports_is_counted_by_the_worst_until_its_repair() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let metadata = ObjectMeta { name: Some("n".to_owned()), ..ObjectMeta::default() };
        let nodes = crate::operator::api_server::store::Store::of([Node { metadata, ..Node::default() }], |_, _| false);
        let mut stores = Stores { nodes, ..Stores::default() };
        for failure in RecordedFailure::all() {
            for found in failure.of_volume() {
                let mut volume = in_phase(Phase::Ready);
                let status = volume.status.as_mut().expect("set");
                status.health = health::entries(&[], &found, Some("a"));
                let healthy = if found.is_healthy() { "True" } else { "False" };
                status.conditions = vec![status_condition("Healthy", healthy, found.word(), &found.message())];
                stores.volumes = crate::operator::api_server::store::Store::of([volume], |_, _| false);
                metrics.refresh(&stores);
                let counted = prometheus::core::Collector::collect(&metrics.abnormal);
                let counted: Vec<&str> =
                    counted[0].get_metric().iter().map(|metric| metric.get_label()[0].value()).collect();
                let worst = words(&found).into_iter().next();
                assert_eq!(counted, worst.iter().map(String::as_str).collect::<Vec<_>>(), "{}", failure.name());
            }
        }
    }

    #[test]
    fn the_volume_that_was_deleted_first_and_still_exists_tells_since_when() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let mut volumes = [Phase::Ready, Phase::Deleting, Phase::Deleting].map(in_phase);
        for (at, time) in ["", "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"].into_iter().enumerate() {
            volumes[at].metadata.name = Some(at.to_string());
            volumes[at].metadata.deletion_timestamp = time.parse().ok().map(Time);
        }
        let volumes = crate::operator::api_server::store::Store::of(volumes, |_, _| false);
        metrics.refresh(&Stores { volumes, ..Stores::default() });
        assert_eq!(metrics.deleted.get(), 1_767_225_600);
        metrics.refresh(&Stores::default());
        assert_eq!(metrics.deleted.get(), 0);
    }

    #[test]
    fn nodes_whose_agent_is_silent_are_counted() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let pool = |name: &str, status: &str| {
            let mut pool = crate::operator::volume::sample::pool(name, [3, 2, 1]);
            let conditions = vec![status_condition("Ready", status, "Told", "")];
            pool.status.as_mut().expect("set").conditions = conditions;
            pool
        };
        let pools = [pool("a", "True"), pool("b", "Unknown"), pool("c", "Unknown"), pool("deleted", "Unknown")];
        let pools = crate::operator::api_server::store::Store::of(pools, |_, _| false);
        let node = |name: &str| {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            Node { metadata, ..Node::default() }
        };
        let nodes = crate::operator::api_server::store::Store::of(["a", "b", "c"].map(node), |_, _| false);
        metrics.refresh(&Stores { pools, nodes, ..Stores::default() });
        assert_eq!(metrics.silent.get(), 2);
        metrics.refresh(&Stores::default());
        assert_eq!(metrics.silent.get(), 0);
    }

    #[test]
    fn volumes_are_counted_by_phase_and_a_phase_that_is_over_goes_to_zero() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let stores = Stores {
            volumes: crate::operator::api_server::store::Store::of([in_phase(Phase::Ready)], |_, _| false),
            ..Stores::default()
        };
        metrics.refresh(&stores);
        let count = |phase: &str| metrics.volumes.with_label_values(&[phase]).get();
        assert_eq!((count("Ready"), count("Pending")), (1, 0));
        metrics.refresh(&Stores::default());
        assert_eq!(count("Ready"), 0);
    }
}
