//! The size that an object asks for, and how far its agent is with that. Pure.

use crate::api::crd::{PoolVolume, PoolVolumeStatus};
use crate::api::quantity;
use crate::operator::bytes::{signed, unsigned};

/// What size a volume is asked to have, in bytes: at least `size`, at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    pub size: i64,
    pub limit: Option<i64>,
}

impl Resize {
    /// What the object asks for, if it does.
    pub fn of(object: &PoolVolume) -> Option<Self> {
        Some(Self { size: object.spec.size?, limit: object.spec.size_limit })
    }

    /// What the agent acted on last.
    pub fn observed(status: &PoolVolumeStatus) -> Option<Self> {
        Some(Self { size: status.observed_size?, limit: status.observed_size_limit })
    }

    /// Why a volume of `size` bytes is not made smaller: what asks for that is older than the size. The status has the
    /// size that the volume had when it was written.
    pub fn refusal(self, status: &PoolVolumeStatus, size: u64) -> Option<String> {
        self.limit.filter(|limit| *limit < signed(size))?;
        let known = status.size.filter(|known| *known != signed(size))?;
        let (known, size) = (quantity::format(unsigned(known)), quantity::format(size));
        Some(format!("a smaller size was asked for when it had {known}, and it has {size}: that has to be asked again"))
    }

    pub fn is_met_by(self, size: i64) -> bool {
        self.size <= size && self.limit.is_none_or(|limit| size <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_size_is_asked_for_by_who_knows_the_present_one() {
        let shrink = |limit: Option<i64>, known: i64, size: u64| {
            let status = PoolVolumeStatus { size: Some(known), ..PoolVolumeStatus::default() };
            Resize { size: 1 << 30, limit }.refusal(&status, size)
        };
        let (two, limit) = (2 << 30, Some(2 << 30));
        assert_eq!(shrink(limit, 5 << 30, 5 << 30), None);
        let why = shrink(limit, 5 << 30, 8 << 30).expect("an earlier state of the object asks");
        assert!(why.contains("when it had 5Gi, and it has 8Gi"), "{why}");
        assert_eq!((shrink(None, 5 << 30, 8 << 30), shrink(limit, 5 << 30, two)), (None, None), "it stays as large");
    }
}
