//! CreateVolume, DeleteVolume and ControllerExpandVolume, with a played agent on the other side.

use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use localpool::api::crd::{Intent, LocalVolumeSet, Phase, PoolVolume};
use localpool::volume::{Error, Nodes, VolumeId, Volumes as _, WantedUsage};
use localpool_testing::GIB;
use serde_json::json;

use crate::agent::{Stage, on, unique, wanted};
use crate::cluster;
use crate::tap::Tap;

#[tokio::test]
async fn a_volume_is_made_by_its_agent_and_found_again_by_the_same_request() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    stage.node(&node).await;
    let id = VolumeId::of_name(&name);
    let agent = async {
        let asked = stage.asked(id).await;
        assert_eq!((asked.spec.node.as_str(), asked.spec.volume_name.as_str()), (node.as_str(), name.as_str()));
        assert_eq!(asked.metadata.finalizers.as_deref(), Some(&["localpool.dev/volume".to_owned()][..]));
        assert_eq!((asked.spec.required, asked.spec.intent), (1 << 30, Intent::Keep));
        stage.make(&asked, 1).await;
    };
    let (made, ()) = tokio::join!(stage.volumes.create(wanted(&name, on(&node))), agent);
    let made = made.expect("made");
    assert_eq!((made.id, made.size, made.node.as_str()), (id, GIB, node.as_str()));
    let again = stage.volumes.create(wanted(&name, on(&node))).await.expect("found");
    assert_eq!(again, made);
    assert_eq!(stage.volumes.get(id).await.expect("an answer"), Some(made));
    assert!(stage.volumes.list().await.expect("an answer").iter().any(|volume| volume.id == id));

    let mut other = wanted(&name, on(&node));
    other.usage = WantedUsage::Block;
    let refused = stage.volumes.create(other).await.expect_err("another use");
    assert!(matches!(&refused, Error::Exists(message) if message.contains("filesystem")), "{refused:?}");
    let elsewhere = stage.volumes.create(wanted(&name, on("another"))).await.expect_err("another node");
    assert!(matches!(&elsewhere, Error::Exists(message) if message.contains(&node)), "{elsewhere:?}");
}

#[tokio::test]
async fn a_refused_object_is_gone_before_the_caller_hears_of_it() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    for (reason, phase) in [("Full", "Rejected"), ("Limit", "Rejected"), ("Broken", "Failed")] {
        let name = unique("pvc");
        let id = VolumeId::of_name(&name);
        let agent = async {
            let asked = stage.asked(id).await;
            stage.say(&asked, json!({"phase": phase, "reason": reason, "message": "so it is"})).await.expect("first");
        };
        let (refused, ()) = tokio::join!(stage.volumes.create(wanted(&name, on(&node))), agent);
        let refused = refused.expect_err("refused");
        assert!(stage.is_gone(id).await, "{reason}: the object is still there after {refused:?}");
        assert!(refused.to_string().contains(&format!("node {node}: so it is")), "{refused}");
        let as_it_should = match reason {
            "Full" => matches!(refused, Error::Exhausted(_)),
            "Limit" => matches!(refused, Error::OutOfRange(_)),
            _ => matches!(refused, Error::Internal(_)),
        };
        assert!(as_it_should, "{reason}: {refused:?}");
    }
}

#[tokio::test]
async fn a_silent_agent_is_named_after_its_object_was_taken_back() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    stage.node(&node).await;
    let mut wanted = wanted(&name, on(&node));
    // The last quarter of it is far more than a busy machine needs to withdraw the object.
    let timeout = Duration::from_secs(20);
    wanted.timeout = timeout;
    // Started before the call, so that it ends before the call's own three quarters do.
    let mut time_of_agent = pin!(tokio::time::sleep(timeout * 3 / 4));
    let mut call = pin!(tokio::time::timeout(timeout, stage.volumes.create(wanted)));
    tokio::select! {
        biased;
        () = &mut time_of_agent => {}
        early = &mut call => panic!("the agent had less than its time: {early:?}"),
    }
    let refused = call.await.expect("the caller has given up").expect_err("nobody answers");
    assert!(matches!(&refused, Error::Exhausted(text) if text.contains(&node) && text.contains("did not answer")));
    assert!(stage.is_gone(VolumeId::of_name(&name)).await);
}

