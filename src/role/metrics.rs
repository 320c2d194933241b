//! The agent's metrics: read from the pool at each scrape, so that they cost nothing in between.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::disk_metrics::{DiskMetrics, STATES, SetMetrics, state};
use super::http::Refresh;
use super::registry::{counters, gauges, registry};
use crate::device::{NodeName, signed};
use crate::health::Board;
use crate::host::Host;
use crate::operator::agent::Writes;
use crate::pool::{Cordon, DiskView, Pool};

/// The pool, and the machine that it is on.
type PoolSource = (Arc<Pool>, Arc<dyn Host>);

/// The gauges, and where their values come from.
#[derive(Clone)]
pub struct NodeMetrics {
    disks: IntGaugeVec,
    bytes: IntGaugeVec,
    volumes: IntGauge,
    failing: IntGauge,
    unhealthy: IntGaugeVec,
    cordoned: IntGaugeVec,
    is_journal_damaged: IntGauge,
    api_writes: IntCounterVec,
    each: DiskMetrics,
    pub sets: SetMetrics,
    source: Arc<OnceLock<PoolSource>>,
    health: Board,
    writes: Arc<Writes>,
}

impl NodeMetrics {
    /// Every metric has the label `node`.
    pub fn new(node: &NodeName) -> Result<(Self, Registry), prometheus::Error> {
        let registry = registry(&[("node", node.as_str())])?;
        let gauges = |name: &str, help: &str, label: &str| gauges(&registry, name, help, &[label]);
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let writes = "Writes to the API server, by object.";
        let api_writes = counters(&registry, "localpool_api_writes_total", writes, &["object"])?;
        let metrics = Self {
            disks: gauges("localpool_pool_disks", "Disks of this node's pool, by state.", "state")?,
            bytes: gauges("localpool_pool_bytes", "Bytes of this node's pool: size, free, erasing.", "kind")?,
            volumes: gauge("localpool_pool_volumes", "Volumes on the disks of this node.")?,
            failing: gauge(
                "localpool_pool_failing_disks",
                "Disks of this node's pool on which background work fails.",
            )?,
            unhealthy: gauges(
                "localpool_pool_unhealthy_disks",
                "Disks of this node's pool, by what is wrong with them: a disk counts for each of its reasons.",
                "reason",
            )?,
            cordoned: gauges(
                "localpool_pool_cordoned_disks",
                "Disks of this node's pool that take no new volumes, by who cordoned them: a person, or their health.",
                "by",
            )?,
            is_journal_damaged: gauge("localpool_pool_journal_damaged", "1 if the node's journal cannot be used.")?,
            api_writes,
            each: DiskMetrics::new(&registry)?,
            sets: SetMetrics::new(&registry)?,
            source: Arc::default(),
            health: Board::default(),
            writes: Arc::default(),
        };
        Ok((metrics, registry))
    }

    /// Reads this pool from now on, and what the kernel of its machine counts.
    pub fn watch(&self, pool: &Arc<Pool>, host: &Arc<dyn Host>) {
        let _ = self.source.set((Arc::clone(pool), Arc::clone(host)));
    }

    /// The board that the health of the pool is written on.
    pub fn health(&self) -> Board {
        self.health.clone()
    }

    pub fn writes(&self) -> Arc<Writes> {
        Arc::clone(&self.writes)
    }

    pub fn refresh(&self) -> Refresh {
        let metrics = self.clone();
        Arc::new(move || metrics.read())
    }

    fn read(&self) {
        for (object, writes) in [("poolvolume", &self.writes.volume), ("devicepool", &self.writes.pool)] {
            let counter = self.api_writes.with_label_values(&[object]);
            counter.inc_by(writes.load(Ordering::Relaxed).saturating_sub(counter.get()));
        }
        let Some((pool, host)) = self.source.get() else { return };
        let disks = pool.disk_views();
        for name in STATES {
            let count = disks.iter().filter(|disk| state(&disk.standing) == name).count();
            self.disks.with_label_values(&[name]).set(signed(count));
        }
        let sum = |of: fn(&DiskView) -> u64| signed(disks.iter().map(of).sum::<u64>());
        self.bytes.with_label_values(&["size"]).set(sum(DiskView::own_size));
        self.bytes.with_label_values(&["free"]).set(sum(|disk| disk.free));
        self.bytes.with_label_values(&["erasing"]).set(sum(|disk| disk.erasing));
        self.each.read_disks(&disks, &self.health);
        self.each.read_errors(&pool.usable_disks(), &**host);
        self.each.read_classes(pool);
        self.sets.read(&disks);
        self.read_health(&disks);
        self.read_cordons(&disks);
        self.failing.set(signed(disks.iter().filter(|disk| disk.failing.is_some()).count()));
        self.is_journal_damaged.set(i64::from(pool.journal().sound().is_err()));
        self.volumes.set(signed(disks.iter().map(|disk| disk.volumes).sum::<usize>()));
    }

    fn read_cordons(&self, disks: &[DiskView]) {
        for by in Cordon::CAUSES {
            let is_by = |disk: &&DiskView| disk.cordon.as_ref().is_some_and(|cordon| cordon.cause() == by);
            self.cordoned.with_label_values(&[by]).set(signed(disks.iter().filter(is_by).count()));
        }
    }

