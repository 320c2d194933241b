//! Two controllers, one of which is stopped in the middle of its work.

use std::collections::BTreeSet;

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, kubectl, name};
use crate::peace::disturbing;
use crate::pods::As;

#[test]
fn claims_are_provisioned_once_each_when_the_leader_is_killed_meanwhile() {
    check(Needs::Cluster, async |space| disturbing(killed(space)).await);
}

async fn killed(space: &Space) {
    let lease = space.get("Lease", Some(HOME), "csi-localpool-dev").await.expect("the provisioner's lease");
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    let pods = space.list("Pod", Some(HOME)).await;
    let leader = pods.iter().map(name).find(|pod| holder.contains(pod)).expect("the pod that leads").to_owned();
    for number in 0..10 {
        let name = format!("app-{number}");
        space.create(&space.claim(&name, "local-carved", "64Mi")).await;
        space.create(&space.pod(&name, &name, As::Folder)).await;
    }
    let claims = || async { space.list("PersistentVolumeClaim", space.here()).await };
    let ids = async || -> BTreeSet<String> {
        claims().await.iter().map(|claim| format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap())).collect()
    };
    let ours = ids().await;
    let of_ours = async || {
        let all = space.list("PoolVolume", None).await;
        all.into_iter().filter(|one| ours.contains(one["spec"]["volumeName"].as_str().unwrap())).collect::<Vec<_>>()
    };
    let begun = async || if of_ours().await.is_empty() { Err("none yet") } else { Ok(()) };
    eventually("the first of them is being made", SOON, begun).await;
    kubectl(&["-n", HOME, "delete", "pod", &leader, "--force", "--grace-period=0"]).await;
    for number in 0..10 {
        space.until_running(&format!("app-{number}")).await;
        space.shell(&format!("app-{number}"), "echo works >/data/file").await;
    }
    let volumes = of_ours().await;
    assert_eq!(volumes.len(), 10, "a volume for each claim");
    let names: BTreeSet<_> = volumes.iter().map(|one| one["spec"]["volumeName"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 10, "and one only");
    let ready = async || {
        let two = space.get("Deployment", Some(HOME), "localpool-controller").await.unwrap();
        if two["status"]["readyReplicas"] == two["spec"]["replicas"] { Ok(()) } else { Err(two["status"].clone()) }
    };
    eventually("the controllers are complete again", SOON, ready).await;
}