#[tokio::test]
async fn an_agent_that_is_slow_is_not_given_up_once_it_accepted() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    stage.node(&node).await;
    let id = VolumeId::of_name(&name);
    let mut asked = wanted(&name, on(&node));
    // Three quarters of it are far more than a busy machine needs to accept it.
    asked.timeout = Duration::from_secs(10);
    let agent = async {
        let seen = stage.asked(id).await;
        stage.say(&seen, json!({"phase": "Accepted"})).await.expect("first")
    };
    let (slow, accepted) = tokio::join!(stage.volumes.create(asked.clone()), agent);
    assert!(matches!(slow, Err(Error::Aborted(_))), "{slow:?}");
    stage.say(&accepted, json!({"phase": "Ready", "size": GIB, "fsType": "xfs"})).await.expect("first");
    stage.volumes.create(asked).await.expect("it is ready");
}

#[tokio::test]
async fn a_node_that_refuses_leaves_the_volume_to_the_next_one() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (large, small, name) = (unique("large"), unique("small"), unique("pvc"));
    for (node, gib) in [(&large, 9), (&small, 5)] {
        stage.node(node).await;
        stage.pool(node, gib).await;
    }
    let id = VolumeId::of_name(&name);
    let agents = async {
        let first = stage.asked(id).await;
        assert_eq!(first.spec.node, large, "the node with the largest place is asked first");
        stage.say(&first, json!({"phase": "Rejected", "reason": "Full", "message": "full"})).await.expect("first");
        let second = stage.see(id, "asked of the other", |object| object.spec.node == small).await;
        stage.make(&second, 1).await;
    };
    let nodes = Nodes::AnyOf(vec![small.as_str().into(), large.as_str().into()]);
    let (made, ()) = tokio::join!(stage.volumes.create(wanted(&name, nodes)), agents);
    assert_eq!(made.expect("made").node, small);
}

#[tokio::test]
async fn what_a_stopped_controller_left_is_taken_back_when_the_scheduler_moved_on() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (old, new, name) = (unique("old"), unique("new"), unique("pvc"));
    stage.node(&old).await;
    stage.node(&new).await;
    let id = VolumeId::of_name(&name);
    // From a controller that is gone: its object waits for an agent that is not there.
    let left = {
        let stopped = Stage::new(&cluster.client).await;
        let wanted = wanted(&name, on(&old));
        let request = tokio::spawn(async move { stopped.volumes.create(wanted).await });
        let left = stage.asked(id).await;
        request.abort();
        left
    };
    assert_eq!(left.spec.node, old);
    let agent = async {
        let asked = stage.see(id, "asked of the new node", |object| object.spec.node == new).await;
        stage.make(&asked, 1).await;
    };
    let (made, ()) = tokio::join!(stage.volumes.create(wanted(&name, on(&new))), agent);
    assert_eq!(made.expect("made").node, new);
}

#[tokio::test]
async fn a_deletion_orders_the_erasure_first_and_ends_when_the_agent_lets_go() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (_, _, id) = stage.ready().await;
    let agent = async {
        let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert_eq!(going.spec.intent, Intent::Delete, "the order stands before the deletion");
        let erasing = stage.say(&going, json!({"phase": "Deleting"})).await.expect("first");
        stage.let_go(&erasing).await;
    };
    let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
    deleted.expect("deleted");
    assert!(stage.is_gone(id).await);
    stage.volumes.delete(id).await.expect("deleted is deleted");
}

#[tokio::test]
async fn a_volume_in_use_is_not_deleted_and_its_agents_words_are_told() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (_, _, id) = stage.ready().await;
    let agent = async {
        let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
        let status = json!({"phase": "Deleting", "reason": "InUse", "message": "it is published at /x"});
        stage.say(&going, status).await.expect("first")
    };
    let (refused, waiting) = tokio::join!(stage.volumes.delete(id), agent);
    let refused = refused.expect_err("in use");
    assert!(matches!(&refused, Error::Precondition(message) if message.contains("published at /x")), "{refused:?}");
    assert_eq!(waiting.spec.intent, Intent::Delete, "it goes on by itself when the user lets go");
    let retried = stage.volumes.create(wanted(&waiting.spec.volume_name, on(&waiting.spec.node))).await;
    assert!(matches!(retried, Err(Error::Aborted(_))), "{retried:?}");
}

