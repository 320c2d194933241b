//! What the controller tells of itself at `/metrics`.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::Caches;
use super::wish::phase;
use crate::api::crd::Phase;

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
    pub leader: IntGauge,
    /// By controller: how often it wrote something, and how often that failed.
    pub writes: IntCounterVec,
    pub errors: IntCounterVec,
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(format!("localpool_controller_{name}"), help);
        let volumes = IntGaugeVec::new(opts("volumes", "PoolVolumes of the cluster, by phase."), &["phase"])?;
        let leader = IntGauge::with_opts(opts("leader", "1 where this replica holds the lease."))?;
        let writes = opts("reconciles_total", "What the leader's controllers brought up to date, by controller.");
        let writes = IntCounterVec::new(writes, &["controller"])?;
        let errors = opts("reconcile_errors_total", "What they could not, by controller; it is tried again.");
        let errors = IntCounterVec::new(errors, &["controller"])?;
        registry.register(Box::new(volumes.clone()))?;
        registry.register(Box::new(leader.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Self { volumes, leader, writes, errors })
    }

    /// Counts the volumes: at a scrape, not at each change.
    pub fn refresh(&self, caches: &Caches) {
        let all = caches.volumes.all();
        for (wanted, name) in PHASES {
            let count = all.iter().filter(|volume| phase(volume) == wanted).count();
            self.volumes.with_label_values(&[name]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::in_phase;
    use super::*;

    #[test]
    fn volumes_are_counted_by_phase_and_a_phase_that_is_over_goes_to_zero() {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let caches =
            Caches { volumes: super::super::Cache::of([in_phase(Phase::Ready)], |_, _| false), ..Caches::default() };
        metrics.refresh(&caches);
        let count = |phase: &str| metrics.volumes.with_label_values(&[phase]).get();
        assert_eq!((count("Ready"), count("Pending")), (1, 0));
        metrics.refresh(&Caches::default());
        assert_eq!(count("Ready"), 0);
    }
}
