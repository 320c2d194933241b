//! The command line: one subcommand per role. Wires, prints, and decides nothing.

pub mod ask;
mod disk;
mod how;
mod roles;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use kube::Client;

use crate::agent::Run;
use crate::device::{lvm_filter, udev_rules};
use crate::host::stdout::{PrintError, complain, print};
use crate::operator::OperatorError;
use crate::operator::crds::{self, Ownership};
use crate::operator::drain::forget;
use crate::operator::volume::{ClaimName, ManifestRequest, abandon, erase, manifest};
use crate::role::{host_rules, sets};
use crate::show::devices::Format;
use crate::volume::VolumeId;
use crate::{demo, operator};
use disk::DiskCommand;
use how::{HowArgs, RunArgs, print_lines, runtime};
use roles::{ControllerArgs, DiscoveryArgs, NodeArgs, StandaloneArgs};
use state::StateArgs;

const LOGS: &str =
    "Logs go to stderr; LOCALPOOL_LOG sets the level, such as debug or localpool=debug,h2=warn [default: info].";

/// Turns the local disks of a node into CSI volumes.
#[derive(Debug, Parser)]
#[command(version, after_help = LOGS)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a whole CSI driver (Identity, Controller and Node) on this machine's disks, without Kubernetes
    Standalone(StandaloneArgs),
    /// Run the agent of one Kubernetes node: its pool, its objects, and CSI for kubelet
    Node(NodeArgs),
    /// Run the controller of a cluster: CSI's Controller for the provisioner, and the objects' statuses
    Controller(ControllerArgs),
    /// Report all devices of one node to the cluster; the controller runs this for a LocalVolumeDiscovery
    Discovery(DiscoveryArgs),
    /// Print every disk of this machine, who owns it, and why
    Devices(DevicesArgs),
    /// Print every volume on the disks of this node's pool, even one that no object or claim names any more
    Volumes(DevicesArgs),
    /// Print what is wrong with the disks, volumes and local PersistentVolumes of this node, since when, and what to do
    Health(DevicesArgs),
    /// Cordon, drain, release, give up or find a disk of the pool, or take one over
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Forget the pool of a node that is gone
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show what sets would do
    #[command(subcommand)]
    Set(SetCommand),
    /// Adopt, settle, erase or give up a volume that its claim does not lead to, or print its PersistentVolume
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Set aside a file of the state directory that cannot be used
    #[command(subcommand)]
    State(StateCommand),
    /// Print the CustomResourceDefinitions, or apply them to a cluster
    Crds(CrdsArgs),
    /// Print the udev rules that make this host ignore what tenants write into volumes, or install them
    UdevRules(InstallArgs),
    /// Print the filter that makes this host's LVM ignore what tenants write into volumes, or add it to LVM's configuration
    LvmFilter(InstallArgs),
    /// Run a whole driver on three temporary loop disks, show each step, and remove everything at the end
    Demo,
}

