use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::agent::reconciler::PassReport;
use crate::claim::{Filter, NamedPaths, NoAnswer, Promise, sample};
use crate::device::{Owner, VolumeId, label::Layout};
use crate::host::{
    FsKind, Geometry,
    fake::{FakeHost, Fault, Platter},
    table::{Entry, Name, Table, backup_bytes, mbr_bytes, primary_bytes},
};
use crate::pool::{CreateRequest, ErrandKey, Pool, Selector, WantedUsage, Workers};

const GEOMETRY: Geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
const AGE: Duration = Duration::from_secs(60);
/// When a disk is looked at again for the first time after something that may pass.
const SOON: Duration = Duration::from_secs(1);

/// One machine, and an agent with a LocalVolume that orders to wipe what it names.
struct Case {
    host: Arc<FakeHost>,
    agent: Reconciler,
}

fn order(paths: &[&str]) -> Rule {
    let named = NamedPaths { paths: paths.iter().map(PathBuf::from).collect(), wipe: true };
    let max_devices = u32::try_from(paths.len()).ok();
    Rule { filter: Filter::of_named(), named: Some(named), max_devices, created: 5, ..sample::rule("lv/fast") }
}

impl Case {
    fn new(disks: &[&str], rules: Vec<Rule>) -> Self {
        let host = Arc::new(FakeHost::default());
        for name in disks {
            host.add_disk(name, &format!("SERIAL-{name}"), GEOMETRY);
        }
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let agent = Reconciler::new(host.clone(), pool, AGE, rules);
        Self { host, agent }
    }

    /// The agent starts again, with what its state directory remembers.
    fn restart(&mut self, rules: Vec<Rule>) {
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(self.host.clone(), owner, Workers::Caller).expect("a pool"));
        self.agent = Reconciler::new(self.host.clone(), pool, AGE, rules);
    }

    fn platter(&self, name: &str) -> Arc<Platter> {
        self.host.platter(name).expect("the disk is there")
    }

    fn mkfs(&self, name: &str) {
        let path = format!("/dev/{name}");
        self.host.filesystems().make(FsKind::Ext4, Path::new(&path), Uuid::from_u128(7)).expect("mkfs");
        // A byte far from both ends, which no wipe needs to reach.
        self.platter(name).poke(32 << 20, b"data");
    }

    fn put(&self, name: &str, table: &Table) {
        let (platter, backup) = (self.platter(name), backup_bytes(table));
        platter.poke(0, &mbr_bytes(table));
        platter.poke(512, &primary_bytes(table));
        platter.poke(GEOMETRY.size - backup.len() as u64, &backup);
    }

    fn pass(&mut self) -> PassReport {
        self.agent.pass().expect("a pass")
    }

    /// Passes, each a minimum age after the other.
    fn passes(&mut self, count: usize) -> PassReport {
        for _ in 1..count {
            self.pass();
            self.host.advance(AGE);
        }
        self.pass()
    }

    /// Many passes later not a byte of it has changed; gives the words.
    fn stays(&mut self, name: &str) -> String {
        let before = (self.platter(name).content(), self.platter(name).write_count());
        let pass = self.passes(6);
        let after = (self.platter(name).content(), self.platter(name).write_count());
        assert!(before == after, "{name} was written");
        assert!(pass.claimed.is_empty());
        message_of(&pass, name)
    }
}

fn message_of(pass: &PassReport, name: &str) -> String {
    let rejected = pass.outcomes.iter().flat_map(|outcome| &outcome.rejected).find(|(device, _)| device == name);
    let reason = rejected.map(|(_, rejection)| rejection.to_string()).unwrap_or_default();
    format!("{reason} {}", pass.problems.get(name).cloned().unwrap_or_default())
}

fn partition() -> Entry {
    let extent = Extent { start: 1 << 20, end: 2 << 20 };
    let (kind, guid) = (Uuid::from_u128(1), Uuid::from_u128(2));
    Entry { kind, guid, extent, attributes: 0, name: Name::tail("data") }
}

