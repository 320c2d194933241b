//! docs/guides: what they say to look at is typed as it is there, an object for an autoscaler is made, and a volume is copied out
//! and, of files, back as they say.

use localpool_testing::MIB;

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, attempt, eventually};
use crate::page::{Section, fill, section, typed};
use crate::pods::As;
use crate::runbook::guide_commands;

#[test]
fn each_command_of_a_guide_that_only_looks_works_and_has_the_heads_that_its_page_shows() {
    check(Needs::Machine, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        // Other checks have nodes of which only the machines are simulated.
        let volume = space.volume_of(&space.namespace, "data").await;
        let node = volume["spec"]["node"].as_str().unwrap();
        let commands = guide_commands();
        for command in &commands {
            command.typed(node, &[]).await;
        }
        assert!(commands.len() > 10, "only {} commands", commands.len());
    });
}

#[test]
fn an_object_that_tells_an_autoscaler_of_new_nodes_is_left_alone_and_no_pod_of_now_goes_by_it() {
    check(Needs::Cluster, async |space| {
        let here = format!("namespace: {}", space.namespace);
        let page = section("guides/autoscaling.md", "An object that says what a new node has");
        let object = page.block("kind: CSIStorageCapacity", &[("namespace: localpool", &here)]).join("\n");
        typed(&format!("kubectl apply -f - <<'END'\n{object}\nEND")).await;
        // It says that such a volume has room.
        space.create(&space.claim("large", "local-carved", "300Gi")).await;
        space.create(&space.pod("large", "large", As::Folder)).await;
        space.event("large", &["FailedScheduling", "free storage"]).await;
        // After each volume the provisioner looks at the objects of its own.
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        let kept = space.get("CSIStorageCapacity", space.here(), "new-storage-node").await.expect("it is left alone");
        assert_eq!(kept["maximumVolumeSize"], "400Gi");
    });
}

fn backup(title: &str) -> Section {
    section("guides/backup.md", title)
}

/// A command of the page for a pod, whose file is in this folder.
fn of_pod(section: &Section, phrase: &str, space: &Space, pod: &str, folder: &std::path::Path) -> String {
    let folder = folder.display();
    let (tar, image) = (format!("{folder}/data.tar"), format!("{folder}/data.img"));
    section.command(phrase, &[("NAMESPACE", &space.namespace), ("POD", pod), ("data.tar", &tar), ("data.img", &image)])
}

/// What the page says to type again if it ends with an error: a busy API server or node may end such a stream.
async fn typed_again(command: &str) {
    eventually(command, SOON, async || attempt("sh", &["-c", command]).await).await;
}

#[test]
fn the_files_of_a_volume_are_copied_out_of_a_pod_and_back_as_the_guide_says() {
    check(Needs::Cluster, async |space| {
        let folder = tempfile::tempdir().unwrap();
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        space.shell("data", "mkdir /data/folder && echo kept >/data/folder/file && sync").await;
        let running = backup("The files of a running pod");
        typed_again(&of_pod(&running, "tar -C /data -cf", space, "data", folder.path())).await;
        let listed = typed(&of_pod(&running, "tar -tf", space, "data", folder.path())).await;
        assert!(listed.contains("folder/file"), "{listed}");

        // The pod of the page that has the volume instead of the application.
        space.shell("data", "echo later >/data/folder/file && sync").await;
        space.remove_pod("data").await;
        let stopped = backup("The files of a stopped application").block("apply -f -", &[]).join("\n");
        typed(&fill(&stopped, &[("NAMESPACE", &space.namespace)])).await;
        assert_eq!(space.shell("backup", "cat /data/folder/file").await, "later\n");
        space.shell("backup", "rm -r /data/folder").await;
        typed_again(&of_pod(&running, "tar -C /data -xf", space, "backup", folder.path())).await;
        assert_eq!(space.shell("backup", "cat /data/folder/file").await, "kept\n");
        space.remove_pod("backup").await;
    });
}

#[test]
fn a_raw_volume_is_copied_out_of_a_pod_as_the_guide_says() {
    check(Needs::Cluster, async |space| {
        let folder = tempfile::tempdir().unwrap();
        space.running("raw", "local-carved", "16Mi", As::Device).await;
        space.shell("raw", "echo kept | dd of=/dev/data conv=notrunc 2>/dev/null && sync").await;
        let raw = backup("A raw block volume");
        typed_again(&of_pod(&raw, "dd if=/dev/data", space, "raw", folder.path())).await;
        let image = std::fs::read(folder.path().join("data.img")).unwrap();
        assert_eq!(image.len() as u64, 16 * MIB);
        assert!(image.starts_with(b"kept\n"));
    });
}
