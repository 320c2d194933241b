//! What is on a pool filesystem, as names and texts: the configuration file, records and folders. Pure.
//!
//! The folder of a volume decides that it exists, the record describes it, and the record is written first: as entry and
//! label do on a disk with partitions (docs/adr/0001-on-disk-record-and-write-order.md). Records are outside of what a
//! tenant gets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::device::label::VolumeRecord;
use crate::device::{NodeName, Owner, VolumeId};

/// Folders of volumes, by their ids.
pub const VOLUMES: &str = "volumes";
/// Their records.
pub const RECORDS: &str = "records";
/// Folders on their way to become volumes.
pub const MAKING: &str = "making";
/// Folders of deleted volumes on their way to free space.
pub const TRASH: &str = "trash";
pub const FOLDERS: [&str; 4] = [VOLUMES, RECORDS, MAKING, TRASH];
/// Longhorn's is `longhorn-disk.cfg`, and another product's.
pub const CONFIG: &str = "localpool-disk.cfg";
/// The version of both documents that this code writes and reads; a newer one is never changed.
const FORMAT: u32 = 1;

/// The configuration file of a pool filesystem: which it is, and whose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemConfig {
    format: u32,
    #[serde(rename = "diskUUID")]
    disk_uuid: Uuid,
    cluster: String,
    node: NodeName,
}

/// What a volume is: its file in [`RECORDS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryRecord {
    format: u32,
    /// Bytes.
    pub size: u64,
    pub volume: VolumeRecord,
}

/// Why a document is not read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("it is cut short or damaged")]
    Damaged(#[source] serde_json::Error),
    #[error("it has format {0}, written by a later version of localpool")]
    Newer(u32),
    #[error("it is of disk {found}, not of {wanted}")]
    OtherDisk { found: Uuid, wanted: Uuid },
    #[error("it is of node {node}, cluster {cluster}")]
    OtherNode { node: NodeName, cluster: String },
}

fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, DocumentError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_str(text).map_err(DocumentError::Damaged)?;
    match version.format {
        FORMAT => serde_json::from_str(text).map_err(DocumentError::Damaged),
        newer => Err(DocumentError::Newer(newer)),
    }
}

fn text(document: &impl Serialize) -> String {
    serde_json::to_string_pretty(document).expect("it has string keys and no failing parts")
}

impl FilesystemConfig {
    pub fn new(disk_uuid: Uuid, owner: &Owner) -> Self {
        let Owner { cluster, node } = owner.clone();
        Self { format: FORMAT, disk_uuid, cluster, node }
    }

    pub fn text(&self) -> String {
        text(self)
    }

    /// Whether a text is this one's.
    pub fn accepts(&self, text: &str) -> Result<(), DocumentError> {
        let found: Self = parse(text)?;
        if found.disk_uuid != self.disk_uuid {
            return Err(DocumentError::OtherDisk { found: found.disk_uuid, wanted: self.disk_uuid });
        }
        if (&found.cluster, &found.node) != (&self.cluster, &self.node) {
            return Err(DocumentError::OtherNode { node: found.node, cluster: found.cluster });
        }
        Ok(())
    }
}

impl DirectoryRecord {
    pub fn new(size: u64, volume: VolumeRecord) -> Self {
        Self { format: FORMAT, size, volume }
    }

    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        parse(text)
    }

    pub fn text(&self) -> String {
        text(self)
    }
}

/// The path of a volume's folder, or of one in the making, below the root.
pub fn folder(of: &str, id: VolumeId) -> PathBuf {
    Path::new(of).join(id.to_string())
}

pub fn record_file(id: VolumeId) -> PathBuf {
    Path::new(RECORDS).join(format!("{id}.json"))
}

/// A name in [`TRASH`]: the volume that it was, its size in bytes, and what tells it from a volume of the same id.
pub fn trash_name(id: VolumeId, size: u64, unique: Uuid) -> String {
    format!("{id}.{size}.{}", unique.simple())
}

/// The bytes that a name in [`TRASH`] stands for; none for a part of a volume that was too deep.
pub fn trash_size(name: &str) -> u64 {
    name.split('.').nth(1).and_then(|size| size.parse().ok()).unwrap_or(0)
}

