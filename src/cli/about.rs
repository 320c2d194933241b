//! What the program says of itself to a shell and to `man`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;

use super::client::ClientArgs;
use super::complete::{NameKind, ShellOffer, in_namespace, offer, short_value_of, value_of};
use super::how::runtime;
use crate::host::stdout::{print, print_bytes};
use crate::operator::overview::{self, VolumeFilter};
use crate::show::{InList, one_line};

/// Nobody waits longer for what a key is to offer.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Subcommand)]
pub enum AboutCommand {
    /// Print a script that makes a shell complete commands, options, and the names of disks, volumes and claims
    Completion(CompletionArgs),
    /// Print the manual page of a command, for `man -l -`
    Man(ManArgs),
    /// Print what can follow in a command line; the scripts of `completion` call it
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
}

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell; `kubectl` is a file for `kubectl localpool` in any shell
    #[arg(value_enum)]
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
    Kubectl,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command, such as `why pvc` [default: the program]
    words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// For kubectl: a last line says whether files may follow
    #[arg(long)]
    kubectl: bool,
    /// The words behind the name of the program; the last one is not complete
    #[arg(last = true)]
    words: Vec<String>,
}

impl AboutCommand {
    /// `root` is the tree of the program under the name that it was called by.
    pub fn run(self, mut root: clap::Command) -> Result<()> {
        root.build();
        match self {
            Self::Completion(CompletionArgs { shell }) => Ok(print(&script(shell, root.get_name()))?),
            Self::Man(ManArgs { words }) => man(&root, &words),
            Self::Complete(CompleteArgs { kubectl, words }) => {
                let last = words.last().cloned().unwrap_or_default();
                let offered = offer(&root, &words);
                // kubectl's word for "no files".
                let end = match (kubectl, &offered) {
                    (false, _) => "",
                    (true, ShellOffer::Files) => ":0\n",
                    (true, _) => ":4\n",
                };
                let lines = offered_words(offered, &words).into_iter().filter(|(word, _)| word.starts_with(&last));
                let lines: String = lines.map(|(word, about)| format!("{word}\t{}\n", one_line(&about))).collect();
                Ok(print(&(lines + end))?)
            }
        }
    }
}

/// A cluster that cannot be asked offers nothing: whoever presses a key wants no error.
fn offered_words(offered: ShellOffer, words: &[String]) -> Vec<(String, String)> {
    match offered {
        ShellOffer::Words(words) => words,
        ShellOffer::Names(kind) => {
            let client = ClientArgs::named(value_of(words, "kubeconfig"), value_of(words, "context"));
            let asked =
                async { tokio::time::timeout(TIMEOUT, client.ask(async |client| names(client, kind).await)).await };
            let found = runtime().ok().and_then(|runtime| runtime.block_on(asked).ok()).and_then(Result::ok);
            let found = found.unwrap_or_default();
            let namespace = value_of(words, "namespace").or_else(|| short_value_of(words, "-n"));
            if kind == NameKind::Pvcs { in_namespace(found, namespace.as_deref()) } else { found }
        }
        ShellOffer::Files | ShellOffer::Nothing => Vec::new(),
    }
}

async fn names(client: Client, kind: NameKind) -> Result<Vec<(String, String)>> {
    Ok(match kind {
        NameKind::Disks | NameKind::NodeDisks => {
            let disks = overview::disks(client, None).await?.into_iter();
            let name = |disk: &overview::ClusterDisk| match kind {
                NameKind::NodeDisks => disk.name(),
                _ => disk.id.to_string(),
            };
            disks.map(|disk| (name(&disk), format!("{} of {}, {}", disk.path, disk.node, disk.state))).collect()
        }
        NameKind::Volumes => {
            let volumes = overview::volumes(client, VolumeFilter::default()).await?.into_iter();
            let claim = |volume: &overview::ClusterVolume| match (&volume.namespace, &volume.claim) {
                (Some(namespace), Some(claim)) => format!("{namespace}/{claim}"),
                _ => "no claim".to_owned(),
            };
            volumes.map(|volume| (volume.id.to_string(), format!("{}, {}", claim(&volume), volume.state))).collect()
        }
        NameKind::Nodes => {
            let nodes = overview::status(client).await?.nodes.into_iter();
            nodes.map(|node| (node.node.to_string(), format!("agent {}, {} disks", node.agent, node.disks))).collect()
        }
        NameKind::Pvcs => overview::pvcs(client).await?,
    })
}

fn man(root: &clap::Command, words: &[String]) -> Result<()> {
    let mut command = root;
    let mut name = root.get_name().to_owned();
    for word in words {
        let Some(below) = command.find_subcommand(word) else { bail!("{name} has no command {word}") };
        command = below;
        name = format!("{name}-{}", below.get_name());
    }
    let mut page = Vec::new();
    let titled = command.clone().display_name(&name).version(env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(titled).title(name).render(&mut page).context("writing the page")?;
    Ok(print_bytes(&page)?)
}

/// The script of a shell for the program of this name.
fn script(shell: ShellName, name: &str) -> String {
    let text = match shell {
        ShellName::Bash => BASH,
        ShellName::Zsh => ZSH,
        ShellName::Fish => FISH,
        ShellName::Kubectl => KUBECTL,
    };
    text.replace("FUNCTION", &format!("_{}", name.replace('-', "_"))).replace("PROGRAM", name)
}

const BASH: &str = r#"# Completion of PROGRAM for bash: source this file.
FUNCTION() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <(PROGRAM __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F FUNCTION PROGRAM
"#;

const ZSH: &str = r#"#compdef PROGRAM
# Completion of PROGRAM for zsh: a file _PROGRAM in a folder of fpath, or source it.
FUNCTION() {
    local line
    local -a shown
    while IFS= read -r line; do
        shown+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done < <(PROGRAM __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#shown} )); then _describe 'PROGRAM' shown; else _files; fi
}
compdef FUNCTION PROGRAM
"#;

const FISH: &str = r"# Completion of PROGRAM for fish: a file PROGRAM.fish in ~/.config/fish/completions.
function FUNCTION
    set -l words (commandline -opc)
    PROGRAM __complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c PROGRAM -f -a '(FUNCTION)'
";

const KUBECTL: &str = r#"#!/bin/sh
# Completion of `kubectl localpool`: an executable file kubectl_complete-localpool in PATH.
exec kubectl-localpool __complete --kubectl -- "$@"
"#;
