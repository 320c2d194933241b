//! `localpool devices`: every disk with its verdict and the reason, for people and for programs.
//!
//! Takes in devices, each with what the pool has to say of it; gives out text. Pure: prints nothing.

use super::listed::ListedDevice;
use super::row::{DeviceList, DeviceRow, rows};
use crate::device::size::Size;
use crate::host::natural_order::natural;
use crate::host::raw::Kind;

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

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => Err(format!("{other:?} is no output format: it is one of table, wide, json, yaml")),
        }
    }
}

/// Why devices could not be written; for a program's sake nothing is left out in silence.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    #[error("writing devices as JSON")]
    Json(#[source] serde_json::Error),
    #[error("writing devices as YAML")]
    Yaml(#[source] serde_saphyr::ser::Error),
}

/// All devices in the order of their names, ending in a line end.
pub fn render(devices: &[ListedDevice], format: Format) -> Result<String, ShowError> {
    Ok(match format {
        Format::Table => for_people(&sorted(devices), &NARROW, |row| !row.pool_partition),
        Format::Wide => for_people(&sorted(devices), &WIDE, |_| true),
        Format::Json => serde_json::to_string_pretty(&list(devices)).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&list(devices)).map_err(ShowError::Yaml)?,
    })
}

fn sorted(devices: &[ListedDevice]) -> Vec<&ListedDevice> {
    let mut devices: Vec<&ListedDevice> = devices.iter().collect();
    devices.sort_by(|a, b| natural(&a.device.raw.name, &b.device.raw.name));
    devices
}

/// All devices in the order of their names.
pub fn list(devices: &[ListedDevice]) -> DeviceList {
    let devices = sorted(devices);
    DeviceList { devices: rows(devices.iter().copied(), &devices) }
}

/// A table without the loop devices that stand ready for a file: the kernel keeps dozens of them, and none
/// is a disk. They are counted below it. The narrow one is without the pool's own partitions, too: a disk says how many
/// volumes it has, and they come and go.
fn for_people(devices: &[&ListedDevice], columns: &[Column], has: fn(&DeviceRow) -> bool) -> String {
    let is_idle = |shown: &&ListedDevice| matches!(shown.device.raw.kind, Kind::Loop(None));
    let disks = devices.iter().copied().filter(|shown| !is_idle(shown));
    let rows: Vec<DeviceRow> = rows(disks, devices).into_iter().filter(has).collect();
    let mut text = table(&rows, columns);
    match devices.iter().filter(|shown| is_idle(shown)).count() {
        0 => {}
        1 => text.push_str("(and 1 loop device without a file)\n"),
        count => text.push_str(&format!("(and {count} loop devices without a file)\n")),
    }
    text
}

/// A column: its head, which side its cells stand on, and what a cell says.
struct Column {
    head: &'static str,
    side: Side,
    cell: fn(&DeviceRow) -> String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

const fn left(head: &'static str, cell: fn(&DeviceRow) -> String) -> Column {
    Column { head, side: Side::Left, cell }
}

const fn right(head: &'static str, cell: fn(&DeviceRow) -> String) -> Column {
    Column { head, side: Side::Right, cell }
}

const DEVICE: Column = left("DEVICE", |row| row.path.clone());
const SIZE: Column = right("SIZE", |row| Size(row.size).to_string());
const TYPE: Column = left("TYPE", |row| row.kind.clone());
const MODEL: Column = left("MODEL", |row| row.model.clone().unwrap_or_default());
const VERDICT: Column = left("VERDICT", |row| row.verdict.clone());
const WHY: Column = left("WHY", |row| row.reason.clone());

const NARROW: [Column; 6] = [DEVICE, SIZE, TYPE, MODEL, VERDICT, WHY];
const WIDE: [Column; 20] = [
    DEVICE,
    SIZE,
    TYPE,
    MODEL,
    left("SERIAL", |row| row.serial.clone().unwrap_or_default()),
    left("TRANSPORT", |row| row.transport.clone().unwrap_or_default()),
    left("ATTACHED", |row| match &row.attached_by {
        Some(by) => format!("{} ({by})", row.attachment),
        None => row.attachment.to_string(),
    }),
    right("SECTOR", |row| row.sector_size.to_string()),
    right("PHYSICAL", |row| row.physical_sector_size.to_string()),
    left("ROTATIONAL", |row| yes_or_no(row.rotational)),
    left("DISCARD", |row| yes_or_no(row.discard)),
    left("ZONED", |row| row.zoned.clone().unwrap_or_default()),
    left("NUMA", |row| row.numa_node.map(|node| node.to_string()).unwrap_or_default()),
    VERDICT,
    left("ID", |row| row.disk_id.clone()),
    left("WWN", |row| row.wwn.clone().unwrap_or_default()),
    left("LINK", |row| row.link.clone()),
    left("BY-PATH", |row| row.by_path.clone().unwrap_or_default()),
    left("CHILDREN", |row| row.children.join(",")),
    WHY,
];

fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

fn table(rows: &[DeviceRow], columns: &[Column]) -> String {
    if rows.is_empty() {
        return "no block devices were found\n".to_owned();
    }
    let head: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| printable(&(column.cell)(row))).collect());
    let lines: Vec<Vec<String>> = [head].into_iter().chain(cells).collect();
    let widths: Vec<usize> =
        (0..columns.len()).map(|at| lines.iter().map(|line| width(&line[at])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        for ((cell, column), wide) in line.iter().zip(columns).zip(&widths) {
            let blank = " ".repeat(wide.saturating_sub(width(cell)));
            match column.side {
                Side::Left => out.extend([cell, &*blank, "  "]),
                Side::Right => out.extend([&*blank, cell, "  "]),
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// A cell that cannot disturb its table: no control, direction or line characters; `-` where it is empty.
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

/// Columns that a text takes in a terminal.
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
