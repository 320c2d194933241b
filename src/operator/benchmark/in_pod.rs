//! How far a command in a pod is: when it may begin, what of it stays when the controller changes, and when it is given up.
//! Pure.
//!
//! A command that has begun may go on whatever becomes of the connection to it. So nobody begins it again before its time is
//! over and the disk is idle, and nobody begins it for ever.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};

use crate::api::PodCommand;
use crate::api::crd::{CommandBegun, CommandEnded, PodBenchmark};
use crate::device::{DiskId, NodeName};
use crate::operator::api_server::object_key::ObjectName;

/// How often a command is begun whose end nobody sees.
pub const TRIES: i64 = 2;
/// How long after its time a command counts as over: clocks differ.
pub const MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// No command has a longer time than this.
const LONGEST: SignedDuration = SignedDuration::from_secs(3600 + 60);

/// Which request it is about: of which disk, and when it was asked for.
pub type RunKey = (NodeName, DiskId, Timestamp);

/// What this controller knows of the commands in pods.
#[derive(Clone, Debug, Default)]
pub struct PodsSeen {
    /// The namespaces in which something may be run in pods.
    pub allowed: BTreeSet<ObjectName<Namespace>>,
    /// Those of them in which the API server refused that.
    pub refused: BTreeSet<ObjectName<Namespace>>,
    pub runs: BTreeMap<RunKey, SeenRun>,
    /// Why a command cannot begin.
    pub waits: BTreeMap<RunKey, String>,
}

/// What this controller has seen of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum SeenRun {
    Running,
    /// The API server did not begin it.
    NotBegun(String),
    Ended(CommandEnded),
}

/// Whether something may be run in the pods of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecRight {
    Given,
    NotListed,
    Refused,
}

/// The pod in which a command may run: that of a claim whose volume waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOf {
    pub namespace: ObjectName<Namespace>,
    pub claim: ObjectName<PersistentVolumeClaim>,
}

/// What is run, in the pod of which claim, with the volume at which path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCommand {
    pub command: PodCommand,
    pub mount_point: String,
    pub pods: Vec<PodOf>,
}

impl PodsSeen {
    pub fn right(&self, namespace: &ObjectName<Namespace>) -> ExecRight {
        match (self.allowed.contains(namespace), self.refused.contains(namespace)) {
            (false, _) => ExecRight::NotListed,
            (true, true) => ExecRight::Refused,
            (true, false) => ExecRight::Given,
        }
    }
}

/// What a request has to say of its command, from what it says; `None`: the agent measures.
pub fn next(
    is_wanted: bool,
    asked: Option<&PodBenchmark>,
    seen: Option<&SeenRun>,
    now: Timestamp,
) -> Option<PodBenchmark> {
    let asked = asked.cloned().unwrap_or_default();
    let failed = |why: String| CommandEnded { figures: None, message: Some(why) };
    let PodBenchmark { tries, begun, ended } = &asked;
    if ended.is_some() {
        return Some(asked);
    }
    let mut next = PodBenchmark { tries: *tries, ..PodBenchmark::default() };
    match (begun, seen) {
        (_, Some(SeenRun::Ended(ended))) => next.ended = Some(ended.clone()),
        (Some(_), Some(SeenRun::Running)) => return Some(asked),
        (Some(_), Some(SeenRun::NotBegun(why))) if is_wanted && *tries >= TRIES => {
            next.ended = Some(failed(why.clone()));
        }
        (Some(begun), None) if !is_past(begun, now) => return Some(asked),
        (Some(_), None) if *tries >= TRIES => {
            next.ended = Some(failed(format!("the command has begun {tries} times, and nobody saw its end")));
        }
        (Some(_), None | Some(SeenRun::NotBegun(_))) | (None, _) if is_wanted => {}
        (Some(_), None | Some(SeenRun::NotBegun(_))) | (None, _) => return None,
    }
    Some(next)
}

