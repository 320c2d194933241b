//! Sizes and counts: objects have signed ones, as in their schemas; ours are unsigned.

/// Bytes, or a count, in the type of objects.
pub fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Bytes in our type; a negative number is no valid size.
pub fn bytes(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or(0)
}
