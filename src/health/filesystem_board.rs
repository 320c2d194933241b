//! The filesystems that an administrator named on this node, shared by whoever looks at them and whoever reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::device::{FilesystemName, SetName};
use crate::host::DevNo;
use crate::pool::{FilesystemProblem, NamedFilesystem, NoDefaultDisk};

/// How the name of a default disk begins; the number of its filesystem follows.
pub const DEFAULT_DISK: &str = "default-disk-";

/// What is named, what is known of it, and what was found.
#[derive(Clone, Debug, Default)]
pub struct FilesystemBoard(Arc<Mutex<NamedFilesystems>>);

#[derive(Debug, Default)]
struct NamedFilesystems {
    /// Somebody has said what is named since this process began.
    is_named: bool,
    named: BTreeMap<FilesystemName, NamedFilesystem>,
    /// Those that the node asks for, by path. They are named after what is there when it is first seen.
    defaults: BTreeMap<PathBuf, NamedFilesystem>,
    /// The names that these have got. A name stays, whatever number the kernel gives the filesystem later.
    given: BTreeMap<PathBuf, FilesystemName>,
    /// Why one of them has no name yet.
    unnamed: BTreeMap<PathBuf, NoDefaultDisk>,
    /// The diskUUID of each name that has one.
    known: BTreeMap<FilesystemName, Uuid>,
    /// Names that were removed since this process began. A status says their diskUUID for a while after that, and also
    /// when a person has added them again: for a filesystem that is another one now.
    removed: BTreeSet<FilesystemName>,
    /// What the pool makes of them.
    uses: BTreeMap<FilesystemName, FilesystemUse>,
    /// Of those that were judged.
    reports: BTreeMap<FilesystemName, FilesystemReport>,
}

/// What a person wants to be looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedFilesystems {
    pub named: Vec<NamedFilesystem>,
    /// Those without a name of a person; whatever name they have does not count. `None`: nobody can read what the node
    /// asks for, and what it asked for before stays.
    pub defaults: Option<Vec<NamedFilesystem>>,
}

/// What an earlier process has written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierFilesystems {
    pub known: BTreeMap<FilesystemName, Uuid>,
    /// The names of default disks, by path.
    pub given: BTreeMap<PathBuf, FilesystemName>,
}

/// What was found of a named filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemReport {
    /// The entry that was judged.
    pub disk: NamedFilesystem,
    pub uuid: Option<Uuid>,
    /// Its type and its size in bytes; `None`: none was found.
    pub filesystem: Option<(String, u64)>,
    /// What is mounted there now.
    pub device: Option<DevNo>,
    /// Why it is not ready.
    pub problem: Option<FilesystemProblem>,
}

/// What the pool makes of one that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FilesystemUse {
    /// No set of the node takes it.
    #[default]
    NotChosen,
    /// It is of this set, which has volumes there.
    Taken(SetName),
    /// A person gave it up while it was away.
    GivenUp,
    Released,
    /// It cannot be used: why.
    Refused(String),
}

impl NamedFilesystems {
    /// All that have a name.
    fn all(&self) -> impl Iterator<Item = NamedFilesystem> + '_ {
        let default = |disk: &NamedFilesystem| {
            let name = self.given.get(&disk.path)?.clone();
            Some(NamedFilesystem { name, ..disk.clone() })
        };
        self.named.values().cloned().chain(self.defaults.values().filter_map(default))
    }

    fn names(&self) -> BTreeSet<FilesystemName> {
        self.named.keys().chain(self.given.values()).cloned().collect()
    }
}

impl FilesystemBoard {
    /// On which nobody names any.
    pub fn of_none() -> Self {
        let board = Self::default();
        board.lock().is_named = true;
        board
    }

