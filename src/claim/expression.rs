//! What a set asks of a device in an expression of its own, in CEL: `device.size > 1000000000000 && !device.rotational`.
//!
//! Takes in the text once, when the set is read, and a device each time; gives out whether the device is what is asked
//! for, or a [`Mismatch`] in words. What is not known in the text is refused when it is read; an expression that fails
//! on a device, or gives something other than true or false, leaves the device. Bounded in length, depth and cost
//! ([`check`]), as sets are written by people who may not stop an agent.

mod check;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Value};
use cel::{Context, Env, ParseErrors, Program};

use super::filter::Mismatch;
use crate::device::Device;
use crate::device::attachment::Attachment;
use crate::device::facts::type_name;
use crate::device::facts::{by_path, wwn};

/// The longest text.
pub const MOST_BYTES: usize = 2048;
/// The parser goes down with each bracket by kilobytes, and a stack that ends would end the process: this holds what
/// the longest text can ask for, several times. Only what is used of it takes memory, while a set is read.
const STACK: usize = 64 << 20;
/// The links of a device that an expression sees.
const MOST_LINKS: usize = 64;
/// Of the text, what a reason repeats.
const MOST_SHOWN: usize = 120;
/// The one variable.
const DEVICE: &str = "device";

/// A text that was read and found good.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    program: Arc<Program>,
}

/// Why a text is no expression that a set may have; `Display` goes on after the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("is empty: leave the field out where nothing is asked")]
    Empty,
    #[error("has {0} bytes; at most {MOST_BYTES} are allowed")]
    TooLong(usize),
    #[error("is no CEL: {0}")]
    Syntax(String),
    #[error("{0:?} is not known; what there is is `device`, with {fields}", fields = fields())]
    Variable(String),
    #[error("`device` has no {0:?}; it has {fields}", fields = fields())]
    Field(String),
    #[error("there is no function {name:?} here; there are {known}")]
    Function { name: String, known: String },
    #[error("{0}")]
    NotAllowed(&'static str),
    #[error("the pattern {pattern:?} of matches: {why}")]
    Pattern { pattern: String, why: String },
    #[error("is nested more than {most} deep", most = check::MOST_DEPTH)]
    TooDeep,
    #[error("could take too long on a device (cost {cost}, at most {most}): use fewer or shorter lists", most = check::MOST_COST)]
    TooCostly { cost: u64 },
    #[error("could not be read: {0}")]
    Broken(String),
}

impl Expression {
    /// Reads a text. Runs on a thread of its own for its stack.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        match text.len() {
            _ if text.trim().is_empty() => return Err(ExpressionError::Empty),
            length if length > MOST_BYTES => return Err(ExpressionError::TooLong(length)),
            _ => {}
        }
        let owned: Arc<str> = text.into();
        let work = move || {
            let program = ENV.compile(&owned).map_err(|errors| ExpressionError::Syntax(first_of(&errors)))?;
            check::check(program.expression())?;
            Ok(Self { text: owned, program: Arc::new(program) })
        };
        let thread = std::thread::Builder::new().name("expression".to_owned()).stack_size(STACK).spawn(work);
        let thread = thread.map_err(|error| ExpressionError::Broken(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(ExpressionError::Broken("the reader of CEL failed on it".to_owned())))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for a device.
    pub fn selects(&self, device: &Device, attachment: Attachment) -> Result<(), Mismatch> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.add_variable_from_value(DEVICE, facts(&Seen { device, attachment }));
        // Nobody else sees what the evaluator was about when it failed.
        let result = catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)));
        let failed = |why: String| Err(Mismatch::ExpressionFails { text: self.shown(), why });
        match result {
            Ok(Ok(Value::Bool(true))) => Ok(()),
            Ok(Ok(Value::Bool(false))) => Err(Mismatch::Expression { text: self.shown() }),
            Ok(Ok(other)) => failed(format!("it gives {}, not true or false", kind_of(&other))),
            Ok(Err(error)) => failed(shortened(&error.to_string())),
            Err(_) => failed("the evaluator of CEL failed on it".to_owned()),
        }
    }

    fn shown(&self) -> String {
        shortened(&self.text)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

/// The functions and macros that there are: those of CEL, without optional values.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(false)));

struct Seen<'a> {
    device: &'a Device,
    attachment: Attachment,
}

