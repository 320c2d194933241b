//! Disks that really hang: loop devices on a filesystem that is frozen. Reads are answered, and writes wait until it is
//! thawed.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use localpool_testing::{MIB, eventually, run, text};
use tonic::Code;

use crate::client::{Client, block, create, mount};
use crate::driver::{CARVED, SOON, Start, set};
use crate::lab::{Disk, Lab};

/// How long an answer may take on a busy machine. An operation that waits for the frozen disk takes as long as the
/// freeze.
const AN_ANSWER: Duration = Duration::from_secs(30);
/// How long it may take if the machine is not busy, and for how long a machine is tried with rounds of calls to achieve
/// that: a wait for the frozen disk that is shorter than `AN_ANSWER` would show in each of them.
const PROMISED: Duration = Duration::from_secs(1);
const ROUNDS_FOR: Duration = Duration::from_secs(60);

/// How long a disk hangs, unless a test ends that.
const AT_MOST: Duration = Duration::from_secs(240);

/// A filesystem in a lab that freezes together with the files on it.
struct Freezer(PathBuf);

impl Freezer {
    fn new(lab: &Lab) -> Self {
        let image = lab.image("freezer", 512 * MIB);
        let dir = lab.path("freezer");
        std::fs::create_dir(&dir).unwrap();
        run("mkfs.ext4", &["-q", "-F", text(&image)]);
        run("mount", &["-o", "loop", text(&image), text(&dir)]);
        Self(dir)
    }

    fn disk(&self, lab: &Lab) -> Disk {
        let disk = lab.disk("freezer/sick", 256 * MIB);
        run("fallocate", &["--length", &disk.size().to_string(), text(&disk.image)]);
        disk
    }

    /// Not for ever: a process that waits for a frozen disk cannot even be killed, and a failed test must end.
    fn freeze(&self) {
        run("fsfreeze", &["--freeze", text(&self.0)]);
        let dir = self.0.clone();
        std::thread::spawn(move || {
            std::thread::sleep(AT_MOST);
            let _ = Command::new("fsfreeze").args(["--unfreeze", text(&dir)]).output();
        });
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", text(&self.0)]);
    }
}

async fn in_time<T>(what: &str, call: impl Future<Output = T>) -> T {
    timed(what, call).await.0
}

/// The same, with how long it took.
async fn timed<T>(what: &str, call: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let answer = tokio::time::timeout(AN_ANSWER, call).await;
    (answer.unwrap_or_else(|_| panic!("{what} waits for a disk that it has nothing to do with")), begun.elapsed())
}

