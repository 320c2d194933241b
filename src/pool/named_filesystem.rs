//! Filesystems that an administrator mounted and named: whether what is mounted at a path is what had that name before.
//! Pure: takes in what was found at all paths, gives out a judgement of each name.
//!
//! The rules are those of Longhorn's proposal for a diskUUID. What it decides by the order of disks is not decided here:
//! of two that are alike and new, neither is used. A number of the kernel says which names lead to one filesystem now,
//! and never which filesystem it is: that is the diskUUID alone.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};

use uuid::Uuid;

use super::config_file::{ConfigFile, UnusableFile};
use super::directory::CONFIG;
use crate::claim::Rule;
use crate::device::FilesystemName;
use crate::device::label::Quota;
use crate::host::{DevNo, FsKind, HostError, NoMountPoint, QuotaState, SharedError, chain};

/// What a person wrote about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFilesystem {
    pub name: FilesystemName,
    pub path: PathBuf,
    pub quota: Quota,
    /// It may take new volumes.
    pub allows_scheduling: bool,
    /// The words by which sets choose it.
    pub tags: BTreeSet<String>,
    /// Bytes that are kept free of volumes; `None`: as its set says.
    pub reserved: Option<u64>,
    /// Fields beside the path that say nothing of such a filesystem.
    pub stray_fields: Vec<&'static str>,
}

/// What a look at a path has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesystemLook {
    /// Nobody knows yet.
    Pending,
    /// No answer for this many seconds.
    Silent(u64),
    /// It could not be looked at.
    Failed(SharedError<HostError>),
    Nothing(NoMountPoint),
    Found(FilesystemFacts),
}

/// What is mounted at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemFacts {
    /// All mounts of one filesystem have the same one, as long as it is mounted.
    pub device: DevNo,
    /// May be another one after the next mount.
    pub fsid: u64,
    /// Its type, as mountinfo has it.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    pub is_read_only: bool,
    /// It is no administrator's to give.
    pub whose: Option<Whose>,
    /// An error that says why the kernel does not say it; `None`: no filesystem of its type has project quota here.
    pub quota: Option<Result<QuotaState, SharedError<HostError>>>,
    pub config: ConfigFile,
}

/// Whose a filesystem is that is no administrator's to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Whose {
    #[error("it is the filesystem of the node's `/`")]
    System,
    #[error("it is a filesystem or a volume of localpool itself")]
    Localpool,
}

/// Why nothing would keep volumes within their sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQuota {
    #[error("{0} has no project quota that localpool uses; xfs has")]
    Kind(String),
    #[error("{}", chain(.0))]
    Unread(SharedError<HostError>),
    #[error("the filesystem {0}")]
    Off(&'static str),
}

/// A name, the diskUUID that is known of it, and what is at its path.
#[derive(Clone, Copy, Debug)]
pub struct LookedAt<'a> {
    pub disk: &'a NamedFilesystem,
    pub known: Option<Uuid>,
    pub look: &'a FilesystemLook,
}

/// What follows for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesystemVerdict {
    /// Too little is known: what was said before stays.
    Wait,
    /// It is new: it gets a diskUUID, in a file that is not there yet.
    Begin,
    /// `uuid`: the diskUUID that the name has from now on. `problem`: why it is not ready.
    Judged { uuid: Option<Uuid>, problem: Option<FilesystemProblem> },
}

/// Why a path is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    #[error("`/` is the node's own filesystem: mount another one, and name its mount point")]
    Root,
    #[error("its path {0:?} has to begin with `/`, without `.` and `..`")]
    Unclean(PathBuf),
    #[error("beside `path` there must be no {0} (`allowScheduling: false` keeps new volumes away)")]
    Stray(String),
}

