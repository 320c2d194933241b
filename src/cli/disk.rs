//! The verbs about one disk.

use anyhow::Result;
use clap::{Args, Subcommand};
use kube::Client;

use super::ask::{self, Local};
use super::how::{HowArgs, RunArgs, print_lines, runtime};
use crate::agent::Run;
use crate::device::DiskId;
use crate::host::Lit;
use crate::operator::{
    self, OperatorError,
    drain::{cordon, drain, uncordon},
};

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Make no new volumes on a disk, whatever its health; asks the cluster
    Cordon(OrderedDiskArgs),
    /// Let the health of a disk decide again whether new volumes are made on it; asks the cluster
    Uncordon(OrderedDiskArgs),
    /// Order that a disk takes no new volumes, and print what is on it and what to delete; asks the cluster
    Drain(OrderedDiskArgs),
    /// Turn on the light of the slot of a disk, if its enclosure has one, and print its model, serial number and path
    Locate(LocateArgs),
    /// Release a disk without volumes: it becomes blank, and no set claims it again until `disk adopt`
    Release(DiskArgs),
    /// Stop waiting for a disk that is missing, and for its volumes; a disk that is here is never given up
    GiveUp(GiveUpArgs),
    /// Take over a disk: one with another node's label, one that was released, one that was given up and is back, or a disputed bare device
    Adopt(DiskArgs),
}

#[derive(Debug, Args)]
pub struct OrderedDiskArgs {
    /// Id of the disk, as status.disks of its DevicePool has it
    disk: String,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
pub struct LocateArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Turn it off
    #[arg(long)]
    off: bool,
}

#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Id, path or link of the disk, as `localpool devices -o wide` prints them
    disk: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
pub struct GiveUpArgs {
    /// Id of the disk, as status.disks of its DevicePool has it
    #[arg(value_name = "ID")]
    disk: String,
    #[command(flatten)]
    how: HowArgs,
}

impl DiskCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Cordon(args) => args.run(cordon),
            Self::Uncordon(args) => args.run(uncordon),
            Self::Drain(args) => args.run(drain),
            Self::Locate(LocateArgs { disk, off }) => {
                let lit = if off { Lit::Off } else { Lit::On };
                disk.print(|local, disk, run| ask::locate_disk(local, disk, lit, run))
            }
            Self::Release(args) => args.print(ask::release_disk),
            Self::GiveUp(GiveUpArgs { disk, how }) => DiskArgs { disk, how }.print(ask::give_up_disk),
            Self::Adopt(args) => args.print(ask::adopt_disk),
        }
    }
}

impl OrderedDiskArgs {
    fn run<F>(self, verb: impl FnOnce(Client, DiskId, Run) -> F) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, OperatorError>>,
    {
        let Self { disk, run } = self;
        let ordered = async { verb(operator::client().await?, DiskId::named(disk), run.run()).await };
        print_lines(&runtime()?.block_on(ordered)?)
    }
}

impl DiskArgs {
    fn print(self, ask: impl Fn(&Local, &str, Run) -> Result<Vec<String>>) -> Result<()> {
        let Self { disk, how } = self;
        print_lines(&ask(&how.state.local()?, &disk, how.run.run())?)
    }
}
