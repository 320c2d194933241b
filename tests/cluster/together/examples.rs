//! What examples/ shows, unchanged. The sets of examples/ are the ones that all checks use.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::pods::is_ready;

async fn apply(space: &Space, file: &str) {
    let path = format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR"));
    space.kubectl(&["apply", "-f", &path]).await;
}

#[test]
fn the_examples_of_pods_run_as_they_are() {
    check(Needs::Machine, async |space| {
        for file in ["pod.yaml", "pod-block.yaml", "ephemeral.yaml"] {
            apply(space, file).await;
        }
        for pod in ["writer", "raw-writer", "scratch"] {
            space.until_running(pod).await;
        }
        // As the README shows it.
        let shown = space.kubectl(&["get", "pod,pvc,devicepools,poolvolumes"]).await;
        assert!(shown.contains("pod/writer") && shown.contains("poolvolume.localpool.dev/"), "{shown}");
        assert_eq!(space.kubectl(&["logs", "writer"]).await, "hello\n");
        assert_eq!(space.shell("raw-writer", "dd if=/dev/volume bs=6 count=1 2>/dev/null").await, "hello\n");
    });
}

#[test]
fn the_example_of_a_stateful_set_has_three_replicas_with_volumes_of_their_own() {
    check(Needs::Machine, async |space| {
        apply(space, "statefulset.yaml").await;
        let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
        space.until("StatefulSet", space.here(), "journal", "three are ready", ready).await;
        let mut volumes = Vec::new();
        for replica in 0..3 {
            space.until("Pod", space.here(), &format!("journal-{replica}"), "is ready", is_ready).await;
            let volume = space.volume_of(&space.namespace, &format!("data-journal-{replica}")).await;
            volumes.push(volume["metadata"]["name"].as_str().unwrap().to_owned());
        }
        volumes.dedup();
        assert_eq!(volumes.len(), 3);
    });
}
