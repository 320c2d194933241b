//! A disk as a text: its size, a row for each 32 bytes that are not all zeros, and the files of a filesystem on it.
//!
//! The rows have the bytes as characters, too, so that a diff of two texts shows what became of a label. The filesystem
//! of the fake machine has its files beside the bytes: they come last, with a `|` before each line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use localpool::host::fake::{FakeHost, Fate, Platter};
use localpool::host::{Extent, FilesystemRoot, FsKind, Geometry, Host};

/// The name of the disk.
pub const DISK: &str = "fake0";
/// The node of its partition for a filesystem of the pool.
pub const PARTITION: &str = "/dev/fake0p2";

const HEAD: &str =
    "# A disk as localpool wrote it. It is never edited: see \"How to change what is on a disk\" in CONTRIBUTING.md.";
const ROW: usize = 32;
const PAGE: usize = 4096;

/// A machine with a blank disk.
pub fn blank(size: u64, sector: u32) -> Arc<FakeHost> {
    let host = Arc::new(FakeHost::default());
    // The serial number is in the label.
    host.add_disk(DISK, "SERIAL-1", Geometry { size, sector, offloads_zeroes: true });
    host
}

/// The disk of a machine.
pub fn platter(host: &FakeHost) -> Arc<Platter> {
    host.platter(DISK).expect("the machine has one disk")
}

/// A machine that was started with the disk of that text.
pub fn machine(text: &str) -> Arc<FakeHost> {
    let Image { size, sector, rows, files } = Image::parse(text);
    let host = blank(size, sector);
    let disk = platter(&host);
    rows.iter().for_each(|(at, bytes)| disk.poke(*at, bytes));
    // The kernel maps what the table has.
    host.reboot(Fate::Whole);
    if !files.is_empty() {
        fill(&host, &files);
    }
    host
}

/// The text of a machine's disk. `root`: that of the filesystem on it, if it has one.
pub fn text(host: &FakeHost, root: Option<&dyn FilesystemRoot>) -> String {
    let disk = platter(host);
    let Geometry { size, sector, offloads_zeroes: _ } = disk.geometry;
    let mut text = format!("{HEAD}\nsize {size}\nsector {sector}\n");
    for start in (0..size).step_by(PAGE) {
        let mut page = [0u8; PAGE];
        if disk.is_zero(Extent { start, end: start + page.len() as u64 }) {
            continue;
        }
        disk.peek(start, &mut page);
        let rows = (start..).step_by(ROW).zip(page.chunks(ROW));
        let used = rows.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        text.extend(used.map(|(at, bytes)| row(at, bytes)));
    }
    if let Some(root) = root {
        tree(root, Path::new(""), &mut text);
    }
    text
}

fn row(at: u64, bytes: &[u8]) -> String {
    let mut hex = String::new();
    bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").expect("a string takes all words"));
    let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let shown: String = bytes.iter().map(|byte| if is_shown(*byte) { char::from(*byte) } else { '.' }).collect();
    format!("{at:08x}: {hex} |{shown}|\n")
}

/// Each folder comes before what is in it.
fn tree(root: &dyn FilesystemRoot, folder: &Path, text: &mut String) {
    let mut names = root.names(folder).expect("a folder");
    names.sort();
    for path in names.iter().map(|name| folder.join(name)) {
        match root.read(&path).expect("it can be read") {
            Some(file) => {
                writeln!(text, "file {}", path.display()).expect("a string takes all words");
                text.extend(file.split('\n').map(|line| format!("|{line}\n")));
            }
            None => {
                writeln!(text, "folder {}", path.display()).expect("a string takes all words");
                tree(root, &path, text);
            }
        }
    }
}

/// A file with its lines, or a folder.
type Named<'t> = (PathBuf, Option<Vec<&'t str>>);

/// What a text says of a disk.
#[derive(Default)]
struct Image<'t> {
    size: u64,
    sector: u32,
    rows: Vec<(u64, Vec<u8>)>,
    files: Vec<Named<'t>>,
}

impl<'t> Image<'t> {
    fn parse(text: &'t str) -> Self {
        let mut image = Self::default();
        for line in text.lines() {
            image.take_in(line).unwrap_or_else(|| panic!("this is no line of a disk: {line}"));
        }
        assert!(image.size > 0 && image.sector > 0 && !image.rows.is_empty(), "the text of a disk is cut short");
        image
    }

    /// `None`: it is no line of such a text.
    fn take_in(&mut self, line: &'t str) -> Option<()> {
        if let Some(of_file) = line.strip_prefix('|') {
            self.files.last_mut()?.1.as_mut()?.push(of_file);
            return Some(());
        }
        let (word, rest) = line.split_once(' ')?;
        match word {
            "#" => {}
            "size" => self.size = rest.parse().ok()?,
            "sector" => self.sector = rest.parse().ok()?,
            "folder" => self.files.push((rest.into(), None)),
            "file" => self.files.push((rest.into(), Some(Vec::new()))),
            at => {
                let at = u64::from_str_radix(at.strip_suffix(':')?, 16).ok()?;
                let (hex, _shown) = rest.split_once(' ')?;
                self.rows.push((at, bytes(hex)?));
            }
        }
        Some(())
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Puts files where a filesystem of the pool is.
fn fill(host: &FakeHost, files: &[Named<'_>]) {
    let (node, at) = (Path::new(PARTITION), Path::new("/while-it-is-filled"));
    let mounts = host.mounts();
    mounts.mount(node, at, FsKind::Xfs, &[]).expect("mounted");
    let root = mounts.open_root(at, node).expect("opened");
    for (path, lines) in files {
        let done = match lines {
            Some(lines) => root.write(path, &lines.join("\n")),
            None => root.make_folder(path, 0o700),
        };
        done.expect("it is there");
    }
    mounts.unmount(at).expect("unmounted");
}
