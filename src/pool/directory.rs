//! What is on a pool filesystem, as names and texts: the configuration file, records and folders. Pure.
//!
//! The folder of a volume decides that it exists, the record describes it, and the record is written first: as entry
//! and label do on a disk with partitions (docs/adr/0001-on-disk-record-and-write-order.md). Records are outside of
//! what a tenant gets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::device::label::VolumeRecord;
use crate::device::{NodeName, Owner, VolumeId};
use crate::host::ProjectId;

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
/// What the node has mounted for others than localpool, in [`HOST_MOUNT`]. Nothing of the pool is in it.
pub const HOST: &str = "host";
pub const HOST_MOUNT: &str = "host-mount.json";
/// The version of all documents that this code writes and reads; a newer one is never changed.
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

/// Where the node has [`HOST`] mounted: it stays there, whatever its set says by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMountRecord {
    format: u32,
    pub path: PathBuf,
}

/// What a volume is: its file in [`RECORDS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryRecord {
    format: u32,
    /// Bytes.
    pub size: u64,
    /// What its files are counted under; `None`: nothing keeps them within the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
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

pub(super) fn parse_document<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, DocumentError> {
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

pub(super) fn document_text(document: &impl Serialize) -> String {
    serde_json::to_string_pretty(document).expect("it has string keys and no failing parts")
}

impl FilesystemConfig {
    pub fn new(disk_uuid: Uuid, owner: &Owner) -> Self {
        let Owner { cluster, node } = owner.clone();
        Self { format: FORMAT, disk_uuid, cluster, node }
    }

    pub fn text(&self) -> String {
        document_text(self)
    }

    /// Whether a text is this one's.
    pub fn accepts(&self, text: &str) -> Result<(), DocumentError> {
        let found: Self = parse_document(text)?;
        if found.disk_uuid != self.disk_uuid {
            return Err(DocumentError::OtherDisk { found: found.disk_uuid, wanted: self.disk_uuid });
        }
        found.is_of(&self.cluster, &self.node)
    }

    /// The diskUUID that a text names, if it is of this owner.
    pub fn disk_uuid_of(text: &str, owner: &Owner) -> Result<Uuid, DocumentError> {
        let found: Self = parse_document(text)?;
        found.is_of(&owner.cluster, &owner.node)?;
        Ok(found.disk_uuid)
    }

    fn is_of(&self, cluster: &str, node: &NodeName) -> Result<(), DocumentError> {
        match (self.cluster.as_str(), &self.node) == (cluster, node) {
            true => Ok(()),
            false => Err(DocumentError::OtherNode { node: self.node.clone(), cluster: self.cluster.clone() }),
        }
    }
}

impl HostMountRecord {
    pub fn new(path: &Path) -> Self {
        Self { format: FORMAT, path: path.to_owned() }
    }

    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        parse_document(text)
    }

    pub fn text(&self) -> String {
        document_text(self)
    }
}

impl DirectoryRecord {
    pub fn new(size: u64, project: Option<ProjectId>, volume: VolumeRecord) -> Self {
        Self { format: FORMAT, size, project, volume }
    }

    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        parse_document(text)
    }

    pub fn text(&self) -> String {
        document_text(self)
    }
}

/// The path of a volume's folder, or of one in the making, below the root.
pub fn folder(of: &str, id: VolumeId) -> PathBuf {
    Path::new(of).join(id.to_string())
}

pub fn record_file(id: VolumeId) -> PathBuf {
    Path::new(RECORDS).join(format!("{id}.json"))
}

/// A name in [`TRASH`]: the volume that it was, its size in bytes, and a UUID, as a volume of
/// the same id may be there already.
pub fn trash_name(id: VolumeId, size: u64, unique: Uuid) -> String {
    format!("{id}.{size}.{}", unique.simple())
}

