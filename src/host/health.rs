//! A disk's own word of its health.

/// A disk's own word; `Failing` and `Unknown` with words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Passed,
    Failing(String),
    Unknown(String),
}
