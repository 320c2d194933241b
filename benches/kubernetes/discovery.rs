//! From the kernel's word of a new disk until it is in the LocalVolumeDiscoveryResult. Beside it a bare write of an
//! object until a watch has it, which is what the cluster itself takes of that time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use localpool::api::crd::{DISCOVERY_NAME, LocalVolumeDiscovery, LocalVolumeDiscoveryResult};
use localpool_testing::loops::LoopDevice;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::cluster::{Cluster, SPACE, until};
use crate::measure::{Aim, Better, Measurement, Report, Samples};
use crate::pace::Size;

const ROUNDS: Size = Size { full: 30, short: 2 };
/// A result is written at most twice a second: what is measured is the first write after a rest.
const REST: Duration = Duration::from_millis(1500);
const LONGEST: Duration = Duration::from_secs(20);
const PROBE: &str = "localpool-bench-write";

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let discoveries: Api<LocalVolumeDiscovery> = Api::namespaced(cluster.client.clone(), SPACE);
    let discovery = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": DISCOVERY_NAME}, "spec": {},
    });
    cluster.make(&discoveries, discovery).await?;
    let results: Api<LocalVolumeDiscoveryResult> = Api::namespaced(cluster.client.clone(), SPACE);
    let listed = async || Ok(!results.list(&Default::default()).await?.items.is_empty());
    until("the node has a discovery result", listed).await?;
    let found = seen(results, |result| {
        let status = result.status.iter().flat_map(|status| &status.discovered_devices);
        status.filter_map(|device| device.facts().text("path").map(str::to_owned)).collect()
    });
    let told = rounds(cluster, found).await;
    discoveries.delete(DISCOVERY_NAME, &DeleteParams::default()).await?;
    let written = writes(cluster).await?;
    let told = told?;
    for percent in [50, 99] {
        report.add(Measurement {
            name: format!("kubernetes-discovery-p{percent}"),
            what: format!("A disk is attached: until it is in its node's LocalVolumeDiscoveryResult, p{percent}"),
            beside: "a ConfigMap is written: until a watch has it".to_owned(),
            unit: "ms",
            ours: told.percentile(percent),
            baseline: written.percentile(percent),
            better: Better::Smaller,
            n: told.len(),
            aims: vec![Aim::OursAtMost(2000.0)],
        });
    }
    Ok(())
}

/// Attaches a disk, again and again, and waits for its path.
async fn rounds(cluster: &Cluster, mut found: Seen) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..cluster.pace.of(ROUNDS) {
        tokio::time::sleep(REST).await;
        let image = cluster.work.join(format!("found-{round}.img"));
        std::fs::File::create(&image)?.set_len(64 << 20)?;
        let begun = Instant::now();
        let disk = Attached(LoopDevice::attach(&image, &["--find"]));
        let path = disk.0.path().to_owned();
        samples.push(found.until(begun, &path, true).await?);
        drop(disk);
        std::fs::remove_file(&image)?;
        found.until(begun, &path, false).await?;
    }
    Ok(samples)
}

/// A write of an object of this size, for comparison: the same API server, the same watch.
async fn writes(cluster: &Cluster) -> Result<Samples> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), SPACE);
    cluster.make(&maps, json!({"metadata": {"name": PROBE}})).await?;
    let mut seen = seen(maps.clone(), |map| map.data.iter().flatten().map(|(key, _)| key.clone()).collect());
    let mut samples = Samples::default();
    for round in 0..cluster.pace.of(ROUNDS) {
        tokio::time::sleep(REST / 3).await;
        let key = format!("round-{round}");
        let begun = Instant::now();
        let patch = json!({"data": {&key: "x".repeat(8 << 10)}});
        maps.patch(PROBE, &PatchParams::default(), &Patch::Merge(patch)).await?;
        samples.push(seen.until(begun, &key, true).await?);
    }
    maps.delete(PROBE, &DeleteParams::default()).await?;
    Ok(samples)
}

/// What the newest state of watched objects names, and when it came.
struct Seen(UnboundedReceiver<(Instant, BTreeSet<String>)>);

fn seen<K>(api: Api<K>, names: fn(&K) -> BTreeSet<String>) -> Seen
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).applied_objects());
        while let Some(event) = events.next().await {
            let Ok(object) = event else { continue };
            tracing::debug!(object = object.name_any(), "seen");
            if tell.send((Instant::now(), names(&object))).is_err() {
                break;
            }
        }
    });
    Seen(told)
}

impl Seen {
    /// The time from `begun` until a state came that has the name, or has it no more.
    async fn until(&mut self, begun: Instant, name: &str, there: bool) -> Result<Duration> {
        let wait = async {
            while let Some((at, names)) = self.0.recv().await {
                if at >= begun && names.contains(name) == there {
                    return Ok(at - begun);
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(LONGEST, wait).await.with_context(|| format!("{name} was not told of"))?
    }
}

/// A loop device for as long as it lives. What a kill leaves is taken away by scripts/test-cluster: the image
/// lies in its folder.
struct Attached(LoopDevice);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.detach_if_mine();
    }
}
