//! Which losses the agent that runs now has found itself. Pure.
//!
//! An agent that starts again repeats what was found before, until the disk has answered it; and until it has written
//! an object, that still says what another process said. Neither is a reason to delete a claim. So a loss counts only
//! where its entry names the process that the DevicePool names. A version or a CRD that does not know the names has
//! none.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::api::crd::{DevicePool, HealthEntry};
use crate::health::HealthReason;

/// One run of an agent, as it names itself in the objects that it writes. Written as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentProcess(String);

impl AgentProcess {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for AgentProcess {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The process of the agent, as its DevicePool names it.
pub fn process(pool: Option<&DevicePool>) -> Option<AgentProcess> {
    pool?.status.as_ref()?.agent.as_deref().map(AgentProcess::from)
}

/// The reasons that this process of the agent has found itself.
pub fn confirmed(entries: &[HealthEntry], process: Option<&AgentProcess>) -> BTreeSet<HealthReason> {
    let process = process.map(AgentProcess::as_str);
    let is_its = |entry: &&HealthEntry| process.is_some() && entry.confirmed_by.as_deref() == process;
    entries.iter().filter(is_its).map(|entry| HealthReason::from(entry.reason.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_process_that_wrote_the_pool_last_has_found_itself_is_confirmed() {
        let count = |confirmed_by: Option<&str>, agent: Option<&str>| {
            let entry = json!({"reason": "DiskReadOnly", "severity": "", "message": "", "confirmedBy": confirmed_by});
            let pool = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
                "spec": {}, "status": {"agent": agent}});
            let pool: DevicePool = serde_json::from_value(pool).expect("a DevicePool");
            confirmed(&[serde_json::from_value(entry).expect("an entry")], process(Some(&pool)).as_ref()).len()
        };
        assert_eq!(count(Some("b"), Some("b")), 1);
        assert_eq!(count(Some("a"), Some("b")), 0, "the new agent has not written it over, or nobody has answered it");
        assert_eq!(count(Some("b"), Some("a")), 0, "the new agent has not written its pool yet");
        assert_eq!(count(None, Some("b")), 0, "the CRD of PoolVolumes is of an earlier version");
        assert_eq!(count(Some("b"), None), 0, "the CRD of DevicePools is");
        assert_eq!(count(None, None), 0, "the agent is of an earlier version: nothing equals nothing");
        assert_eq!(process(None), None);
    }
}
