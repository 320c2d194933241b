//! `localpool volumes`: what is on the disks of this node's pool, including volumes that have no object any more.
//!
//! Takes in the pool's views, gives out text. Pure: prints nothing.

use serde::Serialize;

use super::devices::{Format, ShowError};
use super::table::{Heads, TableStyle};
use crate::device::{Size, label::VolumeUsage};
use crate::health::{Condition, Finding};
use crate::pool::VolumeView;

/// One volume for programs. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeRow {
    id: String,
    name: String,
    /// `Ready`, `Found`, or the reason of its condition.
    state: String,
    /// Bytes.
    size: u64,
    growable_to: u64,
    /// `block`, a filesystem, or `unknown` if the volume has no description.
    usage: String,
    disk: String,
    set: String,
    message: String,
}

#[derive(Serialize)]
struct VolumeList {
    volumes: Vec<VolumeRow>,
}

impl VolumeRow {
    fn of(view: &VolumeView) -> Self {
        let found = view.record.as_ref().is_some_and(|record| record.found);
        let condition = Condition::of(Finding::of_volume(view));
        let (state, message) = match (condition.is_healthy(), found) {
            (false, _) => (condition.word().to_owned(), condition.message()),
            (true, true) => ("Found".to_owned(), "waits for `localpool volume adopt`".to_owned()),
            (true, false) => ("Ready".to_owned(), String::new()),
        };
        let usage = match view.record.as_ref().map(|record| record.usage) {
            Some(VolumeUsage::Block) => "block",
            Some(VolumeUsage::Mount(kind)) => kind.name(),
            None => "unknown",
        };
        Self {
            id: view.id.to_string(),
            name: view.record.as_ref().map(|record| record.name.clone()).unwrap_or_default(),
            state,
            size: view.size,
            growable_to: view.growable_to,
            usage: usage.to_owned(),
            disk: view.disk.to_string(),
            set: view.set.to_string(),
            message,
        }
    }

    fn cells(&self) -> [String; 7] {
        let name = if self.name.is_empty() { "-" } else { &self.name };
        // A name can be any text, and must not control the terminal.
        let name = name.escape_debug().to_string();
        let size = Size(self.size).to_string();
        [self.id.clone(), name, self.state.clone(), size, self.usage.clone(), self.set.clone(), self.disk.clone()]
    }
}

/// All volumes in the order of their names, with a final line end.
pub fn render(views: &[VolumeView], format: Format) -> Result<String, ShowError> {
    styled(views, format, TableStyle::default())
}

/// The same, as a person wants a table. It has no colours: what is wrong has a line of its own.
pub fn styled(views: &[VolumeView], format: Format, style: TableStyle) -> Result<String, ShowError> {
    let mut rows: Vec<VolumeRow> = views.iter().map(VolumeRow::of).collect();
    rows.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(&VolumeList { volumes: rows }).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&VolumeList { volumes: rows }).map_err(ShowError::Yaml)?,
        Format::Name => rows.iter().map(|row| format!("{}\n", row.id)).collect(),
        // The last column is for `wide` only.
        Format::Table => table(&rows, HEADER.len() - 1, style.heads),
        Format::Wide => table(&rows, HEADER.len(), style.heads),
    })
}

const HEADER: [&str; 7] = ["ID", "NAME", "STATE", "SIZE", "USE", "SET", "DISK"];

/// The first `columns` of them.
fn table(rows: &[VolumeRow], columns: usize, heads: Heads) -> String {
    if rows.is_empty() {
        return "no volumes on the disks of this node's pool\n".to_owned();
    }
    let mut lines = vec![HEADER.map(str::to_owned)];
    lines.extend(rows.iter().map(VolumeRow::cells));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    let head = usize::from(heads == Heads::Hidden);
    for (index, line) in lines.iter().enumerate().skip(head) {
        let mut written = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            written.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(written.trim_end());
        text.push('\n');
        if let Some(row) = index.checked_sub(1).and_then(|index| rows.get(index)).filter(|row| !row.message.is_empty())
        {
            text.push_str(&format!("    {}\n", row.message));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::device::VolumeId;
    use crate::device::{
        DiskId, SetName,
        label::{SetRef, VolumeRecord},
    };
    use crate::host::FsKind;
    use crate::pool::Standing;

    fn view(name: &str, standing: Standing, found: bool) -> VolumeView {
        let record = VolumeRecord {
            name: name.to_owned(),
            required: 1 << 30,
            limit: None,
            parameters: BTreeMap::new(),
            usage: VolumeUsage::Mount(FsKind::Xfs),
            fs_size: 0,
            found,
        };
        VolumeView {
            id: VolumeId::of_name(name),
            record: Some(record),
            size: 1 << 30,
            formatted: true,
            growable_to: 1 << 30,
            set: SetRef::new(SetName::new("d", "s"), "u"),
            disk: DiskId::named("gpt-1"),
            standing,
            given_up: false,
            conflict: None,
            node: Default::default(),
            directory: None,
        }
    }

    #[test]
    fn each_volume_has_a_line_and_what_is_wrong_with_it_another() {
        let views = [
            view("pvc-b", Standing::Missing, false),
            view("pvc-a", Standing::Ready, false),
            view("pvc-c", Standing::Ready, true),
            VolumeView { record: None, ..view("pvc-d", Standing::Ready, false) },
        ];
        let text = render(&views, Format::Table).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID ") && lines[0].ends_with("SET"), "{text}");
        let hidden = TableStyle { heads: Heads::Hidden, ..TableStyle::default() };
        let bare = styled(&views, Format::Table, hidden).expect("it can be written");
        assert_eq!(bare.lines().collect::<Vec<_>>(), lines[1..]);
        assert_eq!(render(&views, Format::Name).expect("it can be written").lines().count(), 4);
        assert!(lines[1].contains("NotDescribed") && lines[1].contains("unknown"), "{text}");
        assert!(lines[3].contains("pvc-a") && lines[3].contains("Ready") && lines[3].contains("1.0 GiB"), "{text}");
        assert!(lines[4].contains("DiskMissing") && lines[5].contains("unplugged"), "{text}");
        assert!(lines[6].contains("Found") && lines[7].contains("volume adopt"), "{text}");
        let json = render(&views, Format::Json).expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["volumes"].as_array().map(Vec::len), Some(4));
        assert_eq!(value["volumes"][1]["state"], "Ready");
    }

    #[test]
    fn a_name_cannot_command_a_terminal() {
        let text = render(&[view("\u{1b}[31m", Standing::Ready, false)], Format::Table).expect("it can be written");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
