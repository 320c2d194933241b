//! A tar.gz in memory. Pure.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// The folder that holds everything.
const FOLDER: &str = "localpool-bundle";

pub struct Archive {
    tar: Builder<GzEncoder<Vec<u8>>>,
    /// Of all files, in seconds since 1970.
    at: u64,
    /// The first failure.
    added: io::Result<()>,
}

impl Archive {
    pub fn new(at: u64) -> Self {
        Self { tar: Builder::new(GzEncoder::new(Vec::new(), Compression::default())), at, added: Ok(()) }
    }

    /// Adds a file. If that fails, `bytes` says why.
    pub fn add(&mut self, path: &str, bytes: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.at);
        let added = self.tar.append_data(&mut header, format!("{FOLDER}/{path}"), bytes);
        self.added = std::mem::replace(&mut self.added, Ok(())).and(added);
    }

    /// The whole archive, compressed.
    pub fn bytes(self) -> io::Result<Vec<u8>> {
        self.added?;
        self.tar.into_inner()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// What `tar` makes of it.
    fn tar(arguments: &[&str], bytes: &[u8]) -> String {
        let mut child = Command::new("tar")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar, which every Linux has");
        child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    #[test]
    fn tar_reads_every_file_of_it_with_long_names_too() {
        let mut archive = Archive::new(1_700_000_000);
        let long = format!("logs/{}/controller.previous.log", "p".repeat(90));
        archive.add("a.txt", b"one\n");
        archive.add(&long, &[b'x'; 1500]);
        archive.add("empty.txt", b"");
        let bytes = archive.bytes().expect("in memory");
        let listed = tar(&["tzf", "-"], &bytes);
        let expected = ["a.txt", &long, "empty.txt"].map(|path| format!("{FOLDER}/{path}"));
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
        assert_eq!(tar(&["xzOf", "-", &format!("{FOLDER}/a.txt")], &bytes), "one\n");
        assert_eq!(tar(&["xzOf", "-", &format!("{FOLDER}/{long}")], &bytes).len(), 1500);
    }
}
