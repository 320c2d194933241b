//! Sizes: objects have signed ones, as in their schemas; ours are unsigned.

/// Bytes in the type of objects.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes in our type; a negative number is no valid size.
pub fn bytes(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or(0)
}
