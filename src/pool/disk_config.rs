//! The configuration file of a filesystem that an administrator mounted: read, and written once.
//!
//! Takes in the proven root of the filesystem: no path leads to the folder below a mount point. A file that is there is
//! never written over: the new one is written aside, with fsync, and moved to its name only if nothing has that.

use std::path::Path;

use uuid::Uuid;

use super::config_file::{ConfigFile, ConfigProblem, UnusableFile};
use super::directory::{CONFIG, FilesystemConfig};
use super::filesystem_claim::{CLAIM, FilesystemClaim, OWN_FOLDER};
use crate::device::Owner;
use crate::host::timeout::Late;
use crate::host::{FilesystemRoot, HostError};

/// Where the new file is until it has its name. One that an earlier process left is written over.
const ASIDE: &str = "localpool-disk.cfg.begun";

/// What the file says to this owner.
pub fn read_config(root: &dyn FilesystemRoot, owner: &Owner) -> ConfigFile {
    match root.read(Path::new(CONFIG)) {
        Ok(None) => without_config(root, owner),
        Ok(Some(text)) => match FilesystemConfig::disk_uuid_of(&text, owner) {
            Ok(uuid) => ConfigFile::Ours(uuid),
            Err(error) => unusable(CONFIG, ConfigProblem::Refused(error.into())),
        },
        Err(error) => unusable(CONFIG, ConfigProblem::Unread(error.into())),
    }
}

/// What one without the file is, by the claim of a pool on it. Only without a claim it is nobody's: one that cannot be
/// read, or is of another node, is there for volumes.
fn without_config(root: &dyn FilesystemRoot, owner: &Owner) -> ConfigFile {
    const FILE: &str = "it has no localpool-disk.cfg, and localpool/claim.json";
    match root.read(&Path::new(OWN_FOLDER).join(CLAIM)) {
        Ok(None) => ConfigFile::Absent,
        Ok(Some(text)) => match FilesystemClaim::disk_uuid_of(&text, owner) {
            Ok(uuid) => ConfigFile::Lost(uuid),
            Err(error) => unusable(FILE, ConfigProblem::Refused(error.into())),
        },
        Err(error) => unusable(FILE, ConfigProblem::Unread(error.into())),
    }
}

fn unusable(file: &'static str, why: ConfigProblem) -> ConfigFile {
    ConfigFile::Unusable(UnusableFile { file, why })
}

/// Gives a filesystem without such a file this diskUUID; gives what the file says then. Once it is late it does not begin
/// to write: the name may be removed by then.
pub fn begin_config(root: &dyn FilesystemRoot, uuid: Uuid, owner: &Owner, late: &Late) -> ConfigFile {
    match read_config(root, owner) {
        ConfigFile::Absent if late.check().is_ok() => {}
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
