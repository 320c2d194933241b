//! The facts that a node must remember because no disk can say them: bare claims, disks that a person released, and
//! which disks there are even while they are away. Pure.
//!
//! Everything else is on the disks, and survives the loss of this document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use super::earlier::LastSeen;
use crate::device::{
    DiskId, HardwareId, VolumeId,
    duplicate::Identities,
    label::{ArrayPlace, EraseRecord, Hardware, Layout, SetRef, VolumeRecord, VolumeUsage},
    may_be_hardware,
};

/// The name of the document in the state directory.
pub const JOURNAL: &str = "journal.json";
/// The version that this code writes and reads. A field that it does not know stops nobody, and is gone with the next
/// write: what an older version must not lose raises the format.
pub const FORMAT: u32 = 1;

/// How many volumes that a bare device had are remembered: of those before them the objects are long gone.
const FORMER: usize = 16;

/// The journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    pub format: u32,
    /// Ids of blank disks that are not claimed again until somebody adopts them.
    #[serde(default)]
    pub released: BTreeSet<DiskId>,
    /// Claims of bare devices, by disk id. `raw` is its name in the file since the first version.
    #[serde(default, rename = "raw")]
    pub bare: BTreeMap<DiskId, BareClaim>,
    /// Devices that had, or may have had, a claim in a journal that was lost, or have one that others contradict: left
    /// alone until somebody adopts them. By disk id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<DiskId, LostClaim>,
    /// Bare devices that were given up with what a tenant wrote on them: nothing on them is anything but a tenant's
    /// until somebody adopts them. By disk id; in a damaged text they count as lost.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub given_up: BTreeSet<DiskId>,
    /// Disks with our label, by disk id: one that is away when the agent starts is missed all the same.
    #[serde(default)]
    pub disks: BTreeMap<DiskId, KnownDisk>,
    /// Those with a layout that came later, as they are in the document: an earlier version does not know
    /// it, and would call all of it damaged. A version that knows this field skips what it cannot read. The first such
    /// layout was that of pool filesystems. Empty in memory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "those_that_can_be_read")]
    filesystems: BTreeMap<DiskId, KnownDisk>,
    /// Ids of disks, labelled or bare, that a person gave up or released, until they are in the pool again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub let_go: BTreeSet<DiskId>,
    /// Those of them that have our label and were away then: one that comes back is held until a person adopts it, and
    /// its label says so from then on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hold: BTreeSet<DiskId>,
    /// The members of arrays that were given up, by disk id, until they are in the pool again: where each member of an array
    /// is known, a disk that cannot be read is none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "those_that_can_be_read")]
    pub given_up_members: BTreeMap<DiskId, GivenUpMember>,
    /// Volumes that are not on a bare device any more, or never were as a person said, by its id, the last one last:
    /// their objects may still name it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<DiskId, Vec<VolumeId>>,
    /// Which hardware was a disk with our label, and which a copy beside it, by disk id: also of disks that were given
    /// up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identities: Identities,
}

/// A disk with our label as it was when it was last here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownDisk {
    pub set: SetRef,
    pub layout: Layout,
    /// Its node then; another disk may have that name now.
    pub path: PathBuf,
    pub model: Option<String>,
    /// Its identity by its hardware; `None`: nothing tells it from another disk, or an earlier version did not write it
    /// down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareId>,
    /// Bytes.
    pub size: u64,
    /// The number of its label then: an older state of it has a lower one. 0: an earlier version did not write it down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    /// All volumes that may be on it; `None`: an earlier version did not write them down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<BTreeSet<VolumeId>>,
    /// Those of them that no scan has found there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unseen: BTreeSet<VolumeId>,
}

/// A member of an array as it was when it was last here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenUpMember {
    pub place: ArrayPlace,
    /// As of [`KnownDisk::hardware`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareId>,
}

impl KnownDisk {
    /// These may be on it as well, whatever a scan found.
    pub fn list(&mut self, others: impl IntoIterator<Item = VolumeId>) {
        let volumes = self.volumes.get_or_insert_default();
        self.unseen.extend(others.into_iter().filter(|volume| volumes.insert(*volume)));
    }

