//! What the processes of localpool hold in memory: with no volume, and with 500.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use localpool::api::crd::LocalVolumeSet;
use localpool_testing::loops::LoopDevice;
use serde_json::json;

use crate::cluster::{Cluster, MIB, SPACE, roles, times, until};
use crate::measure::{Aim, Measurement, Report};
use crate::pace::Size;
use crate::process::Memory;

const DISKS: usize = 5;
const VOLUMES: Size = Size { full: 500, short: 10 };
const SIZE: u64 = 16 * MIB;
const CLASS: &str = "localpool-bench-many";
/// Of a process's resident set. Each holds watches of the API server, so more than `localpool standalone`.
const AIM: f64 = 40.0;
/// Until background work has ended.
const SETTLE: Duration = Duration::from_secs(5);

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let volumes = cluster.pace.of(VOLUMES);
    add(report, "idle", "no volume")?;
    disks(cluster).await?;
    let names: BTreeSet<String> = (0..volumes).map(|n| format!("memory-{n}")).collect();
    for name in &names {
        cluster.claim(name, CLASS, SIZE).await?;
    }
    times(cluster.claims(), names, |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    })
    .await?;
    tokio::time::sleep(SETTLE).await;
    add(report, &format!("{volumes}-volumes"), &format!("{volumes} volumes on {DISKS} disks"))?;
    cluster.clear().await
}

/// Disks for so many, a set for them, and a class that binds at once: a disk holds 127.
async fn disks(cluster: &Cluster) -> Result<()> {
    let mut paths = Vec::new();
    for n in 0..DISKS {
        let image = cluster.work.join("disks").join(format!("bench-{n}.img"));
        std::fs::File::create(&image)?.set_len(4 << 30)?;
        // scripts/test-cluster takes it away with its folder.
        LoopDevice::attach(&image, &["--find"]);
        paths.push(image);
    }
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": "bench", "namespace": SPACE},
        "spec": {
            "storageClassName": "localpool-bench-disks",
            "deviceInclusionSpec": {"deviceTypes": ["loop"], "paths": paths},
            "partitioningSpec": {"mode": "Dynamic"},
        },
    });
    let sets: Api<LocalVolumeSet> = Api::namespaced(cluster.client.clone(), SPACE);
    cluster.make(&sets, set).await?;
    until("the disks are claimed", async || {
        let set = sets.get("bench").await?;
        Ok(set.status.is_some_and(|status| {
            serde_json::to_value(&status)
                .is_ok_and(|status| status["totalProvisionedDeviceCount"].as_u64() == u64::try_from(DISKS).ok())
        }))
    })
    .await?;
    let classes: Api<k8s_openapi::api::storage::v1::StorageClass> = Api::all(cluster.client.clone());
    let class = json!({
        "metadata": {"name": CLASS}, "provisioner": "csi.localpool.dev",
        "parameters": {"class": "localpool-bench-disks"}, "volumeBindingMode": "Immediate",
    });
    cluster.make(&classes, class).await
}

fn add(report: &mut Report, name: &str, with: &str) -> Result<()> {
    for (role, words) in [("node", "the node's agent"), ("controller", "a controller, the larger of two")] {
        let mut largest: Option<Memory> = None;
        for pid in roles(role)? {
            let memory = Memory::of(pid)?;
            if largest.is_none_or(|other| memory.resident > other.resident) {
                largest = Some(memory);
            }
        }
        let Some(Memory { resident, anonymous, proportional: _, highest }) = largest else { continue };
        for (kind, what, value, aims) in [
            ("rss", "resident (VmRSS)", resident, vec![Aim::OursBelow(AIM)]),
            ("anon", "of that its own, anonymous (RssAnon)", anonymous, Vec::new()),
            ("peak", "highest resident so far (VmHWM)", highest, Vec::new()),
        ] {
            let name = format!("kubernetes-memory-{role}-{name}-{kind}");
            let what = format!("Memory of {words}, {with}: {what}");
            report.add(Measurement::memory(name, what, value, AIM, aims));
        }
    }
    Ok(())
}
