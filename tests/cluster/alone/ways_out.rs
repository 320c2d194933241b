//! Disks that move, nodes that are installed again, and an etcd that is older than the disks: as docs/troubleshooting.md
//! says, on nodes of which only the machines are simulated.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use kube::api::{Patch, PatchParams};
use localpool::host::{Geometry, fake::FakeHost};
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, kubectl, name};
use crate::page::{Section, in_the_controllers_pod, section, typed};
use crate::pods::{As, With as _};
use crate::sim::SimNode;
use crate::simulated::{SIMULATED, SimulatedNodes};

/// The nodes, each for one story; the disk moves from the first to the second.
const NODES: usize = 5;
const SIZE: u64 = 1 << 30;

fn page(title: &str) -> Section {
    section("troubleshooting.md", title)
}

/// Orders something for a disk.
async fn ordered(order: &str, node: &str, id: &str) {
    let values = [("NODE", node), ("ID", id), ("Release", order)];
    typed(&section("health.md", "Orders for a disk").command("kubectl patch devicepool", &values)).await;
}

fn pinned(space: &Space, pod: &str, node: &str) -> Value {
    space
        .pod(pod, pod, As::Folder)
        .with("/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
        .with("/spec/tolerations", json!([{"key": SIMULATED, "operator": "Exists"}]))
}

/// A pod on this node with a claim; returns the PoolVolume.
async fn running_on(space: &Space, pod: &str, node: &str) -> Value {
    let class = format!("{}-fake", space.namespace);
    space.create(&space.claim(pod, &class, "100Mi")).await;
    space.create(&pinned(space, pod, node)).await;
    space.until_running(pod).await;
    let volume = space.volume_of(&space.namespace, pod).await;
    space.until("PoolVolume", None, name(&volume), "is Ready", |volume| volume["status"]["phase"] == "Ready").await
}

async fn until_health(space: &Space, volume: &str, reason: &str) {
    let has_it = |volume: &Value| {
        volume["status"]["health"].as_array().into_iter().flatten().any(|entry| entry["reason"] == reason)
    };
    space.until("PoolVolume", None, volume, &format!("has the reason {reason}"), has_it).await;
}

async fn persistent_volume(space: &Space, claim: &str) -> String {
    space.until_bound(claim).await["spec"]["volumeName"].as_str().unwrap().to_owned()
}

/// A volume that was found has a PersistentVolume and a claim again, and a pod uses it.
async fn used_again(space: &Space, claim: &str, volume: &str, node: &str) {
    let of_claim = format!("{}/{claim}", space.namespace);
    let verb = page("A disk moves to another node")
        .command("volume pv --claim", &[("NAMESPACE/NAME", &of_claim), ("VOLUME", volume)]);
    let file = space.machine().work.join(format!("{claim}.yaml"));
    std::fs::write(&file, in_the_controllers_pod(&verb).await).unwrap();
    kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
    space.create(&pinned(space, claim, node)).await;
    space.until_running(claim).await;
    space.until("PoolVolume", None, volume, "is Ready", |volume| volume["status"]["phase"] == "Ready").await;
}

/// With its PersistentVolume, which says Retain, and what is on the disk.
async fn erased(space: &Space, claim: &str, volume: &str) {
    let kept = persistent_volume(space, claim).await;
    space.remove_pod(claim).await;
    space.remove_claim(claim).await;
    typed(&page("A volume whose PersistentVolume is gone").command("kubectl patch pv NAME", &[("NAME", &kept)])).await;
    space.until_gone("PoolVolume", None, volume).await;
}

/// Section "A disk moves to another node". The order Erase waits for ten minutes there, and so does nobody here: the old node
/// does not come back either.
async fn moves(space: &Space, from: &mut SimNode, to: &SimNode) {
    let page = page("A disk moves to another node");
    let object = running_on(space, "moved", &from.name).await;
    let (volume, id) = (name(&object), object["status"]["disk"].as_str().unwrap());
    let listed = typed(&page.command("kubectl get poolvolumes -o wide", &[])).await;
    let is_it =
        |line: &&str| [volume, id, &format!("{}/moved", space.namespace)].iter().all(|word| line.contains(word));
    assert!(listed.lines().any(|line| is_it(&line)), "{listed}");
    let pv = persistent_volume(space, "moved").await;
    space.remove_pod("moved").await;
    typed(&page.command("kubectl patch pv NAME", &[("NAME", &pv)])).await;
    space.remove_claim("moved").await;
    space.delete("PersistentVolume", None, &pv).await;
    space.until_gone("PersistentVolume", None, &pv).await;

    ordered("Adopt", &to.name, id).await;
    let platter = from.host.unplug("sda").expect("it was there");
    from.pool().nudge();
    to.host.plug("sdb", &format!("SERIAL-{}", from.name), platter);
    to.pool().nudge();
    space.until_ordered(&to.name, id, "Done", "label").await;
    until_health(space, volume, "DiskElsewhere").await;
    ordered("GiveUp", &from.name, id).await;
    space.until_ordered(&from.name, id, "Done", "").await;
    let erase =
        self::page("A volume whose PersistentVolume is gone").command("\"order\":\"Erase\"", &[("VOLUME", volume)]);
    typed(&erase).await;
    let waits = |volume: &Value| {
        let conditions = volume["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "OrderDone" && one["reason"] == "UnclaimedTooShort")
    };
    space.until("PoolVolume", None, volume, "is not erased yet", waits).await;

    from.kill().await;
    let gone = self::page("A node never comes back");
    typed(&gone.command("kubectl delete node", &[("NODE", &from.name)])).await;
    typed(&gone.command("\"order\":\"Abandon\"", &[("NODE", &from.name)])).await;
    let is_found = |volume: &Value| volume["spec"]["node"] == to.name.as_str() && volume["status"]["phase"] == "Found";
    space.until("PoolVolume", None, volume, "is found on the other node", is_found).await;
    used_again(space, "again", volume, &to.name).await;
    erased(space, "again", volume).await;
    ordered("Release", &to.name, id).await;
    space.until_ordered(&to.name, id, "Done", "wiped").await;
}

/// Section "A node is installed again under its name".
async fn installed_again(space: &Space, node: &mut SimNode) {
    let page = page("A node is installed again under its name");
    let object = running_on(space, "reinstalled", &node.name).await;
    let (volume, id) = (name(&object), object["status"]["disk"].as_str().unwrap());
    node.kill().await;
    let host = FakeHost::default();
    host.add_disk("sda", &format!("NEW-{}", node.name), Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    node.host = Arc::new(host);
    node.run(&space.client);
    until_health(space, volume, "DiskMissing").await;
    let listed = typed(&page.command("kubectl get poolvolumes -o wide", &[])).await;
    let is_it = |line: &&str| [volume, id, "DiskMissing"].iter().all(|word| line.contains(word));
    assert!(listed.lines().any(|line| is_it(&line)), "{listed}");
    ordered("GiveUp", &node.name, id).await;
    space.until_ordered(&node.name, id, "Done", "").await;
    space.remove_pod("reinstalled").await;
    space.remove_claim("reinstalled").await;
    space.until_gone("PoolVolume", None, volume).await;
    running_on(space, "new", &node.name).await;
    space.remove_pod("new").await;
    space.remove_claim("new").await;
}

/// Section "A node never comes back".
async fn forgotten(space: &Space, node: &mut SimNode) {
    let page = page("A node never comes back");
    let object = running_on(space, "forgotten", &node.name).await;
    let volume = name(&object);
    node.kill().await;
    let platter = node.host.platter("sda").expect("its disk");
    let writes = platter.write_count();
    typed(&page.command("kubectl delete node", &[("NODE", &node.name)])).await;
    until_health(space, volume, "NodeGone").await;
    let is_silent = |pool: &Value| {
        let conditions = pool["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "Unknown")
    };
    space.until("DevicePool", None, &node.name, "its agent is silent", is_silent).await;
    let dry_run = page.command("pool forget --dry-run", &[("NODE", &node.name)]);
    let told = in_the_controllers_pod(&dry_run).await;
    assert!(told.contains(volume), "{told}");
    in_the_controllers_pod(&dry_run.replace("--dry-run ", "")).await;
    space.until_gone("PoolVolume", None, volume).await;
    space.until_gone("DevicePool", None, &node.name).await;
    space.remove_pod("forgotten").await;
    space.remove_claim("forgotten").await;
    assert_eq!(platter.write_count(), writes, "nothing is erased");
}

/// What a backup of etcd has of a volume.
struct Saved([Value; 3]);

impl Saved {
    async fn of(space: &Space, claim: &str) -> Self {
        let pv = persistent_volume(space, claim).await;
        let volume = space.volume_of(&space.namespace, claim).await;
        Self([
            space.get("PersistentVolume", None, &pv).await.unwrap().with("/spec/claimRef/uid", Value::Null),
            space.get("PersistentVolumeClaim", space.here(), claim).await.unwrap(),
            space.get("PoolVolume", None, name(&volume)).await.unwrap(),
        ])
    }

    /// They are there again.
    async fn restore(&self, space: &Space) {
        for object in &self.0 {
            let mut object = object.clone();
            for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                object["metadata"].as_object_mut().unwrap().remove(field);
            }
            // The claim has another uid now, so it is bound again.
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.remove("pv.kubernetes.io/bind-completed");
            }
            let (kind, namespace) = (object["kind"].as_str().unwrap(), object["metadata"]["namespace"].as_str());
            space.create(&object).await;
            if kind == "PoolVolume" {
                let status = json!({"status": object["status"]});
                let api = space.api(kind, namespace);
                api.patch_status(name(&object), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
            }
        }
    }

    /// They were never there.
    async fn remove(&self, space: &Space) {
        for object in &self.0 {
            let (kind, namespace) = (object["kind"].as_str().unwrap(), object["metadata"]["namespace"].as_str());
            space.delete(kind, namespace, name(object)).await;
            let none = json!({"metadata": {"finalizers": null}});
            let _ = space.try_patch(kind, namespace, name(object), &none).await;
            space.until_gone(kind, namespace, name(object)).await;
        }
    }
}

/// Runs while there is no controller; they are back when it returns, also after a failure.
async fn without_controllers(space: &Space, work: impl Future<Output = ()>) {
    let deployment = space.get("Deployment", Some(HOME), "localpool-controller").await.unwrap();
    controllers(space, 0).await;
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    controllers(space, deployment["spec"]["replicas"].as_u64().unwrap()).await;
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

async fn controllers(space: &Space, replicas: u64) {
    let replicas = format!("--replicas={replicas}");
    kubectl(&["-n", HOME, "scale", "deployment/localpool-controller", &replicas]).await;
    let are_there = async || {
        let of_it = json!("controller");
        let pods = space.list("Pod", Some(HOME)).await;
        let count = pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == of_it).count();
        if replicas.ends_with(&format!("={count}")) { Ok(()) } else { Err(count) }
    };
    eventually("so many controllers", SOON, are_there).await;
    kubectl(&["-n", HOME, "rollout", "status", "deployment/localpool-controller", "--timeout=2m"]).await;
}

/// Section "etcd was put back from a backup": one volume was deleted after the backup, one was made.
async fn put_back(space: &Space, node: &mut SimNode, backup: &Saved) {
    let deleted = name(&backup.0[2]).to_owned();
    let made = Saved::of(space, "made").await;
    let volume = name(&made.0[2]).to_owned();
    space.remove_pod("made").await;
    let restored = async {
        node.kill().await;
        made.remove(space).await;
        backup.restore(space).await;
        space.until_bound("deleted").await;
        node.run(&space.client);
    };
    without_controllers(space, restored).await;

    until_health(space, &deleted, "VolumeMissing").await;
    space.until("PoolVolume", None, &volume, "is found", |volume| volume["status"]["phase"] == "Found").await;
    space.remove_claim("deleted").await;
    space.until_gone("PoolVolume", None, &deleted).await;
    used_again(space, "made", &volume, &node.name).await;
    erased(space, "made", &volume).await;
}

async fn backed_up(space: &Space, node: &str) -> Saved {
    running_on(space, "deleted", node).await;
    let backup = Saved::of(space, "deleted").await;
    space.remove_pod("deleted").await;
    space.remove_claim("deleted").await;
    running_on(space, "made", node).await;
    backup
}

async fn play(space: &Space, simulated: &mut SimulatedNodes) {
    let expression = json!({"key": SIMULATED, "operator": "Exists"});
    let set = space
        .set("fake", "-")
        .with("/spec/deviceInclusionSpec", json!({"deviceTypes": ["disk"], "minSize": "0"}))
        .with("/spec/tolerations", json!([{"key": SIMULATED, "operator": "Exists"}]))
        .with("/spec/nodeSelector", json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]}));
    space.create(&set).await;
    space.until_claimed("fake", i64::try_from(NODES).unwrap()).await;
    let [from, to, reinstalled, gone, older] = &mut simulated.nodes[..] else { panic!("five nodes") };
    let ((), (), (), backup) = tokio::join!(
        moves(space, from, to),
        installed_again(space, reinstalled),
        forgotten(space, gone),
        backed_up(space, &older.name),
    );
    put_back(space, older, &backup).await;
}

#[test]
fn a_disk_moves_a_node_is_installed_again_and_etcd_is_put_back_as_the_page_says() {
    check(Needs::Machine, async |space| {
        let names: Vec<String> = (0..NODES).map(|number| format!("{}-{number}", space.namespace)).collect();
        let mut simulated = SimulatedNodes::new(space, &names, SIZE).await;
        let ended = AssertUnwindSafe(play(space, &mut simulated)).catch_unwind().await;
        space.delete("LocalVolumeSet", space.here(), "fake").await;
        space.until_gone("LocalVolumeSet", space.here(), "fake").await;
        simulated.remove(space).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