#[test]
fn a_named_disk_is_wiped_after_its_time_and_claimed_after_another() {
    let mut case = Case::new(&["fake0", "fake1"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.mkfs("fake1");
    let first = case.pass();
    assert_eq!(first.ripe_in, Some(AGE));
    assert!(
        message_of(&first, "fake0").contains("it will be wiped when it has stayed unchanged"),
        "{}",
        message_of(&first, "fake0")
    );
    assert_eq!(case.platter("fake0").write_count(), 0, "the fake mkfs counts as a tenant's writes do: not");
    case.host.advance(AGE - Duration::from_secs(1));
    case.pass();
    assert_eq!(case.platter("fake0").write_count(), 0, "before its time");
    case.host.advance(Duration::from_secs(1));
    let wiped = case.pass();
    let message = &wiped.problems["fake0"];
    assert!(message.contains("it was wiped, as LocalVolume default/lv/fast orders; it held ext4"), "{message}");
    assert!(case.platter("fake0").is_zero(Extent { start: 0, end: ENDS }));
    let last =
        |pass: &PassReport| pass.wiped.iter().map(|wiped| (wiped.number, wiped.message.clone())).collect::<Vec<_>>();
    assert_eq!(last(&wiped), [(1, message.clone())]);
    assert_eq!((&wiped.claimed, wiped.ripe_in), (&vec![], Some(Duration::ZERO)));
    assert_eq!(last(&case.pass()), last(&wiped), "who missed that pass learns it from the next");
    let pass = case.pass();
    assert!(pass.claimed.is_empty() && pass.problems["fake0"].contains("it held ext4"), "{:?}", pass.problems);
    case.host.advance(AGE);
    assert_eq!(case.pass().claimed, ["fake0"]);
    assert!(!case.pass().problems.contains_key("fake0"), "it is over");
    assert_eq!(case.platter("fake1").write_count(), 0, "nobody named it");
}

#[test]
fn a_wiped_disk_whose_claim_fails_is_looked_at_again_soon_and_claimed_then() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.passes(2);
    let pass = case.pass();
    assert!(pass.problems["fake0"].contains("it was wiped"), "{:?}", pass.problems);
    case.host.advance(AGE);
    case.platter("fake0").inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: 1 });
    let failed = case.pass();
    assert!(failed.claimed.is_empty() && !failed.problems["fake0"].contains("it was wiped"), "{:?}", failed.problems);
    assert!(failed.ripe_in.is_some_and(|soon| soon <= Duration::from_secs(1)), "{:?}", failed.ripe_in);
    assert_eq!(case.pass().claimed, ["fake0"]);
}

#[test]
fn what_changes_before_its_time_begins_its_time_again() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.pass();
    case.host.advance(AGE);
    // Another filesystem: seen only by the last scan, as no event reported it.
    case.host.filesystems().make(FsKind::Xfs, Path::new("/dev/fake0"), Uuid::from_u128(8)).expect("mkfs");
    let pass = case.pass();
    assert!(pass.problems["fake0"].contains("has changed"), "{:?}", pass.problems);
    assert_eq!(case.platter("fake0").write_count(), 0);
    case.agent.event(&"fake0".into());
    case.pass();
    assert_eq!(case.platter("fake0").write_count(), 0, "its minute has begun again");
}

