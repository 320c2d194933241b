//! The CustomResourceDefinitions.

use anyhow::Result;
use clap::Args;

use super::client::ClientArgs;
use super::how::{print_lines, runtime};
use crate::host::stdout::print;
use crate::operator::crds::{self, Ownership};

#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Apply them to the cluster that KUBECONFIG or the pod's service account names, and wait until they are served
    #[arg(long)]
    apply: bool,
    /// Also replace a CRD that another owner applied (its objects stay)
    #[arg(long, requires = "apply")]
    take_ownership: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl CrdsArgs {
    pub fn run(self) -> Result<()> {
        let Self { apply, take_ownership, client } = self;
        if !apply {
            return Ok(print(&crds::yaml()?)?);
        }
        let ownership = if take_ownership { Ownership::Take } else { Ownership::Respect };
        let applied = client.ask(async |client| Ok(crds::apply(client, ownership).await?));
        print_lines(&runtime()?.block_on(applied)?)
    }
}
