//! Disks that take no new volumes, by what a checkup finds and by what a person chooses.

use std::collections::BTreeSet;

use super::*;
use crate::agent::inventory::inventory;
use crate::device::label::Layout;
use crate::health::{HealthReason, REASONS, ReasonRow};
use crate::pool::{CORDONED, Capacity, Cordon, CordonChoice, Destination, EarlierCordon, Made, NoPlace, PoolError};

impl Node {
    fn id(&self, name: &str) -> DiskId {
        let path = std::path::Path::new("/dev").join(name);
        self.checkup.pool.disk_views().into_iter().find(|view| view.path == path).expect("in the pool").id
    }

    fn cordon(&self, name: &str) -> Option<String> {
        let id = self.id(name);
        let view = self.checkup.pool.disk_views().into_iter().find(|view| view.id == id);
        view.expect("in the pool").cordon.map(|cordon| cordon.to_string())
    }

    /// The disk that a volume of this many MiB gets.
    fn make(&self, name: &str, mib: u64) -> Result<DiskId, PoolError> {
        self.checkup.pool.create(&request(name, mib)).map(|(view, _)| view.disk)
    }

    fn capacity(&self) -> Capacity {
        self.checkup.pool.capacity(&Selector::default(), WantedUsage::Mount(None))
    }

    /// Sets what a disk reports, and looks.
    fn reports(&mut self, name: &str, report: DiskReport) -> bool {
        self.host.set_report(name, report);
        self.agent.reports().all_changed();
        self.checkup()
    }

    fn choose(&self, name: &str, choice: CordonChoice) -> bool {
        self.checkup.pool.cordons().choose([(self.id(name), choice)].into())
    }
}

fn carving_node() -> Node {
    node_of(Rule { layout: Layout::Carved {}, ..sample::rule("set") })
}

fn request(name: &str, mib: u64) -> CreateRequest {
    CreateRequest {
        id: VolumeId::of_name(name),
        name: name.to_owned(),
        required: mib << 20,
        limit: None,
        usage: WantedUsage::Mount(Some(FsKind::Ext4)),
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    }
}

#[test]
fn a_disk_that_starts_to_fail_takes_no_new_volumes_and_its_volumes_and_the_other_disk_work() {
    let mut node = carving_node();
    node.checkup();
    let (sick, well, whole) = (node.id("fake0"), node.id("fake1"), node.capacity());
    let made = node.checkup.pool.create_on(&request("old", 16), Some(&sick)).expect("there is room");
    let Made::Volume(old, _) = made else { panic!("{made:?}") };
    assert_eq!(old.disk, sick);
    let accepted = request("accepted", 16);
    assert!(node.reports("fake0", warning(DiskWarning::Unreliable)));
    let message = "DiskFailing: the disk reports: its reliability is degraded by media errors";
    assert_eq!(node.cordon("fake0").as_deref(), Some(message));
    assert_eq!(node.cordon("fake1"), None);
    assert_eq!(node.capacity().available, whole.available / 2);
    for name in ["new", "another"] {
        assert_eq!(node.make(name, 16).expect("there is room"), well);
    }
    let large = (node.capacity().largest >> 20) + 1;
    let full = node.make("large", large).expect_err("only the sick disk has room");
    let PoolError::NoPlace(NoPlace::Cordoned { disk, why }) = &full else { panic!("{full:?}") };
    assert_eq!((disk, why), (&sick, &Cordon::Unfit(message.to_owned())));
    assert!(full.to_string().contains("has room, but it takes no new volumes: DiskFailing"), "{full}");
    assert!(matches!(node.make("larger", 400), Err(PoolError::NoPlace(NoPlace::Full { .. }))));

    let pool = &node.checkup.pool;
    let made = pool.create_on(&accepted, Some(&sick)).expect("it was accepted before");
    assert!(matches!(made, Made::Volume(view, _) if view.disk == sick));
    let (usable, _) = pool.create(&request("old", 16)).expect("it is there");
    assert_eq!(usable.disk, sick);
    assert!(matches!(pool.place(&request("old", 16), &BTreeSet::new()), Ok(Destination::There)));
    let grown = pool.expand(VolumeId::of_name("accepted"), 17 << 20, None).expect("it grows into the space behind it");
    assert_eq!(grown.size, 17 << 20);
    for id in [old.id, grown.id] {
        pool.delete(id).expect("deleted");
    }
    pool.work_until_idle().expect("erased");

    assert!(node.reports("fake0", DiskReport::of(Health::Passed)));
    assert_eq!(node.cordon("fake0"), None);
    assert_eq!(node.make("large", large).expect("the disk is well again"), sick);
}

