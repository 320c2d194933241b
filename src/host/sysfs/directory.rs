//! One directory of sysfs, held open so that each fact costs one short path walk.
//!
//! Takes in attribute names, gives out their text. [`Notes`] keeps what could not be read of the facts
//! that nobody may guess.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use crate::host::kernel_name::KernelName;

/// An open directory.
pub(super) struct Directory {
    fd: OwnedFd,
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
const ATTRIBUTE: OFlag = OFlag::O_RDONLY.union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK);

impl Directory {
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { fd: nix::fcntl::open(path, DIRECTORY, Mode::empty())? })
    }

    pub fn child(&self, name: &str) -> Result<Self> {
        Ok(Self { fd: openat(&self.fd, name, DIRECTORY, Mode::empty())? })
    }

    /// Names of what is in the directory `name`; `.` is this one.
    pub fn entries(&self, name: &str) -> Result<Vec<String>> {
        let mut dir = Dir::openat(&self.fd, name, DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The whole of an attribute.
    pub fn bytes(&self, attribute: &str) -> Result<Vec<u8>> {
        let file = openat(&self.fd, attribute, ATTRIBUTE, Mode::empty())?;
        // sysfs gives a whole attribute, at most a page, to one read; a short read ends it.
        let mut text = vec![0; 4096];
        let mut len = 0;
        loop {
            let got = nix::unistd::read(&file, &mut text[len..])?;
            len += got;
            if got == 0 || len < text.len() {
                text.truncate(len);
                return Ok(text);
            }
            text.resize(len * 2, 0);
        }
    }

    /// An attribute as a word for people; `None` if it is absent, unreadable or empty.
    pub fn text(&self, attribute: &str) -> Option<String> {
        printable(&self.bytes(attribute).ok()?)
    }

    /// Whether an attribute is a number above zero.
    pub fn positive(&self, attribute: &str) -> bool {
        self.text(attribute).and_then(|text| text.parse::<u64>().ok()).is_some_and(|number| number > 0)
    }

    pub fn link(&self, name: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(readlinkat(&self.fd, name)?))
    }
}

/// A text from firmware, without the padding and without control characters, which could drive a terminal.
pub(super) fn printable(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let text: String = text.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    (!text.is_empty()).then_some(text)
}

/// What could not be read of the facts that decide whether a device may be touched.
#[derive(Default)]
pub(super) struct Notes {
    messages: Vec<String>,
}

impl Notes {
    pub fn add(&mut self, what: impl fmt::Display, why: &Error) {
        self.messages.push(match why.kind() {
            ErrorKind::NotFound => format!("{what} is missing"),
            _ => format!("{what} cannot be read: {why}"),
        });
    }

    /// A fact that is a number; noted and `None` if it cannot be read.
    pub fn number<T: FromStr>(&mut self, node: &Directory, attribute: &str) -> Option<T> {
        let text = match node.bytes(attribute) {
            Ok(bytes) => printable(&bytes).unwrap_or_default(),
            Err(why) => {
                self.add(attribute, &why);
                return None;
            }
        };
        let number = text.parse().ok();
        if number.is_none() {
            self.messages.push(format!("{attribute} is `{text}`, not a number in range"));
        }
        number
    }

    /// A fact that is 0 or 1.
    pub fn flag(&mut self, node: &Directory, attribute: &str) -> bool {
        self.number::<u32>(node, attribute).is_some_and(|number| number != 0)
    }

    /// A fact that is a word; an empty one is a fact.
    pub fn word(&mut self, node: &Directory, attribute: &str) -> String {
        match node.bytes(attribute) {
            Ok(bytes) => printable(&bytes).unwrap_or_default(),
            Err(why) => {
                self.add(attribute, &why);
                String::new()
            }
        }
    }

    /// A fact that not every device has; noted only if it is there and cannot be read, as a disk must not get another
    /// name because a read failed.
    pub fn optional(&mut self, node: &Directory, attribute: &str) -> Option<Vec<u8>> {
        match node.bytes(attribute) {
            Ok(bytes) => Some(bytes),
            Err(why) if has_none(&why) => None,
            Err(why) => {
                self.add(attribute, &why);
                None
            }
        }
    }

    /// Such a fact that is a word.
    pub fn optional_word(&mut self, node: &Directory, attribute: &str) -> Option<String> {
        printable(&self.optional(node, attribute)?)
    }

    /// Kernel names of the devices that a directory links to.
    pub fn devices(&mut self, node: &Directory, directory: &str) -> Vec<KernelName> {
        match node.entries(directory) {
            Ok(mut names) => {
                names.sort();
                names.iter().map(|name| KernelName::of_sysfs(name)).collect()
            }
            Err(why) => {
                self.add(directory, &why);
                Vec::new()
            }
        }
    }

    pub fn say(&mut self, message: String) {
        self.messages.push(message);
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn into_message(self) -> Option<String> {
        (!self.messages.is_empty()).then(|| self.messages.join("; "))
    }
}

/// How drivers say that a device has no such fact, if they do not leave out the file.
fn has_none(why: &Error) -> bool {
    use nix::libc::{EINVAL, ENODATA, ENODEV, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP};
    let none = [ENOENT, ENOTDIR, ENODEV, ENXIO, EINVAL, ENODATA, EOPNOTSUPP];
    why.raw_os_error().is_some_and(|code| none.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_goes_and_control_characters_cannot_reach_a_terminal() {
        assert_eq!(printable(b"WDC  WD40EFRX   \n").as_deref(), Some("WDC  WD40EFRX"));
        assert_eq!(printable(b"evil\x1b[2Jdisk\0\0").as_deref(), Some("evil_[2Jdisk"));
        assert_eq!(printable(b"  \0\n"), None);
    }

    #[test]
    fn attributes_longer_than_a_page_are_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, 4095, 4096, 4097, 20000] {
            std::fs::write(dir.path().join("long"), vec![b'x'; len]).unwrap();
            assert_eq!(Directory::open(dir.path()).unwrap().bytes("long").unwrap().len(), len);
        }
    }

    #[test]
    fn a_fact_that_cannot_be_read_is_noted_with_its_name_and_cause() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("size")).unwrap();
        std::fs::write(dir.path().join("ro"), "perhaps\n").unwrap();
        let node = Directory::open(dir.path()).unwrap();
        let mut notes = Notes::default();
        assert_eq!(notes.number::<u64>(&node, "size"), None);
        assert!(!notes.flag(&node, "ro"));
        assert!(notes.devices(&node, "holders").is_empty());
        assert_eq!(
            notes.into_message().unwrap(),
            "size cannot be read: Is a directory (os error 21); ro is `perhaps`, not a number in range; holders is missing"
        );
    }
}
