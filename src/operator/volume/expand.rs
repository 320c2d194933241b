//! What ControllerExpandVolume does next, from the object that is there. Pure.
//!
//! The size that is asked for is `spec.size`. The agent reports with `status.observedSize` that it acted on it, and with
//! `status.resizeError` that it could not. Then the request is withdrawn, so that nothing grows later unasked.

use kube::ResourceExt as _;

use super::create::gone;
use crate::api::crd::{Intent, Phase, PoolVolume, PoolVolumeStatus};
use crate::api::quantity;
use crate::operator::bytes::{signed, unsigned};
use crate::operator::pool_volume::phase;
use crate::volume::Error;

#[derive(Clone, Copy, Debug)]
pub struct ExpandFacts {
    pub node_exists: bool,
    /// This call wrote the request, so that an error of the agent is about it.
    pub asked: bool,
    /// An agent has had enough time to see that an earlier request was withdrawn.
    pub grace: bool,
    pub over: bool,
}

#[derive(Debug)]
pub enum ExpandStep {
    /// Write `spec.size`.
    Ask(i64),
    /// Write `spec.size`, then answer.
    TakeBack(i64, Error),
    Wait,
    Answer(Result<(), Error>),
}

pub fn step(object: Option<&PoolVolume>, required: u64, limit: Option<u64>, facts: ExpandFacts) -> ExpandStep {
    let Some(object) = object else { return refuse(Error::NotFound("there is no such volume".to_owned())) };
    let (id, node) = (object.name_any(), &object.spec.node);
    if object.spec.intent == Intent::Delete {
        return refuse(Error::Aborted(format!("volume {id} is being deleted")));
    }
    let status = match (&object.status, phase(object)) {
        (Some(status), Phase::Ready) => status,
        (_, Phase::Rejected | Phase::Failed) => {
            return refuse(Error::NotFound(format!("there is no volume {id}: node {node} did not make it")));
        }
        (_, Phase::Found) => {
            return refuse(Error::Precondition(format!(
                "volume {id} was found on a disk of node {node} and waits for adoption: run `localpool volume adopt {id}` in the agent's pod there"
            )));
        }
        (_, Phase::Pending | Phase::Accepted | Phase::Ready | Phase::Deleting) => {
            return refuse(Error::Aborted(format!("volume {id} is not ready on node {node}; try again")));
        }
    };
    let size = unsigned(status.size.unwrap_or_default());
    if let Some(limit) = limit.filter(|limit| *limit < size) {
        let (size, limit) = (quantity::format(size), quantity::format(limit));
        return refuse(Error::OutOfRange(format!("volume {id} has {size}, which is above the limit of {limit}")));
    }
    if size >= required {
        return ExpandStep::Answer(Ok(()));
    }
    if !facts.node_exists {
        return refuse(gone(object));
    }
    growing(object, status, signed(required), facts)
}

/// The volume is smaller than the request: how far its agent is with the `wanted` size.
fn growing(object: &PoolVolume, status: &PoolVolumeStatus, wanted: i64, facts: ExpandFacts) -> ExpandStep {
    let (id, node) = (object.name_any(), &object.spec.node);
    let size = status.size.unwrap_or_default();
    let failed = |observed: i64| status.observed_size == Some(observed) && status.resize_error.is_some();
    match object.spec.size {
        Some(asked) if asked == wanted && facts.asked => {
            let error = status.resize_error.as_deref().filter(|_| failed(wanted));
            match error {
                Some(words) => {
                    ExpandStep::TakeBack(size, Error::OutOfRange(format!("volume {id} on node {node}: {words}")))
                }
                None if facts.over => slow(object),
                None => ExpandStep::Wait,
            }
        }
        // An earlier call wrote the request: the agent's answer is about this call only if it is still to come.
        Some(asked) if asked == wanted && !failed(wanted) => {
            if facts.over {
                slow(object)
            } else {
                ExpandStep::Wait
            }
        }
        Some(asked) if asked == wanted => ExpandStep::TakeBack(
            size,
            Error::Aborted(format!("an earlier expansion of volume {id} failed and was undone; try again")),
        ),
        // The same request failed before, and the agent has not seen yet that it was withdrawn.
        _ if failed(wanted) && !facts.grace => ExpandStep::Wait,
        _ if facts.over => slow(object),
        _ => ExpandStep::Ask(wanted),
    }
}

fn refuse(error: Error) -> ExpandStep {
    ExpandStep::Answer(Err(error))
}