    fn lock(&self) -> MutexGuard<'_, NamedFilesystems> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is named from now on. What this process knows counts more than what an earlier one has written, and that a
    /// name was removed is known, too. Gives whether anything is to be looked at again.
    pub fn name(&self, wanted: WantedFilesystems, earlier: &EarlierFilesystems) -> bool {
        let WantedFilesystems { named, defaults } = wanted;
        let mut all = self.lock();
        let named: BTreeMap<_, _> = named.into_iter().map(|disk| (disk.name.clone(), disk)).collect();
        // What a person has named is no default disk any more.
        let is_named = |path: &Path| named.values().any(|disk| disk.path == path);
        let defaults = defaults.unwrap_or_else(|| all.defaults.values().cloned().collect()).into_iter();
        let defaults: BTreeMap<_, _> =
            defaults.filter(|disk| !is_named(&disk.path)).map(|disk| (disk.path.clone(), disk)).collect();
        let is_first = !std::mem::replace(&mut all.is_named, true);
        let mut changed = is_first || all.named != named || all.defaults != defaults;
        let before = all.names();
        for (path, name) in earlier.given.iter().filter(|(_, name)| !all.removed.contains(*name)).collect::<Vec<_>>() {
            all.given.entry(path.clone()).or_insert_with(|| name.clone());
        }
        all.given.retain(|path, name| defaults.contains_key(path) && !named.contains_key(name));
        all.unnamed.retain(|path, _| defaults.contains_key(path));
        (all.named, all.defaults) = (named, defaults);
        let names = all.names();
        // A default disk of an earlier process has no name here before the node asks for it.
        let is_removed = |name: &&FilesystemName| !names.contains(*name);
        let of_persons = earlier.known.keys().filter(|name| !name.as_str().starts_with(DEFAULT_DISK));
        all.removed.extend(before.iter().chain(of_persons).filter(is_removed).cloned());
        all.known.retain(|name, _| names.contains(name));
        all.reports.retain(|name, _| names.contains(name));
        all.uses.retain(|name, _| names.contains(name));
        let counts = |name: &FilesystemName| names.contains(name) && !all.removed.contains(name);
        let known: Vec<_> = earlier.known.iter().filter(|(name, _)| counts(name)).collect();
        for (name, uuid) in known {
            changed |= !all.known.contains_key(name);
            all.known.entry(name.clone()).or_insert(*uuid);
        }
        changed
    }

    /// Whether it is known by now what is named.
    pub fn is_named(&self) -> bool {
        self.lock().is_named
    }

    /// Whether the name was removed since this process began: what an earlier status says of it is of another filesystem.
    pub fn was_removed(&self, name: &FilesystemName) -> bool {
        self.lock().removed.contains(name)
    }

    pub fn named(&self) -> Vec<(NamedFilesystem, Option<Uuid>)> {
        let all = self.lock();
        all.all().map(|disk| (disk.clone(), all.known.get(&disk.name).copied())).collect()
    }

    /// Default disks that have no name yet.
    pub fn unnamed(&self) -> Vec<NamedFilesystem> {
        let all = self.lock();
        all.defaults.values().filter(|disk| !all.given.contains_key(&disk.path)).cloned().collect()
    }

    /// Why default disks have no name, as far as somebody has looked, by path.
    pub fn why_unnamed(&self) -> BTreeMap<PathBuf, NoDefaultDisk> {
        self.lock().unnamed.clone()
    }

    /// The filesystem with this number is at the path of a default disk: so it gets its name, for good. `Err`: why it
    /// gets none. Gives whether that is news.
    pub fn name_default(&self, path: &Path, found: Result<u64, NoDefaultDisk>) -> bool {
        let mut all = self.lock();
        if !all.defaults.contains_key(path) || all.given.contains_key(path) {
            return false;
        }
        match found {
            Ok(fsid) => {
                // Two paths may lead to one filesystem, and a person may have used the name.
                let plain = format!("{DEFAULT_DISK}{fsid:x}");
                let others = (2..).map(|number: u32| format!("{plain}-{number}"));
                let names = all.names();
                let mut free =
                    std::iter::once(plain.clone()).chain(others).filter(|name| !names.contains(name.as_str()));
                let name = free.next().unwrap_or_else(|| plain.clone());
                all.unnamed.remove(path);
                all.given.insert(path.to_owned(), name.into());
                true
            }
            Err(why) => all.unnamed.insert(path.to_owned(), why.clone()) != Some(why),
        }
    }

