//! In which format a command answers, and how it looks.

use std::fmt::Display;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{ArgAction, Args, ValueEnum};
use serde::Serialize;

use crate::host::stdout::{self, print};
use crate::show::devices::Format;
use crate::show::{Heads, InList, Paint, TableStyle, list};

/// The format of an answer that is no table.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ObjectFormat {
    Text,
    Json,
    Yaml,
}

/// The format of a list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Output format; `name` prints only what other commands take
    #[arg(short, long, default_value = "table", value_parser = formats())]
    pub output: Format,
    /// Leave out the line with the names of the columns
    #[arg(long)]
    no_headers: bool,
    /// Use no colours, not even on a terminal
    #[arg(long, env = "NO_COLOR", hide_env_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "", hide_default_value = true, hide_possible_values = true,
          action = ArgAction::Set, value_name = "ANYTHING")]
    no_color: String,
}

fn formats() -> impl clap::builder::TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["table", "wide", "json", "yaml", "name"]).try_map(|name| name.parse::<Format>())
}

impl ListArgs {
    pub fn style(&self) -> TableStyle {
        let Self { output: _, no_headers, no_color } = self;
        TableStyle {
            heads: if *no_headers { Heads::Hidden } else { Heads::Shown },
            paint: if no_color.is_empty() && stdout::is_terminal() { Paint::Colours } else { Paint::Plain },
        }
    }

    /// `none` is what a table without rows is to say; otherwise the kind says it.
    pub fn print<T: InList>(&self, rows: &[T], none: Option<&str>) -> Result<()> {
        let is_table = matches!(self.output, Format::Table | Format::Wide);
        let text = match none.filter(|_| is_table && rows.is_empty()) {
            Some(none) => format!("{none}\n"),
            None => list(rows, self.output, self.style())?,
        };
        Ok(print(&text)?)
    }
}

/// An answer, with a final line end.
pub fn printed(answer: &(impl Display + Serialize), format: ObjectFormat) -> Result<String> {
    Ok(match format {
        ObjectFormat::Text => answer.to_string(),
        ObjectFormat::Json => json(answer)?,
        ObjectFormat::Yaml => yaml(answer)?,
    })
}

pub fn json(answer: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(answer).context("writing the answer as JSON")? + "\n")
}

pub fn yaml(answer: &impl Serialize) -> Result<String> {
    serde_saphyr::to_string(answer).context("writing the answer as YAML")
}
