//! What CreateVolume does next, from the object that is there; and whether an object is of a volume that was not made
//! before. Pure.
//!
//! ```text
//!  nothing ──Make──▶ Pending ──▶ Accepted ──▶ Ready ──▶ the answer
//!     ▲                 ├──▶ Rejected, Failed
//!     │                 │        │
//!     └────Withdraw─────┴────────┘   then elsewhere, again, or the answer
//! ```
//! Only an object that no agent accepted is withdrawn, and RESOURCE_EXHAUSTED is answered only after that.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::api::crd::{Intent, NEW_ANNOTATION, Phase, PoolVolume, VolumeReason};
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool_volume::{agent_message, allows, difference, never_accepted, phase, refusal};
use crate::volume::{Error, VolumeId, VolumeRequest};

/// How far the clocks of the controller and of the API server may be apart. With more, the agent asks as for any other
/// object.
const APART: SignedDuration = SignedDuration::from_mins(1);

/// What has to be known besides the object.
#[derive(Clone, Copy, Debug)]
pub struct CreateFacts<'a> {
    /// The object that this call made, or saw before its agent had answered.
    pub own_uid: Option<&'a str>,
    /// The Node object of the object's node exists.
    pub node_exists: bool,
    /// That its node's agent does not answer, as text, if the controller says so.
    pub silence: Option<&'a str>,
    /// Three quarters of the caller's timeout have passed.
    pub silent: bool,
    /// Nearly all of the caller's timeout has passed.
    pub over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    /// Three quarters of the timeout have passed.
    Silent,
    /// Nearly all of it has passed.
    Over,
}

#[derive(Debug)]
pub enum CreateStep {
    Make,
    /// Until the object changes, or until this time.
    Wait(WaitUntil),
    Withdraw(AfterWithdrawal),
    Answer(Result<(), Error>),
}

/// What follows when the object is gone.
#[derive(Debug)]
pub enum AfterWithdrawal {
    /// An earlier call created it: begin again.
    Again,
    /// Its node refuses it: ask another node if there is one, else give this answer.
    Elsewhere(Error),
    Answer(Error),
}

pub fn step(wanted: &VolumeRequest, object: Option<&PoolVolume>, facts: CreateFacts<'_>) -> CreateStep {
    let Some(object) = object else {
        return match facts.over {
            true => aborted("the volume is not made yet; try again".to_owned()),
            false => CreateStep::Make,
        };
    };
    let node = &object.spec.node;
    if object.spec.intent == Intent::Delete {
        return aborted(format!("the volume of that name is being deleted on node {node}; try again when it is gone"));
    }
    if object.metadata.deletion_timestamp.is_some() {
        return match never_accepted(object) {
            true => CreateStep::Withdraw(AfterWithdrawal::Again),
            false => aborted(format!("the object of the volume is being deleted, and node {node} writes it again")),
        };
    }
    if never_accepted(object) { not_accepted(wanted, object, facts) } else { accepted(wanted, object, facts) }
}

fn not_accepted(wanted: &VolumeRequest, object: &PoolVolume, facts: CreateFacts<'_>) -> CreateStep {
    let node = &object.spec.node;
    let own = object.uid().is_some_and(|uid| facts.own_uid == Some(uid.as_str()));
    if !allows(&wanted.nodes, node) {
        return CreateStep::Withdraw(AfterWithdrawal::Again);
    }
    if phase(object) == Phase::Pending {
        if let Some(what) = difference(object, wanted) {
            return CreateStep::Answer(Err(exists(object, &what)));
        }
        if !facts.node_exists {
            return CreateStep::Withdraw(AfterWithdrawal::Elsewhere(Error::Exhausted(format!(
                "node {node} does not exist"
            ))));
        }
        if let Some(message) = facts.silence {
            return CreateStep::Withdraw(AfterWithdrawal::Elsewhere(Error::Exhausted(message.to_owned())));
        }
        return match facts.silent {
            true => CreateStep::Withdraw(AfterWithdrawal::Answer(Error::Exhausted(format!(
                "node {node}: its localpool agent did not answer; does the localpool node pod run there?"
            )))),
            false => CreateStep::Wait(WaitUntil::Silent),
        };
    }
    // The reason that an earlier call was given may not hold any more.
    if !own {
        return CreateStep::Withdraw(AfterWithdrawal::Again);
    }
    match refusal(object) {
        error @ Error::Exhausted(_) => CreateStep::Withdraw(AfterWithdrawal::Elsewhere(error)),
        error => CreateStep::Withdraw(AfterWithdrawal::Answer(error)),
    }
}