/// The slowest answer so far.
#[derive(Default)]
struct Longest(Option<(&'static str, Duration)>);

impl Longest {
    async fn of<T>(&mut self, what: &'static str, call: impl Future<Output = T>) -> T {
        let (answer, took) = timed(what, call).await;
        if self.0.is_none_or(|(_, longest)| took > longest) {
            self.0 = Some((what, took));
        }
        answer
    }
}

/// Everything that an orchestrator asks about a volume on a healthy disk is answered within a second.
async fn assert_served(lab: &Lab, client: &mut Client, id: &str) {
    let mut longest = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < ROUNDS_FOR {
        let Longest(took) = serve(lab, client, id).await;
        let (what, took) = took.expect("calls were made");
        eprintln!("while a disk hangs, the longest answer of a call on other disks took {took:?}: {what}");
        if took < PROMISED {
            return;
        }
        longest.push((what, took));
    }
    panic!("none of the rounds of calls on other disks was answered within {PROMISED:?}: {longest:?}");
}

async fn serve(lab: &Lab, client: &mut Client, id: &str) -> Longest {
    let (staging, target) = (lab.path("staging"), lab.path("target"));
    let ext4 = mount("ext4");
    let mut longest = Longest::default();
    assert!(longest.of("Probe", client.is_ready()).await);
    longest.of("a stage", client.stage(id, &staging, &ext4)).await.unwrap();
    longest.of("a publish", client.publish(id, &staging, &target, &ext4)).await.unwrap();
    longest.of("stats", client.stats(id, &target)).await.unwrap();
    longest.of("a node expansion", client.node_expand(id, &target, 16 * MIB)).await.unwrap();
    longest.of("an unpublish", client.unpublish(id, &target)).await.unwrap();
    longest.of("an unstage", client.unstage(id, &staging)).await.unwrap();
    longest.of("capacity", client.capacity("well", &ext4)).await;
    longest.of("capacity of the disk that hangs", client.capacity("sick", &ext4)).await;
    let made = longest.of("a create", client.create(create(&lab.named("more"), "well", 16 * MIB, &ext4))).await;
    longest.of("an expansion", client.expand(&made.id, 32 * MIB, 0)).await.unwrap();
    longest.of("a look", client.get(&made.id)).await.unwrap();
    longest.of("a delete", client.delete(&made.id)).await.unwrap();
    assert!(!longest.of("a list", client.ids()).await.contains(&made.id));
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_while_a_disk_of_the_pool_hangs_every_call_on_another_disk_answers_and_its_own_end_when_it_does() {
    let lab = crate::lab!(alone);
    let freezer = Freezer::new(&lab);
    let (sick, _well) = (freezer.disk(&lab), lab.disk("well", 256 * MIB));
    let sets = set(&lab, "sick", "freezer/sick.img", CARVED) + &set(&lab, "well", "well.img", CARVED);
    let (driver, mut client) = Start::new(&lab, &sets).ready().await;
    let kept = client.create(create(&lab.named("kept"), "sick", 16 * MIB, &mount("ext4"))).await;
    let well = client.create(create(&lab.named("well"), "well", 16 * MIB, &mount("ext4"))).await;
    client.stage(&kept.id, &lab.path("sick-staging"), &mount("ext4")).await.unwrap();

    freezer.freeze();
    let hanging = create(&lab.named("hanging"), "sick", 16 * MIB, &block());
    let creating = {
        let create = || {
            let (mut client, hanging) = (client.clone(), hanging.clone());
            tokio::spawn(async move { client.try_create(hanging).await })
        };
        // The second one to arrive gets an answer about the first.
        let (mut one, mut other) = (create(), create());
        let (told, creating) = in_time("one of two calls of one name", async {
            tokio::select! { told = &mut one => (told, other), told = &mut other => (told, one) }
        })
        .await;
        assert_eq!(told.unwrap().unwrap_err().code(), Code::Aborted);
        creating
    };
    assert_served(&lab, &mut client, &well.id).await;
    in_time("stats of a volume on the disk that hangs", client.stats(&kept.id, &lab.path("sick-staging")))
        .await
        .unwrap();
    let told = client.expand(&kept.id, 32 * MIB, 0).await.unwrap_err();
    assert_eq!(told.code(), Code::Aborted, "{told:?}");
    assert!(told.message().contains(sick.path()), "{told:?}");

    freezer.thaw();
    // It waited for its own write, or for one that the driver does in the background; then it is asked to retry.
    if let Err(told) = creating.await.unwrap() {
        assert_eq!(told.code(), Code::Aborted, "{told:?}");
    }
    let made = loop {
        match client.try_create(hanging.clone()).await {
            // It did not answer: it takes no new volumes until a checkup has its answer.
            Err(told) if told.code() == Code::Aborted || told.message().contains("it takes no new volumes") => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            made => break made.unwrap(),
        }
    };
    client.unstage(&kept.id, &lab.path("sick-staging")).await.unwrap();
    for id in [&made.id, &kept.id, &well.id] {
        client.delete(id).await.unwrap();
    }
    driver.stop();
    sick.detach();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_disk_of_the_pool_that_hangs_at_the_start_keeps_no_other_waiting_and_joins_when_it_answers() {
    let lab = crate::lab!(alone);
    let freezer = Freezer::new(&lab);
    let (sick, _well) = (freezer.disk(&lab), lab.disk("well", 256 * MIB));
    let sets = set(&lab, "sick", "freezer/sick.img", CARVED) + &set(&lab, "well", "well.img", CARVED);
    let start = Start::new(&lab, &sets);
    let (driver, mut client) = start.ready().await;
    let all = client.capacity("sick", &mount("ext4")).await;
    let kept = client.create(create(&lab.named("kept"), "sick", 16 * MIB, &mount("ext4"))).await;
    let well = client.create(create(&lab.named("well"), "well", 16 * MIB, &mount("ext4"))).await;
    driver.stop();
    // A table that must be repaired: a scan only reads, and opening the disk writes.
    sick.write(sick.size() - 512, &[0; 512]);
    freezer.freeze();

    let (driver, mut client) = start.ready_at_once().await;
    assert!(eventually(SOON, || driver.verdict(&sick.node).1.contains("took more than")));
    assert_served(&lab, &mut client, &well.id).await;
    freezer.thaw();
    driver.await_verdict(&sick.node, "Ours", "1 volume");
    for id in [&kept.id, &well.id] {
        client.delete(id).await.unwrap();
    }
    // If it had been stopped earlier, it might be between the two copies of a table.
    client.await_capacity("sick", &mount("ext4"), all).await;
    driver.stop();
    sick.assert_tables_verify();
    sick.detach();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_a_driver_that_is_killed_while_a_disk_hangs_is_followed_by_one_that_serves_the_others() {
    let lab = crate::lab!(alone);
    let freezer = Freezer::new(&lab);
    let (sick, well_disk) = (freezer.disk(&lab), lab.disk("well", 256 * MIB));
    let sets = set(&lab, "sick", "freezer/sick.img", CARVED) + &set(&lab, "well", "well.img", CARVED);
    let start = Start::new(&lab, &sets);
    let (driver, mut client) = start.ready().await;
    let all = [client.capacity("sick", &mount("ext4")).await, client.capacity("well", &mount("ext4")).await];
    let kept = client.create(create(&lab.named("kept"), "sick", 16 * MIB, &mount("ext4"))).await;
    let well = client.create(create(&lab.named("well"), "well", 16 * MIB, &mount("ext4"))).await;

    freezer.freeze();
    let hanging = {
        let (mut client, request) = (client.clone(), create(&lab.named("hanging"), "sick", 16 * MIB, &block()));
        tokio::spawn(async move { client.try_create(request).await })
    };
    // For longer than a healthy disk takes.
    let hangs = || {
        std::thread::sleep(Duration::from_millis(20));
        driver.waits_in_the_kernel()
    };
    assert!(eventually(SOON, || (0..20).all(|_| hangs())), "nothing of it hangs");
    let killed = driver.kill_in_vain();
    // Nobody closes its connections.
    hanging.abort();

    let (mut driver, mut client) = in_time("the next driver", start.ready_at_once()).await;
    assert!(killed.waits_in_the_kernel(), "the first one has ended");
    assert_served(&lab, &mut client, &well.id).await;
    assert!(
        eventually(SOON, || driver.verdict(&sick.node).1.contains("killed but not ended")),
        "{:?}",
        driver.verdict(&sick.node)
    );
    assert!(driver.is_running());

    freezer.thaw();
    drop(killed);
    driver.await_verdict(&sick.node, "Ours", "1 volume");
    for id in [&kept.id, &well.id] {
        client.delete(id).await.unwrap();
    }
    // If it had been stopped earlier, it might be between the two copies of a table.
    for (class, all) in ["sick", "well"].into_iter().zip(all) {
        client.await_capacity(class, &mount("ext4"), all).await;
    }
    driver.stop();
    for disk in [sick, well_disk] {
        disk.assert_tables_verify();
        disk.detach();
    }
}
