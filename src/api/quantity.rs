//! Kubernetes quantities and bytes: `30G`, `10Gi`, `1.5Gi`, `1e9`, `2500m`.
//!
//! Takes in the text, gives out whole bytes, rounded up as Kubernetes does; and back. Kubernetes limits a quantity to
//! 2^63-1, and so does this module.

use crate::device::signed;

/// Why a text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("{0:?} is not a quantity such as 10Gi, 30G or 1073741824")]
    Malformed(String),
    #[error("{0} is negative")]
    Negative(String),
    #[error("{0} is more than 2^63-1 bytes")]
    TooLarge(String),
    #[error("{0} has too many digits")]
    TooPrecise(String),
}

const LARGEST: u128 = i64::MAX as u128;
const BINARY: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
const DECIMAL: [(&str, u32); 6] = [("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3)];
const SMALL: [(&str, i32); 3] = [("m", -3), ("u", -6), ("n", -9)];

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    Two(u32),
    Ten(i32),
}

/// Whole bytes of a quantity; a fraction of a byte counts as one.
pub fn parse(text: &str) -> Result<u64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.to_owned());
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(malformed());
    }
    let scale = scale(suffix).ok_or_else(malformed)?;
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative(text.to_owned()));
    }
    let below = signed(fraction.len());
    bytes(digits, below, scale).map_err(|fail| match fail {
        Fail::Large => QuantityError::TooLarge(text.to_owned()),
        Fail::Precise => QuantityError::TooPrecise(text.to_owned()),
    })
}

enum Fail {
    Large,
    Precise,
}

/// `digits` × 10^-`below` × `scale`, rounded up. `digits` is not zero.
fn bytes(digits: &str, below: i64, scale: Scale) -> Result<u64, Fail> {
    let (shift, exponent) = match scale {
        Scale::Two(shift) => (shift, -below),
        Scale::Ten(exponent) => (0, i64::from(exponent) - below),
    };
    // Fewer digits than places below the point, with room for the largest suffix: less than one byte.
    let length = signed(digits.len());
    if length.saturating_add(exponent) < -20 {
        return Ok(1);
    }
    if length.saturating_add(exponent) > 20 {
        return Err(Fail::Large);
    }
    let number: u128 = digits.parse().map_err(|_| Fail::Precise)?;
    let number = number.checked_mul(1 << shift).ok_or(Fail::Precise)?;
    let power = u32::try_from(exponent.unsigned_abs()).map_err(|_| Fail::Precise)?;
    let power = 10u128.checked_pow(power).ok_or(Fail::Precise)?;
    let bytes = if exponent < 0 { number.div_ceil(power) } else { number.checked_mul(power).ok_or(Fail::Large)? };
    u64::try_from(bytes).ok().filter(|bytes| u128::from(*bytes) <= LARGEST).ok_or(Fail::Large)
}

fn scale(suffix: &str) -> Option<Scale> {
    if suffix.is_empty() {
        return Some(Scale::Ten(0));
    }
    let binary = BINARY.iter().find(|(name, _)| *name == suffix).map(|(_, shift)| Scale::Two(*shift));
    let decimal =
        || DECIMAL.iter().find(|(name, _)| *name == suffix).map(|(_, power)| Scale::Ten((*power).cast_signed()));
    let small = || SMALL.iter().find(|(name, _)| *name == suffix).map(|(_, power)| Scale::Ten(*power));
    binary.or_else(decimal).or_else(small).or_else(|| exponent(suffix))
}

/// `e9`, `E+9`, `e-3`.
fn exponent(suffix: &str) -> Option<Scale> {
    let number = suffix.strip_prefix(['e', 'E'])?;
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Any larger exponent gives the same result.
    let magnitude = digits.parse().unwrap_or(1_000_000).min(1_000_000);
    Some(Scale::Ten(if number.starts_with('-') { -magnitude } else { magnitude }))
}

