//! Our tables, checked by the common tools: sgdisk, sfdisk, parted and libblkid, at sectors of 512 and 4096.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

use localpool::device::label::{FORMATTED, LABEL_EXTENT, LABEL_TYPE, OURS, VOLUME_TYPE};
use localpool::host::table::{
    Entry, Name, Part, Table, choose, read_copies, repair, wipe_backup, wipe_primary, write_first, write_table,
};
use localpool::host::{BlockDevice, Extent, Geometry, IoError};
use localpool_testing::loops::TempLoop;
use localpool_testing::{MIB, run, text};
use uuid::Uuid;

use crate::fixture::turn;

const SIZE: u64 = 64 * MIB;
const DISK: Uuid = Uuid::from_u128(0xd15c0000_0000_4000_8000_000000000001);
const VOLUME: Uuid = Uuid::from_u128(0x70100000_0000_5000_8000_000000000002);

/// A loop device of one sector size, whose table is written through its node.
struct Dev {
    device: TempLoop,
    file: File,
    geometry: Geometry,
}

impl Dev {
    fn new(sector: u32) -> Self {
        let device = TempLoop::new(SIZE, &["--sector-size", &sector.to_string(), "--find"]);
        let file = OpenOptions::new().read(true).write(true).open(&device.node).unwrap();
        Self { device, file, geometry: Geometry { size: SIZE, sector, offloads_zeroes: false } }
    }

    /// A command on the device; afterwards nobody reads what was cached before.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.file.sync_all().unwrap();
        let device = self.device.path();
        let output = run(program, &arguments.iter().map(|a| if *a == "DEV" { device } else { a }).collect::<Vec<_>>());
        run("blockdev", &["--flushbufs", device]);
        output
    }

    fn verify(&self) {
        let output = self.run("sgdisk", &["-v", "DEV"]);
        assert!(output.contains("No problems found."), "{output}");
        for complaint in ["Caution", "Warning", "Problem", "damaged", "not aligned"] {
            assert!(!output.contains(complaint), "{output}");
        }
    }

    fn chosen(&self) -> Table {
        let choice = choose(&read_copies(self), &OURS).unwrap();
        assert_eq!((choice.good, choice.stale), (Part::Primary, vec![]));
        choice.table
    }

    /// How sfdisk reads the table.
    fn sfdisk(&self) -> serde_json::Value {
        let output: serde_json::Value = serde_json::from_str(&self.run("sfdisk", &["-J", "DEV"])).unwrap();
        output["partitiontable"].clone()
    }

    /// Number, GUID, first byte and size, from sfdisk and from libblkid (through partx), which must agree.
    fn partitions(&self) -> Vec<(u32, Uuid, u64, u64)> {
        let sector = u64::from(self.geometry.sector);
        let table = self.sfdisk();
        let by_sfdisk: Vec<_> = table["partitions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| {
                let node = part["node"].as_str().unwrap().strip_prefix(&format!("{}p", self.device.path())).unwrap();
                let number = |key: &str| part[key].as_u64().unwrap() * sector;
                (
                    node.parse().unwrap(),
                    part["uuid"].as_str().unwrap().parse().unwrap(),
                    number("start"),
                    number("size"),
                )
            })
            .collect();
        let shown = self.run("partx", &["--raw", "--noheadings", "--bytes", "-o", "NR,UUID,START,SECTORS", "DEV"]);
        let by_blkid: Vec<_> = shown
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                // partx counts in sectors of 512, whatever the device has.
                let bytes = |word: &str| word.parse::<u64>().unwrap() * 512;
                (words[0].parse().unwrap(), words[1].parse().unwrap(), bytes(words[2]), bytes(words[3]))
            })
            .collect();
        assert_eq!(by_sfdisk, by_blkid);
        by_sfdisk
    }
}

impl BlockDevice for Dev {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.file.read_exact_at(buf, offset).map_err(|source| self.error("read", offset, source))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.file.write_all_at(data, offset).map_err(|source| self.error("write", offset, source))
    }

    fn zero(&self, range: Extent) -> Result<(), IoError> {
        self.write_at(range.start, &vec![0; usize::try_from(range.len()).unwrap()])
    }

    fn discard(&self, _range: Extent) -> Result<(), IoError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), IoError> {
        self.file.sync_all().map_err(|source| self.error("sync", 0, source))
    }
}

