//! What is written for one volume whose key is not in the ConfigMap. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::consent::Consent;
use super::precomputed;
use crate::api::crd::{BenchmarkRequest, BenchmarkState, DevicePool, DiskBenchmark, DiskStatus, PoolVolume};
use crate::api::{BenchmarkOptions, PrecomputedUse};
use crate::claim::VolumeMode;
use crate::device::DiskId;
use crate::host::DiskFigures;
use crate::operator::disk_setup::setups::NodeSetup;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool::agent_life::silence;

/// How long an agent may say nothing of a request: it is an earlier version, or does not run.
pub const SILENCE: SignedDuration = SignedDuration::from_mins(20);

/// A volume that has no key.
pub struct Unwritten<'a> {
    pub persistent: &'a PersistentVolume,
    pub volume: &'a PoolVolume,
    pub consent: Consent,
    pub setup: NodeSetup<'a>,
    pub labels: &'a BTreeMap<String, String>,
    pub pool: Option<&'a DevicePool>,
    /// Somebody deleted its key, whose value was of the request of that time.
    pub deleted: Option<Timestamp>,
    pub now: Timestamp,
}

/// What is due for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// These figures, or the empty value. `of`: when that was asked for.
    Value { figures: Option<DiskFigures>, of: Timestamp },
    /// Its disk has to be measured first.
    Benchmark(DiskId),
    /// It is not known yet which disk it is on, or whether its claim consents.
    Later,
}

