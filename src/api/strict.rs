//! A reader of JSON values that accepts no mistake: it reports unknown fields with the nearest known one, wrong types,
//! and spellings of one field that disagree.
//!
//! Takes in a value, gives out its fields by the names that a caller asks for; each mistake goes to a [`Problems`] list
//! with its path, so that a user sees all of them at once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};
use strsim::osa_distance;

use super::quantity;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For example `spec.deviceInclusionSpec.minSize`; empty for the document as a whole.
    pub path: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.what),
            path => write!(f, "{path}: {}", self.what),
        }
    }
}

/// Everything that is wrong with a document.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub fn add(&self, path: impl Into<String>, what: impl Into<String>) {
        self.0.borrow_mut().push(Problem { path: path.into(), what: what.into() });
    }

    pub fn into_vec(self) -> Vec<Problem> {
        self.0.into_inner()
    }

    /// What was read, if nothing is wrong with the document.
    pub fn judge<T>(self, read: Option<T>) -> Result<T, Invalid> {
        match (read, self.into_vec()) {
            (Some(read), problems) if problems.is_empty() => Ok(read),
            (_, problems) => Err(Invalid(problems)),
        }
    }
}

/// Why an object or a document is not valid: everything that is wrong with it, in the order in which it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub Vec<Problem>);

impl Invalid {
    /// A problem of the document as a whole.
    pub fn whole(what: impl fmt::Display) -> Self {
        Self(vec![Problem { path: String::new(), what: what.to_string() }])
    }

