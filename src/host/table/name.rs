//! A partition's name: 36 UTF-16 units, kept as they are on the disk, so that the name of an unknown partition survives
//! our writes bit for bit, well-formed or not.

use std::fmt;

/// UTF-16 units that a name has room for.
pub const UNITS: usize = 36;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name(pub(super) [u16; UNITS]);

impl Name {
    /// As much of the end of `text` as fits, in whole characters: a volume's readable name.
    pub fn tail(text: &str) -> Self {
        let mut room = UNITS;
        let kept = text.chars().rev().take_while(|c| {
            let fits = c.len_utf16() <= room;
            room = room.saturating_sub(c.len_utf16());
            fits
        });
        let start = text.len() - kept.map(char::len_utf8).sum::<usize>();
        let mut name = [0; UNITS];
        for (unit, value) in name.iter_mut().zip(text[start..].encode_utf16()) {
            *unit = value;
        }
        Self(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|unit| *unit == 0).unwrap_or(UNITS);
        f.write_str(&String::from_utf16_lossy(&self.0[..end]))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end_in_whole_characters() {
        let long = "pvc-0d5b9f2c-9c0c-4f7e-8a4e-3a8b5d1f2e6c";
        assert_eq!(Name::tail(long).to_string(), &long[long.len() - 36..]);
        let faces = format!("a{}", "\u{1f600}".repeat(18));
        assert_eq!(Name::tail(&faces).to_string(), "\u{1f600}".repeat(18));
        assert_eq!(
            Name::tail(&format!("{}x", "\u{1f600}".repeat(18))).to_string(),
            format!("{}x", "\u{1f600}".repeat(17))
        );
        assert_eq!(Name::tail("").to_string(), "");
    }
}