fn accepted(wanted: &VolumeRequest, object: &PoolVolume, facts: CreateFacts<'_>) -> CreateStep {
    let (node, id) = (&object.spec.node, object.name_any());
    if !facts.node_exists {
        return CreateStep::Answer(Err(gone(object)));
    }
    match phase(object) {
        Phase::Found => CreateStep::Answer(Err(Error::Precondition(format!(
            "volume {id} was found on a disk of node {node} and waits for adoption: \
             run `localpool volume adopt {id}` in the agent's pod there, or remove it"
        )))),
        Phase::Deleting => aborted(format!("the volume of that name is being deleted on node {node}")),
        Phase::Ready | Phase::Accepted => {
            if let Some(what) = difference(object, wanted) {
                return CreateStep::Answer(Err(exists(object, &what)));
            }
            let allowed = allows(&wanted.nodes, node);
            match (phase(object), allowed) {
                (Phase::Ready, true) if is_in_conflict(object) => CreateStep::Answer(Err(Error::Precondition(
                    format!("volume {id} cannot be used: {}", agent_message(object).unwrap_or_default()),
                ))),
                (Phase::Ready, true) => CreateStep::Answer(Ok(())),
                (Phase::Ready, false) => {
                    CreateStep::Answer(Err(exists(object, "it is on that node, which this request excludes")))
                }
                (_, false) => aborted(format!("node {node}, which this request excludes, is still making the volume")),
                (_, true) if facts.over => aborted(match agent_message(object) {
                    Some(message) => format!("the volume is not made yet: {message}"),
                    None => match facts.silence {
                        Some(message) => format!("the volume is not made yet: {message}"),
                        None => format!("node {node} is still making the volume; try again"),
                    },
                }),
                (_, true) => CreateStep::Wait(WaitUntil::Over),
            }
        }
        Phase::Pending | Phase::Rejected | Phase::Failed => CreateStep::Wait(WaitUntil::Silent),
    }
}

/// Whether its node has, or may have, several volumes with its id.
fn is_in_conflict(object: &PoolVolume) -> bool {
    object.status.as_ref().is_some_and(|status| status.reason == Some(VolumeReason::Conflict))
}

fn aborted(message: String) -> CreateStep {
    CreateStep::Answer(Err(Error::Aborted(message)))
}

fn exists(object: &PoolVolume, what: &str) -> Error {
    let (id, node) = (object.name_any(), &object.spec.node);
    Error::Exists(format!("volume {id} on node {node} has this name already, but is a different volume: {what}"))
}

/// The answer for a volume whose node was deleted.
pub fn gone(object: &PoolVolume) -> Error {
    let (id, node) = (object.name_any(), &object.spec.node);
    Error::Precondition(format!(
        "volume {id} is on node {node}, which does not exist any more: bring the node back, or give the volume up: order \
         Abandon in spec.order, or run `localpool volume abandon {id}` in the controller's pod"
    ))
}

/// Whether the PersistentVolume with the name of the volume is that of the volume, on whatever node: then the volume
/// was made before.
pub fn was_made(named: Option<&PersistentVolume>, id: VolumeId) -> bool {
    named.is_some_and(|named| named.own() == Some(id))
}

/// Says in an object that its volume is new: the controller has looked for its PersistentVolume right before.
///
/// An object that somebody restores from a backup says the same, and is younger than that. One of a snapshot
/// of etcd keeps its creation time, and passes for new.
pub fn say_new(object: &mut PoolVolume, now: Timestamp) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(NEW_ANNOTATION.to_owned(), now.to_string());
}

