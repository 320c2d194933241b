//! How pods may see a volume: by group, read-only, in one pod alone, for as long as the pod.

use serde_json::json;

use crate::check::{Needs, check};
use crate::pods::{As, With as _};

#[test]
fn the_files_belong_to_the_pods_fs_group() {
    check(Needs::Cluster, async |space| {
        space.create(&space.claim("data", "local-carved", "64Mi")).await;
        let security = json!({"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 4321});
        space.create(&space.pod("app", "data", As::Folder).with("/spec/securityContext", security)).await;
        space.until_running("app").await;
        space.shell("app", "echo mine >/data/file").await;
        assert_eq!(space.shell("app", "stat -c %u:%g /data/file").await, "1234:4321\n");
        assert_eq!(space.shell("app", "stat -c %g /data").await, "4321\n");
    });
}

#[test]
fn a_volume_that_a_pod_mounts_read_only_refuses_its_writes() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        space.shell("data", "echo before >/data/file").await;
        space.remove_pod("data").await;
        let pod = space.pod("reader", "data", As::Folder);
        space.create(&pod.with("/spec/volumes/0/persistentVolumeClaim/readOnly", json!(true))).await;
        space.until_running("reader").await;
        assert_eq!(space.shell("reader", "cat /data/file").await, "before\n");
        let refused = space.try_shell("reader", "echo after >/data/file").await.expect_err("a write");
        assert!(refused.contains("Read-only file system"), "{refused}");
    });
}

#[test]
fn read_write_once_pod_keeps_a_second_pod_out_until_the_first_is_gone() {
    check(Needs::Cluster, async |space| {
        let claim = space.claim("data", "local-carved", "64Mi").with("/spec/accessModes", json!(["ReadWriteOncePod"]));
        space.create(&claim).await;
        space.create(&space.pod("first", "data", As::Folder)).await;
        space.until_running("first").await;
        space.create(&space.pod("second", "data", As::Folder)).await;
        space.event("second", &["FailedScheduling", "ReadWriteOncePod"]).await;
        // Past the scheduler, like a static pod: the kubelet and the driver refuse too.
        let node = space.get("Pod", space.here(), "first").await.unwrap()["spec"]["nodeName"].clone();
        space.create(&space.pod("third", "data", As::Folder).with("/spec/nodeName", node)).await;
        space.event("third", &["FailedMount"]).await;
        space.remove_pod("third").await;
        space.remove_pod("first").await;
        space.until_running("second").await;
    });
}

#[test]
fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    check(Needs::Cluster, async |space| {
        let pod = space.pod("scratch", "-", As::Folder).with(
            "/spec/volumes/0",
            json!({"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "storageClassName": "local-carved", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "64Mi"}},
            }}}}),
        );
        space.create(&pod).await;
        space.until_running("scratch").await;
        let volume = space.volume_of(&space.namespace, "scratch-data").await;
        space.shell("scratch", "echo short >/data/life").await;
        space.delete("Pod", space.here(), "scratch").await;
        space.until_gone("PersistentVolumeClaim", space.here(), "scratch-data").await;
        let id = volume["metadata"]["name"].as_str().unwrap();
        space.until_gone("PoolVolume", None, id).await;
        if let Some(machine) = &space.machine {
            assert!(machine.place(id).await.is_none(), "its partition is gone");
        }
    });
}