/// The bytes that a name in [`TRASH`] stands for, 0 for a folder that never became a volume; `None`: the pool has not
/// put it there.
pub fn trash_size(name: &str) -> Option<u64> {
    let is_unique = |name: &str| name.parse::<Uuid>().is_ok_and(|unique| unique.simple().to_string() == name);
    match *name.split('.').collect::<Vec<_>>() {
        [unique] => is_unique(unique).then_some(0),
        [volume, size, unique] => {
            volume_id(volume).filter(|_| is_unique(unique))?;
            size.parse().ok()
        }
        _ => None,
    }
}

/// The volume that a name in [`TRASH`] was.
pub fn trashed_volume(name: &str) -> Option<VolumeId> {
    volume_id(name.split('.').next()?)
}

/// The volume of a folder's name, as the pool writes it.
fn volume_id(name: &str) -> Option<VolumeId> {
    name.parse::<VolumeId>().ok().filter(|id| id.to_string() == name)
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
        let mut contents = Self::default();
        for name in volumes {
            match volume_id(name) {
                Some(id) => drop(contents.volumes.insert(id)),
                None => contents.strange.push(name.clone()),
            }
        }
        let recorded = records.iter().filter_map(|name| volume_id(name.strip_suffix(".json")?));
        (contents.records, contents.stale) = recorded.partition(|id| contents.volumes.contains(id));
        contents
    }
}

/// Below it are the projects of people, and of kubelet for its own folders.
pub const FIRST_PROJECT: ProjectId = ProjectId::new(1 << 30);
/// The kernel calls the number behind it no project.
pub const LAST_PROJECT: ProjectId = ProjectId::new(u32::MAX - 1);

/// Whether a volume may have it. A limit of project 0 would be that which all others begin with.
pub fn is_of_volumes(project: ProjectId) -> bool {
    (FIRST_PROJECT..=LAST_PROJECT).contains(&project)
}

/// What records of volumes say, by id; `None`: there is no record that can be read.
pub type DirectoryRecords = BTreeMap<VolumeId, Option<Arc<DirectoryRecord>>>;

/// The volumes that no limit can hold, and why: their record names no project, one that no volume may have, or one that
/// another record names, too.
pub fn unlimited(volumes: &DirectoryRecords) -> BTreeMap<VolumeId, String> {
    let mut of = BTreeMap::<Option<ProjectId>, Vec<VolumeId>>::new();
    for (id, record) in volumes {
        if let Some(record) = record {
            of.entry(record.project).or_default().push(*id);
        }
    }
    let mut unlimited = BTreeMap::new();
    for (project, ids) in of {
        let Some(project) = project else {
            let why = format!("its record names no project, {WAY_OUT}");
            unlimited.extend(ids.into_iter().map(|id| (id, why.clone())));
            continue;
        };
        if !is_of_volumes(project) {
            let why = format!(
                "its record names project {project}, and those of volumes are {FIRST_PROJECT} to {LAST_PROJECT}, \
                 {WAY_OUT}"
            );
            unlimited.extend(ids.into_iter().map(|id| (id, why.clone())));
            continue;
        }
        if ids.len() > 1 {
            let all: Vec<String> = ids.iter().map(VolumeId::to_string).collect();
            let why =
                format!("the records of volumes {} name the same project {project}, {WAY_OUT}", all.join(" and "));
            unlimited.extend(ids.into_iter().map(|id| (id, why.clone())));
        }
    }
    unlimited
}

/// Goes on after what is wrong with a record.
const WAY_OUT: &str =
    "so nobody knows whose files would count as whose: docs/filesystem-pools.md says how to correct it";

