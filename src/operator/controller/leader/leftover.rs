//! Objects that no agent will make a volume of, and that nobody asks for any more: the controller stopped
//! between a refusal and the withdrawal. Pure.

use jiff::{SignedDuration, Timestamp};

use super::super::wish::phase;
use crate::api::crd::{Phase, PoolVolume};

/// A CreateVolume that is still under way withdraws its object itself, long before this.
const AGE: SignedDuration = SignedDuration::from_mins(10);

/// Whether to withdraw it.
pub fn is_leftover(volume: &PoolVolume, now: Timestamp) -> bool {
    let refused = match phase(volume) {
        Phase::Rejected | Phase::Failed => true,
        Phase::Pending => volume.metadata.deletion_timestamp.is_some(),
        Phase::Accepted | Phase::Ready | Phase::Found | Phase::Deleting => false,
    };
    let made = volume.metadata.creation_timestamp.as_ref();
    refused && made.is_some_and(|made| now.duration_since(made.0) > AGE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::super::sample::{being_deleted, in_phase};
    use super::*;

    #[test]
    fn only_old_objects_without_a_volume_are_leftovers() {
        let made = |mut volume: PoolVolume| {
            volume.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            volume
        };
        let at = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        for phase in [Phase::Rejected, Phase::Failed] {
            assert!(is_leftover(&made(in_phase(phase)), at(11)), "{phase:?}");
            assert!(!is_leftover(&made(in_phase(phase)), at(9)), "{phase:?}");
        }
        assert!(is_leftover(&made(being_deleted(in_phase(Phase::Pending))), at(11)));
        for phase in [Phase::Pending, Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting] {
            assert!(!is_leftover(&made(in_phase(phase)), at(99)), "{phase:?}");
        }
        for phase in [Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting] {
            assert!(!is_leftover(&made(being_deleted(in_phase(phase))), at(99)), "{phase:?}");
        }
    }
}
