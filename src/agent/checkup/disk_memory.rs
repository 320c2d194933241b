//! What a checkup remembers of a disk.
//!
//! Takes in what the disk reports, and when; gives out its last report, and who has answered about it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::device::REMEMBERED_FOR;
use crate::health::{AnswerOf, DiskCounters, StalledWrites};
use crate::host::{DiskReport, Health, Incarnation};

/// Of one disk, as long as it is the same device: another one counts from its own beginning.
pub struct DiskMemory {
    pub of: Incarnation,
    pub counters: DiskCounters,
    pub writes: StalledWrites,
    /// What it reported last; it counts until the disk answers again, and each number of it until that is answered.
    pub report: Option<DiskReport>,
    /// It has answered at least once.
    pub answered: bool,
    verdict: RepeatedQuestion,
    numbers: RepeatedQuestion,
    /// It owes no answer about its filesystems.
    pub has_filesystems: bool,
}

/// What a disk is asked again and again.
#[derive(Default)]
struct RepeatedQuestion {
    /// Monotonic time of the first one that ended without an answer; `None`: there was none, or one has been answered.
    in_vain_since: Option<Duration>,
    /// It has been answered, or cannot be: each ended without an answer, for as long as an answer is remembered.
    is_settled: bool,
}

impl RepeatedQuestion {
    fn ended(&mut self, is_answered: bool, now: Duration) {
        if is_answered {
            *self = Self { in_vain_since: None, is_settled: true };
            return;
        }
        // If no other follows that is better, the disk cannot answer at all.
        let since = *self.in_vain_since.get_or_insert(now);
        self.is_settled |= now.saturating_sub(since) >= REMEMBERED_FOR;
    }
}

impl DiskMemory {
    pub fn of(incarnation: Incarnation) -> Self {
        Self {
            of: incarnation,
            counters: DiskCounters::default(),
            writes: StalledWrites::default(),
            report: None,
            answered: false,
            verdict: RepeatedQuestion::default(),
            numbers: RepeatedQuestion::default(),
            has_filesystems: false,
        }
    }

    /// Takes in the end of its question, if it has ended.
    pub fn hear(&mut self, ended: Option<DiskReport>, now: Duration) {
        let Some(report) = ended else { return };
        // A busy disk answers later than this checkup ends; silence is a finding of its own.
        self.answered = true;
        // A question that failed once says nothing new: what the disk reported before counts until it reports again. So
        // does a number that it was asked for in vain, and the last report has what that was.
        let has_verdict = !matches!(report.health, Health::Unknown(_));
        if has_verdict {
            self.report = Some(match &self.report {
                Some(last) => report.after(last),
                None => report,
            });
        }
        let has_numbers = self.report.as_ref().is_some_and(|report| report.unanswered.is_empty());
        self.verdict.ended(has_verdict, now);
        self.numbers.ended(has_verdict && has_numbers, now);
    }

    /// Who has answered about it. The kernel has with the first look at it.
    pub fn answers(&self) -> BTreeSet<AnswerOf> {
        let verdict = self.verdict.is_settled.then_some(AnswerOf::Report);
        let numbers = self.numbers.is_settled.then_some(AnswerOf::Numbers);
        let questions = (self.answered && self.has_filesystems).then_some(AnswerOf::Questions);
        let writes = self.writes.has_moved().then_some(AnswerOf::Writes);
        [AnswerOf::Kernel].into_iter().chain(writes).chain(verdict).chain(numbers).chain(questions).collect()
    }
}
