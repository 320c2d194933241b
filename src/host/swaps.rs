//! `/proc/swaps`: which paths the kernel swaps to.
//!
//! Takes in the bytes of the file, gives out the device paths; swap files are not devices.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::mountinfo::unescape;

/// Device nodes in use as swap, as the kernel writes them.
pub fn parse(text: impl AsRef<[u8]>) -> Vec<PathBuf> {
    let lines = text.as_ref().split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
            let name = unescape(fields.next()?);
            // A node that was removed while in use is still in use.
            let name = name.strip_suffix(b" (deleted)").unwrap_or(&name).to_vec();
            (fields.next()? == b"partition").then(|| PathBuf::from(OsString::from_vec(name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_are_listed_and_swap_files_are_not() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
                    /swap\\040file                           file\t\t1048572\t\t0\t\t-3\n\
                    /dev/odd\\040name                        partition\t4\t0\t-4\n\
                    /dev/dm-1\\040(deleted)                  partition\t4\t0\t-5\n";
        assert_eq!(parse(text), ["/dev/sda2", "/dev/odd name", "/dev/dm-1"].map(PathBuf::from));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }
    }
}
