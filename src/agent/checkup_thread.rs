//! The thread of the checkup: events make one due at once, and else it runs once a minute, for what no event tells.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

use super::checkup::{Checkup, EVERY};

enum CheckupRequest {
    Look,
    Stop,
}

/// A handle to the thread.
#[derive(Clone)]
pub struct CheckupHandle(Sender<CheckupRequest>);

impl CheckupHandle {
    /// Starts the thread. `changed` is called after each checkup that found something new.
    pub fn start(mut checkup: Checkup, changed: impl Fn() + Send + 'static) -> (Self, JoinHandle<()>) {
        let (requests, inbox) = mpsc::channel();
        let handle = Self(requests);
        let answered = Arc::new(handle.clone());
        let thread = std::thread::spawn(move || {
            loop {
                match inbox.recv_timeout(EVERY) {
                    Ok(CheckupRequest::Look) | Err(RecvTimeoutError::Timeout) => {}
                    Ok(CheckupRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                }
                // One checkup serves all events that have come until now.
                while let Ok(request) = inbox.try_recv() {
                    if matches!(request, CheckupRequest::Stop) {
                        return;
                    }
                }
                let answered = Arc::clone(&answered);
                if checkup.look(&move || answered.due()) {
                    changed();
                }
            }
        });
        (handle, thread)
    }

    /// Something happened: a checkup is due.
    pub fn due(&self) {
        let _ = self.0.send(CheckupRequest::Look);
    }

    pub fn stop(&self) {
        let _ = self.0.send(CheckupRequest::Stop);
    }
}
