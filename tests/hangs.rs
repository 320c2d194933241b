//! Disks of the pool that hang under an operation, on a fake machine: nothing else waits for them.

mod fake_node;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fake_node::{MIB, Node, id, request, rule};
use localpool::agent::{Run, Verb};
use localpool::csi::proto::node_client::NodeClient;
use localpool::csi::proto::{NodeGetInfoRequest, NodeGetVolumeStatsRequest};
use localpool::csi::{Calls, Readiness, client, server};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Geometry, Host};
use localpool::pool::{Change, Pool, PoolError, Selector, WantedUsage};
use localpool::role::metrics::NodeMetrics;
use localpool::role::{http, node, runtime};
use localpool::volume::{
    AccessType, Error, NodeVolumes, PublishRequest, StageRequest, TargetAccess, VolumeId, VolumeLocks,
};

const MOUNT: WantedUsage = WantedUsage::Mount(Some(FsKind::Ext4));
/// Far longer than an answer takes on a busy machine; an operation that hangs takes for ever.
const AT_MOST: Duration = Duration::from_secs(60);

/// Two disks with a volume each: `small` on the disk that is chosen first, and `large` on the other one.
fn two_disks(layout: &Layout) -> (Arc<FakeHost>, [Arc<Platter>; 2], Node) {
    let host = Arc::new(FakeHost::default());
    let disk = |name, mib| host.add_disk(name, name, Geometry { size: mib * MIB, sector: 512, offloads_zeroes: true });
    let disks = [disk("fake0", 64), disk("fake1", 256)];
    let mut node = Node::start(&host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    node.pool.create(&request("small", MOUNT, 16 * MIB)).expect("room");
    node.pool.create(&request("large", MOUNT, 100 * MIB)).expect("room");
    for (volume, disk) in [("small", "fake0"), ("large", "fake1")] {
        let node = node.pool.volume(id(volume)).expect("it was made").node;
        assert!(node.to_string_lossy().contains(disk), "{volume} is at {}", node.display());
    }
    (host, disks, node)
}

/// An operation that does not answer in time hangs.
fn answers<T: Send + 'static>(what: &str, pool: &Arc<Pool>, call: impl FnOnce(&Pool) -> T + Send + 'static) -> T {
    let (reply, answer) = mpsc::channel();
    let pool = Arc::clone(pool);
    thread::spawn(move || reply.send(call(&pool)));
    answer.recv_timeout(AT_MOST).unwrap_or_else(|_| panic!("{what} waits for a disk that it has nothing to do with"))
}

/// Begins to delete a volume on a disk that hangs.
fn delete_that_hangs(node: &Node, disk: &Platter, volume: &str) -> JoinHandle<Result<Change, PoolError>> {
    disk.set_hangs(true);
    let (pool, id) = (Arc::clone(&node.pool), id(volume));
    let deleting = thread::spawn(move || pool.delete(id));
    disk.until_somebody_waits();
    deleting
}

#[test]
fn a_disk_that_hangs_in_an_operation_keeps_nothing_of_the_other_disks_from_answering() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let (_host, [sick, _well], node) = two_disks(&layout);
        let deleting = delete_that_hangs(&node, &sick, "small");
        let pool = &node.pool;
        let large = id("large");
        assert_eq!(answers("a list", pool, |pool| pool.volumes().len()), 2, "{layout:?}");
        assert_eq!(answers("a list of disks", pool, |pool| pool.disk_views().len()), 2);
        assert!(answers("a look", pool, move |pool| pool.usable(large).is_ok()));
        let capacity = answers("capacity", pool, |pool| pool.capacity(&Selector::default(), MOUNT));
        assert_eq!(capacity.available > 0, layout == Layout::Carved {});
        answers("a mark", pool, move |pool| pool.mark_formatted(large)).expect("a healthy disk");
        answers("an expansion", pool, move |pool| pool.expand(large, 100 * MIB, None)).expect("a healthy disk");
        let repeated = answers("a repeated create", pool, |pool| pool.create(&request("large", MOUNT, 100 * MIB)));
        assert_eq!(repeated.expect("a healthy disk").1, Change::AlreadySo);
        answers("a delete", pool, move |pool| pool.delete(large)).expect("a healthy disk");

        sick.set_hangs(false);
        deleting.join().expect("no bug").expect("it answers again");
        assert!(pool.volumes().is_empty());
    }
}

