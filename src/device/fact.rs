//! What a fact of a device is: its kind, how it is read, and where people and programs see it.
//!
//! The facts themselves are the rows of [`fact_table`](super::fact_table). Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Device;
use super::attachment::Attachment;
use crate::host::RawDisk;

/// A device, and what is known of it beside what it says itself.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub device: &'a Device,
    pub attachment: Attachment,
    /// An expression is asked without it: whose a device is decides no filter.
    pub listing: Option<&'a Listing>,
}

impl<'a> Observed<'a> {
    pub fn raw(&self) -> &'a RawDisk {
        &self.device.raw
    }
}

/// What a list of all devices says of one: whose it is, with the words of the pool.
#[derive(Clone, Debug)]
pub struct Listing {
    pub verdict: &'static str,
    pub reason: String,
    pub refusal: Option<String>,
    pub pool_partition: bool,
}

/// Of which sort the values of a fact are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    Text,
    /// One of these; the last stands for what is not known. Another version may say another word.
    Word(&'static [&'static str]),
    Bytes,
    Int32,
    Int64,
    Boolean,
    Texts,
}

impl FactKind {
    /// What stands where nothing is known and something has to be said.
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

    /// A value that another process wrote; null says nothing.
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
    /// An empty text or list says as little as none.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Texts(texts) => texts.is_empty(),
            Self::Bytes(_) | Self::Integer(_) | Self::Boolean(_) => false,
        }
    }
}

/// How a fact is read, and of which kind it is by that. `None`: the device does not say.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    Text(fn(&Observed<'_>) -> Option<String>),
    Word(&'static [&'static str], fn(&Observed<'_>) -> String),
    Bytes(fn(&Observed<'_>) -> u64),
    Int32(fn(&Observed<'_>) -> Option<i32>),
    Int64(fn(&Observed<'_>) -> i64),
    Boolean(fn(&Observed<'_>) -> Option<bool>),
    Texts(fn(&Observed<'_>) -> Vec<String>),
    /// From other facts, so that whoever has only those can tell it too.
    Derived(FactKind, fn(&Facts) -> Option<FactValue>),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// Its key in JSON and YAML, where it is there.
    pub name: &'static str,
    /// In a sentence without its end: for documents, with names set as code.
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
    Table(Column),
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

    /// Of a device. What comes from other facts is not asked of it.
    pub fn of(&self, seen: &Observed<'_>) -> Option<FactValue> {
        match self.read {
            Read::Text(read) => read(seen).map(FactValue::Text),
            Read::Word(_, read) => Some(FactValue::Text(read(seen))),
            Read::Bytes(read) => Some(FactValue::Bytes(read(seen))),
            Read::Int32(read) => read(seen).map(|number| FactValue::Integer(number.into())),
            Read::Int64(read) => Some(FactValue::Integer(read(seen))),
            Read::Boolean(read) => read(seen).map(FactValue::Boolean),
            Read::Texts(read) => Some(FactValue::Texts(read(seen))).filter(|texts| !texts.is_empty()),
            Read::Derived(..) => None,
        }
    }

    /// Among the facts of a device, or from them.
    pub fn among(&self, facts: &Facts) -> Option<FactValue> {
        match self.read {
            Read::Derived(_, read) => read(facts),
            _ => facts.get(self.name).cloned(),
        }
    }

    pub fn is_in_json(&self) -> bool {
        self.shown.iter().any(|output| matches!(output, Output::Json))
    }

    pub fn column(&self) -> Option<Column> {
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
pub struct Column {
    /// Its place among the others, by tens, so that one can come between.
    pub at: u16,
    pub head: &'static str,
    pub side: Side,
    pub width: TableWidth,
    /// A fact that stands behind it in brackets, where it is known.
    pub with: Option<&'static str>,
}

impl Column {
    pub const fn right(self) -> Self {
        Self { side: Side::Right, ..self }
    }

    pub const fn with(self, fact: &'static str) -> Self {
        Self { with: Some(fact), ..self }
    }
}

/// A column of both tables.
pub const fn narrow(at: u16, head: &'static str) -> Column {
    Column { at, head, side: Side::Left, width: TableWidth::Narrow, with: None }
}

pub const fn wide(at: u16, head: &'static str) -> Column {
    Column { width: TableWidth::Wide, ..narrow(at, head) }
}

/// On which side of a column its cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Which tables have a column.
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
    /// Whether the schema says what it is.
    pub schema_says_what: bool,
}

impl ResultField {
    pub const fn described(self) -> Self {
        Self { schema_says_what: true, ..self }
    }
}

pub const fn operators(name: &'static str) -> ResultField {
    ResultField { name, rank: FieldRank::Operators, schema_says_what: false }
}

pub const fn identity(name: &'static str) -> ResultField {
    ResultField { rank: FieldRank::Identity, ..operators(name) }
}

pub const fn ours(name: &'static str) -> ResultField {
    ResultField { rank: FieldRank::Ours, ..operators(name) }
}

/// Whose a field of a result is, and what becomes of it where there is no room for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRank {
    /// The operator's: always there, with [`FactKind::unknown`] where nothing is known.
    Operators,
    /// Ours, where there is something to say, however little room there is.
    Identity,
    /// Ours, where there is something to say and room for it.
    Ours,
}

/// What is known of a device, by the names of facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<&'static str, FactValue>);

impl Facts {
    /// From what another process wrote under these keys. Keys that it does not know are of another version.
    pub fn read<'f>(
        mut said: Map<String, Value>,
        keys: impl Iterator<Item = (&'static str, &'f Fact)>,
    ) -> Result<Self, serde_json::Error> {
        let read = |(key, fact): (&str, &Fact)| {
            let value = fact.kind().read(said.remove(key)?).transpose()?;
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

    /// Whether it is known and so.
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
