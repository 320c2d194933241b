//! What ControllerExpandVolume does next, from the object that is there. Pure.
//!
//! The size that is asked for is `spec.size`; a volume that can become smaller, and is larger than the limit, is asked
//! for with `spec.sizeLimit`, too. The agent reports with `status.observedSize` and `observedSizeLimit` that it acted on
//! them, and with `status.resizeError` that it could not. Then the request is withdrawn, so that nothing grows or
//! shrinks later unasked.

use kube::ResourceExt as _;

use super::create::gone;
use super::resize::Resize;
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
    /// Write it into the spec.
    Ask(Resize),
    /// Write it into the spec, then answer.
    TakeBack(Resize, Error),
    /// It has become smaller: the limit goes, as nobody asks for it again. Then answer.
    Forget(Resize),
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
    let wanted = Resize { size: signed(required), limit: limit.filter(|limit| *limit < size).map(signed) };
    if let (Some(limit), false) = (limit.filter(|limit| *limit < size), status.shrinks) {
        let (size, limit) = (quantity::format(size), quantity::format(limit));
        return refuse(Error::OutOfRange(format!("volume {id} has {size}, which is above the limit of {limit}")));
    }
    if wanted.is_met_by(signed(size)) {
        return match object.spec.size_limit {
            Some(_) => ExpandStep::Forget(Resize { size: signed(size), limit: None }),
            None => ExpandStep::Answer(Ok(())),
        };
    }
    if !facts.node_exists {
        return end(object, gone(object));
    }
    resizing(object, status, wanted, facts)
}

/// The volume has another size than the request: how far its agent is with the one that is `wanted`.
fn resizing(object: &PoolVolume, status: &PoolVolumeStatus, wanted: Resize, facts: ExpandFacts) -> ExpandStep {
    let (id, node) = (object.name_any(), &object.spec.node);
    let size = Resize { size: status.size.unwrap_or_default(), limit: None };
    let failed = |wanted: Resize| Resize::observed(status) == Some(wanted) && status.resize_error.is_some();
    match Resize::of(object) {
        Some(asked) if asked == wanted && facts.asked => {
            let error = status.resize_error.as_deref().filter(|_| failed(wanted));
            match error {
                Some(message) => {
                    ExpandStep::TakeBack(size, Error::OutOfRange(format!("volume {id} on node {node}: {message}")))
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
    let error = Error::Aborted(format!(
        "node {node} has not given volume {id} its new size yet; does the localpool node pod run there? Try again"
    ));
    end(object, error)
}

/// The call ends before the agent has answered. A request to grow stays: the next call waits for the same. A limit goes:
/// by the time the node is back nobody may want it. Whichever size the volume has by then is large enough.
fn end(object: &PoolVolume, error: Error) -> ExpandStep {
    match Resize::of(object) {
        Some(asked) if asked.limit.is_some() => ExpandStep::TakeBack(Resize { limit: None, ..asked }, error),
        Some(_) | None => refuse(error),
    }
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
    fn a_volume_that_can_shrink_is_asked_to_and_the_limit_goes_when_it_has() {
        let shrink = |object: &PoolVolume, facts| step(Some(object), GIB / 4, Some(GIB / 2), facts);
        let wanted = Resize { size: signed(GIB / 4), limit: Some(signed(GIB / 2)) };
        let mut object = in_phase(Phase::Ready);
        object.status.as_mut().expect("set").shrinks = true;
        assert!(matches!(shrink(&object, FACTS), ExpandStep::Ask(asked) if asked == wanted));
        (object.spec.size, object.spec.size_limit) = (Some(wanted.size), wanted.limit);
        assert!(matches!(shrink(&object, ASKED), ExpandStep::Wait));
        let late = ExpandFacts { over: true, ..ASKED };
        for facts in [late, ExpandFacts { asked: false, ..late }, ExpandFacts { node_exists: false, ..ASKED }] {
            let act = shrink(&object, facts);
            let ExpandStep::TakeBack(back, Error::Aborted(_) | Error::Precondition(_)) = act else { panic!("{act:?}") };
            assert_eq!(
                back,
                Resize { limit: None, ..wanted },
                "the node may be back when nobody asks for that any more"
            );
        }
        let mut refused = object.clone();
        let status = refused.status.as_mut().expect("set");
        (status.observed_size, status.observed_size_limit) = (Some(wanted.size), wanted.limit);
        status.resize_error = Some("its files use more".to_owned());
        let act = shrink(&refused, ASKED);
        let ExpandStep::TakeBack(back, Error::OutOfRange(message)) = act else { panic!("{act:?}") };
        assert_eq!(back, Resize { size: signed(GIB), limit: None });
        assert!(message.contains("its files use more"), "{message}");
        object.status.as_mut().expect("set").size = Some(signed(GIB / 2));
        let small = Resize { size: signed(GIB / 2), limit: None };
        assert!(matches!(shrink(&object, ASKED), ExpandStep::Forget(size) if size == small));
        (object.spec.size, object.spec.size_limit) = (Some(small.size), None);
        assert!(matches!(shrink(&object, ASKED), ExpandStep::Answer(Ok(()))));
    }

    #[test]
    fn a_wish_is_written_waited_for_and_taken_back_when_it_failed() {
        assert!(
            matches!(grow(&in_phase(Phase::Ready), FACTS), ExpandStep::Ask(Resize { size, limit: None }) if size == signed(2 * GIB))
        );
        assert!(matches!(grow(&asking(None, None), ASKED), ExpandStep::Wait));
        assert!(matches!(grow(&asking(Some(2 * GIB), None), ASKED), ExpandStep::Wait));
        let slow = grow(&asking(None, None), ExpandFacts { over: true, ..ASKED });
        assert!(matches!(slow, ExpandStep::Answer(Err(Error::Aborted(_)))));
        let act = grow(&asking(Some(2 * GIB), Some("no space behind it")), ASKED);
        let ExpandStep::TakeBack(back, Error::OutOfRange(message)) = act else { panic!("{act:?}") };
        assert!(back == Resize { size: signed(GIB), limit: None } && message.contains("no space behind it"));
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