    /// It is not on the disk.
    pub fn strike(&mut self, volume: VolumeId) {
        self.unseen.remove(&volume);
        if let Some(volumes) = &mut self.volumes {
            volumes.remove(&volume);
        }
    }

    /// The volumes that a scan has found; nothing counts as seen where the label's number is not known.
    pub fn last_seen(&self) -> LastSeen {
        if self.written == 0 {
            return LastSeen::default();
        }
        let volumes = self.volumes.iter().flatten().filter(|volume| !self.unseen.contains(volume));
        LastSeen { written: self.written, volumes: volumes.copied().collect() }
    }
}

/// A bare device of the pool. It carries no label, so this is all that says whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareClaim {
    pub set: SetRef,
    /// The whole disk that the device is, or is on; `None`: nothing told it from another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Grows with each change, and is for who reads the document: the volume's object has none, and is compared by its
    /// ids.
    pub generation: u64,
    /// Bytes.
    pub size: u64,
    /// The free device is known to read as zeros.
    pub clean: bool,
    /// Up to where it reads as zeros while it is not clean as a whole: how far its zeroing has got.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cleaned: u64,
    /// It has had a volume since it was claimed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub used: bool,
    pub volume: Option<BareVolume>,
    /// A deleted volume that is not erased yet.
    pub erasing: Option<EraseRecord>,
    /// The usage of that volume; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasing_usage: Option<VolumeUsage>,
}

/// A claim that a journal lost, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostClaim {
    pub volume: Option<LostVolume>,
    /// Other objects name the device as well: a person says which of the volumes is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<LostVolume>,
}

impl LostClaim {
    pub fn volumes(&self) -> impl Iterator<Item = &LostVolume> {
        self.volume.iter().chain(&self.others)
    }
}

/// A volume on a bare device, as its object says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostVolume {
    pub id: VolumeId,
    pub set: SetRef,
    pub record: VolumeRecord,
}

/// The volume on a bare device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareVolume {
    pub id: VolumeId,
    pub record: VolumeRecord,
    /// Its filesystem was begun: what is on the device may be a part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub formatting: bool,
    pub formatted: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl BareClaim {
    /// The claim of a device with nothing on it.
    pub fn new(set: SetRef, size: u64) -> Self {
        Self {
            set,
            hardware: None,
            generation: 1,
            size,
            clean: false,
            cleaned: 0,
            used: false,
            volume: None,
            erasing: None,
            erasing_usage: None,
        }
    }

    /// Nothing was ever written to it that is not gone again: free, or with a volume whose filesystem was not begun.
    pub fn should_be_blank(&self) -> bool {
        let begun =
            |volume: &BareVolume| volume.record.usage == VolumeUsage::Block || volume.formatting || volume.formatted;
        self.erasing.is_none() && !self.volume.as_ref().is_some_and(begun)
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            format: FORMAT,
            released: BTreeSet::new(),
            bare: BTreeMap::new(),
            lost: BTreeMap::new(),
            given_up: BTreeSet::new(),
            disks: BTreeMap::new(),
            filesystems: BTreeMap::new(),
            let_go: BTreeSet::new(),
            hold: BTreeSet::new(),
            given_up_members: BTreeMap::new(),
            former: BTreeMap::new(),
            identities: Identities::new(),
        }
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("it is cut short or damaged")]
    Damaged(#[source] serde_json::Error),
    #[error("it has format {0}, written by a later version of localpool")]
    Newer(u32),
}

