//! The thread that keeps the pool: uevents, the two-scans clock, a slow resync and requests become passes.
//!
//! Between two of them it sleeps; there is no polling. Requests wait for the pass that is under way.

#![allow(clippy::disallowed_methods, reason = "the thread sleeps by its own clock; no rule is measured by it")]

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::admin::AdminError;
use super::burst::Burst;
use super::inventory::inventory;
use super::reconciler::{PassReport, Reconciler};
use super::verb::Verb;
use crate::claim::Rule;
use crate::host::{DeviceEvent, DeviceEvents, HostError, chain};
use crate::pool::Pool;
use crate::show::ListedDevice;

/// A pass at least this often, in case the kernel reported nothing.
const RESYNC_INTERVAL: Duration = Duration::from_secs(3600);
/// How soon a pass follows one whose scan failed: no event announces when a scan can succeed.
const RESCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Between two passes there is always time for a request.
const PASS_INTERVAL: Duration = Duration::from_millis(1);
/// The most passes without looking for requests in between: two scans, and one of what they changed.
const AT_ONCE: usize = 3;
/// How long an order counts as confirmed. The thread may be busy when it comes.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the listener waits before it looks whether it is still wanted.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The lines to print, or why it was not done.
pub type VerbAnswer = Result<Vec<String>, AdminError>;

/// When somebody who knows said that an order stands.
#[derive(Clone, Copy, Debug)]
pub struct OrderRead {
    at: Instant,
}

impl OrderRead {
    pub fn now() -> Self {
        Self { at: Instant::now() }
    }

    fn is_fresh(self) -> bool {
        self.at.elapsed() <= ORDER_TIMEOUT
    }
}

/// A request to the thread.
enum Request {
    Event(DeviceEvent),
    /// Something changed without an event.
    Pass,
    Inventory(Sender<Vec<ListedDevice>>),
    Verb(Verb, Sender<VerbAnswer>),
    /// Its answer is `None` if the confirmation is too old by now.
    Order(Verb, OrderRead, Sender<Option<VerbAnswer>>),
    Rules(Vec<Rule>),
    Stop,
}

/// A handle to the thread, which `stop` ends: the pool and the events have a way to it as well, and keep it.
#[derive(Clone)]
pub struct AgentHandle {
    requests: Sender<Request>,
}

/// The thread is gone: the process is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the agent is stopping")]
pub struct Stopped;

impl AgentHandle {
    /// Subscribes to events, then starts the thread. `after_pass` is called after each pass.
    pub fn start(
        agent: Reconciler,
        pool: Arc<Pool>,
        events: Option<DeviceEvents>,
        after_pass: impl FnMut(&PassReport) + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        let (requests, inbox) = mpsc::channel();
        if let Some(events) = events {
            let outbox = requests.clone();
            std::thread::spawn(move || listen(&events, &outbox));
        }
        let outbox = requests.clone();
        pool.on_nudge(move || {
            let _ = outbox.send(Request::Pass);
        });
        let thread = std::thread::spawn(move || keep(agent, &pool, &inbox, after_pass));
        (Self { requests }, thread)
    }

    /// Every device of the machine, as the last pass saw it. Blocks.
    pub fn inventory(&self) -> Result<Vec<ListedDevice>, Stopped> {
        self.ask(Request::Inventory)
    }

    /// Does what a person asked, between two passes. Blocks.
    pub fn verb(&self, verb: Verb) -> Result<VerbAnswer, Stopped> {
        self.ask(|reply| Request::Verb(verb, reply))
    }

    /// Does what an object orders, between two passes. `None`: it was not done, as the confirmation has become too old
    /// meanwhile; ask for another one. Blocks.
    pub fn carry_out(&self, order: Verb, confirmed: OrderRead) -> Result<Option<VerbAnswer>, Stopped> {
        self.ask(|reply| Request::Order(order, confirmed, reply))
    }

    /// The sets are others now: the next pass claims by them.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        let _ = self.requests.send(Request::Rules(rules));
    }

    pub fn stop(&self) {
        let _ = self.requests.send(Request::Stop);
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, Stopped> {
        let (reply, answer) = mpsc::channel();
        self.requests.send(request(reply)).map_err(|_| Stopped)?;
        answer.recv().map_err(|_| Stopped)
    }
}

/// Hands events on until nobody takes them.
fn listen(events: &DeviceEvents, outbox: &Sender<Request>) {
    loop {
        match events.next(LISTEN_TIMEOUT) {
            Ok(Some(event)) => {
                if outbox.send(Request::Event(event)).is_err() {
                    return;
                }
            }
            // Time to see whether anybody still listens: an event that says nothing would be a lie, so none is sent.
            Ok(None) => {}
            Err(error) => {
                report(&error);
                if outbox.send(Request::Event(DeviceEvent::Overflow)).is_err() {
                    return;
                }
                std::thread::sleep(LISTEN_TIMEOUT);
            }
        }
    }
}

fn report(error: &HostError) {
    tracing::warn!(error = %chain(error), "device events cannot be read; scanning all devices instead");
}

