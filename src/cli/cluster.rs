//! What a person asks about the whole cluster.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::client::ClientArgs;
use super::how::{print_lines, runtime};
use super::output::{ListArgs, ObjectFormat, json, printed, yaml};
use crate::device::NodeName;
use crate::host::stdout::{self, print, print_bytes};
use crate::host::{is_there, write_new};
use crate::operator::overview::{self, Bundle, ClusterStatus, DiskAsked, PvcAsked, VolumeFilter};
use crate::show::devices::Format;
use crate::show::list;

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes, their agents, the controller and the versions of all, and what is wrong and what to do
    Status(StatusArgs),
    /// List the disks of all nodes' pools
    Disks(DisksArgs),
    /// List the volumes of all nodes, with their claims and pods
    Volumes(VolumesArgs),
    /// Say why a claim has no volume, or a disk takes none, and what to do
    #[command(subcommand)]
    Why(WhyCommand),
    /// Collect objects, logs and versions for somebody who helps, in one tar.gz without secrets
    Bundle(BundleArgs),
}

#[derive(Debug, Subcommand)]
pub enum WhyCommand {
    /// Follow a claim to its class, the sets that serve that, and what each node could give; and name the one thing to do
    Pvc(WhyPvcArgs),
    /// Say how a disk is, what is on it, and why it takes no new volumes or is in no pool; and name the one thing to do
    Disk(WhyDiskArgs),
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct DisksArgs {
    /// Only those of this node
    #[arg(long)]
    node: Option<NodeName>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct VolumesArgs {
    /// Only those on this node
    #[arg(long)]
    node: Option<NodeName>,
    /// Only those on this disk: NODE/ID, NODE/sdb, its id or its path
    #[arg(long)]
    disk: Option<String>,
    /// Only those of claims in this namespace [default: all namespaces]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct WhyPvcArgs {
    /// Name of the claim, or NAMESPACE/NAME
    #[arg(value_name = "CLAIM")]
    claim: String,
    /// Namespace of the claim [default: that of the context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_enum)]
    output: ObjectFormat,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct WhyDiskArgs {
    /// The disk, as NODE/ID, NODE/sdb, or with a link
    #[arg(value_name = "NODE/DISK")]
    node_disk: DiskAsked,
    /// Output format
    #[arg(short, long, default_value = "text", value_enum)]
    output: ObjectFormat,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The file to make, such as bundle.tar.gz; `-` is standard output
    #[arg(value_name = "FILE")]
    archive: PathBuf,
    #[command(flatten)]
    client: ClientArgs,
}

impl ClusterCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Status(args) => args.run(),
            Self::Disks(args) => args.run(),
            Self::Volumes(args) => args.run(),
            Self::Why(WhyCommand::Pvc(args)) => args.run(),
            Self::Why(WhyCommand::Disk(args)) => args.run(),
            Self::Bundle(args) => args.run(),
        }
    }
}

impl StatusArgs {
    fn run(self) -> Result<()> {
        let Self { list, client } = self;
        let asked = client.ask(async |client| Ok(overview::status(client).await?));
        Ok(print(&status_text(&runtime()?.block_on(asked)?, &list)?)?)
    }
}

/// Tables are for people: what is wrong stands below them.
fn status_text(status: &ClusterStatus, args: &ListArgs) -> Result<String> {
    Ok(match args.output {
        Format::Json => json(status)?,
        Format::Yaml => yaml(status)?,
        Format::Name => list(&status.nodes, args.output, args.style())?,
        Format::Table | Format::Wide => {
            let controllers = list(&status.controllers, args.output, args.style())?;
            let nodes = list(&status.nodes, args.output, args.style())?;
            format!("{controllers}\n{nodes}\n{}", status.problems_text())
        }
    })
}

impl DisksArgs {
    fn run(self) -> Result<()> {
        let Self { node, list, client } = self;
        let none = node.as_ref().map(|node| format!("node {node} has no disk in its pool"));
        let asked = client.ask(async |client| Ok(overview::disks(client, node).await?));
        list.print(&runtime()?.block_on(asked)?, none.as_deref())
    }
}

impl VolumesArgs {
    fn run(self) -> Result<()> {
        let Self { node, disk, namespace, list, client } = self;
        let filter = VolumeFilter { node, disk, namespace: namespace.map(Into::into) };
        let none = (filter != VolumeFilter::default()).then_some("no volume matches");
        let asked = client.ask(async |client| Ok(overview::volumes(client, filter).await?));
        list.print(&runtime()?.block_on(asked)?, none)
    }
}

impl BundleArgs {
    fn run(self) -> Result<()> {
        let Self { archive, client } = self;
        let to_stdout = archive.as_os_str() == "-";
        if to_stdout && stdout::is_terminal() {
            bail!("a terminal cannot show an archive: name a file, such as bundle.tar.gz");
        }
        let file = archive.display();
        if !to_stdout && is_there(&archive) {
            bail!("{file} is there already: name another file");
        }
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        let made = client.ask(async |client| Ok(overview::bundle(client, now).await?));
        let Bundle { bytes, problems } = runtime()?.block_on(made)?;
        if to_stdout {
            return Ok(print_bytes(&bytes)?);
        }
        write_new(&archive, &bytes).with_context(|| format!("making {file}"))?;
        let head = format!("made {file}; look through it before you give it away");
        let unread = problems.iter().map(|problem| format!("not in it: {problem}"));
        print_lines(&[head].into_iter().chain(unread).collect::<Vec<_>>())
    }
}

impl WhyPvcArgs {
    fn run(self) -> Result<()> {
        let Self { claim, namespace, output, client } = self;
        let asked = PvcAsked { claim, namespace };
        let answer = client.ask(async |client| Ok(overview::why_pvc(client, asked).await?));
        Ok(print(&printed(&runtime()?.block_on(answer)?, output)?)?)
    }
}

impl WhyDiskArgs {
    fn run(self) -> Result<()> {
        let Self { node_disk: disk, output, client } = self;
        let answer = client.ask(async |client| Ok(overview::why_disk(client, disk).await?));
        Ok(print(&printed(&runtime()?.block_on(answer)?, output)?)?)
    }
}
