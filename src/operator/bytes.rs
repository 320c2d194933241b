//! Sizes and counts: objects have signed ones, as in their schemas; ours are unsigned.

pub use crate::device::signed;

/// A count in the type of the operator's objects.
pub fn int32(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// A size or a count in our type; a negative number is no valid one.
pub fn unsigned<T: TryFrom<i64> + Default>(signed: i64) -> T {
    T::try_from(signed).unwrap_or_default()
}
