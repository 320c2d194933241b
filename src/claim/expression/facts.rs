//! What an expression sees of a device: the facts of the table, by their names there.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Value};

use crate::device::{
    Fact, FactValue, Observed,
    fact_table::{facts as facts_of, in_expressions},
    signed,
};

/// How many elements of a list an expression sees, such as the links of a device.
pub(super) const MOST_LINKS: usize = 64;

/// The one variable.
pub(super) const DEVICE: &str = "device";

/// What `device` has, in the order of the names.
pub(super) static FACTS: LazyLock<Vec<(&str, &Fact)>> = LazyLock::new(|| {
    let mut facts: Vec<_> = in_expressions().collect();
    facts.sort_unstable_by_key(|(name, _)| *name);
    facts
});

/// Unknown facts exist too, so that no comparison with one fails.
pub(super) fn facts(observed: &Observed<'_>) -> Value {
    let known = facts_of(observed);
    let value = |fact: &Fact| value(fact.among(&known).unwrap_or_else(|| fact.kind().unknown()));
    let facts: HashMap<Key, Value> =
        FACTS.iter().map(|(name, fact)| (Key::String(Arc::new((*name).to_owned())), value(fact))).collect();
    Value::from(facts)
}

fn value(value: FactValue) -> Value {
    match value {
        // Without the blanks that hardware pads its words with.
        FactValue::Text(text) => Value::from(text.trim().to_owned()),
        FactValue::Bytes(bytes) => Value::Int(signed(bytes)),
        FactValue::Integer(number) => Value::Int(number),
        FactValue::Boolean(holds) => Value::Bool(holds),
        FactValue::Texts(texts) => Value::from(texts.into_iter().take(MOST_LINKS).map(Value::from).collect::<Vec<_>>()),
    }
}

pub(super) fn fields() -> String {
    FACTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