/// The shortest exact spelling: with the largest suffix that divides.
pub fn format(bytes: u64) -> String {
    let binary = BINARY.iter().map(|(name, shift)| (*name, 1u64 << shift));
    let decimal = DECIMAL.iter().map(|(name, power)| (*name, 10u64.pow(*power)));
    let divides = |(_, unit): &(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    match binary.chain(decimal).filter(divides).max_by_key(|(_, unit)| *unit) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A size for people: in the largest unit that gives at least 1, with one decimal unless it is whole. Rounded down, as
/// nothing may look larger than it is.
pub fn short(bytes: u64) -> String {
    let Some((name, shift)) = BINARY.iter().find(|(_, shift)| bytes >> shift > 0) else { return bytes.to_string() };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{name}"),
        (whole, tenth) => format!("{whole}.{tenth}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_read_short_sizes_that_never_flatter() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1 << 30, "1Gi"),
            ((4 << 30) - 1, "3.9Gi"),
            (4093 << 20, "3.9Gi"),
            (639_551_504_384, "595.6Gi"),
            (u64::MAX, "15.9Ei"),
        ] {
            assert_eq!(short(bytes), text);
        }
    }

    #[test]
    fn quantities_mean_what_kubernetes_says_they_mean() {
        for (text, bytes) in [
            ("0", 0),
            ("-0", 0),
            ("1073741824", 1 << 30),
            ("+5", 5),
            ("10Gi", 10 << 30),
            ("30G", 30_000_000_000),
            ("1.5Gi", 3 << 29),
            ("1e9", 1_000_000_000),
            ("1E9", 1_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("2e+3", 2000),
            ("12e-1", 2),
            ("1.5e3", 1500),
            (".5Ki", 512),
            ("5.", 5),
            ("1.0000", 1),
            ("007", 7),
            ("1k", 1000),
            ("1Ki", 1024),
            ("1500m", 2),
            ("1m", 1),
            ("1u", 1),
            ("1n", 1),
            ("2000m", 2),
            ("0.1", 1),
            ("0.0000000000000000000000000000000000000000000001Ei", 1),
            ("1e-99999999999", 1),
            ("0e99999999999", 0),
            ("7Ei", 7 << 60),
            ("9223372036854775807", i64::MAX as u64),
            ("9223372036854775806.3", i64::MAX as u64),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_its_text() {
        for text in [
            "", ".", "-", "Gi", "10 Gi", "10GiB", "10gi", "10K", "1.2.3", "ten", "1e", "1e+", "1e1.5", "0x10", "1_000",
            "--1", "∞", "1Gi ",
        ] {
            assert_eq!(parse(text), Err(QuantityError::Malformed(text.into())), "{text}");
        }
        for text in ["-1", "-10Gi", "-1m"] {
            assert_eq!(parse(text), Err(QuantityError::Negative(text.into())), "{text}");
        }
        for text in [
            "8Ei",
            "9223372036854775808",
            "9223372036854775807.1",
            "10E",
            "1e19",
            "1e99999999999",
            "99999999999999999999999",
        ] {
            assert_eq!(parse(text), Err(QuantityError::TooLarge(text.into())), "{text}");
        }
        let long = "0.1234567890123456789012345678901234567890";
        assert_eq!(parse(long), Err(QuantityError::TooPrecise(long.into())));
    }

    #[test]
    fn bytes_are_written_with_the_largest_suffix_that_divides() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1 << 30, "1Gi"), (1536 << 20, "1536Mi"), (30_000_000_000, "30G"), (1000, "1k")]
        {
            assert_eq!(format(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn every_number_of_bytes_survives_being_written(bytes in 0..=i64::MAX as u64, shift in 0u32..63) {
            for bytes in [bytes, bytes >> shift << shift, bytes >> shift] {
                prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
            }
        }

        #[test]
        fn a_fraction_rounds_up_and_never_further(whole in 0u64..1 << 40, thousandths in 0u64..1000) {
            let expected = whole + u64::from(thousandths > 0);
            prop_assert_eq!(parse(&format!("{whole}.{thousandths:03}")), Ok(expected));
            prop_assert_eq!(parse(&format!("{}m", whole * 1000 + thousandths)), Ok(expected));
            prop_assert_eq!(parse(&format!("{whole}.{thousandths:03}e0")), Ok(expected));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.eE+\\-]{0,50}[kKMGTPEinum]{0,3}|.*") {
            let _ = parse(&text);
        }
    }
}
