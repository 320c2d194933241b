//! `scripts/test-cluster bench`: what a claim costs on a real cluster of one node, beside a cluster without localpool.
//!
//! Takes in KUBECONFIG of a cluster of scripts/test-cluster, with the chart installed, and its folders in the
//! environment; gives out `target/bench/kubernetes-*.json` and `docs/benchmarks-kubernetes.md`. Aims are printed as
//! met or not met; timing never fails the run. With `--short` it does a few rounds of everything, to see that it
//! works, and writes no figure.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/discovery.rs"]
mod discovery;
#[path = "kubernetes/idle.rs"]
mod idle;
#[path = "kubernetes/latency.rs"]
mod latency;
#[path = "figures/machine.rs"]
mod machine;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "figures/measure.rs"]
mod measure;
#[path = "kubernetes/memory.rs"]
mod memory;
#[path = "figures/pace.rs"]
mod pace;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "figures/process.rs"]
mod process;
#[path = "figures/report.rs"]
mod report;
#[path = "kubernetes/requests.rs"]
mod requests;
#[path = "kubernetes/watchers.rs"]
mod watchers;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::measure::Report;
use crate::pace::Pace;
use crate::report::Page;

const PAGE: Page = Page {
    file: "docs/benchmarks-kubernetes.md",
    title: "Benchmarks on Kubernetes",
    words: "The disks themselves have [a page of their own](benchmarks.md).\n\n\
            ![Some of the figures as bars](images/benchmarks-kubernetes.svg)",
    prefix: "kubernetes-",
};

const GROUPS: [&str; 6] = ["latency", "discovery", "requests", "watchers", "memory", "idle"];

fn main() -> ExitCode {
    pace::main("kubernetes", "scripts/test-cluster bench", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(anyhow::Error::from)?.block_on(run())
    })
}

async fn run() -> Result<()> {
    let groups = pace::groups(&GROUPS)?;
    let pace = Pace::of_arguments();
    let cluster = Cluster::new(pace).await?;
    let machine = machine::describe(&cluster.work, cluster.facts().await?)?;
    println!("{machine}\n");
    let mut report = Report::default();
    // The last one takes localpool away.
    for name in &groups {
        let began = Instant::now();
        println!("{name} ...");
        match *name {
            "latency" => latency::measure(&cluster, &mut report).await?,
            "discovery" => discovery::measure(&cluster, &mut report).await?,
            "requests" => requests::measure(&cluster, &mut report).await?,
            "watchers" => watchers::measure(&cluster, &mut report).await?,
            "memory" => memory::measure(&cluster, &mut report).await?,
            _ => idle::measure(&cluster, &mut report).await?,
        }
        println!("  ({:.0} s)", began.elapsed().as_secs_f64());
    }
    if pace == Pace::Short {
        println!("{}", pace::ENDED);
        return Ok(());
    }
    report::write(&PAGE, &machine, &report, groups.len() == GROUPS.len())
}