#[derive(Debug, Args)]
struct DevicesArgs {
    /// Output: table, wide, json or yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Subcommand)]
enum SetCommand {
    /// Show which disks of this node the sets of a file would take, which they would not take, and why; changes nothing
    Plan(PlanArgs),
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// LocalVolumeSets, as YAML documents; `-` reads standard input. Their nodeSelector is ignored
    #[arg(short, long)]
    file: PathBuf,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// Give up all volumes of a node whose Node object was deleted, and its DevicePool; asks the cluster, and erases nothing
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Name of the node: the name of its DevicePool
    node: String,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum VolumeCommand {
    /// Make a volume that came with an adopted disk usable; needs a running agent
    Adopt(VolumeArgs),
    /// Choose which of several disks has a volume that is in conflict; the data on the others is kept under another id
    Settle(SettleArgs),
    /// Give up the object of a volume whose Node object was deleted; asks the cluster, and erases nothing
    Abandon(ObjectArgs),
    /// Erase a volume that no PersistentVolume names; asks the cluster
    Erase(ObjectArgs),
    /// Print a PersistentVolume and a claim for a volume that no PersistentVolume names, as YAML; asks the cluster
    Pv(PvArgs),
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// Keep a file that cannot be used under another name, start a new one, and print what that forgets
    SetAside(SetAsideArgs),
}

#[derive(Debug, Args)]
struct SetAsideArgs {
    /// Which file: the journal, or the name of the cluster that the node was in
    #[arg(value_enum)]
    document: KeptDocument,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeptDocument {
    Journal,
    Cluster,
}

#[derive(Debug, Args)]
struct ObjectArgs {
    /// Id of the volume: the name of its PoolVolume
    volume: VolumeId,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct PvArgs {
    /// Id of the volume: the name of its PoolVolume
    volume: VolumeId,
    /// Claim that is to have it, as NAMESPACE/NAME [default: the one that had it last]
    #[arg(long)]
    claim: Option<ClaimName>,
    /// StorageClass of both objects [default: the one that the volume was made for]
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// Access mode of both objects
    #[arg(long, default_value = "ReadWriteOnce", value_parser = ["ReadWriteOnce", "ReadWriteOncePod"])]
    access_mode: String,
}

#[derive(Debug, Args)]
struct VolumeArgs {
    /// Id of the volume, as `localpool disk adopt` prints it
    volume: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct SettleArgs {
    /// Id of the volume, as `localpool volumes` prints it
    volume: VolumeId,
    /// Id, path or link of the disk whose volume it is, as `localpool volumes -o wide` prints them
    #[arg(long, value_name = "DISK")]
    keep: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct CrdsArgs {
    /// Apply them to the cluster that KUBECONFIG or the pod's service account names, and wait until they are served
    #[arg(long)]
    apply: bool,
    /// Also replace a CRD that another owner applied (its objects stay)
    #[arg(long, requires = "apply")]
    take_ownership: bool,
}

/// The shell's status of a program that SIGPIPE ended; this process ignores SIGPIPE, as every Rust program does.
const ENDED_BY_SIGPIPE: u8 = 141;

/// The whole process: does what its command line says, and returns its status.
pub fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => cli.run().map(|()| ExitCode::SUCCESS),
        Err(unread) => show(&unread),
    };
    done.unwrap_or_else(|error| {
        if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(PrintError::Closed))) {
            return ExitCode::from(ENDED_BY_SIGPIPE);
        }
        complain(&format!("localpool: {}", operator::error_message(error.as_ref())));
        ExitCode::FAILURE
    })
}

/// clap's own answers: help and version, or what is wrong with the command line.
fn show(answer: &clap::Error) -> Result<ExitCode> {
    let printed = answer.print();
    if !answer.use_stderr() {
        printed.map_err(PrintError::of)?;
    }
    Ok(ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(1)))
}

impl Cli {
    pub fn run(self) -> Result<()> {
        match self.command {
            CliCommand::Standalone(args) => args.run(),
            CliCommand::Node(args) => args.run(),
            CliCommand::Controller(args) => args.run(),
            CliCommand::Discovery(args) => args.run(),
            CliCommand::Devices(DevicesArgs { output, state }) => Ok(print(&ask::devices(&state.local()?, output)?)?),
            CliCommand::Volumes(DevicesArgs { output, state }) => Ok(print(&ask::volumes(&state.local()?, output)?)?),
            CliCommand::Health(DevicesArgs { output, state }) => Ok(print(&ask::health(&state.local()?, output)?)?),
            CliCommand::Disk(command) => command.run(),
            CliCommand::Pool(PoolCommand::Forget(ForgetArgs { node, run })) => {
                let forgotten = async { forget(operator::client().await?, node.into(), run.run()).await };
                print_lines(&runtime()?.block_on(forgotten)?)
            }
            CliCommand::Set(SetCommand::Plan(args)) => args.run(),
            CliCommand::Volume(VolumeCommand::Adopt(VolumeArgs { volume, how })) => {
                print_lines(&ask::adopt_volume(&how.state.local()?, &volume, how.run.run())?)
            }
            CliCommand::Volume(VolumeCommand::Settle(SettleArgs { volume, keep, how })) => {
                print_lines(&ask::settle_volume(&how.state.local()?, volume, &keep, how.run.run())?)
            }
            CliCommand::Volume(VolumeCommand::Abandon(args)) => args.run(abandon),
            CliCommand::Volume(VolumeCommand::Erase(args)) => args.run(erase),
            CliCommand::Volume(VolumeCommand::Pv(args)) => args.run(),
            CliCommand::State(StateCommand::SetAside(SetAsideArgs { document, how })) => {
                let local = how.state.local()?;
                print_lines(&match document {
                    KeptDocument::Journal => ask::set_aside_journal(&local, how.run.run())?,
                    KeptDocument::Cluster => ask::set_aside_cluster(&local, how.run.run())?,
                })
            }
            CliCommand::Crds(args) => args.run(),
            CliCommand::UdevRules(args) => args.run(&udev_rules::text(), host_rules::install_udev_rules),
            CliCommand::LvmFilter(args) => args.run(&lvm_filter::text(), host_rules::install_lvm_filter),
            CliCommand::Demo => Ok(demo::run()?),
        }
    }
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Directory to write it to: /etc/udev/rules.d for rules, /etc/lvm for the filter. Everything else there stays unchanged
    #[arg(long, value_name = "DIR")]
    install_in: Option<PathBuf>,
}

impl PlanArgs {
    fn run(self) -> Result<()> {
        let Self { file, state } = self;
        let documents = sets::documents(&file).context("--file")?;
        print_lines(&ask::plan_sets(&state.local()?, documents)?)
    }
}

impl ObjectArgs {
    fn run<F>(self, verb: impl FnOnce(Client, VolumeId, Run) -> F) -> Result<()>
    where
        F: Future<Output = Result<Vec<String>, OperatorError>>,
    {
        let Self { volume, run } = self;
        let lines = runtime()?.block_on(async { verb(operator::client().await?, volume, run.run()).await })?;
        print_lines(&lines)
    }
}

impl PvArgs {
    fn run(self) -> Result<()> {
        let Self { volume, claim, storage_class, access_mode } = self;
        let request = ManifestRequest { volume, claim, storage_class, access_mode };
        let yaml = runtime()?.block_on(async { manifest(operator::client().await?, request).await })?;
        Ok(print(&yaml)?)
    }
}

impl CrdsArgs {
    fn run(self) -> Result<()> {
        let Self { apply, take_ownership } = self;
        if !apply {
            return Ok(print(&crds::yaml()?)?);
        }
        let ownership = if take_ownership { Ownership::Take } else { Ownership::Respect };
        let lines = runtime()?.block_on(async { crds::apply(operator::client().await?, ownership).await })?;
        print_lines(&lines)
    }
}

impl InstallArgs {
    fn run(self, text: &str, install: impl Fn(&Path) -> Result<String>) -> Result<()> {
        match self.install_in {
            Some(dir) => print_lines(&[install(&dir)?]),
            None => Ok(print(text)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
