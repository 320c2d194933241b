//! Rules that keep the host's udev off what tenants write into our partitions. Pure text, by our partition types.

use super::label::{ERASING_TYPE, FREE_SLOT_TYPE, LABEL_TYPE, VOLUME_TYPE};

/// After the rules that only look, and before those that make links (60-persistent-storage), arrays (64-md) and volume
/// groups (69-lvm).
pub const FILE: &str = "60-localpool.rules";

/// The rules. Without a content type, udev and the programs after it have nothing to assemble, scan or link by.
/// SYSTEMD_READY stays as it is: systemd unmounts a device that it believes to be gone.
pub fn text() -> String {
    let types = [LABEL_TYPE, VOLUME_TYPE, FREE_SLOT_TYPE, ERASING_TYPE].map(|kind| kind.to_string()).join("|");
    let properties = ["TYPE", "USAGE", "UUID", "UUID_ENC", "UUID_SUB", "UUID_SUB_ENC", "LABEL", "LABEL_ENC"];
    let blank: String = properties.map(|name| format!("ENV{{ID_FS_{name}}}=\"\"\n")).concat();
    format!(
        r#"# From `localpool udev-rules`. localpool's partitions hold its tenants' data: this host assembles no array or
# volume group of it, scans no filesystem in it, and makes no link in /dev/disk/by-uuid or by-label to it.
ACTION=="remove", GOTO="localpool_end"
SUBSYSTEM!="block", GOTO="localpool_end"
ENV{{DEVTYPE}}!="partition", GOTO="localpool_end"
ENV{{ID_PART_ENTRY_TYPE}}!="?*", IMPORT{{builtin}}="blkid"
ENV{{ID_PART_ENTRY_TYPE}}!="{types}", GOTO="localpool_end"
IMPORT{{parent}}="ID_*"
{blank}ENV{{UDISKS_IGNORE}}="1"
ENV{{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}}="1"
ENV{{ID_PART_ENTRY_UUID}}=="?*", SYMLINK+="disk/by-partuuid/$env{{ID_PART_ENTRY_UUID}}"
ENV{{ID_PART_ENTRY_UUID}}=="?*", SYMLINK+="disk/by-localpool/$env{{ID_PART_ENTRY_UUID}}"
LABEL="localpool_end"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_our_partition_types_loses_its_content_and_keeps_the_link_that_names_the_volume() {
        let rules = text();
        for kind in [LABEL_TYPE, VOLUME_TYPE, FREE_SLOT_TYPE, ERASING_TYPE] {
            assert!(rules.contains(&kind.to_string()), "{kind}");
        }
        let line = |rule: &str| rules.lines().position(|line| line == rule).unwrap_or_else(|| panic!("{rule}"));
        let ours = rules.lines().position(|line| line.starts_with("ENV{ID_PART_ENTRY_TYPE}!=\"6c6f6361-"));
        for property in ["TYPE", "UUID_ENC", "LABEL_ENC"] {
            assert!(ours < Some(line(&format!("ENV{{ID_FS_{property}}}=\"\""))), "only of our partitions");
        }
        assert!(rules.contains(r#"SYMLINK+="disk/by-partuuid/$env{ID_PART_ENTRY_UUID}""#));
        assert!(!rules.lines().any(|line| line.contains("SYSTEMD_READY")), "it would unmount volumes in use");
        assert!(FILE < "60-persistent-storage.rules" && FILE > "59-storage-content.rules");
    }
}
