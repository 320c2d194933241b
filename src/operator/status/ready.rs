//! The condition `Ready`, which Nodes, Pods and DevicePools have alike. Pure.

use k8s_openapi::api::core::v1::{NodeCondition, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

pub use crate::api::crd::READY;

/// A condition of any object: each kind has a type of its own for it.
pub trait StatusCondition {
    fn kind(&self) -> &str;
    fn status(&self) -> &str;
}

/// What is said of the readiness of an object; `None`: nobody said anything yet.
pub fn ready<'c, C: StatusCondition + 'c>(conditions: impl IntoIterator<Item = &'c C>) -> Option<&'c C> {
    conditions.into_iter().find(|condition| condition.kind() == READY)
}

pub fn is_ready<'c, C: StatusCondition + 'c>(conditions: impl IntoIterator<Item = &'c C>) -> bool {
    ready(conditions).is_some_and(says_ready)
}

/// Whether it says that the object is ready.
pub fn says_ready(condition: &impl StatusCondition) -> bool {
    condition.status() == "True"
}

impl StatusCondition for NodeCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

impl StatusCondition for PodCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

impl StatusCondition for Condition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_ready_if_its_condition_says_true_and_nothing_else_says_so() {
        let said = |conditions: &[(&str, &str)]| {
            let condition = |(type_, status): &(&str, &str)| PodCondition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                ..PodCondition::default()
            };
            let conditions: Vec<PodCondition> = conditions.iter().map(condition).collect();
            (is_ready(&conditions), ready(&conditions).is_some())
        };
        assert_eq!(said(&[("Initialized", "False"), ("Ready", "True")]), (true, true));
        assert_eq!(said(&[("Initialized", "True"), ("Ready", "False")]), (false, true));
        assert_eq!(said(&[("Ready", "Unknown")]), (false, true));
        assert_eq!(said(&[("Initialized", "True")]), (false, false));
    }
}
