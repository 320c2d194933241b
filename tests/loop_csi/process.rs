//! The process: how it stops, what it leaves behind, and that only one process is the agent.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use localpool_testing::{MIB, eventually};

use crate::client::{block, create};
use crate::driver::{CARVED, SOON, Start, WHOLE, set};

fn socket(path: &Path) -> (u64, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    assert!(found.file_type().is_socket());
    (found.ino(), found.permissions().mode() & 0o777)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_stop_leaves_the_socket_and_a_start_replaces_it() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 64 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    let own = start.state.join("agent.sock");
    let (driver, mut client) = start.ready().await;
    let made = client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    let before = [socket(&start.socket), socket(&own)];
    assert!(before.iter().all(|(_, mode)| *mode == 0o600), "{before:?}");
    assert_eq!(fs::metadata(&start.state).unwrap().permissions().mode() & 0o777, 0o700);
    driver.stop();
    assert_eq!([socket(&start.socket), socket(&own)], before, "kubelet takes a vanished socket for a vanished driver");
    let (driver, mut client) = start.ready().await;
    let after = [socket(&start.socket), socket(&own)];
    assert!(after.iter().zip(&before).all(|(now, was)| now.0 != was.0 && now.1 == 0o600), "{before:?} {after:?}");
    assert_eq!(client.ids().await, [made.id]);
    driver.kill();
    assert_eq!(socket(&start.socket), after[0]);
    let (_driver, _client) = start.ready().await;
    let dots =
        fs::read_dir(&lab.dir).unwrap().flatten().filter(|entry| entry.file_name().to_str().unwrap().starts_with('.'));
    assert_eq!(dots.count(), 0, "a name to bind aside is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_second_process_waits_and_touches_nothing_until_the_first_is_gone() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 64 * MIB);
    let first = Start::named(&lab, "first", &set(&lab, "fast", "pool.img", CARVED));
    let mut second = Start::named(&lab, "second", &set(&lab, "other", "*.img", WHOLE));
    second.state = first.state.clone();
    let (driver, mut client) = first.ready().await;
    let made = client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    let before = (disk.fingerprint(), disk.writes(), socket(&first.state.join("agent.sock")));
    let mut waiting = second.spawn();
    assert!(eventually(SOON, || second.log().contains("waiting")), "{}", second.log());
    let fresh = lab.disk("fresh", 64 * MIB);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(waiting.is_running() && !second.socket.exists());
    assert_eq!((disk.fingerprint(), disk.writes(), socket(&first.state.join("agent.sock"))), before);
    assert_eq!(fresh.writes(), 0, "the waiting process claimed a disk");
    assert!(client.is_ready().await);
    driver.kill();
    let mut client = waiting.client().await;
    assert_eq!(client.ids().await, [made.id]);
    waiting.await_verdict(&fresh.node, "Ours", "in pool");
    waiting.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_process_that_waits_can_be_stopped() {
    let lab = crate::lab!();
    let first = Start::named(&lab, "first", &set(&lab, "fast", "pool.img", CARVED));
    let mut second = Start::named(&lab, "second", &set(&lab, "fast", "pool.img", CARVED));
    second.state = first.state.clone();
    let (_driver, _client) = first.ready().await;
    let waiting = second.spawn();
    assert!(eventually(SOON, || second.log().contains("waiting")), "{}", second.log());
    waiting.stop();
}
