//! The thread of the checkup: events make one due at once, and else it runs once a minute, for what no event announces.

#![allow(clippy::disallowed_methods, reason = "the thread sleeps by its own clock; no rule is measured by it")]

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::burst::Burst;
use super::checkup::{Answered, Checkup, EVERY};
use crate::health::HealthChange;
use crate::host::{Announcements, chain};

/// How long a checkup waits for more events. A node that starts many pods has a checkup a second.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the listener waits before it checks whether it is still wanted.
const LISTEN: Duration = Duration::from_secs(60);

enum CheckupRequest {
    Due,
    Nothing,
    Stop,
}

/// A handle to the thread.
#[derive(Clone)]
pub struct CheckupHandle(Sender<CheckupRequest>);

impl CheckupHandle {
    /// Starts the thread. `changed` is called with what each checkup changed, if it changed anything.
    pub fn start(
        checkup: Checkup,
        announcements: Vec<Announcements>,
        changed: impl Fn(HealthChange) + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        Self::start_every(EVERY, checkup, announcements, changed)
    }

    fn start_every(
        every: Duration,
        mut checkup: Checkup,
        announcements: Vec<Announcements>,
        changed: impl Fn(HealthChange) + Send + 'static,
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
            while wait(&inbox, Instant::now() + every) == Wakes::Checkup {
                let change = checkup.run(&answered);
                if !change.is_empty() {
                    changed(change);
                }
            }
        });
        (handle, thread)
    }

    /// Something happened: a checkup is due.
    pub fn due(&self) {
        let _ = self.0.send(CheckupRequest::Due);
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

/// Sleeps until a checkup is due, by this time at the latest, and takes in all requests that come with the first one.
fn wait(inbox: &Receiver<CheckupRequest>, due: Instant) -> Wakes {
    loop {
        match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(CheckupRequest::Nothing) => {}
            Ok(CheckupRequest::Due) => break,
            Err(RecvTimeoutError::Timeout) => return Wakes::Checkup,
            Ok(CheckupRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return Wakes::End,
        }
    }
    let burst = Burst::lasting(Instant::now(), SETTLE);
    while let Some(wait) = burst.wait(Instant::now()) {
        match inbox.recv_timeout(wait) {
            Ok(CheckupRequest::Nothing | CheckupRequest::Due) => {}
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
            Ok(true) => CheckupRequest::Due,
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
    use crate::agent::checkup::tests::{degrade, node};

    /// What is seen only because of the event: the next checkup without one is far away, however slow the machine is.
    #[test]
    fn what_an_event_announces_is_seen_by_its_checkup_and_waits_for_no_other() {
        let node = node();
        let (tell, told) = mpsc::channel();
        let far = Duration::from_secs(365 * 24 * 3600);
        let (checkups, thread) =
            CheckupHandle::start_every(far, node.checkup, Vec::new(), move |change| drop(tell.send(change)));
        for lacks in [1, 0] {
            degrade(&node.host, "fake0", lacks);
            checkups.due();
            let change = told.recv_timeout(Duration::from_secs(300)).expect("it is seen");
            assert!(!change.is_empty());
        }
        degrade(&node.host, "fake0", 1);
        assert!(told.recv_timeout(2 * SETTLE).is_err(), "nobody announced it");
        checkups.stop();
        thread.join().expect("it ends");
    }

    #[test]
    fn without_any_event_a_checkup_is_due_after_a_minute_and_what_is_no_event_does_not_put_it_off() {
        let now = Instant::now();
        assert_eq!(EVERY, Duration::from_secs(60));
        let (requests, inbox) = mpsc::channel();
        assert_eq!(wait(&inbox, now), Wakes::Checkup, "its time has come");
        requests.send(CheckupRequest::Nothing).expect("it is open");
        assert_eq!(wait(&inbox, now), Wakes::Checkup);
        requests.send(CheckupRequest::Stop).expect("it is open");
        assert_eq!(wait(&inbox, now), Wakes::End);
        drop(requests);
        assert_eq!(wait(&inbox, now + EVERY), Wakes::End, "nobody is there any more");
    }
}
