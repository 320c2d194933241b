//! How much of everything is measured: all that the figures need, or just enough to see that it still works.

/// What a short run says at its end.
pub const ENDED: &str = "all of it works; the figures of so short a run say nothing, and none is written";

/// A size or a number of rounds, in either form.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub full: u64,
    pub short: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Full,
    /// `--short`: no figure of it says anything, and none is written.
    Short,
}

impl Pace {
    pub fn of_arguments() -> Self {
        if std::env::args().any(|word| word == "--short") { Self::Short } else { Self::Full }
    }

    pub fn of(self, size: Size) -> u64 {
        match self {
            Self::Full => size.full,
            Self::Short => size.short,
        }
    }

    /// `of`, to count by.
    pub fn count(self, size: Size) -> usize {
        usize::try_from(self.of(size)).expect("the sizes are constants that fit")
    }
}
