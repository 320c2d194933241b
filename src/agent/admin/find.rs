//! The device that a person means.

use std::path::Path;

use super::error::AdminError;
use crate::agent::reconciler::Reconciler;
use crate::device::{Believed, Device, DiskId, Snapshot, Verdict};
use crate::pool::{Member, Standing};

/// A device that is here, and the scan that saw it.
pub(super) struct FoundDevice {
    pub snapshot: Snapshot,
    pub device: Device,
    /// Its member, if it has one: a bare device's by its hardware, whatever it carries.
    pub member: Option<Member>,
}

impl Reconciler {
    pub(super) fn find(&mut self, text: &str) -> Result<FoundDevice, AdminError> {
        let snapshot = self.scan()?;
        let device = match &called(&snapshot, text)[..] {
            [] => return Err(AdminError::NoSuchDisk(text.to_owned())),
            [one] => Device::clone(one),
            several => {
                let paths = several.iter().map(|device| device.raw.path.clone()).collect();
                return Err(AdminError::Several { disk: text.to_owned(), paths });
            }
        };
        let bare = self.pool().bare_member_of(&snapshot, &device).map(Member::Bare);
        // A copy is not the member that has its id, nor is a disk of another node.
        let is_it = device.verdict == Verdict::Ours && device.believed == Believed::Yes;
        let labelled = self.pool().member(&device.id).filter(|member| is_it && member.labelled().is_some());
        let member = bare.or(labelled);
        Ok(FoundDevice { snapshot, device, member })
    }

    pub(super) fn is_missing(&self, text: &str) -> bool {
        self.pool().disk_views().iter().any(|disk| disk.id.as_str() == text && disk.standing == Standing::Missing)
    }
}

/// The devices that a person calls `text`: by a path or a link before an id, which several may have. Of these, the one
/// that may be used.
fn called<'s>(snapshot: &'s Snapshot, text: &str) -> Vec<&'s Device> {
    let path = Path::new(text);
    let is_there = |device: &&Device| device.raw.path == path || device.raw.links.iter().any(|link| link == path);
    let there: Vec<&Device> = snapshot.devices.iter().filter(is_there).collect();
    if !there.is_empty() {
        return there;
    }
    let named: Vec<&Device> = snapshot.devices.iter().filter(|device| device.id.as_str() == text).collect();
    match named.iter().find(|device| device.verdict == Verdict::Ours && device.believed == Believed::Yes) {
        Some(used) => vec![used],
        None => named,
    }
}

/// Whether a device is the disk of that id, labelled or bare.
pub(super) fn is_called(snapshot: &Snapshot, device: &Device, disk: &DiskId) -> bool {
    device.id == *disk || snapshot.bare_id(device) == *disk
}
