//! `/proc/<pid>/mountinfo`: its lines, its escapes, and one table for each mount namespace in sight.
//!
//! Takes in the bytes of the file, or the root of a proc filesystem; gives out [`Mount`]s.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::port::Mount;
use super::raw::DevNo;

/// A line that mountinfo does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: no {missing}")]
pub struct ParseError {
    pub line: usize,
    pub missing: MissingField,
}

/// What a line lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingField {
    #[error("device number in the third field")]
    Device,
    #[error("root")]
    Root,
    #[error("mount point")]
    Target,
    #[error("mount options")]
    Options,
    #[error("separator before the filesystem type")]
    Separator,
    #[error("filesystem type")]
    FsType,
}

/// A line of the table.
pub struct Row {
    pub mount: Mount,
    /// It is writable by its own options, on a superblock that is read-only.
    pub has_turned: bool,
}

/// Reads a mount table. Of `rw` and `ro` exactly one is in a mount's options: `ro` if the mount or
/// its superblock is read-only.
pub fn parse(text: impl AsRef<[u8]>) -> Result<Vec<Mount>, ParseError> {
    rows(text.as_ref()).map(|row| Ok(row?.mount)).collect()
}

/// Whether what is mounted below an open folder comes to the other namespaces that its mount came from.
pub(super) fn is_shared(proc: &Path, folder: impl AsFd) -> Result<bool, HostError> {
    let file = proc.join("self/fdinfo").join(folder.as_fd().as_raw_fd().to_string());
    let failed = |source| HostError::Io { what: "cannot read", object: file.display().to_string(), source };
    let facts = std::fs::read_to_string(&file).map_err(failed)?;
    let id = facts.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    read_own(proc, |text| Ok(id.is_some_and(|id| is_shared_in(text, id.trim()))))
}

/// By the optional fields of the mount with this number.
fn is_shared_in(table: &[u8], id: &str) -> bool {
    let fields = |line: &[u8]| line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut lines = table.split(|byte| *byte == b'\n').map(fields);
    let of_it = lines.find(|fields| fields.first().is_some_and(|first| first == id.as_bytes())).unwrap_or_default();
    let mut optional = of_it.iter().skip(6).take_while(|field| *field != b"-");
    optional.any(|field| field.starts_with(b"shared:"))
}

fn rows(text: &[u8]) -> impl Iterator<Item = Result<Row, ParseError>> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| parse_line(line).map_err(|missing| ParseError { line: index + 1, missing }))
}

fn parse_line(line: &[u8]) -> Result<Row, MissingField> {
    // By single spaces, not by runs of them: the source of a mount may be empty.
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = fields.next().and_then(devno).ok_or(MissingField::Device)?;
    let root = fields.next().ok_or(MissingField::Root)?;
    let target = fields.next().ok_or(MissingField::Target)?;
    let own = fields.next().ok_or(MissingField::Options)?;
    fields.find(|field| *field == b"-").ok_or(MissingField::Separator)?;
    let fs_type = fields.next().filter(|kind| !kind.is_empty()).ok_or(MissingField::FsType)?;
    let source = fields.next().unwrap_or_default();
    // Some filesystems write their options unescaped, so the rest of the line is all options.
    let (own, superblock) = (text(own), text(&fields.collect::<Vec<_>>().join(&b' ')));
    let has = |options: &str, wanted| options.split(',').any(|word| word == wanted);
    let has_turned = has(&own, "rw") && has(&superblock, "ro");
    let mount = Mount {
        device,
        root: path(root),
        target: path(target),
        fs_type: text(fs_type),
        source: text(source),
        options: options(&own, &superblock),
    };
    Ok(Row { mount, has_turned })
}

