//! When a process began. Takes in /proc; whoever has the number of a process tells by it which one that is.

use std::fs;
use std::path::Path;

/// When a process began, in ticks since the kernel did: field 22 of its stat. Field 2 is a name that may hold anything,
/// also `)`.
pub fn began(proc: &Path, pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_whitespace().nth(22 - 3)?.parse().ok()
}