impl Dev {
    fn error(&self, what: &'static str, start: u64, source: std::io::Error) -> IoError {
        IoError { what, disk: self.device.path().into(), range: Extent { start, end: start }, source }
    }
}

/// Runs a test on a loop device of either sector size, or says why it cannot.
fn on_both_sectors(test: impl Fn(&Dev)) {
    let Some(_turn) = turn() else { return };
    for sector in [512, 4096] {
        test(&Dev::new(sector));
    }
}

fn label() -> Entry {
    let guid = Uuid::from_u128(0x1abe_0000_0000_4000_8000_0000_0000_0001);
    Entry { kind: LABEL_TYPE, guid, extent: LABEL_EXTENT, attributes: 0, name: Name::tail("localpool label") }
}

fn volume(start: u64, end: u64) -> Entry {
    Entry {
        kind: VOLUME_TYPE,
        guid: VOLUME,
        extent: Extent { start, end },
        attributes: FORMATTED,
        name: Name::tail("pvc-1"),
    }
}

fn claimed(dev: &Dev) -> Table {
    let table = Table::new(DISK, dev.geometry()).unwrap().with(1, Some(label())).unwrap();
    let table = table.with(7, Some(volume(2 * MIB, 10 * MIB))).unwrap();
    write_first(dev, &OURS, &table).unwrap();
    table
}

#[test]
fn loop_what_we_write_is_what_sgdisk_sfdisk_and_libblkid_read() {
    on_both_sectors(|dev| {
        let table = claimed(dev);
        dev.verify();
        assert_eq!(dev.partitions(), [(1, label().guid, MIB, MIB), (7, VOLUME, 2 * MIB, 8 * MIB)],);
        let output = dev.run("sgdisk", &["-i", "7", "DEV"]);
        for line in [
            format!("Partition GUID code: {} (Unknown)", VOLUME_TYPE.to_string().to_uppercase()),
            format!("Partition unique GUID: {}", VOLUME.to_string().to_uppercase()),
            "Attribute flags: 0001000000000000".to_owned(),
            "Partition name: 'pvc-1'".to_owned(),
        ] {
            assert!(output.contains(&line), "{line} in {output}");
        }
        let output = dev.sfdisk();
        assert_eq!(output["id"].as_str().unwrap().to_lowercase(), DISK.to_string());
        let sector = u64::from(dev.geometry.sector);
        assert_eq!(output["firstlba"].as_u64().unwrap() * sector, table.usable().start);
        assert_eq!((output["lastlba"].as_u64().unwrap() + 1) * sector, table.usable().end);
        let output = dev.run("blkid", &["-p", "-o", "export", "DEV"]);
        assert!(output.contains("PTTYPE=gpt") && output.contains(&format!("PTUUID={DISK}")), "{output}");
    });
}

#[test]
fn loop_sgdisk_verifies_after_every_edit_of_ours() {
    on_both_sectors(|dev| {
        let mut table = claimed(dev);
        let other = Entry { guid: Uuid::from_u128(9), ..volume(20 * MIB, 63 * MIB) };
        for (number, change) in
            [(128, Some(other)), (7, Some(volume(2 * MIB, 20 * MIB))), (7, None), (2, Some(volume(2 * MIB, 3 * MIB)))]
        {
            let new = table.with(number, change).unwrap();
            write_table(dev, &OURS, &table, &new).unwrap();
            dev.verify();
            let ours: Vec<_> =
                new.entries().iter().map(|(n, e)| (*n, e.guid, e.extent.start, e.extent.len())).collect();
            assert_eq!(dev.partitions(), ours);
            table = new;
        }
    });
}

