//! Each example serves pods: an unchanged set or LocalVolume, on a disk of this machine, and a pod with a claim of its
//! mode. Only what ties an example to machines of its own (nodes, sizes, models, paths) is replaced.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::pods::As;
use crate::sets::MIB;

/// One object of a file below the root of the repository.
fn example(file: &str) -> Value {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Adapts it to this check, for any node.
fn adopted(space: &Space, mut object: Value) -> Value {
    object["metadata"] = json!({"name": "example", "namespace": space.namespace});
    let spec = object["spec"].as_object_mut().expect("a spec");
    spec.remove("nodeSelector");
    object
}

/// A pod of that mode writes to a volume of the class and reads it again, and nothing of it stays.
async fn serves(space: &Space, class: &str, seen: As) {
    space.running("app", class, "64Mi", seen).await;
    let (write, read) = match seen {
        As::Folder => ("echo hello >/data/file && sync", "cat /data/file"),
        As::Device => {
            ("echo hello | dd of=/dev/data conv=fsync 2>/dev/null", "dd if=/dev/data bs=6 count=1 2>/dev/null")
        }
    };
    space.shell("app", write).await;
    assert_eq!(space.shell("app", read).await, "hello\n", "{class}");
    space.remove_pod("app").await;
    space.remove_claim("app").await;
}

async fn set_serves(space: &Space, file: &str, seen: As) {
    let class = format!("{}-example", space.namespace);
    let disk = space.machine().disk(&class, 400 * MIB).await;
    let mut set = adopted(space, example(file));
    let spec = set["spec"].as_object_mut().expect("a spec");
    spec.remove("minDeviceCount");
    spec.insert("storageClassName".to_owned(), json!(class));
    let include = json!({"deviceTypes": ["loop"], "minSize": "0", "paths": [disk.image.to_str().unwrap()]});
    spec.insert("deviceInclusionSpec".to_owned(), include);
    for size in ["size", "partSize"] {
        if set["spec"]["partitioningSpec"].get(size).is_some() {
            set["spec"]["partitioningSpec"][size] = json!("100M");
        }
    }
    space.create(&set).await;
    space.until_claimed("example", 1).await;
    serves(space, &class, seen).await;
    space.remove_disk("example", &disk).await;
    space.delete("StorageClass", None, &class).await;
}

/// Each class of a LocalVolume has a disk of its own.
async fn local_volume_serves(space: &Space, file: &str) {
    let mut volume = adopted(space, example(file));
    let mut served = Vec::new();
    for (n, devices) in volume["spec"]["storageClassDevices"].as_array_mut().expect("classes").iter_mut().enumerate() {
        let class = format!("{}-named{n}", space.namespace);
        let disk = space.machine().disk(&class, 400 * MIB).await;
        devices["storageClassName"] = json!(class);
        devices["devicePaths"] = json!([disk.node.to_str().unwrap()]);
        let seen = if devices["volumeMode"] == "Block" { As::Device } else { As::Folder };
        served.push((class, disk, seen));
    }
    space.create(&volume).await;
    let taken = |volume: &Value| volume["status"]["totalProvisionedDeviceCount"] == served.len();
    space.until("LocalVolume", space.here(), "example", "its devices are taken", taken).await;
    for (class, _, seen) in &served {
        serves(space, class, *seen).await;
    }
    space.delete("LocalVolume", space.here(), "example").await;
    space.until_gone("LocalVolume", space.here(), "example").await;
    for (class, disk, _) in &served {
        space.machine().remove(space, disk).await;
        space.delete("StorageClass", None, class).await;
    }
}

#[test]
fn each_example_of_the_seeds_serves_a_pod_of_its_mode() {
    check(Needs::Machine, async |space| {
        for (sample, seen) in
            [("seed-set-block", As::Device), ("seed-set-partitioned", As::Device), ("seed-set-filesystem", As::Folder)]
        {
            set_serves(space, &format!("tests/cluster/together/samples/{sample}.yaml"), seen).await;
        }
    });
}

#[test]
fn each_example_of_the_operator_serves_a_pod_of_its_mode() {
    check(Needs::Machine, async |space| {
        set_serves(space, "tests/cluster/together/samples/operator-localvolumeset.yaml", As::Device).await;
        local_volume_serves(space, "tests/cluster/together/samples/operator-localvolume.yaml").await;
    });
}

#[test]
fn each_example_of_ours_serves_a_pod_of_its_mode() {
    check(Needs::Machine, async |space| {
        for (set, seen) in [("carved", As::Device), ("slots", As::Folder), ("whole", As::Device)] {
            set_serves(space, &format!("examples/set-{set}.yaml"), seen).await;
        }
        local_volume_serves(space, "examples/local-volume.yaml").await;
    });
}