#[test]
fn where_all_disks_are_cordoned_nothing_is_offered_and_a_person_decides_otherwise() {
    let mut node = carving_node();
    for disk in ["fake0", "fake1"] {
        node.reports(disk, warning(DiskWarning::SpareLow));
    }
    assert_eq!(node.capacity(), Capacity::default());
    assert!(matches!(node.make("v", 16), Err(PoolError::NoPlace(NoPlace::Cordoned { .. }))));
    assert!(matches!(node.make("v", 400), Err(PoolError::NoPlace(NoPlace::Full { .. }))));
    assert!(node.choose("fake1", CordonChoice::Open));
    assert_eq!(node.make("v", 16).expect("a person opened it"), node.id("fake1"));
    node.checkup();
    assert!(!node.checkup(), "nothing changed");
    for disk in ["fake0", "fake1"] {
        node.reports(disk, DiskReport::of(Health::Passed));
    }
    assert!(node.choose("fake1", CordonChoice::Cordoned));
    assert_eq!(node.cordon("fake1").as_deref(), Some("a person has cordoned it"));
    let pass = node.agent.pass().expect("a pass");
    let listed = inventory(&node.checkup.pool, &pass).into_iter();
    let cordoned = listed.filter(|one| one.note.as_ref().is_some_and(|note| note.contains(CORDONED)));
    let notes: Vec<_> = cordoned.filter_map(|one| Some((one.device.raw.name.to_string(), one.note?))).collect();
    let [(disk, note)] = notes.as_slice() else { panic!("{notes:?}") };
    assert!(disk == "fake1" && note.ends_with("; it takes no new volumes: a person has cordoned it"), "{notes:?}");
    for name in ["a", "b"] {
        assert_eq!(node.make(name, 16).expect("there is room"), node.id("fake0"));
    }
}

#[test]
fn a_disk_that_does_not_answer_is_cordoned_and_what_was_known_counts_until_it_answers() {
    let mut node = carving_node();
    let found = |disk: DiskId| {
        let (what, why) = ("DiskFailing".to_owned(), "DiskFailing: found before".to_owned());
        [(disk, vec![EarlierCordon { what, why }])].into()
    };
    let (first, second) = (node.id("fake0"), node.id("fake1"));
    node.checkup.pool.cordons().remember(found(first));
    node.checkup.pool.cordons().remember(found(second));
    node.disks[0].set_hangs(true);
    node.agent.reports().all_changed();
    assert!(node.checkup());
    let before = Some("DiskFailing: found before");
    assert_eq!(
        (node.cordon("fake0").as_deref(), node.cordon("fake1").as_deref()),
        (before, before),
        "it reports nothing"
    );
    node.reports("fake1", DiskReport::of(Health::Passed));
    assert_eq!(node.cordon("fake0").as_deref(), before);
    assert_eq!(node.cordon("fake1"), None, "it has answered");
    node.host.advance(timeout::DEVICE_TIMEOUT);
    assert!(node.checkup());
    let why = node.cordon("fake0").expect("cordoned");
    assert!(why.starts_with("DiskNotAnswering: /dev/fake0 was asked for its health"), "{why}");
    node.host.set_health("fake0", Health::Passed);
    node.disks[0].set_hangs(false);
    while node.cordon("fake0").is_some() {
        node.agent.reports().all_changed();
        node.checkup();
    }
}

#[test]
fn what_an_earlier_agent_cordoned_stays_so_whether_the_pool_is_read_before_during_or_after_the_first_checkup() {
    for read in ["before", "during", "after"] {
        let mut node = carving_node();
        node.host.set_report("fake0", warning(DiskWarning::Unreliable));
        let (id, pool, sick) = (node.id("fake0"), Arc::clone(&node.checkup.pool), Arc::clone(&node.disks[0]));
        let (what, why) = ("DiskFailing".to_owned(), "DiskFailing: found before".to_owned());
        let remember = move || pool.cordons().remember([(id, vec![EarlierCordon { what, why }])].into());
        sick.set_hangs_at(Some("report"));
        let mut remember = Some(remember);
        if read == "before" {
            remember.take().expect("not yet")();
        }
        std::thread::scope(|scope| {
            if let Some(remember) = remember.take_if(|_| read == "during") {
                scope.spawn(|| {
                    sick.until_somebody_waits();
                    remember();
                });
            }
            node.checkup();
        });
        if let Some(remember) = remember {
            assert!(remember(), "it is a change");
        }
        assert_eq!(node.cordon("fake0").as_deref(), Some("DiskFailing: found before"), "{read}");
        assert_eq!(node.cordon("fake1"), None);
        node.host.set_health("fake0", Health::Passed);
        sick.set_hangs_at(None);
        node.agent.reports().all_changed();
        while node.cordon("fake0").is_some() {
            node.checkup();
        }
    }
}

