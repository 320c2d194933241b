//! What a fact of a device is: its kind, how it is read, and where people and programs see it.
//!
//! The facts themselves are the rows of [`fact_table`](super::fact_table). Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::attachment::Attachment;
use super::judged::Device;
use crate::host::RawDisk;

/// A device, and what is known about it from elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub device: &'a Device,
    pub attachment: Attachment,
    /// `None` for expressions: a filter does not depend on whose a device is.
    pub shown_verdict: Option<&'a ShownVerdict>,
}

impl<'a> Observed<'a> {
    pub fn raw(&self) -> &'a RawDisk {
        &self.device.raw
    }
}

/// Whose a device is, with the words of the pool: only a list of all devices has it.
#[derive(Clone, Debug)]
pub struct ShownVerdict {
    pub verdict: &'static str,
    pub reason: String,
    pub refusal: Option<String>,
    pub pool_partition: bool,
}

/// The type of a fact's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    Text,
    /// One of these; the last means that it is not known. Another version may have other words.
    Word(&'static [&'static str]),
    Bytes,
    Int32,
    Int64,
    Boolean,
    Texts,
}

impl FactKind {
    /// The value if nothing is known and a value is required.
    pub fn unknown(self) -> FactValue {
        match self {
            Self::Text => FactValue::Text(String::new()),
            Self::Word(words) => FactValue::Text(words.last().copied().unwrap_or_default().to_owned()),
            Self::Bytes => FactValue::Bytes(0),
            Self::Int32 | Self::Int64 => FactValue::Integer(-1),
            Self::Boolean => FactValue::Boolean(false),
            Self::Texts => FactValue::Texts(Vec::new()),
        }
    }

    /// A value that another process wrote; null is none.
    fn read(self, value: Value) -> Result<Option<FactValue>, serde_json::Error> {
        if value.is_null() {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Text | Self::Word(_) => FactValue::Text(serde_json::from_value(value)?),
            Self::Bytes => FactValue::Bytes(serde_json::from_value(value)?),
            Self::Int32 | Self::Int64 => FactValue::Integer(serde_json::from_value(value)?),
            Self::Boolean => FactValue::Boolean(serde_json::from_value(value)?),
            Self::Texts => FactValue::Texts(serde_json::from_value(value)?),
        }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FactValue {
    Text(String),
    Bytes(u64),
    Integer(i64),
    Boolean(bool),
    Texts(Vec<String>),
}

impl FactValue {
    /// An empty text or list is as good as none.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Texts(texts) => texts.is_empty(),
            Self::Bytes(_) | Self::Integer(_) | Self::Boolean(_) => false,
        }
    }
}