/// Whether the controller said so when it made this object.
pub fn is_new(object: &PoolVolume) -> bool {
    let said = object.annotation(NEW_ANNOTATION).and_then(|text| text.parse::<Timestamp>().ok());
    let made = object.metadata.creation_timestamp.as_ref().map(|made| made.0);
    said.zip(made).is_some_and(|(said, made)| made.duration_since(said).abs() <= APART)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::super::sample::{being_deleted, in_phase, rejected, wanted};
    use super::*;
    use crate::volume::{DRIVER_NAME, Nodes, TOPOLOGY_KEY, WantedUsage};

    const FACTS: CreateFacts<'static> =
        CreateFacts { own_uid: Some("u1"), node_exists: true, silence: None, silent: false, over: false };
    const ALL: [Phase; 7] =
        [Phase::Pending, Phase::Rejected, Phase::Failed, Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting];

    fn name_of(act: CreateStep) -> String {
        match act {
            CreateStep::Make => "make".to_owned(),
            CreateStep::Wait(until) => format!("wait {until:?}"),
            CreateStep::Withdraw(AfterWithdrawal::Again) => "withdraw, again".to_owned(),
            CreateStep::Withdraw(AfterWithdrawal::Elsewhere(error)) => format!("withdraw, elsewhere, {}", kind(&error)),
            CreateStep::Withdraw(AfterWithdrawal::Answer(error)) => format!("withdraw, {}", kind(&error)),
            CreateStep::Answer(Ok(())) => "ok".to_owned(),
            CreateStep::Answer(Err(error)) => kind(&error).to_owned(),
        }
    }

    fn kind(error: &Error) -> &'static str {
        match error {
            Error::Invalid(_) => "invalid",
            Error::NotFound(_) => "not found",
            Error::Exists(_) => "exists",
            Error::Exhausted(_) => "exhausted",
            Error::OutOfRange(_) => "out of range",
            Error::Precondition(_) => "precondition",
            Error::Aborted(_) => "aborted",
            Error::Internal(_) => "internal",
        }
    }

    fn table(wanted: &VolumeRequest, facts: CreateFacts<'_>, change: impl Fn(PoolVolume) -> PoolVolume) -> Vec<String> {
        ALL.into_iter().map(|phase| name_of(step(wanted, Some(&change(in_phase(phase))), facts))).collect()
    }

    #[test]
    fn nothing_there_is_made() {
        assert_eq!(name_of(step(&wanted("pvc-1"), None, FACTS)), "make");
        assert_eq!(name_of(step(&wanted("pvc-1"), None, CreateFacts { over: true, ..FACTS })), "aborted");
    }

    #[test]
    fn the_same_volume_on_an_allowed_node_is_waited_for_and_answered() {
        let wanted = wanted("pvc-1");
        let same = |object| object;
        let usual = [
            "wait Silent",
            "withdraw, elsewhere, exhausted",
            "withdraw, internal",
            "wait Over",
            "ok",
            "precondition",
            "aborted",
        ];
        assert_eq!(table(&wanted, FACTS, same), usual);
        let mut silent = usual;
        silent[0] = "withdraw, exhausted";
        assert_eq!(table(&wanted, CreateFacts { silent: true, ..FACTS }, same), silent);
        let mut over = silent;
        over[3] = "aborted";
        assert_eq!(table(&wanted, CreateFacts { silent: true, over: true, ..FACTS }, same), over);
    }

    #[test]
    fn an_earlier_calls_refusal_is_withdrawn_and_asked_again() {
        for own_uid in [None, Some("another")] {
            let acts = table(&wanted("pvc-1"), CreateFacts { own_uid, ..FACTS }, |object| object);
            assert_eq!(acts[..4], ["wait Silent", "withdraw, again", "withdraw, again", "wait Over"]);
        }
    }

    #[test]
    fn each_refusal_goes_to_the_caller_after_the_withdrawal() {
        let pending = in_phase(Phase::Pending);
        for (reason, act) in [
            ("Full", "withdraw, elsewhere, exhausted"),
            ("Cordoned", "withdraw, elsewhere, exhausted"),
            ("Limit", "withdraw, out of range"),
            ("Invalid", "withdraw, invalid"),
        ] {
            assert_eq!(name_of(step(&wanted("pvc-1"), Some(&rejected(&pending, reason)), FACTS)), act, "{reason}");
        }
    }

    #[test]
    fn a_volume_on_two_disks_is_no_answer_and_the_disk_that_one_waits_for_is_named() {
        let answered = |phase, reason: Option<&str>, message: &str| {
            let mut object = in_phase(phase);
            let status = object.status.as_mut().expect("set");
            (status.reason, status.message) =
                (reason.map(|word| VolumeReason::from(word.to_owned())), Some(message.to_owned()));
            step(&wanted("pvc-1"), Some(&object), CreateFacts { silent: true, over: true, ..FACTS })
        };
        let act = answered(Phase::Ready, Some("Conflict"), "run `localpool volume settle`");
        let CreateStep::Answer(Err(Error::Precondition(text))) = act else { panic!("{act:?}") };
        assert!(text.contains("localpool volume settle"), "{text}");
        let act = answered(Phase::Accepted, None, "the disk gpt-1 is missing");
        let CreateStep::Answer(Err(Error::Aborted(text))) = act else { panic!("{act:?}") };
        assert!(text.contains("gpt-1 is missing"), "{text}");
    }

    #[test]
    fn a_silent_agent_and_its_node_are_named() {
        let act = step(&wanted("pvc-1"), Some(&in_phase(Phase::Pending)), CreateFacts { silent: true, ..FACTS });
        let CreateStep::Withdraw(AfterWithdrawal::Answer(Error::Exhausted(message))) = act else { panic!("{act:?}") };
        assert!(message.contains("node n") && message.contains("did not answer"), "{message}");
    }

    #[test]
    fn a_volume_that_waits_for_a_silent_node_goes_elsewhere_at_once_unless_it_was_accepted() {
        let facts = CreateFacts { silence: Some("node n does not answer"), ..FACTS };
        let acts = table(&wanted("pvc-1"), facts, |object| object);
        assert_eq!((&*acts[0], &*acts[3], &*acts[4]), ("withdraw, elsewhere, exhausted", "wait Over", "ok"));
        let act = step(&wanted("pvc-1"), Some(&in_phase(Phase::Accepted)), CreateFacts { over: true, ..facts });
        let CreateStep::Answer(Err(Error::Aborted(message))) = act else { panic!("{act:?}") };
        assert!(message.contains("node n does not answer"), "{message}");
    }

    #[test]
    fn a_volume_on_an_excluded_node_is_withdrawn_waited_for_or_refused_with_a_message() {
        let mut wanted = wanted("pvc-1");
        wanted.nodes = Nodes::Preferred(vec!["other".into()]);
        let acts =
            ["withdraw, again", "withdraw, again", "withdraw, again", "aborted", "exists", "precondition", "aborted"];
        assert_eq!(table(&wanted, FACTS, |object| object), acts);
        wanted.nodes = Nodes::AnyOf(vec!["other".into(), "n".into()]);
        assert_eq!(table(&wanted, FACTS, |object| object)[4], "ok");
    }

    #[test]
    fn a_volume_of_a_deleted_node_is_never_answered_and_the_verb_is_named() {
        let wanted = wanted("pvc-1");
        let facts = CreateFacts { node_exists: false, ..FACTS };
        let acts = table(&wanted, facts, |object| object);
        assert_eq!(acts[0], "withdraw, elsewhere, exhausted");
        assert_eq!(acts[3..], ["precondition", "precondition", "precondition", "precondition"]);
        let act = step(&wanted, Some(&in_phase(Phase::Ready)), facts);
        let CreateStep::Answer(Err(error)) = act else { panic!("{act:?}") };
        assert!(error.to_string().contains("localpool volume abandon "), "{error}");
    }

    #[test]
    fn another_volume_of_the_name_is_refused_with_what_differs() {
        let mut wanted = wanted("pvc-1");
        wanted.usage = WantedUsage::Block;
        let acts = table(&wanted, FACTS, |object| object);
        assert_eq!([&*acts[0], &*acts[3], &*acts[4]], ["exists", "exists", "exists"]);
        assert!(acts[1].starts_with("withdraw"), "a refused leftover stands in nobody's way: {}", acts[1]);
    }

    #[test]
    fn what_is_being_deleted_is_waited_for_unless_no_agent_ever_accepted_it() {
        let wanted = wanted("pvc-1");
        let acts = table(&wanted, FACTS, being_deleted);
        assert_eq!(acts[..3], ["withdraw, again", "withdraw, again", "withdraw, again"]);
        assert_eq!(acts[3..], ["aborted", "aborted", "aborted", "aborted"]);
        let ordered = |mut object: PoolVolume| {
            object.spec.intent = Intent::Delete;
            object
        };
        assert!(table(&wanted, FACTS, ordered).iter().all(|act| act == "aborted"));
    }

    #[test]
    fn a_volume_that_has_a_persistent_volume_is_not_new_on_any_node() {
        let id = VolumeId::of_name("pvc-1");
        let named = |driver: &str, handle: &str, node: &str| {
            let term = json!({"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [node]}]});
            let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
            let spec = json!({"csi": {"driver": driver, "volumeHandle": handle}, "nodeAffinity": affinity});
            let volume = json!({"metadata": {"name": "pvc-1"}, "spec": spec});
            serde_json::from_value::<PersistentVolume>(volume).expect("a PersistentVolume")
        };
        let handle = id.to_string();
        for (driver, handle, node, expected) in [
            (DRIVER_NAME, handle.as_str(), "n", true),
            (DRIVER_NAME, handle.as_str(), "another", true),
            (DRIVER_NAME, "x", "n", false),
            ("other.csi", handle.as_str(), "n", false),
        ] {
            assert_eq!(was_made(Some(&named(driver, handle, node)), id), expected, "{driver} {handle} {node}");
        }
        assert!(!was_made(None, id));
    }

    #[test]
    fn an_object_is_of_a_new_volume_if_it_is_as_old_as_what_says_so() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().expect("a time");
        let mut object = in_phase(Phase::Pending);
        object.metadata.annotations = None;
        object.metadata.creation_timestamp = Some(Time(now));
        assert!(!is_new(&object), "nobody says so");
        say_new(&mut object, now);
        for (later, expected) in [(0, true), (60, true), (-60, true), (61, false), (-61, false), (86_400, false)] {
            object.metadata.creation_timestamp = Some(Time(now + SignedDuration::from_secs(later)));
            assert_eq!(is_new(&object), expected, "{later}");
        }
        object.metadata.creation_timestamp = None;
        assert!(!is_new(&object));
    }
}