    /// Takes in what was found of some; gives whether that changed anything.
    pub fn update(&self, found: Vec<FilesystemReport>) -> bool {
        let mut all = self.lock();
        let mut changed = false;
        for report in found {
            let name = report.disk.name.clone();
            // Somebody may have changed the entry meanwhile.
            if all.all().all(|disk| disk != report.disk) {
                continue;
            }
            if let Some(uuid) = report.uuid {
                all.known.insert(name.clone(), uuid);
            }
            changed |= all.reports.get(&name) != Some(&report);
            all.reports.insert(name, report);
        }
        changed
    }

    /// What the pool makes of it from now on; gives whether that is news.
    pub fn set_use(&self, name: &FilesystemName, of: FilesystemUse) -> bool {
        let mut all = self.lock();
        all.names().contains(name) && all.uses.insert(name.clone(), of.clone()) != Some(of)
    }

    pub fn use_of(&self, name: &FilesystemName) -> FilesystemUse {
        self.lock().uses.get(name).cloned().unwrap_or_default()
    }

    pub fn is_refused(&self, name: &FilesystemName) -> bool {
        matches!(self.use_of(name), FilesystemUse::Refused(_))
    }

    /// What is named, and what was found of it; `None`: nobody has judged the name since this process began.
    pub fn reports(&self) -> Vec<(NamedFilesystem, Option<FilesystemReport>)> {
        let all = self.lock();
        all.all().map(|disk| (disk.clone(), all.reports.get(&disk.name).cloned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::label::Quota;
    use crate::host::NoMountPoint;

    fn disk(name: &str, path: &str) -> NamedFilesystem {
        NamedFilesystem {
            name: name.into(),
            path: path.into(),
            quota: Quota::None,
            allows_scheduling: true,
            tags: Default::default(),
            reserved: None,
            stray_fields: Vec::new(),
        }
    }

    fn report(disk: &NamedFilesystem, uuid: u128) -> FilesystemReport {
        let uuid = Some(Uuid::from_u128(uuid));
        FilesystemReport { disk: disk.clone(), uuid, filesystem: None, device: None, problem: None }
    }

    fn known(board: &FilesystemBoard) -> Vec<Option<u128>> {
        board.named().into_iter().map(|(_, known)| known.map(|uuid| uuid.as_u128())).collect()
    }

    fn name(board: &FilesystemBoard, named: &[NamedFilesystem], known: &[(&str, u128)]) -> bool {
        let known = known.iter().map(|(name, uuid)| ((*name).into(), Uuid::from_u128(*uuid))).collect();
        let wanted = WantedFilesystems { named: named.to_vec(), defaults: Some(Vec::new()) };
        board.name(wanted, &EarlierFilesystems { known, ..EarlierFilesystems::default() })
    }

    #[test]
    fn a_disk_uuid_is_known_until_the_name_is_gone_whatever_an_older_status_says() {
        let board = FilesystemBoard::default();
        let (a, b) = (disk("a", "/mnt/a"), disk("b", "/mnt/b"));
        let status = |uuid| [("a", uuid), ("x", 9)];
        assert!(name(&board, &[a.clone(), b.clone()], &status(1)));
        assert_eq!(known(&board), [Some(1), None]);
        assert!(board.update(vec![report(&b, 2)]) && !board.update(vec![report(&b, 2)]));
        assert!(!name(&board, &[a.clone(), b.clone()], &status(7)));
        assert_eq!(known(&board), [Some(1), Some(2)]);
        let elsewhere = disk("b", "/mnt/c");
        assert!(name(&board, &[a.clone(), elsewhere.clone()], &[]));
        assert_eq!(known(&board), [Some(1), Some(2)], "another path is no other disk");
        assert!(!board.update(vec![report(&b, 3)]), "it was of the path of before");
        assert!(name(&board, std::slice::from_ref(&a), &[]));
        assert!(name(&board, &[a, elsewhere], &[]));
        assert_eq!(known(&board), [Some(1), None], "it was removed, and is new");
    }

    #[test]
    fn a_name_that_was_removed_and_added_again_is_new_although_the_status_of_before_still_says_its_disk_uuid() {
        let board = FilesystemBoard::default();
        let a = [disk("a", "/mnt/a")];
        let status = [("a", 1), ("gone", 9)];
        name(&board, &a, &status);
        assert_eq!(known(&board), [Some(1)]);
        // Both events come before the status is written again.
        assert!(name(&board, &[], &status));
        assert!(name(&board, &a, &status));
        assert_eq!(known(&board), [None]);
        assert!(board.update(vec![report(&a[0], 2)]));
        assert!(!name(&board, &a, &status));
        assert_eq!(known(&board), [Some(2)]);
        // It was removed before this process began.
        assert!(name(&board, &[disk("gone", "/mnt/a")], &status));
        assert_eq!(known(&board), [None]);
    }

    #[test]
    fn a_default_disk_that_was_removed_gets_a_new_name_and_one_that_is_asked_for_later_keeps_that_of_before() {
        let board = FilesystemBoard::default();
        let path = Path::new("/mnt/a");
        let wanted = |paths: &[&str]| WantedFilesystems {
            named: Vec::new(),
            defaults: Some(paths.iter().map(|path| disk("", path)).collect()),
        };
        let earlier = EarlierFilesystems {
            known: BTreeMap::from([("default-disk-1".into(), Uuid::from_u128(1))]),
            given: BTreeMap::from([(path.to_owned(), "default-disk-1".into())]),
        };
        board.name(WantedFilesystems { named: Vec::new(), defaults: None }, &earlier);
        board.name(wanted(&["/mnt/a"]), &earlier);
        assert_eq!((names(&board), known(&board)), (vec!["default-disk-1 /mnt/a".to_owned()], vec![Some(1)]));
        board.name(wanted(&[]), &earlier);
        board.name(wanted(&["/mnt/a"]), &earlier);
        assert_eq!(names(&board), [""; 0]);
        assert!(board.name_default(path, Ok(1)));
        assert_eq!(known(&board), [None], "also if the number is the same");
    }

    fn names(board: &FilesystemBoard) -> Vec<String> {
        board.named().into_iter().map(|(disk, _)| format!("{} {}", disk.name, disk.path.display())).collect()
    }

    #[test]
    fn a_default_disk_is_named_after_its_fsid_once_and_the_name_stays_also_after_a_restart() {
        let board = FilesystemBoard::default();
        let wanted = |paths: &[&str]| WantedFilesystems {
            named: vec![disk("mine", "/mnt/mine")],
            defaults: Some(paths.iter().map(|path| disk("", path)).collect()),
        };
        let earlier = EarlierFilesystems::default();
        assert!(board.name(wanted(&["/mnt/a", "/mnt/b", "/mnt/mine"]), &earlier));
        assert_eq!(names(&board), ["mine /mnt/mine"], "what a person has named is no default disk");
        let [a, b] = ["/mnt/a", "/mnt/b"].map(Path::new);
        let nothing = || Err(NoDefaultDisk::NotMounted(NoMountPoint::NotMounted));
        assert!(board.name_default(a, nothing()));
        assert!(!board.name_default(a, nothing()), "that is no news");
        assert_eq!(board.why_unnamed().len(), 1);
        assert!(board.name_default(a, Ok(0xfd00)) && board.name_default(b, Ok(0xfd00)));
        assert_eq!(board.why_unnamed().len(), 0);
        let both = ["mine /mnt/mine", "default-disk-fd00 /mnt/a", "default-disk-fd00-2 /mnt/b"];
        assert_eq!(names(&board), both);
        assert!(!board.name_default(a, Ok(0xbeef)), "after a remount it has another number");
        assert!(!board.name(WantedFilesystems { defaults: None, ..wanted(&[]) }, &earlier), "what cannot be read");
        assert_eq!(names(&board), both);
        // The next process, and the status of before.
        let board = FilesystemBoard::default();
        let given = BTreeMap::from([(a.to_owned(), "default-disk-fd00".into())]);
        board.name(wanted(&["/mnt/a", "/mnt/b"]), &EarlierFilesystems { given, ..earlier.clone() });
        assert_eq!(names(&board), both[..2]);
        assert!(!board.name_default(a, Ok(1)) && board.name_default(b, Ok(0xfd00)));
        assert_eq!(names(&board), both);
        assert!(board.name(wanted(&[]), &earlier));
        assert_eq!(names(&board), both[..1]);
    }
}
