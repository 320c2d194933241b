//! What a disk says of its own health.

/// What a disk says; `Failing` and `Unknown` with words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Passed,
    Failing(String),
    Unknown(String),
}