/// The names of a pool filesystem, sorted out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub volumes: BTreeSet<VolumeId>,
    /// Records that have a volume.
    pub records: BTreeSet<VolumeId>,
    /// Files of records whose volume does not exist.
    pub stale: BTreeSet<VolumeId>,
    /// Names in [`VOLUMES`] that are no ids.
    pub strange: Vec<String>,
}

impl Contents {
    pub fn of(volumes: &[String], records: &[String]) -> Self {
        let id = |name: &str| name.parse::<VolumeId>().ok().filter(|id| id.to_string() == name);
        let mut contents = Self::default();
        for name in volumes {
            match id(name) {
                Some(id) => drop(contents.volumes.insert(id)),
                None => contents.strange.push(name.clone()),
            }
        }
        let recorded = records.iter().filter_map(|name| id(name.strip_suffix(".json")?));
        (contents.records, contents.stale) = recorded.partition(|id| contents.volumes.contains(id));
        contents
    }
}

/// Bytes that volumes may take: what the filesystem has, but for its own needs.
pub fn capacity(total: u64) -> u64 {
    total - total / 50
}

/// Bytes that no volume has.
pub fn free(capacity: u64, volumes: &BTreeMap<VolumeId, Option<DirectoryRecord>>, trash: &[String]) -> u64 {
    let mut taken: u64 = trash.iter().map(|name| trash_size(name)).sum();
    for record in volumes.values() {
        // Nobody knows what a volume without a record may take.
        let Some(record) = record else { return 0 };
        taken = taken.saturating_add(record.size);
    }
    capacity.saturating_sub(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::label::VolumeUsage;
    use crate::host::FsKind;

    fn record(size: u64) -> DirectoryRecord {
        let volume = VolumeRecord {
            name: "v".to_owned(),
            required: size,
            limit: None,
            parameters: BTreeMap::new(),
            usage: VolumeUsage::Mount(FsKind::Xfs),
            fs_size: 0,
            found: false,
        };
        DirectoryRecord::new(size, volume)
    }

    #[test]
    fn a_configuration_file_is_accepted_by_its_own_disk_and_node_only() {
        let owner = |node: &str| Owner { cluster: "c".to_owned(), node: node.into() };
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let config = FilesystemConfig::new(one, &owner("n"));
        config.accepts(&config.text()).expect("its own");
        let refused = |text: &str| config.accepts(text).expect_err("refused").to_string();
        assert_eq!(
            refused(&FilesystemConfig::new(other, &owner("n")).text()),
            format!("it is of disk {other}, not of {one}")
        );
        assert_eq!(refused(&FilesystemConfig::new(one, &owner("m")).text()), "it is of node m, cluster c");
        assert_eq!(refused(&config.text()[..20]), "it is cut short or damaged");
        let newer = config.text().replace("\"format\": 1", "\"format\": 2");
        assert_eq!(refused(&newer), "it has format 2, written by a later version of localpool");
    }

    #[test]
    fn a_record_without_a_folder_is_stale_and_a_folder_without_one_is_a_volume() {
        let ids = [1, 2, 3].map(VolumeId::from_u128);
        let [with, without, stale] = ids.map(|id| id.to_string());
        let records = [format!("{with}.json"), format!("{stale}.json"), ".x.json.new".to_owned()];
        let contents = Contents::of(&[with, without, "lost+found".to_owned()], &records);
        assert_eq!(contents.volumes, ids[..2].iter().copied().collect());
        assert_eq!((contents.records, contents.stale), ([ids[0]].into(), [ids[2]].into()));
        assert_eq!(contents.strange, ["lost+found"]);
    }

    #[test]
    fn what_is_deleted_counts_until_it_is_gone_and_an_unknown_size_counts_as_all() {
        let id = VolumeId::from_u128(7);
        let trash = [trash_name(id, 30, Uuid::nil()), Uuid::nil().simple().to_string()];
        let mut volumes = BTreeMap::from([(VolumeId::from_u128(1), Some(record(50)))]);
        assert_eq!(free(100, &volumes, &trash), 20);
        assert_eq!(free(70, &volumes, &trash), 0);
        volumes.insert(id, None);
        assert_eq!(free(1000, &volumes, &[]), 0);
    }

    #[test]
    fn a_record_survives_its_text() {
        assert_eq!(DirectoryRecord::parse(&record(5).text()).expect("read"), record(5));
    }
}
