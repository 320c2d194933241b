//! What pages pick out of objects with jq: each program of a runbook's "Look at" prints what its page shows of objects that
//! have the trouble, and nothing of those that have not. And each line that a verb of localpool prints below "Do" is
//! one that its source has.
//!
//! The objects go through our types, so a field that a page calls by another name is not there.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::PersistentVolume;
use localpool::api::crd::{DevicePool, PoolVolume};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{read, root};

const VOLUME: &str = "5c0e9c1e-0000-5000-8000-000000000000";
pub const LOST_SINCE: &str = "2026-11-26T04:00:00Z";
const UNUSABLE_SINCE: &str = "localpool.dev/unusable-since";

/// An object as the API server has it.
fn kept<T: DeserializeOwned + Serialize>(object: Value) -> Value {
    let kept: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    let mut kept = serde_json::to_value(kept).unwrap();
    let kind = &object["kind"];
    if kind.is_string() {
        kept["kind"] = kind.clone();
    }
    kept
}

pub fn disk(more: Value) -> Value {
    let disk = json!({"id": "gpt-7a1f…", "path": "/dev/sdb", "layout": "Carved", "set": "localpool/fast", "size": 9, "free": 1,
        "volumes": 1, "state": "Ready"});
    merged(disk, more)
}

fn merged(mut object: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("a map") {
        object[key] = value.clone();
    }
    object
}

/// The DevicePool of `worker-0`.
pub fn pool(spec: Value, status: Value) -> Value {
    kept::<DevicePool>(json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "worker-0"},
        "spec": spec, "status": status,
    }))
}

/// The same with a disk of which this is so, and one with which nothing is wrong.
fn pool_with(more: Value) -> Value {
    let well = disk(json!({"id": "gpt-well", "path": "/dev/sda"}));
    pool(json!({}), json!({"disks": [well, disk(more)]}))
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": LOST_SINCE})
}

fn pool_volume(id: &str, deleted: Option<&str>, status: Value) -> Value {
    kept::<PoolVolume>(json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
        "metadata": {"name": id, "deletionTimestamp": deleted},
        "spec": {"node": "worker-0", "volumeName": "pvc-0a1b", "required": 1, "volumeMode": "Filesystem"},
        "status": status,
    }))
}

/// A volume of which this is so, and one with which nothing is wrong.
fn volumes(deleted: Option<&str>, status: Value) -> Value {
    let status = merged(json!({"phase": "Ready"}), status);
    json!({"items": [pool_volume(VOLUME, deleted, status), pool_volume("well", None, json!({"phase": "Ready"}))]})
}

fn volumes_with(condition: Value) -> Value {
    volumes(None, json!({"conditions": [condition]}))
}

fn persistent(name: &str, node: &str, annotations: Value, spec: Value) -> Value {
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
    ]}]}});
    kept::<PersistentVolume>(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "annotations": annotations},
        "spec": merged(json!({"nodeAffinity": affinity}), spec), "status": {"phase": "Bound"},
    }))
}

fn local_spec(claim: &str) -> Value {
    json!({"local": {"path": "/mnt/local-storage/fast/disk-1"}, "claimRef": {"namespace": "shop", "name": claim}})
}

/// A local one of another provisioner of which this is so, and one with which nothing is wrong.
fn local(node: &str, claim: &str, annotations: Value) -> Value {
    let one = persistent("local-pv-3f2a", node, annotations, local_spec(claim));
    json!({"items": [one, persistent("well", node, json!({}), json!({"csi": {"driver": "other", "volumeHandle": "v"}}))]})
}