impl Journal {
    /// No document is an empty journal.
    pub fn parse(text: Option<&str>) -> Result<Self, JournalError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Some(text) = text else { return Ok(Self::default()) };
        let version: Version = serde_json::from_str(text).map_err(JournalError::Damaged)?;
        match version.format {
            FORMAT => serde_json::from_str(text).map(Self::united).map_err(JournalError::Damaged),
            newer => Err(JournalError::Newer(newer)),
        }
    }

    /// The remains of a journal in a text that is none: the ids that stand where those of bare devices and of disks
    /// that were released do.
    pub fn glean(text: &str) -> Self {
        let bare = between(text, "\"raw\"", &["\"lost\"", "\"disks\"", "\"letGo\"", "\"identities\""]);
        // What was given up stands behind them.
        let lost = between(text, "\"lost\"", &["\"disks\"", "\"letGo\"", "\"identities\""]);
        let released = between(text, "\"released\"", &["\"raw\"", "\"lost\"", "\"disks\""]);
        let lost = ids(bare).chain(ids(lost)).map(|id| (id, LostClaim::default())).collect();
        Self { lost, released: ids(released).collect(), ..Self::default() }
    }

    /// A volume is not on that bare device.
    pub fn part(&mut self, disk: &DiskId, volume: VolumeId) {
        if volume.uuid().is_nil() {
            // What was erased for nobody, as a person said.
            return;
        }
        let former = self.former.entry(disk.clone()).or_default();
        former.retain(|known| *known != volume);
        former.push(volume);
        if former.len() > FORMER {
            former.remove(0);
        }
    }

    /// The volume is on none of the disks with our label.
    pub fn take_from_disks(&mut self, volume: VolumeId) {
        self.disks.values_mut().for_each(|known| known.strike(volume));
    }

    fn united(mut self) -> Self {
        self.disks.append(&mut self.filesystems);
        self
    }

    pub fn to_text(&self) -> String {
        let mut document = self.clone();
        (document.filesystems, document.disks) =
            document.disks.into_iter().partition(|(_, disk)| is_added(&disk.layout));
        serde_json::to_string_pretty(&document).expect("a journal has string keys and no failing parts")
    }
}

/// Whether an earlier version would take a journal for damaged where this layout is among its `disks`.
fn is_added(layout: &Layout) -> bool {
    match layout {
        Layout::Whole {} | Layout::Slots { .. } | Layout::Carved {} | Layout::RawDevice {} => false,
        Layout::Directory { .. } | Layout::Member(_) => true,
    }
}

/// An entry that a later version has written costs itself alone: its disk is known again when it is looked at.
fn those_that_can_be_read<'de, D, T>(from: D) -> Result<BTreeMap<DiskId, T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let all = BTreeMap::<DiskId, serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|(id, entry)| Some((id, serde_json::from_value(entry).ok()?))).collect())
}

/// The text behind `from`, up to the first of `ends`; nothing, where `from` is not there.
fn between<'t>(text: &'t str, from: &str, ends: &[&str]) -> &'t str {
    let behind = text.find(from).and_then(|at| text.get(at + from.len()..)).unwrap_or_default();
    let end = ends.iter().filter_map(|end| behind.find(end)).min().unwrap_or(behind.len());
    behind.get(..end).unwrap_or_default()
}

