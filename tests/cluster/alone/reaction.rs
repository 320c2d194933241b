//! The reaction: a disk dies under a StatefulSet of three, and it is whole again without a person (docs/reaction.md).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, eventually, name, run};
use crate::machine::Disk;
use crate::pods::{As, With as _, is_ready};
use crate::sets::MIB;
use crate::simulated::{SIMULATED, SimulatedNodes};

/// Three simulated ones with a disk each, and one to spare.
const SPARE: usize = 4;
/// `recoverAfter`, the shortest that there is, and a time in which a controller that runs would have reacted.
const RECOVER: Duration = Duration::from_secs(60);
const AND_MORE: Duration = Duration::from_secs(5);
/// Two sets, one after the other, each after its interval.
const IN_TIME: Duration = Duration::from_secs(300);

/// The chart of this tree, with the reaction switched on. Two of five nodes are bad here.
async fn switch_on() {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
    let mode = "controller.reaction.mode=On";
    let words = ["upgrade", "localpool", chart, "--namespace", HOME, "--wait", "--set-string", mode];
    let more = ["--set-string", "controller.reaction.recoverAfter=1m,controller.reaction.maxBadNodes=50%"];
    // Its job tolerates every taint, and would be scheduled to a node without a machine.
    let jobs = ["--set", "crds.apply=false"];
    run("helm", &[&words[..], &more, &jobs].concat()).await;
}

/// A StatefulSet of three whose pods are on different disks; a budget of its pods allows one to be away.
async fn set_of_three(space: &Space, name: &str, class: &str, size: &str, placement: Value) {
    let claim = space.claim("data", class, size);
    let template = json!({"metadata": {"name": "data"}, "spec": claim["spec"]});
    let mut pod = space.pod("any", "-", As::Folder).with("/spec/volumes", json!([]));
    for (key, value) in placement.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    let labels = json!({"app": name});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": space.namespace},
        "spec": {
            "serviceName": name, "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            "volumeClaimTemplates": [template],
        },
    });
    space.create(&object).await;
    let budget = format!(
        r#"{{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{{"name":"{name}"}},"spec":{{"minAvailable":2,"selector":{{"matchLabels":{{"app":"{name}"}}}}}}}}"#
    );
    let file = space.machine().work.join(format!("{name}-budget.json"));
    std::fs::write(&file, budget).unwrap();
    space.kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
    for replica in 0..3 {
        space.until_running(&format!("{name}-{replica}")).await;
    }
}

/// One pod of a set, with what it has.
struct Member {
    pod: Value,
    claim: Value,
    volume: Value,
}

impl Member {
    async fn of(space: &Space, pod: &str) -> Self {
        let claim = space.get("PersistentVolumeClaim", space.here(), &format!("data-{pod}")).await.expect("its claim");
        let volume = claim["spec"]["volumeName"].as_str().expect("a claim that is bound");
        Self {
            pod: space.get("Pod", space.here(), pod).await.expect("the pod"),
            volume: space.get("PersistentVolume", None, volume).await.expect("its volume"),
            claim,
        }
    }

    fn uids(&self) -> [&Value; 2] {
        [&self.pod["metadata"]["uid"], &self.claim["metadata"]["uid"]]
    }

    fn node(&self) -> &str {
        self.pod["spec"]["nodeName"].as_str().expect("it is scheduled")
    }
}

async fn members(space: &Space, set: &str) -> Vec<Member> {
    let mut all = Vec::new();
    for replica in 0..3 {
        all.push(Member::of(space, &format!("{set}-{replica}")).await);
    }
    all
}

/// The pod has another claim, on another volume, and is ready.
async fn is_whole_again(space: &Space, before: &Member) -> Member {
    let pod = name(&before.pod).to_owned();
    let look = async || {
        let claim = space.get("PersistentVolumeClaim", space.here(), name(&before.claim)).await.ok_or("no claim")?;
        let now = space.get("Pod", space.here(), &pod).await.ok_or("no pod")?;
        let is_new = claim["metadata"]["uid"] != before.claim["metadata"]["uid"]
            && now["metadata"]["uid"] != before.pod["metadata"]["uid"];
        if is_new && claim["status"]["phase"] == "Bound" && is_ready(&now) { Ok(()) } else { Err("not yet") }
    };
    eventually(&format!("{pod} is whole again"), IN_TIME, look).await;
    Member::of(space, &pod).await
}

