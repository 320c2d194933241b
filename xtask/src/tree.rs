//! Where things are: the repository, and what is built of it.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of the repository, as an absolute path.
pub fn root() -> io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()
}

/// Cargo's target directory, as an absolute path.
pub fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A path that a script has put into the environment.
pub fn given(variable: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.ok_or_else(|| io::Error::other(format!("{variable} is missing: a script that calls this sets it")))
}
