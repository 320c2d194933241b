//! Which cluster a command asks.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use kube::Client;

use crate::operator::{self, ClusterChoice};

#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClientArgs {
    /// File with the address of the cluster and your credentials [default: KUBECONFIG, ~/.kube/config, or the account
    /// of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of that file [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClientArgs {
    pub fn named(kubeconfig: Option<String>, context: Option<String>) -> Self {
        Self { kubeconfig: kubeconfig.map(PathBuf::from), context }
    }

    /// Asks the cluster. What goes wrong says which one that was: a person has several.
    pub async fn ask<T>(self, question: impl AsyncFnOnce(Client) -> Result<T>) -> Result<T> {
        let Self { kubeconfig, context } = self;
        let (client, asked) = operator::client_of(ClusterChoice { kubeconfig, context }).await?;
        question(client).await.map_err(|error| anyhow!("{} ({asked})", operator::error_message(error.as_ref())))
    }
}