#[tokio::test]
async fn a_volume_is_erased_though_somebody_deleted_its_object_by_hand_meanwhile() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name, id) = stage.ready().await;
    stage.persistent(&name, id, &node).await;
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("by hand");
    let by_hand = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
    let agent = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let seen = stage.objects.get(&id.to_string()).await.expect("it waits");
        assert_eq!(seen.spec.intent, Intent::Keep, "a deletion by hand is not made an order");
        // The object goes away and nothing is erased; an order follows.
        stage.let_go(&seen).await;
        let ordered = stage.see(id, "ordered", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert!(ordered.metadata.uid != by_hand.metadata.uid && ordered.spec.intent == Intent::Delete);
        stage.let_go(&ordered).await;
    };
    let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
    deleted.expect("deleted");
}

/// The object as its agent writes it from the disk, before it has a status.
fn written_again(before: PoolVolume) -> PoolVolume {
    let metadata = ObjectMeta {
        name: before.metadata.name,
        finalizers: Some(vec!["localpool.dev/volume".to_owned()]),
        ..ObjectMeta::default()
    };
    PoolVolume { metadata, status: None, ..PoolVolume::new("", before.spec) }
}

#[tokio::test]
async fn an_object_that_was_just_written_again_from_the_disk_is_erased_not_withdrawn() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name, id) = stage.ready().await;
    stage.persistent(&name, id, &node).await;
    let restored = stage.objects.get(&id.to_string()).await.expect("there");
    stage.let_go(&restored).await;
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("by hand");
    let again = written_again(restored);
    let again = stage.objects.create(&PostParams::default(), &again).await.expect("the agent writes it again");
    let agent = async {
        let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert_eq!((&going.metadata.uid, going.spec.intent), (&again.metadata.uid, Intent::Delete));
        stage.let_go(&going).await;
    };
    let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
    deleted.expect("deleted");
}

#[tokio::test]
async fn an_object_that_is_written_again_while_the_deletion_is_under_way_is_erased_not_withdrawn() {
    let cluster = cluster!(shared);
    let (tap, client) = Tap::on_creates("/apis/localpool.dev/v1alpha1/poolvolumes", &cluster.client);
    let stage = Stage::new(&client).await;
    let (node, name, id) = stage.ready().await;
    stage.persistent(&name, id, &node).await;
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("by hand");
    tap.set_open(false);
    let agent = async {
        let before = stage.see(id, "deleted by hand", |object| object.metadata.deletion_timestamp.is_some()).await;
        stage.let_go(&before).await;
        // The call is about to order the deletion by the PersistentVolume, but the agent is faster.
        tap.waited_at().await;
        let again = written_again(before);
        let agents: Api<PoolVolume> = Api::all(cluster.client.clone());
        let again = agents.create(&PostParams::default(), &again).await.expect("the agent writes it again");
        tap.set_open(true);
        let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert_eq!((&going.metadata.uid, going.spec.intent), (&again.metadata.uid, Intent::Delete));
        stage.let_go(&going).await;
    };
    let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
    deleted.expect("deleted");
}

#[tokio::test]
async fn a_volume_whose_object_is_missing_is_erased_by_what_its_persistent_volume_tells() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    let id = VolumeId::of_name(&name);
    stage.node(&node).await;
    stage.persistent(&name, id, &node).await;
    let agent = async {
        let going = stage.see(id, "ordered", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert_eq!((going.spec.intent, going.spec.node.as_str()), (Intent::Delete, node.as_str()));
        stage.let_go(&going).await;
    };
    let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
    deleted.expect("deleted");
    assert!(stage.is_gone(id).await);
}

