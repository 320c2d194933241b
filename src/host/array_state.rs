//! How an md array is, from its folder in sysfs.
//!
//! Takes in the root of sysfs and a device number; gives out what the kernel says of the array. No device is opened.

use std::path::Path;

use super::raw::DevNo;

/// How an md array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayState {
    /// md/array_state: `clean`, `active`, `inactive`, `broken`, …
    pub state: String,
    /// How many members it lacks. `None`: its level has no redundancy, and it cannot lack one.
    pub degraded: Option<u32>,
    /// How many members it should have.
    pub disks: Option<u32>,
}

/// `None`: it is no md array, or it is gone.
pub(super) fn read(sys: &Path, device: DevNo) -> Option<ArrayState> {
    let folder = sys.join("dev/block").join(device.to_string()).join("md");
    let text = |attribute: &str| std::fs::read_to_string(folder.join(attribute)).ok();
    let state = text("array_state")?.trim().to_owned();
    let number = |attribute| text(attribute).as_deref().and_then(first_number);
    (!state.is_empty()).then(|| ArrayState { state, degraded: number("degraded"), disks: number("raid_disks") })
}

/// While an array changes its shape, the number from before follows in parentheses: `4 (3)`.
fn first_number(text: &str) -> Option<u32> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ARRAY: DevNo = DevNo { major: 9, minor: 127 };

    fn array(files: &[(&str, &str)]) -> Option<ArrayState> {
        let sys = tempfile::tempdir().expect("a folder");
        let folder = sys.path().join("dev/block/9:127/md");
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
        }
        read(sys.path(), ARRAY)
    }

    #[test]
    fn an_array_says_its_state_and_how_many_members_it_has_and_lacks() {
        let state = array(&[("array_state", "clean\n"), ("degraded", "1\n"), ("raid_disks", "3\n")]);
        assert_eq!(state, Some(ArrayState { state: "clean".to_owned(), degraded: Some(1), disks: Some(3) }));
        let reshaped = array(&[("array_state", "active\n"), ("degraded", "0\n"), ("raid_disks", "4 (3)\n")]);
        assert_eq!(reshaped, Some(ArrayState { state: "active".to_owned(), degraded: Some(0), disks: Some(4) }));
        let striped = array(&[("array_state", "broken\n"), ("raid_disks", "2\n")]);
        assert_eq!(striped, Some(ArrayState { state: "broken".to_owned(), degraded: None, disks: Some(2) }));
    }

    #[test]
    fn a_number_that_is_none_is_not_known_and_what_is_no_array_has_no_state() {
        for bad in ["", "\n", "many", "-1", "4294967296", &"9".repeat(5000)] {
            let state = array(&[("array_state", "clean\n"), ("degraded", bad), ("raid_disks", bad)]);
            assert_eq!(state, Some(ArrayState { state: "clean".to_owned(), degraded: None, disks: None }), "{bad}");
        }
        assert_eq!(array(&[("degraded", "0\n")]), None);
        assert_eq!(array(&[("array_state", "\n")]), None);
        assert_eq!(read(Path::new("/nowhere"), ARRAY), None);
    }
}
