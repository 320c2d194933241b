//! The command line: one subcommand per role. Wires, prints, and decides nothing.

mod about;
pub mod ask;
mod client;
mod cluster;
mod complete;
mod crds;
mod disk;
mod how;
mod local_list;
mod output;
mod plugin;
mod roles;
mod state;
mod volume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::device::{lvm_filter, udev_rules};
use crate::host::stdout::{PrintError, complain, print};
use crate::role::{install_lvm_filter, install_udev_rules, sets};
use crate::{demo, operator};
use about::AboutCommand;
use cluster::ClusterCommand;
use crds::CrdsArgs;
use disk::DiskCommand;
use how::{HowArgs, print_lines};
use local_list::LocalListArgs;
use roles::{ControllerArgs, DiscoveryArgs, NodeArgs, StandaloneArgs};
use state::StateArgs;
use volume::{PoolCommand, VolumeCommand};

pub use plugin::Plugin;

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
    Controller(Box<ControllerArgs>),
    /// Report all devices of one node to the cluster; the controller runs this for a LocalVolumeDiscovery
    Discovery(DiscoveryArgs),
    /// Print every disk of this machine, who owns it, and why
    Devices(LocalListArgs),
    /// Print every volume on the disks of this node's pool, even one that no object or claim names any more
    Volumes(LocalListArgs),
    /// Print what is wrong with the disks, volumes and local PersistentVolumes of this node, since when, and what to do
    Health(LocalListArgs),
    /// Ask about the disks and volumes of the whole cluster; `kubectl localpool` has these without `cluster`
    #[command(subcommand)]
    Cluster(ClusterCommand),
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
    /// Print the filter that makes this host's LVM ignore what tenants write into volumes, or add it to
    /// LVM's configuration
    LvmFilter(InstallArgs),
    /// Run a whole driver on three temporary loop disks, show each step, and remove everything at the end
    Demo,
    #[command(flatten)]
    About(AboutCommand),
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

/// The shell's status of a program that SIGPIPE ended; this process ignores SIGPIPE, as every Rust program does.
const ENDED_BY_SIGPIPE: u8 = 141;

/// The whole process: does what its command line says, and returns its status.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let read = match arguments.first().is_some_and(|program| Plugin::is_called(program)) {
        true => Plugin::try_parse_from(arguments).map(Plugin::run),
        false => Cli::try_parse_from(arguments).map(Cli::run),
    };
    let done = match read {
        Ok(done) => done.map(|()| ExitCode::SUCCESS),
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
            CliCommand::Devices(args) => args.run(ask::devices),
            CliCommand::Volumes(args) => args.run(ask::volumes),
            CliCommand::Health(args) => args.run(ask::health),
            CliCommand::Cluster(command) => command.run(),
            CliCommand::Disk(command) => command.run(),
            CliCommand::Pool(command) => command.run(),
            CliCommand::Set(SetCommand::Plan(args)) => args.run(),
            CliCommand::Volume(command) => command.run(),
            CliCommand::State(StateCommand::SetAside(SetAsideArgs { document, how })) => {
                let local = how.state.local()?;
                print_lines(&match document {
                    KeptDocument::Journal => ask::set_aside_journal(&local, how.run.run())?,
                    KeptDocument::Cluster => ask::set_aside_cluster(&local, how.run.run())?,
                })
            }
            CliCommand::Crds(args) => args.run(),
            CliCommand::UdevRules(args) => args.run(&udev_rules::text(), install_udev_rules),
            CliCommand::LvmFilter(args) => args.run(&lvm_filter::text(), install_lvm_filter),
            CliCommand::Demo => Ok(demo::run()?),
            CliCommand::About(command) => command.run(Self::command()),
        }
    }
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Directory to write it to: /etc/udev/rules.d for rules, /etc/lvm for the filter. Everything else
    /// there stays unchanged
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
        Cli::command().debug_assert();
        Plugin::command().debug_assert();
    }
}
