//! The folders of a machine: its own, or those of a machine that is kept in a folder, as in tests and benchmarks.

use std::path::PathBuf;

/// Where a machine's filesystems are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub dev: PathBuf,
    pub run: PathBuf,
    /// Where other provisioners keep their links.
    pub mnt: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into(), run: "/run".into(), mnt: "/mnt".into() }
    }
}

impl Roots {
    /// A machine that is kept in a folder. Not behind the feature `testing`: benchmarks measure what is shipped.
    pub fn under(folder: &std::path::Path) -> Self {
        let [sys, proc, dev, run, mnt] = ["sys", "proc", "dev", "run", "mnt"].map(|name| folder.join(name));
        Self { sys, proc, dev, run, mnt }
    }
}
