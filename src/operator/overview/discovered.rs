//! What discovery has seen of a disk that a person asks about. Pure.

use kube::ResourceExt as _;

use super::asked_disk::DiskAsked;
use super::why_pvc::AnswerStep;
use crate::api::crd::{DeviceState, DiscoveredDevice, LocalVolumeDiscoveryResult};

/// Whether one has seen it, and nobody uses it.
pub fn is_available(asked: &DiskAsked, results: &[LocalVolumeDiscoveryResult]) -> bool {
    let mut devices = results.iter().flat_map(|result| seen_by(asked, result));
    devices.any(|device| device.status.state == DeviceState::Available)
}

/// What each result says of it.
pub fn steps(asked: &DiskAsked, results: &[LocalVolumeDiscoveryResult]) -> Vec<AnswerStep> {
    let text = |result: &LocalVolumeDiscoveryResult, device: &DiscoveredDevice| {
        let why = device.status.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let path = device.facts().text("path").unwrap_or_default().to_owned();
        format!(
            "{} of {} says {:?} of {path}{why}",
            result.name_any(),
            result.namespace().unwrap_or_default(),
            device.status.state
        )
    };
    let all = results.iter().flat_map(|result| seen_by(asked, result).map(move |device| (result, device)));
    all.map(|(result, device)| AnswerStep::new("seen", text(result, device))).collect()
}

/// The devices of a result that are meant.
fn seen_by<'r>(
    asked: &'r DiskAsked,
    result: &'r LocalVolumeDiscoveryResult,
) -> impl Iterator<Item = &'r DiscoveredDevice> {
    let is_here = result.spec.node_name == asked.node;
    let devices = result.status.iter().filter(move |_| is_here).flat_map(|status| &status.discovered_devices);
    let is_it = move |text: Option<&str>| text.is_some_and(|text| asked.is(text));
    devices.filter(move |one| is_it(one.facts().text("path")) || is_it(one.facts().text("deviceID")))
}
