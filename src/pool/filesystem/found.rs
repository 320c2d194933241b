//! What is at the path of a named filesystem: proven to be the one that is meant, and taken for a set.
//!
//! Takes in what the host finds at the path; nothing is looked up by the path again. The pool's folder on it is made here, and
//! what is left of one is swept away (docs/adr/0022).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::below::Below;
use super::mounted_carrier::MountedCarrier;
use crate::claim::Rule;
use crate::device::{Owner, label::Quota};
use crate::host::timeout::Late;
use crate::host::{FilesystemRoot, FsKind, Host, HostError, MountedFilesystem, QuotaState, chain};
use crate::pool::{
    config_file::ConfigFile,
    directory::{CONFIG, FOLDERS},
    disk_config::read_config,
    filesystem_claim::{CLAIM, FilesystemClaim, OWN_FOLDER},
    named_filesystem::NamedFilesystem,
    opening_error::OpeningError,
};

/// Read, write and enter for root; the others reach volumes by mounts of their own.
pub const OF_ROOT: u32 = 0o700;
/// How the name of a folder of ours begins that is not in its place yet, or any more. Something random follows.
const ASIDE: &str = ".localpool-aside-";

/// A named filesystem that is to be used.
#[derive(Clone)]
pub struct LookedFor {
    pub entry: NamedFilesystem,
    pub uuid: Uuid,
    /// The set that takes it, if none has.
    pub rule: Option<Arc<Rule>>,
    /// It was in the pool: then it has a claim.
    pub is_known: bool,
    /// A person released it.
    pub is_released: bool,
}

/// Finds the filesystem, and takes it if a set shall have it; `None`: nobody has taken it, and no set takes it. Once it is
/// late nothing is taken: by then nobody may name it.
pub fn find_mounted(
    host: &Arc<dyn Host>,
    owner: &Owner,
    wanted: LookedFor,
    late: &Late,
) -> Result<Option<MountedCarrier>, OpeningError> {
    let LookedFor { entry, uuid, rule, is_known, is_released } = wanted;
    let found = prove(host.as_ref(), &entry, uuid, owner)?;
    let claim = match (read_claim(&found.root, uuid, owner)?, rule) {
        (Some(claim), _) => claim,
        (None, _) if is_known => return Err(OpeningError::NoClaim),
        (None, None) => {
            // Stopped in the middle, a release has left some of it.
            if is_released {
                sweep_aside(&*found.root).map_err(OpeningError::system("looked at"))?;
            }
            return Ok(None);
        }
        (None, Some(rule)) => {
            let Some(quota) = rule.layout.quota() else { return Ok(None) };
            prove_limits(&*found.root, quota)?;
            if late.check().is_err() {
                return Ok(None);
            }
            let claim = FilesystemClaim::new(uuid, owner, rule.set.clone(), quota);
            take(&*found.root, &claim)?;
            tracing::info!(%uuid, path = %entry.path.display(), set = %rule.set.name, "a set has taken a named filesystem");
            claim
        }
    };
    Ok(Some(MountedCarrier::new(uuid, entry, claim)))
}

/// What is at the path of the entry, if it is the filesystem with that diskUUID.
pub fn prove(
    host: &dyn Host,
    entry: &NamedFilesystem,
    uuid: Uuid,
    owner: &Owner,
) -> Result<MountedFilesystem, OpeningError> {
    let found = host.mounts().mounted_filesystem(&entry.path).map_err(OpeningError::system("looked for"))?;
    let found = found.map_err(OpeningError::NotMounted)?;
    prove_config(&*found.root, uuid, owner)?;
    if found.is_of_system || found.mount.fs_type != FsKind::Xfs.name() {
        return Err(OpeningError::NotTaken(format!("its type is {}, and volumes need xfs", found.mount.fs_type)));
    }
    if found.mount.options.iter().any(|option| option == "ro") {
        return Err(OpeningError::NotTaken("it is mounted read-only".to_owned()));
    }
    Ok(found)
}

/// One on which no limit would hold gets no claim.
pub fn prove_limits(root: &dyn FilesystemRoot, quota: Quota) -> Result<(), OpeningError> {
    if quota == Quota::None {
        return Ok(());
    }
    match root.quota_state().map_err(OpeningError::system("looked at"))? {
        QuotaState::Enforced => Ok(()),
        off => Err(OpeningError::QuotaOff(off)),
    }
}

pub fn prove_config(root: &dyn FilesystemRoot, uuid: Uuid, owner: &Owner) -> Result<(), OpeningError> {
    let why = match read_config(root, owner) {
        ConfigFile::Ours(there) if there == uuid => return Ok(()),
        ConfigFile::Ours(there) => format!("it is of disk {there}, not of {uuid}"),
        ConfigFile::Absent | ConfigFile::Lost(_) | ConfigFile::NotWritten(_) => "it is not there".to_owned(),
        ConfigFile::Unusable(there) if there.file == CONFIG => chain(&there.why),
        ConfigFile::Unusable(there) => there.to_string(),
    };
    Err(OpeningError::Config { why })
}

pub fn read_claim(
    root: &Arc<dyn FilesystemRoot>,
    uuid: Uuid,
    owner: &Owner,
) -> Result<Option<FilesystemClaim>, OpeningError> {
    let text = Below::new(Arc::clone(root), OWN_FOLDER).read(Path::new(CLAIM)).map_err(OpeningError::system("read"))?;
    let parsed = text.map(|text| FilesystemClaim::parse(&text, uuid, owner)).transpose();
    parsed.map_err(|error| OpeningError::Claim { why: chain(&error) })
}

/// The folder is made aside, where nobody could have made it before, and comes to its name with all that is in it: so
/// only root can write there. What has that name already is not ours.
fn take(root: &dyn FilesystemRoot, claim: &FilesystemClaim) -> Result<(), OpeningError> {
    let failed = OpeningError::system("filled with its first folders");
    let names = root.names(Path::new("")).map_err(&failed)?;
    if names.iter().any(|name| name == OWN_FOLDER) {
        return Err(OpeningError::OthersFolder);
    }
    sweep_aside(root).map_err(&failed)?;
    let aside = aside();
    root.make_folder(&aside, OF_ROOT).map_err(&failed)?;
    for folder in FOLDERS {
        root.make_folder(&aside.join(folder), OF_ROOT).map_err(&failed)?;
    }
    root.write(&aside.join(CLAIM), &claim.text()).map_err(&failed)?;
    root.rename(&aside, Path::new(OWN_FOLDER)).map_err(&failed)
}

pub fn aside() -> PathBuf {
    format!("{ASIDE}{}", Uuid::new_v4().simple()).into()
}

fn is_aside(name: &str) -> bool {
    name.strip_prefix(ASIDE).is_some_and(|random| Uuid::try_parse(random).is_ok())
}

fn sweep_aside(root: &dyn FilesystemRoot) -> Result<(), HostError> {
    let names = root.names(Path::new(""))?;
    names.iter().filter(|name| is_aside(name)).for_each(|name| sweep(root, Path::new(name)));
    Ok(())
}

/// Removes what of such a folder is empty and ours. What somebody has put there keeps it.
pub fn sweep(root: &dyn FilesystemRoot, folder: &Path) {
    let emptied = FOLDERS.iter().try_for_each(|name| root.remove_empty(&folder.join(name)));
    let removed = emptied.and_then(|()| root.remove_file(&folder.join(CLAIM)));
    if let Err(error) = removed.and_then(|()| root.remove_empty(folder)) {
        tracing::warn!(folder = %folder.display(), error = %chain(&error), "an empty folder of localpool stays");
    }
}
