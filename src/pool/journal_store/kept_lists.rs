//! The lists of volumes that may be on disks with a filesystem of the pool, as they were left in the state directory.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{DiskId, VolumeId};
use crate::host::{HostError, StateStore, chain};
use crate::pool::journal::Journal;
use crate::pool::volume_list::{ListError, ListedVolumes, Sighting, document};

/// The lists, by disk.
pub(super) type Lists = BTreeMap<DiskId, KeptList>;

/// A list, and its document.
#[derive(Debug)]
pub(super) struct KeptList {
    pub list: ListedVolumes,
    /// The document is not what is known here, or ends in a part of a line: it must be written whole.
    pub is_behind: bool,
}

/// Why the list of a disk says nothing.
#[derive(Debug, thiserror::Error)]
enum KeptListError {
    #[error(transparent)]
    Unread(HostError),
    #[error(transparent)]
    Refused(ListError),
}

/// Reads the documents of the disks that the journal knows, which has their volumes only where an earlier build wrote
/// them there.
pub(super) fn load(state: &dyn StateStore, journal: &mut Journal) -> Lists {
    let mut lists = Lists::new();
    for (id, disk) in journal.disks.iter_mut().filter(|(_, disk)| disk.layout.is_directory()) {
        // They stay in the journal until a scan has written the list.
        let (listed, unseen) = (disk.volumes.clone(), disk.unseen.clone());
        let kept = match state.load(&document(id)) {
            Ok(Some(text)) => {
                let parsed = ListedVolumes::parse(&text).map_err(KeptListError::Refused);
                parsed.map(|kept| Some(with_listed(kept, listed.unwrap_or_default())))
            }
            Ok(None) => Ok(listed.map(|listed| (ListedVolumes::new(sighted(listed, &unseen)), true))),
            Err(error) => Err(KeptListError::Unread(error)),
        };
        match kept {
            Ok(kept) => {
                lists.extend(kept.map(|(list, is_behind)| (id.clone(), KeptList { list, is_behind })));
            }
            Err(error) => {
                let error = chain(&error);
                (disk.volumes, disk.unseen) = (None, BTreeSet::new());
                tracing::error!(disk = %id, document = document(id), error, "which volumes are on a disk is not known until it is here");
            }
        }
    }
    lists
}

/// A list, with what an earlier build has in the journal: that reads no list, and may have made volumes since it was
/// written.
fn with_listed((mut list, mut is_behind): (ListedVolumes, bool), listed: BTreeSet<VolumeId>) -> (ListedVolumes, bool) {
    for id in listed {
        if !list.contains(id) {
            list.take_in((id, Some(Sighting::Begun)));
            is_behind = true;
        }
    }
    (list, is_behind)
}

pub(super) fn sighted(volumes: BTreeSet<VolumeId>, unseen: &BTreeSet<VolumeId>) -> BTreeMap<VolumeId, Sighting> {
    let sighting = |id: &VolumeId| if unseen.contains(id) { Sighting::Begun } else { Sighting::Seen };
    volumes.into_iter().map(|id| (id, sighting(&id))).collect()
}
