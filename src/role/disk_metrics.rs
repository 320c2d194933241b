//! The agent's metrics of each disk of the pool, and of each class that they are offered to: as many as there are disks
//! and classes, however many volumes there are.
//!
//! Takes in the pool, its health and the counters of the kernel, which it reads at a scrape.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::registry::{counters, gauges};
use crate::device::{DiskId, signed};
use crate::health::Board;
use crate::host::{DiskReport, Host, IoErrors, RawDisk};
use crate::pool::{ClassDisks, DiskView, Pool, Selector, Standing, WantedUsage};

/// The states of a disk, as labels.
pub const STATES: [&str; 3] = ["ready", "missing", "not_ready"];

/// What disks report of themselves, as far as they do.
#[derive(Clone)]
struct SelfReport {
    temperature: IntGaugeVec,
    wear: IntGaugeVec,
    spare: IntGaugeVec,
    media_errors: IntCounterVec,
    error_log: IntCounterVec,
}

impl SelfReport {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| gauges(registry, name, help, &["disk"]);
        let counters = |name: &str, help: &str| counters(registry, name, help, &["disk"]);
        Ok(Self {
            temperature: gauges("localpool_disk_temperature_celsius", "The temperature that a disk reports.")?,
            wear: gauges(
                "localpool_disk_wear_percent",
                "How much of its rated endurance a disk has used, as it reports; may be above 100.",
            )?,
            spare: gauges("localpool_disk_spare_percent", "How much spare space a disk has left, as it reports.")?,
            media_errors: counters(
                "localpool_disk_media_errors_total",
                "Data that a disk could not read or correct in all its life, as it reports.",
            )?,
            error_log: counters(
                "localpool_disk_error_log_entries_total",
                "Entries that the error log of an NVMe disk has had in all its life.",
            )?,
        })
    }

    fn reset(&self) {
        [&self.temperature, &self.wear, &self.spare].into_iter().for_each(IntGaugeVec::reset);
        [&self.media_errors, &self.error_log].into_iter().for_each(IntCounterVec::reset);
    }

    fn set(&self, disk: &str, report: &DiskReport) {
        let DiskReport {
            health: _,
            warnings: _,
            media_errors,
            error_log_entries,
            spare_percent,
            spare_threshold_percent: _,
            used_percent,
            temperature_celsius,
        } = report;
        let gauges = [
            (&self.temperature, temperature_celsius.map(i64::from)),
            (&self.wear, used_percent.map(i64::from)),
            (&self.spare, spare_percent.map(i64::from)),
        ];
        for (gauge, value) in gauges {
            value.into_iter().for_each(|value| gauge.with_label_values(&[disk]).set(value));
        }
        for (counter, count) in [(&self.media_errors, media_errors), (&self.error_log, error_log_entries)] {
            count.iter().for_each(|count| counter.with_label_values(&[disk]).inc_by(*count));
        }
    }
}

#[derive(Clone)]
pub struct DiskMetrics {
    bytes: IntGaugeVec,
    state: IntGaugeVec,
    unhealthy: IntGaugeVec,
    errors: IntCounterVec,
    erased: IntCounterVec,
    reported: SelfReport,
    classes: IntGaugeVec,
}

impl DiskMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str, labels: &[&str]| gauges(registry, name, help, labels);
        let counters = |name: &str, help: &str, labels: &[&str]| counters(registry, name, help, labels);
        Ok(Self {
            errors: counters(
                "localpool_disk_errors_total",
                "Commands to a disk that failed or timed out since the kernel found it, if its driver counts them.",
                &["disk", "kind"],
            )?,
            erased: counters(
                "localpool_disk_erased_bytes_total",
                "Bytes of deleted volumes that were erased on a disk since the agent began.",
                &["disk"],
            )?,
            reported: SelfReport::new(registry)?,
            bytes: gauges("localpool_disk_bytes", "Bytes of a disk: size, free, erasing.", &["disk", "kind"])?,
            state: gauges("localpool_disk_state", "1 for the state that a disk has, else 0.", &["disk", "state"])?,
            unhealthy: gauges(
                "localpool_disk_unhealthy",
                "1 for each thing that is wrong with a disk.",
                &["disk", "reason"],
            )?,
            classes: gauges(
                "localpool_class_bytes",
                "Bytes of a class on this node: the size of its disks, of those that can have several volumes (divisible), \
                 what they can give to new volumes (available), and the largest of these.",
                &["class", "kind"],
            )?,
        })
    }

    /// Disks that are gone are not reported any more.
    pub fn read_disks(&self, disks: &[DiskView], health: &Board) {
        for gauges in [&self.bytes, &self.state, &self.unhealthy] {
            gauges.reset();
        }
        self.erased.reset();
        self.reported.reset();
        for disk in disks {
            let id = disk.id.as_str();
            self.erased.with_label_values(&[id]).inc_by(disk.erasure.bytes);
            for (kind, bytes) in [("size", disk.size), ("free", disk.free), ("erasing", disk.erasing)] {
                self.bytes.with_label_values(&[id, kind]).set(signed(bytes));
            }
            for name in STATES {
                self.state.with_label_values(&[id, name]).set(i64::from(state(&disk.standing) == name));
            }
            health.report(&disk.id).iter().for_each(|report| self.reported.set(id, report));
            for finding in health.of_disk(disk).findings() {
                self.unhealthy.with_label_values(&[id, finding.reason.word()]).set(1);
            }
        }
    }

    /// The kernel counts from zero again when it finds a disk again, and so does the counter.
    pub fn read_errors(&self, disks: &[(DiskId, RawDisk)], host: &dyn Host) {
        self.errors.reset();
        for (disk, raw) in disks {
            let Some(IoErrors { errors, timeouts }) = host.io_errors(raw) else { continue };
            for (kind, count) in [("failed", errors), ("timed_out", timeouts)] {
                self.errors.with_label_values(&[disk.as_str(), kind]).inc_by(count);
            }
        }
    }

    pub fn read_classes(&self, pool: &Pool) {
        self.classes.reset();
        for (class, ClassDisks { size, divisible, sets }) in pool.classes() {
            let (mut available, mut largest) = (0, 0);
            for set in sets {
                let selector = Selector { class: Some(class.clone()), set: Some(set) };
                let [mount, block] =
                    [WantedUsage::Mount(None), WantedUsage::Block].map(|usage| pool.capacity(&selector, usage));
                // Both uses share the space of a set, and two sets have disks of their own.
                let offered = mount.or(block);
                (available, largest) = (available + offered.available, offered.largest.max(largest));
            }
            let kinds = [("size", size), ("divisible", divisible), ("available", available), ("largest", largest)];
            for (kind, bytes) in kinds {
                self.classes.with_label_values(&[class.as_str(), kind]).set(signed(bytes));
            }
        }
    }
}

pub fn state(standing: &Standing) -> &'static str {
    match standing {
        Standing::Ready => "ready",
        Standing::Missing => "missing",
        Standing::NotReady(_) => "not_ready",
    }
}
