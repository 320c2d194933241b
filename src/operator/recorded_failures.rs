//! What the agent reports of disks, filesystems and mounts that fail on a real kernel: `tests/fixtures/failures.json`. The
//! vm tier holds the kernel to it, and beside each object a test feeds it to what the object says.

use serde::Deserialize;

use crate::health::{Condition, Finding, HealthReason, REASONS, Subject};

/// One failure of one volume.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedFailure {
    failure: String,
    /// Its filesystem, or that it is a block volume.
    volume: String,
    /// All that the volume has, the worst first.
    pub reasons: Vec<String>,
    /// What it has after the repair: a counter that has risen is held.
    pub after_repair: Vec<String>,
}

impl RecordedFailure {
    pub fn all() -> Vec<Self> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failures.json");
        let text = std::fs::read_to_string(path).expect("the file is in the tree");
        let all: Vec<Self> = serde_json::from_str(&text).expect("as the vm tier writes it");
        assert!(all.len() > 20 && all.iter().all(|one| !one.reasons.is_empty()), "{all:?}");
        all
    }

    /// For messages.
    pub fn name(&self) -> String {
        format!("{} ({})", self.failure, self.volume)
    }

    /// What the agent reports of the volume, while it fails and after the repair.
    pub fn of_volume(&self) -> [Condition; 2] {
        [&self.reasons, &self.after_repair].map(|reasons| condition(reasons, |_| true))
    }

    /// The same of its disk: what only the volume has is not there.
    pub fn of_disk(&self) -> [Condition; 2] {
        let is_of_disk = |word: &str| REASONS.iter().any(|row| row.word == word && row.subject == Subject::Disk);
        [&self.reasons, &self.after_repair].map(|reasons| condition(reasons, is_of_disk))
    }
}

fn condition(reasons: &[String], has: impl Fn(&str) -> bool) -> Condition {
    let words = reasons.iter().filter(|word| has(word));
    Condition::of(words.map(|word| Finding::new(HealthReason::from(word.clone()), format!("{word} it is"))).collect())
}

/// The words of findings.
pub fn words(condition: &Condition) -> Vec<String> {
    condition.findings().iter().map(|finding| finding.reason.to_string()).collect()
}