/// The last pass, and when the next one is due. Requests that come meanwhile do not put that off.
struct LastPass {
    pass: Option<PassReport>,
    due: Instant,
}

impl LastPass {
    fn now(agent: &mut Reconciler, after_pass: &mut dyn FnMut(&PassReport)) -> Self {
        let pass = pass(agent);
        if let Some(pass) = &pass {
            after_pass(pass);
        }
        let wait = match &pass {
            Some(pass) => pass.ripe_in.unwrap_or(RESYNC_INTERVAL),
            None => RESCAN_INTERVAL,
        };
        Self { pass, due: Instant::now() + wait.clamp(PASS_INTERVAL, RESYNC_INTERVAL) }
    }
}

fn keep(mut agent: Reconciler, pool: &Arc<Pool>, inbox: &Receiver<Request>, mut after_pass: impl FnMut(&PassReport)) {
    let mut last = LastPass::now(&mut agent, &mut after_pass);
    loop {
        // Even a queue that is never empty leaves a pass its turn.
        let wait = last.due.saturating_duration_since(Instant::now());
        let request = if wait.is_zero() { Err(RecvTimeoutError::Timeout) } else { inbox.recv_timeout(wait) };
        let stop = match request {
            Ok(request) => serve(&mut agent, pool, inbox, request, &mut last, &mut after_pass),
            Err(RecvTimeoutError::Timeout) => {
                last = LastPass::now(&mut agent, &mut after_pass);
                false
            }
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if stop {
            return pool.stop();
        }
    }
}

/// Serves one request and what arrives with it; true: stop.
fn serve(
    agent: &mut Reconciler,
    pool: &Arc<Pool>,
    inbox: &Receiver<Request>,
    request: Request,
    last: &mut LastPass,
    after_pass: &mut dyn FnMut(&PassReport),
) -> bool {
    let burst = Burst::of_devices(Instant::now());
    let mut next = Some(request);
    let mut is_due = false;
    while let Some(request) = next {
        match request {
            Request::Stop => return true,
            Request::Pass => is_due = true,
            Request::Event(event) => {
                is_due |= match event {
                    DeviceEvent::Changed { name } => agent.event(&name),
                    DeviceEvent::Described { name } => agent.described(&name),
                    DeviceEvent::Reported { controller } => agent.reported(&controller),
                    DeviceEvent::Overflow => agent.events_lost(),
                };
            }
            Request::Inventory(reply) => {
                if std::mem::take(&mut is_due) || last.pass.is_none() {
                    *last = LastPass::now(agent, after_pass);
                }
                let shown = last.pass.as_ref().map(|pass| inventory(pool, pass)).unwrap_or_default();
                let _ = reply.send(shown);
            }
            Request::Rules(rules) => {
                agent.set_rules(rules);
                is_due = true;
            }
            Request::Verb(verb, reply) => {
                let answer = agent.verb(&verb);
                is_due = true;
                let _ = reply.send(answer);
            }
            Request::Order(verb, confirmed, reply) => {
                let answer = confirmed.is_fresh().then(|| agent.verb(&verb));
                // It is tried after each pass: one that waits must not make the next pass due.
                is_due |= answer.as_ref().is_some_and(Result::is_ok);
                let _ = reply.send(answer);
            }
        }
        next = match burst.wait(Instant::now()) {
            None => None,
            Some(wait) if is_due => inbox.recv_timeout(wait).ok(),
            Some(_) => inbox.try_recv().ok(),
        };
    }
    if is_due {
        *last = LastPass::now(agent, after_pass);
    }
    false
}

/// A pass, with those that it makes due at once: with no age to wait for, a second scan makes ripe what the first
/// one saw; and after a claim, another one sees the disk as it is now.
fn pass(agent: &mut Reconciler) -> Option<PassReport> {
    let mut last = None;
    for _ in 0..AT_ONCE {
        match agent.pass() {
            Ok(pass) => {
                let again = pass.ripe_in == Some(Duration::ZERO);
                last = Some(pass);
                if !again {
                    break;
                }
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "the machine's disks could not be read");
                return None;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::agent::{DiskTask, Run};
    use crate::claim::{Filter, MinHealth, sample};
    use crate::device::{DiskId, Owner, VolumeId};
    use crate::host::{Geometry, Health, Host, fake::FakeHost};
    use crate::pool::Workers;

    #[test]
    fn a_report_of_a_controller_makes_a_pass_due_that_asks_its_disks_and_no_other() {
        let host = Arc::new(FakeHost::default());
        let disks = ["nvme0n1", "nvme1n1", "sda"];
        let set_all = |words: &str| {
            disks.iter().for_each(|disk| host.set_health(disk, Health::Failing(words.to_owned())));
        };
        for disk in disks {
            host.add_disk(disk, disk, Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true });
        }
        set_all("old");
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let real = Arc::clone(&host) as Arc<dyn Host>;
        let pool = Arc::new(Pool::open(Arc::clone(&real), owner, Workers::Caller).expect("a pool"));
        let filter = Filter { min_health: Some(MinHealth::NotFailing), ..sample::filter() };
        let rules = vec![Rule { filter, ..sample::rule("set") }];
        let agent = Reconciler::new(real, Arc::clone(&pool), Duration::ZERO, rules);
        let (reports, passes) = mpsc::channel();
        let (agent_handle, thread) = AgentHandle::start(agent, pool, None, move |pass| {
            let rejected = pass.outcomes[0].rejected.iter();
            reports.send(rejected.map(|(disk, why)| format!("{disk} {why}")).collect::<Vec<_>>()).expect("a listener");
        });
        let says = |words: [&str; 3]| {
            let why = |(disk, words)| format!("{disk} its SMART status says that it is failing ({words})");
            disks.into_iter().zip(words).map(why).collect::<Vec<_>>()
        };
        assert_eq!(passes.recv().expect("the first pass"), says(["old"; 3]));

        set_all("new");
        agent_handle
            .requests
            .send(Request::Event(DeviceEvent::Reported { controller: "nvme0".into() }))
            .expect("it runs");
        assert_eq!(passes.recv().expect("a pass"), says(["new", "old", "old"]));
        assert_eq!(host.health_asked(), 4);
        agent_handle.stop();
        thread.join().expect("no bug");
    }

    /// An agent on a machine with one disk, whose passes are counted.
    struct Counted {
        host: Arc<FakeHost>,
        passes: Arc<AtomicU64>,
        agent_handle: AgentHandle,
        thread: JoinHandle<()>,
    }

    fn counted() -> Counted {
        let host = Arc::new(FakeHost::default());
        host.add_disk("sda", "A", Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true });
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let real = Arc::clone(&host) as Arc<dyn Host>;
        let pool = Arc::new(Pool::open(Arc::clone(&real), owner, Workers::Caller).expect("a pool"));
        let agent = Reconciler::new(real, Arc::clone(&pool), Duration::MAX, Vec::new());
        let passes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&passes);
        let (agent_handle, thread) = AgentHandle::start(agent, pool, None, move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        Counted { host, passes, agent_handle, thread }
    }

    #[test]
    fn a_flood_of_events_is_served_by_few_passes_and_requests_have_their_turn() {
        let began = Instant::now();
        let Counted { host, passes, agent_handle, thread } = counted();
        for event in 0..20_000 {
            let event = match event % 4 {
                0 => DeviceEvent::Changed { name: format!("sd{event}").into() },
                1 => DeviceEvent::Described { name: "sda".into() },
                2 => DeviceEvent::Reported { controller: "nvme0".into() },
                _ => DeviceEvent::Overflow,
            };
            agent_handle.requests.send(Request::Event(event)).expect("it runs");
        }
        host.add_disk("sdb", "B", Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true });
        let names: Vec<_> =
            agent_handle.inventory().expect("it runs").into_iter().map(|shown| shown.device.raw.name).collect();
        assert_eq!(names, ["sda", "sdb"]);
        agent_handle.stop();
        thread.join().expect("no bug");
        // One at first, and then at most one in each time of settling, with the scans that it makes due.
        let most = (2 + began.elapsed().as_secs()).saturating_mul(u64::try_from(AT_ONCE).expect("a few"));
        assert!(passes.load(Ordering::SeqCst) <= most, "{passes:?} passes");
    }

    /// Asks again if the thread was so busy that the confirmation was too old.
    fn carried_out(agent_handle: &AgentHandle, order: &Verb) -> VerbAnswer {
        let mut answers = (0..50).map(|_| agent_handle.carry_out(order.clone(), OrderRead::now()).expect("it runs"));
        answers.find_map(|answer| answer).expect("one of these was asked for just now")
    }

    #[test]
    fn an_order_that_waits_makes_no_pass_due_which_would_try_it_again_at_once() {
        let Counted { host: _, passes, agent_handle, thread } = counted();
        agent_handle.inventory().expect("it runs");
        let before = passes.load(Ordering::SeqCst);
        let disk = DiskId::named("gpt-elsewhere");
        let of_disk = [DiskTask::Adopt, DiskTask::Release, DiskTask::GiveUp].map(|task| {
            let disk = disk.clone();
            Verb::Order { disk, task }
        });
        let volume = VolumeId::from_u128(1);
        let of_volume = Verb::SettleVolume { volume, keep: disk.to_string(), run: Run::Real };
        for order in of_disk.into_iter().chain([of_volume]) {
            let answer = carried_out(&agent_handle, &order);
            answer.expect_err("there is no such disk");
            // It looks first if a pass is due.
            agent_handle.inventory().expect("it runs");
        }
        assert_eq!(passes.load(Ordering::SeqCst), before);
        agent_handle.stop();
        thread.join().expect("no bug");
    }

    #[test]
    fn an_order_that_was_confirmed_too_long_ago_is_not_carried_out() {
        let Counted { host: _, passes: _, agent_handle, thread } = counted();
        let order = || Verb::SetAsideJournal { run: Run::Dry };
        let at = Instant::now().checked_sub(ORDER_TIMEOUT * 2).expect("the machine is up for longer");
        assert!(agent_handle.carry_out(order(), OrderRead { at }).expect("it runs").is_none());
        drop(carried_out(&agent_handle, &order()));
        agent_handle.stop();
        thread.join().expect("no bug");
    }
}