/// The objects of each program, by its alert, in the order of the page.
fn cases() -> BTreeMap<&'static str, Vec<Value>> {
    let lost = || local("worker-0", "data-db-1", json!({UNUSABLE_SINCE: LOST_SINCE}));
    let lost_volume = |name: &str, node: &str, claim: &str, since: &str| {
        persistent(
            name,
            node,
            json!({UNUSABLE_SINCE: since}),
            json!({"claimRef": {"namespace": "shop", "name": claim}}),
        )
    };
    let record = "{\"volume\":\"…\",\"claim\":{\"namespace\":\"shop\",\"name\":\"data-db-0\",\"uid\":\"…\"},\"set\":{\"name\":\"db\",\
                  \"uid\":\"…\"},\"pod\":\"db-0\",\"reason\":\"DiskMissing\",\"policy\":\"Delete\",\"began\":\"2026-11-26T04:00:00Z\"}";
    let reacted = persistent("pvc-0a1b", "worker-0", json!({"localpool.dev/reaction": record}), json!({}));
    let mark = json!({"HostPathNotExist": "yes", "FirstMarkTime": "2026-01-12T08:00:00Z"});
    let path = "/mnt/local-storage/fast/disk-1 does not exist";
    let health = json!([{"reason": "HostPathNotExist", "severity": "Inaccessible", "since": "2026-01-12T08:00:00Z",
        "message": path}]);
    let watched = |name| json!({"name": name, "uid": "u", "path": "/mnt/a", "volumeMode": "Filesystem"});
    let unwatched = json!({"items": [
        pool(json!({"persistentVolumes": [watched("watched")]}), json!({})),
        persistent("local-pv-3f2a", "worker-3", json!({}), local_spec("a")),
        persistent("watched", "worker-0", json!({}), local_spec("b")),
    ]});
    let work = "background work (erasing, zeroing, the second copy of the label) fails, and is tried again: …";
    let elsewhere = "disk gpt-7a1f… is in the pool of node worker-1, and this object names node worker-0: …";
    let zeroed = "disk gpt-7a1f… is being zeroed for volume …: 800.0 GiB are left; call again";
    let replica = "OnlyReplica: The StatefulSet has one replica: there may be no other copy of the data.";
    let room = "WaitsForBinding: The new claim is not bound: no node may have room for it.";
    let deleting = json!({"phase": "Deleting", "reason": "DiskMissing", "message": "disk gpt-7a1f… is missing"});
    BTreeMap::from([
        ("LocalpoolDeletionStuck", vec![volumes(Some("2026-01-12T08:00:00Z"), deleting)]),
        ("LocalpoolDiskMissing", vec![pool_with(json!({"state": "Missing"}))]),
        ("LocalpoolDiskNotReady", vec![pool_with(json!({"state": "NotReady", "message": "could not be read: …"}))]),
        ("LocalpoolDiskOrphaned", vec![pool(json!({}), json!({"disks": [disk(json!({}))]}))]),
        ("LocalpoolDiskWorkFails", vec![pool_with(json!({"message": work}))]),
        (
            "LocalpoolJournalDamaged",
            vec![pool(
                json!({}),
                json!({"conditions": [
                    condition("Ready", "True", "AgentReady", ""),
                    condition("Claiming", "False", "JournalDamaged", "journal.json …"),
                ]}),
            )],
        ),
        ("LocalpoolLocalVolumeNotMounted", vec![local("worker-0", "db-0", json!({"NotMountPoint": "yes"}))]),
        (
            "LocalpoolPersistentVolumeMarked",
            vec![
                local("worker-0", "db-0", mark),
                json!({"items": [pool(json!({}), json!({"persistentVolumes": [
                    {"name": "local-pv-3f2a", "uid": "u", "health": health}, {"name": "well", "uid": "w"},
                ]}))]}),
            ],
        ),
        (
            "LocalpoolPersistentVolumeUnwatched",
            vec![
                unwatched,
                json!({"items": [pool(json!({"persistentVolumesOmitted": 3}), json!({})), pool(json!({}), json!({}))]}),
            ],
        ),
        ("LocalpoolReactionHeld", vec![volumes_with(condition("Reaction", "False", "OnlyReplica", replica)), lost()]),
        (
            "LocalpoolReactionStopped",
            vec![json!({"items": [
                lost_volume("pvc-0a1b", "worker-0", "data-db-1", LOST_SINCE),
                lost_volume("pvc-2c3d", "worker-3", "data-db-2", "2026-11-26T04:00:10Z"),
                persistent("well", "worker-1", json!({}), json!({})),
            ]})],
        ),
        (
            "LocalpoolReactionStuck",
            vec![
                json!({"items": [reacted, persistent("well", "worker-1", json!({}), json!({}))]}),
                volumes_with(condition("Reaction", "True", "WaitsForBinding", room)),
                lost(),
            ],
        ),
        ("LocalpoolVolumeElsewhere", vec![volumes_with(condition("Conflict", "True", "Elsewhere", elsewhere))]),
        ("LocalpoolVolumeNotMade", vec![volumes(None, json!({"phase": "Accepted", "message": zeroed}))]),
        ("LocalpoolVolumeUnclaimed", vec![volumes_with(condition("Unclaimed", "True", "NoPersistentVolume", "none"))]),
    ])
}