    /// What was found first, as text.
    pub fn first(&self) -> String {
        self.0.first().map(ToString::to_string).unwrap_or_default()
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let sign = if index > 0 { "; " } else { "" };
            write!(f, "{sign}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// A field that was looked up: its path, and the value if it is there and not null.
pub struct Field<'v, 'p> {
    path: String,
    value: Option<&'v Value>,
    problems: &'p Problems,
}

/// An object whose fields are being read. [`Object::finish`] reports those that no caller asked for.
#[must_use = "call finish, which names the unknown fields"]
pub struct Object<'v, 'p> {
    path: String,
    fields: Option<&'v Map<String, Value>>,
    asked: BTreeSet<&'static str>,
    problems: &'p Problems,
}

impl<'v, 'p> Object<'v, 'p> {
    /// A whole document.
    pub fn root(value: &'v Value, problems: &'p Problems) -> Self {
        Field { path: String::new(), value: Some(value), problems }.object()
    }

    /// A field by any of its spellings. Problems name the one that was given, or else the first.
    pub fn field(&mut self, spellings: &[&'static str]) -> Field<'v, 'p> {
        self.asked.extend(spellings);
        let fields = self.fields;
        let given = spellings.iter().filter_map(|name| Some((*name, fields?.get(*name)?)));
        let mut given = given.filter(|(_, value)| !value.is_null());
        let first = given.next();
        for (other, value) in given {
            if let Some((name, own)) = first.filter(|(_, own)| *own != value) {
                let what = format!("disagrees with {other}, another spelling of it: {own} and {value}");
                self.problems.add(join(&self.path, name), what);
            }
        }
        let name = first.map_or(spellings.first().copied().unwrap_or_default(), |(name, _)| name);
        Field { path: join(&self.path, name), value: first.map(|(_, value)| value), problems: self.problems }
    }

    /// Accepts fields that have no meaning here.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.asked.extend(names);
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn is_given(&self) -> bool {
        self.fields.is_some()
    }

    pub fn finish(self) {
        for name in self.fields.into_iter().flat_map(Map::keys) {
            if !self.asked.contains(name.as_str()) {
                let hint =
                    nearest(name, &self.asked).map_or_else(String::new, |known| format!("; did you mean {known}?"));
                self.problems.add(join(&self.path, name), format!("unknown field{hint}"));
            }
        }
    }
}

impl<'v, 'p> Field<'v, 'p> {
    pub fn is_given(&self) -> bool {
        self.value.is_some()
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// As it is written.
    pub fn value(&self) -> Option<&'v Value> {
        self.value
    }

    pub fn problem(&self, what: impl Into<String>) {
        self.problems.add(&self.path, what);
    }

    /// Reports a problem if the field is absent.
    pub fn required(self) -> Self {
        if self.value.is_none() {
            self.problem("is required");
        }
        self
    }

    /// Absent or of another type: an object without fields, which is not given.
    pub fn object(self) -> Object<'v, 'p> {
        let fields = self.typed("an object", Value::as_object);
        Object { path: self.path, fields, asked: BTreeSet::new(), problems: self.problems }
    }

    pub fn string(&self) -> Option<&'v str> {
        self.typed("a string", Value::as_str)
    }

    pub fn boolean(&self) -> Option<bool> {
        self.typed("true or false", Value::as_bool)
    }

    /// A whole number within bounds, which the error message names.
    pub fn integer(&self, least: i64, most: i64) -> Option<i64> {
        let number = self.typed("a whole number", Value::as_i64)?;
        if !(least..=most).contains(&number) {
            self.problem(format!("{number} is not between {least} and {most}"));
            return None;
        }
        Some(number)
    }

    /// An object whose names are the user's own, such as labels.
    pub fn map(&self) -> Option<&'v Map<String, Value>> {
        self.typed("an object", Value::as_object)
    }

    /// Bytes, written as a Kubernetes quantity or as a number.
    pub fn quantity(&self) -> Option<u64> {
        let text = match self.value? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => {
                self.wrong_type("a quantity such as 10Gi", other);
                return None;
            }
        };
        quantity::parse(&text).map_err(|error| self.problem(error.to_string())).ok()
    }

    /// The elements of a list, each with its own path.
    pub fn list(&self) -> Option<Vec<Field<'v, 'p>>> {
        let elements = self.typed("a list", Value::as_array)?;
        let element = |(index, value)| Field {
            path: format!("{}[{index}]", self.path),
            value: Some(value),
            problems: self.problems,
        };
        Some(elements.iter().enumerate().map(element).collect())
    }

    /// A list of strings, none of them empty.
    pub fn strings(&self) -> Option<Vec<String>> {
        let read = |element: &Field<'v, 'p>| {
            let text = element.string()?;
            if text.trim().is_empty() {
                element.problem("is empty");
            }
            Some(text.to_owned())
        };
        Some(self.list()?.iter().filter_map(read).collect())
    }

    /// One of some words, in any letter case if `case` says so.
    pub fn one_of<T: Copy>(&self, choices: &[(&str, T)], case: Case) -> Option<T> {
        let text = self.string()?;
        let same = |word: &str| match case {
            Case::Exact => word == text,
            Case::Any => word.eq_ignore_ascii_case(text),
        };
        let found = choices.iter().find(|(word, _)| same(word)).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.problem(format!("{text:?} is not one of {}", known.join(", ")));
        }
        found
    }

