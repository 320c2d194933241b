//! A machine with two disks that come and go: stopped at each durable effect, or failed there with the process alive,
//! with one disk away at the next start and back later. An id is never on two disks, no acknowledged volume is lost,
//! and no deletion is reported that did not happen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Geometry;
use localpool::host::fake::{FakeHost, Fate};
use localpool::pool::{PoolError, WantedUsage};

use crate::node::{MIB, Node, id, request, rule};

const DISKS: [(&str, u64); 2] = [("fake0", 64), ("fake1", 96)];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// How a step under way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Which unsynced data is lost differs from effect to effect.
    PowerCut,
    Killed,
    /// The disks fail for a moment, and the process lives.
    Failed,
}

const ENDS: [End; 3] = [End::PowerCut, End::Killed, End::Failed];

/// The disk that is away at the next start. A stop while all disks stay is tested by the lives with one disk, except if
/// the process lives on.
fn aways(end: End) -> impl Iterator<Item = Option<usize>> {
    let none = (end == End::Failed).then_some(None);
    (0..DISKS.len()).map(Some).chain(none)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create(&'static str),
    Delete(&'static str),
    Work,
}

/// A name is used again after its deletion, then on another disk.
const LIFE: [Step; 10] = [
    Step::Create("a"),
    Step::Create("b"),
    Step::Delete("a"),
    Step::Work,
    Step::Create("c"),
    Step::Delete("b"),
    Step::Work,
    Step::Create("a"),
    Step::Delete("c"),
    Step::Delete("a"),
];

/// The last answer that callers got for each name.
#[derive(Default)]
struct Acknowledged {
    there: BTreeSet<&'static str>,
    gone: BTreeSet<&'static str>,
}

impl Acknowledged {
    fn step(&mut self, node: &Node, step: Step) -> Result<(), PoolError> {
        match step {
            Step::Create(name) => {
                node.pool.create(&request(name, WantedUsage::Block, 5 * MIB))?;
                self.gone.remove(name);
                self.there.insert(name);
            }
            Step::Delete(name) => {
                node.pool.delete(id(name))?;
                self.there.remove(name);
                self.gone.insert(name);
            }
            Step::Work => node.pool.work_until_idle()?,
        }
        Ok(())
    }

    /// A step is under way: nothing is promised about its volume.
    fn begin(&mut self, step: Step) {
        if let Step::Create(name) | Step::Delete(name) = step {
            self.there.remove(name);
            self.gone.remove(name);
        }
    }

    fn assert_kept(&self, node: &Node, at: &str) {
        for name in &self.there {
            let usable = node.pool.usable(id(name));
            assert!(usable.is_ok(), "{at}: acknowledged volume {name} is lost: {usable:?}");
        }
        for name in &self.gone {
            assert!(node.pool.volume(id(name)).is_err(), "{at}: {name} was called deleted, and is back");
        }
    }
}

fn start(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

fn assert_no_twins(node: &Node, at: &str) {
    let views = node.pool.volumes();
    let ids: BTreeSet<_> = views.iter().map(|view| view.id).collect();
    assert_eq!(ids.len(), views.len(), "{at}: an id is on two disks: {views:?}");
    assert!(views.iter().all(|view| view.conflict.is_none()), "{at}: {views:?}");
}

/// While a disk is away, callers come back and ask for everything again, or order everything deleted.
fn come_back(node: &Node, acknowledged: &mut Acknowledged, pending: Step, deletes: bool) {
    let again = NAMES.map(|name| if deletes { Step::Delete(name) } else { Step::Create(name) });
    let first = if deletes { None } else { Some(pending) };
    for step in first.into_iter().chain(again) {
        // A refusal promises nothing, and takes back no promise.
        let _ = acknowledged.step(node, step);
    }
}

/// Lives until the power is cut. Returns the step without an answer, and the next one; `None`: it lived to the end.
fn live(node: &mut Node, host: &FakeHost, acknowledged: &mut Acknowledged) -> Option<(Step, usize)> {
    for (index, step) in LIFE.into_iter().enumerate() {
        // Passes come at any time; the power may be cut in one.
        if node.agent.pass().is_err() || host.power.is_off() {
            return Some((Step::Work, index));
        }
        acknowledged.begin(step);
        if let Err(error) = acknowledged.step(node, step) {
            assert!(host.power.is_off(), "{step:?} failed by itself: {error}");
            return Some((step, index));
        }
        if host.power.is_off() {
            return Some((Step::Work, index + 1));
        }
    }
    None
}

/// Whether its `n`-th effect stopped the life; then this checks everything that must hold.
fn stopped_at(layout: &Layout, end: End, away: Option<usize>, n: u64, fate: Fate) -> bool {
    let deletes = n.is_multiple_of(2);
    let at = format!("{layout:?}, {end:?} after effect {n}, disk {away:?} away, deletes {deletes}");
    let host = Arc::new(FakeHost::default());
    for (name, mib) in DISKS {
        host.add_disk(name, name, Geometry { size: mib * MIB, sector: 512, offloads_zeroes: true });
    }
    let mut node = start(&host, layout);
    node.passes().expect("claims");
    assert_eq!(node.pool.members().len(), DISKS.len(), "{at}: both are claimed");
    let mut acknowledged = Acknowledged::default();
    host.power.cut_after(n);
    let Some((pending, next)) = live(&mut node, &host, &mut acknowledged) else { return false };
    match end {
        End::PowerCut => host.reboot(fate),
        End::Killed | End::Failed => host.restart_process(),
    }
    let platter = away.map(|away| (DISKS[away].0, host.unplug(DISKS[away].0).expect("it was there")));
    if end != End::Failed {
        node = start(&host, layout);
    }
    node.passes().unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_no_twins(&node, &at);
    come_back(&node, &mut acknowledged, pending, deletes);
    assert_no_twins(&node, &at);
    if let Some((name, platter)) = platter {
        host.plug(name, name, platter);
    }
    node.passes().unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_no_twins(&node, &at);
    acknowledged.assert_kept(&node, &at);
    // And the rest of its life continues, as far as there is room.
    for step in LIFE.into_iter().skip(next) {
        node.pool.work_until_idle().unwrap_or_else(|e| panic!("{at}: {e}"));
        acknowledged.begin(step);
        match acknowledged.step(&node, step) {
            Ok(()) | Err(PoolError::NoPlace(_)) => {}
            Err(error) => panic!("{at}: {step:?}: {error}"),
        }
    }
    assert_no_twins(&node, &at);
    acknowledged.assert_kept(&node, &at);
    true
}

fn stop_everywhere(layout: &Layout) {
    for (end, away) in ENDS.into_iter().flat_map(|end| aways(end).map(move |away| (end, away))) {
        let fates = [Fate::Whole, Fate::Torn, Fate::Lost].into_iter().cycle();
        let stopped = (1..).zip(fates).take_while(|(n, fate)| stopped_at(layout, end, away, *n, *fate)).count();
        assert!(stopped > 15, "a life has many effects: {stopped}");
    }
}

#[test]
fn on_carved_disks_that_come_and_go_no_id_is_on_two_of_them_whatever_is_stopped() {
    stop_everywhere(&Layout::Carved {});
}

#[test]
fn on_disks_of_one_slot_that_come_and_go_no_id_is_on_two_of_them_whatever_is_stopped() {
    stop_everywhere(&Layout::Slots { size: None, count: Some(1) });
}

#[test]
fn on_bare_devices_that_come_and_go_no_id_is_on_two_of_them_whatever_is_stopped() {
    stop_everywhere(&Layout::RawDevice {});
}
