//! The folder of the node below which the filesystems of a set's disks are mounted for others.

use std::path::{Component, Path, PathBuf};

use crate::api::strict::Field;
use crate::device::label::Layout;

const EXAMPLE: &str = "/mnt/raid-disks";
/// A name is added to it, and the kernel takes paths of 4096 bytes.
const MOST_BYTES: usize = 1024;
/// Filesystems of the kernel and of the boot that begins: nothing is kept below them.
const NOT_KEPT: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

pub(super) fn read(field: &Field<'_, '_>) -> Option<PathBuf> {
    let text = field.string()?;
    let path = Path::new(text);
    // As the mount table has it, so that both can be compared.
    let is_plain = || path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let is_written_plainly = || path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    let problem = if !path.is_absolute() || text.len() > MOST_BYTES || text.contains(char::is_control) {
        format!("{text:?} is not a path of a folder on the node, such as {EXAMPLE}")
    } else if path == Path::new("/") {
        format!("is /, which has the node's system: name a folder of its own, such as {EXAMPLE}")
    } else if !is_plain() || !is_written_plainly() {
        format!("{text:?} must be written without //, /./, /../ and a / at its end")
    } else if let Some(other) = NOT_KEPT.iter().find(|other| path.starts_with(other)) {
        format!("is below {other}, which the kernel fills: name a folder of its own, such as {EXAMPLE}")
    } else {
        return Some(path.to_owned());
    };
    field.problem(problem);
    None
}

/// Only the layout Directory has a filesystem of its own.
pub(super) fn refuse_elsewhere(field: &Field<'_, '_>, layout: &Layout) {
    if field.is_given() && !layout.is_directory() {
        field.problem("is for the layout Directory alone");
    }
}