    fn typed<T>(&self, wanted: &str, read: impl FnOnce(&'v Value) -> Option<T>) -> Option<T> {
        let value = self.value?;
        let read = read(value);
        if read.is_none() {
            self.wrong_type(wanted, value);
        }
        read
    }

    fn wrong_type(&self, wanted: &str, value: &Value) {
        let is = match value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the boolean {value} (quote it if a string is meant)"),
            Value::Number(value) => format!("the number {value} (quote it if a string is meant)"),
            Value::String(value) => format!("the string {value:?}"),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.problem(format!("must be {wanted}, not {is}"));
    }
}

/// How words are compared.
#[derive(Clone, Copy, Debug)]
pub enum Case {
    Exact,
    Any,
}

fn join(path: &str, name: &str) -> String {
    // A name with a dot in it would read as a path of its own.
    let name = if name.contains(['.', '[', ' ']) { format!("{name:?}") } else { name.to_owned() };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// The known name with the fewest edits, if it is near enough to be a typing mistake.
fn nearest<'n>(name: &str, known: &BTreeSet<&'n str>) -> Option<&'n str> {
    // The cost grows with both lengths, and a typing mistake is never longer.
    let folded: String = name.to_lowercase().chars().take(256).collect();
    let distance = |known: &str| osa_distance(&folded, &known.to_lowercase());
    let (distance, best) = known.iter().map(|known| (distance(known), *known)).min()?;
    let slip = distance * 3 <= best.chars().count().max(3);
    slip.then_some(best)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(value: &Value, read: impl FnOnce(&mut Object<'_, '_>)) -> Vec<String> {
        let problems = Problems::default();
        let mut object = Object::root(value, &problems);
        read(&mut object);
        object.finish();
        problems.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_unknown_field_is_named_with_the_nearest_known_one() {
        let value = json!({"minsize": 1, "maxSzie": 1, "colour": 1, "a.b": 1});
        let found = problems(&value, |object| {
            object.field(&["minSize"]);
            object.field(&["maxSize"]);
        });
        assert_eq!(
            found,
            [
                "\"a.b\": unknown field",
                "colour: unknown field",
                "maxSzie: unknown field; did you mean maxSize?",
                "minsize: unknown field; did you mean minSize?",
            ]
        );
    }

    #[test]
    fn wrong_types_are_named_with_their_path() {
        let value = json!({"a": {"b": [1, "x"]}, "s": true, "n": "5", "i": 1.5, "q": [], "o": 3});
        let found = problems(&value, |object| {
            let mut a = object.field(&["a"]).object();
            a.field(&["b"]).strings();
            a.finish();
            object.field(&["s"]).string();
            object.field(&["n"]).integer(0, 9);
            object.field(&["i"]).integer(0, 9);
            object.field(&["q"]).quantity();
            object.field(&["o"]).object().finish();
            object.field(&["absent"]).required();
        });
        assert_eq!(
            found,
            [
                "a.b[0]: must be a string, not the number 1 (quote it if a string is meant)",
                "s: must be a string, not the boolean true (quote it if a string is meant)",
                "n: must be a whole number, not the string \"5\"",
                "i: must be a whole number, not the number 1.5 (quote it if a string is meant)",
                "q: must be a quantity such as 10Gi, not a list",
                "o: must be an object, not the number 3 (quote it if a string is meant)",
                "absent: is required",
            ]
        );
    }

    #[test]
    fn two_spellings_may_agree_and_must_not_disagree() {
        let read = |object: &mut Object<'_, '_>| {
            assert_eq!(object.field(&["fsType", "fstype"]).string(), Some("xfs"));
        };
        assert_eq!(problems(&json!({"fsType": "xfs", "fstype": "xfs"}), read), Vec::<String>::new());
        assert_eq!(problems(&json!({"fstype": "xfs"}), read), Vec::<String>::new());
        let found = problems(&json!({"fsType": "xfs", "fstype": "ext4"}), read);
        assert_eq!(found, ["fsType: disagrees with fstype, another spelling of it: \"xfs\" and \"ext4\""]);
    }

    #[test]
    fn null_is_absent() {
        let found = problems(&json!({"a": null, "b": null}), |object| {
            assert!(!object.field(&["a"]).is_given());
            object.field(&["b"]).required();
        });
        assert_eq!(found, ["b: is required"]);
    }

    #[test]
    fn quantities_may_be_numbers() {
        let found = problems(&json!({"a": 1024, "b": 1e9, "c": 0.5, "d": -1, "e": u64::MAX}), |object| {
            assert_eq!(object.field(&["a"]).quantity(), Some(1024));
            assert_eq!(object.field(&["b"]).quantity(), Some(1_000_000_000));
            assert_eq!(object.field(&["c"]).quantity(), Some(1));
            assert_eq!(object.field(&["d"]).quantity(), None);
            assert_eq!(object.field(&["e"]).quantity(), None);
        });
        assert_eq!(found, ["d: -1 is negative", "e: 18446744073709551615 is more than 2^63-1 bytes"]);
    }
}
