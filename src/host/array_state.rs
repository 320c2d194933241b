//! How the md arrays are that a device is built on, from their folders in sysfs.
//!
//! Takes in the root of sysfs and a device number; gives out what the kernel says of each array. No device is opened.

use std::path::Path;

use super::kernel_name::KernelName;
use super::raw::DevNo;

/// How an md array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayState {
    pub name: KernelName,
    /// md/level: `raid0`, `raid1`, `raid5`, …
    pub level: Option<String>,
    /// md/array_state: `clean`, `active`, `inactive`, `broken`, …
    pub state: String,
    /// How many members it lacks. `None`: its level has no redundancy, and it cannot lack one.
    pub degraded: Option<u32>,
    /// How many members it should have.
    pub disks: Option<u32>,
}

/// More devices below each other than anybody stacks.
const DEEPEST: usize = 8;

/// The arrays among a device, the disk of a partition, and what either is built on: LVM on an array, or a partition of
/// one. Empty: there are none, or it is gone.
pub(super) fn read(sys: &Path, device: DevNo) -> Vec<ArrayState> {
    let mut found = Vec::new();
    descend(&sys.join("dev/block").join(device.to_string()), DEEPEST, &mut found);
    found
}

fn descend(folder: &Path, depth: usize, found: &mut Vec<ArrayState>) {
    let Ok(folder) = folder.canonicalize() else { return };
    let Some(depth) = depth.checked_sub(1) else { return };
    let array = array(&folder).filter(|array| found.iter().all(|known| known.name != array.name));
    found.extend(array);
    if folder.join("partition").exists() {
        folder.parent().into_iter().for_each(|disk| descend(disk, depth, found));
    }
    let slaves = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    slaves.for_each(|slave| descend(&slave.path(), depth, found));
}

fn array(folder: &Path) -> Option<ArrayState> {
    let name = KernelName::of_sysfs(folder.file_name()?.to_str()?);
    let text = |attribute: &str| std::fs::read_to_string(folder.join("md").join(attribute)).ok();
    let word = |attribute| text(attribute).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let number = |attribute| text(attribute).as_deref().and_then(first_number);
    let (degraded, disks) = (number("degraded"), number("raid_disks"));
    Some(ArrayState { name, level: word("level"), state: word("array_state")?, degraded, disks })
}

/// While an array changes its shape, the number from before follows in parentheses: `4 (3)`.
fn first_number(text: &str) -> Option<u32> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const ARRAY: DevNo = DevNo { major: 9, minor: 127 };

    /// A machine with this array, a partition of it, and a logical volume over both.
    struct Machine(tempfile::TempDir);

    fn machine(files: &[(&str, &str)]) -> Machine {
        let sys = tempfile::tempdir().expect("a folder");
        let place = |name: &str| sys.path().join("devices/virtual/block").join(name);
        for folder in ["md127/md", "md127/slaves", "md127/md127p1", "dm-0/slaves"] {
            fs::create_dir_all(place(folder)).expect("a folder");
        }
        for (name, text) in files {
            fs::write(place("md127/md").join(name), text).expect("a file");
        }
        fs::write(place("md127/md127p1/partition"), "1\n").expect("a file");
        fs::create_dir_all(sys.path().join("dev/block")).expect("a folder");
        for (number, name) in [("9:127", "md127"), ("259:1", "md127/md127p1"), ("253:0", "dm-0")] {
            symlink(place(name), sys.path().join("dev/block").join(number)).expect("a link");
        }
        for slave in ["md127", "md127/md127p1"] {
            symlink(place(slave), place("dm-0/slaves").join(slave.replace('/', "-"))).expect("a link");
        }
        Machine(sys)
    }

    fn of(files: &[(&str, &str)]) -> Option<ArrayState> {
        let machine = machine(files);
        let mut arrays = read(machine.0.path(), ARRAY);
        assert!(arrays.len() <= 1, "{arrays:?}");
        arrays.pop()
    }

    fn state(state: &str, level: Option<&str>, degraded: Option<u32>, disks: Option<u32>) -> ArrayState {
        let level = level.map(str::to_owned);
        ArrayState { name: "md127".into(), level, state: state.to_owned(), degraded, disks }
    }

    #[test]
    fn an_array_says_its_state_and_how_many_members_it_has_and_lacks() {
        let found = of(&[("array_state", "clean\n"), ("level", "raid5\n"), ("degraded", "1\n"), ("raid_disks", "3\n")]);
        assert_eq!(found, Some(state("clean", Some("raid5"), Some(1), Some(3))));
        let reshaped = of(&[("array_state", "active\n"), ("degraded", "0\n"), ("raid_disks", "4 (3)\n")]);
        assert_eq!(reshaped, Some(state("active", None, Some(0), Some(4))));
        let striped = of(&[("array_state", "broken\n"), ("level", "raid0\n"), ("raid_disks", "2\n")]);
        assert_eq!(striped, Some(state("broken", Some("raid0"), None, Some(2))));
    }

    #[test]
    fn a_number_that_is_none_is_not_known_and_what_is_no_array_has_no_state() {
        for bad in ["", "\n", "many", "-1", "4294967296", &"9".repeat(5000)] {
            let found =
                of(&[("array_state", "clean\n"), ("level", bad.trim()), ("degraded", bad), ("raid_disks", bad)]);
            let level = Some(bad.trim()).filter(|level| !level.is_empty());
            assert_eq!(found, Some(state("clean", level, None, None)), "{bad}");
        }
        assert_eq!(of(&[("degraded", "0\n")]), None);
        assert_eq!(of(&[("array_state", "\n")]), None);
        assert_eq!(read(Path::new("/nowhere"), ARRAY), []);
    }

    #[test]
    fn a_partition_or_a_logical_volume_has_the_state_of_the_array_that_it_is_built_on_once() {
        let machine = machine(&[("array_state", "clean\n"), ("degraded", "1\n"), ("raid_disks", "2\n")]);
        for (major, minor) in [(9, 127), (259, 1), (253, 0)] {
            let found = read(machine.0.path(), DevNo { major, minor });
            assert_eq!(found, [state("clean", None, Some(1), Some(2))], "{major}:{minor}");
        }
        let slaves = machine.0.path().join("devices/virtual/block/md127/slaves");
        symlink("../../dm-0", slaves.join("dm-0")).expect("a link");
        assert_eq!(read(machine.0.path(), ARRAY).len(), 1, "a circle ends");
    }
}