fn slow(object: &PoolVolume) -> ExpandStep {
    let (id, node) = (object.name_any(), &object.spec.node);
    refuse(Error::Aborted(format!(
        "node {node} has not grown volume {id} yet; does the localpool node pod run there? Try again"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{GIB, in_phase};
    use super::*;

    const FACTS: ExpandFacts = ExpandFacts { node_exists: true, asked: false, grace: false, over: false };
    const ASKED: ExpandFacts = ExpandFacts { asked: true, ..FACTS };

    fn grow(object: &PoolVolume, facts: ExpandFacts) -> ExpandStep {
        step(Some(object), 2 * GIB, None, facts)
    }

    fn asking(observed: Option<u64>, error: Option<&str>) -> PoolVolume {
        let mut object = in_phase(Phase::Ready);
        object.spec.size = Some(signed(2 * GIB));
        let status = object.status.as_mut().expect("set");
        status.observed_size = observed.map(signed);
        status.resize_error = error.map(str::to_owned);
        object
    }

    #[test]
    fn only_a_ready_volume_grows() {
        for (phase, kind) in [
            (Phase::Pending, "Aborted"),
            (Phase::Accepted, "Aborted"),
            (Phase::Rejected, "NotFound"),
            (Phase::Failed, "NotFound"),
            (Phase::Found, "Precondition"),
            (Phase::Deleting, "Aborted"),
        ] {
            let act = format!("{:?}", grow(&in_phase(phase), FACTS));
            assert!(act.starts_with(&format!("Answer(Err({kind}")), "{phase:?}: {act}");
        }
        assert!(matches!(step(None, GIB, None, FACTS), ExpandStep::Answer(Err(Error::NotFound(_)))));
        let mut going = in_phase(Phase::Ready);
        going.spec.intent = Intent::Delete;
        assert!(matches!(grow(&going, FACTS), ExpandStep::Answer(Err(Error::Aborted(_)))));
        let gone = grow(&in_phase(Phase::Ready), ExpandFacts { node_exists: false, ..FACTS });
        assert!(matches!(gone, ExpandStep::Answer(Err(Error::Precondition(_)))));
    }

    #[test]
    fn a_volume_that_is_large_enough_is_answered_and_a_limit_below_it_refused() {
        let ready = in_phase(Phase::Ready);
        assert!(matches!(step(Some(&ready), GIB, None, FACTS), ExpandStep::Answer(Ok(()))));
        assert!(matches!(step(Some(&ready), GIB / 2, Some(GIB), FACTS), ExpandStep::Answer(Ok(()))));
        let small = step(Some(&ready), GIB / 4, Some(GIB / 2), FACTS);
        assert!(matches!(small, ExpandStep::Answer(Err(Error::OutOfRange(_)))), "{small:?}");
    }

    #[test]
    fn a_wish_is_written_waited_for_and_taken_back_when_it_failed() {
        assert!(matches!(grow(&in_phase(Phase::Ready), FACTS), ExpandStep::Ask(size) if size == signed(2 * GIB)));
        assert!(matches!(grow(&asking(None, None), ASKED), ExpandStep::Wait));
        assert!(matches!(grow(&asking(Some(2 * GIB), None), ASKED), ExpandStep::Wait));
        let slow = grow(&asking(None, None), ExpandFacts { over: true, ..ASKED });
        assert!(matches!(slow, ExpandStep::Answer(Err(Error::Aborted(_)))));
        let act = grow(&asking(Some(2 * GIB), Some("no space behind it")), ASKED);
        let ExpandStep::TakeBack(back, Error::OutOfRange(words)) = act else { panic!("{act:?}") };
        assert!(back == signed(GIB) && words.contains("no space behind it"));
    }

    #[test]
    fn an_error_about_an_earlier_wish_is_not_this_ones_answer() {
        let old = asking(Some(3 * GIB), Some("3Gi cannot be had"));
        assert!(matches!(grow(&old, ASKED), ExpandStep::Wait));
        let mut taken_back = asking(Some(2 * GIB), Some("no space"));
        taken_back.spec.size = Some(signed(GIB));
        assert!(matches!(grow(&taken_back, FACTS), ExpandStep::Wait), "the agent is given time to see that");
        assert!(matches!(grow(&taken_back, ExpandFacts { grace: true, ..FACTS }), ExpandStep::Ask(_)));
        let failed = asking(Some(2 * GIB), Some("no space"));
        assert!(
            matches!(grow(&failed, FACTS), ExpandStep::TakeBack(_, Error::Aborted(_))),
            "left by a call that was cut short"
        );
        assert!(
            matches!(grow(&asking(None, None), FACTS), ExpandStep::Wait),
            "an earlier request that has no answer yet"
        );
    }
}