/// Each text that could be the id of a device, and stands between quotation marks or where they were.
fn ids(text: &str) -> impl Iterator<Item = DiskId> {
    text.split('"').filter(|word| may_be_hardware(word)).map(DiskId::named)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;
    use crate::device::{
        SetName,
        duplicate::Identity,
        label::{ArrayLevel, ErasePolicy, Quota},
    };

    #[test]
    fn a_journal_survives_its_text_and_none_is_empty() {
        let mut journal = Journal::default();
        journal.released.insert(DiskId::named("serial-x-1"));
        assert_eq!(Journal::parse(Some(&journal.to_text())).expect("ours"), journal);
        assert_eq!(Journal::parse(None).expect("none"), Journal::default());
    }

    #[test]
    fn what_a_later_version_has_added_to_the_journal_stops_nobody_and_a_raised_format_does() {
        let claim = r#"{"set": {"namespace": "n", "name": "s", "uid": "u"}, "generation": 1, "size": 5, "clean": true,
            "volume": null, "erasing": null, "later": 1}"#;
        let text = format!(r#"{{"format": 1, "raw": {{"serial-x": {claim}}}, "later": {{}}}}"#);
        let journal = Journal::parse(Some(&text)).expect("read");
        assert_eq!(journal.bare[&DiskId::named("serial-x")].size, 5);
        let raised = Journal::parse(Some(&text.replace("\"format\": 1", "\"format\": 2"))).expect_err("refused");
        assert_eq!(raised.to_string(), "it has format 2, written by a later version of localpool");
    }

    /// A field of a later version in each object, but for those whose fields are ids and names.
    fn with_later_fields(value: &mut Value, is_map: bool) {
        const MAPS: [&str; 7] = ["raw", "lost", "disks", "givenUpMembers", "former", "identities", "parameters"];
        match value {
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, value)| with_later_fields(value, MAPS.contains(&name.as_str())));
                if !is_map {
                    fields.insert("later".to_owned(), serde_json::json!({"than": "this"}));
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|value| with_later_fields(value, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// A journal with something in each of its fields.
    fn full() -> Journal {
        let id = VolumeId::from_u128(7);
        let set = SetRef::new(SetName::new("n", "s"), "u");
        let record = VolumeRecord {
            name: "v".to_owned(),
            required: 1,
            limit: Some(2),
            parameters: BTreeMap::from([("p".to_owned(), "q".to_owned())]),
            usage: VolumeUsage::Block,
            fs_size: 0,
            found: true,
        };
        let erasing = EraseRecord { was: id, policy: ErasePolicy::Zero, cursor: 4 };
        let volume = BareVolume { id, record: record.clone(), formatting: true, formatted: true };
        let claim = BareClaim {
            set: set.clone(),
            hardware: Some(Hardware {
                id: HardwareId::named("serial-m-1"),
                model: Some("m".into()),
                serial: Some("1".into()),
            }),
            generation: 3,
            size: 5,
            clean: false,
            cleaned: 2,
            used: true,
            volume: Some(volume),
            erasing: Some(erasing),
            erasing_usage: Some(VolumeUsage::Block),
        };
        let volume = LostVolume { id, set: set.clone(), record };
        let lost = LostClaim { volume: Some(volume.clone()), others: vec![volume] };
        let known = KnownDisk {
            set,
            layout: Layout::Carved {},
            path: "/dev/sdx".into(),
            model: Some("m".to_owned()),
            hardware: Some(HardwareId::named("wwid-m")),
            size: 6,
            written: 7,
            volumes: Some(BTreeSet::from([id])),
            unseen: BTreeSet::from([id]),
        };
        let identity = Identity {
            original: Some(HardwareId::named("wwid-a")),
            copies: BTreeSet::from([HardwareId::named("wwid-b")]),
        };
        let place = ArrayPlace { array: Uuid::from_u128(9), level: ArrayLevel::Raid0, place: 1, count: 2, chunk: 4096 };
        let member = GivenUpMember { place, hardware: Some(HardwareId::named("wwid-n")) };
        Journal {
            format: FORMAT,
            released: BTreeSet::from([DiskId::named("wwid-r")]),
            bare: BTreeMap::from([(DiskId::named("serial-x"), claim)]),
            lost: BTreeMap::from([(DiskId::named("dm-z"), lost)]),
            given_up: BTreeSet::from([DiskId::named("wwid-g")]),
            disks: BTreeMap::from([(DiskId::named("gpt-0"), known)]),
            filesystems: BTreeMap::new(),
            let_go: BTreeSet::from([DiskId::named("gpt-1")]),
            hold: BTreeSet::from([DiskId::named("gpt-2")]),
            given_up_members: BTreeMap::from([(DiskId::named("gpt-1"), member)]),
            former: BTreeMap::from([(DiskId::named("dm-z"), vec![VolumeId::from_u128(8)])]),
            identities: BTreeMap::from([(DiskId::named("gpt-0"), identity)]),
        }
    }

    #[test]
    fn a_field_that_a_later_version_has_added_anywhere_costs_nothing_of_what_this_one_knows() {
        let journal = full();
        let mut later = serde_json::to_value(&journal).expect("JSON");
        with_later_fields(&mut later, false);
        assert_eq!(later.to_string().matches("\"later\"").count(), 20, "{later}");
        assert_eq!(Journal::parse(Some(&later.to_string())).expect("read"), journal);
    }

    #[test]
    fn a_filesystem_that_a_later_version_has_written_costs_itself_alone() {
        let mut journal = full();
        let known = journal.disks[&DiskId::named("gpt-0")].clone();
        let folders = KnownDisk { layout: Layout::Directory { quota: Quota::Project }, ..known };
        journal.disks.insert(DiskId::named("gpt-3"), folders);
        let mut later: serde_json::Value = serde_json::from_str(&journal.to_text()).expect("JSON");
        assert_eq!(later["disks"].get("gpt-3"), None, "an earlier version reads all of these");
        let mut other = later["filesystems"]["gpt-3"].clone();
        other["layout"] = serde_json::json!("of a later version");
        later["filesystems"]["gpt-4"] = other;
        assert_eq!(Journal::parse(Some(&later.to_string())).expect("read"), journal);
    }

    #[test]
    fn a_journal_of_this_format_is_read_and_written_byte_for_byte() {
        let text = include_str!("journal/format-1.json");
        assert_eq!(Journal::parse(Some(text)).expect("read"), full());
        assert_eq!(full().to_text(), text.trim_end());
    }

    #[test]
    fn only_what_a_scan_of_this_version_has_found_on_a_disk_counts_as_seen_there() {
        let (found, begun) = (VolumeId::from_u128(1), VolumeId::from_u128(2));
        let text = r#"{"set": {"namespace": "n", "name": "s", "uid": "u"}, "layout": {"kind": "carved"}, "path": "/dev/sdx",
            "model": null, "size": 6, "volumes": ["00000000-0000-0000-0000-000000000001"]}"#;
        let mut known: KnownDisk = serde_json::from_str(text).expect("of an earlier version");
        known.list([begun]);
        assert_eq!(known.last_seen(), LastSeen::default(), "one that was only begun may be among them");
        known.written = 3;
        assert_eq!(known.last_seen(), LastSeen { written: 3, volumes: BTreeSet::from([found]) });
        known.list([found]);
        assert_eq!(known.last_seen().volumes.len(), 1, "it was found already");
        known.strike(begun);
        assert!(known.unseen.is_empty() && known.volumes == Some(BTreeSet::from([found])));
    }

    #[test]
    fn from_a_text_that_is_no_journal_the_ids_of_bare_devices_are_gleaned_and_no_labelled_disk_is() {
        let claim = r#"{"set": {"namespace": "n", "name": "s", "uid": "u-1"}, "generation": 1, "size": 5, "clean": true,
            "volume": null, "erasing": null}"#;
        let disk = r#"{"set": {"namespace": "n", "name": "s", "uid": "u-2"}, "layout": {"kind": "carved"}, "size": 5,
            "path": "/dev/sdx"}"#;
        let text = format!(
            r#"{{"format": 1, "released": ["wwid-r"], "raw": {{"serial-x": {claim}, "wwid-y": {claim}}},
            "lost": {{"dm-z": {{"volume": null}}}}, "disks": {{"gpt-0": {disk}}}}}"#
        );
        let lost = |journal: &Journal, id: &str| journal.lost.contains_key(&DiskId::named(id));
        let is_bare = |text: &str| ["serial-x", "wwid-y", "dm-z"].map(|id| lost(&Journal::glean(text), id));
        assert!(Journal::parse(Some(&text)).is_ok());
        assert_eq!(is_bare(&text.replace(':', ";")), [true; 3]);
        let gleaned = Journal::glean(&text);
        assert!(!lost(&gleaned, "gpt-0") && !lost(&gleaned, "wwid-r"), "{gleaned:?}");
        assert_eq!(gleaned.released, BTreeSet::from([DiskId::named("wwid-r")]));
        let cut = text.find("wwid-y").expect("there");
        assert_eq!(is_bare(&text[..cut]), [true, false, false]);
        assert_eq!(Journal::glean(""), Journal::default());
    }

    #[test]
    fn a_journal_cut_short_or_of_a_later_version_is_refused_and_not_taken_as_empty() {
        let text = Journal::default().to_text();
        for len in 0..text.len() {
            assert!(Journal::parse(Some(&text[..len])).is_err(), "{len} bytes");
        }
        assert!(matches!(Journal::parse(Some("{\"format\": 2}")), Err(JournalError::Newer(2))));
    }
}
