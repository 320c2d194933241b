//! What a volume costs the apiserver in writes, from the apiserver's own counters.

use anyhow::Result;

use crate::cluster::{Cluster, MIB, times, writes};
use crate::measure::{Aim, Better, Measurement, Report};
use crate::pace::Size;

const VOLUMES: Size = Size { full: 40, short: 2 };
/// ADR 10: object, Accepted, Ready; intent, deletion, finalizer.
const AIM: f64 = 6.0;
/// What external-provisioner, the PersistentVolume controller and the claim cost, whatever the driver.
const OF_KUBERNETES: [&str; 3] = ["persistentvolumes", "persistentvolumeclaims", "events"];

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let class = cluster.immediate_class().await?;
    let volumes = cluster.pace.count(VOLUMES);
    let before = cluster.requests().await?;
    let names: Vec<String> = (0..volumes).map(|n| format!("requests-{n}")).collect();
    // One by one: many at once share writes of the DevicePool.
    for name in &names {
        cluster.claim(name, class, 16 * MIB).await?;
        times(cluster.claims(), [name.clone()].into(), |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        })
        .await?;
    }
    cluster.clear().await?;
    let all = cluster.requests().await?.since(&before);
    let volume = |verb: &str, resource: &str| writes(verb) && resource.starts_with("poolvolumes");
    let pool = |verb: &str, resource: &str| writes(verb) && resource.starts_with("devicepools");
    let kubernetes = |verb: &str, resource: &str| {
        writes(verb) && OF_KUBERNETES.iter().any(|kind| resource.split('/').next() == Some(kind))
    };
    let per = volumes as f64;
    let baseline = all.sum(kubernetes) / per;
    for (name, what, value, aims) in [
        ("volume", "of its PoolVolume", all.sum(volume) / per, vec![Aim::OursAtMost(AIM)]),
        ("pool", "of the DevicePool, one volume at a time", all.sum(pool) / per, Vec::new()),
    ] {
        report.add(Measurement {
            name: format!("kubernetes-writes-{name}"),
            what: format!("Writes to the apiserver for a volume made and deleted: {what}"),
            beside: "writes of Kubernetes itself (claim, PersistentVolume, events)".to_owned(),
            unit: "writes",
            ours: value,
            baseline,
            better: Better::Smaller,
            n: volumes,
            aims,
        });
    }
    report.note(format!(
        "Writes for a volume, by verb and object: {}.",
        all.words(|verb, resource| writes(verb) && resource != "leases", per)
    ));
    Ok(())
}
