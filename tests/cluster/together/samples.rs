//! What the seeds and the Local Storage Operator show as examples, unchanged (samples/): on nodes with the names and
//! with the kinds of disks that they mention. These machines are simulated; the cluster and its controllers are not.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use localpool::host::Geometry;
use localpool::host::fake::FakeHost;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually};
use crate::sim::SimNode;

const GB: u64 = 1_000_000_000;
/// The nodes that every example selects.
const NODES: [&str; 2] = ["worker-0", "worker-1"];
/// The classes of their volumes.
const CLASSES: [&str; 2] = ["example-storageclass", "foobar"];

/// What examples select a disk by.
#[derive(Clone, Copy)]
struct Disk {
    gb: u64,
    vendor: &'static str,
    model: &'static str,
    rotational: bool,
}

const SAMSUNG: Disk = Disk { gb: 100, vendor: "ATA", model: "SAMSUNG MZ7LN512", rotational: false };

fn file(sample: &str) -> String {
    format!("{}/tests/cluster/together/samples/{sample}.yaml", env!("CARGO_MANIFEST_DIR"))
}

async fn apply(space: &Space, sample: &str) {
    let file = file(sample);
    let words = ["-n", &space.namespace, "apply", "-f", &file];
    eventually("the example is applied", SOON, async || crate::cluster::attempt("kubectl", &words).await).await;
}

/// The refusal of the API server or of kubectl.
async fn refused(space: &Space, sample: &str) -> String {
    let refusal = crate::cluster::attempt("kubectl", &["-n", &space.namespace, "apply", "-f", &file(sample)]).await;
    refusal.expect_err("it is refused")
}

/// The two nodes, with these disks each.
async fn workers(space: &Space, disks: [&[Disk]; 2]) -> Vec<SimNode> {
    let mut workers = Vec::new();
    for (node, disks) in NODES.into_iter().zip(disks) {
        let host = FakeHost::default();
        for (n, disk) in disks.iter().enumerate() {
            let name = format!("sd{}", char::from(b'a' + u8::try_from(n).unwrap()));
            let geometry = Geometry { size: disk.gb * GB, sector: 512, offloads_zeroes: true };
            host.add_disk(&name, &format!("SERIAL-{node}-{name}"), geometry);
            host.edit(&name, |raw| {
                raw.vendor = Some(disk.vendor.to_owned());
                raw.model = Some(disk.model.to_owned());
                raw.rotational = disk.rotational;
            });
        }
        let labels = json!({"kubernetes.io/hostname": node});
        workers.push(SimNode::of(&space.client, node, labels, host).await);
    }
    workers
}

/// Removes what the sets and LocalVolumes of this check and its nodes left behind, also in a run that was killed.
async fn clear(space: &Space, workers: Vec<SimNode>) {
    for mut worker in workers {
        worker.kill().await;
    }
    for kind in ["LocalVolumeSet", "LocalVolume"] {
        for object in space.list(kind, space.here()).await {
            let name = crate::cluster::name(&object);
            space.delete(kind, space.here(), name).await;
            space.until_gone(kind, space.here(), name).await;
        }
    }
    for node in NODES {
        for kind in ["Node", "DevicePool"] {
            space.delete(kind, None, node).await;
            space.until_gone(kind, None, node).await;
        }
    }
    for class in CLASSES {
        space.delete("StorageClass", None, class).await;
    }
}

/// Waits until the set has this many devices; returns it.
async fn has(space: &Space, set: &str, devices: u64) -> Value {
    let counted = |set: &Value| set["status"]["totalProvisionedDeviceCount"] == devices;
    space.until("LocalVolumeSet", space.here(), set, &format!("has {devices} devices"), counted).await
}

/// Its devices that were not taken, as "node device: reason".
fn left(set: &Value) -> Vec<String> {
    let word = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let line = |one: &Value| format!("{} {}: {}", word(one, "node"), word(one, "device"), word(one, "reason"));
    set["status"]["unmatchedDevices"].as_array().into_iter().flatten().map(line).collect()
}

