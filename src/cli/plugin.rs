//! The program under the name `kubectl-localpool`, which kubectl calls as `kubectl localpool`: the commands that ask the
//! cluster, and none about the machine that it runs on.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

use super::about::AboutCommand;
use super::cluster::ClusterCommand;
use super::crds::CrdsArgs;
use super::disk::DiskObjectCommand;
use super::volume::{PoolCommand, VolumeObjectCommand};

/// The name that makes a program a plugin of kubectl.
const FILE: &str = "kubectl-localpool";

/// Asks a cluster about its local disks and volumes, and orders what is done with them.
#[derive(Debug, Parser)]
#[command(name = FILE, bin_name = "kubectl localpool", version)]
pub struct Plugin {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    #[command(flatten)]
    Cluster(ClusterCommand),
    /// Cordon or drain a disk
    #[command(subcommand)]
    Disk(DiskObjectCommand),
    /// Forget the pool of a node that is gone
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Erase or give up a volume that its claim does not lead to, or print its PersistentVolume
    #[command(subcommand)]
    Volume(VolumeObjectCommand),
    /// Print the CustomResourceDefinitions, or apply them to a cluster
    Crds(CrdsArgs),
    #[command(flatten)]
    About(AboutCommand),
}

impl Plugin {
    /// Whether the program was called by that name.
    pub fn is_called(program: &OsStr) -> bool {
        Path::new(program).file_name() == Some(OsStr::new(FILE))
    }

    pub fn run(self) -> Result<()> {
        let Self { command } = self;
        match command {
            PluginCommand::Cluster(command) => command.run(),
            PluginCommand::Disk(command) => command.run(),
            PluginCommand::Pool(command) => command.run(),
            PluginCommand::Volume(command) => command.run(),
            PluginCommand::Crds(args) => args.run(),
            PluginCommand::About(command) => command.run(Self::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_known_by_its_file_wherever_that_is() {
        for (program, is_one) in [
            ("kubectl-localpool", true),
            ("/home/me/.krew/bin/kubectl-localpool", true),
            ("/usr/bin/localpool", false),
            ("/opt/kubectl-localpool/localpool", false),
            ("", false),
        ] {
            assert_eq!(Plugin::is_called(OsStr::new(program)), is_one, "{program}");
        }
    }

    #[test]
    fn its_help_says_how_a_person_calls_it_and_has_nothing_about_this_machine() {
        let help = |words: &[&str]| {
            let words = [FILE].iter().chain(words).chain(&["--help"]);
            Plugin::try_parse_from(words).expect_err("help").to_string()
        };
        assert!(help(&[]).contains("Usage: kubectl localpool <COMMAND>"), "{}", help(&[]));
        assert!(help(&["why", "pvc"]).contains("Usage: kubectl localpool why pvc [OPTIONS] <CLAIM>"));
        for of_a_machine in ["standalone", "devices", "udev-rules", "demo"] {
            assert!(Plugin::try_parse_from([FILE, of_a_machine]).is_err(), "{of_a_machine}");
        }
        assert!(!help(&["disk"]).contains("locate"), "{}", help(&["disk"]));
    }
}
