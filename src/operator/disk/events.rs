//! Events about what is new on the disks of a pool from one status to the next. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use kube::runtime::events::EventType;

use crate::agent::WipedDisk;
use crate::api::crd::{DiskStatus, HealthEntry};
use crate::device::DiskId;
use crate::health::HealthReason;
use crate::operator::disk::benchmarks;
use crate::operator::event::EventNote;
use crate::operator::status::health;

/// An Event about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEvent {
    pub disk: EventDisk,
    pub note: EventNote,
}

/// What an Event calls its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventDisk {
    Pool(DiskId),
    /// It is not in the pool.
    Path(PathBuf),
}

impl fmt::Display for EventDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(id) => id.fmt(f),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// What Events were queued about so far.
#[derive(Debug, Default)]
pub struct ReportedDisks {
    /// The disks of the last status.
    disks: Vec<DiskStatus>,
    /// Counters of this process.
    erased: BTreeMap<DiskId, u64>,
    wiped: u64,
}

impl ReportedDisks {
    /// After an earlier agent, whose last status has these disks.
    pub fn after(disks: Vec<DiskStatus>) -> Self {
        Self { disks, ..Self::default() }
    }

    /// `disks` are those of a status that was written, `erased` and `wiped` what this process did so far.
    pub fn take_in(
        &mut self,
        disks: &[DiskStatus],
        erased: BTreeMap<DiskId, u64>,
        wiped: &[WipedDisk],
    ) -> Vec<DiskEvent> {
        let before = std::mem::replace(&mut self.disks, disks.to_vec());
        let mut events: Vec<DiskEvent> = Vec::new();
        for wiped in wiped.iter().filter(|wiped| wiped.number > self.wiped) {
            let note = format!("{}: {}", wiped.path.display(), wiped.message);
            events.push(DiskEvent { disk: EventDisk::Path(wiped.path.clone()), note: normal("DiskWiped", note) });
        }
        self.wiped = wiped.iter().map(|wiped| wiped.number).max().unwrap_or(self.wiped);
        events.extend(of_disks(&before, disks));
        for (disk, count) in &erased {
            // One that counts less than before started again.
            let known = self.erased.get(disk).filter(|known| **known <= *count);
            if let Some(more) = count.checked_sub(known.copied().unwrap_or(0)).filter(|more| *more > 0) {
                let volumes = if more == 1 { "1 deleted volume" } else { &format!("{more} deleted volumes") };
                let note = format!("the space of {volumes} on disk {disk} is erased");
                events.push(DiskEvent { disk: EventDisk::Pool(disk.clone()), note: normal("VolumeErased", note) });
            }
        }
        self.erased = erased;
        events
    }
}