#[test]
fn a_new_volume_goes_past_a_disk_that_hangs_to_one_that_answers() {
    let (_host, [sick, _well], node) = two_disks(&Layout::Carved {});
    let deleting = delete_that_hangs(&node, &sick, "small");
    // The disk that hangs is chosen first, as it is the smallest with enough room.
    let made = answers("a create", &node.pool, |pool| pool.create(&request("new", MOUNT, 16 * MIB)));
    let (view, _) = made.expect("another disk serves");
    assert!(view.node.to_string_lossy().contains("fake1"), "{}", view.node.display());
    sick.set_hangs(false);
    deleting.join().expect("no bug").expect("it answers again");
}

#[test]
fn who_wants_a_disk_that_hangs_is_told_to_come_back_and_which_disk_it_is() {
    for (layout, words) in [(Layout::Carved {}, "/dev/fake0"), (Layout::RawDevice {}, "/dev/fake0")] {
        let (_host, [sick, _well], node) = two_disks(&layout);
        let deleting = delete_that_hangs(&node, &sick, "small");
        let small = id("small");
        let error = answers("a second delete", &node.pool, move |pool| pool.delete(small)).expect_err("it hangs");
        assert!(error.is_locked(), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("has been under way for 1"), "{error}");
        sick.set_hangs(false);
        deleting.join().expect("no bug").expect("it answers again");
        assert_eq!(node.pool.delete(small).expect("it is gone"), Change::AlreadySo);
    }
}

/// Volume `small` is on both disks: it was made again while the first disk was away and the journal lost.
fn in_conflict() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let (host, [_small, large], node) = two_disks(&Layout::Carved {});
    let platter = host.unplug("fake0").expect("it was there");
    drop(node);
    host.state.lose();
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
    node.passes().expect("looks");
    node.pool.create(&request("small", MOUNT, 16 * MIB)).expect("nobody knows better");
    host.plug("fake0", "fake0", platter);
    node.passes().expect("looks");
    assert!(matches!(node.pool.usable(id("small")), Err(PoolError::Conflict { .. })));
    (host, large, node)
}

fn settle(keep: &str) -> Verb {
    Verb::SettleVolume { volume: id("small"), keep: keep.to_owned(), run: Run::Real }
}

#[test]
fn a_conflict_on_a_disk_that_hangs_is_not_settled_and_keeps_no_pass_waiting() {
    let (_host, large, node) = in_conflict();
    large.set_hangs_at(Some("sync"));
    let settle = settle("/dev/fake0");
    let (reply, answer) = mpsc::channel();
    let asked = settle.clone();
    let asking = thread::spawn(move || {
        let mut node = node;
        let _ = reply.send(node.agent.verb(&asked).map_err(|error| error.to_string()));
        node
    });
    let refused = answer.recv_timeout(AT_MOST).expect("the agent answers though the disk does not");
    let refused = refused.expect_err("it is not done yet");
    assert!(refused.contains("has not answered yet"), "{refused}");
    large.set_hangs_at(None);
    let mut node = asking.join().expect("no bug");
    // It continues in the background, and a repeated call finds it done or does it.
    let (told, kept) = (AT_MOST, id("small"));
    let deadline = std::time::Instant::now() + told;
    while node.pool.usable(kept).is_err() {
        assert!(std::time::Instant::now() < deadline, "it was never settled");
        let _ = node.agent.verb(&settle);
        node.passes().expect("looks");
    }
    assert!(node.pool.usable(kept).expect("usable").node.starts_with("/dev/fake0p2"));
}