/// Why a named filesystem is not ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesystemProblem {
    #[error(transparent)]
    Entry(EntryProblem),
    #[error("at its path there was no answer for more than {0} s")]
    Silent(u64),
    #[error("its path cannot be looked at")]
    Failed(#[source] SharedError<HostError>),
    #[error("at its path {why}{}; nothing is written there before a filesystem is", of_known(*.known))]
    NotMounted { why: NoMountPoint, known: Option<Uuid> },
    #[error("{0}: name one that you made for volumes")]
    Whose(Whose),
    #[error("its type is {0}, and localpool uses xfs, ext4 and btrfs")]
    Kind(String),
    #[error(
        "the filesystem with diskUUID {found} is mounted there, and this name has {known}: mount that one. {}",
        WAY_OUT
    )]
    WrongDisk { known: Uuid, found: Uuid },
    #[error(
        "the filesystem that is mounted there has no {CONFIG}, and that of this name has one, with diskUUID {known}: \
         mount it, or put the file back. Nothing is written there. {}",
        WAY_OUT
    )]
    ConfigMissing { known: Uuid },
    #[error(
        "its filesystem is mounted there, and has lost {CONFIG} with diskUUID {0}: put the file back. Its volumes are kept, and \
         nothing is written there"
    )]
    ConfigLost(Uuid),
    #[error("{0}")]
    ConfigUnusable(UnusableFile),
    #[error("{CONFIG} could not be written")]
    ConfigNotWritten(#[source] SharedError<HostError>),
    #[error("duplicate UUID: {} {uuid}, too; give one of them another filesystem, or remove its entry", have(.others))]
    DuplicateUuid { uuid: Uuid, others: Vec<FilesystemName> },
    #[error("it is the same filesystem as that of {}: remove one of the entries", both(.existing, .new))]
    DuplicateFilesystem { existing: Vec<FilesystemName>, new: Vec<FilesystemName> },
    #[error("it is mounted read-only")]
    ReadOnly,
    #[error("nothing would keep its volumes within their sizes: {0}. With `quota: none` nothing does, and it is used")]
    NoQuota(NoQuota),
}

/// Why there is nothing at the path of a default disk that it could be named after.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDefaultDisk {
    #[error(transparent)]
    Entry(EntryProblem),
    #[error(transparent)]
    Whose(Whose),
    #[error(transparent)]
    NotMounted(NoMountPoint),
    #[error("at its path there was no answer for more than {0} s")]
    Silent(u64),
    #[error(transparent)]
    Failed(SharedError<HostError>),
}

/// Goes on after a filesystem that is another one than before.
const WAY_OUT: &str = "If the name is for another filesystem now, remove its entry, and add it again";

fn of_known(known: Option<Uuid>) -> String {
    known.map(|known| format!(", and the filesystem with diskUUID {known} was: mount it")).unwrap_or_default()
}

fn listed(names: &[FilesystemName]) -> String {
    names.iter().map(FilesystemName::as_str).collect::<Vec<_>>().join(", ")
}

fn have(names: &[FilesystemName]) -> String {
    format!("{} {}", listed(names), if names.len() == 1 { "has" } else { "have" })
}

fn both(existing: &[FilesystemName], new: &[FilesystemName]) -> String {
    match existing {
        [] => format!("{}, and all of them are new", listed(new)),
        existing => format!("the existing disk {}", listed(existing)),
    }
}

impl NamedFilesystem {
    /// Why nobody looks at its path.
    pub fn refused(&self) -> Option<EntryProblem> {
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !self.path.is_absolute() || !self.path.components().all(is_plain) {
            return Some(EntryProblem::Unclean(self.path.clone()));
        }
        if self.path.parent().is_none() {
            return Some(EntryProblem::Root);
        }
        (!self.stray_fields.is_empty()).then(|| EntryProblem::Stray(self.stray_fields.join(" and ")))
    }
}

