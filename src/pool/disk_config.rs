//! The configuration file of a filesystem that an administrator mounted: read, and written once.
//!
//! Takes in the proven root of the filesystem: no path leads to the folder below a mount point. A file that is there is
//! never written over: the new one is written aside, with fsync, and moved to its name only if nothing has that.

use std::path::Path;

use uuid::Uuid;

use super::directory::{CONFIG, FilesystemConfig};
use super::filesystem_claim::{CLAIM, FilesystemClaim, OWN_FOLDER};
use super::named_filesystem::{ConfigFile, ConfigProblem};
use crate::device::Owner;
use crate::host::timeout::Late;
use crate::host::{FilesystemRoot, HostError};

/// Where the new file is until it has its name. One that an earlier process left is written over.
const ASIDE: &str = "localpool-disk.cfg.begun";

/// What the file says to this owner.
pub fn read_config(root: &dyn FilesystemRoot, owner: &Owner) -> ConfigFile {
    match root.read(Path::new(CONFIG)) {
        Ok(None) => lost(root, owner).map_or(ConfigFile::Absent, ConfigFile::Lost),
        Ok(Some(text)) => match FilesystemConfig::disk_uuid_of(&text, owner) {
            Ok(uuid) => ConfigFile::Ours(uuid),
            Err(error) => ConfigFile::Unusable(ConfigProblem::Refused(error.into())),
        },
        Err(error) => ConfigFile::Unusable(ConfigProblem::Unread(error.into())),
    }
}

/// Which filesystem of this owner one without the file is, as the claim of the pool on it says.
fn lost(root: &dyn FilesystemRoot, owner: &Owner) -> Option<Uuid> {
    let text = root.read(&Path::new(OWN_FOLDER).join(CLAIM)).ok()??;
    FilesystemClaim::disk_uuid_of(&text, owner).ok()
}

/// Gives a filesystem without such a file this diskUUID; gives what the file says then. Once it is late it does not begin
/// to write: the name may be removed by then.
pub fn begin_config(root: &dyn FilesystemRoot, uuid: Uuid, owner: &Owner, late: &Late) -> ConfigFile {
    match read_config(root, owner) {
        ConfigFile::Absent | ConfigFile::Lost(_) if late.check().is_ok() => {}
        there => return there,
    }
    match write(root, &FilesystemConfig::new(uuid, owner)) {
        Ok(()) => read_config(root, owner),
        Err(error) => ConfigFile::NotWritten(error.into()),
    }
}

fn write(root: &dyn FilesystemRoot, config: &FilesystemConfig) -> Result<(), HostError> {
    root.write(Path::new(ASIDE), &config.text())?;
    root.rename(Path::new(ASIDE), Path::new(CONFIG))
}
