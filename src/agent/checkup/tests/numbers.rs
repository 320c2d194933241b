//! A disk that answers for its verdict, and not in time for its numbers, as a busy SATA or SAS disk does.

use super::*;
use crate::host::DiskNumber;

const ALL: [DiskNumber; 5] = [
    DiskNumber::Temperature,
    DiskNumber::Wear,
    DiskNumber::MediaErrors,
    DiskNumber::PendingSectors,
    DiskNumber::ReallocatedSectors,
];

/// Its verdict alone.
pub fn without_numbers() -> DiskReport {
    DiskReport { unanswered: ALL.to_vec(), ..DiskReport::of(Health::Passed) }
}

fn hot_and_worn() -> DiskReport {
    DiskReport {
        warnings: vec![DiskWarning::Temperature],
        media_errors: Some(1),
        pending_sectors: Some(2),
        reallocated_sectors: Some(3),
        used_percent: Some(104),
        temperature_celsius: Some(71),
        ..DiskReport::of(Health::Passed)
    }
}

impl Node {
    /// The disk `fake0` is asked, and reports this; gives whether people see a change.
    fn reports_now(&mut self, report: DiskReport) -> bool {
        self.host.set_report("fake0", report);
        self.agent.reports().all_changed();
        self.checkup()
    }

    fn report(&self) -> Option<DiskReport> {
        let mut disks = self.checkup.pool.usable_disks().into_iter();
        let (id, _) = disks.find(|(_, raw)| raw.name == "fake0").expect("it is here");
        self.board.report(&id)
    }
}

#[test]
fn a_number_that_a_disk_is_asked_for_in_vain_is_as_it_last_was_and_goes_when_the_disk_does_not_have_it() {
    let mut node = node();
    assert!(node.reports_now(hot_and_worn()));
    let reasons = ["DiskWornOut", "DiskTemperature"];
    assert_eq!(node.reasons("fake0"), reasons);
    // With the end of an agent's first ten minutes what an earlier one found may go: a change of its own.
    node.host.advance(REMEMBERED_FOR);
    assert!(node.reports_now(hot_and_worn()));
    for _ in 0..3 {
        assert!(!node.reports_now(without_numbers()), "nothing comes or goes");
        assert_eq!((node.reasons("fake0"), node.report()), (reasons.map(str::to_owned).into(), Some(hot_and_worn())));
        // Its temperature would be held for ten minutes anyway.
        node.host.advance(REMEMBERED_FOR);
    }
    // Some of them.
    let temperature = DiskReport {
        warnings: vec![],
        temperature_celsius: Some(40),
        unanswered: ALL[1..].to_vec(),
        ..without_numbers()
    };
    node.reports_now(temperature);
    assert_eq!(node.reasons("fake0"), ["DiskWornOut"]);
    let cool = DiskReport { warnings: vec![], temperature_celsius: Some(40), ..hot_and_worn() };
    assert_eq!(node.report(), Some(cool));
    assert!(node.reports_now(DiskReport::of(Health::Passed)));
    assert_eq!((node.reasons("fake0"), node.report()), (vec![], Some(DiskReport::of(Health::Passed))));
    node.reports_now(without_numbers());
    assert_eq!(node.report(), Some(DiskReport::of(Health::Passed)), "it has said that it has none");
}

#[test]
fn the_verdict_of_a_disk_counts_at_once_whether_or_not_it_answers_for_its_numbers() {
    let mut node = node();
    node.reports_now(hot_and_worn());
    let fails = warning(DiskWarning::Unreliable);
    assert!(node.reports_now(DiskReport { unanswered: ALL.to_vec(), ..fails }));
    assert_eq!(node.reasons("fake0"), ["DiskFailing", "DiskWornOut", "DiskTemperature"]);
    assert!(node.reports_now(without_numbers()));
    assert_eq!(node.reasons("fake0"), ["DiskWornOut", "DiskTemperature"]);
}

#[test]
fn no_number_of_a_device_that_left_is_one_of_the_device_that_came() {
    let mut node = node();
    node.reports_now(hot_and_worn());
    let platter = node.host.unplug("fake0").expect("it was there");
    // The kernel has replaced it before anybody looked.
    node.host.plug("fake0", "fake0", platter);
    node.host.set_report("fake0", without_numbers());
    node.agent.reports().all_changed();
    node.agent.pass().expect("a pass");
    while node.checkup.pool.usable_disks().len() < 2 {
        node.agent.pass().expect("a pass");
    }
    node.checkup();
    assert_eq!(node.report(), Some(without_numbers()));
    assert!(!node.reasons("fake0").contains(&"DiskWornOut".to_owned()), "{:?}", node.reasons("fake0"));
}
