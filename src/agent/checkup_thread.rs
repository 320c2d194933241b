//! The thread of the checkup: events make one due at once, and else it runs once a minute, for what no event tells.

#![allow(clippy::disallowed_methods, reason = "the thread sleeps by its own clock; no rule is measured by it")]

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::burst::Burst;
use super::checkup::{Answered, Checkup, EVERY};
use crate::host::{Announcements, chain};

/// How long a checkup waits for more events. A node that starts many pods has a checkup a second.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the listener waits before it checks whether it is still wanted.
const LISTEN: Duration = Duration::from_secs(60);

enum CheckupRequest {
    Look,
    Nothing,
    Stop,
}

/// A handle to the thread.
#[derive(Clone)]
pub struct CheckupHandle(Sender<CheckupRequest>);

impl CheckupHandle {
    /// Starts the thread. `changed` is called after each checkup that found something new.
    pub fn start(
        mut checkup: Checkup,
        announcements: Vec<Announcements>,
        changed: impl Fn() + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        let (requests, inbox) = mpsc::channel();
        let handle = Self(requests);
        for events in announcements {
            let outbox = handle.0.clone();
            std::thread::spawn(move || listen(events, &outbox));
        }
        let due = handle.clone();
        let answered: Answered = Arc::new(move || due.due());
        let thread = std::thread::spawn(move || {
            while wait(&inbox, due_after(Instant::now())) == Wakes::Checkup {
                if checkup.look(&answered) {
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

#[derive(Debug, PartialEq)]
enum Wakes {
    Checkup,
    End,
}

/// When a checkup is due if nothing happens.
fn due_after(last: Instant) -> Instant {
    last + EVERY
}

/// Sleeps until a checkup is due, by this time at the latest, and takes in all requests that come with the first one.
fn wait(inbox: &Receiver<CheckupRequest>, due: Instant) -> Wakes {
    loop {
        match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(CheckupRequest::Nothing) => {}
            Ok(CheckupRequest::Look) => break,
            Err(RecvTimeoutError::Timeout) => return Wakes::Checkup,
            Ok(CheckupRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return Wakes::End,
        }
    }
    let burst = Burst::lasting(Instant::now(), SETTLE);
    while let Some(wait) = burst.wait(Instant::now()) {
        match inbox.recv_timeout(wait) {
            Ok(CheckupRequest::Nothing | CheckupRequest::Look) => {}
            Err(RecvTimeoutError::Timeout) => break,
            Ok(CheckupRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return Wakes::End,
        }
    }
    Wakes::Checkup
}

/// Makes a checkup due with each change of mounts or arrays, until nobody takes it.
fn listen(mut events: Announcements, outbox: &Sender<CheckupRequest>) {
    loop {
        let request = match events.next(LISTEN) {
            Ok(true) => CheckupRequest::Look,
            // Time to see whether anybody still listens.
            Ok(false) => CheckupRequest::Nothing,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "changes are not announced; they are seen once a minute");
                return;
            }
        };
        if outbox.send(request).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_any_event_a_checkup_is_due_after_a_minute_and_what_is_no_event_does_not_put_it_off() {
        let now = Instant::now();
        assert_eq!(due_after(now) - now, Duration::from_secs(60));
        let (requests, inbox) = mpsc::channel();
        assert_eq!(wait(&inbox, now), Wakes::Checkup, "its time has come");
        requests.send(CheckupRequest::Nothing).expect("it is open");
        assert_eq!(wait(&inbox, now), Wakes::Checkup);
        requests.send(CheckupRequest::Stop).expect("it is open");
        assert_eq!(wait(&inbox, now), Wakes::End);
        drop(requests);
        assert_eq!(wait(&inbox, due_after(now)), Wakes::End, "nobody is there any more");
    }
}
