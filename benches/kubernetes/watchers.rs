//! What a thousand agents that watch cost the apiserver: its processor time for a volume, without and with them.
//!
//! An agent's watches are those of src/operator/agent: its PoolVolumes by `spec.node`, the sets, its Node, its
//! DevicePool.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use localpool::api::crd::{DevicePool, LocalVolumeSet, PoolVolume};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, MIB, times};
use crate::measure::{Better, Measurement, Report};
use crate::pace::Size;
use crate::process::{Memory, processor_time};

const AGENTS: Size = Size { full: 1000, short: 10 };
const VOLUMES: Size = Size { full: 50, short: 2 };
/// Of all that the opened watches brought about.
const SETTLE: Size = Size { full: 10, short: 1 };

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let apiserver = cluster.component("kube-apiserver")?;
    let class = cluster.immediate_class().await?;
    let (alone, memory_alone) = (volumes(cluster, class, apiserver).await?, Memory::of(apiserver)?.resident);
    let (agents_wanted, settle) = (cluster.pace.of(AGENTS), Duration::from_secs(cluster.pace.of(SETTLE)));
    let mut agents = JoinSet::new();
    let mut listed = Vec::new();
    for n in 0..agents_wanted {
        let (tell, told) = tokio::sync::oneshot::channel();
        agents.spawn(agent(cluster.client.clone(), format!("simulated-{n}"), tell));
        listed.push(told);
    }
    for told in listed {
        told.await?;
    }
    tokio::time::sleep(settle).await;
    let before = processor_time(apiserver)?;
    tokio::time::sleep(settle).await;
    let idle = milliseconds(apiserver, before)? / settle.as_secs_f64();
    let watched = volumes(cluster, class, apiserver).await?;
    let memory = Memory::of(apiserver)?.resident;
    agents.shutdown().await;
    report.add(Measurement {
        name: "kubernetes-watchers-apiserver-cpu".to_owned(),
        what: format!("Processor time of the apiserver for a volume made and deleted, {agents_wanted} agents watching"),
        beside: "with the cluster's own agent only".to_owned(),
        unit: "ms",
        ours: watched,
        baseline: alone,
        better: Better::Smaller,
        n: cluster.pace.count(VOLUMES),
        aims: Vec::new(),
    });
    report.add(Measurement {
        name: "kubernetes-watchers-apiserver-memory".to_owned(),
        what: format!("Memory of the apiserver, {agents_wanted} agents watching (VmRSS)"),
        beside: "with the cluster's own agent only".to_owned(),
        unit: "MiB",
        ours: memory,
        baseline: memory_alone,
        better: Better::Smaller,
        n: 1,
        aims: Vec::new(),
    });
    report.note(format!(
        "While {agents_wanted} agents watch and nothing happens, the apiserver takes {} ms of processor time a second.",
        crate::measure::short(idle)
    ));
    Ok(())
}

/// Milliseconds of the apiserver for each volume.
async fn volumes(cluster: &Cluster, class: &str, apiserver: u32) -> Result<f64> {
    let before = processor_time(apiserver)?;
    let volumes = cluster.pace.of(VOLUMES);
    for n in 0..volumes {
        let name = format!("watched-{n}");
        cluster.claim(&name, class, 16 * MIB).await?;
        times(cluster.claims(), [name].into(), |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        })
        .await?;
    }
    cluster.clear().await?;
    Ok(milliseconds(apiserver, before)? / volumes as f64)
}

/// Processor time since then.
fn milliseconds(pid: u32, before: Duration) -> Result<f64> {
    Ok(processor_time(pid)?.saturating_sub(before).as_secs_f64() * 1e3)
}

/// Watches as an agent of that node does; says when it has listed everything.
async fn agent(client: Client, node: String, listed: tokio::sync::oneshot::Sender<()>) {
    let named = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let volumes = watcher::Config::default().fields(&format!("spec.node={node}"));
    let done = std::sync::Arc::new(tokio::sync::Barrier::new(5));
    let said = std::sync::Arc::clone(&done);
    tokio::join!(
        watch(Api::<PoolVolume>::all(client.clone()), volumes, &done),
        watch(Api::<LocalVolumeSet>::all(client.clone()), watcher::Config::default(), &done),
        watch(Api::<Node>::all(client.clone()), named.clone(), &done),
        watch(Api::<DevicePool>::all(client), named, &done),
        async move {
            said.wait().await;
            let _ = listed.send(());
        },
    );
}

async fn watch<K>(api: Api<K>, config: watcher::Config, listed: &tokio::sync::Barrier)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut first = true;
    while let Some(event) = events.next().await {
        if first && matches!(event, Ok(watcher::Event::InitDone)) {
            first = false;
            listed.wait().await;
        }
    }
}
