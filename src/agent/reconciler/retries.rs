//! Work that failed on a disk for a reason that passes is tried again, though no event of the machine tells that it has
//! passed.

use super::*;
use crate::agent::inventory;
use crate::claim::sample;
use crate::device::{Owner, VolumeId, label::Layout};
use crate::host::{
    Extent, Geometry,
    fake::{FakeHost, Fault, Platter},
};
use crate::pool::{CreateRequest, FAILING, Selector, Standing, WantedUsage, Workers};

const MIB: u64 = 1 << 20;
/// Far more than anything here takes on a busy machine.
const AT_MOST: Duration = Duration::from_secs(60);

fn start(host: &Arc<FakeHost>, layout: &Layout, workers: Workers) -> Reconciler {
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, workers).expect("a pool"));
    let rule = Rule { layout: layout.clone(), ..sample::rule("set") };
    Reconciler::new(host.clone(), pool, Duration::ZERO, vec![rule])
}

/// A machine of one disk, and the agent that has claimed it.
fn claimed(layout: &Layout, workers: Workers) -> (Arc<FakeHost>, Arc<Platter>, Reconciler) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: false });
    let mut agent = start(&host, layout, workers);
    for _ in 0..3 {
        agent.pass().expect("a pass");
    }
    assert_eq!(ready(&agent), 1);
    (host, disk, agent)
}

fn ready(agent: &Reconciler) -> usize {
    agent.pool.disk_views().iter().filter(|disk| disk.standing == Standing::Ready).count()
}

fn everything(what: &'static str) -> Fault {
    Fault { what, range: Extent { start: 0, end: 64 * MIB }, times: u32::MAX }
}

fn request(id: VolumeId) -> CreateRequest {
    CreateRequest {
        id,
        name: id.to_string(),
        required: 8 * MIB,
        limit: None,
        parameters: BTreeMap::new(),
        usage: WantedUsage::Block,
        selector: Selector::default(),
    }
}

fn until(is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + AT_MOST;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "that never was");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_disk_that_could_not_be_read_or_opened_is_looked_at_again_soon_and_less_and_less_often() {
    let bare = Layout::RawDevice {};
    for (layout, what) in [(Layout::Whole {}, "read"), (Layout::Whole {}, "write"), (bare, "read")] {
        let (host, disk, mut agent) = claimed(&layout, Workers::Caller);
        drop(agent);
        // The backup must be mended: that needs a write.
        disk.poke(64 * MIB - 512, &[0; 512]);
        host.restart_process();
        agent = start(&host, &layout, Workers::Caller);
        disk.inject(everything(what));
        for pause in [RESCAN_AFTER, RESCAN_AFTER * 2, RESCAN_AFTER * 4] {
            assert_eq!(agent.pass().expect("a pass").ripe_in, Some(pause), "{layout:?} {what}");
        }
        assert_eq!(ready(&agent), 0);
        disk.clear_faults();
        agent.pass().expect("a pass");
        assert_eq!(ready(&agent), 1, "{what}");
        let last = (0..3).map(|_| agent.pass().expect("a pass").ripe_in).last();
        assert_eq!(last, Some(None), "{what}: nothing to wait for any more");
    }
}

#[test]
fn an_erasure_that_failed_is_tried_again_by_a_pass() {
    let (_host, disk, mut agent) = claimed(&Layout::Whole {}, Workers::Threads);
    let pool = Arc::clone(agent.pool());
    let id = VolumeId::from_u128(7);
    let request = request(id);
    // Its space has to be cleaned before.
    until(|| pool.create(&request).is_ok());
    disk.inject(everything("zero"));
    pool.delete(id).expect("deleted");
    pool.kick();
    until(|| pool.has_failed_work());
    for pause in [RESCAN_AFTER, RESCAN_AFTER * 2] {
        let pass = agent.pass().expect("a pass");
        assert_eq!(pass.ripe_in, Some(pause));
        let shown = inventory(&pool, &pass);
        let note = shown[0].note.as_deref().unwrap_or_default();
        assert!(note.contains(FAILING), "{note}");
    }
    disk.clear_faults();
    // The worker of the last pass may still be about to fail.
    until(|| {
        pool.kick();
        !pool.has_failed_work() && pool.disk_views().iter().all(|disk| disk.erasing == 0)
    });
    assert_eq!(agent.pass().expect("a pass").ripe_in, None, "nothing to wait for any more");
    assert!(pool.disk_views().iter().all(|disk| disk.failing.is_none()));
}

#[test]
fn a_volume_grows_into_the_space_of_a_neighbour_whose_erasure_ends_meanwhile() {
    let (_host, disk, agent) = claimed(&Layout::Carved {}, Workers::Threads);
    let pool = Arc::clone(agent.pool());
    let [grows, neighbour] = [7, 8].map(VolumeId::from_u128);
    for id in [grows, neighbour] {
        until(|| pool.create(&request(id)).is_ok());
    }
    until(|| pool.disk_views().iter().all(|disk| disk.erasing == 0));
    disk.set_hangs_at(Some("zero"));
    pool.delete(neighbour).expect("deleted");
    let began = std::time::Instant::now();
    let growing = std::thread::spawn({
        let pool = Arc::clone(&pool);
        move || pool.expand(grows, 12 * MIB, None)
    });
    // It has begun by now, most likely.
    std::thread::sleep(Duration::from_millis(100));
    disk.set_hangs(false);
    let grown = growing.join().expect("no bug");
    // It waits for a moment only: on a machine that stood still meanwhile that is over.
    assert!(grown.is_ok() || began.elapsed() > Duration::from_secs(1), "{grown:?}");
    until(|| pool.expand(grows, 12 * MIB, None).is_ok_and(|view| view.size >= 12 * MIB));
}
