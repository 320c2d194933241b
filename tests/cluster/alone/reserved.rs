//! `controller.reserveMarked` with the binder of a real cluster.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::by_hand::{Mounted, marks, watched};
use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, kubectl, run};

/// The chart of this tree, with this value.
async fn switch(reserve: bool) {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
    let value = format!("controller.reserveMarked={reserve}");
    run("helm", &["upgrade", "localpool", chart, "--namespace", HOME, "--set", &value]).await;
    kubectl(&["-n", HOME, "rollout", "status", "deployment/localpool-controller", "--timeout=5m"]).await;
}

/// A claim that this volume suits, and that is made while the volume is marked.
async fn play(space: &Space, mounted: &Mounted) {
    let (volume, _) = watched(space, mounted).await;
    mounted.unmount().await;
    let reserved = |volume: &Value| {
        let claim = volume["spec"]["claimRef"]["name"].as_str().unwrap_or_default();
        claim.starts_with("localpool-marked-") && marks(volume) == ["NotMountPoint"]
    };
    space.until("PersistentVolume", None, &volume, "is marked and reserved", reserved).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": space.namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": space.namespace,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    space.create(&claim).await;
    // The binder has looked for a volume, and found none.
    space.event("data", &["ProvisioningFailed", "not found"]).await;
    let claim = space.get("PersistentVolumeClaim", space.here(), "data").await.expect("it waits");
    assert_eq!(claim["status"]["phase"], "Pending", "{claim}");
    mounted.mount().await;
    let bound = |claim: &Value| claim["status"]["phase"] == "Bound" && claim["spec"]["volumeName"] == *volume;
    space.until("PersistentVolumeClaim", space.here(), "data", "has the volume that is well again", bound).await;
    space.delete("PersistentVolumeClaim", space.here(), "data").await;
    space.delete("PersistentVolume", None, &volume).await;
    space.until_gone("PersistentVolume", None, &volume).await;
}

#[test]
fn a_claim_gets_no_volume_that_is_marked_and_gets_it_when_it_is_well_where_that_is_wanted() {
    check(Needs::Machine, async |space| {
        switch(true).await;
        let mounted = Mounted::new(space).await;
        let ended = AssertUnwindSafe(play(space, &mounted)).catch_unwind().await;
        switch(false).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