#[tokio::test]
async fn a_deletion_that_was_answered_is_not_ordered_again_for_the_same_persistent_volume() {
    let cluster = cluster!(shared);
    let (posts, client) = Tap::on_creates("/apis/localpool.dev/v1alpha1/poolvolumes", &cluster.client);
    let stage = Stage::new(&client).await;
    let (node, name, id) = stage.ready().await;
    stage.persistent(&name, id, &node).await;
    stage.persistent_is(&name, "Released").await;
    let erased = async || {
        let agent = async {
            let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
            stage.let_go(&going).await;
        };
        let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
        deleted.expect("deleted");
    };
    erased().await;
    // The provisioner asks again before it sees that the PersistentVolume is gone.
    let before = posts.requests();
    stage.volumes.delete(id).await.expect("deleted is deleted");
    assert_eq!(posts.requests(), before, "an object was made again");
    // The volume is made again, and its object is lost: this is another PersistentVolume of the same name.
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let unprotected = json!({"metadata": {"finalizers": null}});
    volumes.patch(&name, &PatchParams::default(), &Patch::Merge(&unprotected)).await.expect("as the controllers do");
    volumes.delete(&name, &DeleteParams::default()).await.expect("the provisioner deletes it");
    stage.persistent(&name, id, &node).await;
    erased().await;
    assert_eq!(posts.requests(), before + 1, "what is on the disk was ordered erased by an object");
}

#[tokio::test]
async fn a_volume_whose_persistent_volume_is_bound_is_deleted_for_nobody() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let refused = async |id| {
        let refused = stage.volumes.delete(id).await;
        let told = |message: &str| message.contains("is Bound to the claim default/data");
        assert!(matches!(&refused, Err(Error::Precondition(message)) if told(message)), "{refused:?}");
    };
    for by_hand in [false, true] {
        let (node, name, id) = stage.ready().await;
        let persistent = if by_hand { unique("by-hand") } else { name };
        stage.persistent(&persistent, id, &node).await;
        stage.persistent_is(&persistent, "Bound").await;
        refused(id).await;
        let kept = stage.objects.get(&id.to_string()).await.expect("it is kept");
        assert_eq!((kept.spec.intent, kept.metadata.deletion_timestamp), (Intent::Keep, None));
        stage.persistent_is(&persistent, "Released").await;
        let agent = async {
            let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
            stage.let_go(&going).await;
        };
        let (deleted, ()) = tokio::join!(stage.volumes.delete(id), agent);
        deleted.expect("deleted");
    }
    // A volume whose object is missing is not ordered away either.
    let (node, name) = (unique("n"), unique("pvc"));
    let id = VolumeId::of_name(&name);
    stage.node(&node).await;
    stage.persistent(&name, id, &node).await;
    stage.persistent_is(&name, "Bound").await;
    refused(id).await;
    assert!(stage.is_gone(id).await);
}

#[tokio::test]
async fn an_expansion_is_asked_of_the_agent_and_a_failed_one_taken_back() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (_, _, id) = stage.ready().await;
    let wish =
        |gib: u64| move |object: &localpool::api::crd::PoolVolume| object.spec.size == i64::try_from(gib * GIB).ok();
    let agent = async {
        let asked = stage.see(id, "asked to grow", wish(2)).await;
        stage.say(&asked, json!({"observedSize": 2 * GIB, "size": 2 * GIB})).await.expect("first");
    };
    let (grown, ()) = tokio::join!(stage.volumes.expand(id, 2 * GIB, None), agent);
    assert_eq!(grown.expect("grown").size, 2 * GIB);

    for _ in 0..2 {
        let agent = async {
            let asked = stage.see(id, "asked to grow", wish(5)).await;
            let failed = json!({"observedSize": 5 * GIB, "resizeError": "4Gi behind it are another volume's"});
            stage.say(&asked, failed).await.expect("first");
            let back = stage.see(id, "taken back", wish(2)).await;
            stage.say(&back, json!({"observedSize": 2 * GIB, "resizeError": null})).await.expect("first");
        };
        let (failed, ()) = tokio::join!(stage.volumes.expand(id, 5 * GIB, None), agent);
        let failed = failed.expect_err("no space");
        assert!(matches!(&failed, Error::OutOfRange(message) if message.contains("another volume's")), "{failed:?}");
    }
    let above = stage.volumes.expand(id, GIB, Some(GIB)).await;
    assert!(matches!(above, Err(Error::OutOfRange(_))), "{above:?}");
    let nothing = stage.volumes.expand(VolumeId::of_name(&unique("none")), GIB, None).await;
    assert!(matches!(nothing, Err(Error::NotFound(_))), "{nothing:?}");
}

