//! The role `demo`: a whole driver at work, watched by a real CSI client, on three loop disks of its own.
//!
//! Takes in nothing; gives out progress, a table of what happened and how long it took, and the disks before and after.
//! However it ends, the driver, the mounts, the loop devices and the files are gone afterwards, and only its own three
//! disks were opened for writing.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it stands outside of the driver: makes images, reads them past it, and times its answers"
)]

mod disks;
mod driver;
mod error;
mod lab;
mod pattern;
mod report;
mod steps;
mod volumes;

use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};

pub use self::error::DemoError;
use self::lab::Lab;
use self::report::{Report, say};

/// How many lines of the driver's log a failure shows.
const LOG_LINES: usize = 20;

/// Shows everything once, and tidies up.
pub fn run() -> Result<(), DemoError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(DemoError::NotRoot);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(DemoError::io("start", "the runtime"))?;
    runtime.block_on(demonstrate())
}

async fn demonstrate() -> Result<(), DemoError> {
    // Before the first thing that would have to be tidied up.
    let stop = stop()?;
    let mut lab = Lab::new()?;
    let mut report = Report::begin(lab.dir());
    let outcome = tokio::select! {
        outcome = steps::run(&mut lab, &mut report) => outcome,
        name = stop => Err(DemoError::Stopped(name)),
    };
    if let Err(error) = &outcome
        && !matches!(error, DemoError::Stopped(_))
    {
        say(&lab.log_tail(LOG_LINES));
    }
    let begun = Instant::now();
    let swept = lab.sweep();
    // The first failure is the error; whatever remains is reported in any case.
    match (outcome, swept) {
        (Ok(()), Ok(what)) => {
            report.done("tidy up", None, &what, "everything was removed", begun.elapsed());
            Ok(report.finish()?)
        }
        (Err(error), Ok(what)) => {
            say(&format!("tidied up: {what}"));
            Err(error)
        }
        (Err(error), Err(remains)) => {
            say(&remains.to_string());
            Err(error)
        }
        (Ok(()), Err(remains)) => Err(remains),
    }
}

/// Ends with the name of the first signal that asks this process to stop.
fn stop() -> Result<impl Future<Output = &'static str>, DemoError> {
    let listen = |kind| signal(kind).map_err(DemoError::io("listen for", "signals"));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hangup.recv() => "SIGHUP",
        }
    })
}