fn of_disks(before: &[DiskStatus], now: &[DiskStatus]) -> Vec<DiskEvent> {
    let mut events = Vec::new();
    for disk in now {
        let mut add = |note| events.push(DiskEvent { disk: EventDisk::Pool(disk.id.clone()), note });
        let known = before.iter().find(|known| known.id == disk.id);
        if known.is_none() {
            add(normal("DiskClaimed", format!("{} is a disk of set {} now", named(disk), disk.set)));
        }
        let was = known.map(|known| known.health.as_slice()).unwrap_or_default();
        let is_back = is_missing(was) && !is_missing(&disk.health);
        let well = match is_back {
            true => normal("DiskReturned", format!("{} is back", named(disk))),
            false => normal("DiskRecovered", format!("nothing is wrong with {} any more", named(disk))),
        };
        if is_back && !disk.health.is_empty() {
            add(well.clone());
        }
        for note in health::events(was, &disk.health, well) {
            add(EventNote { note: about(disk, note.note), ..note });
        }
        benchmarks::event(known, disk).into_iter().for_each(&mut add);
        match (known.and_then(|known| known.cordon.as_ref()), &disk.cordon) {
            (None, Some(why)) => add(normal("DiskCordoned", format!("{} takes no new volumes: {why}", named(disk)))),
            (Some(_), None) => add(normal("DiskUncordoned", format!("{} takes new volumes again", named(disk)))),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
    for gone in before.iter().filter(|known| now.iter().all(|disk| disk.id != known.id)) {
        let note = format!("{}, of set {}, does not belong to the pool any more", named(gone), gone.set);
        events.push(DiskEvent { disk: EventDisk::Pool(gone.id.clone()), note: normal("DiskReleased", note) });
    }
    events
}

fn is_missing(health: &[HealthEntry]) -> bool {
    health.iter().any(|entry| entry.reason == HealthReason::DiskMissing.word())
}

fn named(disk: &DiskStatus) -> String {
    match disk.path.is_empty() {
        true => format!("disk {}", disk.id),
        false => format!("disk {} ({})", disk.id, disk.path),
    }
}

/// A sentence that names the disk. Some do.
fn about(disk: &DiskStatus, message: String) -> String {
    if message.contains(disk.id.as_str()) { message } else { format!("{}: {message}", named(disk)) }
}

fn normal(reason: &str, note: String) -> EventNote {
    EventNote { type_: EventType::Normal, reason: reason.to_owned(), note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd::DiskState;
    use crate::health::{Face, REASONS};

    fn disk(id: &str, reasons: &[&str]) -> DiskStatus {
        let entry = |reason: &&str| HealthEntry {
            reason: (*reason).to_owned(),
            severity: "Degraded".to_owned(),
            message: format!("it has {reason}"),
            since: None,
            confirmed_by: None,
        };
        DiskStatus {
            id: DiskId::named(id),
            path: "/dev/sda".to_owned(),
            set: "d/s".to_owned(),
            health: reasons.iter().map(entry).collect(),
            model: None,
            layout: "Carved".to_owned(),
            size: 1,
            free: 1,
            erasing: 0,
            reserved: 0,
            volumes: 0,
            host_path: None,
            state: DiskState::Ready,
            state_since: None,
            conditions: Vec::new(),
            message: None,
            cordon: None,
            benchmark: None,
        }
    }

    fn reasons(before: &[DiskStatus], now: &[DiskStatus]) -> Vec<String> {
        of_disks(before, now).into_iter().map(|event| event.note.reason).collect()
    }

    #[test]
    fn each_reason_with_the_face_of_a_disk_is_an_event_when_it_comes() {
        for row in REASONS.iter().filter(|row| row.faces().contains(&Face::Disk)) {
            let events = of_disks(&[disk("gpt-1", &[])], &[disk("gpt-1", &[row.word])]);
            let reasons: Vec<&str> = events.iter().map(|event| event.note.reason.as_str()).collect();
            assert_eq!(reasons, [row.word]);
        }
    }

    #[test]
    fn a_disk_that_comes_goes_leaves_returns_fails_or_recovers_is_one_event() {
        let none: [String; 0] = [];
        let (well, hot) = (disk("gpt-1", &[]), disk("gpt-1", &["DiskTemperature"]));
        let (gone, both) = (disk("gpt-1", &["DiskMissing"]), disk("gpt-1", &["DiskMissing", "DiskTemperature"]));
        let all = std::slice::from_ref;
        assert_eq!(reasons(&[], all(&well)), ["DiskClaimed"]);
        assert_eq!(reasons(&[], all(&hot)), ["DiskClaimed", "DiskTemperature"]);
        assert_eq!(reasons(all(&well), all(&hot)), ["DiskTemperature"]);
        assert_eq!(reasons(all(&hot), all(&hot)), none);
        assert_eq!(reasons(all(&hot), all(&well)), ["DiskRecovered"]);
        assert_eq!(reasons(all(&hot), all(&both)), ["DiskMissing"]);
        assert_eq!(reasons(all(&both), all(&hot)), ["DiskReturned"]);
        assert_eq!(reasons(all(&gone), all(&hot)), ["DiskReturned", "DiskTemperature"]);
        assert_eq!(reasons(all(&gone), all(&well)), ["DiskReturned"]);
        assert_eq!(reasons(all(&gone), &[]), ["DiskReleased"]);
        let events = of_disks(all(&well), all(&hot));
        assert_eq!(events[0].note.note, "disk gpt-1 (/dev/sda): it has DiskTemperature");
    }

    #[test]
    fn a_disk_that_takes_no_new_volumes_any_more_or_takes_them_again_is_one_event_whatever_the_words() {
        let cordoned = |why: &str| DiskStatus { cordon: Some(why.to_owned()), ..disk("gpt-1", &["DiskFailing"]) };
        let (well, sick) = (disk("gpt-1", &[]), disk("gpt-1", &["DiskFailing"]));
        let (failing, over) = (cordoned("DiskFailing: it fails"), cordoned("DiskFailing: it fails (this is over)"));
        let all = std::slice::from_ref;
        assert_eq!(reasons(all(&well), all(&failing)), ["DiskFailing", "DiskCordoned"]);
        assert_eq!(reasons(all(&sick), all(&failing)), ["DiskCordoned"]);
        assert_eq!(reasons(all(&failing), all(&over)), [] as [String; 0]);
        assert_eq!(reasons(all(&over), all(&well)), ["DiskRecovered", "DiskUncordoned"]);
        assert_eq!(reasons(&[], all(&failing)), ["DiskClaimed", "DiskFailing", "DiskCordoned"]);
        let events = of_disks(all(&sick), all(&failing));
        assert_eq!(events[0].note.note, "disk gpt-1 (/dev/sda) takes no new volumes: DiskFailing: it fails");
    }

    #[test]
    fn an_agent_that_begins_reports_only_what_changed_since_the_last_status() {
        let (well, hot) = (disk("gpt-1", &[]), disk("gpt-1", &["DiskTemperature"]));
        let all = std::slice::from_ref;
        let mut reported = ReportedDisks::after(vec![hot.clone()]);
        assert_eq!(reported.take_in(all(&hot), BTreeMap::new(), &[]), []);
        let mut reported = ReportedDisks::after(vec![hot]);
        assert_eq!(reported.take_in(all(&well), BTreeMap::new(), &[])[0].note.reason, "DiskRecovered");
    }

    #[test]
    fn what_was_wiped_and_erased_is_one_event_also_if_several_passes_went_by() {
        let mut reported = ReportedDisks::default();
        let wiped =
            |number: u64| WipedDisk { number, path: format!("/dev/sd{number}").into(), message: "wiped".to_owned() };
        let mut notes = |erased: u64, all: &[WipedDisk]| -> Vec<String> {
            let erased = [(DiskId::named("gpt-1"), erased)].into();
            reported.take_in(&[], erased, all).into_iter().map(|event| event.note.note).collect()
        };
        assert_eq!(notes(0, &[]), [] as [String; 0]);
        assert_eq!(notes(1, &[wiped(1)]), ["/dev/sd1: wiped", "the space of 1 deleted volume on disk gpt-1 is erased"]);
        assert_eq!(notes(1, &[wiped(1)]), [] as [String; 0]);
        let more = notes(3, &[wiped(1), wiped(2), wiped(3)]);
        assert_eq!(more.len(), 3);
        assert!(more[2].contains("2 deleted volumes"), "{more:?}");
        assert_eq!(
            notes(1, &[]),
            ["the space of 1 deleted volume on disk gpt-1 is erased"],
            "it counts from the beginning"
        );
    }
}
