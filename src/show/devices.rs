//! `localpool devices`: every disk with its verdict and the reason, for people and for programs.
//!
//! Takes in devices, each with the pool's note about it; gives out text. Pure: prints nothing.

use super::listed::ListedDevice;
use super::row::{DeviceList, DeviceRow, rows};
use super::table::{TableStyle, table};
use crate::device::{
    Fact, FactValue, Facts, Size, TableColumn, TableWidth,
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
    /// Only the names that other commands take, one a line.
    Name,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Name => "name",
        }
    }
}

/// A text that names no output format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not an output format: use table, wide, json, yaml or name")]
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
            "name" => Ok(Self::Name),
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
    styled(devices, format, TableStyle::default())
}

/// The same, as a person wants a table.
pub fn styled(devices: &[ListedDevice], format: Format, style: TableStyle) -> Result<String, ShowError> {
    Ok(match format {
        Format::Table => for_people(&sorted(devices), TableWidth::Narrow, style),
        Format::Wide => for_people(&sorted(devices), TableWidth::Wide, style),
        Format::Json => serde_json::to_string_pretty(&list(devices)).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&list(devices)).map_err(ShowError::Yaml)?,
        Format::Name => sorted(devices).iter().map(|shown| format!("{}\n", shown.device.raw.path.display())).collect(),
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
fn for_people(devices: &[&ListedDevice], width: TableWidth, style: TableStyle) -> String {
    let is_idle = |shown: &&ListedDevice| matches!(shown.device.raw.kind, DeviceKind::Loop(None));
    let disks = devices.iter().copied().filter(|shown| !is_idle(shown));
    let has = |row: &DeviceRow| width == TableWidth::Wide || !row.facts.holds(POOL_PARTITION);
    let rows: Vec<DeviceRow> = rows(disks, devices).into_iter().filter(has).collect();
    let mut text = shown_table(&rows, &columns(width), style);
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

fn shown_table(rows: &[DeviceRow], columns: &[(&Fact, TableColumn)], style: TableStyle) -> String {
    if rows.is_empty() {
        return "no block devices were found\n".to_owned();
    }
    let heads: Vec<_> = columns.iter().map(|(_, column)| (column.head, column.alignment)).collect();
    let cells = |row: &DeviceRow| columns.iter().map(|(fact, column)| cell(fact, column, &row.facts).into()).collect();
    table(&heads, &rows.iter().map(cells).collect::<Vec<_>>(), style)
}

#[cfg(test)]
mod tests;