/// Its data waits for a person, who decides that nobody needs it.
async fn let_go(space: &Space, before: &Member) {
    let volume = name(&before.volume);
    let reacted = |volume: &Value| {
        volume["metadata"]["annotations"]["localpool.dev/reacted"].is_string()
            && volume["metadata"]["annotations"]["localpool.dev/reaction"].is_null()
    };
    let kept = space.until("PersistentVolume", None, volume, "the reaction has ended", reacted).await;
    assert_eq!(
        (&kept["status"]["phase"], &kept["spec"]["persistentVolumeReclaimPolicy"]),
        (&json!("Released"), &json!("Retain"))
    );
    assert_eq!(kept["spec"]["claimRef"]["uid"], before.claim["metadata"]["uid"], "nobody else gets its data");
    let handle = kept["spec"]["csi"]["volumeHandle"].as_str().unwrap();
    let is_well = |volume: &Value| {
        let conditions = volume["status"]["conditions"].as_array();
        volume["status"]["phase"] == "Ready"
            && conditions.into_iter().flatten().any(|one| one["type"] == "Healthy" && one["status"] == "True")
    };
    space.until("PoolVolume", None, handle, "the disk is back, with its volume", is_well).await;
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    space.patch("PersistentVolume", None, volume, &policy).await;
    space.until_gone("PersistentVolume", None, volume).await;
}

/// Without a byte, a disk is not there any more; returns what was on it.
async fn dies(space: &Space, disk: &Disk) -> String {
    let image = disk.image.to_str().unwrap();
    let saved = space.machine().work.join("saved.img").to_str().unwrap().to_owned();
    run("cp", &["--sparse=always", image, &saved]).await;
    run("truncate", &["--size=0", image]).await;
    run("losetup", &["--set-capacity", disk.node.to_str().unwrap()]).await;
    saved
}

async fn returns(disk: &Disk, saved: &str) {
    run("cp", &["--sparse=always", saved, disk.image.to_str().unwrap()]).await;
    run("losetup", &["--set-capacity", disk.node.to_str().unwrap()]).await;
}

struct Stage {
    simulated: SimulatedNodes,
    disks: Vec<Disk>,
}

impl Stage {
    async fn new(space: &Space) -> Self {
        let names: Vec<String> = (0..SPARE).map(|number| format!("{}-{number}", space.namespace)).collect();
        let simulated = SimulatedNodes::new(space, &names, 1 << 30).await;
        let mut disks = Vec::new();
        for number in 0..SPARE {
            disks.push(space.machine().disk(&format!("{}-{number}", space.namespace), 128 * MIB).await);
        }
        Self { simulated, disks }
    }
}

