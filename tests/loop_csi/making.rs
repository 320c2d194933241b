//! mkfs that hangs, fails, or outlives its driver: the bit on the disk says whether it ever finished.

use std::fs;
use std::time::Duration;

use localpool_testing::{GIB, eventually, run};
use tonic::Code;

use crate::client::{assert_refused, create, mount};
use crate::driver::{SOON, Start, WHOLE, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_an_mkfs_that_fails_says_so_and_the_next_stage_makes_the_filesystem() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 8 * GIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE)).ready().await;
    let staging = lab.path("staging");
    let made = client.create(create(&lab.named("pvc-1"), "fast", GIB, &mount("xfs"))).await;
    let mkfs = driver.trap("mkfs.xfs");
    let call = client.begin_staging(&made.id, &staging, mount("xfs"));
    mkfs.caught().await.kill();
    assert_refused(call.await.unwrap(), Code::Internal, &["make the filesystem", "mkfs.xfs", "SIGKILL"]);
    assert!(client.is_ready().await);
    client.stage(&made.id, &staging, &mount("xfs")).await.unwrap();
    fs::write(staging.join("file"), "data").unwrap();
}

/// If it was left behind, it would open the device later: when it has data, or another tenant's.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_an_mkfs_ends_with_its_driver_and_the_next_driver_makes_the_filesystem() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 8 * GIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE));
    let (driver, mut client) = start.ready().await;
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", GIB, &mount("ext4"))).await;
    let mkfs = driver.trap("mkfs.ext4");
    let call = client.begin_staging(&made.id, &staging, mount("ext4"));
    let mkfs = mkfs.caught().await;
    driver.kill();
    assert!(call.await.unwrap().is_err());
    assert!(eventually(SOON, || mkfs.is_gone()), "mkfs goes on without its driver");
    let (_driver, mut client) = start.ready().await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    client.publish(&made.id, &staging, &target, &mount("ext4")).await.unwrap();
    fs::write(target.join("file"), "data").unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    run("e2fsck", &["-f", "-n", &format!("{}p2", disk.path())]);
}

/// The label says that the filesystem was made. Without it, some of the data is lost; mkfs would lose the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_filesystem_that_is_gone_or_is_another_one_is_not_made_again() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 8 * GIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE)).ready().await;
    let staging = lab.path("staging");
    let made = client.create(create(&lab.named("pvc-1"), "fast", GIB, &mount("ext4"))).await;
    client.stage(&made.id, &staging, &mount("ext4")).await.unwrap();
    fs::write(staging.join("file"), "data").unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    let volume = format!("{}p2", disk.path());
    for (program, options, found) in [
        ("wipefs", &["--quiet", "--all"][..], "no filesystem is there now"),
        ("mkfs.xfs", &["-q"], "xfs is there now"),
        ("mkfs.ext4", &["-q", "-F"], "ext4 is there now (UUID "),
    ] {
        run(program, &[options, &[volume.as_str()]].concat());
        let before = disk.fingerprint();
        let refused = client.stage(&made.id, &staging, &mount("ext4")).await;
        assert_refused(refused, Code::FailedPrecondition, &["was formatted with ext4", found, "it is not touched"]);
        assert_eq!(disk.fingerprint(), before, "{program}: something was written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_stop_waits_for_the_call_that_is_under_way() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 8 * GIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE));
    let (mut driver, mut client) = start.ready().await;
    let staging = lab.path("staging");
    let made = client.create(create(&lab.named("pvc-1"), "fast", GIB, &mount("ext4"))).await;
    let mkfs = driver.trap("mkfs.ext4");
    let call = client.begin_staging(&made.id, &staging, mount("ext4"));
    let mkfs = mkfs.caught().await;
    driver.terminate();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(driver.is_running() && !call.is_finished());
    mkfs.resume();
    call.await.unwrap().unwrap();
    assert_eq!(driver.end().code(), Some(0), "{}", start.log());
    fs::write(staging.join("file"), "data").unwrap();
}
