//! Tests that cannot run here: each says so in a line, which the summary of `make test` counts.

/// Says why this test is skipped.
pub fn skipped(why: &str) {
    // In one write, so that the line stays whole beside those of other threads.
    let line = format!("skipped: {why}\n");
    eprint!("{line}");
}

/// Whether this test has root, for loop devices and mounts; without root, it says that it is skipped.
pub fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skipped("needs root, for loop devices and mounts");
    }
    is_root
}
