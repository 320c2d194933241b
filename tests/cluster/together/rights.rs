//! Tries what a node's agent may do with its token.

use localpool::volume::VolumeId;
use localpool_testing::rights::asked::BY_HAND;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{Cluster, HOME, name};
use crate::pods::As;

/// A cluster as seen by somebody else with a token.
async fn with_token(space: &Space, token: &str) -> Cluster {
    let mut config = kube::Config::infer().await.unwrap();
    config.auth_info = kube::config::AuthInfo { token: Some(token.trim().to_owned().into()), ..Default::default() };
    config.headers.push(("user-agent".parse().unwrap(), BY_HAND.parse().unwrap()));
    Cluster { client: kube::Client::try_from(config).unwrap(), image: String::new(), machine: space.machine.clone() }
}

/// A token for an agent, as its pod has it.
async fn agent(space: &Space) -> Cluster {
    let pod = space.agent_pod().await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let bound = ["--bound-object-kind=Pod", "--bound-object-name", name(&pod), "--bound-object-uid", uid];
    let words = [&["-n", HOME, "create", "token", "localpool-node"][..], &bound].concat();
    with_token(space, &crate::cluster::kubectl(&words).await).await
}

/// A PoolVolume as the driver creates it: its name follows from the volume's.
fn volume(of: &str, node: &str, intent: &str) -> Value {
    let name = VolumeId::of_name(of).to_string();
    json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": name},
        "spec": {"node": node, "volumeName": of, "required": 1, "volumeMode": "Block", "intent": intent},
    })
}

fn assert_refused<T>(what: &str, tried: Result<T, kube::Error>, message: &str) {
    match tried {
        Ok(_) => panic!("{what} was allowed"),
        Err(kube::Error::Api(status)) => assert!(status.message.contains(message), "{what}: {}", status.message),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn an_agents_token_cannot_write_another_nodes_objects() {
    check(Needs::Cluster, async |space| {
        let agent = agent(space).await;
        let other = space.namespace.as_str();
        let pool = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": other}, "spec": {}});
        assert_refused("making a DevicePool", agent.try_create(&pool).await, "may not write devicepools of node");
        space.create(&pool).await;
        let status = json!({"status": {"diskCount": 7}});
        let api = agent.api("DevicePool", None);
        let patched =
            api.patch_status(other, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await;
        assert_refused("the status of a DevicePool", patched, "may not write devicepools of node");
        let spec = json!({"spec": {"cordon": true}});
        assert_refused(
            "the spec of a DevicePool",
            agent.try_patch("DevicePool", None, other, &spec).await,
            "cannot patch",
        );
        assert_refused("deleting a DevicePool", api.delete(other, &Default::default()).await, "cannot delete");
        space.delete("DevicePool", None, other).await;

        let object = volume("by-hand-1", other, "Keep");
        let id = name(&object);
        let made = agent.try_create(&object).await;
        assert_refused("making a PoolVolume", made, "may not write poolvolumes of node");
        space.create(&object).await;
        let api = agent.api("PoolVolume", None);
        let mut theirs = space.get("PoolVolume", None, id).await.unwrap();
        theirs["status"] = json!({"phase": "Ready"});
        let told = api.replace_status(id, &Default::default(), &serde_json::from_value(theirs.clone()).unwrap()).await;
        assert_refused("the status of a PoolVolume", told, "may not write poolvolumes of node");
        let let_go = json!({"metadata": {"finalizers": []}});
        let tried = agent.try_patch("PoolVolume", None, id, &let_go).await;
        assert_refused("its finalizer", tried, "may not write poolvolumes of node");
        let whole = api.replace(id, &Default::default(), &serde_json::from_value(theirs).unwrap()).await;
        assert_refused("the whole of it", whole, "cannot update");
        assert_refused("deleting a PoolVolume", api.delete(id, &Default::default()).await, "cannot delete");
        space.delete("PoolVolume", None, id).await;
    });
}

#[test]
fn an_agents_token_cannot_change_a_spec_nor_order_an_erasure_on_its_own_node() {
    check(Needs::Cluster, async |space| {
        let agent = agent(space).await;
        let node = space.agent_pod().await["spec"]["nodeName"].as_str().unwrap().to_owned();
        let cordon = json!({"spec": {"cordon": true}});
        let tried = agent.try_patch("DevicePool", None, &node, &cordon).await;
        assert_refused("cordoning its pool", tried, "cannot patch");
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        let own = space.volume_of(&space.namespace, "data").await;
        // Its role lets it patch the object, for the finalizer.
        for (what, field, value, message) in [
            ("growing a volume", "size", json!(1 << 30), "never the spec"),
            ("ordering an erasure", "intent", json!("Delete"), "denied"),
        ] {
            let change = json!({"spec": {field: value}});
            assert_refused(what, agent.try_patch("PoolVolume", None, name(&own), &change).await, message);
        }
        let made = agent.try_create(&volume("by-hand-2", &node, "Delete")).await;
        assert_refused("making an order to erase", made, "denied");
        space.shell("data", "echo works >/data/file").await;
    });
}

#[test]
fn a_token_that_names_no_node_writes_nothing() {
    check(Needs::Cluster, async |space| {
        let token = crate::cluster::kubectl(&["-n", HOME, "create", "token", "localpool-node"]).await;
        let anybody = with_token(space, &token).await;
        let node = space.nodes().await.remove(0);
        let made = anybody.try_create(&volume("by-hand-3", &node, "Keep")).await;
        assert_refused("making a PoolVolume", made, "does not say which node");
    });
}

#[test]
fn an_agents_token_reads_no_secrets_and_makes_no_pods() {
    check(Needs::Cluster, async |space| {
        let agent = agent(space).await;
        let pod = space.pod("intruder", "none", As::Folder);
        assert_refused("making a pod", agent.try_create(&pod).await, "cannot create");
        let account = "system:serviceaccount:localpool:localpool-node";
        for words in [
            ["get", "secrets"],
            ["create", "serviceaccounts/token"],
            ["patch", "nodes"],
            ["delete", "devicepools"],
            ["update", "persistentvolumes"],
            ["get", "persistentvolumes"],
            ["list", "persistentvolumes"],
            ["get", "pods"],
            ["get", "nodes"],
            ["update", "poolvolumes"],
            ["update", "localvolumesets"],
            ["update", "customresourcedefinitions"],
            ["create", "storageclasses"],
        ] {
            let asked =
                crate::cluster::attempt("kubectl", &["auth", "can-i", words[0], words[1], "-A", "--as", account]).await;
            assert!(asked.is_err_and(|refusal| refusal.contains("no")), "{words:?}");
        }
    });
}
