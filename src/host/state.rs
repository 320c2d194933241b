//! The state directory: small documents that must survive the process.
//!
//! A document is always complete, the new one or the one before: written aside, synced, renamed, directory synced.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::HostError;

/// Documents by name.
pub trait StateStore: Send + Sync {
    /// `None` if it is not there. What it returns is durable: a killed process may have written it without syncing it.
    fn load(&self, name: &str) -> Result<Option<String>, HostError>;

    /// Durable when it returns.
    fn store(&self, name: &str, text: &str) -> Result<(), HostError>;

    /// Adds to the end of a document that is there; durable when it returns. Stopped in between, a part of it may be
    /// there, and so where it fails.
    fn append(&self, name: &str, text: &str) -> Result<(), HostError>;

    /// Removes a document. Not there is success.
    fn remove(&self, name: &str) -> Result<(), HostError>;

    /// Gives the present document a second name with this prefix; durable when it returns. Returns that name.
    fn keep_copy(&self, name: &str, copy: &str) -> Result<String, HostError>;
}

/// A directory of documents, 0700.
pub struct StateDir {
    path: PathBuf,
    /// Name and text of a document that must be there before any other one is written.
    first: Mutex<Option<(&'static str, String)>>,
}

impl StateDir {
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| failed("make the state directory", path, source))?;
        Ok(Self::at(path))
    }

    /// A directory that is only read; it need not exist.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), first: Mutex::default() }
    }

    /// Writes a document without which the others mean something else. If that fails now, none of the others is written
    /// before this one is.
    pub fn store_first(&self, name: &'static str, text: String) -> Result<(), HostError> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        *first = Some((name, text));
        self.write_first(&mut first)
    }

    fn write_first(&self, first: &mut Option<(&'static str, String)>) -> Result<(), HostError> {
        if let Some((name, text)) = first {
            self.write(name, text)?;
        }
        *first = None;
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), HostError> {
        let path = self.path.join(name);
        let aside = self.path.join(format!(".{name}.new"));
        write_whole(&aside, &path, text, 0o600).map_err(|source| failed("write", &path, source))
    }

    /// Where the documents are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl StateStore for StateDir {
    fn load(&self, name: &str) -> Result<Option<String>, HostError> {
        let path = self.path.join(name);
        match read_synced(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("read", &path, source)),
        }
    }

    fn store(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.write_first(&mut self.first.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.write(name, text)
    }

    fn append(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.write_first(&mut self.first.lock().unwrap_or_else(PoisonError::into_inner))?;
        let path = self.path.join(name);
        let added = OpenOptions::new().append(true).open(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // With its length.
            file.sync_data()
        });
        added.map_err(|source| failed("add to", &path, source))
    }

    fn remove(&self, name: &str) -> Result<(), HostError> {
        let path = self.path.join(name);
        match fs::remove_file(&path).and_then(|()| sync_folder_of(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|source| failed("remove", &path, source)),
        }
    }

    fn keep_copy(&self, name: &str, copy: &str) -> Result<String, HostError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let copy = format!("{copy}-{now}");
        let path = self.path.join(name);
        // A later text goes to a file of its own, so the copy stays as it is.
        let linked = fs::hard_link(&path, self.path.join(&copy)).and_then(|()| File::open(&self.path)?.sync_all());
        linked.map(|()| copy).map_err(|source| failed("keep a copy of", &path, source))
    }
}

/// Writes a file of the host that anybody may read, whole or not at all. Returns whether it had to be written.
pub fn install(dir: &Path, name: &str, text: &str) -> Result<bool, HostError> {
    let path = dir.join(name);
    match fs::read(&path) {
        Ok(there) if there == text.as_bytes() => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed("read", &path, source)),
    }
    let written = write_whole(&dir.join(format!(".{name}.new")), &path, text, 0o644);
    written.map(|()| true).map_err(|source| failed("write", &path, source))
}

