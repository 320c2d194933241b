//! Volumes that are folders, and the agent that has their filesystem mounted.

use crate::check::{Needs, check};
use crate::peace::{Expected, quietly, without_agents};
use crate::pods::As;
use crate::sets::Folders;

#[test]
fn a_pod_uses_its_folder_while_the_agent_is_away_and_the_next_agent_mounts_the_filesystem_again() {
    check(Needs::Machine, async |space| {
        let absence = Expected::new();
        let Folders { disk, class, .. } = quietly(space.own_folders("kept")).await;
        quietly(async {
            space.running_in(&class, "data", "16Mi").await;
            space.shell("data", "echo before >/data/file").await;
        })
        .await;
        without_agents(space, absence, async || {
            assert_eq!(space.shell("data", "echo away >>/data/file; cat /data/file").await, "before\naway\n");
        })
        .await;
        quietly(async {
            space.grow("data", "32Mi").await;
            space.remove_pod("data").await;
            space.create(&space.pod("data", "data", As::Folder)).await;
            space.until_running("data").await;
            assert_eq!(space.shell("data", "cat /data/file").await, "before\naway\n");
            space.remove_pod("data").await;
            space.remove_claim("data").await;
            space.remove_disk("kept", &disk).await;
        })
        .await;
    });
}