pub(super) fn devno(field: &[u8]) -> Option<DevNo> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(DevNo { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn options(own: &str, superblock: &str) -> Vec<String> {
    let words = || own.split(',').chain(superblock.split(',')).filter(|word| !word.is_empty());
    let access = if words().any(|word| word == "ro") { "ro" } else { "rw" };
    let mut options = vec![access.to_owned()];
    for word in words().filter(|word| !matches!(*word, "ro" | "rw")) {
        if !options.iter().any(|known| known == word) {
            options.push(word.to_owned());
        }
    }
    options
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Undoes the kernel's `\040`: a backslash and three octal digits are one byte, anything else is itself.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// The mounts of one namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Inode number of the namespace.
    pub inode: u64,
    /// Where its files can be looked at: `/proc/<pid>/root`.
    pub root: PathBuf,
    pub mounts: Result<Vec<Mount>, ParseError>,
}

/// The table of the namespace that this process lives in.
pub fn own(proc: &Path) -> Result<Vec<Mount>, HostError> {
    read_own(proc, |text| parse(text))
}

/// The mount with this number in a table; `None`: it is not in there.
pub fn numbered(table: &[u8], id: &str) -> Option<Row> {
    let is_its = |line: &&[u8]| line.split(|byte| *byte == b' ').next() == Some(id.as_bytes());
    parse_line(table.split(|byte| *byte == b'\n').find(is_its)?).ok()
}

/// Whether a mounted filesystem has turned read-only: its superblock is, and one of its mounts is not. Where somebody
/// mounts it read-only, as a StorageClass may ask, both are. Not mounted any more: no.
pub fn has_turned_read_only(proc: &Path, mount: &Mount) -> Result<bool, HostError> {
    read_own(proc, |text| has_turned(text, mount.device))
}

fn has_turned(text: &[u8], device: DevNo) -> Result<bool, ParseError> {
    for row in rows(text) {
        let Row { mount, has_turned } = row?;
        if has_turned && mount.device == device {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_own<T>(proc: &Path, parse: impl FnOnce(&[u8]) -> Result<T, ParseError>) -> Result<T, HostError> {
    let file = proc.join("self/mountinfo");
    let failed = |source| HostError::Io { what: "cannot read", object: file.display().to_string(), source };
    let text = std::fs::read(&file).map_err(failed)?;
    parse(&text).map_err(|why| failed(Error::new(ErrorKind::InvalidData, why)))
}

/// One table for each mount namespace that some process in sight lives in, our own first.
///
/// A namespace that no process lives in, or only processes that we may not look at, stays unseen; the
/// kernel's exclusive claims (O_EXCL) are what covers those.
pub fn namespaces(proc: &Path) -> Result<Vec<Namespace>, HostError> {
    let mut visited = BTreeSet::new();
    let mut found = Vec::new();
    let mut confined = BTreeMap::new();
    for process in processes(proc)? {
        let Some(inode) = namespace_inode(&process)?.filter(|inode| !visited.contains(inode)) else { continue };
        // A process in a chroot sees only the mounts below it, so it counts only if its namespace has no other process.
        let Some(root) = visible(std::fs::read_link(process.join("root")), &process)? else { continue };
        if root != Path::new("/") {
            confined.entry((inode, root)).or_insert(process);
        } else if let Some(namespace) = table(inode, &process)? {
            visited.insert(inode);
            found.push(namespace);
        }
    }
    for ((inode, _), process) in confined {
        if !visited.contains(&inode) {
            found.extend(table(inode, &process)?);
        }
    }
    if found.is_empty() {
        let object = proc.join("self/mountinfo").display().to_string();
        return Err(HostError::Io { what: "cannot read", object, source: ErrorKind::NotFound.into() });
    }
    Ok(found)
}

/// This process, then all others by rising number.
fn processes(proc: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed =
        |source| HostError::Io { what: "cannot list the processes in", object: proc.display().to_string(), source };
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(proc).map_err(failed)? {
        numbers.extend(entry.map_err(failed)?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    let others = numbers.iter().map(|number| proc.join(number.to_string()));
    Ok([proc.join("self")].into_iter().chain(others).collect())
}

fn table(inode: u64, process: &Path) -> Result<Option<Namespace>, HostError> {
    let Some(text) = visible(std::fs::read(process.join("mountinfo")), process)? else { return Ok(None) };
    Ok(Some(Namespace { inode, root: process.join("root"), mounts: parse(text) }))
}

fn namespace_inode(process: &Path) -> Result<Option<u64>, HostError> {
    let link = visible(std::fs::read_link(process.join("ns/mnt")), process)?;
    let inode = |link: PathBuf| link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok();
    Ok(link.and_then(inode))
}

/// `None` if the process has ended (a zombie says EINVAL) or may not be looked at. Any other failure
/// could hide a mount.
fn visible<T>(looked: std::io::Result<T>, process: &Path) -> Result<Option<T>, HostError> {
    use nix::libc::{EACCES, EINVAL, ENOENT, EPERM, ESRCH};
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(why) if why.raw_os_error().is_some_and(|code| [ENOENT, ESRCH, EINVAL, EACCES, EPERM].contains(&code)) => {
            Ok(None)
        }
        Err(source) => {
            Err(HostError::Io { what: "cannot look at the mounts of", object: process.display().to_string(), source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escape(path: &[u8]) -> Vec<u8> {
        path.iter()
            .flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            })
            .collect()
    }

    #[test]
    fn optional_fields_of_any_number_are_passed_over() {
        let lines = "36 35 8:1 / /a rw - ext4 /dev/sda1 rw\n\
                     37 35 8:2 / /b rw,noatime master:1 - ext4 /dev/sda2 rw,errors=continue\n\
                     38 35 8:3 / /c rw shared:2 master:1 propagate_from:4 unbindable - xfs /dev/sda3 rw\n";
        let mounts = parse(lines).unwrap();
        let found: Vec<_> =
            mounts.iter().map(|m| (m.device.minor, m.target.to_str().unwrap(), m.fs_type.as_str())).collect();
        assert_eq!(found, [(1, "/a", "ext4"), (2, "/b", "ext4"), (3, "/c", "xfs")]);
        assert_eq!(mounts[1].options, ["rw", "noatime", "errors=continue"]);
        let shared = ["36", "37", "38", "39"].map(|id| is_shared_in(lines.as_bytes(), id));
        assert_eq!(shared, [false, false, true, false], "what is mounted below one that only receives stays there");
    }

    #[test]
    fn escapes_are_undone_in_root_target_source_and_options() {
        let line = r"36 35 0:40 /a\011b /mnt/with\040space\012and\134slash ro - tmpfs my\040source\043 rw,x=\054";
        let mount = &parse(line).unwrap()[0];
        assert_eq!(mount.root, Path::new("/a\tb"));
        assert_eq!(mount.target, Path::new("/mnt/with space\nand\\slash"));
        assert_eq!(mount.source, "my source#");
    }

    #[test]
    fn a_mount_is_read_only_where_it_or_its_superblock_is() {
        let options = |own, superblock| {
            parse(format!("1 2 8:1 / /a {own} - ext4 /dev/sda1 {superblock}")).unwrap()[0].options.clone()
        };
        assert_eq!(options("ro,relatime", "rw,discard"), ["ro", "relatime", "discard"]);
        assert_eq!(options("rw,relatime", "ro,discard"), ["ro", "relatime", "discard"]);
        assert_eq!(options("rw,relatime", "rw,discard"), ["rw", "relatime", "discard"]);
    }

    #[test]
    fn a_superblock_is_read_only_if_its_own_options_say_so_whatever_its_mounts_are() {
        let text = b"1 2 8:1 / /a ro - ext4 /dev/sda1 rw,errors=ro\n\
                     2 2 8:2 / /b rw - ext4 /dev/sda2 ro,discard\n\
                     3 2 8:1 /x /c rw shared:1 - ext4 /dev/sda1 rw\n";
        let turned = |minor| has_turned(text, DevNo { major: 8, minor }).unwrap();
        assert_eq!([1, 2, 3].map(turned), [false, true, false]);
        // Where each mount is read-only as well, somebody has asked for it.
        let asked = b"1 2 8:1 / /a ro - ext4 /dev/sda1 ro\n2 2 8:1 / /b ro,nosuid - ext4 /dev/sda1 ro\n";
        assert_eq!(has_turned(asked, DevNo { major: 8, minor: 1 }), Ok(false));
        let turned = b"1 2 8:1 / /a ro - ext4 /dev/sda1 ro\n2 2 8:1 / /b rw,nosuid - ext4 /dev/sda1 ro\n";
        assert_eq!(has_turned(turned, DevNo { major: 8, minor: 1 }), Ok(true));
        assert!(has_turned(b"1 2 8:1 / /a ro\n", DevNo { major: 8, minor: 2 }).is_err());
        assert_eq!(has_turned(b"", DevNo { major: 8, minor: 2 }), Ok(false));
    }

    #[test]
    fn an_empty_source_and_a_source_with_bare_spaces_do_not_shift_the_fields() {
        let mounts = parse("36 35 0:40 / /a rw - tmpfs  rw,size=4k\n37 35 0:41 / /b rw - 9p drv fs rw\n").unwrap();
        assert_eq!((mounts[0].source.as_str(), mounts[0].options.join(",")), ("", "rw,size=4k".into()));
        assert_eq!(mounts[1].fs_type, "9p");
    }

    #[test]
    fn bytes_that_are_not_text_stay_as_they_are_in_paths() {
        use std::os::unix::ffi::OsStrExt;
        let mount = &parse(b"1 2 8:1 / /m\xff\xfe rw - ext4 /dev/sda1 rw").unwrap()[0];
        assert_eq!(mount.target.as_os_str().as_bytes(), b"/m\xff\xfe");
    }

    #[test]
    fn a_line_that_is_cut_short_is_refused_with_its_number() {
        let good = "36 35 8:1 / /a rw - ext4 /dev/sda1 rw\n";
        for bad in
            ["36 35 8 / /a rw - ext4 x rw", "36 35 8:1 / /a rw shared:1", "36 35 8:1 /", "x", "36 35 8:1 / /a rw -"]
        {
            assert_eq!(parse(format!("{good}{bad}\n")).unwrap_err().line, 2, "{bad}");
        }
    }

    #[test]
    fn a_process_in_a_chroot_does_not_hide_the_mounts_of_its_namespace() {
        let proc = tempfile::tempdir().unwrap();
        let process = |name: &str, ns: &str, root: &str, line: &str| {
            let dir = proc.path().join(name);
            std::fs::create_dir_all(dir.join("ns")).unwrap();
            std::os::unix::fs::symlink(ns, dir.join("ns/mnt")).unwrap();
            std::os::unix::fs::symlink(root, dir.join("root")).unwrap();
            std::fs::write(dir.join("mountinfo"), line).unwrap();
        };
        process("self", "mnt:[1]", "/", "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        process("10", "mnt:[2]", "/run/jail", "");
        process("11", "mnt:[2]", "/", "1 1 8:2 / /kept rw - ext4 /dev/sda2 rw\n");
        process("12", "mnt:[1]", "/", "1 1 8:9 / /never-read rw - ext4 /dev/sda9 rw\n");
        process("13", "mnt:[3]", "/run/jail", "1 1 8:3 / /only-view rw - ext4 /dev/sda3 rw\n");
        let mut found: Vec<_> = namespaces(proc.path())
            .unwrap()
            .into_iter()
            .flat_map(|ns| ns.mounts.unwrap().into_iter().map(move |m| (ns.inode, m.target)))
            .collect();
        found.sort();
        assert_eq!(found, [(1, "/".into()), (2, "/kept".into()), (3, "/only-view".into())]);
    }

    #[test]
    fn the_table_of_this_process_has_its_root() {
        assert!(own(Path::new("/proc")).unwrap().iter().any(|mount| mount.target == Path::new("/")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn lines_that_look_like_mountinfo_never_panic(line in r"[0-9 :/\\\\a-z,\-\n]{0,120}") {
            let _ = parse(&line);
        }

        #[test]
        fn unescape_undoes_escape(path in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(unescape(&escape(&path)), path);
        }

        #[test]
        fn an_escaped_path_comes_back_as_the_target(path in proptest::collection::vec(1u8.., 1..100)) {
            use std::os::unix::ffi::OsStrExt;
            let line = [b"36 35 8:1 / ".as_slice(), &escape(&path), b" rw shared:1 - ext4 /dev/sda1 rw"].concat();
            let mounts = parse(line).unwrap();
            prop_assert_eq!(mounts[0].target.as_os_str().as_bytes(), path.as_slice());
        }
    }
}
