//! `localpool devices`: every disk with its verdict and the reason, for people and for programs.
//!
//! Takes in devices, each with the pool's note about it; gives out text. Pure: prints nothing.

use super::listed::ListedDevice;
use super::row::{DeviceList, DeviceRow, rows};
use crate::device::{
    Alignment, Fact, FactValue, Facts, Size, TableColumn, TableWidth,
    fact_table::{FACTS, POOL_PARTITION},
};
use crate::host::{DeviceKind, natural_order};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
            Self::Yaml => "yaml",
        }
    }
}

/// A text that names no output format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not an output format: use table, wide, json or yaml")]
pub struct UnknownFormat {
    given: String,
}

impl std::str::FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "" | "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => Err(UnknownFormat { given: other.to_owned() }),
        }
    }
}

/// Why devices could not be written. Nothing is dropped silently, as programs read this.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    #[error("writing devices as JSON")]
    Json(#[source] serde_json::Error),
    #[error("writing devices as YAML")]
    Yaml(#[source] serde_saphyr::ser::Error),
}

/// All devices in the order of their names, with a final line end.
pub fn render(devices: &[ListedDevice], format: Format) -> Result<String, ShowError> {
    Ok(match format {
        Format::Table => for_people(&sorted(devices), TableWidth::Narrow),
        Format::Wide => for_people(&sorted(devices), TableWidth::Wide),
        Format::Json => serde_json::to_string_pretty(&list(devices)).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&list(devices)).map_err(ShowError::Yaml)?,
    })
}

fn sorted(devices: &[ListedDevice]) -> Vec<&ListedDevice> {
    let mut devices: Vec<&ListedDevice> = devices.iter().collect();
    devices.sort_by(|a, b| natural_order(&a.device.raw.name, &b.device.raw.name));
    devices
}

/// All devices in the order of their names.
pub fn list(devices: &[ListedDevice]) -> DeviceList {
    let devices = sorted(devices);
    DeviceList { devices: rows(devices.iter().copied(), &devices) }
}

/// A table without the loop devices that have no file: the kernel keeps dozens of them, and none is a disk. They are
/// counted below it. The narrow table also leaves out the pool's own partitions: the line of a disk has its number of
/// volumes, and they come and go.
fn for_people(devices: &[&ListedDevice], width: TableWidth) -> String {
    let is_idle = |shown: &&ListedDevice| matches!(shown.device.raw.kind, DeviceKind::Loop(None));
    let disks = devices.iter().copied().filter(|shown| !is_idle(shown));
    let has = |row: &DeviceRow| width == TableWidth::Wide || !row.facts.holds(POOL_PARTITION);
    let rows: Vec<DeviceRow> = rows(disks, devices).into_iter().filter(has).collect();
    let mut text = table(&rows, &columns(width));
    match devices.iter().filter(|shown| is_idle(shown)).count() {
        0 => {}
        1 => text.push_str("(and 1 loop device without a file)\n"),
        count => text.push_str(&format!("(and {count} loop devices without a file)\n")),
    }
    text
}

/// The columns of a table, in their order.
fn columns(width: TableWidth) -> Vec<(&'static Fact, TableColumn)> {
    let all = FACTS.iter().filter_map(|fact| Some((fact, fact.column()?)));
    let mut columns: Vec<_> =
        all.filter(|(_, column)| width == TableWidth::Wide || column.width == TableWidth::Narrow).collect();
    columns.sort_by_key(|(_, column)| column.at);
    columns
}

fn cell(fact: &Fact, column: &TableColumn, facts: &Facts) -> String {
    let text = match fact.among(facts) {
        Some(FactValue::Text(text)) => text,
        Some(FactValue::Bytes(bytes)) => Size(bytes).to_string(),
        Some(FactValue::Integer(number)) => number.to_string(),
        Some(FactValue::Boolean(true)) => "yes".to_owned(),
        Some(FactValue::Boolean(false)) => "no".to_owned(),
        Some(FactValue::Texts(texts)) => texts.join(","),
        None => String::new(),
    };
    match column.with.and_then(|with| facts.text(with)) {
        Some(with) => format!("{text} ({with})"),
        None => text,
    }
}

fn table(rows: &[DeviceRow], columns: &[(&Fact, TableColumn)]) -> String {
    if rows.is_empty() {
        return "no block devices were found\n".to_owned();
    }
    let head: Vec<String> = columns.iter().map(|(_, column)| column.head.to_owned()).collect();
    let cells = |row: &DeviceRow| {
        columns.iter().map(|(fact, column)| printable(&cell(fact, column, &row.facts))).collect::<Vec<_>>()
    };
    let cells = rows.iter().map(cells);
    let lines: Vec<Vec<String>> = [head].into_iter().chain(cells).collect();
    let widths: Vec<usize> =
        (0..columns.len()).map(|at| lines.iter().map(|line| width(&line[at])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        for ((cell, (_, column)), wide) in line.iter().zip(columns).zip(&widths) {
            let blank = " ".repeat(wide.saturating_sub(width(cell)));
            match column.alignment {
                Alignment::Left => out.extend([cell, &*blank, "  "]),
                Alignment::Right => out.extend([&*blank, cell, "  "]),
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// A cell that cannot break its table: no control, direction or line characters; `-` if it is empty.
fn printable(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let safe: String =
        text.chars().map(|c| if c.is_control() || turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect();
    match safe.trim() {
        "" => "-".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// The width of a text in a terminal, in columns.
fn width(text: &str) -> usize {
    let columns = |c: char| match u32::from(c) {
        0x300..=0x36f | 0x1ab0..=0x1aff | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    };
    text.chars().map(columns).sum()
}

#[cfg(test)]
mod tests;
