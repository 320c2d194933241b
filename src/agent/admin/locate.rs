//! `localpool disk locate`: the light of the slot that a disk is in.
//!
//! Takes in what the disk is called; gives out which light was turned on or off, or would be. Where there is none, the
//! error says by what else a person finds the disk.

use std::sync::Arc;

use super::error::AdminError;
use super::find::FoundDevice;
use super::plan::{Ran, VerbPlan};
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{Device, DiskId, Size};
use crate::host::{Host, HostError, Lit, RawDisk, SlotLight};
use crate::pool::{ErrandKey, PoolError};

/// A disk whose slot has a light.
struct Location {
    device: Device,
    light: SlotLight,
    wanted: Lit,
}

impl Reconciler {
    pub(super) fn locate(&mut self, text: &str, lit: Lit, run: Run) -> Result<Vec<String>, AdminError> {
        let FoundDevice { device, .. } = match self.find(text) {
            Err(AdminError::NoSuchDisk(_)) if self.is_missing(text) => return Err(self.not_locatable(text)),
            found => found?,
        };
        let light = self.of_slot(&device, |host, raw| Ok(host.slot_light(raw)))?;
        let light = light.ok_or_else(|| no_light(&device))?;
        self.run(&Location { device, light, wanted: lit }, run)
    }

    /// Asks the slot of a disk. A disk that hangs is one to be located: its light does not wait for it.
    fn of_slot<T: Send + 'static>(
        &mut self,
        device: &Device,
        ask: impl FnOnce(&dyn Host, &RawDisk) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, AdminError> {
        let (host, raw) = (Arc::clone(&self.host), device.raw.clone());
        let on = ErrandKey::Light(device.id.clone());
        let answer = self.errands.errand(on.clone(), move || ask(&*host, &raw));
        answer.map_err(|hangs| PoolError::Hangs { on, hangs })?.map_err(AdminError::Light)
    }

    /// The kernel does not show the disk, so nobody knows its slot.
    fn not_locatable(&self, text: &str) -> AdminError {
        let disk = DiskId::named(text);
        let known = self.pool().journal().known(|id| *id == disk).pop();
        let was = known.map_or_else(
            || format!("the hardware that its id {disk} names, as it has no label"),
            |(_, known)| {
                let model = known.model.map(|model| format!("model {model}"));
                let hardware = known.hardware.map(|id| format!("hardware {}", id.as_str()));
                let was = [format!("the disk that was {}", known.path.display()), Size(known.size).to_string()];
                was.into_iter().chain(model).chain(hardware).collect::<Vec<_>>().join(", ")
            },
        );
        AdminError::NotLocatable { disk, was }
    }
}

impl VerbPlan for Location {
    /// The light after that.
    type Done = SlotLight;

    fn perform(&self, agent: &mut Reconciler) -> Result<SlotLight, AdminError> {
        let wanted = self.wanted;
        agent.of_slot(&self.device, move |host, raw| host.set_slot_light(raw, wanted))
    }

    fn lines(&self, ran: &Ran<SlotLight>) -> Vec<String> {
        let Self { device, light, wanted } = self;
        let (path, id, file) = (device.raw.path.display(), &device.id, light.path.display());
        let what = ran.tense(&format!("turn {wanted}"), &format!("turned {wanted}"));
        let mut lines = vec![format!("{what} the light of the slot of {path} ({id}): {file}")];
        match (ran, wanted) {
            (Ran::Dry, _) => lines.push(format!("it is {} now", light.lit)),
            (Ran::Real(now), _) if now.lit != *wanted => {
                lines.push(format!("the enclosure still reports that it is {}", now.lit));
            }
            (Ran::Real(_), Lit::On) => lines.push(format!("`localpool disk locate --off {id}` turns it off")),
            (Ran::Real(_), Lit::Off) => {}
        }
        lines.push(format!("the disk is {}", marks(device)));
        lines
    }
}

fn no_light(device: &Device) -> AdminError {
    AdminError::NoLight { disk: device.id.clone(), path: device.raw.path.clone(), marks: marks(device) }
}

/// By what a person recognizes a disk.
fn marks(device: &Device) -> String {
    let raw = &device.raw;
    let named = |what: &str, text: &Option<String>| text.as_ref().map(|text| format!("{what} {text}"));
    let facts = [named("model", &raw.model), named("serial", &raw.serial), named("WWN", &raw.wwid)];
    let links = raw.links.iter().filter(|link| link.to_string_lossy().contains("/by-path/"));
    let links = links.map(|link| link.display().to_string());
    let place = (!raw.sysfs_path.as_os_str().is_empty()).then(|| format!("at {}", raw.sysfs_path.display()));
    let all: Vec<String> =
        facts.into_iter().flatten().chain([Size(raw.size).to_string()]).chain(links).chain(place).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests;