#[test]
fn a_wipe_whose_last_scan_could_not_read_the_disk_is_tried_again_by_the_clock() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.pass();
    case.host.advance(AGE);
    // What the scan before believes of it is remembered: only the last scan reads.
    case.platter("fake0").inject(Fault { what: "read", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let failed = case.pass();
    let message = &failed.problems["fake0"];
    assert!(message.contains("has changed: could not be read"), "{message}");
    assert_eq!((failed.ripe_in, case.platter("fake0").write_count()), (Some(SOON), 0), "{message}");
    case.platter("fake0").clear_faults();
    assert!(case.pass().problems["fake0"].contains("it was wiped"));
}

#[test]
fn a_wipe_of_a_disk_that_another_program_holds_or_locks_is_tried_again_by_the_clock() {
    for (at, hold) in Platter::HOLDS.into_iter().enumerate() {
        let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
        case.mkfs("fake0");
        case.pass();
        case.host.advance(AGE);
        hold(&case.platter("fake0"), true);
        let held = case.pass();
        assert_eq!(held.ripe_in, Some(SOON), "{at}: {}", message_of(&held, "fake0"));
        hold(&case.platter("fake0"), false);
        assert!(message_of(&case.pass(), "fake0").contains("it was wiped"), "{at}");
    }
}

#[test]
fn a_wipe_of_a_disk_that_has_changed_or_has_partitions_waits_for_an_event_of_it() {
    let another = |case: &Case| {
        case.host.filesystems().make(FsKind::Xfs, Path::new("/dev/fake0"), Uuid::from_u128(8)).expect("mkfs");
    };
    let partitioned = |case: &Case| {
        let table = Table::new(Uuid::from_u128(9), GEOMETRY).expect("a table");
        case.put("fake0", &table.with(1, Some(partition())).expect("a partition"));
    };
    let gone = |case: &Case| case.host.before_the_next_claim(|platter| platter.poke(16, &[9; 16]));
    type Change<'c> = &'c dyn Fn(&Case);
    let changes: [(Change<'_>, Change<'_>, &str); 3] = [
        (&|case| case.mkfs("fake0"), &another, "has changed"),
        (&|case| case.mkfs("fake0"), &gone, "has changed"),
        (&partitioned, &|_| (), "has partitions"),
    ];
    for (before, then, expected) in changes {
        let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
        before(&case);
        case.pass();
        case.host.advance(AGE);
        then(&case);
        let pass = case.pass();
        let message = message_of(&pass, "fake0");
        assert!(message.contains(expected), "{message}");
        assert_eq!((pass.ripe_in, case.platter("fake0").write_count()), (None, 0), "{message}");
    }
}

#[test]
fn without_the_order_or_under_a_dry_run_nothing_is_wiped() {
    let mut keep = order(&["/dev/fake0"]);
    keep.named = keep.named.map(|named| NamedPaths { wipe: false, ..named });
    let dry = Rule { dry_run: true, ..order(&["/dev/fake0"]) };
    let elsewhere = Rule { node: NodeMatch::NotSelected, ..order(&["/dev/fake0"]) };
    for rule in [keep, dry, elsewhere, order(&["/dev/fake9"]), order(&[])] {
        let mut case = Case::new(&["fake0"], vec![rule]);
        case.mkfs("fake0");
        case.stays("fake0");
    }
}

#[test]
fn a_disk_that_is_in_use_is_never_wiped() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.platter("fake0").set_in_use(0, true);
    let message = case.stays("fake0");
    assert!(message.contains("opened exclusively") && message.contains("a device in use is never wiped"), "{message}");
    case.host.edit("fake0", |raw| raw.swap = true);
    let message = case.stays("fake0");
    assert!(message.contains("a device in use is never wiped"), "{message}");
}

