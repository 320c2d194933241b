//! What examples/ and README show, unchanged. The sets of examples/ are the ones that all checks use.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, attempt, eventually};
use crate::page::{section, typed};
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

/// The file that README makes in the agent's folder.
const TRIAL: &str = "localpool-disk-1.img";

/// Detaches README's loop device, if a check ends before README does so. Its number may be another file's by then.
struct Detached;

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(node) = trial_disk() {
            let _ = localpool_testing::attempt("partx", &["--delete", &node]);
            let _ = localpool_testing::attempt("losetup", &["--detach", &node]);
        }
    }
}

fn trial_disk() -> Option<String> {
    let all = localpool_testing::run("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]);
    let ours = all.lines().find(|line| line.ends_with(&format!("/{TRIAL}")));
    ours.and_then(|line| line.split_whitespace().next()).map(str::to_owned)
}

#[test]
fn the_lines_for_a_laptop_give_a_pod_a_volume_on_a_loop_disk_and_take_all_of_it_back() {
    check(Needs::Machine, async |space| {
        let here = |line: &str| {
            let line = line.replace(" examples/", &format!(" {}/examples/", env!("CARGO_MANIFEST_DIR")));
            let own = |line: String, verb| {
                line.replace(&format!("kubectl {verb}"), &format!("kubectl -n {} {verb}", space.namespace))
            };
            ["apply -f", "delete -f", "wait --for", "logs "].into_iter().fold(line, own)
        };
        // A run before this one on the same cluster has released its file, and no set claims that again.
        let image = space.machine().folder.join("localpool").join(TRIAL);
        if image.exists() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
            std::fs::rename(&image, image.with_extension(format!("{now}.old"))).unwrap();
        }
        let start = section("../README.md", "Quick start");
        let planned = typed(&here(&start.command("localpool set plan", &[]))).await;
        // While the API server is slow to answer, the plan says first that nothing is claimed meanwhile.
        assert!(planned.lines().any(|line| line.starts_with("set localpool/carved would take ")), "{planned}");

        let _detached = Detached;
        let [make, lines @ ..] = &start.block("losetup -f", &[])[..] else { panic!("no lines") };
        let disk = typed(&format!("{make}; echo $DISK")).await.trim().to_owned();
        assert_eq!(Some(&disk), trial_disk().as_ref());
        for line in lines {
            let said = typed(&here(line)).await;
            assert!(!line.ends_with("localpool devices") || said.contains(&format!("{disk} ")), "{said}");
            assert!(!line.contains(" logs ") || said == "hello\n", "{said}");
        }
        for line in start.block("losetup --detach", &[("$DISK", &disk)]) {
            // A release waits until the volume is erased.
            eventually(&line, SOON, async || attempt("sh", &["-c", &here(&line)]).await).await;
        }
        assert_eq!(trial_disk(), None);
        space.delete("StorageClass", None, "local-loop").await;
    });
}
