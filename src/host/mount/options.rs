//! mount(8) words → what mount(2) takes. Pure.

use nix::mount::MsFlags;
use nix::sys::statvfs::FsFlags;

use crate::host::error::HostError;

/// The flags of mount(2), and the words that only the filesystem knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub flags: MsFlags,
    /// Joined by commas; empty if there are none.
    pub data: String,
}

/// Words that mount(8) and fstab use for themselves; the kernel never sees them.
const FOR_USERSPACE: [&str; 9] =
    ["defaults", "auto", "noauto", "user", "nouser", "users", "group", "_netdev", "nofail"];

/// Words that would turn the call into another operation.
const OTHER_OPERATIONS: [&str; 14] = [
    "bind",
    "rbind",
    "move",
    "remount",
    "loop",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "offset",
];

impl Options {
    /// Later words win over earlier ones, as in fstab.
    pub(super) fn parse(options: &[String]) -> Result<Self, HostError> {
        let mut flags = MsFlags::empty();
        let mut data: Vec<&str> = Vec::new();
        for option in options.iter().flat_map(|options| split(options)) {
            let name = option.split('=').next().unwrap_or(option);
            if option.contains('\0') {
                return Err(refused(&option.replace('\0', "\\0"), "holds a zero byte"));
            } else if OTHER_OPERATIONS.contains(&name) {
                return Err(refused(option, "is another operation than the mount of a volume"));
            } else if option.is_empty() || FOR_USERSPACE.contains(&name) || is_comment(name) {
            } else if let Some((flag, state)) = flag(option) {
                flags.set(flag, state);
            } else {
                data.push(option);
            }
        }
        Ok(Self { flags, data: data.join(",") })
    }
}

fn is_comment(name: &str) -> bool {
    name == "comment" || name.starts_with("x-") || name.starts_with("X-")
}

fn refused(option: &str, why: &str) -> HostError {
    HostError::Unsupported { what: format!("the mount option {option:?} {why}") }
}

/// Splits at commas, but not inside double quotes (an SELinux context has commas).
fn split(options: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    options
        .split(move |character| {
            quoted ^= character == '"';
            character == ',' && !quoted
        })
        .map(str::trim)
}

/// The flag that a word sets or clears.
fn flag(option: &str) -> Option<(MsFlags, bool)> {
    Some(match option {
        "ro" => (MsFlags::MS_RDONLY, true),
        "rw" => (MsFlags::MS_RDONLY, false),
        "nosuid" => (MsFlags::MS_NOSUID, true),
        "suid" => (MsFlags::MS_NOSUID, false),
        "nodev" => (MsFlags::MS_NODEV, true),
        "dev" => (MsFlags::MS_NODEV, false),
        "noexec" => (MsFlags::MS_NOEXEC, true),
        "exec" => (MsFlags::MS_NOEXEC, false),
        "sync" => (MsFlags::MS_SYNCHRONOUS, true),
        "async" => (MsFlags::MS_SYNCHRONOUS, false),
        "dirsync" => (MsFlags::MS_DIRSYNC, true),
        "noatime" => (MsFlags::MS_NOATIME, true),
        "atime" => (MsFlags::MS_NOATIME, false),
        "nodiratime" => (MsFlags::MS_NODIRATIME, true),
        "diratime" => (MsFlags::MS_NODIRATIME, false),
        "relatime" => (MsFlags::MS_RELATIME, true),
        "norelatime" => (MsFlags::MS_RELATIME, false),
        "strictatime" => (MsFlags::MS_STRICTATIME, true),
        "nostrictatime" => (MsFlags::MS_STRICTATIME, false),
        "lazytime" => (MsFlags::MS_LAZYTIME, true),
        "nolazytime" => (MsFlags::MS_LAZYTIME, false),
        "silent" => (MsFlags::MS_SILENT, true),
        "loud" => (MsFlags::MS_SILENT, false),
        _ => return None,
    })
}

/// What a remount has to name again of a mount that has these.
pub(super) fn kept_flags(has: FsFlags) -> MsFlags {
    [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ]
    .into_iter()
    .filter(|(theirs, _)| has.contains(*theirs))
    .fold(MsFlags::empty(), |flags, (_, ours)| flags | ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Options, HostError> {
        Options::parse(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn words_of_the_kernel_are_flags_and_all_others_go_to_the_filesystem_in_their_order() {
        let options = parse(&["noatime", "discard", "ro", "commit=30", "lazytime"]).unwrap();
        assert_eq!(options.flags, MsFlags::MS_NOATIME | MsFlags::MS_RDONLY | MsFlags::MS_LAZYTIME);
        assert_eq!(options.data, "discard,commit=30");
    }

    #[test]
    fn the_last_word_wins() {
        assert_eq!(parse(&["ro", "rw"]).unwrap().flags, MsFlags::empty());
        assert_eq!(parse(&["suid", "nosuid"]).unwrap().flags, MsFlags::MS_NOSUID);
    }

    #[test]
    fn one_word_may_hold_several_and_a_quoted_comma_splits_nothing() {
        let options = parse(&["nodev, noexec", "context=\"system_u:object_r:t:s0:c1,c2\",discard"]).unwrap();
        assert_eq!(options.flags, MsFlags::MS_NODEV | MsFlags::MS_NOEXEC);
        assert_eq!(options.data, "context=\"system_u:object_r:t:s0:c1,c2\",discard");
    }

    #[test]
    fn words_of_fstab_never_reach_the_kernel() {
        let options = parse(&["defaults", "_netdev", "x-systemd.automount", "comment=mine", "nofail", ""]).unwrap();
        assert_eq!(options, Options { flags: MsFlags::empty(), data: String::new() });
    }

    #[test]
    fn a_word_that_is_another_operation_is_refused_by_name() {
        for option in ["bind", "remount", "loop=/dev/loop3", "rshared", "noatime,move"] {
            let Err(error) = parse(&[option]) else { panic!("{option} was taken") };
            assert!(error.to_string().contains("is another operation"), "{error}");
        }
        assert!(parse(&["disc\0ard"]).is_err());
    }
}