impl Unwritten<'_> {
    pub fn due(&self) -> Due {
        let empty = Due::Value { figures: None, of: self.now };
        let Some(options) = &self.setup.setup.benchmark else { return empty };
        if self.persistent.volume_mode == VolumeMode::Block {
            return empty;
        }
        let status = self.pool.and_then(|pool| pool.status.as_ref());
        let id = self.volume.status.as_ref().and_then(|status| status.disk.as_ref());
        let disk = id.and_then(|id| status?.disks.iter().find(|disk| disk.id == *id));
        let Some((disk, pool)) = disk.zip(self.pool) else { return Due::Later };
        if let Some(figures) = self.precomputed(options, pool, disk) {
            return Due::Value { figures: Some(figures), of: self.now };
        }
        if let Some(value) = disk.benchmark.as_ref().and_then(|result| self.of_result(result)) {
            return value;
        }
        match self.consent {
            Consent::Given => {}
            // Its pod may be at work.
            Consent::NotGiven => return empty,
            Consent::Unknown => return Due::Later,
        }
        // Its pod was there before anybody said that it should wait, and may be at work.
        if self.deleted.is_none() && self.created() < self.setup.since {
            return empty;
        }
        let asked = pool.spec.benchmarks.iter().find(|request| request.disk == disk.id);
        match asked.filter(|request| self.is_unanswered(request, disk, pool)) {
            Some(request) => Due::Value { figures: None, of: request.requested.0 },
            None => Due::Benchmark(disk.id.clone()),
        }
    }

    fn created(&self) -> Timestamp {
        self.persistent.creation_timestamp().map_or(Timestamp::MIN, |time| time.0)
    }

    fn precomputed(&self, options: &BenchmarkOptions, pool: &DevicePool, disk: &DiskStatus) -> Option<DiskFigures> {
        match options.precomputed {
            PrecomputedUse::Use => {
                let machine = pool.status.as_ref()?.machine.as_ref()?;
                precomputed::figures(machine, self.labels, disk.model.as_deref())
            }
            PrecomputedUse::Ignore => None,
        }
    }

    /// What a result of the disk is for this volume. Figures stay true, but not for whoever deleted them. A failure is one
    /// of the volumes that waited then.
    fn of_result(&self, result: &DiskBenchmark) -> Option<Due> {
        let of = result.requested.0;
        let is_later = self.deleted.is_none_or(|deleted| of > deleted);
        match (result.state, result.figures) {
            (BenchmarkState::Measured, Some(figures)) if is_later => Some(Due::Value { figures: Some(figures), of }),
            (BenchmarkState::Failed, _) if is_later && of >= self.created() => Some(Due::Value { figures: None, of }),
            _ => None,
        }
    }

    /// Whether its agent has had its time, and has said nothing, or nothing any more.
    fn is_unanswered(&self, request: &BenchmarkRequest, disk: &DiskStatus, pool: &DevicePool) -> bool {
        let is_over = |since: Timestamp| self.now.duration_since(since) > SILENCE;
        let is_answered = disk.benchmark.as_ref().is_some_and(|result| result.requested == request.requested);
        let is_silent = silence(pool).is_some_and(|ready| is_over(ready.last_transition_time.0));
        (!is_answered || is_silent) && is_over(request.requested.0)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::super::sample;
    use super::*;
    use crate::api::Node;
    use crate::operator::disk_setup::setups::Setups;
    use crate::operator::volume::sample::status_condition;

    const CAME: &str = "2026-03-01T00:00:00Z";
    const DISK: &str = "gpt-1";

    /// What is due for a volume of this PersistentVolume, on a pool whose disk has this result and these requests.
    struct Case {
        setup: Value,
        since: &'static str,
        mode: &'static str,
        disk: Value,
        requests: Value,
        machine: Value,
        deleted: Option<&'static str>,
        consent: Consent,
        silent_since: Option<&'static str>,
        now: &'static str,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                setup: json!({}),
                since: "2026-02-01T00:00:00Z",
                mode: "Filesystem",
                disk: json!({}),
                requests: json!([]),
                machine: json!(null),
                deleted: None,
                consent: Consent::Given,
                silent_since: None,
                now: "2026-03-01T00:01:00Z",
            }
        }
    }

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    impl Case {
        fn due(self) -> Due {
            let Self { setup, since, mode, disk, requests, machine, deleted, consent, silent_since, now } = self;
            let setups = Setups::of(vec![sample::setup("s", since, setup).into()]);
            let labels = BTreeMap::new();
            let mut pool = sample::pool("n", machine, vec![sample::disk(DISK, disk)], requests);
            let ready = silent_since.map(|since| {
                let mut ready = status_condition("Ready", "Unknown", "AgentSilent", "");
                ready.last_transition_time = Time(time(since));
                ready
            });
            pool.status.as_mut().expect("one").conditions = ready.into_iter().collect();
            let unwritten = Unwritten {
                persistent: &sample::persistent("pvc-1", "space", CAME, mode),
                volume: &sample::volume("pvc-1", "n", Some(DISK)),
                setup: setups.for_node(&Node::standalone("n")).expect("valid"),
                labels: &labels,
                pool: Some(&pool),
                deleted: deleted.map(time),
                consent,
                now: time(now),
            };
            unwritten.due()
        }
    }

    fn empty(of: &str) -> Due {
        Due::Value { figures: None, of: time(of) }
    }

    fn figures(of: &str) -> Due {
        Due::Value { figures: Some(sample::FIGURES), of: time(of) }
    }

    fn measured(of: &str) -> Value {
        json!({"benchmark": {"requested": of, "state": "Measured", "figures": sample::FIGURES}})
    }

    fn failed(of: &str) -> Value {
        json!({"benchmark": {"requested": of, "state": "Failed", "message": "words"}})
    }

    fn waits(of: &str) -> Value {
        json!({"benchmark": {"requested": of, "state": "Waiting", "message": "words"}})
    }

    fn asked(at: &str) -> Value {
        json!([{"disk": DISK, "requested": at, "volumes": []}])
    }

    #[test]
    fn a_volume_of_a_disk_that_was_never_measured_waits_for_that() {
        assert_eq!(Case::default().due(), Due::Benchmark(DiskId::named(DISK)));
        let waits = Case { disk: waits(CAME), requests: asked(CAME), ..Case::default() };
        assert_eq!(waits.due(), Due::Benchmark(DiskId::named(DISK)));
    }

    #[test]
    fn where_it_is_disabled_or_the_volume_has_no_filesystem_the_value_is_empty_whatever_is_known() {
        let now = Case::default().now;
        let disabled = json!({"diskBenchmarkDisabled": true});
        assert_eq!(Case { setup: disabled, disk: measured(CAME), ..Case::default() }.due(), empty(now));
        assert_eq!(Case { mode: "Block", disk: measured(CAME), ..Case::default() }.due(), empty(now));
    }

    #[test]
    fn a_known_machine_has_its_figures_at_once_unless_they_are_to_be_ignored() {
        let known = || Case {
            machine: json!({"vendor": "Amazon EC2", "product": "i3en.large"}),
            disk: json!({"model": "Amazon EC2 NVMe Instance Storage"}),
            ..Case::default()
        };
        let Due::Value { figures: Some(found), .. } = known().due() else { panic!("figures") };
        assert_eq!(found.read_iops, 43_315);
        let ignoring = json!({"diskBenchmarkOptions": {"ignorePrecomputed": true}});
        assert_eq!(Case { setup: ignoring, ..known() }.due(), Due::Benchmark(DiskId::named(DISK)));
        let old = Case { since: "2026-04-01T00:00:00Z", ..known() };
        assert!(matches!(old.due(), Due::Value { figures: Some(_), .. }), "they cost nobody anything");
    }

    #[test]
    fn figures_of_a_disk_are_for_all_its_volumes_and_a_failure_only_for_those_that_waited() {
        let before = "2026-02-15T00:00:00Z";
        assert_eq!(Case { disk: measured(before), ..Case::default() }.due(), figures(before));
        assert_eq!(Case { disk: failed(CAME), ..Case::default() }.due(), empty(CAME));
        let earlier = Case { disk: failed(before), ..Case::default() };
        assert_eq!(earlier.due(), Due::Benchmark(DiskId::named(DISK)), "the disk may be idle now");
    }

    #[test]
    fn after_a_key_was_deleted_only_a_later_benchmark_counts() {
        let deleted = || Case { deleted: Some(CAME), ..Case::default() };
        let again = Due::Benchmark(DiskId::named(DISK));
        assert_eq!(Case { disk: measured(CAME), ..deleted() }.due(), again);
        assert_eq!(Case { disk: failed(CAME), ..deleted() }.due(), again);
        let later = "2026-03-01T00:00:30Z";
        assert_eq!(Case { disk: measured(later), ..deleted() }.due(), figures(later));
        assert_eq!(Case { disk: failed(later), ..deleted() }.due(), empty(later));
    }

    #[test]
    fn a_volume_that_was_there_before_is_not_measured_unless_somebody_deleted_its_key() {
        let old = || Case { since: "2026-03-01T00:00:01Z", ..Case::default() };
        assert_eq!(old().due(), empty(old().now), "its pod may be at work");
        assert_eq!(Case { deleted: Some(CAME), ..old() }.due(), Due::Benchmark(DiskId::named(DISK)));
        assert_eq!(Case { disk: measured(CAME), ..old() }.due(), figures(CAME), "nothing has to be measured");
    }

    #[test]
    fn a_volume_whose_claim_does_not_consent_has_what_is_known_and_is_never_measured() {
        let silent = || Case { consent: Consent::NotGiven, ..Case::default() };
        let now = Case::default().now;
        assert_eq!(silent().due(), empty(now));
        assert_eq!(Case { deleted: Some(CAME), disk: measured(CAME), ..silent() }.due(), empty(now));
        assert_eq!(Case { disk: measured(CAME), ..silent() }.due(), figures(CAME), "they cost nobody anything");
        let unseen = || Case { consent: Consent::Unknown, ..Case::default() };
        assert_eq!(unseen().due(), Due::Later, "the claim comes");
        assert_eq!(Case { disk: measured(CAME), ..unseen() }.due(), figures(CAME));
    }

    #[test]
    fn an_agent_that_answered_and_then_died_is_waited_for_no_longer_than_one_that_said_nothing() {
        let later = "2026-03-01T00:30:01Z";
        for answer in [waits(CAME), json!({"benchmark": {"requested": CAME, "state": "Measuring"}})] {
            let dead = |since| Case {
                disk: answer.clone(),
                requests: asked(CAME),
                now: later,
                silent_since: Some(since),
                ..Case::default()
            };
            assert_eq!(dead("2026-03-01T00:10:00Z").due(), empty(CAME));
            let again = Due::Benchmark(DiskId::named(DISK));
            assert_eq!(dead("2026-03-01T00:10:01Z").due(), again, "it may come back");
        }
        let new = Case { requests: asked(CAME), silent_since: Some("2026-02-01T00:00:00Z"), ..Case::default() };
        assert_eq!(new.due(), Due::Benchmark(DiskId::named(DISK)), "the request is new");
    }

    #[test]
    fn an_agent_that_says_nothing_is_waited_for_and_then_the_value_is_empty() {
        let later = "2026-03-01T00:20:01Z";
        let silent = || Case { requests: asked(CAME), now: later, ..Case::default() };
        assert_eq!(silent().due(), empty(CAME));
        assert_eq!(Case { now: "2026-03-01T00:20:00Z", ..silent() }.due(), Due::Benchmark(DiskId::named(DISK)));
        let it_waits = Case { disk: waits(CAME), ..silent() };
        assert_eq!(it_waits.due(), Due::Benchmark(DiskId::named(DISK)), "the agent counts the time itself");
        let of_another = Case { disk: waits("2026-02-15T00:00:00Z"), ..silent() };
        assert_eq!(of_another.due(), empty(CAME));
    }
}
