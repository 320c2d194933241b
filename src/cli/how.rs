//! What verbs have in common: whether they only say what they would do, which agent they ask, and how they print.

use anyhow::Result;
use clap::Args;
use tokio::runtime::Runtime;

use super::state::StateArgs;
use crate::agent::Run;
use crate::host::stdout::print;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl RunArgs {
    pub fn run(&self) -> Run {
        Run::asked(self.dry_run)
    }
}

#[derive(Debug, Args)]
pub struct HowArgs {
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub state: StateArgs,
}

pub fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub fn print_lines(lines: &[String]) -> Result<()> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Ok(print(&text)?)
}