/// Bytes that volumes may take: what the filesystem has, but for its own needs.
pub fn capacity(total: u64) -> u64 {
    total - total / 50
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::sample::volume_record;

    fn record(size: u64) -> DirectoryRecord {
        DirectoryRecord::new(size, None, volume_record(size))
    }

    fn in_project(number: u32) -> Option<Arc<DirectoryRecord>> {
        Some(Arc::new(DirectoryRecord { project: Some(ProjectId::new(number)), ..record(5) }))
    }

    #[test]
    fn a_project_that_no_volume_may_have_limits_none() {
        for number in [0, 7, (1 << 30) - 1, u32::MAX] {
            let volumes = BTreeMap::from([(VolumeId::from_u128(1), in_project(number))]);
            let unlimited = unlimited(&volumes);
            let why = unlimited.values().next().unwrap_or_else(|| panic!("project {number} would limit it"));
            assert!(
                why.contains(&format!("its record names project {number}, and those of volumes are 1073741824")),
                "{why}"
            );
        }
        let volumes =
            [(1, 1 << 30), (2, u32::MAX - 1)].map(|(id, number)| (VolumeId::from_u128(id), in_project(number)));
        assert_eq!(unlimited(&BTreeMap::from(volumes)), BTreeMap::new());
    }

    #[test]
    fn of_two_records_with_one_project_neither_is_right_and_one_without_a_project_is_not_either() {
        let ids = [1, 2, 3, 4].map(VolumeId::from_u128);
        let [one, other] = [FIRST_PROJECT.number(), LAST_PROJECT.number()];
        let records = [in_project(one), in_project(one), in_project(other), Some(Arc::new(record(5)))];
        let unlimited = unlimited(&ids.into_iter().zip(records).collect());
        assert_eq!(unlimited.keys().copied().collect::<Vec<_>>(), [ids[0], ids[1], ids[3]]);
        let both = format!("the records of volumes {} and {} name the same project {one}", ids[0], ids[1]);
        assert!(unlimited[&ids[0]].contains(&both) && unlimited[&ids[1]].contains(&both), "{unlimited:?}");
        assert!(unlimited[&ids[3]].contains("names no project"), "{unlimited:?}");
    }

    #[test]
    fn a_record_without_a_project_is_written_as_before() {
        assert!(!record(5).text().contains("project"));
        let limited = in_project(7).expect("a record");
        assert!(limited.text().contains("\"project\": 7"));
        assert_eq!(DirectoryRecord::parse(&limited.text()).expect("read"), *limited);
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
    fn a_file_of_another_product_or_node_names_no_disk_uuid() {
        let owner = |node: &str| Owner { cluster: "c".to_owned(), node: node.into() };
        let uuid = Uuid::from_u128(1);
        let text = FilesystemConfig::new(uuid, &owner("n")).text();
        assert_eq!(FilesystemConfig::disk_uuid_of(&text, &owner("n")).expect("its own"), uuid);
        let refused = |text: &str| FilesystemConfig::disk_uuid_of(text, &owner("m")).expect_err("refused").to_string();
        assert_eq!(refused(&text), "it is of node n, cluster c");
        // As Longhorn writes its own.
        let others = r#"{"diskName":"a","diskUUID":"2a2a9d8f-6c1e-4a52-8f0e-1f2d3c4b5a69"}"#;
        for text in [others, "", "{}", "[]", "\0\0", &text[..40]] {
            assert_eq!(refused(text), "it is cut short or damaged", "{text:?}");
        }
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
    fn only_what_the_pool_has_named_itself_is_removed() {
        let id = VolumeId::from_u128(7);
        let unique = Uuid::from_u128(9);
        let name = trash_name(id, 30, unique);
        assert_eq!((trash_size(&name), trashed_volume(&name)), (Some(30), Some(id)));
        let never = unique.simple().to_string();
        assert_eq!((trash_size(&never), trashed_volume(&never)), (Some(0), None));
        let strange = [
            "",
            "of-a-person",
            "a.b",
            &name[1..],
            &unique.to_string(),
            &format!("{name}.old"),
            &format!("{id}.x.{never}"),
        ];
        for name in strange {
            assert_eq!(trash_size(name), None, "{name}");
        }
    }

    #[test]
    fn a_record_survives_its_text() {
        assert_eq!(DirectoryRecord::parse(&record(5).text()).expect("read"), record(5));
    }
}
