//! Objects that no agent will make a volume for, or that nobody asks for any more: the controller stopped before it
//! withdrew them. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::api::crd::{Intent, PoolVolume};
use crate::operator::pool_volume::never_accepted;

/// When the object becomes a leftover, if a CreateVolume, which withdraws its object itself, takes at most `age`.
/// `None`: never. A volume with an order to erase may be on a disk that is away, whatever its object says: only its
/// node's agent lets it go.
pub fn due(volume: &PoolVolume, age: SignedDuration) -> Option<Timestamp> {
    if !never_accepted(volume) || volume.spec.intent == Intent::Delete {
        return None;
    }
    let made = volume.metadata.creation_timestamp.as_ref()?;
    made.0.checked_add(age).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::sample::{being_deleted, in_phase};
    use super::*;
    use crate::api::crd::Phase;

    const AGE: SignedDuration = SignedDuration::from_mins(10);
    const UNACCEPTED: [Phase; 3] = [Phase::Pending, Phase::Rejected, Phase::Failed];

    fn due_of(mut volume: PoolVolume) -> Option<Timestamp> {
        volume.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        due(&volume, AGE)
    }

    #[test]
    fn what_no_agent_accepted_is_withdrawn_when_no_call_can_wait_for_it_any_more() {
        for phase in UNACCEPTED {
            for object in [in_phase(phase), being_deleted(in_phase(phase))] {
                assert_eq!(due_of(object), Some(Timestamp::UNIX_EPOCH + AGE), "{phase:?}");
            }
        }
        for phase in [Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting] {
            for object in [in_phase(phase), being_deleted(in_phase(phase))] {
                assert_eq!(due_of(object), None, "{phase:?}");
            }
        }
    }

    #[test]
    fn an_order_to_erase_is_never_withdrawn_whatever_the_age_and_phase_of_its_object() {
        for phase in UNACCEPTED {
            let mut ordered = in_phase(phase);
            ordered.spec.intent = Intent::Delete;
            assert_eq!(due_of(ordered.clone()), None, "{phase:?}");
            assert_eq!(due_of(being_deleted(ordered)), None, "{phase:?}");
        }
    }
}
