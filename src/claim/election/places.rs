//! How many devices a set may take.
//!
//! Takes in the contenders of a set, and how many it has; gives out for each of them, in turn, whether there is a
//! place.

use super::turn::{Contender, SetTurn};
use crate::claim::rejection::Rejection;
use crate::claim::ripeness::Ripeness;

/// How many of its contenders a set may still take, and from how many on.
pub(super) struct Places {
    least: u32,
    /// None that it has counts for the minimum any more.
    is_first: bool,
    most: u32,
    room: u32,
    is_named: bool,
    /// Of all contenders, and of those that are ripe; first of the blank ones.
    matching: [u32; 2],
    ripe: [u32; 2],
}

impl Places {
    pub fn of(turn: &SetTurn<'_, '_>, contenders: &[Contender<'_>]) -> Self {
        let rule = turn.rule;
        let has = turn.hall.ballot.claimed.get(&rule.set).copied().unwrap_or(0);
        let count = |wanted: &dyn Fn(&&Contender<'_>) -> bool| {
            u32::try_from(contenders.iter().filter(wanted).count()).unwrap_or(u32::MAX)
        };
        let is_ripe = |one: &&Contender<'_>| one.ripeness == Ripeness::Ripe;
        let is_blank = |one: &&Contender<'_>| one.content.is_none();
        Self {
            least: rule.min_devices,
            is_first: has == 0,
            most: rule.max_devices.unwrap_or(u32::MAX),
            room: rule.max_devices.map_or(u32::MAX, |most| most.saturating_sub(has)),
            is_named: rule.named.is_some(),
            matching: [count(&is_blank), count(&|_| true)],
            ripe: [count(&|one| is_blank(one) && is_ripe(one)), count(&is_ripe)],
        }
    }

    /// What becomes of the next contender. One with content counts among all, as those that are blank do not count on
    /// it.
    pub fn next(&mut self, one: &Contender<'_>) -> Result<(), Rejection> {
        let among = usize::from(one.content.is_some());
        let (matching, ripe) = (self.matching[among], self.ripe[among]);
        let least = self.least;
        if self.is_first && matching < least {
            return Err(Rejection::BelowMinimum { matching, least });
        }
        if self.room == 0 {
            let most = self.most;
            return Err(if self.is_named { Rejection::AllNamed { most } } else { Rejection::Full { most } });
        }
        self.room -= 1;
        if one.ripeness != Ripeness::Ripe {
            Err(Rejection::TooYoung(one.ripeness))
        } else if self.is_first && ripe < least {
            Err(Rejection::WaitsForMinimum { ripe, least })
        } else {
            Ok(())
        }
    }
}
