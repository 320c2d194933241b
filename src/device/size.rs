//! Bytes for people, `10.0 GiB`, and numbers for programs that count with a sign.

use std::fmt;

/// Displays bytes with one decimal in the largest binary unit that leaves at least 1.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

/// A size or a count in the type of objects, messages and gauges. Whatever is too large for it is its largest number.
pub fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let Some(unit) = UNITS.iter().enumerate().rev().find(|(i, _)| bytes >> (10 * (i + 1)) > 0) else {
            return f.pad(&format!("{bytes} B"));
        };
        let (index, name) = unit;
        // Rounded down: a disk must never look larger than it is, next to a limit that it misses.
        let tenths = (u128::from(bytes) * 10) >> (10 * (index + 1));
        f.pad(&format!("{}.{} {name}", tenths / 10, tenths % 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (8 << 20, "8.0 MiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (1_920_383_410_176, "1.7 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>10}|", Size(1024)), "   1.0 KiB|");
    }
}
