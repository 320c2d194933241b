//! Whether a set's filter selects a device.
//!
//! Takes in a [`Filter`] and a device; gives out nothing, or the first [`Mismatch`] in this order: type,
//! size, mechanical property, vendor, model, serial, WWN, transport, sector size, NUMA node, path, then the exclusion of
//! kernel names. What needs more than the device's own facts (networks, expressions) the election asks after it.

use super::glob::Glob;
use super::mismatch::Mismatch;
use super::rule::Filter;
use crate::device::device_type::{device_type, type_name};
use crate::host::RawDisk;
use crate::host::raw::Kind;

impl Filter {
    /// `disk` is the disk of a partition.
    pub fn matches(&self, raw: &RawDisk, disk: Option<&RawDisk>) -> Result<(), Mismatch> {
        self.check_type(raw, disk)?;
        if raw.size < self.min_size {
            return Err(Mismatch::TooSmall { size: raw.size, least: self.min_size });
        }
        if let Some(most) = self.max_size.filter(|most| raw.size > *most) {
            return Err(Mismatch::TooLarge { size: raw.size, most });
        }
        if !self.rotational.is_empty() && !self.rotational.contains(&raw.rotational) {
            return Err(Mismatch::Mechanical { rotational: raw.rotational });
        }
        if !names_one_of(raw.vendor.as_deref(), &self.vendors) {
            return Err(Mismatch::Vendor { is: raw.vendor.clone() });
        }
        if !names_one_of(raw.model.as_deref(), &self.models) {
            return Err(Mismatch::Model { is: raw.model.clone() });
        }
        self.check_hardware(raw)?;
        if !self.paths.is_empty() && !self.selects_path(raw) {
            return Err(Mismatch::Path);
        }
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
            Some(disk) if matches!(disk.kind, Kind::Partition(_)) => {
                Err(Mismatch::NestedPartition { disk: disk.name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn check_hardware(&self, raw: &RawDisk) -> Result<(), Mismatch> {
        if !globbed(raw.serial.as_deref(), &self.serials) {
            return Err(Mismatch::Serial { is: raw.serial.clone() });
        }
        // The kernel says `naa.5000…`, udev and lsblk `0x5000…`.
        let wwn =
            raw.wwid.as_deref().map(|wwid| wwid.strip_prefix("naa.").map_or(wwid.to_owned(), |n| format!("0x{n}")));
        if !globbed(wwn.as_deref(), &self.wwns) && !globbed(raw.wwid.as_deref(), &self.wwns) {
            return Err(Mismatch::Wwn { is: wwn });
        }
        let is = raw.transport.as_deref();
        if !self.transports.is_empty()
            && !is.is_some_and(|is| self.transports.iter().any(|t| t.eq_ignore_ascii_case(is)))
        {
            return Err(Mismatch::Transport { is: raw.transport.clone(), wanted: self.transports.clone() });
        }
        if !self.sector_sizes.is_empty() && !self.sector_sizes.contains(&raw.logical_sector) {
            return Err(Mismatch::SectorSize { is: raw.logical_sector, wanted: self.sector_sizes.clone() });
        }
        if !self.numa_nodes.is_empty() && !raw.numa_node.is_some_and(|node| self.numa_nodes.contains(&node)) {
            return Err(Mismatch::NumaNode { is: raw.numa_node, wanted: self.numa_nodes.clone() });
        }
        Ok(())
    }

    fn selects_path(&self, raw: &RawDisk) -> bool {
        let file = match &raw.kind {
            Kind::Loop(Some(backing)) => Some(&backing.file),
            _ => None,
        };
        let paths: Vec<_> =
            [&raw.path].into_iter().chain(&raw.links).chain(file).map(|p| p.to_string_lossy()).collect();
        self.paths.iter().any(|glob| paths.iter().any(|path| glob.matches(path)))
    }
}

/// No wishes: anything will do. A device without such a word matches none. The patterns are in lower case.
fn globbed(word: Option<&str>, globs: &[Glob]) -> bool {
    let Some(word) = word.map(str::to_lowercase) else { return globs.is_empty() };
    globs.is_empty() || globs.iter().any(|glob| glob.matches(word.trim()))
}

/// No wishes: anything will do. A device without a name has none of them.
fn names_one_of(name: Option<&str>, wanted: &[String]) -> bool {
    let name = || name.unwrap_or_default().to_lowercase();
    wanted.is_empty() || {
        let name = name();
        wanted.iter().any(|part| name.contains(&part.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::filter;
    use super::*;
    use crate::device::device_type::DeviceType;
    use crate::device::sample;
    use crate::device::sample::{GIB, disk};

    fn raw() -> RawDisk {
        RawDisk {
            vendor: Some("ATA".into()),
            model: Some("Samsung SSD 870 EVO".into()),
            links: vec!["/dev/disk/by-id/ata-Samsung_870".into()],
            ..disk("sda")
        }
    }

    /// As the reader of a set gives them for serial numbers and WWNs: in lower case.
    fn globs(patterns: &[&str]) -> Vec<Glob> {
        let parse = |pattern: &&str| Glob::parse(&pattern.to_lowercase()).expect("a glob");
        patterns.iter().map(parse).collect()
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
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
            let said = check(|f| f.types = every.clone(), &other).unwrap_err();
            let Mismatch::Type { is, .. } = said else { panic!("{said}") };
            assert!(["lvm", "crypt", "dm", "raid"].contains(&is), "no type that was asked for: {is}");
        }
    }

    #[test]
    fn serials_and_wwns_are_globs_in_any_case_and_in_both_spellings() {
        let raw = RawDisk { serial: Some("S6PXNM0T".into()), wwid: Some("naa.5002538F7142A3B1".into()), ..raw() };
        for (patterns, takes) in [(vec!["s6p*"], true), (vec!["x", "S6PXNM0T"], true), (vec!["S6P"], false)] {
            assert_eq!(check(|f| f.serials = globs(&patterns), &raw).is_ok(), takes, "{patterns:?}");
        }
        for pattern in ["0x5002538f7142a3b1", "naa.5002538f*", "0x5002538F*"] {
            assert_eq!(check(|f| f.wwns = globs(&[pattern]), &raw), Ok(()), "{pattern}");
        }
        assert!(matches!(check(|f| f.wwns = globs(&["0x6*"]), &raw), Err(Mismatch::Wwn { .. })));
        let nameless = RawDisk { serial: None, wwid: None, ..raw };
        assert_eq!(check(|f| f.serials = globs(&["*"]), &nameless), Err(Mismatch::Serial { is: None }));
        assert_eq!(check(|f| f.wwns = globs(&["*"]), &nameless), Err(Mismatch::Wwn { is: None }));
    }

    #[test]
    fn transport_sectors_and_numa_node_are_those_that_the_kernel_names() {
        let raw = RawDisk { transport: Some("nvme".into()), logical_sector: 4096, numa_node: Some(1), ..raw() };
        type Change = fn(&mut Filter);
        let cases: [(Change, bool); 8] = [
            (|f| f.transports = strings(&["sata", "NVMe"]), true),
            (|f| f.transports = strings(&["sata"]), false),
            (|f| f.sector_sizes = vec![512, 4096], true),
            (|f| f.sector_sizes = vec![512], false),
            (|f| f.numa_nodes = vec![1], true),
            (|f| f.numa_nodes = vec![0], false),
            (|f| f.transports.clear(), true),
            (|f| f.numa_nodes.clear(), true),
        ];
        for (at, (change, takes)) in cases.into_iter().enumerate() {
            assert_eq!(check(change, &raw).is_ok(), takes, "case {at}");
        }
        let unknown = RawDisk { transport: None, numa_node: None, ..raw };
        let said = check(|f| f.transports = strings(&["nvme"]), &unknown).unwrap_err().to_string();
        assert_eq!(said, "how it is attached is not known, and nvme is wanted");
        assert!(check(|f| f.numa_nodes = vec![0], &unknown).is_err());
    }

    #[test]
    fn each_list_says_why_it_does_not_select() {
        let hostile = || Some(" a\"b\n".to_owned());
        let all = RawDisk { vendor: hostile(), model: hostile(), serial: hostile(), wwid: hostile(), ..raw() };
        let all = RawDisk { transport: hostile(), numa_node: Some(-1), ..all };
        let naa = RawDisk { wwid: Some("naa.5000".into()), ..all.clone() };
        let none = RawDisk { vendor: None, model: None, serial: None, wwid: None, transport: None, ..raw() };
        let said: String = [all, naa, none]
            .iter()
            .flat_map(|raw| {
                let changes: [fn(&mut Filter); 8] = [
                    |f| f.vendors = strings(&["x", "y"]),
                    |f| f.models = strings(&["x", "y"]),
                    |f| f.serials = globs(&["x", "y"]),
                    |f| f.wwns = globs(&["x", "y"]),
                    |f| f.transports = strings(&["x", "y"]),
                    |f| f.sector_sizes = vec![4096, 8192],
                    |f| f.numa_nodes = vec![7, 8],
                    |f| f.paths = globs(&["x", "y"]),
                ];
                changes.map(|change| format!("{}\n", check(change, raw).unwrap_err()))
            })
            .collect();
        sample::holds("claim/golden/lists", &said);
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
            assert_eq!(check(|f| f.models = strings(wanted), &raw()).is_ok(), taken, "{wanted:?}");
        }
        assert_eq!(check(|f| f.vendors = strings(&["at"]), &raw()), Ok(()));
        assert_eq!(check(|f| f.vendors = strings(&["ata"]), &disk("vda")), Err(Mismatch::Vendor { is: None }));
        assert_eq!(check(|f| f.models = strings(&["ata"]), &disk("vda")), Err(Mismatch::Model { is: None }));
    }

    #[test]
    fn paths_are_looked_for_in_node_links_and_backing_file() {
        for glob in ["/dev/sd?", "/dev/disk/by-id/ata-*"] {
            assert_eq!(check(|f| f.paths = globs(&["/no", glob]), &raw()), Ok(()), "{glob}");
        }
        assert_eq!(check(|f| f.paths = globs(&["/dev/nvme*"]), &raw()), Err(Mismatch::Path));
        let image = sample::loop_over("loop3", "/var/demo/a.img");
        let loops = |paths: &[&str]| Filter { types: vec![DeviceType::Loop], paths: globs(paths), ..filter() };
        assert_eq!(loops(&["/var/demo/*.img"]).matches(&image, None), Ok(()));
        assert_eq!(loops(&["/var/*.img"]).matches(&image, None), Err(Mismatch::Path));
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
            models: strings(&["x"]),
            vendors: strings(&["x"]),
            paths: globs(&["/x"]),
            serials: globs(&["x"]),
            wwns: globs(&["x"]),
            transports: strings(&["x"]),
            sector_sizes: vec![4096],
            numa_nodes: vec![7],
            exclude_names: globs(&["sda"]),
            exclude_network: false,
            expression: None,
            min_health: None,
        };
        let raw = raw();
        let mut said = Vec::new();
        for mend in [
            |f: &mut Filter| f.types.push(DeviceType::Disk),
            |f: &mut Filter| f.min_size = 0,
            |f: &mut Filter| f.rotational.clear(),
            |f: &mut Filter| f.vendors.clear(),
            |f: &mut Filter| f.models.clear(),
            |f: &mut Filter| f.serials.clear(),
            |f: &mut Filter| f.wwns.clear(),
            |f: &mut Filter| f.transports.clear(),
            |f: &mut Filter| f.sector_sizes.clear(),
            |f: &mut Filter| f.numa_nodes.clear(),
            |f: &mut Filter| f.paths.clear(),
            |f: &mut Filter| f.exclude_names.clear(),
        ] {
            said.push(filter.matches(&raw, None).unwrap_err().to_string());
            mend(&mut filter);
        }
        assert_eq!(filter.matches(&raw, None), Ok(()));
        let starts = [
            "its type is disk, not part",
            "100.0 GiB",
            "it is NonRotational",
            "its vendor",
            "its model",
            "it names no serial",
            "it has no WWN",
            "how it is attached",
            "its sectors have 512 bytes",
            "it is on no NUMA node",
            "no path",
            "its name is excluded",
        ];
        for (sentence, start) in said.iter().zip(starts) {
            assert!(sentence.starts_with(start), "{sentence}");
        }
    }
}
