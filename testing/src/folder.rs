//! A folder of the tests that goes with its value, and with their process, however that ends.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

/// Makes the folder, and removes it when the tests end: it reads from a pipe that the kernel closes then, also if they
/// are killed, and be it before they know that the folder is there. What writes into it may be about to end, too; if it
/// cannot be removed, that is tried for ten seconds.
const KEEPER: &str = r#"trap '' HUP INT PIPE TERM
mkdir -m 700 -- "$0" || exit 1
echo made
read -r _
tries=0
until rm -rf -- "$0"; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exit 1
    sleep 0.1
done"#;

pub struct Folder {
    path: PathBuf,
    keeper: Child,
}

impl Folder {
    /// Its name begins with `prefix` and the number of this process.
    pub fn new(prefix: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        sweep(&base, prefix);
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // A number of a process comes again.
        let now = UNIX_EPOCH.elapsed().expect("after 1970").subsec_nanos();
        let path = base.join(format!("{prefix}{process}-{next}-{now:x}"));
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Whoever kills all that a terminal or a runner has started does not kill it.
        let mut keeper = keeper.process_group(0).spawn().expect("a shell starts");
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().expect("it is piped")).read_line(&mut said).expect("it says so");
        assert_eq!(said, "made\n", "{} is made", path.display());
        Self { path, keeper }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // This closes its pipe first.
        let _ = self.keeper.wait();
        assert!(!self.path.exists() || std::thread::panicking(), "{} cannot be removed", self.path.display());
    }
}

/// Removes what is left of processes that ended together with their keepers, as when the machine went down.
fn sweep(base: &Path, prefix: &str) {
    for entry in fs::read_dir(base).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let process = rest.split('-').next().unwrap_or_default();
        if !process.is_empty() && !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
