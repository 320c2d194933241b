//! A node whose agent is silent, and an agent that comes back to a changed world.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually, name};
use crate::peace::{Expected, quietly, without_agents};
use crate::pods::As;

async fn volumes_of(space: &Space, uid: &Value) -> Vec<Value> {
    let wanted = format!("pvc-{}", uid.as_str().unwrap());
    let all = space.list("PoolVolume", None).await;
    all.into_iter().filter(|one| one["spec"]["volumeName"] == wanted.as_str()).collect()
}

#[test]
fn while_the_agent_is_silent_the_pod_waits_with_the_nodes_name_and_is_served_when_it_is_back() {
    check(Needs::Machine, async |space| {
        let absence = Expected::new();
        quietly(space.running("old", "local-carved", "64Mi", As::Folder)).await;
        let node = quietly(space.nodes()).await.remove(0);
        let claim = without_agents(space, absence, async || {
            let claim = space.create(&space.claim("new", "local-carved", "64Mi")).await;
            space.create(&space.pod("new", "new", As::Folder)).await;
            let told = space.event("new", &["ProvisioningFailed", &node, "did not answer"]).await;
            let pod = space.get("Pod", space.here(), "new").await.unwrap();
            assert_eq!(pod["status"]["phase"], "Pending", "{told}");
            space.shell("old", "echo works >/data/file").await;
            claim
        })
        .await;
        quietly(async {
            space.until_running("new").await;
            assert_eq!(volumes_of(space, &claim["metadata"]["uid"]).await.len(), 1);
        })
        .await;
    });
}

#[test]
fn an_agent_that_comes_back_makes_nothing_of_what_was_withdrawn_meanwhile() {
    check(Needs::Machine, async |space| {
        let absence = Expected::new();
        let object = without_agents(space, absence, async || {
            let claim = space.create(&space.claim("new", "local-carved", "64Mi")).await;
            let uid = &claim["metadata"]["uid"];
            space.create(&space.pod("new", "new", As::Folder)).await;
            let asked = async || volumes_of(space, uid).await.pop().ok_or("not yet");
            let object = eventually("the agent is asked", SOON, asked).await;
            space.event("new", &["ProvisioningFailed", "did not answer"]).await;
            space.remove_pod("new").await;
            space.delete("PersistentVolumeClaim", space.here(), "new").await;
            let withdrawn = async || {
                let left = volumes_of(space, uid).await;
                if left.is_empty() { Ok(()) } else { Err(left) }
            };
            eventually("the object is withdrawn while the agent is away", 2 * SOON, withdrawn).await;
            object
        })
        .await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        quietly(async {
            assert!(space.get("PoolVolume", None, name(&object)).await.is_none(), "the object came back");
            for disk in space.machine().disks() {
                let made = disk.entries().await.into_iter().find(|entry| entry.guid == name(&object));
                assert!(made.is_none(), "{made:?} was made on {}", disk.image.display());
            }
        })
        .await;
    });
}

/// The one thing that only a person can do by hand: remove an object's finalizer while no agent runs.
#[test]
fn a_volume_whose_object_vanished_while_the_agent_was_away_is_there_when_it_is_back() {
    check(Needs::Machine, async |space| {
        let absence = Expected::new();
        let volume = quietly(async {
            space.running("data", "local-carved", "64Mi", As::Folder).await;
            space.shell("data", "echo kept >/data/file && sync").await;
            space.volume_of(&space.namespace, "data").await
        })
        .await;
        without_agents(space, absence, async || {
            space.patch("PoolVolume", None, name(&volume), &json!({"metadata": {"finalizers": []}})).await;
            space.delete("PoolVolume", None, name(&volume)).await;
            space.until_gone("PoolVolume", None, name(&volume)).await;
        })
        .await;
        quietly(async {
            let ready = |now: &Value| now["status"]["phase"] == "Ready";
            space.until("PoolVolume", None, name(&volume), "is back, as a PersistentVolume claims it", ready).await;
            assert_eq!(space.shell("data", "cat /data/file").await, "kept\n");
        })
        .await;
    });
}