impl NamedFilesystem {
    /// Whether a set takes it. One whose entry does without quota is of no use to a set that has limits.
    pub fn is_chosen_by(&self, rule: &Rule) -> bool {
        let has_quota = self.quota == Quota::Project || rule.layout.quota() == Some(Quota::None);
        has_quota && rule.filesystems.as_ref().is_some_and(|choice| choice.takes(&self.tags))
    }
}

impl FilesystemFacts {
    /// Why it takes no volumes, whichever it is.
    fn unfit(&self, quota: Quota) -> Option<FilesystemProblem> {
        if self.is_read_only {
            return Some(FilesystemProblem::ReadOnly);
        }
        let why = match (quota, &self.quota) {
            (Quota::None, _) => return None,
            (Quota::Project, None) => NoQuota::Kind(self.kind.clone()),
            (Quota::Project, Some(Err(error))) => NoQuota::Unread(error.clone()),
            (Quota::Project, Some(Ok(state))) => NoQuota::Off(state.why_off()?),
        };
        Some(FilesystemProblem::NoQuota(why))
    }
}

impl FilesystemLook {
    /// The number of the filesystem that is there, if it may be a default disk; `None`: nobody knows yet.
    pub fn fsid(self) -> Option<Result<u64, NoDefaultDisk>> {
        match self {
            Self::Pending => None,
            Self::Found(FilesystemFacts { whose: Some(whose), .. }) => Some(Err(NoDefaultDisk::Whose(whose))),
            Self::Found(found) => Some(Ok(found.fsid)),
            Self::Nothing(why) => Some(Err(NoDefaultDisk::NotMounted(why))),
            Self::Silent(seconds) => Some(Err(NoDefaultDisk::Silent(seconds))),
            Self::Failed(error) => Some(Err(NoDefaultDisk::Failed(error))),
        }
    }
}

impl FilesystemVerdict {
    fn not_ready(uuid: Option<Uuid>, problem: FilesystemProblem) -> Self {
        Self::Judged { uuid, problem: Some(problem) }
    }
}

impl<'a> LookedAt<'a> {
    fn found(&self) -> Option<&'a FilesystemFacts> {
        match self.look {
            FilesystemLook::Found(found) if self.disk.refused().is_none() => Some(found),
            _ => None,
        }
    }

    /// Which diskUUID it has, or would have.
    fn has(&self, uuid: Uuid) -> bool {
        match self.known {
            Some(known) => known == uuid,
            None => self
                .found()
                .is_some_and(|found| [ConfigFile::Ours(uuid), ConfigFile::Lost(uuid)].contains(&found.config)),
        }
    }

    /// It is new, and may turn out to be on any filesystem.
    fn is_open(&self) -> bool {
        self.known.is_none() && *self.look == FilesystemLook::Pending && self.disk.refused().is_none()
    }
}

/// In the order of `all`, whose names differ.
pub fn judge(all: &[LookedAt<'_>]) -> Vec<FilesystemVerdict> {
    all.iter().map(|one| verdict(one, all)).collect()
}

fn verdict(one: &LookedAt<'_>, all: &[LookedAt<'_>]) -> FilesystemVerdict {
    let refused = |problem| FilesystemVerdict::not_ready(one.known, problem);
    if let Some(problem) = one.disk.refused() {
        return refused(FilesystemProblem::Entry(problem));
    }
    let found = match one.look {
        FilesystemLook::Pending => return FilesystemVerdict::Wait,
        FilesystemLook::Silent(seconds) => return refused(FilesystemProblem::Silent(*seconds)),
        FilesystemLook::Failed(error) => return refused(FilesystemProblem::Failed(error.clone())),
        FilesystemLook::Nothing(why) => {
            return refused(FilesystemProblem::NotMounted { why: *why, known: one.known });
        }
        FilesystemLook::Found(found) => found,
    };
    if let Some(whose) = found.whose {
        return refused(FilesystemProblem::Whose(whose));
    }
    if ![FsKind::Xfs, FsKind::Ext4, FsKind::Btrfs].iter().any(|kind| kind.name() == found.kind) {
        return refused(FilesystemProblem::Kind(found.kind.clone()));
    }
    let others: Vec<&LookedAt<'_>> = all.iter().filter(|other| other.disk.name != one.disk.name).collect();
    match one.known {
        Some(known) => of_existing(one, found, known, &others),
        None => of_new(one, found, &others),
    }
}