    fn read_health(&self, disks: &[DiskView]) {
        self.unhealthy.reset();
        for disk in disks {
            for finding in self.health.of_disk(disk).findings() {
                self.unhealthy.with_label_values(&[finding.reason.word()]).inc();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::agent::Reconciler;
    use crate::claim::{Rule, sample};
    use crate::device::{Owner, VolumeId, label::Layout};
    use crate::health::{CheckupResult, Face, Finding, HealthReason, REASONS, ReasonRow, Source};
    use crate::host::{DiskReport, Geometry, Health, IoErrors, fake::FakeHost};
    use crate::pool::{CordonChoice, CreateRequest, EarlierCordon, Selector, WantedUsage, Workers};

    #[test]
    fn writes_to_the_api_server_are_a_counter_that_no_scrape_moves() {
        let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
        metrics.writes().volume.fetch_add(3, Ordering::Relaxed);
        for _ in 0..2 {
            metrics.read();
            let found = registry.gather();
            let family =
                found.iter().find(|family| family.name() == "localpool_api_writes_total").expect("it is there");
            let of_volumes = family.get_metric().iter().find(|one| one.get_label()[0].value() == "poolvolume");
            assert_eq!(of_volumes.expect("counted").get_counter().get_value(), 3.0);
        }
    }

    /// A pool with one disk, which the metrics watch.
    fn pool(metrics: &NodeMetrics) -> (Arc<FakeHost>, Arc<Pool>) {
        pool_of(metrics, sample::rule("set"))
    }

    fn pool_of(metrics: &NodeMetrics, rule: Rule) -> (Arc<FakeHost>, Arc<Pool>) {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "S", Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true });
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let mut agent = Reconciler::new(host.clone(), Arc::clone(&pool), Duration::ZERO, vec![rule]);
        while pool.usable_disks().is_empty() {
            agent.pass().expect("a pass");
        }
        let machine: Arc<dyn Host> = host.clone();
        metrics.watch(&pool, &machine);
        (host, pool)
    }

    /// The values of a gauge by its label.
    fn values(registry: &Registry, name: &str) -> Vec<(String, f64)> {
        let families = registry.gather();
        let values = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
        values.map(|one| (one.get_label()[0].value().to_owned(), one.get_gauge().get_value())).collect()
    }

    #[test]
    fn a_disk_counts_for_each_of_its_reasons_and_no_longer_when_they_are_gone() {
        let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
        let (_host, pool) = pool(&metrics);
        let at = std::cell::Cell::new(Duration::ZERO);
        let unhealthy = |reasons: &[HealthReason]| {
            let findings = reasons.iter().map(|reason| Finding::new(reason.clone(), "words")).collect();
            let result = CheckupResult {
                disks: [(pool.usable_disks().remove(0).0, findings)].into(),
                ..CheckupResult::default()
            };
            // Some stay for minutes after their cause.
            at.set(at.get() + Duration::from_secs(3600));
            metrics.health().update(result, Timestamp::UNIX_EPOCH, at.get());
            metrics.read();
            values(&registry, "localpool_pool_unhealthy_disks")
        };
        let (failing, worn) = (HealthReason::DiskFailing, HealthReason::DiskWornOut);
        let both = [("DiskFailing".to_owned(), 1.0), ("DiskWornOut".to_owned(), 1.0)];
        assert_eq!(unhealthy(&[failing, worn]), both);
        let is_seen = |row: &&ReasonRow| row.source == Source::Checkup && row.faces().contains(&Face::Disk);
        for row in REASONS.iter().filter(is_seen) {
            assert_eq!(unhealthy(&[HealthReason::from(row.word.to_owned())]), [(row.word.to_owned(), 1.0)]);
            let families = registry.gather();
            let of_disks = families.iter().find(|family| family.name() == "localpool_disk_unhealthy").expect("served");
            let reasons =
                of_disks.get_metric().iter().flat_map(|one| one.get_label()).filter(|one| one.name() == "reason");
            assert_eq!(reasons.map(|label| label.value()).collect::<Vec<_>>(), [row.word]);
        }
        assert_eq!(unhealthy(&[]), []);
    }

    #[test]
    fn each_disk_and_each_class_has_its_figures_with_the_name_of_the_node_and_what_is_gone_has_none() {
        let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
        let (host, pool) = pool(&metrics);
        host.set_io_errors("fake0", IoErrors { errors: 7, timeouts: 2 });
        let disk = pool.usable_disks().remove(0).0;
        let findings = vec![Finding::new(HealthReason::DiskFailing, "words")];
        let report = DiskReport {
            temperature_celsius: Some(-3),
            used_percent: Some(104),
            media_errors: Some(5),
            pending_sectors: Some(8),
            reallocated_sectors: Some(9),
            error_log_entries: Some(6),
            ..DiskReport::of(Health::Passed)
        };
        let reports = [(disk.clone(), report)].into();
        let result = CheckupResult { disks: [(disk.clone(), findings)].into(), reports, ..CheckupResult::default() };
        metrics.health().update(result, Timestamp::UNIX_EPOCH, Duration::ZERO);
        metrics.read();
        metrics.read();
        let text = || prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let said = text();
        let view = pool.disk_views().remove(0);
        for line in [
            format!("localpool_build_info{{version=\"{}\",node=\"n\"}} 1\n", env!("CARGO_PKG_VERSION")),
            format!("localpool_disk_bytes{{disk=\"{disk}\",kind=\"size\",node=\"n\"}} {}\n", 64 << 20),
            format!("localpool_disk_bytes{{disk=\"{disk}\",kind=\"free\",node=\"n\"}} {}\n", view.free),
            format!("localpool_disk_state{{disk=\"{disk}\",state=\"ready\",node=\"n\"}} 1\n"),
            format!("localpool_disk_state{{disk=\"{disk}\",state=\"missing\",node=\"n\"}} 0\n"),
            format!("localpool_disk_unhealthy{{disk=\"{disk}\",reason=\"DiskFailing\",node=\"n\"}} 1\n"),
            format!("localpool_disk_errors_total{{disk=\"{disk}\",kind=\"failed\",node=\"n\"}} 7\n"),
            format!("localpool_disk_errors_total{{disk=\"{disk}\",kind=\"timed_out\",node=\"n\"}} 2\n"),
            format!("localpool_disk_erased_bytes_total{{disk=\"{disk}\",node=\"n\"}} 0\n"),
            format!("localpool_disk_temperature_celsius{{disk=\"{disk}\",node=\"n\"}} -3\n"),
            format!("localpool_disk_wear_percent{{disk=\"{disk}\",node=\"n\"}} 104\n"),
            format!("localpool_disk_pending_sectors{{disk=\"{disk}\",node=\"n\"}} 8\n"),
            format!("localpool_disk_reallocated_sectors{{disk=\"{disk}\",node=\"n\"}} 9\n"),
            format!("localpool_disk_media_errors_total{{disk=\"{disk}\",node=\"n\"}} 5\n"),
            format!("localpool_disk_error_log_entries_total{{disk=\"{disk}\",node=\"n\"}} 6\n"),
            format!("localpool_class_bytes{{class=\"fast\",kind=\"size\",node=\"n\"}} {}\n", 64 << 20),
            format!("localpool_class_bytes{{class=\"fast\",kind=\"available\",node=\"n\"}} {}\n", view.free),
            format!("localpool_class_bytes{{class=\"fast\",kind=\"largest\",node=\"n\"}} {}\n", view.free),
        ] {
            assert!(said.contains(&line), "{line} is not in\n{said}");
        }
        assert!(!said.contains("localpool_disk_spare_percent{"), "it does not report its spare space: {said}");
        for (name, kind) in said.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        }
        metrics.each.read_disks(&[], &metrics.health());
        metrics.each.read_errors(&[], &*host);
        assert!(!text().contains("localpool_disk_"), "{}", text());
    }