/// Whether a command is over, though nobody saw its end. A time that no command has is nobody's.
fn is_past(begun: &CommandBegun, now: Timestamp) -> bool {
    let until = begun.until.0;
    now > until || until.duration_since(now) > LONGEST + MARGIN
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::host::DiskFigures;

    const BEGAN: &str = "2026-03-01T00:00:00Z";
    const UNTIL: &str = "2026-03-01T00:11:00Z";

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn begun(tries: i64, until: &str) -> PodBenchmark {
        let begun = CommandBegun { pod: "s/p".into(), container: "c".into(), until: Time(time(until)) };
        PodBenchmark { tries, begun: Some(begun), ended: None }
    }

    fn fresh(tries: i64) -> Option<PodBenchmark> {
        Some(PodBenchmark { tries, ..PodBenchmark::default() })
    }

    fn why(next: Option<PodBenchmark>) -> String {
        next.and_then(|next| next.ended?.message).expect("it is given up")
    }

    #[test]
    fn a_new_leader_begins_no_second_command_before_the_first_must_be_over() {
        let first = begun(1, UNTIL);
        assert_eq!(next(true, Some(&first), None, time("2026-03-01T00:10:59Z")), Some(first.clone()));
        assert_eq!(next(false, Some(&first), None, time(BEGAN)), Some(first.clone()), "also if nobody wants it now");
        assert_eq!(next(true, Some(&first), None, time("2026-03-01T00:11:01Z")), fresh(1), "the agent looks again");
        assert_eq!(next(false, Some(&first), None, time("2026-03-01T00:11:01Z")), None);
    }

    #[test]
    fn a_command_whose_end_nobody_sees_is_begun_twice_and_then_given_up() {
        let second = begun(TRIES, UNTIL);
        assert_eq!(next(true, Some(&second), None, time(BEGAN)), Some(second.clone()));
        let given_up = next(true, Some(&second), None, time("2026-03-01T00:11:01Z"));
        assert_eq!(why(given_up.clone()), "the command has begun 2 times, and nobody saw its end");
        assert_eq!(next(true, given_up.as_ref(), None, time("2026-03-02T00:00:00Z")), given_up, "for this request");
        let broken = begun(1, "2036-03-01T00:00:00Z");
        assert_eq!(next(true, Some(&broken), None, time(BEGAN)), fresh(1), "no command has so much time");
    }

    #[test]
    fn what_this_controller_saw_of_a_command_counts() {
        let (first, now) = (begun(1, UNTIL), time("2026-03-01T01:00:00Z"));
        assert_eq!(next(true, Some(&first), Some(&SeenRun::Running), now), Some(first.clone()));
        let figures = Some(DiskFigures { read_iops: 1, ..DiskFigures::default() });
        let ended = CommandEnded { figures, message: None };
        let next_of = |seen: &SeenRun, asked: &PodBenchmark| next(true, Some(asked), Some(seen), now);
        let over = next_of(&SeenRun::Ended(ended.clone()), &first).expect("it stays");
        assert_eq!((over.ended.as_ref(), over.begun), (Some(&ended), None));
        // No pod was there in time.
        assert!(next_of(&SeenRun::Ended(ended), &PodBenchmark::default()).is_some_and(|over| over.ended.is_some()));
        let refused = SeenRun::NotBegun("no".to_owned());
        assert_eq!(next_of(&refused, &first), fresh(1));
        assert_eq!(why(next_of(&refused, &begun(TRIES, UNTIL))), "no");
        assert_eq!(next(false, Some(&begun(TRIES, UNTIL)), Some(&refused), now), None, "then the agent measures");
    }

    #[test]
    fn a_request_is_for_a_pod_or_for_the_agent_as_it_is_wanted_now() {
        assert_eq!(next(true, None, None, time(BEGAN)), fresh(0));
        assert_eq!(next(false, None, None, time(BEGAN)), None);
        assert_eq!(next(false, fresh(0).as_ref(), None, time(BEGAN)), None);
    }

    #[test]
    fn only_a_namespace_that_is_listed_and_where_the_api_server_does_not_refuse_it_has_the_right() {
        let seen = PodsSeen {
            allowed: ["a".into(), "b".into()].into(),
            refused: ["b".into(), "c".into()].into(),
            ..PodsSeen::default()
        };
        let rights = ["a", "b", "c"].map(|space| seen.right(&space.into()));
        assert_eq!(rights, [ExecRight::Given, ExecRight::Refused, ExecRight::NotListed]);
    }
}
