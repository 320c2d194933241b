//! Calls that are repeated, all at once, or whose caller has gone: one volume in the end, and the same answer.

use std::collections::BTreeSet;
use std::time::Duration;

use localpool::rpc::proto::volume_capability::access_mode::Mode;
use localpool::rpc::proto::volume_capability::{AccessType, MountVolume};
use localpool_testing::{GIB, MIB, run};
use tonic::{Code, Status};

use crate::client::{Made, assert_refused, block, capability, create, mount, of_kind, publish};
use crate::driver::{CARVED, SOON, Start, WHOLE, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_every_call_may_be_made_twice() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 256 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    for fs in [None, Some("ext4")] {
        let capability = of_kind(fs);
        let (staging, target) = (lab.path("staging"), lab.path("target"));
        let wanted = create(&lab.named("pvc-1"), "fast", 20 * MIB, &capability);
        let made = client.create(wanted.clone()).await;
        assert_eq!(client.create(wanted.clone()).await, made);
        let larger = client.try_create(create(&lab.named("pvc-1"), "fast", 21 * MIB, &capability)).await;
        assert_refused(larger, Code::AlreadyExists, &[&lab.named("pvc-1"), &made.size.to_string()]);
        let other_use = if fs.is_none() { mount("ext4") } else { block() };
        let other = client.try_create(create(&lab.named("pvc-1"), "fast", 20 * MIB, &other_use)).await;
        assert_refused(other, Code::AlreadyExists, &[&lab.named("pvc-1")]);
        for _ in 0..2 {
            client.stage(&made.id, &staging, &capability).await.unwrap();
        }
        for _ in 0..2 {
            client.publish(&made.id, &staging, &target, &capability).await.unwrap();
        }
        let mut read_only = publish(&made.id, &staging, &target, &capability);
        read_only.readonly = true;
        let changed = client.node.node_publish_volume(read_only).await;
        assert_refused(changed, Code::AlreadyExists, &["readonly"]);
        let in_use = client.delete(&made.id).await;
        assert_refused(in_use, Code::FailedPrecondition, &[&made.id, "in use"]);
        for _ in 0..2 {
            client.unpublish(&made.id, &target).await.unwrap();
        }
        for _ in 0..2 {
            client.unstage(&made.id, &staging).await.unwrap();
        }
        for _ in 0..2 {
            client.delete(&made.id).await.unwrap();
        }
        assert_refused(client.stage(&made.id, &staging, &capability).await, Code::NotFound, &[&made.id]);
        assert_refused(client.get(&made.id).await, Code::NotFound, &[&made.id]);
        let again = retry(async || client.clone().try_create(wanted.clone()).await).await;
        assert_eq!(again, made, "a name has one id for ever");
        client.delete(&made.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_sixteen_creates_at_once_make_sixteen_volumes_that_share_no_byte() {
    let lab = crate::lab!();
    let disks = [lab.disk("pool-1", 200 * MIB), lab.disk("pool-2", 200 * MIB)];
    let (driver, client) = Start::new(&lab, &set(&lab, "fast", "pool-*.img", CARVED)).ready().await;
    let calls = (0..16).map(|n| {
        let (mut client, wanted) =
            (client.clone(), create(&lab.named(&format!("pvc-{n}")), "fast", 20 * MIB, &block()));
        tokio::spawn(async move { client.try_create(wanted).await })
    });
    let mut ids = BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        let made = call.await.unwrap().unwrap();
        assert!(ids.insert(made.id), "two names, one volume");
    }
    assert_eq!(client.clone().ids().await.into_iter().collect::<BTreeSet<_>>(), ids);
    driver.stop();
    let volumes = disks.iter().map(|disk| {
        // sgdisk also looks for overlaps.
        disk.assert_tables_verify();
        run("sgdisk", &["--print", disk.path()]).matches("20.0 MiB").count()
    });
    assert_eq!(volumes.sum::<usize>(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_name_that_many_ask_for_at_once_is_one_volume() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 200 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    let wanted = create(&lab.named("pvc-1"), "fast", 20 * MIB, &block());
    let calls = (0..16).map(|_| {
        let (mut client, wanted) = (client.clone(), wanted.clone());
        tokio::spawn(async move { client.try_create(wanted).await })
    });
    let mut made: Vec<Made> = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(volume) => made.push(volume),
            Err(status) => assert_refused(Err::<(), _>(status), Code::Aborted, &["try again"]),
        }
    }
    assert!(!made.is_empty(), "one of them must win");
    assert!(made.iter().all(|volume| *volume == made[0]), "{made:?}");
    assert_eq!(client.ids().await, [made[0].id.clone()]);
    let room = client.capacity("fast", &block()).await.0;
    assert!(room > 170 * MIB, "{room} bytes are left of 200 MiB less one volume");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_stage_whose_caller_went_away_during_mkfs_goes_on_and_a_later_one_finds_it_done() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 8 * GIB);
    let (driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE)).ready().await;
    let capability = mount("ext4");
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let made = client.create(create(&lab.named("pvc-1"), "fast", GIB, &capability)).await;
    let mkfs = driver.trap("mkfs.ext4");
    let call = {
        let (mut client, id, staging, capability) =
            (client.clone(), made.id.clone(), staging.clone(), capability.clone());
        tokio::spawn(async move { client.stage(&id, &staging, &capability).await })
    };
    let mkfs = mkfs.caught().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // A repeated call is asked to retry; so is a call to delete it.
    for _ in 0..3 {
        assert_refused(client.stage(&made.id, &staging, &capability).await, Code::Aborted, &[&made.id]);
        assert_refused(client.delete(&made.id).await, Code::Aborted, &[&made.id]);
    }
    assert!(client.is_ready().await, "others are served");
    mkfs.resume();
    retry(async || client.clone().stage(&made.id, &staging, &capability).await).await;
    let uuid = run("blkid", &["-p", "-s", "UUID", "-o", "value", &format!("{}p2", disk.path())]);
    assert_eq!(uuid.trim(), made.id, "the filesystem's UUID is the volume's id");
    client.publish(&made.id, &staging, &target, &capability).await.unwrap();
    std::fs::write(target.join("file"), "data").unwrap();
    client.unpublish(&made.id, &target).await.unwrap();
    client.unstage(&made.id, &staging).await.unwrap();
    client.delete(&made.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_volume_for_one_pod_is_refused_a_second_target_and_one_for_many_is_not() {
    let lab = crate::lab!();
    let _disk = lab.disk("pool", 256 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    let one_pod = capability(Mode::SingleNodeSingleWriter, AccessType::Mount(MountVolume::default()));
    let one_pod_block = capability(Mode::SingleNodeSingleWriter, block().access_type.unwrap());
    for (name, once, many) in [("m", one_pod, mount("")), ("b", one_pod_block, block())] {
        let made = client.create(create(&lab.named(name), "fast", 20 * MIB, &once)).await;
        let path = |end: &str| lab.path(&format!("{name}-{end}"));
        client.stage(&made.id, &path("staging"), &once).await.unwrap();
        client.publish(&made.id, &path("staging"), &path("1"), &once).await.unwrap();
        client.publish(&made.id, &path("staging"), &path("1"), &once).await.unwrap();
        let second = client.publish(&made.id, &path("staging"), &path("2"), &once).await;
        let first = path("1");
        assert_refused(second, Code::FailedPrecondition, &[first.to_str().unwrap()]);
        assert!(!path("2").exists(), "nothing is left of what was refused");
        client.publish(&made.id, &path("staging"), &path("2"), &many).await.unwrap();
    }
}

/// Repeats a call as an orchestrator does, as long as it is asked to retry.
pub async fn retry<T>(call: impl AsyncFn() -> Result<T, Status>) -> T {
    let until = tokio::time::Instant::now() + SOON;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(status) if status.code() == Code::Aborted && tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
}