    #[test]
    fn bytes_of_deleted_volumes_count_when_they_are_erased_with_and_without_a_label() {
        for layout in [Layout::Whole {}, Layout::RawDevice {}] {
            let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
            let (_host, pool) = pool_of(&metrics, Rule { layout: layout.clone(), ..sample::rule("set") });
            let erased = || {
                metrics.read();
                let families = registry.gather();
                let mut found = families.iter().filter(|family| family.name() == "localpool_disk_erased_bytes_total");
                found.next().expect("it is there").get_metric()[0].get_counter().get_value().to_string()
            };
            let wanted = CreateRequest {
                id: VolumeId::of_name("v"),
                name: "v".to_owned(),
                required: 1,
                limit: None,
                usage: WantedUsage::Block,
                parameters: BTreeMap::new(),
                selector: Selector::default(),
            };
            let (made, _) = pool.create(&wanted).expect("there is room");
            pool.delete(made.id).expect("deleted");
            assert_eq!(erased(), "0", "{layout:?}");
            pool.work_until_idle().expect("erased");
            for _ in 0..2 {
                assert_eq!(erased(), made.size.to_string(), "{layout:?}");
            }
        }
    }

    #[test]
    fn a_cordoned_disk_counts_by_who_cordoned_it_and_both_are_there_from_the_beginning() {
        let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
        let (_host, pool) = pool(&metrics);
        let disk = pool.usable_disks().remove(0).0;
        let expect = |health: f64, person: f64| {
            metrics.read();
            let expected = [("health".to_owned(), health), ("person".to_owned(), person)];
            assert_eq!(values(&registry, "localpool_pool_cordoned_disks"), expected);
        };
        expect(0.0, 0.0);
        let (what, why) = ("DiskFailing".to_owned(), "it fails".to_owned());
        pool.cordons().remember([(disk.clone(), vec![EarlierCordon { what, why }])].into());
        expect(1.0, 0.0);
        pool.cordons().choose([(disk.clone(), CordonChoice::Cordoned)].into());
        expect(0.0, 1.0);
        pool.cordons().choose([(disk, CordonChoice::Open)].into());
        expect(0.0, 0.0);
    }
}
