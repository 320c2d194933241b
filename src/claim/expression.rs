//! What a set asks of a device in an expression of its own, in CEL: `device.size > 1000000000000 &&
//! !device.rotational`.
//!
//! Takes in the text once, when the set is read, and a device each time; gives out whether the device is what is asked
//! for, or a [`Mismatch`] in words. What is not known in the text is refused when it is read; an expression that fails
//! on a device, or gives something other than true or false, leaves the device. Bounded in length, depth and cost
//! ([`check`]), as sets are written by people who may not stop an agent.

mod check;
mod facts;
mod limits;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::objects::Value;
use cel::{Context, Env, ParseErrors, Program};

use self::facts::{DEVICE, facts};
pub use self::limits::{EXPRESSION_MAX_BYTES, ExpressionError};
use super::mismatch::Mismatch;
use crate::device::{Attachment, Device, Observed};

/// The parser goes down with each bracket by kilobytes, and a stack that ends would end the process: this holds what
/// the longest text can ask for, several times. Only what is used of it takes memory, while a set is read.
const STACK: usize = 64 << 20;
/// Of the text, what a reason repeats.
const MOST_SHOWN: usize = 120;

/// A text that was read and found good.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    program: Arc<Program>,
}

impl Expression {
    /// Reads a text. Runs on a thread of its own for its stack.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        match text.len() {
            _ if text.trim().is_empty() => return Err(ExpressionError::Empty),
            length if length > EXPRESSION_MAX_BYTES => return Err(ExpressionError::TooLong(length)),
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
        thread.join().unwrap_or_else(|_| Err(ExpressionError::Broken("the CEL parser failed on it".to_owned())))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for a device.
    pub fn selects(&self, device: &Device, attachment: Attachment) -> Result<(), Mismatch> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.add_variable_from_value(DEVICE, facts(&Observed { device, attachment, shown_verdict: None }));
        // Nobody else sees what the evaluator was about when it failed.
        let result = catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)));
        let failed = |why: String| Err(Mismatch::ExpressionFails { text: self.shown(), why });
        match result {
            Ok(Ok(Value::Bool(true))) => Ok(()),
            Ok(Ok(Value::Bool(false))) => Err(Mismatch::Expression { text: self.shown() }),
            Ok(Ok(other)) => failed(format!("it returns {}, not true or false", kind_of(&other))),
            Ok(Err(error)) => failed(shortened(&error.to_string())),
            Err(_) => failed("the CEL evaluator failed on it".to_owned()),
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

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a string",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Null => "null",
        _ => "something else",
    }
}

/// The parser's first complaint, in one line.
fn first_of(errors: &ParseErrors) -> String {
    let Some(first) = errors.errors.first() else { return "it gives no details".to_owned() };
    if errors.errors.iter().any(|error| error.msg.contains("Recursion limit")) {
        return "it is nested too deeply".to_owned();
    }
    let (line, column) = first.pos;
    let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    format!("line {line}, column {}: {}", column.max(1), shortened(message))
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