#[test]
fn a_conflict_that_is_being_settled_is_not_settled_the_other_way_meanwhile() {
    let (_host, large, mut node) = in_conflict();
    large.set_hangs_at(Some("sync"));
    node.agent.verb(&settle("/dev/fake0")).expect_err("it hangs");
    let second = node.agent.verb(&settle("/dev/fake1")).map_err(|error| error.to_string());
    large.set_hangs_at(None);
    node.pool.labelled_disks().iter().for_each(|disk| drop(disk.lock()));
    node.passes().expect("looks");
    assert!(node.pool.volume(id("small")).is_ok(), "{second:?}: on no disk: {:?}", node.pool.volumes());
}

#[test]
fn a_measurement_of_a_volume_never_stops_what_runs_beside_it() {
    let (host, [sick, _well], node) = two_disks(&Layout::Carved {});
    let deleting = delete_that_hangs(&node, &sick, "small");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, Arc::clone(&node.pool), VolumeLocks::default());
    runtime.block_on(async {
        for name in ["small", "large"] {
            let id = VolumeId::of_name(name);
            let stats = tokio::time::timeout(AT_MOST, volumes.stats(id, "/not/there")).await;
            assert!(stats.expect("an answer").is_err(), "{name} is not published there");
            let grown = tokio::time::timeout(AT_MOST, volumes.expand(id, "/not/there", 1)).await;
            assert!(grown.expect("an answer").is_err(), "{name} is not published there");
        }
    });
    sick.set_hangs(false);
    deleting.join().expect("no bug").expect("it answers again");
}

#[test]
fn while_the_state_directory_hangs_all_that_only_reads_answers() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let (host, _disks, node) = two_disks(&layout);
        host.add_disk("fake2", "fake2", Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
        let mut node = node;
        node.passes().expect("claims");
        host.state.gate.set_hangs_at(Some("store"));
        let pool = Arc::clone(&node.pool);
        let creating = thread::spawn(move || pool.create(&request("new", MOUNT, 16 * MIB)).map(drop));
        host.state.gate.until_somebody_waits();
        let (pool, large) = (&node.pool, id("large"));
        assert_eq!(answers("a list", pool, |pool| pool.volumes().len()), 2, "{layout:?}");
        assert_eq!(answers("a list of disks", pool, |pool| pool.disk_views().len()), 3);
        assert!(answers("a look", pool, move |pool| pool.usable(large).is_ok()));
        assert!(answers("capacity", pool, |pool| pool.capacity(&Selector::default(), MOUNT)).available > 0);
        assert!(answers("a look for what is nowhere", pool, |pool| pool.usable(id("nowhere")).is_err()));
        host.state.gate.set_hangs_at(None);
        creating.join().expect("no bug").expect("it answers again");
        assert_eq!(node.pool.volumes().len(), 3);
    }
}

#[test]
fn a_filesystem_that_hangs_costs_one_thread_however_often_it_is_measured() {
    let (host, _disks, node) = two_disks(&Layout::Carved {});
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, Arc::clone(&node.pool), VolumeLocks::default());
    let id = VolumeId::of_name("small");
    let wish = AccessType::Mount { fs: None, flags: Vec::new() };
    let stage = StageRequest { id, staging: "/staging".to_owned(), wish: wish.clone() };
    let publish = PublishRequest {
        id,
        staging: "/staging".to_owned(),
        target: "/target".to_owned(),
        wish,
        access: TargetAccess::ReadWrite,
        single_target: false,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        volumes.stage(stage).await.expect("staged");
        volumes.publish(publish).await.expect("published");
        host.mounts.gate.set_hangs_at(Some("usage"));
        let measure = || {
            let volumes = volumes.clone();
            tokio::spawn(async move { volumes.stats(id, "/target").await })
        };
        let first = measure();
        let gate = Arc::clone(&host);
        tokio::task::spawn_blocking(move || gate.mounts.gate.until_somebody_waits()).await.expect("no bug");
        let others = [measure(), measure()];
        for other in others {
            let told = other.await.expect("no bug").expect_err("it hangs");
            assert!(matches!(told, Error::Aborted(_)) && told.to_string().contains("has not ended"), "{told}");
        }
        assert_eq!(host.mounts.gate.waiting(), 1, "one thread waits");
        host.mounts.gate.set_hangs_at(None);
        first.await.expect("no bug").expect("it answers again");
        measure().await.expect("no bug").expect("and is measured again");
    });
}