/// How many disks of the set a node reports, by their state.
async fn partitioning(space: &Space, node: &str) -> BTreeMap<String, usize> {
    let pool = space.get("DevicePool", None, node).await.unwrap_or_default();
    let sets = pool["status"]["sets"].as_array().cloned().unwrap_or_default();
    let set = sets.iter().find(|set| set["name"] == "example-autodetect").cloned().unwrap_or_default();
    let mut states = BTreeMap::new();
    for disk in set["partitioning"].as_array().into_iter().flatten() {
        *states.entry(disk["state"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    states
}

/// Five disks of 100 GB are cut into three partitions each, before there is any claim.
async fn seed_partitioned(space: &Space) {
    let workers = workers(space, [&[SAMSUNG; 3], &[SAMSUNG; 2]]).await;
    apply(space, "seed-set-partitioned").await;
    let set = has(space, "example-autodetect", 5).await;
    assert_eq!(set["status"]["totalProvisionedPartitionCount"], 15);
    let available = set["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Available");
    assert_eq!(available.unwrap()["status"], "True");
    for (node, disks) in NODES.into_iter().zip([3, 2]) {
        let done = BTreeMap::from([("Done".to_owned(), disks)]);
        let poll = async || {
            let now = partitioning(space, node).await;
            if now == done { Ok(()) } else { Err(now) }
        };
        eventually("every disk is partitioned", SOON, poll).await;
        let pool = space.get("DevicePool", None, node).await.unwrap();
        for disk in pool["status"]["disks"].as_array().unwrap() {
            assert_eq!(disk["free"].as_u64().unwrap() / GB, 90, "three of 30 GB: {disk}");
        }
    }
    clear(space, workers).await;
}

/// Five disks are taken if there are five; if there are four, the minimum is missed, and that is reported.
async fn seed_block(space: &Space) {
    let workers = workers(space, [&[SAMSUNG; 5], &[SAMSUNG; 4]]).await;
    apply(space, "seed-set-block").await;
    let too_few = |set: &Value| {
        left(set).iter().filter(|one| one.contains("only 4 devices match; the set's minDeviceCount is 5")).count()
    };
    let told = |set: &Value| set["status"]["totalProvisionedDeviceCount"] == 5 && too_few(set) == 4;
    space
        .until("LocalVolumeSet", space.here(), "example-autodetect", "has five devices, and names the four", told)
        .await;
    for disk in ["sda", "sdb", "sdc", "sdd"] {
        assert_eq!(workers[1].host.platter(disk).unwrap().write_count(), 0, "{disk} is one of too few");
    }
    clear(space, workers).await;
}

/// Selects by model and vendor, solid state only, up to 100 GB.
async fn seed_filesystem(space: &Space) {
    let others = [
        Disk { model: "WDC WD40EFRX", ..SAMSUNG },
        Disk { vendor: "HGST", ..SAMSUNG },
        Disk { rotational: true, ..SAMSUNG },
        Disk { gb: 101, ..SAMSUNG },
        Disk { gb: 9, ..SAMSUNG },
    ];
    let crucial = Disk { model: "Crucial_CT525MX300", ..SAMSUNG };
    let matching = [&[SAMSUNG; 4][..], &[crucial]].concat();
    let workers = workers(space, [&[&matching[..], &others].concat(), &others]).await;
    apply(space, "seed-set-filesystem").await;
    has(space, "example-autodetect", 5).await;
    // The set of that name before had five as well.
    let claimed = async || match workers[0].pool().labelled_disks().len() {
        5 => Ok(()),
        others => Err(others),
    };
    eventually("the five are claimed", SOON, claimed).await;
    for taken in ["sda", "sdb", "sdc", "sdd", "sde"] {
        assert!(workers[0].host.platter(taken).unwrap().write_count() > 0, "{taken} is not taken");
    }
    for (node, left) in [(0, &["sdf", "sdg", "sdh", "sdi", "sdj"]), (1, &["sda", "sdb", "sdc", "sdd", "sde"])] {
        for disk in left {
            assert_eq!(workers[node].host.platter(disk).unwrap().write_count(), 0, "{disk} of {node}");
        }
    }
    let told = |set: &Value| left(set).iter().filter(|one| one.starts_with("worker-")).count() == 10;
    space
        .until("LocalVolumeSet", space.here(), "example-autodetect", "names the ten that it does not take", told)
        .await;
    clear(space, workers).await;
}

async fn operators_set(space: &Space) {
    let spinning = Disk { rotational: true, ..SAMSUNG };
    let workers = workers(space, [&[SAMSUNG, spinning], &[Disk { gb: 500, ..SAMSUNG }]]).await;
    apply(space, "operator-localvolumeset").await;
    has(space, "example-localvolumeset", 2).await;
    assert_eq!(workers[1].host.platter("sda").unwrap().write_count(), 0, "it is above maxSize");
    clear(space, workers).await;
}

async fn operators_volume(space: &Space) {
    let workers = workers(space, [&[SAMSUNG; 2], &[SAMSUNG]]).await;
    workers[0].host.edit("sdb", |raw| raw.links.push("/dev/disk/by-id/ata-crucial".into()));
    apply(space, "operator-localvolume").await;
    let taken = |volume: &Value| volume["status"]["totalProvisionedDeviceCount"] == 1;
    space.until("LocalVolume", space.here(), "example", "its device is taken", taken).await;
    let writes = |node: usize, disk: &str| workers[node].host.platter(disk).unwrap().write_count();
    assert!(writes(0, "sdb") > 0);
    assert_eq!((writes(0, "sda"), writes(1, "sda")), (0, 0), "a disk that nobody named was written to");
    clear(space, workers).await;
}

#[test]
fn the_examples_of_the_seeds_and_of_the_operator_do_what_they_say() {
    check(Needs::Machine, async |space| {
        clear(space, Vec::new()).await;
        let ended = AssertUnwindSafe(async {
            seed_partitioned(space).await;
            seed_block(space).await;
            seed_filesystem(space).await;
            operators_set(space).await;
            operators_volume(space).await;
        });
        let ended = ended.catch_unwind().await;
        // Its classes and nodes have no namespace, and would otherwise stay for all checks after a failure.
        clear(space, Vec::new()).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn examples_that_break_a_rule_are_refused_with_what_to_change() {
    check(Needs::Cluster, async |space| {
        // A namespace is in lower case, so none has this name.
        let refusal = refused(space, "seed-discovery").await;
        assert!(refusal.contains("localStorage"), "{refusal}");
        // In a namespace that can exist, the name of the object is the next error.
        let text = std::fs::read_to_string(file("seed-discovery")).unwrap();
        let mut object: Value = serde_saphyr::from_str(&text).unwrap();
        object["metadata"]["namespace"] = json!(space.namespace);
        let refusal = space.try_create(&object).await.expect_err("it is refused").to_string();
        assert!(refusal.contains("is called auto-discover-devices: use this name"), "{refusal}");
        let refusal = refused(space, "seed-result").await;
        assert!(refusal.contains("labels"), "labels are no list: {refusal}");
        let refusal = refused(space, "operator-scaffold").await;
        assert!(refusal.contains("spec.storageClassName is required: "), "{refusal}");
    });
}
