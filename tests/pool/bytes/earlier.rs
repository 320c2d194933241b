//! What an earlier version makes of a disk of folders, and of the journal of a node that has one. It knows neither the
//! layout nor the type of the partition: so this version is given a layout and a type that it does not know, by the
//! bytes that the disk of the fixture has.

use std::collections::BTreeMap;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::Verdict;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Host, chain};
use localpool::pool::JOURNAL;
use serde::{Deserialize, Serialize};

use crate::bytes::{image, life::CASES, made};
use crate::node::{MIB, Node, id, request, rule};

const XFS: localpool::pool::WantedUsage = localpool::pool::WantedUsage::Mount(Some(FsKind::Xfs));

/// Replaces these bytes, wherever they are in that range; gives where they were.
fn replace(disk: &Platter, start: u64, len: usize, was: &[u8], is: &[u8]) -> Vec<u64> {
    assert_eq!(was.len(), is.len());
    let mut bytes = vec![0; len];
    disk.peek(start, &mut bytes);
    let found: Vec<u64> =
        (0u64..).zip(bytes.windows(was.len())).filter(|(_, at)| *at == was).map(|(at, _)| start + at).collect();
    found.iter().for_each(|at| disk.poke(*at, is));
    found
}

fn bytes(disk: &Platter, start: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.peek(start, &mut bytes);
    bytes
}

/// The field of a checksum at `at`: of these bytes.
fn seal(disk: &Platter, at: u64, of: &[u8]) {
    disk.poke(at, &crc32fast::hash(of).to_le_bytes());
}

/// A layout that no version knows, in both copies of the label.
fn with_other_layout(disk: &Platter) {
    for copy in [MIB, MIB + MIB / 2] {
        let found = replace(disk, copy, 4096, b"\"directory\"", b"\"directorx\"");
        assert_eq!(found.len(), 1, "the layout is in each copy");
        let length = bytes(disk, copy + 40, 4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let payload = bytes(disk, copy + 64, usize::try_from(length).expect("it fits"));
        seal(disk, copy + 44, &payload);
        disk.poke(copy + 48, &[0; 4]);
        seal(disk, copy + 48, &bytes(disk, copy, 64));
    }
}

/// A type of partition that no version knows, in both copies of the table.
fn with_other_type(disk: &Platter) {
    const ENTRIES: usize = 128 * 128;
    let end = disk.geometry.size;
    let copies = [(512, 1024), (end - 512, end - 512 - ENTRIES as u64)];
    for (header, table) in copies {
        let found = replace(disk, table, ENTRIES, b"\x1a\xbe\x1d\x15\xc0\x04", b"\x1a\xbe\x1d\x15\xc0\x0f");
        assert_eq!(found.len(), 1, "the filesystem is in each copy");
        seal(disk, header + 88, &bytes(disk, table, ENTRIES));
        disk.poke(header + 16, &[0; 4]);
        seal(disk, header + 16, &bytes(disk, header, 92));
    }
}

#[test]
fn a_version_that_does_not_know_of_folders_neither_claims_such_a_disk_nor_writes_to_it() {
    let case = CASES.iter().find(|case| case.layout.is_directory()).expect("there is one");
    let both = |disk: &Platter| {
        with_other_layout(disk);
        with_other_type(disk);
    };
    for with in [with_other_layout as fn(&Platter), both] {
        let host = image::machine(&made(case));
        let disk = image::platter(&host);
        with(&disk);
        let before = disk.write_count();
        let rules = [Layout::Carved {}, Layout::Whole {}, Layout::RawDevice {}];
        for layout in rules {
            let mut node =
                Node::start(&host, vec![rule(&layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
            let pass = node.passes().expect("a pass");
            let device = pass.snapshot.devices.iter().find(|device| device.raw.name.as_str() == image::DISK);
            let verdict = &device.expect("it is there").verdict;
            assert!(!matches!(verdict, Verdict::Unclaimed | Verdict::Ours), "{verdict:?}");
            assert!(node.pool.members().is_empty(), "{:?}", node.pool.disk_views());
            assert!(pass.claimed.is_empty());
        }
        assert_eq!(disk.write_count(), before, "nothing is written");
    }
}

/// The layouts of the version before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum EarlierLayout {
    Whole {},
    Slots { size: Option<u64>, count: Option<u32> },
    Carved {},
    RawDevice {},
}

/// What the version before reads of a disk, and what of the journal; it writes nothing else.
#[derive(Debug, Serialize, Deserialize)]
struct EarlierDisk {
    layout: EarlierLayout,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EarlierJournal {
    format: u32,
    released: serde_json::Value,
    raw: serde_json::Value,
    disks: BTreeMap<String, EarlierDisk>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    let_go: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identities: Option<serde_json::Value>,
}

fn both() -> Vec<Rule> {
    let folders = Layout::Directory { quota: Quota::None };
    vec![Rule { fs: FsKind::Xfs, ..rule(&folders, ErasePolicy::Discard) }]
}

#[test]
fn a_version_that_does_not_know_of_folders_reads_the_journal_and_costs_nothing_that_the_disk_does_not_say() {
    let host = std::sync::Arc::new(FakeHost::default());
    let geometry = localpool::host::Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
    host.add_disk("fake0", "SERIAL-1", geometry);
    let mut node = Node::start(&host, both(), Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    for name in ["a", "b"] {
        node.pool.create(&request(name, XFS, MIB)).expect("made");
    }
    node.passes().expect("a pass");
    drop(node);
    let text = host.state().load(JOURNAL).expect("read").expect("there");
    let read: EarlierJournal = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(read.format == 1 && read.disks.is_empty(), "{read:?}");
    // It writes what it knows, and nothing else.
    host.state().store(JOURNAL, &serde_json::to_string(&read).expect("JSON")).expect("written");
    let mut node = Node::start(&host, both(), Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    for name in ["a", "b"] {
        node.pool.usable(id(name)).expect("it is there");
    }
    drop(node);
    host.unplug("fake0");
    let mut node = Node::start(&host, both(), Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    let why = chain(&node.pool.delete(id("a")).expect_err("it is on a disk that is away"));
    assert!(why.contains("is missing"), "{why}");
}
