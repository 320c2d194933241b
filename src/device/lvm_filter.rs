//! A filter that keeps the host's LVM off what tenants write into our partitions, as a part of its `lvmlocal.conf`.
//! Pure text.
//!
//! LVM asks udev when a device comes, and reads the devices itself when somebody calls it (`vgs`, `vgchange`). The
//! filter is for the second case. It rejects by the link that [`udev_rules`](super::udev_rules) make, so it names no
//! device of the host's own, and without such a link it rejects nothing (lvm.conf(5): a device that no pattern matches
//! is accepted).

/// Read after `lvm.conf`, and kept by an update of LVM.
pub const FILE: &str = "lvmlocal.conf";

const BEGIN: &str = "# localpool: begin, from `localpool lvm-filter`";
const END: &str = "# localpool: end";
const SETTING: &str = "global_filter";

/// Our part of the file.
pub fn text() -> String {
    format!(
        "{BEGIN}\n# localpool's partitions hold its tenants' data: LVM ignores them.\n\
         devices {{\n    {SETTING} = [ \"r|^/dev/disk/by-localpool/|\" ]\n}}\n{END}\n"
    )
}

/// The file with our present part in place of an earlier one; everything else stays.
pub fn put_into(file: &str) -> String {
    let mut rest = without(file);
    if !rest.is_empty() && !rest.ends_with('\n') {
        rest.push('\n');
    }
    rest + &text()
}

/// Whether a file has a filter that somebody else wrote. LVM takes only one of them, the last that it reads.
pub fn has_another(file: &str) -> bool {
    let sets = |line: &str| !line.trim_start().starts_with('#') && line.contains(SETTING);
    without(file).lines().any(sets)
}

/// The file without our part. If somebody took away its end, it is not our part any more: what follows may be the
/// host's.
fn without(file: &str) -> String {
    let whole = |begin: usize| Some((begin, begin + file[begin..].find(END)? + END.len()));
    let Some((begin, end)) = file.find(BEGIN).and_then(whole) else { return file.to_owned() };
    let after = &file[end..];
    file[..begin].to_owned() + after.strip_prefix('\n').unwrap_or(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_stays_and_our_part_is_in_it_once() {
        let hosts = "# comments\nactivation {\n}\nlocal { system_id = \"a\" }";
        let first = put_into(hosts);
        assert_eq!(first, format!("{hosts}\n{}", text()));
        assert_eq!(put_into(&first), first);
        let appended = format!("{first}# later\nbackup {{\n}}\n");
        assert_eq!(put_into(&appended), format!("{hosts}\n# later\nbackup {{\n}}\n{}", text()));
        assert_eq!(put_into(""), text());
    }

    #[test]
    fn an_earlier_text_of_ours_gives_way() {
        let earlier = format!("a\n{BEGIN}\ndevices {{ {SETTING} = [ \"r|x|\" ] }}\n{END}\nb\n");
        assert_eq!(put_into(&earlier), format!("a\nb\n{}", text()));
        assert!(!has_another(&earlier));
    }

    #[test]
    fn a_part_of_ours_whose_end_is_gone_takes_nothing_with_it_and_is_refused_like_another_filter() {
        let cut = format!("a\n{}activation {{\n}}\n", text().replace(END, "# the end was here"));
        assert!(put_into(&cut).starts_with(&cut), "{}", put_into(&cut));
        assert!(has_another(&cut), "it cannot be told what is ours");
    }

    #[test]
    fn a_filter_of_the_hosts_own_is_seen_and_one_in_a_comment_is_none() {
        assert!(!has_another("\t# global_filter = [ \"a|.*|\" ]\n#global_filter_x\nfilter = [ \"a|.*|\" ]\n"));
        for hosts in ["devices {\n\tglobal_filter = [ \"a|sda|\" ]\n}\n", "devices/global_filter=[\"r|x|\"]"] {
            assert!(has_another(hosts) && has_another(&put_into(hosts)), "{hosts}");
        }
    }
}