#[test]
fn what_was_found_before_ends_with_a_change_also_where_a_person_has_chosen_the_cordon() {
    let mut node = carving_node();
    let (what, why) = ("DiskFailing".to_owned(), "DiskFailing: found before".to_owned());
    node.checkup.pool.cordons().remember([(node.id("fake0"), vec![EarlierCordon { what, why }])].into());
    node.choose("fake0", CordonChoice::Cordoned);
    node.checkup();
    assert!(!node.checkup());
    assert!(node.reports("fake0", DiskReport::of(Health::Passed)), "its health is shown, whoever has cordoned it");
    assert_eq!(node.cordon("fake0").as_deref(), Some("a person has cordoned it"));
    assert!(node.checkup.pool.cordons().choose(BTreeMap::new()));
    assert_eq!(node.cordon("fake0"), None);
}

#[test]
fn what_a_node_offers_does_not_come_and_go_with_what_a_disk_reports() {
    let mut node = carving_node();
    node.checkup();
    let whole = node.capacity();
    node.reports("fake0", warning(DiskWarning::Unreliable));
    let half = node.capacity();
    assert!(node.reports("fake0", DiskReport::of(Health::Passed)));
    assert_eq!(node.capacity(), whole, "the first time");
    for _ in 0..20 {
        node.reports("fake0", warning(DiskWarning::Unreliable));
        assert_eq!(node.capacity(), half);
        node.host.advance(Duration::from_secs(60));
        node.reports("fake0", DiskReport::of(Health::Passed));
        assert_eq!(node.capacity(), half);
    }
    node.host.advance(Duration::from_secs(600));
    assert!(node.checkup());
    assert_eq!(node.capacity(), whole);
}

#[test]
fn what_comes_and_goes_and_wear_that_a_fleet_reaches_at_once_cordon_no_disk() {
    let cordon = |row: &&ReasonRow| HealthReason::from(row.word.to_owned()).cordons();
    let words: Vec<&str> = REASONS.iter().filter(cordon).map(|row| row.word).collect();
    assert_eq!(
        words,
        ["DiskNotAnswering", "DiskReadOnly", "DiskFailing", "ArrayFailed", "ArrayDegraded", "DiskSpareLow"]
    );
    assert!(REASONS.iter().filter(cordon).all(ReasonRow::marks));
}

#[test]
fn a_busy_disk_that_has_answered_before_is_fit_while_its_answer_is_late() {
    let mut node = carving_node();
    node.host.set_report("fake0", DiskReport::of(Health::Unknown("it reports nothing".to_owned())));
    node.checkup();
    for _ in 0..2 {
        node.disks[0].set_hangs(true);
        node.agent.reports().all_changed();
        node.checkup();
        node.host.advance(timeout::DEVICE_TIMEOUT);
        node.checkup();
        assert!(node.cordon("fake0").is_some_and(|why| why.starts_with("DiskNotAnswering")));
        node.disks[0].set_hangs(false);
        node.agent.reports().all_changed();
        while !node.reasons("fake0").is_empty() {
            node.checkup();
        }
    }
    assert!(node.cordon("fake0").is_some(), "the second time in an hour: it has to be fit for a while");
    for _ in 0..3 {
        node.host.advance(Duration::from_secs(300));
        node.agent.reports().all_changed();
        node.disks[0].set_hangs(true);
        node.checkup();
        assert_eq!(node.reasons("fake0"), [""; 0], "late, and not yet silent");
        node.disks[0].set_hangs(false);
        // The late answer.
        let disk = node.host.scan().expect("a scan").remove(0).incarnation();
        while node.checkup.reporting.is_waiting_for(&disk) {
            std::thread::yield_now();
        }
    }
    assert_eq!(node.cordon("fake0"), None);
}
