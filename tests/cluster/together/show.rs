//! What people and monitoring see.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::check::{Needs, check};
use crate::cluster::{SOON, eventually, name};
use crate::pods::As;

/// The words of a table's head and of the line that begins with `first`.
fn columns<'a>(table: &'a str, first: &str) -> (Vec<&'a str>, Vec<&'a str>) {
    let line = |line: &'a str| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let head = table.lines().next().unwrap_or_default();
    let found = table.lines().find(|line| line.starts_with(first));
    (line(head), line(found.unwrap_or_else(|| panic!("no line of {first}: {table}"))))
}

#[test]
fn kubectl_get_answers_what_is_free_where_and_whose_each_volume_is() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let node = volume["spec"]["node"].as_str().unwrap();

        let table = space.kubectl(&["get", "devicepools"]).await;
        let (head, line) = columns(&table, node);
        let of_disks = ["DISKS", "MISSING", "UNHEALTHY", "CORDONED", "VOLUMES"];
        let wanted = [&["AGENT", "SINCE"][..], &of_disks, &["SIZE", "FREE", "LARGEST", "CORDON"]].concat();
        assert_eq!(head, [&["NAME"][..], &wanted, &["AGE"]].concat());
        assert_eq!(line[1], "True", "{table}");
        assert!(line[3].parse::<u64>().unwrap() > 0 && line[7].parse::<u64>().unwrap() > 0, "{table}");
        assert!(
            line[8..11].iter().all(|size| size.ends_with("iB") || size.ends_with('i')),
            "sizes for people: {table}"
        );

        let table = space.kubectl(&["get", "poolvolumes"]).await;
        let (head, line) = columns(&table, name(&volume));
        assert_eq!(head, ["NAME", "NODE", "STATE", "HEALTH", "SIZE", "MODE", "CLAIM", "DISK", "AGE"]);
        assert_eq!(line[1..6], [node, "Ready", "Healthy", "64Mi", "Filesystem"], "{table}");

        let table = space.kubectl(&["get", "localvolumesets", "--all-namespaces"]).await;
        let head = table.lines().next().unwrap_or_default();
        for column in ["NAMESPACE", "NAME", "STORAGECLASS", "DEVICES", "PARTITIONS", "AGE"] {
            assert!(head.contains(column), "{table}");
        }
        let carved = table.lines().find(|line| line.contains("local-carved")).unwrap();
        let devices = carved.split_whitespace().nth(3).unwrap();
        assert!(devices.parse::<u64>().unwrap() > 0, "{table}");
    });
}

#[test]
fn localpool_devices_in_the_agents_pod_tells_of_every_disk() {
    check(Needs::Machine, async |space| {
        let output = space.agent(&["localpool", "devices"]).await;
        for disk in space.machine().disks() {
            let stem = disk.image.file_stem().unwrap().to_str().unwrap();
            if !["whole-", "slots-", "carved-"].iter().any(|set| stem.starts_with(set)) {
                continue;
            }
            let path = format!("{} ", disk.node.display());
            let line =
                output.lines().find(|line| line.starts_with(&path)).unwrap_or_else(|| panic!("{path}: {output}"));
            assert!(line.contains("Ours") && line.contains("in pool"), "{line}");
        }
        let root = output.lines().find(|line| line.contains("mounted at /")).expect("the machine's own disk");
        assert!(root.contains("Theirs"), "{root}");
    });
}

#[test]
fn kubelet_tells_the_statistics_of_a_claim() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved", "256Mi", As::Folder).await;
        space.shell("data", "dd if=/dev/zero of=/data/file bs=1M count=20 2>/dev/null && sync").await;
        let node = space.volume_of(&space.namespace, "data").await["spec"]["node"].as_str().unwrap().to_owned();
        let label = format!("namespace=\"{}\",persistentvolumeclaim=\"data\"", space.namespace);
        let poll = async || {
            let text = space.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")]).await;
            let value = |name: &str| -> Option<f64> {
                let line = text.lines().find(|line| line.starts_with(&format!("{name}{{{label}")))?;
                line.rsplit(' ').next()?.parse().ok()
            };
            let names = ["capacity_bytes", "used_bytes", "available_bytes", "inodes", "inodes_free"];
            let found: Vec<_> = names.iter().map(|name| value(&format!("kubelet_volume_stats_{name}"))).collect();
            match found[..] {
                [Some(size), Some(used), Some(free), Some(inodes), Some(_)]
                    if used >= 20e6 && size > 200e6 && free < size && inodes > 0.0 =>
                {
                    Ok(())
                }
                _ => Err(found),
            }
        };
        eventually("kubelet_volume_stats of the claim", SOON, poll).await;
    });
}