/// How a fact is read, and its kind with it. `None`: the device does not report it.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    Text(fn(&Observed<'_>) -> Option<String>),
    Word(&'static [&'static str], fn(&Observed<'_>) -> String),
    Bytes(fn(&Observed<'_>) -> u64),
    Int32(fn(&Observed<'_>) -> Option<i32>),
    Int64(fn(&Observed<'_>) -> i64),
    Boolean(fn(&Observed<'_>) -> Option<bool>),
    Texts(fn(&Observed<'_>) -> Vec<String>),
    /// From other facts: a process that has no device but its facts can read it too.
    Derived(FactKind, fn(&Facts) -> Option<FactValue>),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// Its key in JSON and YAML, if it is shown there.
    pub name: &'static str,
    /// For documents: a sentence without its end, with names set as code. The schema has it as well.
    pub what: &'static str,
    pub read: Read,
    pub shown: &'static [Output],
}

/// A place where a fact is shown.
#[derive(Clone, Copy, Debug)]
pub enum Output {
    /// `localpool devices -o json` and `-o yaml`, and what an agent hands to discovery.
    Json,
    /// `localpool devices`.
    Table(TableColumn),
    /// `device.` and this name in the expression of a set.
    Expression(&'static str),
    /// A LocalVolumeDiscoveryResult.
    Discovery(ResultField),
}

impl Fact {
    pub fn kind(&self) -> FactKind {
        match self.read {
            Read::Text(_) => FactKind::Text,
            Read::Word(words, _) => FactKind::Word(words),
            Read::Bytes(_) => FactKind::Bytes,
            Read::Int32(_) => FactKind::Int32,
            Read::Int64(_) => FactKind::Int64,
            Read::Boolean(_) => FactKind::Boolean,
            Read::Texts(_) => FactKind::Texts,
            Read::Derived(kind, _) => kind,
        }
    }

    /// From a device; `None` for a derived fact.
    pub fn of(&self, observed: &Observed<'_>) -> Option<FactValue> {
        match self.read {
            Read::Text(read) => read(observed).map(FactValue::Text),
            Read::Word(_, read) => Some(FactValue::Text(read(observed))),
            Read::Bytes(read) => Some(FactValue::Bytes(read(observed))),
            Read::Int32(read) => read(observed).map(|number| FactValue::Integer(number.into())),
            Read::Int64(read) => Some(FactValue::Integer(read(observed))),
            Read::Boolean(read) => read(observed).map(FactValue::Boolean),
            Read::Texts(read) => Some(FactValue::Texts(read(observed))).filter(|texts| !texts.is_empty()),
            Read::Derived(..) => None,
        }
    }

    /// From the facts of a device, derived or not.
    pub fn among(&self, facts: &Facts) -> Option<FactValue> {
        match self.read {
            Read::Derived(_, read) => read(facts),
            _ => facts.get(self.name).cloned(),
        }
    }

    /// What it is, as a whole sentence: in a schema, which is what `kubectl explain` shows.
    pub fn description(&self) -> String {
        let mut letters = self.what.chars();
        // A name that is set as code keeps its case: what is made a capital then is its mark.
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).filter(|letter| *letter != '`').chain(['.']).collect()
    }

    pub fn is_in_json(&self) -> bool {
        self.shown.iter().any(|output| matches!(output, Output::Json))
    }

    pub fn column(&self) -> Option<TableColumn> {
        self.shown.iter().find_map(|output| match output {
            Output::Table(column) => Some(*column),
            _ => None,
        })
    }

    pub fn expressions(&self) -> impl Iterator<Item = &'static str> {
        self.shown.iter().filter_map(|output| match output {
            Output::Expression(name) => Some(*name),
            _ => None,
        })
    }

    pub fn result(&self) -> Option<ResultField> {
        self.shown.iter().find_map(|output| match output {
            Output::Discovery(field) => Some(*field),
            _ => None,
        })
    }
}

/// A column of `localpool devices`.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    /// Its place among the others, by tens, so that one can come between.
    pub at: u16,
    pub head: &'static str,
    pub alignment: Alignment,
    pub width: TableWidth,
    /// A fact that is added in brackets, if it is known.
    pub with: Option<&'static str>,
}

impl TableColumn {
    pub const fn right(self) -> Self {
        Self { alignment: Alignment::Right, ..self }
    }

    pub const fn with(self, fact: &'static str) -> Self {
        Self { with: Some(fact), ..self }
    }
}

/// A column of both tables.
pub const fn narrow(at: u16, head: &'static str) -> TableColumn {
    TableColumn { at, head, alignment: Alignment::Left, width: TableWidth::Narrow, with: None }
}

pub const fn wide(at: u16, head: &'static str) -> TableColumn {
    TableColumn { width: TableWidth::Wide, ..narrow(at, head) }
}

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    Left,
    Right,
}

/// Which table has a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWidth {
    /// Both.
    Narrow,
    /// The one of `-o wide` alone.
    Wide,
}

/// A field of a device in a LocalVolumeDiscoveryResult.
#[derive(Clone, Copy, Debug)]
pub struct ResultField {
    pub name: &'static str,
    pub rank: FieldRank,
}

pub const fn operators(name: &'static str) -> ResultField {
    ResultField { name, rank: FieldRank::Operators }
}

pub const fn identity(name: &'static str) -> ResultField {
    ResultField { rank: FieldRank::Identity, ..operators(name) }
}

pub const fn ours(name: &'static str) -> ResultField {
    ResultField { rank: FieldRank::Ours, ..operators(name) }
}

/// Whose a field of a result is, and whether it is omitted if the object is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRank {
    /// The operator's: it always exists, with [`FactKind::unknown`] if nothing is known.
    Operators,
    /// Ours, if it has a value, however large the object is.
    Identity,
    /// Ours, if it has a value and the object has room.
    Ours,
}

/// The known facts of a device, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<&'static str, FactValue>);

impl Facts {
    /// From what another process wrote under these keys. Other keys are from another version, and are ignored.
    pub fn read<'f>(
        mut fields: Map<String, Value>,
        keys: impl Iterator<Item = (&'static str, &'f Fact)>,
    ) -> Result<Self, serde_json::Error> {
        let read = |(key, fact): (&str, &Fact)| {
            let value = fact.kind().read(fields.remove(key)?).transpose()?;
            Some(value.map(|value| (fact.name, value)))
        };
        keys.filter_map(read).collect::<Result<_, _>>().map(Self)
    }

    pub fn get(&self, name: &str) -> Option<&FactValue> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(FactValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether it is known and true.
    pub fn holds(&self, name: &str) -> bool {
        self.get(name) == Some(&FactValue::Boolean(true))
    }

    pub fn insert(&mut self, name: &'static str, value: FactValue) {
        self.0.insert(name, value);
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl FromIterator<(&'static str, FactValue)> for Facts {
    fn from_iter<T: IntoIterator<Item = (&'static str, FactValue)>>(facts: T) -> Self {
        Self(facts.into_iter().collect())
    }
}
