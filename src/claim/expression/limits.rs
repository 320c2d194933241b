//! How long and how costly an expression may be, and why one is refused.

use super::facts::fields;

/// The longest text.
pub const EXPRESSION_MAX_BYTES: usize = 2048;

/// Each level takes stack when it is evaluated, on whichever thread that is.
pub(super) const MOST_DEPTH: usize = 32;

/// In steps of well below a microsecond.
pub(super) const MOST_COST: u64 = 100_000;

/// Why a text is no expression that a set may have; `Display` goes on after the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("is empty: omit the field if there is no condition")]
    Empty,
    #[error("has {0} bytes; at most {EXPRESSION_MAX_BYTES} are allowed")]
    TooLong(usize),
    #[error("is not valid CEL: {0}")]
    Syntax(String),
    #[error("{0:?} is not known; the only variable is `device`, with {fields}", fields = fields())]
    Variable(String),
    #[error("`device` has no {0:?}; it has {fields}", fields = fields())]
    Field(String),
    #[error("there is no function {name:?} here; there are {known}")]
    Function { name: String, known: String },
    #[error("{0}")]
    NotAllowed(&'static str),
    #[error("the pattern {pattern:?} of matches: {why}")]
    Pattern { pattern: String, why: String },
    #[error("is nested more than {most} deep", most = MOST_DEPTH)]
    TooDeep,
    #[error("could take too long on a device (cost {cost}, at most {most}): use fewer or shorter lists", most = MOST_COST)]
    TooCostly { cost: u64 },
    #[error("could not be read: {0}")]
    Broken(String),
}
