//! Who holds an flock. Takes in an open file, reads /proc/locks; gives out process ids.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use super::raw::DevNo;

/// The processes that hold an flock of the file, this one too; none if /proc does not show them.
pub(super) fn holders(file: &File) -> Vec<i32> {
    let Ok(node) = file.metadata() else { return Vec::new() };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    parse(&locks, DevNo::of(node.dev()), node.ino())
}

/// A line with an arrow is a process that only waits for one.
fn parse(locks: &str, filesystem: DevNo, inode: u64) -> Vec<i32> {
    let object = format!("{:02x}:{:02x}:{inode}", filesystem.major, filesystem.minor);
    let mut pids: Vec<i32> = locks
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [_, "FLOCK", _, _, pid, found, ..] if found == object => pid.parse().ok(),
                _ => None,
            }
        })
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_holders_of_that_inode_are_named_and_not_those_who_wait() {
        let locks = "1: FLOCK  ADVISORY  READ  812 00:06:105 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 900 00:06:105 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 33 00:06:105 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 44 00:06:106 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  77 00:06:105 0 EOF\n\
                     garbage\n";
        assert_eq!(parse(locks, DevNo { major: 0, minor: 6 }, 105), vec![77, 812]);
    }
}
