//! A list of objects in each format that the command line knows: one way for all lists.

use serde::Serialize;
use serde_json::{Map, Value};

use super::devices::{Format, ShowError};
use super::table::{TableCell, TableStyle, table};
use crate::device::{Alignment, TableWidth};

/// A column of a list.
pub struct ListColumn<T> {
    pub head: &'static str,
    pub width: TableWidth,
    pub alignment: Alignment,
    pub cell: fn(&T) -> TableCell,
}

impl<T> ListColumn<T> {
    /// A column of both tables.
    pub const fn narrow(head: &'static str, cell: fn(&T) -> TableCell) -> Self {
        Self { head, width: TableWidth::Narrow, alignment: Alignment::Left, cell }
    }

    /// One of the wide table alone.
    pub const fn wide(head: &'static str, cell: fn(&T) -> TableCell) -> Self {
        Self { head, width: TableWidth::Wide, alignment: Alignment::Left, cell }
    }

    /// A column of numbers or sizes, in both tables.
    pub const fn number(head: &'static str, cell: fn(&T) -> TableCell) -> Self {
        Self { head, width: TableWidth::Narrow, alignment: Alignment::Right, cell }
    }

    /// One of the wide table alone.
    pub const fn wide_number(head: &'static str, cell: fn(&T) -> TableCell) -> Self {
        Self { head, width: TableWidth::Wide, alignment: Alignment::Right, cell }
    }
}

/// What is listed, one line each.
pub trait InList: Serialize + Sized + 'static {
    /// The name of the list in JSON and YAML.
    const LIST: &'static str;
    /// What is printed if there is none.
    const NONE: &'static str;
    const COLUMNS: &'static [ListColumn<Self>];

    /// What `-o name` prints: what other commands take.
    fn name(&self) -> String;
}

/// All rows in their order, with a final line end.
pub fn list<T: InList>(rows: &[T], format: Format, style: TableStyle) -> Result<String, ShowError> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(&object(rows)?).map_err(ShowError::Json)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&object(rows)?).map_err(ShowError::Yaml)?,
        Format::Name => rows.iter().map(|row| row.name() + "\n").collect(),
        Format::Table | Format::Wide if rows.is_empty() => format!("{}\n", T::NONE),
        Format::Table => as_table(rows, TableWidth::Narrow, style),
        Format::Wide => as_table(rows, TableWidth::Wide, style),
    })
}

fn object<T: InList>(rows: &[T]) -> Result<Value, ShowError> {
    let rows = serde_json::to_value(rows).map_err(ShowError::Json)?;
    Ok(Value::Object(Map::from_iter([(T::LIST.to_owned(), rows)])))
}

fn as_table<T: InList>(rows: &[T], width: TableWidth, style: TableStyle) -> String {
    let shown = |column: &&ListColumn<T>| width == TableWidth::Wide || column.width == TableWidth::Narrow;
    let columns: Vec<&ListColumn<T>> = T::COLUMNS.iter().filter(shown).collect();
    let heads: Vec<_> = columns.iter().map(|column| (column.head, column.alignment)).collect();
    let cells = |row: &T| columns.iter().map(|column| (column.cell)(row)).collect();
    table(&heads, &rows.iter().map(cells).collect::<Vec<_>>(), style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::table::Heads;

    #[derive(Serialize)]
    struct Thing {
        name: &'static str,
        size: u64,
    }

    impl InList for Thing {
        const LIST: &'static str = "things";
        const NONE: &'static str = "there are no things";
        const COLUMNS: &'static [ListColumn<Self>] = &[
            ListColumn::narrow("NAME", |thing| thing.name.into()),
            ListColumn::wide_number("SIZE", |thing| thing.size.to_string().into()),
        ];

        fn name(&self) -> String {
            format!("thing/{}", self.name)
        }
    }

    #[test]
    fn a_list_says_the_same_in_each_format() {
        let things = [Thing { name: "a", size: 7 }, Thing { name: "bb", size: 10 }];
        let as_ = |format| list(&things, format, TableStyle::default()).expect("written");
        assert_eq!(as_(Format::Table), "NAME\na\nbb\n");
        assert_eq!(as_(Format::Wide), "NAME  SIZE\na        7\nbb      10\n");
        assert_eq!(as_(Format::Name), "thing/a\nthing/bb\n");
        let json: Value = serde_json::from_str(&as_(Format::Json)).expect("JSON");
        assert_eq!(json["things"][1]["size"], 10);
        assert!(as_(Format::Yaml).starts_with("things:\n"), "{}", as_(Format::Yaml));
        let hidden = TableStyle { heads: Heads::Hidden, ..TableStyle::default() };
        assert_eq!(list(&things, Format::Table, hidden).expect("written"), "a\nbb\n");
    }

    #[test]
    fn an_empty_list_is_a_sentence_for_people_and_an_empty_list_for_programs() {
        let as_ = |format| list::<Thing>(&[], format, TableStyle::default()).expect("written");
        assert_eq!(as_(Format::Table), "there are no things\n");
        assert_eq!(as_(Format::Name), "");
        assert_eq!(serde_json::from_str::<Value>(&as_(Format::Json)).expect("JSON")["things"], serde_json::json!([]));
    }
}
