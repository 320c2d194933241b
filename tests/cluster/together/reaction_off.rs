//! The reaction is off unless an administrator switches it on (docs/reaction.md).

use std::time::Duration;

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::HOME;
use crate::sets_of_three::{RealDisks, members, remove_set, set_of_three};

/// The `recoverAfter` of this cluster, and a pass before and after it: a controller that reacts would have begun.
const LONGER: Duration = Duration::from_secs(60 + 2 * 30 + 5);

/// A controller whose `recoverAfter` is longer would delete nothing in that time in mode On either.
async fn would_begin_in_time(space: &Space) {
    let controller = space.get("Deployment", Some(HOME), "localpool-controller").await.expect("it is installed");
    // The controller is a native sidecar: an init container that goes on (charts/localpool).
    let pod = &controller["spec"]["template"]["spec"];
    let containers = ["initContainers", "containers"].into_iter().filter_map(|kind| pod[kind].as_array()).flatten();
    let arguments: Vec<&Value> = containers.filter_map(|one| one["args"].as_array()).flatten().collect();
    for argument in ["--reaction-mode=Off", "--reaction-recover-after=1m"] {
        assert!(arguments.iter().any(|one| **one == argument), "no {argument} among {arguments:?}");
    }
}

#[test]
fn a_disk_dies_under_a_set_of_three_whose_class_and_namespace_ask_and_nothing_is_deleted_while_the_reaction_is_off() {
    check(Needs::Machine, async |space| {
        would_begin_in_time(space).await;
        let disks = RealDisks::new(space).await;
        set_of_three(space, "real", &["data"], "real", json!({})).await;
        let before = members(space, "real").await;
        let disk = space.machine().place(before[1].handles()[0]).await.expect("it is on a disk").disk;
        let saved = disk.dies(space.machine()).await;
        before[1].is_lost(space).await;
        tokio::time::sleep(LONGER).await;
        for member in &before {
            member.is_untouched(space).await;
        }
        disk.returns(&saved).await;
        before[1].is_well(space).await;
        remove_set(space, "real").await;
        disks.remove(space).await;
    });
}
