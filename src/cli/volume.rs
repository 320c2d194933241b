//! The verbs about one volume, and about the pool of a node that is gone.

use anyhow::Result;
use clap::{Args, Subcommand};
use kube::Client;

use super::ask;
use super::client::ClientArgs;
use super::how::{HowArgs, RunArgs, print_lines, runtime};
use super::local_list::LocalListArgs;
use crate::agent::Run;
use crate::host::stdout::print;
use crate::operator::OperatorError;
use crate::operator::drain::forget;
use crate::operator::volume::{ManifestRequest, PvcName, abandon, erase, manifest};
use crate::volume::VolumeId;

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// The same as `volumes`: print every volume on the disks of this node's pool; needs a running agent
    List(LocalListArgs),
    /// Make a volume that came with an adopted disk usable; needs a running agent
    Adopt(VolumeArgs),
    /// Choose which of several disks has a volume that is in conflict; the data on the others is kept under another id
    Settle(SettleArgs),
    #[command(flatten)]
    Object(VolumeObjectCommand),
}

/// Those that ask the cluster alone.
#[derive(Debug, Subcommand)]
pub enum VolumeObjectCommand {
    /// Give up the object of a volume whose Node object was deleted; asks the cluster, and erases nothing
    Abandon(ObjectArgs),
    /// Erase a volume that no PersistentVolume names; asks the cluster
    Erase(ObjectArgs),
    /// Print a PersistentVolume and a claim for a volume that no PersistentVolume names, as YAML; asks the cluster
    Pv(PvArgs),
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Give up all volumes of a node whose Node object was deleted, and its DevicePool; asks the cluster,
    /// and erases nothing
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// Name of the node: the name of its DevicePool
    node: String,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct ObjectArgs {
    /// Id of the volume: the name of its PoolVolume
    volume: VolumeId,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct PvArgs {
    /// Id of the volume: the name of its PoolVolume
    volume: VolumeId,
    /// Claim that is to have it, as NAMESPACE/NAME [default: the one that had it last]
    #[arg(long)]
    claim: Option<PvcName>,
    /// StorageClass of both objects [default: the one that the volume was made for]
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// Access mode of both objects
    #[arg(long, default_value = "ReadWriteOnce", value_parser = ["ReadWriteOnce", "ReadWriteOncePod"])]
    access_mode: String,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct VolumeArgs {
    /// Id of the volume, as `localpool disk adopt` prints it
    volume: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
pub struct SettleArgs {
    /// Id of the volume, as `localpool volumes` prints it
    volume: VolumeId,
    /// Id, path or link of the disk whose volume it is, as `localpool volumes -o wide` prints them
    #[arg(long, value_name = "DISK")]
    keep: String,
    #[command(flatten)]
    how: HowArgs,
}

impl VolumeCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::List(args) => args.run(ask::volumes),
            Self::Adopt(VolumeArgs { volume, how }) => {
                print_lines(&ask::adopt_volume(&how.state.local()?, &volume, how.run.run())?)
            }
            Self::Settle(SettleArgs { volume, keep, how }) => {
                print_lines(&ask::settle_volume(&how.state.local()?, volume, &keep, how.run.run())?)
            }
            Self::Object(command) => command.run(),
        }
    }
}

impl VolumeObjectCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Abandon(args) => args.run(abandon),
            Self::Erase(args) => args.run(erase),
            Self::Pv(args) => args.run(),
        }
    }
}

impl PoolCommand {
    pub fn run(self) -> Result<()> {
        let Self::Forget(ForgetArgs { node, run, client }) = self;
        let forgotten = client.ask(async |client| Ok(forget(client, node.into(), run.run()).await?));
        print_lines(&runtime()?.block_on(forgotten)?)
    }
}

impl ObjectArgs {
    fn run<F>(self, verb: impl FnOnce(Client, VolumeId, Run) -> F) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, OperatorError>>,
    {
        let Self { volume, run, client } = self;
        let done = client.ask(async |client| Ok(verb(client, volume, run.run()).await?));
        print_lines(&runtime()?.block_on(done)?)
    }
}

impl PvArgs {
    fn run(self) -> Result<()> {
        let Self { volume, claim, storage_class, access_mode, client } = self;
        let request = ManifestRequest { volume, claim, storage_class, access_mode };
        let yaml = client.ask(async |client| Ok(manifest(client, request).await?));
        Ok(print(&runtime()?.block_on(yaml)?)?)
    }
}
