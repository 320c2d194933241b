//! A claim that names its PersistentVolume: where the volume is, and how it is.

use kube::ResourceExt as _;

use super::answer::AnswerStep;
use super::case::PvcCase;
use crate::api::crd::{Phase, PoolVolume};
use crate::health::HealthReason;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::{BindingPhase, PersistentVolume, PvcReference};
use crate::operator::pool_volume::phase;

pub struct Bound {
    pub steps: Vec<AnswerStep>,
    pub why: String,
    pub next: String,
}

fn ended(steps: Vec<AnswerStep>, why: impl Into<String>, next: impl Into<String>) -> Bound {
    Bound { steps, why: why.into(), next: next.into() }
}

/// `persistent` is the PersistentVolume that the claim names; `None`: there is none of that name.
pub fn explain(case: &PvcCase, persistent: Option<&PersistentVolume>) -> Bound {
    let named = case.pvc.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let Some(persistent) = persistent else {
        return ended(
            Vec::new(),
            format!("it names PersistentVolume {named}, and there is none"),
            "`kubectl localpool volumes` lists the volumes on the disks: docs/troubleshooting.md, \"A volume whose \
             PersistentVolume is gone\"",
        );
    };
    let mut steps = vec![AnswerStep::new("volume", format!("PersistentVolume {named}: {:?}", persistent.phase))];
    if let Some(other) = other_claim(case, persistent) {
        return ended(
            steps,
            format!("PersistentVolume {named} belongs to {other}, so this claim never gets it"),
            "make this claim again without volumeName",
        );
    }
    let Some(id) = persistent.own() else {
        let next = format!("`kubectl describe pv {named}` shows whose it is");
        return ended(steps, "its PersistentVolume is not of localpool", next);
    };
    let Some(volume) = case.volumes.iter().find(|volume| volume.name_any() == id.to_string()) else {
        return ended(
            steps,
            format!("there is no PoolVolume {id}: its node's agent writes it again when it is up and has the disk"),
            "`kubectl localpool status` shows agents that are silent and disks that are missing",
        );
    };
    steps.push(AnswerStep::new("volume", volume_text(volume)));
    steps.push(AnswerStep::new("pod", case.pods_text()));
    let (why, next) = state(case, persistent, volume);
    ended(steps, why, next)
}

/// The claim that the PersistentVolume is for, if that is another one.
fn other_claim(case: &PvcCase, persistent: &PersistentVolume) -> Option<String> {
    let PvcReference { namespace, name, uid } = persistent.pvc.as_ref()?;
    let namespace = namespace.as_ref().map(ObjectName::as_str).unwrap_or_default();
    let name = name.as_ref().map(ObjectName::as_str).unwrap_or_default();
    let is_named = namespace == case.name.namespace() && name == case.name.name();
    let own = Uid::of(&case.pvc);
    let is_other = uid.as_ref().is_some_and(|uid| own.is_some_and(|own| own != *uid));
    match (is_named, is_other) {
        (true, false) => None,
        (true, true) => Some(format!("an earlier claim {namespace}/{name}, which was deleted")),
        (false, _) => Some(format!("claim {namespace}/{name}")),
    }
}

fn volume_text(volume: &PoolVolume) -> String {
    let status = volume.status.as_ref();
    let disk = status.and_then(|status| status.disk.as_ref()).map_or("no disk yet", |disk| disk.as_str());
    let size = status.and_then(|status| status.capacity.as_deref()).unwrap_or("no size yet");
    format!(
        "PoolVolume {} of {size} on disk {disk} of node {}: {:?}",
        volume.name_any(),
        volume.spec.node,
        phase(volume)
    )
}

fn state(case: &PvcCase, persistent: &PersistentVolume, volume: &PoolVolume) -> (String, String) {
    let status = volume.status.as_ref();
    if let Some(worst) = status.and_then(|status| status.health.first()) {
        let action = HealthReason::from(worst.reason.clone()).row().map(|row| row.action.to_owned());
        let unknown = "docs/health.md says what to do about it".to_owned();
        return (format!("it has its volume, and {}: {}", worst.reason, worst.message), action.unwrap_or(unknown));
    }
    match (phase(volume), persistent.phase) {
        (Phase::Ready, BindingPhase::Bound) => {
            ("it has its volume, and nothing is wrong with it".to_owned(), waits(case, volume))
        }
        (Phase::Ready, other) => (
            format!("its volume is there, and its PersistentVolume is {other:?}"),
            format!("`kubectl describe pv {}` says why it is not bound to this claim", persistent.name_any()),
        ),
        (Phase::Found, _) => (
            "its volume was found on a disk, and waits until its node's agent or a person adopts it".to_owned(),
            format!("`kubectl describe poolvolume {}` says what it waits for", volume.name_any()),
        ),
        (other, _) => {
            let message = status.and_then(|status| status.message.as_deref()).unwrap_or("its agent does not say more");
            let describe = format!("`kubectl describe poolvolume {}` shows more", volume.name_any());
            (format!("its volume is {other:?}: {message}"), describe)
        }
    }
}

/// A pod that cannot run where its volume is waits for ever.
fn waits(case: &PvcCase, volume: &PoolVolume) -> String {
    let is_waiting = |pod: &&k8s_openapi::api::core::v1::Pod| {
        pod.spec.as_ref().is_none_or(|spec| spec.node_name.as_deref().is_none_or(str::is_empty))
    };
    match case.pods.iter().find(is_waiting) {
        Some(pod) => format!(
            "the volume stays on node {}, so pod {} has to run there: its message above says why it does not",
            volume.spec.node,
            pod.name_any()
        ),
        None => "nothing".to_owned(),
    }
}
