//! A table for people: columns as wide as their widest cell, safe for a terminal, with colours if they are wanted.

use crate::device::Alignment;

/// What a cell means to whoever reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    /// Somebody should look at it.
    Doubtful,
    Bad,
}

/// Whether a table says what its columns are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heads {
    #[default]
    Shown,
    Hidden,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    #[default]
    Plain,
    Colours,
}

/// How a table looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStyle {
    pub heads: Heads,
    pub paint: Paint,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCell {
    pub text: String,
    pub tone: Tone,
}

impl TableCell {
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Each line with a line end. Every row has a cell for each column.
pub fn table(columns: &[(&str, Alignment)], rows: &[Vec<TableCell>], style: TableStyle) -> String {
    let head = columns.iter().map(|(head, _)| TableCell::from(*head)).collect();
    let heads: Vec<Vec<TableCell>> = match style.heads {
        Heads::Shown => vec![head],
        Heads::Hidden => Vec::new(),
    };
    let safe = |cell: &TableCell| TableCell { text: printable(&cell.text), tone: cell.tone };
    let lines: Vec<Vec<TableCell>> = heads.iter().chain(rows).map(|line| line.iter().map(safe).collect()).collect();
    let widths: Vec<usize> =
        (0..columns.len()).map(|at| lines.iter().map(|line| width(&line[at].text)).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        let last = line.len().saturating_sub(1);
        for (at, ((cell, (_, alignment)), wide)) in line.iter().zip(columns).zip(&widths).enumerate() {
            let blank = " ".repeat(wide.saturating_sub(width(&cell.text)));
            let painted = painted(cell, style.paint);
            match alignment {
                // Nothing but blanks would follow.
                Alignment::Left if at == last => out.push_str(&painted),
                Alignment::Left => out.extend([&*painted, &blank, "  "]),
                Alignment::Right if at == last => out.extend([&*blank, &painted]),
                Alignment::Right => out.extend([&*blank, &painted, "  "]),
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

fn painted(cell: &TableCell, paint: Paint) -> String {
    let TableCell { text, tone } = cell;
    let code = match (paint, tone) {
        (Paint::Plain, _) | (Paint::Colours, Tone::Plain) => return text.clone(),
        (Paint::Colours, Tone::Good) => "32",
        (Paint::Colours, Tone::Doubtful) => "33",
        (Paint::Colours, Tone::Bad) => "31",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// A cell that cannot break its table; `-` if it is empty.
fn printable(text: &str) -> String {
    match one_line(text).trim() {
        "" => "-".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// A text that stays in its line and commands no terminal: no control, direction or line characters.
pub fn one_line(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars().map(|c| if c.is_control() || turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The width of a text in a terminal, in columns.
pub fn width(text: &str) -> usize {
    let columns = |c: char| match u32::from(c) {
        0x300..=0x36f | 0x1ab0..=0x1aff | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    };
    text.chars().map(columns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Alignment); 3] =
        [("NAME", Alignment::Left), ("SIZE", Alignment::Right), ("WHY", Alignment::Left)];

    fn rows() -> Vec<Vec<TableCell>> {
        let bad = TableCell::toned("Missing", Tone::Bad);
        vec![vec!["a".into(), "12".into(), bad], vec!["long-name".into(), "".into(), "\u{1b}[31mx\n".into()]]
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_no_cell_commands_the_terminal() {
        let text = table(&COLUMNS, &rows(), TableStyle::default());
        assert_eq!(text, "NAME       SIZE  WHY\na            12  Missing\nlong-name     -  \u{fffd}[31mx\u{fffd}\n");
        let hidden = table(&COLUMNS, &rows(), TableStyle { heads: Heads::Hidden, ..TableStyle::default() });
        assert_eq!(hidden.lines().count(), 2);
    }

    #[test]
    fn colours_change_no_width_and_only_what_has_a_meaning() {
        let colours = TableStyle { paint: Paint::Colours, ..TableStyle::default() };
        let text = table(&COLUMNS, &rows(), colours);
        assert!(text.contains("\u{1b}[31mMissing\u{1b}[0m\n"), "{text:?}");
        let plain = text.replace("\u{1b}[31mMissing\u{1b}[0m", "Missing");
        assert_eq!(plain, table(&COLUMNS, &rows(), TableStyle::default()));
    }
}
