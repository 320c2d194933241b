//! Starts on files, sockets and directories that are not what they should be: the driver says so, and touches nothing.

use std::fs;
use std::path::Path;

use localpool_testing::{MIB, eventually, text};

use crate::client::{block, create};
use crate::driver::{CARVED, SOON, Start, WHOLE, set};
use crate::lab::{Disk, Lab};

/// The driver must refuse to start with all these words, and leave the disk as it is.
fn assert_refuses_to_start(start: &Start, disk: &Disk, words: &[&str]) {
    let before = (disk.fingerprint(), disk.writes());
    let status = start.spawn().end();
    let log = start.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(words.iter().all(|word| log.contains(word)), "{words:?} not in: {log}");
    assert_eq!((disk.fingerprint(), disk.writes()), before, "a driver that refused to start wrote to a disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_bad_document_among_the_sets_stops_only_itself_and_is_named() {
    let lab = crate::lab!();
    let names = ["first", "yaml", "field", "twice", "huge", "last"];
    let disks = names.map(|name| lab.disk(name, 16 * MIB));
    let good = |name: &str| set(&lab, name, &format!("{name}.img"), WHOLE);
    let sets = [
        good("first"),
        "---\nmetadata: [not: closed\n".to_owned(),
        good("yaml").replace("kind: LocalVolumeSet", "kind: LocalVolumeSet\n\tbroken: yes"),
        good("field").replace("storageClassName", "storageClasName"),
        good("twice"),
        good("twice").replace("twice.img", "twice*.img"),
        good("huge").replace("minSize: '0'", "minSize: 99999999999999999999Ei"),
        good("last"),
    ];
    let start = Start::new(&lab, &sets.concat());
    let (driver, mut client) = start.ready().await;
    for (name, disk) in names.iter().zip(&disks) {
        let valid = ["first", "twice", "last"].contains(name);
        if valid {
            driver.await_verdict(&disk.node, "Ours", "in pool");
            client.create(create(&lab.named(name), name, MIB, &block())).await;
        } else {
            let (verdict, reason) = driver.verdict(&disk.node);
            assert_eq!(verdict, "Unclaimed", "{name}: {reason}");
            assert_eq!(disk.writes(), 0, "{name}: a disk of an invalid set was written");
        }
    }
    let log = start.log();
    for message in [
        "document 2",
        "document 3",
        "storageClasName: unknown field; did you mean storageClassName?",
        "document 5 has this namespace and name already",
        "minSize",
        "document 7",
    ] {
        assert!(log.contains(message), "{message:?} not in: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_file_of_sets_that_is_missing_or_a_directory_stops_the_start() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 16 * MIB);
    let mut start = Start::new(&lab, "");
    for sets in [lab.path("nowhere.yaml"), lab.dir.clone()] {
        start.sets = sets;
        assert_refuses_to_start(&start, &disk, &[text(&start.sets), "--sets"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_socket_path_that_is_no_socket_stops_the_start_and_stays_as_it_is() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 16 * MIB);
    let mut start = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE));
    let (directory, file) = (lab.path("directory"), lab.path("file"));
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "precious").unwrap();
    let long = lab.path(&"s".repeat(120));
    for (path, message) in [(&directory, "not a socket"), (&file, "not a socket"), (&long, "too long")] {
        start.socket = path.clone();
        assert_refuses_to_start(&start, &disk, &[text(path), message]);
    }
    assert!(directory.is_dir());
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_journal_cut_short_is_kept_and_nothing_is_claimed_until_it_is_set_aside() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 16 * MIB);
    let start = Start::new(&lab, &set(&lab, "fast", "pool.img", WHOLE));
    fs::create_dir(&start.state).unwrap();
    let journal = start.state.join("journal.json");
    let set_aside = ["state", "set-aside", "journal"];
    let texts: [&[u8]; 4] = [b"{\"format\": 1, \"relea", b"", b"{\"format\": 99}", b"{\"format\": 1, \"\xff\": 1}"];
    for text in texts {
        fs::write(&journal, text).unwrap();
        let (driver, mut client) = start.ready_at_once().await;
        driver.await_verdict(&disk.node, "Unclaimed", "localpool state set-aside journal");
        let refused = client.try_create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await.unwrap_err();
        assert!(refused.message().contains("journal.json"), "{refused}");
        assert_eq!((disk.writes(), fs::read(&journal).unwrap()), (0, text.to_vec()));
        driver.stop();
    }
    let (driver, mut client) = start.ready_at_once().await;
    let output = driver.cli_ok(&[&set_aside[..], &["--dry-run"]].concat());
    assert!(output.contains("would keep"), "{output}");
    let output = driver.cli_ok(&set_aside);
    let kept = output.split_whitespace().find(|word| word.starts_with("journal.damaged-")).unwrap();
    assert_eq!(fs::read(start.state.join(kept)).unwrap(), texts[3]);
    driver.await_verdict(&disk.node, "Ours", "in pool");
    client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    let output = driver.cli_refused(&set_aside);
    assert!(output.contains("nothing is wrong with it"), "{output}");
}

/// A filesystem in memory for this lab, so small that it is soon full.
fn tiny_state(lab: &Lab, start: &mut Start, options: &str) {
    fs::create_dir(lab.path("tiny")).unwrap();
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tmpfs"), &lab.path("tiny"), Some("tmpfs"), flags, Some(options)).unwrap();
    start.state = lab.path("tiny/state");
}

fn read_only(path: &Path) {
    let flags = nix::mount::MsFlags::MS_REMOUNT | nix::mount::MsFlags::MS_RDONLY;
    let none: Option<&str> = None;
    nix::mount::mount(none, path, none, flags, none).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_full_state_directory_costs_only_what_must_be_remembered_there() {
    let lab = crate::lab!();
    let disks = [lab.disk("a", 16 * MIB), lab.disk("b", 16 * MIB)];
    let mut start = Start::new(&lab, &set(&lab, "fast", "[ab].img", WHOLE));
    tiny_state(&lab, &mut start, "size=64k");
    fs::create_dir(&start.state).unwrap();
    let filler = start.state.join("filler");
    fs::write(&filler, vec![1; 1 << 20]).expect_err("it is full");
    let (driver, mut client) = start.ready().await;
    disks.iter().for_each(|disk| drop(driver.await_verdict(&disk.node, "Ours", "in pool")));
    // The disk on which a volume may be must be remembered before that disk is written.
    let before = disks.each_ref().map(Disk::fingerprint);
    let refused = client.try_create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await.unwrap_err();
    // Before that comes the document that says which machine the journal belongs to.
    let no_space =
        |output: &str| output.contains(text(&start.state.join("standalone"))) && output.contains("No space left");
    assert!(no_space(refused.message()), "{refused}");
    // A release must be remembered before the disk is wiped; it is not done halfway.
    let free = &disks[0];
    let output = driver.cli_refused(&["disk", "release", free.path()]);
    assert!(no_space(&output), "{output}");
    assert_eq!(disks.each_ref().map(Disk::fingerprint), before);
    driver.await_verdict(&free.node, "Ours", "in pool");
    fs::remove_file(&filler).unwrap();
    driver.cli_ok(&["disk", "release", free.path()]);
    assert!(eventually(SOON, || free.is_blank()));
    let all = client.capacity("fast", &block()).await;
    let made = client.create(create(&lab.named("pvc-1"), "fast", MIB, &block())).await;
    client.delete(&made.id).await.unwrap();
    client.await_capacity("fast", &block(), all).await;
    fs::write(&filler, vec![1; 1 << 20]).expect_err("it is full again");
    let refused = client.try_create(create(&lab.named("pvc-2"), "fast", MIB, &block())).await.unwrap_err();
    assert!(refused.message().contains("journal.json") && refused.message().contains("No space left"), "{refused}");
    driver.stop();
    // After a restart its disks are still its own.
    let (driver, _client) = start.ready().await;
    driver.await_verdict(&disks[1].node, "Ours", "in pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_a_state_directory_that_cannot_be_written_stops_the_start() {
    let lab = crate::lab!();
    let disk = lab.disk("pool", 16 * MIB);
    let mut start = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED));
    fs::write(lab.path("file"), "precious").unwrap();
    start.state = lab.path("file");
    assert_refuses_to_start(&start, &disk, &[text(&start.state)]);
    tiny_state(&lab, &mut start, "size=64k");
    read_only(&lab.path("tiny"));
    assert_refuses_to_start(&start, &disk, &[text(&start.state), "Read-only file system"]);
}
