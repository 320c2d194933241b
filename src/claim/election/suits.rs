//! What the sets of an election choose from, and whether a device suits one of them in its turn: what the set says of
//! devices (its node, its paths, its filter), whether the device is of use to it, and whether it may take it.
//!
//! Takes in one set's turn and a device; gives out nothing, or the first reason against it. The order of the questions
//! is the order in which people read the reasons.

use std::collections::HashMap;

use crate::claim::{
    ballot::{Ballot, Candidacy},
    mismatch::Mismatch,
    rejection::{ContentFate, Rejection},
    ripeness::Ripeness,
    rule::{Filter, NodeMatch, Rule},
};
use crate::device::{
    Attachment, Attachments, Device, NotFree, Reach, Verdict, device_type, id, label::SetRef, type_name,
};
use crate::host::{DeviceKind, Health, KernelName, RawDisk};

/// What is the same for all sets of an election.
pub(super) struct Hall<'a> {
    pub(super) ballot: &'a Ballot<'a>,
    /// Those that some set may have, in the order in which all of them choose.
    pub(super) devices: Vec<&'a Device>,
    pub(super) disks: HashMap<&'a KernelName, &'a RawDisk>,
    pub(super) attachments: Attachments<'a>,
    pub(super) unknown: Candidacy,
}

impl<'a> Hall<'a> {
    pub(super) fn new(ballot: &'a Ballot<'a>) -> Self {
        let is_bare = |device: &Device| ballot.candidacies.get(&device.raw.name).is_some_and(|known| known.is_bare);
        let candidate = |device: &&Device| !is_bare(device) && (!is_pool(device) || device.label.is_some());
        let mut devices: Vec<&Device> = ballot.devices.iter().filter(candidate).collect();
        devices.sort_by_key(|device| (&device.id, &device.raw.name));
        let candidates = ballot.devices.iter().filter(|device| !is_bare(device));
        let raws: Vec<&RawDisk> = candidates.map(|device| &device.raw).collect();
        let disks = raws.iter().map(|raw| (&raw.name, *raw)).collect();
        Self { ballot, devices, disks, attachments: Attachments::new(raws), unknown: Candidacy::default() }
    }

    pub(super) fn rules(&self) -> Vec<&'a Rule> {
        let mut rules: Vec<&Rule> = self.ballot.rules.iter().collect();
        rules.sort_by_key(|rule| (rule.created, rule.position, &rule.set));
        rules
    }

    pub(super) fn candidacy(&self, device: &Device) -> &Candidacy {
        self.ballot.candidacies.get(&device.raw.name).unwrap_or(&self.unknown)
    }
}

/// Who took or waits for a device, by kernel name.
pub(super) type TakenBy<'a> = HashMap<&'a KernelName, &'a SetRef>;

pub(super) fn is_pool(device: &Device) -> bool {
    device.verdict == Verdict::Ours
}

/// One set's turn to choose.
pub(super) struct SetTurn<'h, 'a> {
    pub(super) hall: &'h Hall<'a>,
    pub(super) rule: &'a Rule,
}

/// Whether the kernel maps partitions on it: not on a partition, and not on a mapped device.
pub(super) fn holds_table(raw: &RawDisk) -> bool {
    !matches!(raw.kind, DeviceKind::Partition(_) | DeviceKind::Dm(_))
}