/// The programs for jq in a part of a page, each with what the page shows below it.
pub fn programs(part: &str) -> Vec<(&str, &str)> {
    let blocks: Vec<&str> = part.split("```").skip(1).step_by(2).collect();
    let shown = blocks.iter().skip(1).map(|block| block.strip_prefix("text\n").unwrap_or_default());
    let all = blocks.iter().zip(shown.chain([""]));
    all.filter_map(|(block, shown)| Some((block.split_once("| jq -r '")?.1.rsplit_once('\'')?.0, shown))).collect()
}

pub fn picked(program: &str, objects: &Value) -> String {
    jq(program, &objects.to_string())
}

/// What jq prints.
pub fn jq(program: &str, input: &str) -> String {
    let mut command = Command::new("jq");
    command.args(["-r", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut jq = command.spawn().expect("jq: scripts/deps test installs it");
    jq.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = jq.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn part<'p>(page: &'p str, head: &str) -> &'p str {
    page.split("\n## ").find(|part| part.starts_with(&format!("{head}\n"))).expect("a part of a runbook")
}

#[test]
fn what_a_runbook_picks_with_jq_is_what_its_page_shows_and_nothing_of_what_is_well() {
    let mut cases = cases();
    for entry in std::fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let page = entry.unwrap().file_name().into_string().unwrap();
        let (alert, text) = (page.strip_suffix(".md").unwrap(), read(&format!("docs/runbooks/{page}")));
        if alert == "README" {
            continue;
        }
        let (programs, objects) = (programs(part(&text, "Look at")), cases.remove(alert).unwrap_or_default());
        assert_eq!(programs.len(), objects.len(), "{alert}: each program needs objects here");
        for ((program, shown), objects) in programs.iter().zip(&objects) {
            assert_eq!(picked(program, objects), *shown, "{alert}: {program}");
        }
    }
    assert!(cases.is_empty(), "no runbook has these programs: {:?}", cases.keys());
}

/// The lines of a verb on a page, by words that its source has.
const PRINTED: &[(&str, &str, &[&str])] = &[
    (
        "LocalpoolDiskMissing",
        "src/agent/admin/forget.rs",
        &[
            ", which is missing",
            " (it was ",
            "another disk may take its place in the set",
            "if it comes back, nothing on it is offered, used or erased until `localpool disk adopt`",
        ],
    ),
    (
        "LocalpoolDiskMissing",
        "src/agent/admin/lost_array.rs",
        &["is given up: deleting it succeeds, and erases nothing"],
    ),
    (
        "LocalpoolDiskOrphaned",
        "src/agent/admin/release.rs",
        &[" label and partition tables", "no set claims it again until `localpool disk adopt "],
    ),
    (
        "LocalpoolJournalDamaged",
        "src/agent/admin/journal.rs",
        &[
            "as journal.damaged-TIME beside it, and begin a new one",
            "forgotten: the claims of these bare devices, and their volumes",
            "forgotten: disks that are missing, and the volumes on them",
            "forgotten: disks that were released",
        ],
    ),
    (
        "LocalpoolVolumeInConflict",
        "src/agent/admin/settle.rs",
        &["a fresh id", "to the volume on ", ": it is found, and its data is unchanged", "never formatted"],
    ),
    (
        "LocalpoolVolumeWithoutNode",
        "src/operator/volume/abandon.rs",
        &[
            "would give up ",
            " of the deleted node ",
            " still names it: delete its claim, and the PersistentVolume is deleted too",
        ],
    ),
    (
        "LocalpoolVolumeWithoutNode",
        "src/operator/drain/forget.rs",
        &[
            "would delete DevicePool ",
            "nothing is erased: its disks still have the data; a node that comes back under this name finds its volumes",
        ],
    ),
];

#[test]
fn what_a_verb_of_a_runbook_prints_is_in_its_source() {
    for (alert, source, words) in PRINTED {
        let (page, code) = (read(&format!("docs/runbooks/{alert}.md")), read(source));
        let shown: String =
            part(&page, "Do").split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        for word in *words {
            assert!(shown.contains(word), "{alert} does not show {word:?}: {shown}");
            assert!(code.contains(word), "{source} does not print {word:?}");
        }
    }
}
