//! A file that a person asked for: made new, and readable for that person alone.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes all of it. A file that is there already stays as it is.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether something has this name, be it a link that leads nowhere: a new file could not have it.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        assert!(!is_there(&path));
        write_new(&path, b"first").expect("new");
        assert!(is_there(&path));
        assert_eq!(write_new(&path, b"second").map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&path).expect("there"), b"first");
    }
}
