//! Conditions in Kubernetes' own shape: the time moves only when the status does. Pure but for the clock.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    True,
    False,
    Unknown,
}

impl Holds {
    fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Whether a condition holds, its reason, its message.
pub type ConditionState<R> = (bool, R, String);

/// A condition, with the time of `before` if its status is the same.
pub fn condition(
    before: &[Condition],
    kind: &str,
    holds: impl Into<Holds>,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
) -> Condition {
    let status = holds.into().word();
    let same = before.iter().find(|condition| condition.type_ == kind && condition.status == status);
    let now = || Time(jiff::Timestamp::now());
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        last_transition_time: same.map_or_else(now, |condition| condition.last_transition_time.clone()),
        observed_generation: generation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_moves_with_its_status_and_not_with_its_words() {
        let mut first = condition(&[], "Ready", true, "Up", "a", None);
        first.last_transition_time = Time(jiff::Timestamp::UNIX_EPOCH);
        let same = condition(std::slice::from_ref(&first), "Ready", true, "StillUp", "b", None);
        assert_eq!(same.last_transition_time, first.last_transition_time);
        let other = condition(std::slice::from_ref(&first), "Ready", Holds::Unknown, "Gone", "c", None);
        assert_ne!(other.last_transition_time, first.last_transition_time);
    }
}