type Fact = (&'static str, fn(&Seen<'_>) -> Value);

/// What `device` has, by the names of a LocalVolumeDiscoveryResult; and the kernel's name and all links. A text that is
/// not known is empty, a NUMA node that is not known -1: comparing it fails no expression.
const FACTS: [Fact; 25] = [
    ("attachedBy", |seen| text(seen.attachment.by)),
    ("attachment", |seen| Value::from(seen.attachment.reach.to_string())),
    ("byPath", |seen| text(by_path(&seen.device.raw).as_deref())),
    ("deviceID", |seen| {
        let Device { link, raw, .. } = seen.device;
        if *link == raw.path { text(None) } else { Value::from(link.display().to_string()) }
    }),
    ("discard", |seen| Value::Bool(seen.device.raw.discards)),
    ("diskId", |seen| text(Some(&seen.device.id.text))),
    ("links", |seen| {
        let links = seen.device.raw.links.iter().take(MOST_LINKS);
        Value::from(links.map(|link| Value::from(link.display().to_string())).collect::<Vec<_>>())
    }),
    ("logicalSectorSize", |seen| Value::Int(seen.device.raw.logical_sector.into())),
    ("model", |seen| text(seen.device.raw.model.as_deref())),
    ("name", |seen| text(Some(&seen.device.raw.name))),
    ("numaNode", |seen| Value::Int(seen.device.raw.numa_node.map_or(-1, i64::from))),
    ("path", |seen| Value::from(seen.device.raw.path.display().to_string())),
    ("physicalSectorSize", |seen| Value::Int(seen.device.raw.physical_sector.into())),
    ("property", |seen| text(Some(if seen.device.raw.rotational { "Rotational" } else { "NonRotational" }))),
    ("readOnly", |seen| Value::Bool(seen.device.raw.read_only)),
    ("removable", |seen| Value::Bool(seen.device.raw.removable)),
    ("rotational", |seen| Value::Bool(seen.device.raw.rotational)),
    ("serial", |seen| text(seen.device.raw.serial.as_deref())),
    ("size", |seen| Value::Int(i64::try_from(seen.device.raw.size).unwrap_or(i64::MAX))),
    ("tran", |seen| text(seen.device.raw.transport.as_deref())),
    ("transport", |seen| text(seen.device.raw.transport.as_deref())),
    ("type", |seen| text(Some(type_name(&seen.device.raw)))),
    ("vendor", |seen| text(seen.device.raw.vendor.as_deref())),
    ("wwn", |seen| text(seen.device.raw.wwid.as_deref().and_then(wwn).as_deref())),
    ("zoned", |seen| text(seen.device.raw.zoned.as_deref())),
];

fn facts(seen: &Seen<'_>) -> Value {
    let facts: HashMap<Key, Value> =
        FACTS.iter().map(|(name, fact)| (Key::String(Arc::new((*name).to_owned())), fact(seen))).collect();
    Value::from(facts)
}

/// Without the blanks that hardware pads its words with.
fn text(word: Option<&str>) -> Value {
    Value::from(word.unwrap_or_default().trim().to_owned())
}

fn fields() -> String {
    FACTS.map(|(name, _)| name).join(", ")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a text",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Null => "null",
        _ => "something else",
    }
}

/// The parser's first complaint, in one line.
fn first_of(errors: &ParseErrors) -> String {
    let Some(first) = errors.errors.first() else { return "it says no more".to_owned() };
    if errors.errors.iter().any(|error| error.msg.contains("Recursion limit")) {
        return "it is nested too deeply".to_owned();
    }
    let (line, column) = first.pos;
    let words = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    format!("line {line}, column {}: {}", column.max(1), shortened(words))
}

fn shortened(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(MOST_SHOWN) {
        None => one_line,
        Some((end, _)) => format!("{} …", &one_line[..end]),
    }
}

#[cfg(test)]
mod tests;