/// A name that has a diskUUID: the file has to say it again.
fn of_existing(
    one: &LookedAt<'_>,
    found: &FilesystemFacts,
    known: Uuid,
    others: &[&LookedAt<'_>],
) -> FilesystemVerdict {
    let problem = match &found.config {
        ConfigFile::Ours(uuid) if *uuid != known => Some(FilesystemProblem::WrongDisk { known, found: *uuid }),
        ConfigFile::Lost(uuid) if *uuid == known => Some(FilesystemProblem::ConfigLost(known)),
        ConfigFile::Absent | ConfigFile::Lost(_) | ConfigFile::NotWritten(_) => {
            Some(FilesystemProblem::ConfigMissing { known })
        }
        ConfigFile::Unusable(why) => Some(FilesystemProblem::ConfigUnusable(why.clone())),
        // Nobody else can say which of two that have it is meant.
        ConfigFile::Ours(_) => duplicate(known, others, |other| other.known == Some(known)),
    };
    FilesystemVerdict::Judged { uuid: Some(known), problem: problem.or_else(|| found.unfit(one.disk.quota)) }
}

/// A name that has none: the file may have one, or it gets one.
fn of_new(one: &LookedAt<'_>, found: &FilesystemFacts, others: &[&LookedAt<'_>]) -> FilesystemVerdict {
    let refused = |problem| FilesystemVerdict::not_ready(None, problem);
    let is_beside = |other: &&&LookedAt<'_>| other.found().is_some_and(|beside| beside.device == found.device);
    let (existing, new): (Vec<_>, Vec<_>) = others.iter().filter(is_beside).partition(|other| other.known.is_some());
    if !existing.is_empty() || !new.is_empty() {
        let names = |all: Vec<&&LookedAt<'_>>| all.iter().map(|other| other.disk.name.clone()).collect();
        return refused(FilesystemProblem::DuplicateFilesystem { existing: names(existing), new: names(new) });
    }
    match &found.config {
        ConfigFile::Ours(uuid) => match duplicate(*uuid, others, |other| other.has(*uuid)) {
            Some(problem) => refused(problem),
            None => FilesystemVerdict::Judged { uuid: Some(*uuid), problem: found.unfit(one.disk.quota) },
        },
        // Another diskUUID would hide its volumes for good.
        ConfigFile::Lost(uuid) => match duplicate(*uuid, others, |other| other.has(*uuid)) {
            Some(problem) => refused(problem),
            None => FilesystemVerdict::not_ready(Some(*uuid), FilesystemProblem::ConfigLost(*uuid)),
        },
        ConfigFile::Unusable(why) => refused(FilesystemProblem::ConfigUnusable(why.clone())),
        ConfigFile::NotWritten(error) => refused(FilesystemProblem::ConfigNotWritten(error.clone())),
        ConfigFile::Absent => match found.unfit(one.disk.quota) {
            Some(problem) => refused(problem),
            // Another new name may lead to the same filesystem.
            None if others.iter().any(|other| other.is_open()) => FilesystemVerdict::Wait,
            None => FilesystemVerdict::Begin,
        },
    }
}

fn duplicate(uuid: Uuid, others: &[&LookedAt<'_>], has: impl Fn(&LookedAt<'_>) -> bool) -> Option<FilesystemProblem> {
    let others: Vec<_> = others.iter().filter(|other| has(other)).map(|other| other.disk.name.clone()).collect();
    (!others.is_empty()).then_some(FilesystemProblem::DuplicateUuid { uuid, others })
}

#[cfg(test)]
mod tests;