#[tokio::test]
async fn what_waits_for_adoption_is_neither_listed_nor_deleted() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (_, _, id) = stage.ready().await;
    let found = json!({"status": {"phase": "Found"}});
    let params = PatchParams::default();
    stage.objects.patch_status(&id.to_string(), &params, &Patch::Merge(&found)).await.expect("it is there");
    stage
        .known(|caches| {
            let phase = caches.volumes.get(&id.to_string()).and_then(|object| object.status.as_ref().map(|s| s.phase));
            phase == Some(Phase::Found)
        })
        .await;
    assert_eq!(stage.volumes.get(id).await.expect("an answer"), None);
    let refused = stage.volumes.delete(id).await;
    assert!(matches!(&refused, Err(Error::Precondition(message)) if message.contains("volume adopt")), "{refused:?}");
}

#[tokio::test]
async fn a_request_that_no_set_can_serve_is_refused_with_a_message_and_looks_like_room_until_then() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    let class = unique("missing");
    let mut asked = wanted(&unique("pvc"), on(&node));
    asked.selector.class = Some(class.clone());
    asked.parameters = [("class".to_owned(), class.clone())].into();
    let capacity =
        stage.volumes.capacity(asked.selector.clone(), None, Some(node.as_str().into())).await.expect("an answer");
    assert!(capacity.largest > 1 << 50, "else nobody would ask, and hear why: {capacity:?}");
    let refused = stage.volumes.create(asked.clone()).await;
    let message = format!("no LocalVolumeSet and no LocalVolume gives disks to class {class}");
    assert!(matches!(&refused, Err(Error::Precondition(told)) if told.contains(&message)), "{refused:?}");

    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": class, "namespace": "default"},
        "spec": {
            "storageClassName": class, "volumeMode": "Block",
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "played", "operator": "Exists"}]}]},
        },
    });
    let sets: Api<LocalVolumeSet> = Api::namespaced(stage.client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
    stage.known(|caches| caches.sets.get(&format!("default/{class}")).is_some()).await;
    let refused = stage.volumes.create(asked.clone()).await;
    let message = format!("the sets of class {class} allow volumeMode Block only");
    assert!(matches!(&refused, Err(Error::Invalid(told)) if told.contains(&message)), "{refused:?}");
    let capacity =
        stage.volumes.capacity(asked.selector.clone(), None, Some(node.as_str().into())).await.expect("an answer");
    assert_eq!(capacity.largest, 0, "there is a set now, and it has no room here");
    assert!(stage.is_gone(VolumeId::of_name(&asked.name)).await);
}

#[tokio::test]
async fn capacity_is_what_nodes_offer_less_what_is_promised() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    stage.node(&node).await;
    stage.pool(&node, 9).await;
    let capacity = || async {
        let selector = wanted("x", Nodes::Any).selector;
        let capacity =
            stage.volumes.capacity(selector, Some(WantedUsage::Mount(None)), Some(node.as_str().into())).await;
        capacity.expect("an answer").available / GIB
    };
    assert_eq!(capacity().await, 9);
    let id = VolumeId::of_name(&name);
    let (refused, ()) = tokio::join!(stage.volumes.create(wanted(&name, on(&node))), async {
        let asked = stage.asked(id).await;
        stage.known(|caches| caches.volumes.get(&id.to_string()).is_some()).await;
        assert_eq!(capacity().await, 8);
        let refused = json!({"phase": "Rejected", "reason": "Full", "message": "full"});
        stage.say(&asked, refused).await.expect("nobody else was first");
    });
    refused.expect_err("its agent refused it");
    stage.known(|caches| caches.volumes.get(&id.to_string()).is_none()).await;
    assert_eq!(capacity().await, 9);
}
