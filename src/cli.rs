//! The command line: one subcommand per role. Wires, prints, and decides nothing.

pub mod ask;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::demo;
use crate::device::show::Format;
use crate::standalone::{self, Settings};
use ask::Local;

const LOGS: &str =
    "Logs go to stderr; LOCALPOOL_LOG says how much, such as debug or localpool=debug,h2=warn [default: info].";

/// Turns the local disks of a node into CSI volumes.
#[derive(Debug, Parser)]
#[command(version, after_help = LOGS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole CSI driver (Identity, Controller and Node) on this machine's disks, without Kubernetes
    Standalone(StandaloneArgs),
    /// Print every disk of this machine, whose it is, and why
    Devices(DevicesArgs),
    /// Give a disk of the pool back, or take one over
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Make a volume usable that came with a disk which was taken over
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Show a whole driver at work on three loop disks of its own, and leave nothing behind
    Demo,
}

#[derive(Debug, Args)]
struct StandaloneArgs {
    /// Unix socket to serve CSI on; made with mode 0600, its folder too where there is none
    #[arg(long, default_value = "/run/localpool/csi.sock", env = "LOCALPOOL_SOCKET", hide_env_values = true)]
    socket: PathBuf,
    #[command(flatten)]
    state: StateArgs,
    /// YAML file of LocalVolumeSets (several documents): which disks may be used, and how
    #[arg(long, default_value = "/etc/localpool/sets.yaml", env = "LOCALPOOL_SETS", hide_env_values = true)]
    sets: PathBuf,
    /// How long a disk must be seen blank and without any event before it is claimed, such as 60s or 5m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    device_min_age: Duration,
    /// How many volumes the orchestrator may put on this node at once; 0 is no limit
    #[arg(long, default_value_t = 0)]
    max_volumes_per_node: u32,
}

#[derive(Debug, Args)]
struct StateArgs {
    /// Directory of the agent's lock, journal and socket; says which agent a command asks
    #[arg(long, default_value = "/var/lib/localpool", env = "LOCALPOOL_STATE_DIR", hide_env_values = true)]
    state_dir: PathBuf,
    /// Name of this node, as it is written on its disks [default: the host name]
    #[arg(long, env = "LOCALPOOL_NODE_NAME", hide_env_values = true)]
    node_name: Option<String>,
}

impl StateArgs {
    fn node(&self) -> Result<String> {
        let node = match &self.node_name {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        if node.is_empty() || node.len() > 253 {
            bail!("--node-name has {} bytes; it needs 1 to 253", node.len());
        }
        Ok(node)
    }

    fn local(&self) -> Result<Local> {
        Ok(Local { state_dir: self.state_dir.clone(), node: self.node()? })
    }
}

#[derive(Debug, Args)]
struct DevicesArgs {
    /// Output: table, wide, json or yaml
    #[arg(short, long, default_value = "table", value_parser = parse_format)]
    output: Format,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Subcommand)]
enum DiskCommand {
    /// Give back a disk without volumes: it becomes blank, and no set claims it again until `disk adopt`
    Release(DiskArgs),
    /// Take over a disk: one with another node's label, one that was released, or a disputed bare device
    Adopt(DiskArgs),
}

#[derive(Debug, Args)]
struct DiskArgs {
    /// Id, path or link of the disk, as `localpool devices -o wide` prints them
    disk: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Subcommand)]
enum VolumeCommand {
    /// Make a volume usable that came with an adopted disk; needs a running agent
    Adopt(VolumeArgs),
}

#[derive(Debug, Args)]
struct VolumeArgs {
    /// Id of the volume, as `localpool disk adopt` prints it
    volume: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct HowArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    state: StateArgs,
}

impl Cli {
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Standalone(args) => args.run(),
            Command::Devices(DevicesArgs { output, state }) => {
                print!("{}", ask::devices(&state.local()?, output)?);
                Ok(())
            }
            Command::Disk(DiskCommand::Release(args)) => args.print(ask::release_disk),
            Command::Disk(DiskCommand::Adopt(args)) => args.print(ask::adopt_disk),
            Command::Volume(VolumeCommand::Adopt(VolumeArgs { volume, how })) => {
                print_lines(&ask::adopt_volume(&how.state.local()?, &volume, how.dry_run)?);
                Ok(())
            }
            Command::Demo => Ok(demo::run()?),
        }
    }
}

impl StandaloneArgs {
    fn run(self) -> Result<()> {
        let Self { socket, state, sets, device_min_age, max_volumes_per_node } = self;
        let node = state.node()?;
        standalone::run(Settings {
            socket,
            state_dir: state.state_dir,
            sets,
            node,
            min_age: device_min_age,
            max_volumes: i64::from(max_volumes_per_node),
        })
    }
}

impl DiskArgs {
    fn print(self, ask: impl Fn(&Local, &str, bool) -> Result<Vec<String>>) -> Result<()> {
        let Self { disk, how } = self;
        print_lines(&ask(&how.state.local()?, &disk, how.dry_run)?);
        Ok(())
    }
}

fn print_lines(lines: &[String]) {
    for line in lines {
        println!("{line}");
    }
}

fn host_name() -> Result<String> {
    let name = nix::unistd::gethostname().context("the host name could not be read: pass --node-name")?;
    name.into_string().map_err(|_| anyhow::anyhow!("the host name is not UTF-8: pass --node-name"))
}

fn parse_format(text: &str) -> Result<Format, String> {
    text.parse()
}

/// A number and a unit: s, m or h.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write a number and s, m or h, such as 60s or 5m");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "5", "m", "5d", "-1s", "1.5s", "99999999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