#[test]
fn an_empty_table_is_wiped_and_one_with_partitions_is_not_though_the_kernel_shows_none() {
    let empty = Table::new(Uuid::from_u128(9), GEOMETRY).expect("a table");
    let full = empty.with(1, Some(partition())).expect("a partition");
    let mut dos = [0_u8; 512];
    dos[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut dos_full = dos;
    dos_full[446 + 4] = 0x83;
    type Put<'p> = &'p dyn Fn(&Case);
    let backup_only = |table: &Table, case: &Case| {
        case.put("fake0", table);
        case.platter("fake0").poke(0, &[0; 34 * 512]);
    };
    let damaged = |case: &Case| {
        case.put("fake0", &empty);
        case.platter("fake0").poke(512 + 60, b"x");
    };
    let cases: [(Put<'_>, Option<&str>); 7] = [
        (&|case| case.put("fake0", &empty), None),
        (&|case| case.put("fake0", &full), Some("has partitions")),
        (&|case| backup_only(&empty, case), None),
        (&|case| backup_only(&full, case), Some("has partitions")),
        (&|case| case.platter("fake0").poke(0, &dos), None),
        (&|case| case.platter("fake0").poke(0, &dos_full), Some("has partitions")),
        (&damaged, Some("it is not known whether")),
    ];
    for (at, (put, refusal)) in cases.into_iter().enumerate() {
        let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
        put(&case);
        match refusal {
            Some(text) => {
                let message = case.stays("fake0");
                assert!(message.contains(text), "case {at}: {message}");
            }
            None => {
                let pass = case.passes(2);
                assert!(
                    message_of(&pass, "fake0").contains("it was wiped"),
                    "case {at}: {}",
                    message_of(&pass, "fake0")
                );
                let both = [Extent { start: 0, end: ENDS }, Extent { start: GEOMETRY.size - ENDS, end: GEOMETRY.size }];
                assert!(both.iter().all(|end| case.platter("fake0").is_zero(*end)), "case {at}");
            }
        }
    }
}

#[test]
fn a_disk_that_an_older_set_would_take_or_that_was_released_is_not_wiped() {
    let older = Rule { created: 1, ..sample::rule("older") };
    let mut case = Case::new(&["fake0"], vec![older, order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.stays("fake0");

    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    assert_eq!(case.passes(3).claimed.len() + case.agent.pool.labelled_disks().len(), 1, "it was blank");
    let member = case.agent.pool.members().into_iter().next().expect("a member");
    case.agent.give_up(&member).expect("released");
    case.mkfs("fake0");
    let message = case.stays("fake0");
    assert!(message.contains("not wiped: released"), "{message}");
}

/// A disk was claimed as /dev/fake0; after a reboot it is fake1, and another disk, with data, is fake0.
#[test]
fn a_name_that_another_disk_has_by_now_wipes_nothing() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0", "/dev/disk/by-id/on-another-node"])]);
    case.passes(3);
    assert_eq!(case.agent.pool.labelled_disks().len(), 1);
    let platter = case.host.unplug("fake0").expect("it was there");
    case.pass();
    case.host.plug("fake1", "SERIAL-fake0", platter);
    case.host.add_disk("fake0", "SERIAL-new", GEOMETRY);
    case.mkfs("fake0");
    let message = case.stays("fake0");
    assert!(message.contains("may have been another disk's"), "{message}");
    let missing = case.pass().outcomes[0].missing.clone();
    assert_eq!(missing, ["/dev/disk/by-id/on-another-node"]);
}

/// The same, and the agent has never seen the disk of its pool since it started: it is dead, or late.
#[test]
fn a_name_whose_disk_is_away_since_the_start_wipes_nothing() {
    for paths in [&["/dev/fake0"][..], &["/dev/fake0", "/dev/disk/by-id/on-another-node"]] {
        let mut case = Case::new(&["fake0"], vec![order(paths)]);
        case.passes(3);
        assert_eq!(case.agent.pool.labelled_disks().len(), 1);
        case.host.unplug("fake0").expect("it was there");
        case.host.add_disk("fake0", "SERIAL-new", GEOMETRY);
        case.mkfs("fake0");
        case.restart(vec![order(paths)]);
        case.stays("fake0");
        assert!(case.agent.pool.labelled_disks().is_empty());
    }
}

/// A bare device of the pool whose hardware has another serial since: what its volume holds looks like anybody's.
#[test]
fn a_disk_that_may_be_a_bare_device_of_the_pool_is_not_wiped() {
    let bare = || Rule { layout: Layout::RawDevice {}, ..sample::rule("bare") };
    let mut case = Case::new(&["fake0"], vec![bare()]);
    case.passes(3);
    let request = CreateRequest {
        id: VolumeId::from_u128(1),
        name: "volume".to_owned(),
        required: 1 << 20,
        limit: None,
        usage: WantedUsage::Mount(Some(FsKind::Ext4)),
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    };
    case.agent.pool.create(&request).expect("made");
    case.mkfs("fake0");
    let platter = case.host.unplug("fake0").expect("it was there");
    case.host.plug("fake0", "SERIAL-of-another-firmware", platter);
    case.agent.set_rules(vec![order(&["/dev/fake0"])]);
    let message = case.stays("fake0");
    assert!(message.contains("not wiped: the device of a volume is missing"), "{message}");
    case.restart(vec![bare(), order(&["/dev/fake0"])]);
    case.stays("fake0");
}

/// What is on it may be the data of a volume that another provisioner gave out and that no pod uses just now.
#[test]
fn a_disk_that_another_provisioner_promises_is_never_wiped_nor_while_that_cannot_be_told() {
    let promise = |path: &str| Promise {
        volume: "local-pv-1".into(),
        provisioner: Some("local-volume-provisioner".to_owned()),
        path: path.into(),
        device: None,
    };
    for (answer, expected) in [
        (Ok(vec![promise("/dev/fake0")]), "the PersistentVolume local-pv-1 of provisioner local-volume-provisioner"),
        (Err("no answer"), "it is not known which devices other PersistentVolumes promise: no answer"),
    ] {
        let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
        case.agent.question.ask_promises(Box::new(move || answer.clone().map_err(|why| NoAnswer::Failed(why.into()))));
        case.mkfs("fake0");
        let message = case.stays("fake0");
        assert!(message.contains(expected), "{message}");
    }
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.agent.question.ask_promises(Box::new(move || Ok(vec![promise("/dev/fake9")])));
    case.mkfs("fake0");
    assert!(case.passes(2).problems["fake0"].contains("it was wiped"));
}

#[test]
fn our_own_disks_and_those_of_others_nodes_are_never_wiped() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.passes(3);
    assert_eq!(case.agent.pool.labelled_disks().len(), 1);
    case.stays("fake0");
    // Another node's agent sees the same disk.
    let host = Arc::new(FakeHost::default());
    host.plug("fake0", "SERIAL-fake0", case.platter("fake0"));
    let owner = Owner { cluster: "c".to_owned(), node: "other".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    let agent = Reconciler::new(host.clone(), pool, AGE, vec![order(&["/dev/fake0"])]);
    let message = Case { host, agent }.stays("fake0");
    assert!(message.contains("belongs to node n") && message.contains("not wiped"), "{message}");
}

#[test]
fn a_filesystem_that_somebody_makes_right_before_the_wipe_is_not_wiped() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    // The same kind, another one.
    case.host.before_the_next_claim(|platter| platter.poke(16, &[9; 16]));
    let pass = case.passes(2);
    assert!(message_of(&pass, "fake0").contains("has changed"), "{}", message_of(&pass, "fake0"));
    assert_eq!(case.platter("fake0").write_count(), 0);
}

#[test]
fn a_disk_that_a_program_writes_to_is_not_wiped() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.mkfs("fake0");
    case.platter("fake0").set_opened(true);
    let pass = case.passes(2);
    assert!(message_of(&pass, "fake0").contains("open in"), "{}", message_of(&pass, "fake0"));
    assert_eq!(case.platter("fake0").write_count(), 0);
}

/// The wipe of a disk that does not answer goes on without the pass; who takes the order back by then has his data.
#[test]
fn an_order_that_is_taken_back_while_the_disk_hangs_wipes_nothing_when_it_answers() {
    let mut case = Case::new(&["fake0"], vec![order(&["/dev/fake0"])]);
    case.agent.errands.wait_at_most(Duration::from_secs(3));
    case.mkfs("fake0");
    case.pass();
    case.host.advance(AGE);
    case.host.before_the_next_claim(|platter| platter.set_hangs_at(Some("probe")));
    let pass = case.pass();
    assert!(message_of(&pass, "fake0").contains("more than 3s"), "{}", message_of(&pass, "fake0"));
    case.agent.set_rules(Vec::new());
    let (disk, id) = (case.platter("fake0"), ErrandKey::from(&pass.snapshot.devices[0].id));
    disk.set_hangs(false);
    while case.agent.errands.is_waiting_for(&id) {
        std::thread::yield_now();
    }
    assert_eq!(disk.write_count(), 0, "it was wiped");
    // Ordered again, it goes the whole way again.
    case.agent.set_rules(vec![order(&["/dev/fake0"])]);
    assert!(case.passes(2).problems["fake0"].contains("it was wiped"));
}
