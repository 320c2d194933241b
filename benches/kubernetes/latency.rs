//! A claim and its pod, created together: until the claim is bound, until the pod runs. Beside it what the static
//! provisioner leads to: the same pod with a claim of a `local` PersistentVolume that an administrator prepared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use serde_json::json;

use crate::cluster::{CLASS, Cluster, MIB, times};
use crate::measure::{Better, Measurement, Report, Samples};
use crate::pace::Size;

const ONE_BY_ONE: Size = Size { full: 20, short: 1 };
const AT_ONCE: Size = Size { full: 100, short: 3 };
const STATIC: &str = "localpool-bench-static";

#[derive(Default)]
struct Taken {
    bound: Samples,
    running: Samples,
}

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    static_class(cluster).await?;
    let at_once = cluster.pace.of(AT_ONCE);
    let mut results = BTreeMap::new();
    for class in [STATIC, CLASS] {
        // The first one pays for what the node has to load.
        together(cluster, class, &["warm".to_owned()]).await?;
        cluster.clear().await?;
        let mut alone = Taken::default();
        for n in 0..cluster.pace.of(ONE_BY_ONE) {
            let one = together(cluster, class, &[format!("one-{n}")]).await?;
            alone.bound.extend(one.bound);
            alone.running.extend(one.running);
            cluster.clear().await?;
        }
        let names: Vec<String> = (0..at_once).map(|n| format!("many-{n}")).collect();
        let many = together(cluster, class, &names).await?;
        cluster.clear().await?;
        results.insert(class, (alone, many));
    }
    let (alone, many) = &results[CLASS];
    let (static_alone, static_many) = &results[STATIC];
    for (key, what, ours, baseline) in
        [("one", "one at a time", alone, static_alone), ("hundred", &*format!("{at_once} at once"), many, static_many)]
    {
        for (step, words, ours, baseline) in [
            ("bound", "Bound", &ours.bound, &baseline.bound),
            ("running", "its pod Ready", &ours.running, &baseline.running),
        ] {
            for percent in [50, 99] {
                report.add(Measurement {
                    name: format!("kubernetes-claim-{key}-{step}-p{percent}"),
                    what: format!("Claim and pod created, {what}: until the claim is {words}, p{percent}")
                        .replace("the claim is its pod", "the pod is"),
                    beside: "a `local` PersistentVolume, prepared by hand".to_owned(),
                    unit: "ms",
                    ours: ours.percentile(percent),
                    baseline: baseline.percentile(percent),
                    better: Better::Smaller,
                    n: ours.len(),
                    aims: Vec::new(),
                });
            }
        }
    }
    Ok(())
}

/// Creates claims and pods of these names, and times them from the creation of each claim.
async fn together(cluster: &Cluster, class: &str, names: &[String]) -> Result<Taken> {
    if class == STATIC {
        for name in names {
            static_volume(cluster, name).await?;
        }
    }
    let all: BTreeSet<String> = names.iter().cloned().collect();
    let bound = tokio::spawn(times(cluster.claims(), all.clone(), |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    }));
    let ready = tokio::spawn(times(cluster.pods(), all, |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
    }));
    let mut begun = BTreeMap::new();
    for name in names {
        begun.insert(name.clone(), Instant::now());
        cluster.claim(name, class, 16 * MIB).await?;
        cluster.pod(name).await?;
    }
    let (bound, ready) = (bound.await??, ready.await??);
    let mut taken = Taken::default();
    for (name, begun) in begun {
        let at = |times: &crate::cluster::Times| times.get(&name).copied().context("it was waited for");
        taken.bound.push(at(&bound)? - begun);
        taken.running.push(at(&ready)? - begun);
    }
    if class == STATIC {
        for name in names {
            // Nobody deletes a PersistentVolume of a class without a provisioner.
            cluster.volumes().delete(&format!("{STATIC}-{name}"), &kube::api::DeleteParams::default()).await?;
        }
    }
    Ok(taken)
}

async fn static_class(cluster: &Cluster) -> Result<()> {
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let class = json!({
        "metadata": {"name": STATIC}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.make(&classes, class).await
}

/// A folder of the run's own, as a `local` volume.
async fn static_volume(cluster: &Cluster, name: &str) -> Result<()> {
    let folder = cluster.work.join("static").join(name);
    std::fs::create_dir_all(&folder)?;
    let volume = json!({
        "metadata": {"name": format!("{STATIC}-{name}")},
        "spec": {
            "capacity": {"storage": (16 * MIB).to_string()}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": STATIC, "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node]},
            ]}]}},
        },
    });
    cluster.make(&cluster.volumes(), volume).await
}
