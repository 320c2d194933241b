//! Fake mkfs: a marker at the start of the device says what filesystem is there.

use std::path::Path;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::tree::Tree;
use super::{Inventory, Platter, locked};
use crate::host::error::HostError;
use crate::host::port::{Filesystems, FsIdentity, FsKind};

const MAGIC: &[u8; 8] = b"FAKEFS\0\0";

/// Makes and finds markers.
pub struct FakeFilesystems {
    inventory: Arc<Mutex<Inventory>>,
    failure: Mutex<Option<String>>,
}

impl FakeFilesystems {
    pub(super) fn new(inventory: Arc<Mutex<Inventory>>) -> Self {
        Self { inventory, failure: Mutex::default() }
    }

    pub(super) fn fail_mkfs(&self, message: Option<&str>) {
        *locked(&self.failure) = message.map(str::to_owned);
    }

    fn locate(&self, device: &Path) -> Result<(Arc<Platter>, u64), HostError> {
        let missing = || HostError::Unsupported { what: format!("{} is not there", device.display()) };
        let (platter, number) = locked(&self.inventory).resolve(device).ok_or_else(missing)?;
        let start = match number {
            0 => 0,
            _ => platter.mapping(number).ok_or_else(missing)?.start,
        };
        Ok((platter, start))
    }
}

/// The marker at `start`, if one is there.
pub(super) fn read_marker(platter: &Platter, start: u64) -> Option<FsIdentity> {
    let mut bytes = [0; 32];
    platter.peek(start, &mut bytes);
    if &bytes[..8] != MAGIC {
        return None;
    }
    let kind = String::from_utf8_lossy(&bytes[8..16]).trim_end_matches('\0').to_owned();
    Some(FsIdentity { kind, uuid: Uuid::from_slice(&bytes[16..]).ok() })
}

impl Filesystems for FakeFilesystems {
    fn make(&self, kind: FsKind, device: &Path, uuid: Uuid) -> Result<(), HostError> {
        if let Some(message) = locked(&self.failure).clone() {
            return Err(HostError::Command {
                program: "mkfs".to_owned(),
                status: "exit status 1".to_owned(),
                stderr: message,
            });
        }
        let (platter, start) = self.locate(device)?;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(MAGIC);
        let name = format!("{kind:?}").to_lowercase();
        bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
        bytes[16..].copy_from_slice(uuid.as_bytes());
        platter.poke(start, &bytes);
        platter.trees().insert(start, Tree::default());
        Ok(())
    }

    fn check(&self, _kind: FsKind, device: &Path) -> Result<(), HostError> {
        self.locate(device).map(drop)
    }

    fn grow(&self, _kind: FsKind, device: &Path, _mounted_at: Option<&Path>) -> Result<(), HostError> {
        self.locate(device).map(drop)
    }

    fn identify(&self, device: &Path) -> Result<Option<FsIdentity>, HostError> {
        let (platter, start) = self.locate(device)?;
        Ok(read_marker(&platter, start))
    }
}
