//! What the whole pool reports, while nobody else uses it.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, TOPOLOGY, eventually};
use crate::machine::Disk;
use crate::pods::As;

const MIB: u64 = 1 << 20;
/// The label is 1 MiB at 1 MiB; the last MiB has the backup table.
const AROUND: u64 = 3 * MIB;

/// Free bytes of each layout, computed only from the tables on the disks.
async fn free_on_disks(space: &Space) -> BTreeMap<&'static str, u64> {
    let mut free = BTreeMap::new();
    for disk in space.machine().disks() {
        let stem = disk.image.file_stem().unwrap().to_str().unwrap().to_owned();
        let Some(set) = ["whole", "slots", "carved"].into_iter().find(|set| stem.starts_with(&format!("{set}-")))
        else {
            continue;
        };
        *free.entry(set).or_default() += free_on(space, set, &disk).await;
    }
    free
}

async fn free_on(space: &Space, set: &str, disk: &Disk) -> u64 {
    let entries = disk.entries().await;
    let label = entries.iter().find(|entry| entry.start == MIB).expect("a label");
    let others = || entries.iter().filter(|entry| entry.start != label.start);
    match set {
        // The entries are there from the start. An entry that is a volume has a PoolVolume; the others are free.
        "slots" | "whole" => {
            let mut free = 0;
            for entry in others() {
                if space.get("PoolVolume", None, &entry.guid).await.is_none() {
                    free += entry.len;
                }
            }
            free
        }
        _ => disk.size() - AROUND - others().map(|entry| entry.len).sum::<u64>(),
    }
}

async fn free_in_pool(space: &Space) -> BTreeMap<String, u64> {
    let mut free = BTreeMap::new();
    for pool in space.list("DevicePool", None).await {
        for disk in pool["status"]["disks"].as_array().into_iter().flatten() {
            let set = disk["set"].as_str().unwrap_or("none").trim_start_matches("localpool/").to_owned();
            *free.entry(set).or_default() += disk["free"].as_u64().unwrap();
        }
    }
    free
}

/// Capacity and largest volume by class, for the classes that all checks share, as the scheduler sees them.
async fn told_to_scheduler(space: &Space) -> BTreeMap<String, (u64, u64)> {
    let bytes = |value: &Value| {
        let text = value.as_str().unwrap_or("0").to_owned();
        let unit = [("Ki", 1 << 10), ("Mi", MIB), ("Gi", 1 << 30), ("Ti", 1 << 40)]
            .into_iter()
            .find(|unit| text.ends_with(unit.0));
        let (digits, factor) =
            unit.map_or((text.as_str(), 1), |(suffix, factor)| (text.trim_end_matches(suffix), factor));
        digits.parse::<u64>().unwrap() * factor
    };
    let all = space.list("CSIStorageCapacity", Some(crate::cluster::HOME)).await;
    let node = space.nodes().await.remove(0);
    all.iter()
        .filter(|one| one["nodeTopology"]["matchLabels"][TOPOLOGY] == node.as_str())
        .filter(|one| one["storageClassName"].as_str().unwrap().starts_with("local-"))
        .map(|one| {
            let class = one["storageClassName"].as_str().unwrap().to_owned();
            (class, (bytes(&one["capacity"]), bytes(&one["maximumVolumeSize"])))
        })
        .collect()
}

async fn offered(space: &Space) -> BTreeMap<String, (u64, u64)> {
    let pool = space.list("DevicePool", None).await.remove(0);
    let sets = pool["status"]["sets"].as_array().cloned().unwrap_or_default();
    let offer = |set: &Value| {
        let bytes = |field: &str| set[field].as_u64().unwrap();
        // The scheduler cannot ask by mode, so it sees the larger value of the two.
        let either = |mount: &str, block: &str| bytes(mount).max(bytes(block));
        let told = (either("available", "blockAvailable"), either("largest", "blockLargest"));
        (set["class"].as_str().unwrap().to_owned(), told)
    };
    sets.iter().filter(|set| set["message"].is_null()).map(offer).collect()
}

/// Disks, DevicePool and CSIStorageCapacity say the same.
async fn agree(space: &Space) {
    let poll = async || {
        let (disks, pool) = (free_on_disks(space).await, free_in_pool(space).await);
        for (set, free) in &disks {
            if pool.get(*set) != Some(free) {
                return Err(format!("disks {disks:?}, DevicePool {pool:?}"));
            }
        }
        let (told, offered) = (told_to_scheduler(space).await, offered(space).await);
        for class in ["local-whole", "local-slots", "local-carved"] {
            if !told.contains_key(class) || told.get(class) != offered.get(class) {
                return Err(format!("CSIStorageCapacity {told:?}, DevicePool {offered:?}"));
            }
        }
        Ok(())
    };
    eventually("disks, DevicePool and CSIStorageCapacity agree", SOON, poll).await;
}

/// The number of time series of each component, without those that begin with the first call or write of a kind.
async fn series(space: &Space) -> [usize; 2] {
    let mut counts = [0; 2];
    for (component, count) in ["node", "controller"].into_iter().zip(&mut counts) {
        let all = space.series(component).await.unwrap();
        let begins = |line: &&String| line.contains("_rpc_") || line.contains("_reconcile");
        *count = all.iter().filter(|line| line.starts_with("localpool_") && !begins(line)).count();
        assert!(*count > 10, "{component}: {all:?}");
    }
    counts
}

#[test]
fn capacity_objects_equal_the_pool_and_the_disks() {
    check(Needs::Machine, async |space| {
        agree(space).await;
        let (before, counts) = (free_in_pool(space).await, series(space).await);
        for class in ["local-whole", "local-slots", "local-carved"] {
            space.running(class, class, "1Gi", As::Folder).await;
        }
        agree(space).await;
        let now = free_in_pool(space).await;
        for (set, least) in [("whole", 1 << 30), ("slots", 1 << 30), ("carved", 1 << 30)] {
            assert!(now[set] + least <= before[set], "{set}: {before:?}, {now:?}");
        }
        assert_eq!(series(space).await, counts, "they do not grow with the number of volumes");
        for class in ["local-whole", "local-slots", "local-carved"] {
            space.remove_pod(class).await;
            space.remove_claim(class).await;
        }
        agree(space).await;
        assert_eq!(free_in_pool(space).await, before);
    });
}

#[test]
fn a_cordoned_pool_gives_nothing_new_and_what_is_there_works_on() {
    check(Needs::Machine, async |space| {
        space.running("old", "local-carved", "64Mi", As::Folder).await;
        let node = space.nodes().await.remove(0);
        space.patch("DevicePool", None, &node, &json!({"spec": {"cordon": true}})).await;
        let ended = AssertUnwindSafe(nothing_new(space)).catch_unwind().await;
        // Also after a failure, for the checks that follow.
        space.patch("DevicePool", None, &node, &json!({"spec": {"cordon": false}})).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        space.until_running("new").await;
    });
}

async fn nothing_new(space: &Space) {
    let nothing = async || {
        let told = told_to_scheduler(space).await;
        if told.values().all(|(free, _)| *free == 0) { Ok(()) } else { Err(told) }
    };
    eventually("the scheduler learns that there is no room", SOON, nothing).await;
    space.create(&space.claim("new", "local-carved", "64Mi")).await;
    space.create(&space.pod("new", "new", As::Folder)).await;
    space.event("new", &["FailedScheduling", "enough free storage"]).await;
    space.shell("old", "echo works >/data/file").await;
}
