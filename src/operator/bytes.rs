//! Sizes: in objects they are signed, as their schemas count; here they are not.

/// Bytes as objects count them.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes as we count them; a negative number is nobody's size.
pub fn bytes(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or(0)
}
