//! Programs that a test runs.

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Runs a tool; returns what it printed, or everything that it said if it failed.
pub fn attempt(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(out.into_owned()) } else { Err(format!("{program} {args:?}: {out}{err}")) }
}

/// Runs a tool for a test; if the tool fails, so does the test.
#[track_caller]
pub fn run(program: &str, args: &[&str]) -> String {
    attempt(program, args).unwrap_or_else(|output| panic!("{output}"))
}

/// A process that is killed when this is dropped.
pub struct Running(pub Child);

impl Running {
    /// Asks it to end, as systemd and kubelet do.
    pub fn terminate(&self) {
        kill(pid(self), Signal::SIGTERM).expect("it runs");
    }
}

pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Host and port on loopback that nobody has at the moment.
pub fn free_address() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port")
}

/// A path of a test, which has no other characters than those of UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the paths of tests are UTF-8")
}
