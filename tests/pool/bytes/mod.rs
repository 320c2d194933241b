//! Every byte on a disk: `tests/fixtures/disks` has disks as versions of localpool wrote them. This version writes the
//! same, and works with all of them: disks out there have these bytes, and the version before may have to read what
//! this one writes.

mod earlier;
mod image;
mod life;
mod member;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use localpool::device::label::{VolumeRecord, VolumeUsage};
use localpool::host::Extent;
use localpool::host::fake::FakeHost;
use localpool::pool::{Change, Standing, WantedUsage};
use localpool::volume::VolumeId;

use crate::bytes::life::{CASES, Case, DATA, FOUND, GONE, SIZE, make, read, root, words};
use crate::node::{Node, id, problem, request};

const WRITE: &str = "UPDATE_DOCS=1 cargo test -F testing --test pool bytes";

/// What is written to disks that are out there, and never changes: of the disk, of its set, and of its volumes.
const DISK_ID: &str = "gpt-01234567-89ab-4cde-8f10-32547698bac2";
const SET: (&str, &str) = ("default/set", "uid-set");
const DATA_ID: &str = "e7772eb2-03a6-53c7-9c80-d149f1bc4515";
const FOUND_ID: &str = "ea2292fb-7cb4-52c0-86ca-97ace58aa8e9";

/// Held while fixtures are read or written: each test needs them all.
static FIXTURES: Mutex<()> = Mutex::new(());

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/disks")
}

fn text(host: &FakeHost, node: &Node) -> String {
    image::text(host, root(host, node).as_deref())
}

fn made(case: &Case) -> String {
    let (host, node) = make(case);
    text(&host, &node)
}

/// The fixture of a case. A missing one is written where that is asked for. One that is there is never written again:
/// it is what disks have.
fn fixture(case: &Case) -> String {
    fixture_of(case, made)
}

fn fixture_of(case: &Case, made: impl Fn(&Case) -> String) -> String {
    let path = folder().join(format!("{}.txt", case.name));
    let is_asked_for = std::env::var_os("UPDATE_DOCS").is_some();
    match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && is_asked_for => {
            let text = made(case);
            std::fs::create_dir_all(folder()).expect("the folder is made");
            std::fs::write(&path, &text).expect("the fixture is written");
            text
        }
        Err(error) => panic!("{}: {error}; `{WRITE}` writes the fixtures that are missing", path.display()),
    }
}

/// All fixtures of a case with their names: of this version and of earlier ones.
fn fixtures(case: &Case) -> Vec<(String, String)> {
    let _held = FIXTURES.lock().unwrap_or_else(PoisonError::into_inner);
    fixture(case);
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(case.name) && name.ends_with(".txt")).collect();
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(folder().join(&name)).expect("the fixture is read");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// A node that has opened the disk of a fixture.
fn opened(case: &Case, file: &str, text: &str) -> (Arc<FakeHost>, Node) {
    let host = image::machine(text);
    let mut node = case.start(&host);
    assert_eq!(problem(&mut node, image::DISK), "", "{file}");
    (host, node)
}

/// The lines that only one of two texts has.
fn difference(was: &str, is: &str) -> String {
    let only = |of: &str, other: &str, sign: char| -> Vec<String> {
        let others: BTreeSet<&str> = other.lines().collect();
        of.lines().filter(|line| !others.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    [only(was, is, '-'), only(is, was, '+')].concat().join("\n")
}

#[test]
fn this_version_writes_on_a_disk_what_disks_have_byte_for_byte() {
    for case in &CASES {
        let fixture = {
            let _held = FIXTURES.lock().unwrap_or_else(PoisonError::into_inner);
            fixture(case)
        };
        let made = made(case);
        assert!(
            fixture == made,
            "this version writes other bytes than tests/fixtures/disks/{}.txt has (see \"How to change what is on a \
             disk\" in CONTRIBUTING.md):\n{}",
            case.name,
            difference(&fixture, &made)
        );
    }
}

#[test]
fn a_disk_that_any_version_wrote_is_opened_with_all_that_is_on_it_and_nothing_is_written() {
    for case in &CASES {
        for (file, text_before) in fixtures(case) {
            let (host, node) = opened(case, &file, &text_before);
            let disk = node.pool.disk_views().remove(0);
            assert_eq!((disk.id.as_str(), &disk.layout, disk.size), (DISK_ID, &case.layout, case.size), "{file}");
            assert_eq!((disk.set.to_string().as_str(), disk.set.uid.as_str()), SET, "{file}");
            assert_eq!((disk.standing, disk.volumes, disk.erasing), (Standing::Ready, 2, SIZE), "{file}");
            let views = node.pool.volumes().into_iter();
            let found: Vec<_> = views.map(|view| (view.id.to_string(), view.size, view.record)).collect();
            assert_eq!(found, listed(case), "{file}");
            assert!(node.pool.volume(id(DATA)).expect("it is there").formatted, "{file}");
            let after = text(&host, &node);
            assert!(after == text_before, "{file}: something was written:\n{}", difference(&text_before, &after));
        }
    }
}

/// The volumes of the disk of a case, by their ids, with their sizes and what is known of them.
fn listed(case: &Case) -> Vec<(String, u64, Option<VolumeRecord>)> {
    // A folder has no filesystem of its own.
    let fs_size = if case.layout.is_directory() { 0 } else { SIZE };
    let data = VolumeRecord { fs_size, ..case.record(DATA) };
    let found = VolumeRecord { found: true, ..case.record(FOUND) };
    vec![(DATA_ID.to_owned(), SIZE, Some(data)), (FOUND_ID.to_owned(), SIZE, Some(found))]
}

#[test]
fn a_disk_that_any_version_wrote_lives_on_with_the_data_on_it_until_it_is_blank() {
    for case in &CASES {
        for (file, text) in fixtures(case) {
            let (host, node) = opened(case, &file, &text);
            assert!(node.pool.usable(id(FOUND)).is_err(), "{file}: it waits for its adoption");
            assert_eq!(node.pool.adopt_volume(id(FOUND)).expect("adopted"), Change::Done, "{file}");
            node.pool.work_until_idle().expect("erases");
            let usage = match case.usage(GONE) {
                VolumeUsage::Block => WantedUsage::Block,
                VolumeUsage::Mount(kind) => WantedUsage::Mount(Some(kind)),
            };
            node.pool.create(&request(GONE, usage, SIZE)).expect("there is room");
            assert_eq!(node.pool.disk_views().remove(0).erasing, 0, "{file}");
            assert_ne!(read(&host, &node, GONE), words(GONE), "{file}: of the volume that was deleted");
            for name in [DATA, FOUND] {
                assert_eq!(read(&host, &node, name), words(name), "{file}");
            }
            end(case, &file, &host, &node);
        }
    }
}

/// The disk has no volume any more, and is released.
fn end(case: &Case, file: &str, host: &FakeHost, node: &Node) {
    let volumes: Vec<VolumeId> = node.pool.volumes().into_iter().map(|view| view.id).collect();
    assert_eq!(volumes.len(), 3, "{file}");
    for volume in volumes {
        node.pool.delete(volume).expect("deleted");
    }
    node.pool.work_until_idle().expect("erases");
    let member = node.pool.members().remove(0);
    node.pool.release(&member).expect("released");
    // The mark of the fake machine's filesystem stays, as what mkfs wrote does.
    let is_blank = image::platter(host).is_zero(Extent { start: 0, end: case.size });
    assert!(is_blank || case.layout.is_directory(), "{file}");
}
