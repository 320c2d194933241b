//! The verbs about one disk.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;

use super::ask::{self, Local};
use super::client::ClientArgs;
use super::how::{HowArgs, RunArgs, print_lines, runtime};
use super::local_list::LocalListArgs;
use crate::agent::Run;
use crate::api::crd::FolderQuota;
use crate::device::DiskId;
use crate::host::Lit;
use crate::operator::OperatorError;
use crate::operator::drain::{AddedDisk, add, cordon, drain, uncordon};
use crate::operator::overview::disk_id;

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// The same as `devices`: print every disk of this machine, who owns it, and why
    List(LocalListArgs),
    #[command(flatten)]
    Object(DiskObjectCommand),
    /// Turn on the light of the slot of a disk, if its enclosure has one, and print its model, serial number and path
    Locate(LocateArgs),
    /// Release a disk without volumes: it becomes blank, and no set claims it again until `disk adopt`
    Release(DiskArgs),
    /// Stop waiting for a disk that is missing, and for its volumes; a disk that is here is never given up
    GiveUp(GiveUpArgs),
    /// Take over a disk: one with another node's label, one that was released, one that was given up and is back, or a
    /// disputed bare device
    Adopt(DiskArgs),
}

/// Those that ask the cluster alone.
#[derive(Debug, Subcommand)]
pub enum DiskObjectCommand {
    /// Make no new volumes on a disk, whatever its health; asks the cluster
    Cordon(OrderedDiskArgs),
    /// Let the health of a disk decide again whether new volumes are made on it; asks the cluster
    Uncordon(OrderedDiskArgs),
    /// Order that a disk takes no new volumes, and print what is on it and what to delete; asks the cluster
    Drain(OrderedDiskArgs),
    /// Name a filesystem that you have mounted on a node, in spec.disks of its DevicePool; asks the cluster
    Add(AddArgs),
}

#[derive(Debug, Args)]
pub struct OrderedDiskArgs {
    /// Id of the disk, as status.disks of its DevicePool has it, or NODE/ID
    disk: String,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct AddArgs {
    /// The node that has it
    node: String,
    /// Its mount point there, without links
    path: String,
    /// Its name [default: disk- and something random]
    #[arg(long)]
    name: Option<String>,
    /// What keeps a volume within its size
    #[arg(long, value_enum, default_value = "project")]
    quota: QuotaName,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum QuotaName {
    Project,
    None,
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
            Self::List(args) => args.run(ask::devices),
            Self::Object(command) => command.run(),
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

impl DiskObjectCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Cordon(args) => args.run(cordon),
            Self::Uncordon(args) => args.run(uncordon),
            Self::Drain(args) => args.run(drain),
            Self::Add(args) => args.run(),
        }
    }
}

impl OrderedDiskArgs {
    fn run<F>(self, verb: impl FnOnce(Client, DiskId, Run) -> F) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, OperatorError>>,
    {
        let Self { disk, run, client } = self;
        let ordered = client.ask(async |client| {
            let disk = disk_id(client.clone(), disk).await?;
            Ok(verb(client, disk, run.run()).await?)
        });
        print_lines(&runtime()?.block_on(ordered)?)
    }
}

impl AddArgs {
    fn run(self) -> Result<()> {
        let Self { node, path, name, quota, run, client } = self;
        let quota = match quota {
            QuotaName::Project => FolderQuota::Project,
            QuotaName::None => FolderQuota::None,
        };
        let disk = AddedDisk { node: node.into(), path, name, quota };
        let added = client.ask(async |client| Ok(add(client, disk, run.run()).await?));
        print_lines(&runtime()?.block_on(added)?)
    }
}

impl DiskArgs {
    fn print(self, ask: impl Fn(&Local, &str, Run) -> Result<Vec<String>>) -> Result<()> {
        let Self { disk, how } = self;
        print_lines(&ask(&how.state.local()?, &disk, how.run.run())?)
    }
}