impl<'a> SetTurn<'_, 'a> {
    pub(super) fn ripeness(&self, device: &Device) -> Ripeness {
        if self.rule.dry_run { Ripeness::Ripe } else { self.hall.candidacy(device).ripeness }
    }

    /// A disk of the pool is worth a word only to another set that would have it too.
    pub(super) fn is_contested(&self, why: &Rejection) -> bool {
        matches!(why, Rejection::InSet(owner) if !self.is_named_like(owner))
    }

    pub(super) fn is_own(&self, device: &Device) -> bool {
        device.label.as_ref().is_some_and(|label| self.is_named_like(&label.set))
    }

    /// This set, or an earlier one of its name.
    pub(super) fn is_named_like(&self, set: &SetRef) -> bool {
        set.has_name_of(&self.rule.set)
    }

    pub(super) fn is_bare_use(&self, device: &Device) -> bool {
        !holds_table(&device.raw) || self.rule.layout.is_bare()
    }

    pub(super) fn wants_zeros(&self, device: &Device) -> bool {
        self.is_bare_use(device) || self.rule.wants_zeros(self.hall.candidacy(device).may_be_ours)
    }

    pub(super) fn orders_wipe(&self) -> bool {
        self.rule.named.as_ref().is_some_and(|named| named.wipe)
    }

    pub(super) fn is_wipeable(&self, device: &Device) -> bool {
        matches!(self.hall.candidacy(device).wipe, Some(Ok(_)))
    }

    /// What is said of a device that is not blank: only a set that orders its content to go says what becomes of that.
    pub(super) fn content(&self, why: NotFree, then: ContentFate) -> Rejection {
        match (self.orders_wipe(), then) {
            (false, _) => Rejection::Verdict(why),
            (true, ContentFate::Wipe) if self.rule.dry_run => Rejection::Content { why, then: ContentFate::WouldWipe },
            (true, then) => Rejection::Content { why, then },
        }
    }

    pub(super) fn suits(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<(), Rejection> {
        self.selects(device)?;
        device.free().map_err(Rejection::Verdict)?;
        self.may_take(device, taken)
    }

    /// The same of a device whose content may go, were it blank; and since when that content has been there.
    pub(super) fn suits_when_wiped(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<Ripeness, ContentFate> {
        let ripeness = match &self.hall.candidacy(device).wipe {
            Some(Ok(ripeness)) => *ripeness,
            Some(Err(spared)) => return Err(ContentFate::Spare(spared.clone())),
            None => Ripeness::Unseen,
        };
        self.may_take(device, taken).map_err(|why| ContentFate::Reject(Box::new(why)))?;
        Ok(if self.rule.dry_run { Ripeness::Ripe } else { ripeness })
    }

    /// By what the set says of devices.
    pub(super) fn selects(&self, device: &'a Device) -> Result<(), Rejection> {
        match self.rule.node {
            NodeMatch::Selected => {}
            NodeMatch::NotSelected => return Err(Rejection::NodeNotSelected),
            NodeMatch::HeldBack => return Err(Rejection::HeldBack),
            NodeMatch::Tainted => return Err(Rejection::Tainted),
            NodeMatch::StandsBack => return Err(Rejection::StandsBack),
        }
        if self.rule.named.as_ref().is_some_and(|named| !named.names(&device.raw)) {
            return Err(Rejection::NotNamed);
        }
        self.rule.filter.matches(&device.raw, self.disk_of(device)).map_err(Rejection::Filter)?;
        if self.rule.filter.exclude_network {
            let Attachment { reach, by } = self.hall.attachments.of(&device.raw);
            if reach == Reach::Network {
                return Err(Rejection::Filter(Mismatch::Network { by }));
            }
        }
        if let Some(expression) = &self.rule.filter.expression {
            expression.selects(device, self.hall.attachments.of(&device.raw)).map_err(Rejection::Filter)?;
        }
        match (&device.verdict, &device.label) {
            (Verdict::Ours, Some(label)) => Err(Rejection::InSet(label.set.clone())),
            (Verdict::Ours, None) => Ok(()),
            (Verdict::Unclaimed | Verdict::Foreign { .. } | Verdict::Theirs(_) | Verdict::Unknown(_), _) => Ok(()),
        }
    }

    /// The disk that a partition is on.
    pub(super) fn disk_of(&self, device: &Device) -> Option<&'a RawDisk> {
        self.hall.disks.get(&device.raw.kind.partition()?.disk).copied()
    }

    /// Whether a device that nobody has is of use to the set.
    pub(super) fn can_use(&self, device: &'a Device) -> Result<(), Rejection> {
        let ballot = self.hall.ballot;
        if ballot.released.contains(&device.id) {
            return Err(Rejection::Released);
        }
        let astray = ballot.astray.get(&self.rule.set).copied().unwrap_or(0);
        if astray > 0 && self.rule.named.as_ref().is_some_and(|named| named.names_by_number_only(&device.raw)) {
            return Err(Rejection::Renumbered { astray });
        }
        let needs_table = self.rule.layout.cuts() || self.rule.layout.is_directory() || self.rule.array.is_some();
        if needs_table && !holds_table(&device.raw) {
            return Err(Rejection::HoldsNoTable);
        }
        if self.is_bare_use(device) && device.id.is_path() {
            return Err(Rejection::UnstableIdentity);
        }
        if self.is_bare_use(device) && id::may_be_of_bridge(&device.raw, self.disk_of(device)) {
            return Err(Rejection::NamedByBridge);
        }
        (ballot.fits)(self.rule, device).map_err(Rejection::DoesNotFit)?;
        match &self.hall.candidacy(device).not_zeros {
            Some(why) if self.wants_zeros(device) => Err(Rejection::NotZeros(*why)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn may_take(&self, device: &'a Device, taken: &TakenBy<'_>) -> Result<(), Rejection> {
        self.can_use(device)?;
        if let Some(least) = self.rule.filter.min_health {
            let silent = || Health::Unknown("it was not asked".to_owned());
            let health = self.hall.candidacy(device).health.clone().unwrap_or_else(silent);
            least.check(&health).map_err(Rejection::Health)?;
        }
        match taken.get(&device.raw.name) {
            Some(older) => Err(Rejection::OlderSet((*older).clone())),
            None => Ok(()),
        }
    }
}

impl Filter {
    /// Whether it selects a device; else the first mismatch in this order: type, size and other
    /// [values](crate::claim::VALUE_FILTERS), mechanical property, the [lists](crate::claim::LIST_FILTERS) in their turn, then the exclusion of kernel names. What needs more than the
    /// device's own facts (networks, expressions) the set asks after it. `disk` is the disk of a partition.
    pub fn matches(&self, raw: &RawDisk, disk: Option<&RawDisk>) -> Result<(), Mismatch> {
        self.check_type(raw, disk)?;
        self.check_values(raw)?;
        if !self.rotational.is_empty() && !self.rotational.contains(&raw.rotational) {
            return Err(Mismatch::Mechanical { rotational: raw.rotational });
        }
        self.lists.select(raw)?;
        match self.exclude_names.iter().find(|glob| glob.matches(&raw.name)) {
            Some(glob) => Err(Mismatch::Excluded { by: glob.text().to_owned() }),
            None => Ok(()),
        }
    }

    fn check_type(&self, raw: &RawDisk, disk: Option<&RawDisk>) -> Result<(), Mismatch> {
        if !device_type(raw).is_some_and(|is| self.types.contains(&is)) {
            return Err(Mismatch::Type { is: type_name(raw), wanted: self.types.clone() });
        }
        match disk {
            Some(disk) if matches!(disk.kind, DeviceKind::Partition(_)) => {
                Err(Mismatch::NestedPartition { disk: disk.name.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::glob::Glob;
    use crate::claim::sample::{filter, lists, without};
    use crate::claim::{ElementKind, ListFilter};
    use crate::device::{
        DeviceType, sample,
        sample::{GIB, disk},
    };

    fn raw() -> RawDisk {
        RawDisk {
            vendor: Some("ATA".into()),
            model: Some("Samsung SSD 870 EVO".into()),
            links: vec!["/dev/disk/by-id/ata-Samsung_870".into()],
            ..disk("sda")
        }
    }

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        let parse = |pattern: &&str| Glob::parse(pattern).expect("a glob");
        patterns.iter().map(parse).collect()
    }

    /// The mismatch of a list.
    fn mismatch(field: &'static str, why: &str) -> Result<(), Mismatch> {
        Err(Mismatch::Field { field, why: why.to_owned() })
    }

    /// One change of a filter, and whether it still selects.
    fn check(change: impl FnOnce(&mut Filter), raw: &RawDisk) -> Result<(), Mismatch> {
        let mut filter = filter();
        change(&mut filter);
        filter.matches(raw, None)
    }

    #[test]
    fn sizes_are_inclusive_at_both_ends() {
        let raw = raw();
        assert_eq!(check(|f| (f.min_size, f.max_size) = (raw.size, Some(raw.size)), &raw), Ok(()));
        let (size, least) = (raw.size, raw.size + 1);
        assert_eq!(check(|f| f.min_size = least, &raw), Err(Mismatch::TooSmall { size, least }));
        let most = raw.size - 1;
        assert_eq!(check(|f| f.max_size = Some(most), &raw), Err(Mismatch::TooLarge { size, most }));
    }

    #[test]
    fn types_are_the_operators_and_an_empty_list_selects_nothing() {
        let cases = [
            (disk("sda"), DeviceType::Disk),
            (sample::partition("sda", 1, None), DeviceType::Part),
            (sample::loop_over("loop0", "/img"), DeviceType::Loop),
            (sample::dm("dm-0", "mpath-3600", &[]), DeviceType::Mpath),
        ];
        for (raw, own) in &cases {
            for (_, wanted) in &cases {
                let answer = check(|f| f.types = vec![*wanted], raw);
                assert_eq!(answer.is_ok(), own == wanted, "{} for {wanted}", raw.name);
            }
            assert!(matches!(check(|f| f.types.clear(), raw), Err(Mismatch::Type { .. })));
        }
        let every = cases.map(|(_, own)| own).to_vec();
        let mapped = ["LVM-abc", "CRYPT-x", "part1-mpath-3600", ""].map(|uuid| sample::dm("dm-1", uuid, &[]));
        for other in mapped.into_iter().chain([sample::md("md0", &[])]) {
            let found = check(|f| f.types = every.clone(), &other).unwrap_err();
            let Mismatch::Type { is, .. } = found else { panic!("{found}") };
            assert!(["lvm", "crypt", "dm", "raid"].contains(&is), "no type that was asked for: {is}");
        }
    }

    #[test]
    fn serials_and_wwns_are_globs_in_any_case_and_in_both_spellings() {
        let raw = RawDisk { serial: Some("S6PXNM0T".into()), wwid: Some("naa.5002538F7142A3B1".into()), ..raw() };
        for (patterns, takes) in [(vec!["s6p*"], true), (vec!["x", "S6PXNM0T"], true), (vec!["S6P"], false)] {
            assert_eq!(check(|f| f.lists = lists(&[("serials", &patterns)]), &raw).is_ok(), takes, "{patterns:?}");
        }
        for pattern in ["0x5002538f7142a3b1", "naa.5002538f*", "0x5002538F*"] {
            assert_eq!(check(|f| f.lists = lists(&[("wwns", &[pattern])]), &raw), Ok(()), "{pattern}");
        }
        let other = mismatch("wwns", "its WWN 0x5002538F7142A3B1 matches none of wwns");
        assert_eq!(check(|f| f.lists = lists(&[("wwns", &["0x6*"])]), &raw), other);
        let nameless = RawDisk { serial: None, wwid: None, ..raw };
        assert_eq!(
            check(|f| f.lists = lists(&[("serials", &["*"])]), &nameless),
            mismatch("serials", "it reports no serial")
        );
        assert_eq!(check(|f| f.lists = lists(&[("wwns", &["*"])]), &nameless), mismatch("wwns", "it has no WWN"));
    }

    #[test]
    fn transport_sectors_and_numa_node_are_those_that_the_kernel_names() {
        let raw = RawDisk { transport: Some("nvme".into()), logical_sector: 4096, numa_node: Some(1), ..raw() };
        type Change = fn(&mut Filter);
        let cases: [(Change, bool); 8] = [
            (|f| f.lists = lists(&[("transports", &["sata", "NVMe"])]), true),
            (|f| f.lists = lists(&[("transports", &["sata"])]), false),
            (|f| f.lists = lists(&[("sectorSizes", &["512", "4096"])]), true),
            (|f| f.lists = lists(&[("sectorSizes", &["512"])]), false),
            (|f| f.lists = lists(&[("numaNodes", &["1"])]), true),
            (|f| f.lists = lists(&[("numaNodes", &["0"])]), false),
            (|f| f.lists = without(&f.lists, "transports"), true),
            (|f| f.lists = without(&f.lists, "numaNodes"), true),
        ];
        for (at, (change, takes)) in cases.into_iter().enumerate() {
            assert_eq!(check(change, &raw).is_ok(), takes, "case {at}");
        }
        let unknown = RawDisk { transport: None, numa_node: None, ..raw };
        let message = check(|f| f.lists = lists(&[("transports", &["nvme"])]), &unknown).unwrap_err().to_string();
        assert_eq!(message, "it is not known how it is attached, and the set requires nvme");
        assert!(check(|f| f.lists = lists(&[("numaNodes", &["0"])]), &unknown).is_err());
    }

    #[test]
    fn each_list_says_what_it_has_always_said_of_a_device_that_it_leaves() {
        let hostile = || Some(" a\"b\n".to_owned());
        let all = RawDisk { vendor: hostile(), model: hostile(), serial: hostile(), wwid: hostile(), ..raw() };
        let all = RawDisk { transport: hostile(), numa_node: Some(-1), ..all };
        let naa = RawDisk { wwid: Some("naa.5000".into()), ..all.clone() };
        let none = RawDisk { vendor: None, model: None, serial: None, wwid: None, transport: None, ..raw() };
        let mut message = String::new();
        for raw in [all, naa, none] {
            for list in ListFilter::in_turn() {
                let wanted: &[&str] = match list.elements {
                    ElementKind::Numbers { .. } => &["4096", "8192"],
                    ElementKind::Parts | ElementKind::Words | ElementKind::Globs(_) => &["x", "y"],
                };
                let left = check(|f| f.lists = lists(&[(list.field, wanted)]), &raw);
                message.push_str(&format!("{}\n", left.unwrap_err()));
            }
        }
        sample::holds("claim/golden/lists", &message);
    }

    #[test]
    fn a_partition_of_a_partition_is_not_selected() {
        let (outer, inner) = (sample::partition("sda", 1, None), sample::partition("sda1", 1, None));
        let part = Filter { types: vec![DeviceType::Part], ..filter() };
        assert_eq!(part.matches(&outer, Some(&disk("sda"))), Ok(()));
        assert_eq!(part.matches(&inner, Some(&outer)), Err(Mismatch::NestedPartition { disk: "sda1".into() }));
    }

    #[test]
    fn rotation_is_selected_by_either_or_both() {
        let (ssd, hdd) = (raw(), RawDisk { rotational: true, ..raw() });
        for (wanted, takes_ssd, takes_hdd) in [
            (vec![], true, true),
            (vec![true, false], true, true),
            (vec![true], false, true),
            (vec![false], true, false),
        ] {
            assert_eq!(check(|f| f.rotational = wanted.clone(), &ssd).is_ok(), takes_ssd, "{wanted:?}");
            assert_eq!(check(|f| f.rotational = wanted.clone(), &hdd).is_ok(), takes_hdd, "{wanted:?}");
        }
    }

    #[test]
    fn vendors_and_models_are_parts_of_the_name_in_any_case() {
        for (wanted, taken) in [(&["samsung"][..], true), (&["nope", "870 evo"], true), (&["crucial"], false)] {
            assert_eq!(check(|f| f.lists = lists(&[("models", wanted)]), &raw()).is_ok(), taken, "{wanted:?}");
        }
        assert_eq!(check(|f| f.lists = lists(&[("vendors", &["at"])]), &raw()), Ok(()));
        assert_eq!(
            check(|f| f.lists = lists(&[("vendors", &["ata"])]), &disk("vda")),
            mismatch("vendors", "it reports no vendor")
        );
        assert_eq!(
            check(|f| f.lists = lists(&[("models", &["ata"])]), &disk("vda")),
            mismatch("models", "it reports no model")
        );
    }

    #[test]
    fn paths_are_looked_for_in_node_links_and_backing_file() {
        for glob in ["/dev/sd?", "/dev/disk/by-id/ata-*"] {
            assert_eq!(check(|f| f.lists = lists(&[("paths", &["/no", glob])]), &raw()), Ok(()), "{glob}");
        }
        assert_eq!(
            check(|f| f.lists = lists(&[("paths", &["/dev/nvme*"])]), &raw()),
            mismatch("paths", "no path of it matches paths")
        );
        let image = sample::loop_over("loop3", "/var/demo/a.img");
        let loops = |paths| Filter { types: vec![DeviceType::Loop], lists: lists(&[("paths", paths)]), ..filter() };
        assert_eq!(loops(&["/var/demo/*.img"]).matches(&image, None), Ok(()));
        assert_eq!(loops(&["/var/*.img"]).matches(&image, None), mismatch("paths", "no path of it matches paths"));
    }

    #[test]
    fn a_name_filter_excludes() {
        let by = "sd[ab]".to_owned();
        assert_eq!(check(|f| f.exclude_names = globs(&["x", "sd[ab]"]), &raw()), Err(Mismatch::Excluded { by }));
        assert_eq!(check(|f| f.exclude_names = globs(&["sd[ab]"]), &disk("sdc")), Ok(()));
    }

    #[test]
    fn the_first_reason_follows_the_written_order() {
        let mut filter = Filter {
            types: vec![DeviceType::Part],
            rotational: vec![true],
            min_size: 200 * GIB,
            max_size: None,
            lists: lists(&[
                ("models", &["x"]),
                ("vendors", &["x"]),
                ("paths", &["/x"]),
                ("serials", &["x"]),
                ("wwns", &["x"]),
                ("transports", &["x"]),
                ("sectorSizes", &["4096"]),
                ("numaNodes", &["7"]),
            ]),
            exclude_names: globs(&["sda"]),
            exclude_network: false,
            expression: None,
            min_health: None,
        };
        let raw = raw();
        let mut messages = Vec::new();
        for mend in [
            |f: &mut Filter| f.types.push(DeviceType::Disk),
            |f: &mut Filter| f.min_size = 0,
            |f: &mut Filter| f.rotational.clear(),
            |f: &mut Filter| f.lists = without(&f.lists, "vendors"),
            |f: &mut Filter| f.lists = without(&f.lists, "models"),
            |f: &mut Filter| f.lists = without(&f.lists, "serials"),
            |f: &mut Filter| f.lists = without(&f.lists, "wwns"),
            |f: &mut Filter| f.lists = without(&f.lists, "transports"),
            |f: &mut Filter| f.lists = without(&f.lists, "sectorSizes"),
            |f: &mut Filter| f.lists = without(&f.lists, "numaNodes"),
            |f: &mut Filter| f.lists = without(&f.lists, "paths"),
            |f: &mut Filter| f.exclude_names.clear(),
        ] {
            messages.push(filter.matches(&raw, None).unwrap_err().to_string());
            mend(&mut filter);
        }
        assert_eq!(filter.matches(&raw, None), Ok(()));
        let starts = [
            "its type is disk, not part",
            "100.0 GiB",
            "it is NonRotational",
            "its vendor",
            "its model",
            "it reports no serial",
            "it has no WWN",
            "it is not known how it is attached",
            "its sectors have 512 bytes",
            "its NUMA node is not known",
            "no path",
            "its name is excluded",
        ];
        for (sentence, start) in messages.iter().zip(starts) {
            assert!(sentence.starts_with(start), "{sentence}");
        }
    }
}
