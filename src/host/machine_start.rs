//! Which start of the machine this is: after the next one nothing is mounted that was mounted before.
//!
//! Takes in /proc; gives out a [`MachineStart`].

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::process_start;

/// A start of a machine. A node that is a container, as of kind, has the kernel of its host, which runs on: there only
/// the first process starts again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStart {
    pub boot_id: String,
    /// When process 1 began, in ticks since the kernel did.
    pub first_process: u64,
}

impl MachineStart {
    /// `None`: /proc does not say it.
    pub fn read(proc: &Path) -> Option<Self> {
        let boot_id = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?.trim().to_owned();
        let first_process = process_start::began(proc, 1)?;
        (!boot_id.is_empty()).then_some(Self { boot_id, first_process })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_boot_and_another_first_process_are_another_start_and_what_cannot_be_read_is_none() {
        let proc = tempfile::tempdir().expect("a directory");
        let start = |boot: &str, ticks: u64| {
            let folders = ["sys/kernel/random", "1"].map(|folder| proc.path().join(folder));
            folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("made"));
            fs::write(folders[0].join("boot_id"), boot).expect("written");
            let stat = format!("1 (init) S 0 1 1 0 -1 4194560 60 0 0 0 1 2 0 0 20 0 3 0 {ticks} 900 12 1\n");
            fs::write(folders[1].join("stat"), stat).expect("written");
            MachineStart::read(proc.path())
        };
        assert_eq!(MachineStart::read(proc.path()), None);
        let first = start("9d6d47dc\n", 7).expect("read");
        assert_eq!(first, MachineStart { boot_id: "9d6d47dc".to_owned(), first_process: 7 });
        assert_eq!(start("9d6d47dc\n", 7), Some(first.clone()));
        assert_ne!(start("9d6d47dd\n", 7), Some(first.clone()));
        assert_ne!(start("9d6d47dc\n", 8), Some(first));
        assert_eq!(start("", 7), None);
        assert!(MachineStart::read(Path::new("/proc")).is_some(), "this machine says it");
    }
}
