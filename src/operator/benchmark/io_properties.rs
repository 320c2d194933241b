//! The text that Scylla reads: `io_properties.yaml`. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::DiskFigures;

/// The document.
#[derive(Serialize, Deserialize)]
struct IoProperties {
    disks: Vec<DiskProperties>,
}

#[derive(Serialize, Deserialize)]
struct DiskProperties {
    mountpoint: String,
    read_iops: u64,
    read_bandwidth: u64,
    write_iops: u64,
    write_bandwidth: u64,
}

/// The document for one disk that the pod mounts there. A path that YAML cannot say gives none.
pub fn document(mount_point: &str, figures: DiskFigures) -> Option<String> {
    let DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth } = figures;
    let mountpoint = mount_point.to_owned();
    let disk = DiskProperties { mountpoint, read_iops, read_bandwidth, write_iops, write_bandwidth };
    serde_saphyr::to_string(&IoProperties { disks: vec![disk] }).ok()
}

/// The figures of the disk that a pod mounts there, of what a command printed; or what is wrong with that. What it says
/// besides is left out. No message has anything of the text in it but names of fields: it may be anything.
pub fn figures(text: &str, mount_point: &str) -> Result<DiskFigures, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|place| format!(", by line {}", place.line())).unwrap_or_default();
        format!("it is no YAML{line}")
    })?;
    let disks = document.get("disks").ok_or("it has no list `disks`")?;
    let disks = disks.as_array().ok_or("`disks` is no list")?;
    let is_there = |disk: &&Value| {
        let at = disk.get("mountpoint").and_then(Value::as_str);
        at.is_some_and(|at| is_same_path(at, mount_point))
    };
    let mut found = disks.iter().filter(is_there);
    let disk = found.next().and_then(Value::as_object);
    let disk = disk.ok_or_else(|| format!("none of its `disks` has the `mountpoint` {mount_point}"))?;
    if found.next().is_some() {
        return Err(format!("two of its `disks` have the `mountpoint` {mount_point}"));
    }
    Ok(DiskFigures {
        read_iops: figure(disk, "read_iops")?,
        read_bandwidth: figure(disk, "read_bandwidth")?,
        write_iops: figure(disk, "write_iops")?,
        write_bandwidth: figure(disk, "write_bandwidth")?,
    })
}

/// They are written as `int64` in objects.
fn figure(disk: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let value = disk.get(name).ok_or_else(|| format!("its disk has no `{name}`"))?;
    let number = value.as_u64().filter(|number| *number > 0 && i64::try_from(*number).is_ok());
    number.ok_or_else(|| format!("`{name}` is no whole number above zero"))
}

/// With or without a slash at the end.
pub(super) fn is_same_path(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: DiskFigures = DiskFigures {
        read_iops: 43_315,
        read_bandwidth: 330_301_440,
        write_iops: 33_177,
        write_bandwidth: 165_675_008,
    };

    #[test]
    fn the_document_has_the_names_and_the_shape_that_scylla_reads() {
        let expected = "disks:\n\
                        - mountpoint: /var/lib/scylla\n  read_iops: 43315\n  read_bandwidth: 330301440\n  \
                        write_iops: 33177\n  write_bandwidth: 165675008\n";
        assert_eq!(document("/var/lib/scylla", FIGURES).as_deref(), Some(expected));
    }

    #[test]
    fn any_path_reads_back_as_it_is_and_the_largest_number_too() {
        let most = DiskFigures { read_bandwidth: u64::MAX, ..FIGURES };
        for path in ["/a b", "/a: b", "/#a", "/a'\"b", "/ä", "/yes", "/{a}", "/a\\n"] {
            let text = document(path, most).expect("it can be said");
            let read: IoProperties = serde_saphyr::from_str(&text).expect("YAML");
            let [disk] = &read.disks[..] else { panic!("one disk: {text}") };
            assert_eq!((disk.mountpoint.as_str(), disk.read_bandwidth), (path, u64::MAX), "{text}");
        }
    }

    #[test]
    fn what_a_command_printed_has_the_figures_of_the_disk_at_that_path_and_they_become_the_same_document() {
        let printed = document("/var/lib/scylla", FIGURES).expect("it can be said");
        assert_eq!(figures(&printed, "/var/lib/scylla"), Ok(FIGURES));
        let more = printed.replace("disks:\n", "disks:\n- mountpoint: /other\n  read_iops: 1\n")
            + "  read_saturation_length: 65536\n";
        assert_eq!(figures(&more, "/var/lib/scylla/"), Ok(FIGURES), "other disks and other fields do not count");
    }

    #[test]
    fn what_is_no_io_properties_is_refused_by_what_is_wrong_with_it_and_nothing_of_it_is_repeated() {
        let good = document("/data", FIGURES).expect("it can be said");
        for (text, expected) in [
            ("secret", "it has no list `disks`"),
            ("secret: [", "it is no YAML"),
            ("disks: secret", "`disks` is no list"),
            ("disks: []", "none of its `disks` has the `mountpoint` /data"),
            ("disks: [secret]", "none of its `disks` has the `mountpoint` /data"),
            (&good.replace("/data", "/secret"), "none of its `disks` has the `mountpoint` /data"),
            (
                &good.replace("disks:\n", "disks:\n- mountpoint: /data\n"),
                "two of its `disks` have the `mountpoint` /data",
            ),
            (&good.replace("write_iops", "write_secret"), "its disk has no `write_iops`"),
            (&good.replace("43315", "0"), "`read_iops` is no whole number above zero"),
            (&good.replace("43315", "-1"), "`read_iops` is no whole number above zero"),
            (&good.replace("43315", "1.5"), "`read_iops` is no whole number above zero"),
            (&good.replace("43315", "'secret'"), "`read_iops` is no whole number above zero"),
            (&good.replace("43315", "18446744073709551615"), "`read_iops` is no whole number above zero"),
            (&format!("Starting Evaluation\n{good}"), "it is no YAML"),
        ] {
            let why = figures(text, "/data").expect_err(text);
            assert!(why.starts_with(expected) && !why.contains("secret"), "{text:?}: {why}");
        }
        assert!(figures("", "/data").is_err());
    }

    /// Without the limits of the parser, the last text would be 10^39 numbers, and the first ones end the stack.
    #[test]
    fn hostile_text_is_refused_and_ends_nobody() {
        let deep = ["[".repeat(64 << 10), "{a: ".repeat(16 << 10), "- ".repeat(32 << 10), "? ".repeat(32 << 10)];
        let mut aliases = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
        for n in 1..40 {
            let list = vec![format!("*a{}", n - 1); 10].join(",");
            aliases.push_str(&format!("a{n}: &a{n} [{list}]\n"));
        }
        for text in deep.iter().chain([&aliases]) {
            figures(text, "/data").expect_err("it is no io_properties");
        }
    }
}
