//! `localpool disk locate`: the light of the slot that a disk is in.
//!
//! Takes in what the disk is called; gives out which light was turned on or off, or would be. Where there is none, the error
//! says by what else a person finds the disk.

use std::sync::Arc;

use super::AdminError;
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{Device, DiskId, Size};
use crate::host::{Lit, SlotLight};
use crate::pool::{ErrandKey, PoolError};

impl Reconciler {
    pub(super) fn locate(&mut self, text: &str, lit: Lit, run: Run) -> Result<Vec<String>, AdminError> {
        let found = match self.find(text) {
            Err(AdminError::NoSuchDisk(_)) if self.is_missing(text) => return Err(self.not_locatable(text)),
            found => found?,
        };
        let (_, device, _) = found;
        let light = self.light(&device, lit, run)?.ok_or_else(|| AdminError::NoLight {
            disk: device.id.clone(),
            path: device.raw.path.clone(),
            marks: marks(&device),
        })?;
        Ok(lines(&device, &light, lit, run))
    }

    /// What it is after that, or before a dry run; `None`: its slot has none.
    fn light(&mut self, device: &Device, lit: Lit, run: Run) -> Result<Option<SlotLight>, AdminError> {
        let (host, raw) = (Arc::clone(&self.host), device.raw.clone());
        // A disk that hangs is one to be located: its light does not wait for it.
        let on = ErrandKey::Light(device.id.clone());
        let looked = self.errand(on.clone(), move || match (host.slot_light(&raw), run) {
            (Some(_), Run::Real) => host.set_slot_light(&raw, lit).map(Some),
            (light, _) => Ok(light),
        });
        looked.map_err(|hangs| PoolError::Hangs { on, hangs })?.map_err(AdminError::Light)
    }

    /// Of a disk that the kernel does not show, nobody knows the slot.
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

fn lines(device: &Device, light: &SlotLight, lit: Lit, run: Run) -> Vec<String> {
    let (path, id, file) = (device.raw.path.display(), &device.id, light.path.display());
    let what = run.tense(&format!("turn {lit}"), &format!("turned {lit}"));
    let mut lines = vec![format!("{what} the light of the slot of {path} ({id}): {file}")];
    match (run, lit) {
        (Run::Dry, _) => lines.push(format!("it is {} now", light.lit)),
        (Run::Real, _) if light.lit != lit => {
            lines.push(format!("the enclosure still reports that it is {}", light.lit));
        }
        (Run::Real, Lit::On) => lines.push(format!("`localpool disk locate --off {id}` turns it off")),
        (Run::Real, Lit::Off) => {}
    }
    lines.push(format!("the disk is {}", marks(device)));
    lines
}

/// By what a person recognizes a disk.
fn marks(device: &Device) -> String {
    let raw = &device.raw;
    let named = |what: &str, text: &Option<String>| text.as_ref().map(|text| format!("{what} {text}"));
    let facts = [named("model", &raw.model), named("serial", &raw.serial), named("WWN", &raw.wwid)];
    let links = raw.links.iter().filter(|link| link.to_string_lossy().contains("/by-path/"));
    let links = links.map(|link| link.display().to_string());
    let place = (!raw.place.as_os_str().is_empty()).then(|| format!("at {}", raw.place.display()));
    let all: Vec<String> =
        facts.into_iter().flatten().chain([Size(raw.size).to_string()]).chain(links).chain(place).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests;
