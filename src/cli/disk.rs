//! The verbs about one disk.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::ask::{self, Local};
use super::how::{HowArgs, RunArgs, print_lines, runtime};
use crate::agent::Run;
use crate::device::DiskId;
use crate::host::Lit;
use crate::operator::{self, drain::drain};

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Order that a disk takes no new volumes, and print what is on it and what to delete; asks the cluster
    Drain(DrainArgs),
    /// Turn on the light of the slot that a disk is in, if its enclosure has one, and print by what it is recognized
    Locate(LocateArgs),
    /// Release a disk without volumes: it becomes blank, and no set claims it again until `disk adopt`
    Release(DiskArgs),
    /// Take over a disk: one with another node's label, one that was released, or a disputed bare device
    Adopt(DiskArgs),
}

#[derive(Debug, Args)]
pub struct DrainArgs {
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

impl DiskCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Drain(DrainArgs { disk, run }) => {
                let ordered = async { drain(operator::client().await?, DiskId::named(disk), run.run()).await };
                print_lines(&runtime()?.block_on(ordered)?)
            }
            Self::Locate(LocateArgs { disk, off }) => {
                let lit = if off { Lit::Off } else { Lit::On };
                disk.print(|local, disk, run| ask::locate_disk(local, disk, lit, run))
            }
            Self::Release(args) => args.print(ask::release_disk),
            Self::Adopt(args) => args.print(ask::adopt_disk),
        }
    }
}

impl DiskArgs {
    fn print(self, ask: impl Fn(&Local, &str, Run) -> Result<Vec<String>>) -> Result<()> {
        let Self { disk, how } = self;
        print_lines(&ask(&how.state.local()?, &disk, how.run.run())?)
    }
}
