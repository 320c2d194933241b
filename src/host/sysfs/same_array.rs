//! Whether a node still leads to the md array that was scanned. The kernel gives the number of an array that ended to the
//! next one, and may even take both for one device while somebody has the node open.
//!
//! Takes in the roots and the scanned array; gives out nothing, or what is there instead. Opens no device: that would make
//! an array of a node that leads to none.

use super::directory::Directory;
use super::disk::Uevent;
use crate::host::error::HostError;
use crate::host::raw::{DeviceKind, Md, RawDisk};
use crate::host::roots::Roots;
use crate::host::udev::{md_uuid, property};

/// By number, sequence and UUID. A UUID that is not known any more is another one.
pub(super) fn prove(roots: &Roots, array: &RawDisk) -> Result<(), HostError> {
    let changed = |why: String| Err(HostError::Changed { path: array.path.clone(), why });
    let DeviceKind::Md(Md { uuid: was, .. }) = &array.kind else { return changed("it was no array".to_owned()) };
    let folder = roots.sys.join("block").join(array.name.replace('/', "!"));
    let Ok(node) = Directory::open(&folder) else { return changed("it is gone".to_owned()) };
    let uevent = Uevent::read(&node);
    if (uevent.devno, uevent.diskseq(&node)) != (Some(array.devno), array.diskseq) {
        return changed("another device has its name".to_owned());
    }
    let of_udev = || property(&roots.run, array.devno, "MD_UUID");
    let now = node.text("md/uuid").as_deref().and_then(md_uuid).or_else(|| of_udev().as_deref().and_then(md_uuid));
    match (was, now) {
        (Some(was), Some(now)) if *was != now => changed(format!("it is the array {now}, not {was}")),
        (Some(was), None) => changed(format!("nobody says whether it still is the array {was}")),
        (Some(_), Some(_)) | (None, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::raw::DevNo;

    const WAS: &str = "11111111-1111-1111-1111-111111111111";
    const OTHER: &str = "22222222:22222222:22222222:22222222";

    #[test]
    fn an_array_whose_number_another_one_has_taken_is_not_the_same() {
        let machine = tempfile::tempdir().expect("a folder");
        let roots = Roots::under(machine.path());
        let write = |file: &str, text: &str| {
            let path = machine.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let kind = |uuid: Option<&str>| DeviceKind::Md(Md { uuid: uuid.map(str::to_owned), level: None, state: None });
        let devno = DevNo { major: 9, minor: 127 };
        let array =
            RawDisk { diskseq: Some(7), ..RawDisk::named("md127".into(), "/dev/md127".into(), devno, kind(Some(WAS))) };
        let is = |array: &RawDisk| prove(&roots, array).map_err(|why| why.to_string());
        let said = |array: &RawDisk| is(array).expect_err("it is another one");
        assert!(said(&array).ends_with("it is gone"));
        write("sys/block/md127/uevent", "MAJOR=9\nMINOR=127\nDISKSEQ=7\n");
        assert!(said(&array).contains("nobody says whether"), "its UUID is not known yet");
        write("sys/block/md127/md/uuid", WAS);
        assert_eq!(is(&array), Ok(()));
        for other in [RawDisk { diskseq: Some(8), ..array.clone() }, RawDisk { diskseq: None, ..array.clone() }] {
            assert!(said(&other).ends_with("another device has its name"));
        }
        write("sys/block/md127/md/uuid", OTHER);
        assert!(said(&array).contains("it is the array 22222222-"), "the kernel says so");
        fs::remove_file(machine.path().join("sys/block/md127/md/uuid")).expect("removed");
        write("run/udev/data/b9:127", &format!("E:MD_UUID={}\n", OTHER.replace('2', "1")));
        assert_eq!(is(&array), Ok(()), "an older kernel says nothing, and udev does");
        write("run/udev/data/b9:127", &format!("E:MD_UUID={OTHER}\n"));
        assert!(said(&array).contains("it is the array 22222222-"), "udev says so");
        let unnamed = RawDisk { kind: kind(None), ..array };
        assert_eq!(is(&unnamed), Ok(()), "nobody ever said its UUID");
    }
}
