//! The lists of one node, which its agent knows.

use anyhow::Result;
use clap::Args;

use super::ask::Local;
use super::output::ListArgs;
use super::state::StateArgs;
use crate::host::stdout::print;
use crate::show::TableStyle;
use crate::show::devices::Format;

#[derive(Debug, Args)]
pub struct LocalListArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    state: StateArgs,
}

impl LocalListArgs {
    pub fn run(self, ask: impl Fn(&Local, Format, TableStyle) -> Result<String>) -> Result<()> {
        let Self { list, state } = self;
        Ok(print(&ask(&state.local()?, list.output, list.style())?)?)
    }
}
