//! What localpool asks of the apiserver when nothing happens; beside it the same cluster after it was taken away.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cluster::{Cluster, Requests};
use crate::measure::{Aim, Better, Measurement, Report};
use crate::pace::Size;

const SECONDS: Size = Size { full: 120, short: 3 };
/// Until the last of what was done before is over.
const SETTLE: Size = Size { full: 20, short: 1 };

pub async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    cluster.clear().await?;
    let minutes = cluster.pace.of(SECONDS) as f64 / 60.0;
    let with = idle(cluster).await?;
    let uninstalled =
        Command::new("helm").args(["uninstall", "localpool", "--namespace", "localpool", "--wait"]).output()?;
    if !uninstalled.status.success() {
        bail!("helm uninstall: {}", String::from_utf8_lossy(&uninstalled.stderr));
    }
    let without = idle(cluster).await?;
    let ours = with.sum(of_ours) / minutes;
    report.add(Measurement {
        name: "kubernetes-idle-own".to_owned(),
        what: "Requests in an idle minute for localpool's own kinds of objects, but for watches".to_owned(),
        beside: "the aim".to_owned(),
        unit: "requests",
        ours,
        baseline: 0.0,
        better: Better::Smaller,
        n: 1,
        aims: vec![Aim::OursAtMost(0.0)],
    });
    let (with_all, without_all) = (with.sum(counts) / minutes, without.sum(counts) / minutes);
    report.add(Measurement {
        name: "kubernetes-idle-all".to_owned(),
        what: "All requests in an idle minute of the cluster, but for leases and watches".to_owned(),
        beside: "the same cluster without localpool".to_owned(),
        unit: "requests",
        ours: with_all,
        baseline: without_all,
        better: Better::Smaller,
        n: 1,
        aims: Vec::new(),
    });
    let leases = |verb: &str, resource: &str| resource == "leases" && verb != "WATCH";
    report.add(Measurement {
        name: "kubernetes-idle-leases".to_owned(),
        what: "Requests for leases in an idle minute (two controllers, provisioner and resizer twice)".to_owned(),
        beside: "the same cluster without localpool".to_owned(),
        unit: "requests",
        ours: with.sum(leases) / minutes,
        baseline: without.sum(leases) / minutes,
        better: Better::Smaller,
        n: 1,
        aims: Vec::new(),
    });
    report.note(format!("Idle with localpool, in a minute: {}.", with.words(counts, minutes)));
    report.note(format!("Idle without localpool, in a minute: {}.", without.words(counts, minutes)));
    Ok(())
}

/// What comes in while nobody does anything. The reading itself is a request without a resource.
async fn idle(cluster: &Cluster) -> Result<Requests> {
    tokio::time::sleep(Duration::from_secs(cluster.pace.of(SETTLE))).await;
    let before = cluster.requests().await?;
    tokio::time::sleep(Duration::from_secs(cluster.pace.of(SECONDS))).await;
    Ok(cluster.requests().await?.since(&before))
}

fn counts(verb: &str, resource: &str) -> bool {
    verb != "WATCH" && resource != "leases" && !resource.is_empty()
}

fn of_ours(verb: &str, resource: &str) -> bool {
    let kind = resource.split('/').next().unwrap_or_default();
    verb != "WATCH" && ["poolvolumes", "devicepools", "localvolumesets", "csistoragecapacities"].contains(&kind)
}