/// What asks for metrics.
pub(super) const NAMED_METRICS: [&str; 2] = [
    include_str!("../../../charts/localpool/files/alerts.yaml"),
    include_str!("../../../charts/localpool/files/dashboard.json"),
];
/// Metrics without a time series as long as nothing is wrong, and the check that asks for one when something is.
const ASKED_FOR: [(&str, &str); 8] = [
    ("localpool_controller_abnormal_volumes", "together/given_up.rs"),
    ("localpool_controller_marked_persistent_volumes", "together/marks.rs"),
    ("localpool_controller_reaction_held", "alone/reaction.rs"),
    ("localpool_controller_reaction_steps_total", "alone/reaction.rs"),
    ("localpool_controller_reconcile_errors_total", "together/runbooks.rs"),
    ("localpool_controller_set_deletion_timestamp_seconds", "together/runbooks.rs"),
    ("localpool_disk_unhealthy", "together/given_up.rs"),
    ("localpool_pool_unhealthy_disks", "together/given_up.rs"),
];
/// Those of disks that say more of themselves than a loop device does, SCSI and NVMe: unit tests in
/// `src/role` have them.
const NOT_OF_LOOP: [&str; 5] = [
    "localpool_disk_errors_total",
    "localpool_disk_media_errors_total",
    "localpool_disk_spare_percent",
    "localpool_disk_temperature_celsius",
    "localpool_disk_wear_percent",
];

/// Whether a metric may have no time series while all is well.
pub(super) fn is_none_while_well(metric: &str) -> bool {
    ASKED_FOR.iter().map(|(metric, _)| metric).chain(&NOT_OF_LOOP).any(|known| *known == metric)
}

/// The metrics that a text names; a histogram by its own name.
pub(super) fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("localpool_"));
    metrics.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[test]
fn agents_and_controllers_answer_metrics_and_probes() {
    check(Needs::Cluster, async |space| {
        // The leader writes its status.
        space.create(&space.set("nowhere", "/nowhere/*")).await;
        space.set_says("nowhere", "Available", "False", "NoDevices").await;
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let pods = space.list("Pod", Some(crate::cluster::HOME)).await;
        let (mut seen, mut served) = ([0, 0], BTreeSet::new());
        for pod in &pods {
            let component = pod["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap_or_default();
            let (which, port) = match component {
                "node" => (0, 9808),
                "controller" => (1, 9809),
                _ => continue,
            };
            let get = async |path: &str| {
                let path = format!("/api/v1/namespaces/localpool/pods/{}:{port}/proxy{path}", name(pod));
                space.kubectl(&["get", "--raw", &path]).await
            };
            get("/healthz").await;
            get("/readyz").await;
            let metrics = get("/metrics").await;
            for (name, kind) in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
                assert_eq!(name.ends_with("_total"), kind == "counter", "{component}: {name} is a {kind}");
                served.insert(name.to_owned());
            }
            let is_of_node = |line: &&str| !line.starts_with("localpool_") || line.contains("node=\"");
            assert!(which == 1 || metrics.lines().all(|line| is_of_node(&line)), "{component}: {metrics}");
            // The number of time series does not grow with the number of volumes.
            for word in [name(&volume), volume["spec"]["volumeName"].as_str().unwrap(), "\"data\""] {
                assert!(!metrics.contains(word), "{component} has a time series of volume {word}: {metrics}");
            }
            seen[which] += 1;
        }
        let named = NAMED_METRICS.iter().flat_map(|text| metrics_in(text));
        let missing: BTreeSet<String> =
            named.filter(|name| !served.contains(name) && !is_none_while_well(name)).collect();
        assert!(missing.is_empty(), "alerts or panels ask for {missing:?}, which nobody serves");
        let controllers: Value = space.get("Deployment", Some("localpool"), "localpool-controller").await.unwrap();
        assert!(seen[0] > 0 && controllers["spec"]["replicas"] == seen[1], "{seen:?}");
        for (metric, file) in ASKED_FOR {
            let text = std::fs::read_to_string(format!("{}/tests/cluster/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            assert!(text.contains(metric), "{file} does not ask for {metric}");
        }
    });
}