/// The files with that ending in a folder of the host, by name; none if the folder is not there.
pub fn texts(dir: &Path, ending: &str) -> Result<BTreeMap<String, String>, HostError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(failed("read", dir, source)),
    };
    let mut texts = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|source| failed("read", dir, source))?.path();
        let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|is| is == ending)) else { continue };
        let text = fs::read_to_string(&path).map_err(|source| failed("read", &path, source))?;
        texts.insert(name.to_string_lossy().into_owned(), text);
    }
    Ok(texts)
}

fn read_synced(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.sync_all()?;
    sync_folder_of(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn write_whole(aside: &Path, path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(aside, path)?;
    sync_folder_of(path)
}

pub(super) fn failed(what: &'static str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { what, object: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_back_and_replaced_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(&dir.path().join("a/b")).expect("made");
        assert_eq!(state.load("journal.json").expect("no error"), None);
        for text in ["one", "two"] {
            state.store("journal.json", text).expect("stored");
            assert_eq!(state.load("journal.json").expect("read").as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_added_to_a_document_is_at_its_end_and_a_removed_one_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(dir.path()).expect("made");
        let error = state.append("list", "one\n").expect_err("it is not there");
        assert!(error.to_string().contains("list"), "{error}");
        state.store("list", "one\n").expect("stored");
        ["two\n", "three\n"].iter().for_each(|line| state.append("list", line).expect("added"));
        assert_eq!(state.load("list").expect("read").as_deref(), Some("one\ntwo\nthree\n"));
        [(), ()].iter().for_each(|()| state.remove("list").expect("removed"));
        assert_eq!(state.load("list").expect("read"), None);
    }

    #[test]
    fn no_document_is_written_before_the_one_that_must_be_there_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(&dir.path().join("state")).expect("made");
        // Nobody can write a file where a folder is.
        let in_the_way = dir.path().join("state/first");
        fs::create_dir(&in_the_way).expect("made");
        assert!(state.store_first("first", "one".to_owned()).is_err());
        assert!(state.store("other", "two").is_err());
        assert_eq!(state.load("other").expect("read"), None);
        fs::remove_dir(&in_the_way).expect("removed");
        state.store("other", "two").expect("written");
        assert_eq!(state.load("first").expect("read").as_deref(), Some("one"));
        assert_eq!(state.load("other").expect("read").as_deref(), Some("two"));
    }

    #[test]
    fn a_copy_of_a_document_stays_as_it_was_when_the_document_is_written_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(dir.path()).expect("made");
        fs::write(dir.path().join("journal.json"), b"one\xff").expect("written");
        assert!(state.load("journal.json").expect_err("no text").is_no_text());
        let copy = state.keep_copy("journal.json", "journal.damaged").expect("kept");
        state.store("journal.json", "two").expect("stored");
        assert!(copy.starts_with("journal.damaged-"), "{copy}");
        assert_eq!(fs::read(dir.path().join(copy)).expect("read"), b"one\xff");
        assert_eq!(state.load("journal.json").expect("read").as_deref(), Some("two"));
        assert!(!state.keep_copy("none", "copy").expect_err("nothing there").is_no_text());
    }

    #[test]
    fn a_file_of_the_host_is_written_only_where_it_differs_and_only_into_a_folder_that_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(install(dir.path(), "60-x.rules", "one").expect("written"));
        assert!(!install(dir.path(), "60-x.rules", "one").expect("looked at"));
        assert!(install(dir.path(), "60-x.rules", "two").expect("written"));
        assert_eq!(fs::read_to_string(dir.path().join("60-x.rules")).expect("read"), "two");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left aside");
        let error = install(&dir.path().join("none"), "60-x.rules", "one").expect_err("no such folder");
        assert!(error.to_string().contains("none/60-x.rules"), "{error}");
    }

    #[test]
    fn a_state_directory_that_is_a_file_is_refused_by_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "").expect("written");
        let error = StateDir::open(&path).err().expect("it is no directory");
        assert!(error.to_string().contains("file"), "{error}");
    }
}