/// The answer of an HTTP server, with its head; `None` if it does not answer in time.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(AT_MOST)).expect("a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn while_a_disk_hangs_the_health_and_the_metrics_of_a_node_answer_and_all_of_its_calls_are_counted() {
    let (host, [sick, _well], fake) = two_disks(&Layout::Carved {});
    fake.pool.create(&request("gone", MOUNT, 16 * MIB)).expect("room");
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, Arc::clone(&fake.pool), VolumeLocks::default());
    // As the role does it, with the same number of workers.
    let runtime = runtime().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("csi.sock");
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let (metrics, registry) = NodeMetrics::new().expect("fresh names");
    metrics.watch(&fake.pool);
    let calls = Calls::new(&registry, "node").expect("fresh names");
    let mut csi = runtime.block_on(async {
        for name in ["small", "large"] {
            let (id, wish) = (VolumeId::of_name(name), AccessType::Mount { fs: None, flags: Vec::new() });
            volumes.stage(StageRequest { id, staging: format!("/{name}"), wish }).await.expect("staged");
        }
        let routes = node::services(&calls, Readiness::default(), volumes, 0);
        let listener = server::bind(&socket).expect("bound");
        tokio::spawn(server::serve(listener, routes, std::future::pending()));
        let served = http::serve(address, Readiness::default(), registry, metrics.refresh(), std::future::pending());
        tokio::spawn(served);
        NodeClient::new(client::connect(&socket).await.expect("connected"))
    });
    let deleting = delete_that_hangs(&fake, &sick, "gone");
    host.mounts.gate.set_hangs_at(Some("usage"));
    // As many calls as there are workers.
    let workers = 2;
    let measured = ["small", "large"].map(|name| {
        let mut csi = csi.clone();
        let (volume_id, volume_path) = (VolumeId::of_name(name).to_string(), format!("/{name}"));
        let request = NodeGetVolumeStatsRequest { volume_id, volume_path, ..NodeGetVolumeStatsRequest::default() };
        runtime.spawn(async move { csi.node_get_volume_stats(request).await })
    });
    host.mounts.gate.until_somebody_waits();
    let deadline = std::time::Instant::now() + AT_MOST;
    while host.mounts.gate.waiting() < workers && std::time::Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let waiting = host.mounts.gate.waiting();
    let (answer, answered) = mpsc::channel();
    runtime.spawn(async move { answer.send(csi.node_get_info(NodeGetInfoRequest {}).await.is_ok()) });
    let answered = answered.recv_timeout(AT_MOST);
    let said = ["/healthz", "/metrics"].map(|path| get(address, path));

    // Before any assertion: whatever hangs must end with the test, even if that fails.
    host.mounts.gate.set_hangs_at(None);
    sick.set_hangs(false);
    assert_eq!(waiting, workers, "both wait for a disk");
    let [health, metrics] = said.map(|said| said.expect("an answer while a disk hangs"));
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    assert_eq!(answered, Ok(true), "NodeGetInfo waits for a disk");
    for line in
        ["localpool_pool_disks{state=\"ready\"} 2", "localpool_node_rpc_total{code=\"OK\",method=\"NodeGetInfo\"} 1"]
    {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    deleting.join().expect("no bug").expect("it answers again");
    for measured in measured {
        runtime.block_on(measured).expect("no bug").expect("it answers again");
    }
    let metrics = get(address, "/metrics").expect("an answer");
    assert!(metrics.contains("localpool_node_rpc_total{code=\"OK\",method=\"NodeGetVolumeStats\"} 2"), "{metrics}");
    runtime.shutdown_timeout(Duration::from_secs(1));
}