/// Sets, classes that ask for the reaction, and both StatefulSets.
async fn prepare(space: &Space, stage: &Stage) {
    let images: Vec<&str> = stage.disks.iter().map(|disk| disk.image.to_str().unwrap()).collect();
    let real = space.set("real", "-").with("/spec/deviceInclusionSpec/paths", json!(images));
    let expression = json!({"key": SIMULATED, "operator": "Exists"});
    let fake = space
        .set("fake", "-")
        .with("/spec/deviceInclusionSpec", json!({"deviceTypes": ["disk"], "minSize": "0"}))
        .with("/spec/tolerations", json!([{"key": SIMULATED, "operator": "Exists"}]))
        .with("/spec/nodeSelector", json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]}));
    space.patch("Namespace", None, &space.namespace, &json!({"metadata": {"labels": asks()}})).await;
    for (set, object) in [("real", real), ("fake", fake)] {
        space.create(&object).await;
        space.until_claimed(set, i64::try_from(SPARE).unwrap()).await;
        let class = format!("{}-{set}", space.namespace);
        space.patch("StorageClass", None, &class, &json!({"metadata": {"labels": asks()}})).await;
    }
    let term = json!({"labelSelector": {"matchLabels": {"app": "fake"}}, "topologyKey": "kubernetes.io/hostname"});
    let apart = json!({
        "nodeSelector": {SIMULATED: "yes"},
        "tolerations": [{"key": SIMULATED, "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    });
    // A disk has room for one.
    set_of_three(space, "real", &format!("{}-real", space.namespace), "100Mi", json!({})).await;
    set_of_three(space, "fake", &format!("{}-fake", space.namespace), "600Mi", apart).await;
}

fn asks() -> Value {
    json!({"localpool.dev/reaction": "StatefulSet"})
}

async fn play(space: &Space, stage: &Stage) {
    space.shell("real-0", "echo kept >/data/line && sync").await;
    let (real, fake) = (members(space, "real").await, members(space, "fake").await);
    let volume = real[1].volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
    let disk = space.machine().place(volume).await.expect("it is on a disk").disk;
    let lost = stage.simulated.node(fake[1].node());

    let saved = dies(space, &disk).await;
    let platter = lost.host.unplug("sda").expect("it was there");
    lost.pool().nudge();
    let is_lost = |volume: &Value| volume["metadata"]["annotations"]["localpool.dev/unusable-since"].is_string();
    for member in [&real[1], &fake[1]] {
        space.until("PersistentVolume", None, name(&member.volume), "is lost", is_lost).await;
    }
    tokio::time::sleep(RECOVER + AND_MORE).await;
    for (before, now) in
        real.iter().chain(&fake).zip(members(space, "real").await.iter().chain(&members(space, "fake").await))
    {
        assert_eq!(before.uids(), now.uids(), "it is switched off");
        assert!(now.volume["metadata"]["annotations"]["localpool.dev/reaction"].is_null());
    }

    switch_on().await;
    is_whole_again(space, &real[1]).await;
    let moved = is_whole_again(space, &fake[1]).await;
    assert_ne!(moved.node(), fake[1].node());
    space.shell_soon("real-1", "echo new >/data/line && sync").await;
    for (before, now) in [(&real, members(space, "real").await), (&fake, members(space, "fake").await)] {
        for replica in [0, 2] {
            assert_eq!(before[replica].uids(), now[replica].uids(), "the others are not touched");
        }
    }
    assert_eq!(space.shell("real-0", "cat /data/line").await.trim(), "kept");
    space.event("data-real-1", &["ReactionClaimDeleted"]).await;

    returns(&disk, &saved).await;
    lost.host.plug("sda", &format!("SERIAL-{}", lost.name), platter);
    lost.pool().nudge();
    let_go(space, &real[1]).await;
    let_go(space, &fake[1]).await;
}

/// Everything goes, so that no check after this one finds a node that nobody runs.
async fn clear(space: &Space, stage: Stage) {
    for set in ["real", "fake"] {
        space.delete("StatefulSet", space.here(), set).await;
        for replica in 0..3 {
            let pod = format!("{set}-{replica}");
            space.remove_pod(&pod).await;
            space.remove_claim(&format!("data-{pod}")).await;
        }
        space.delete("LocalVolumeSet", space.here(), set).await;
        space.until_gone("LocalVolumeSet", space.here(), set).await;
    }
    stage.simulated.remove(space).await;
    for disk in &stage.disks {
        space.machine().remove(space, disk).await;
    }
}

#[test]
fn a_disk_dies_under_a_set_of_three_and_it_is_whole_elsewhere_and_nothing_is_deleted_while_it_is_off() {
    check(Needs::Machine, async |space| {
        let stage = Stage::new(space).await;
        let steps = async {
            prepare(space, &stage).await;
            play(space, &stage).await;
        };
        let ended = AssertUnwindSafe(steps).catch_unwind().await;
        if ended.is_err() {
            for words in [&["get", "pv", "-o", "yaml"][..], &["get", "statefulsets,pods,pvc,pdb", "-A", "-o", "wide"]] {
                eprintln!("{}", crate::cluster::kubectl(words).await);
            }
        }
        clear(space, stage).await;
        // It stays switched on for the checks after this one: no class and no namespace of theirs asks for it.
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
