//! The power supply of the fake machine: counts durable effects and goes off at a chosen one.

use std::io;
use std::sync::Mutex;

/// What happens to effects that were not synced when the power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of them reached the medium.
    Whole,
    /// All but the last, of which a part did.
    Torn,
    /// As torn, and the sector in which the write stopped cannot be read until it is written again.
    Unreadable,
    /// All but the last.
    LastLost,
    /// None of them.
    Lost,
}

impl Fate {
    pub const ALL: [Fate; 5] = [Fate::Whole, Fate::Torn, Fate::Unreadable, Fate::LastLost, Fate::Lost];
}

/// Counts down to a power cut.
#[derive(Default)]
pub struct Power {
    supply: Mutex<Supply>,
}

#[derive(Default)]
struct Supply {
    spent: u64,
    /// The power is cut at this effect.
    off_at: Option<u64>,
    off: bool,
}

impl Power {
    fn supply(&self) -> std::sync::MutexGuard<'_, Supply> {
        self.supply.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The `n`-th effect from now is the last one, and its caller never learns of it.
    pub fn cut_after(&self, n: u64) {
        let mut supply = self.supply();
        supply.off_at = Some(supply.spent + n);
    }

    pub fn restore(&self) {
        let mut supply = self.supply();
        supply.off_at = None;
        supply.off = false;
    }

    pub fn is_off(&self) -> bool {
        self.supply().off
    }

    /// Effects since the machine was made.
    pub fn spent(&self) -> u64 {
        self.supply().spent
    }

    pub(super) fn check(&self) -> io::Result<()> {
        match self.is_off() {
            true => Err(io::Error::from_raw_os_error(nix::libc::ENODEV)),
            false => Ok(()),
        }
    }

    pub(super) fn spend(&self) -> io::Result<()> {
        let mut supply = self.supply();
        supply.spent += 1;
        if supply.off_at.is_some_and(|at| supply.spent >= at) {
            supply.off = true;
        }
        drop(supply);
        self.check()
    }
}
