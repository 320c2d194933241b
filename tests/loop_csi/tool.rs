//! A program that a driver starts, stopped before its first instruction. The kernel asks before each execution of its
//! file (fanotify(7), FAN_OPEN_EXEC_PERM), so none is too fast to be caught.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::driver::{Driver, Held, SOON};

/// How long an end of the wait may take to be noticed, in milliseconds.
const A_MOMENT: u16 = 50;

/// Waits for a program of one driver. Those of others are let through at once.
pub struct Trap {
    caught: tokio::sync::oneshot::Receiver<Pid>,
    is_over: Arc<AtomicBool>,
    answers: Option<JoinHandle<()>>,
}

impl Driver {
    /// Stops the next execution of `program` by this driver, from now on.
    pub fn trap(&self, program: &str) -> Trap {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let fanotify = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).unwrap();
        let file = Path::new("/usr/sbin").join(program);
        fanotify.mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_EXEC_PERM, AT_FDCWD, Some(&file)).unwrap();
        let (send, caught) = tokio::sync::oneshot::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let (driver, over) = (self.pid(), is_over.clone());
        let answers = std::thread::spawn(move || {
            if let Some(tool) = answer(&fanotify, driver, &over) {
                let _ = send.send(tool);
            }
        });
        Trap { caught, is_over, answers: Some(answers) }
    }
}

impl Trap {
    /// Waits for it. It stays stopped until `resume`.
    pub async fn caught(mut self) -> Held {
        let caught = tokio::time::timeout(SOON, &mut self.caught).await;
        Held::stopped(caught.expect("it is executed").expect("it was stopped"))
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(answers) = self.answers.take() {
            let _ = answers.join();
        }
    }
}

/// Lets each execution through, the one of the driver with a signal to stop that it finds when it begins.
fn answer(fanotify: &Fanotify, driver: Pid, is_over: &AtomicBool) -> Option<Pid> {
    while !is_over.load(Ordering::Relaxed) {
        let _ = poll(&mut [PollFd::new(fanotify.as_fd(), PollFlags::POLLIN)], PollTimeout::from(A_MOMENT));
        let events = match fanotify.read_events() {
            Err(Errno::EAGAIN) => continue,
            events => events.unwrap(),
        };
        let mut caught = None;
        for event in events {
            let tool = Pid::from_raw(event.pid());
            if caught.is_none() && parent(tool) == Some(driver) {
                kill(tool, Signal::SIGSTOP).unwrap();
                caught = Some(tool);
            }
            let file = event.fd().expect("the file that is executed");
            fanotify.write_response(FanotifyResponse::new(file, Response::FAN_ALLOW)).unwrap();
        }
        if caught.is_some() {
            return caught;
        }
    }
    None
}

fn parent(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}
