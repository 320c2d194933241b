//! What a node serves while a disk or a filesystem hangs: its calls, its health, its metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use localpool::agent::TargetThread;
use localpool::device::label::Layout;
use localpool::health::Board;
use localpool::host::Host;
use localpool::role::{NodeMetrics, http, node, runtime};
use localpool::rpc::proto::node_client::NodeClient;
use localpool::rpc::proto::{NodeGetInfoRequest, NodeGetVolumeStatsRequest};
use localpool::rpc::{Calls, Readiness, client, server};
use localpool::volume::{
    AccessType, Error, NodeVolumes, PublishRequest, StageRequest, TargetAccess, VolumeId, VolumeLocks,
};
use localpool_testing::free_address;
use tokio_util::sync::CancellationToken;

use crate::hangs::{AT_MOST, delete_that_hangs, two_disks};
use crate::node::{MIB, MOUNT, request};

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
fn a_state_directory_that_hangs_keeps_no_pod_from_its_volume_and_what_is_lost_is_missed_by_the_next_agent() {
    let (host, _disks, node) = two_disks(&Layout::Carved {});
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let process = || {
        let (board, (tell, recalled)) = (Board::default(), mpsc::channel::<()>());
        let (targets, end) = TargetThread::start(Arc::clone(&machine), board.clone(), move || drop(tell));
        recalled.recv().expect_err("it has read what was left");
        let volumes = NodeVolumes::new(Arc::clone(&machine), Arc::clone(&node.pool), VolumeLocks::default());
        (volumes.with_health(board), targets, end)
    };
    let (volumes, targets, end) = process();
    let id = VolumeId::of_name("small");
    let access_type = AccessType::Mount { fs: None, flags: Vec::new() };
    let stage = StageRequest { id, staging: "/staging".to_owned(), access_type: access_type.clone() };
    let publish = |target: &str| PublishRequest {
        id,
        staging: "/staging".to_owned(),
        target: target.to_owned(),
        access_type: access_type.clone(),
        access: TargetAccess::ReadWrite,
        single_target: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        volumes.stage(stage).await.expect("staged");
        host.state.gate.set_hangs_at(Some("store"));
        for target in ["/target", "/second"] {
            let published = tokio::time::timeout(AT_MOST, volumes.publish(publish(target))).await;
            published.expect("an answer").expect("published");
            host.state.gate.until_somebody_waits();
        }
        let unpublished = tokio::time::timeout(AT_MOST, volumes.unpublish(id, "/second")).await;
        unpublished.expect("an answer").expect("unpublished");
    });
    host.state.gate.set_hangs_at(None);
    targets.stop();
    end.join().expect("no bug");

    host.mounts().unmount("/target".as_ref()).expect("unmounted");
    let (volumes, targets, end) = process();
    runtime.block_on(async {
        let lost = volumes.stats(id, "/target").await.expect("it is its target");
        assert_eq!((lost.condition.word(), lost.usage), ("NotMountPoint", None));
        assert!(volumes.stats(id, "/staging").await.is_ok_and(|stats| stats.usage.is_some()));
        assert!(matches!(volumes.stats(id, "/second").await, Err(Error::NotFound(_))));
        volumes.unpublish(id, "/target").await.expect("unpublished");
        assert!(matches!(volumes.stats(id, "/target").await, Err(Error::NotFound(_))));
    });
    targets.stop();
    end.join().expect("no bug");
}

#[test]
fn a_filesystem_that_hangs_costs_one_thread_however_often_it_is_measured() {
    let (host, _disks, node) = two_disks(&Layout::Carved {});
    let machine: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
    let volumes = NodeVolumes::new(machine, Arc::clone(&node.pool), VolumeLocks::default());
    let id = VolumeId::of_name("small");
    let access_type = AccessType::Mount { fs: None, flags: Vec::new() };
    let stage = StageRequest { id, staging: "/staging".to_owned(), access_type: access_type.clone() };
    let publish = PublishRequest {
        id,
        staging: "/staging".to_owned(),
        target: "/target".to_owned(),
        access_type,
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

/// The answer of an HTTP server, with its head; `None` if it does not answer in time. It may have just been started.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let connect = || TcpStream::connect(address);
    let mut stream = localpool_testing::found(AT_MOST, Duration::from_millis(10), connect).ok()?;
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
    let volumes = NodeVolumes::new(Arc::clone(&machine), Arc::clone(&fake.pool), VolumeLocks::default());
    // As the role does it, with the same number of workers.
    let runtime = runtime().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("csi.sock");
    let address = free_address();
    let (metrics, registry) = NodeMetrics::new(&"n".into()).expect("fresh names");
    metrics.watch(&fake.pool, &machine);
    let calls = Calls::new(&registry, "node").expect("fresh names");
    let mut csi = runtime.block_on(async {
        for name in ["small", "large"] {
            let (id, access_type) = (VolumeId::of_name(name), AccessType::Mount { fs: None, flags: Vec::new() });
            volumes.stage(StageRequest { id, staging: format!("/{name}"), access_type }).await.expect("staged");
        }
        let routes = node::services(&calls, Readiness::default(), volumes, 0);
        let listener = server::bind(&socket).expect("bound");
        tokio::spawn(server::serve(listener, routes, std::future::pending()));
        let served = http::serve(address, Readiness::default(), registry, metrics.refresh(), CancellationToken::new());
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
    let output = ["/healthz", "/metrics"].map(|path| get(address, path));

    // Before any assertion: whatever hangs must end with the test, even if that fails.
    host.mounts.gate.set_hangs_at(None);
    sick.set_hangs(false);
    assert_eq!(waiting, workers, "both wait for a disk");
    let [health, metrics] = output.map(|output| output.expect("an answer while a disk hangs"));
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    assert_eq!(answered, Ok(true), "NodeGetInfo waits for a disk");
    for line in [
        "localpool_pool_disks{state=\"ready\",node=\"n\"} 2",
        "localpool_node_rpc_total{code=\"OK\",method=\"NodeGetInfo\",node=\"n\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    deleting.join().expect("no bug").expect("it answers again");
    for measured in measured {
        runtime.block_on(measured).expect("no bug").expect("it answers again");
    }
    let metrics = get(address, "/metrics").expect("an answer");
    assert!(
        metrics.contains("localpool_node_rpc_total{code=\"OK\",method=\"NodeGetVolumeStats\",node=\"n\"} 2"),
        "{metrics}"
    );
    runtime.shutdown_timeout(Duration::from_secs(1));
}