#[test]
fn loop_a_table_of_sgdisk_decodes_and_its_partitions_survive_our_edit_unchanged() {
    on_both_sectors(|dev| {
        let sectors = |bytes: u64| (bytes / u64::from(dev.geometry.sector)).to_string();
        let at =
            |number, from, to: u64| format!("{number}:{}:{}", sectors(from), to / u64::from(dev.geometry.sector) - 1);
        dev.run(
            "sgdisk",
            &[
                "-U",
                &DISK.to_string(),
                "-a",
                "1",
                "-n",
                &at(1, MIB, 2 * MIB),
                "-t",
                &format!("1:{LABEL_TYPE}"),
                "-c",
                "1:localpool label",
                "-n",
                &at(4, 30 * MIB, 40 * MIB),
                "-t",
                "4:8300",
                "-c",
                "4:Gr\u{fc}\u{df}e \u{1f4be}",
                "-A",
                "4:set:2",
                "-A",
                "4:set:60",
                "-n",
                &at(2, 50 * MIB, 51 * MIB),
                "-t",
                "2:ef00",
                "DEV",
            ],
        );
        let old = dev.chosen();
        assert_eq!(old.disk(), DISK);
        assert_eq!(old.entries().keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
        let theirs = old.get(4).unwrap();
        assert_eq!(
            (theirs.name.to_string().as_str(), theirs.attributes),
            ("Gr\u{fc}\u{df}e \u{1f4be}", 1 << 2 | 1 << 60)
        );
        assert_eq!(theirs.extent, Extent { start: 30 * MIB, end: 40 * MIB });

        let before = [2, 4].map(|number| dev.run("sgdisk", &["-i", &number.to_string(), "DEV"]));
        write_table(dev, &OURS, &old, &old.with(3, Some(volume(2 * MIB, 30 * MIB))).unwrap()).unwrap();
        dev.verify();
        assert_eq!([2, 4].map(|number| dev.run("sgdisk", &["-i", &number.to_string(), "DEV"])), before);
        assert_eq!(dev.partitions().iter().map(|part| part.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    });
}

#[test]
fn loop_tables_of_parted_and_sfdisk_decode_to_the_same_partitions() {
    on_both_sectors(|dev| {
        dev.run(
            "parted",
            &["-s", "DEV", "mklabel", "gpt", "mkpart", "one", "1MiB", "5MiB", "mkpart", "two", "8MiB", "100%"],
        );
        let decodes = || {
            let copies = read_copies(dev);
            let (primary, backup) = (copies.primary.unwrap(), copies.backup.unwrap());
            assert_eq!(primary, backup);
            let decoded: Vec<_> =
                primary.entries().iter().map(|(n, e)| (*n, e.guid, e.extent.start, e.extent.len())).collect();
            assert_eq!(decoded, dev.partitions());
            assert_eq!(decoded.len(), 2);
        };
        decodes();
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(script.path(), "label: gpt\nsize=4MiB, name=x\nsize=8MiB, type=U\n").unwrap();
        let command = format!("sfdisk --no-reread -q --wipe always {} < {}", dev.device.path(), text(script.path()));
        run("sh", &["-c", &command]);
        run("blockdev", &["--flushbufs", dev.device.path()]);
        decodes();
    });
}

#[test]
fn loop_a_repaired_table_verifies_and_a_wiped_disk_is_blank_to_libblkid() {
    on_both_sectors(|dev| {
        let table = claimed(dev);
        let sector = u64::from(dev.geometry.sector);
        for start in [0, SIZE - sector] {
            dev.write_at(
                start,
                &vec![0; usize::try_from(2 * sector).unwrap().min(usize::try_from(SIZE - start).unwrap())],
            )
            .unwrap();
            repair(dev, &OURS, &choose(&read_copies(dev), &OURS).unwrap().table).unwrap();
            dev.verify();
        }
        assert_eq!(dev.chosen(), table);
        wipe_primary(dev, &OURS, &table).unwrap();
        wipe_backup(dev, &OURS, &table).unwrap();
        let probe = Command::new("blkid").args(["-p", dev.device.path()]).output().unwrap();
        assert_eq!((probe.status.code(), probe.stdout.len()), (Some(2), 0), "blkid finds nothing");
    });
}
