//! Rules that keep the host itself off what tenants write: rules of udev, and a filter of LVM (docs/hosts.md).
//!
//! Takes in a folder of the host, writes the file there only if it differs, and gives out a line for people.

use std::path::Path;

use anyhow::{Result, bail};

use crate::device::{lvm_filter, udev_rules};
use crate::host::{HostError, state};

/// Writes the udev rules.
pub fn install_udev_rules(dir: &Path) -> Result<String> {
    let how = "`udevadm trigger --subsystem-match=block` applies it now";
    Ok(install(dir, udev_rules::FILE, &udev_rules::text(), how)?)
}

/// Adds the filter to LVM's file and keeps the rest of that file. Refused if the host has a `global_filter` of its own:
/// LVM would ignore that one.
pub fn install_lvm_filter(dir: &Path) -> Result<String> {
    let files = state::texts(dir, "conf")?;
    if let Some((name, _)) = files.iter().find(|(_, text)| lvm_filter::has_another(text)) {
        bail!(
            "{} has a global_filter of its own, and LVM takes only one: put \"r|^/dev/disk/by-localpool/|\" first into that",
            dir.join(name).display()
        );
    }
    let there = files.get(lvm_filter::FILE).map(String::as_str).unwrap_or_default();
    Ok(install(dir, lvm_filter::FILE, &lvm_filter::put_into(there), "LVM reads it at the next command")?)
}

/// Writes both at the start of the agent, which also works without them, so a failure is only logged.
pub(super) fn install_all(udev_rules_dir: Option<&Path>, lvm_dir: Option<&Path>) {
    let done = [udev_rules_dir.map(install_udev_rules), lvm_dir.map(install_lvm_filter)];
    for done in done.into_iter().flatten() {
        match done {
            Ok(line) => tracing::info!("{line}"),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the host does not ignore what tenants write"),
        }
    }
}

fn install(dir: &Path, file: &str, text: &str, then: &str) -> Result<String, HostError> {
    let path = dir.join(file);
    Ok(match state::install(dir, file, text)? {
        true => format!("{} is written; {then}", path.display()),
        false => format!("{} is up to date", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lvms_file_keeps_what_it_has_and_is_written_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("lvmlocal.conf");
        state::install(dir.path(), "lvmlocal.conf", "local {\n}\n").expect("written");
        assert!(install_lvm_filter(dir.path()).expect("written").contains("is written"));
        let text = state::texts(dir.path(), "conf").expect("read").remove("lvmlocal.conf").expect("there");
        assert!(text.starts_with("local {\n}\n") && text.contains("r|^/dev/disk/by-localpool/|"), "{text}");
        assert_eq!(install_lvm_filter(dir.path()).expect("there"), format!("{} is up to date", file.display()));
    }

    #[test]
    fn a_host_with_a_filter_of_its_own_keeps_it_and_is_told_what_to_add() {
        let dir = tempfile::tempdir().expect("a folder");
        state::install(dir.path(), "lvm.conf", "devices {\n\tglobal_filter = [ \"a|sda|\", \"r|.*|\" ]\n}\n")
            .expect("written");
        let refused = install_lvm_filter(dir.path()).expect_err("refused").to_string();
        assert!(refused.contains("lvm.conf has a global_filter") && refused.contains("by-localpool"), "{refused}");
        assert!(!dir.path().join("lvmlocal.conf").exists());
    }
}
