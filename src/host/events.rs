//! The events after which a look at the machine's devices is due: the kernel's, and udev's records of them.
//!
//! Takes in both, gives out [`DeviceEvent`]s, one by one as they come. One may be lost or late, and whoever gets one
//! looks at everything.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::device_event::DeviceEvent;
use super::error::HostError;
use super::roots::Roots;
use super::udev_events::Descriptions;
use super::uevent::UeventSocket;
use super::wait::readable;

/// A subscription to all of it, active as soon as it is made.
#[derive(Debug)]
pub struct DeviceEvents {
    kernel: UeventSocket,
    udev: Option<Descriptions>,
}

impl DeviceEvents {
    pub fn subscribe(roots: &Roots) -> Result<Self, HostError> {
        Ok(Self { kernel: UeventSocket::subscribe()?, udev: Descriptions::watch(roots)? })
    }

    /// The next event, or `None` if none came in time.
    pub fn next(&self, timeout: Duration) -> Result<Option<DeviceEvent>, HostError> {
        let deadline = Instant::now() + timeout;
        loop {
            // The kernel's events first: udev's records follow them.
            if let Some(event) = self.kernel.try_next()? {
                return Ok(Some(event));
            }
            if let Some(event) = self.udev.as_ref().map(Descriptions::try_next).transpose()?.flatten() {
                return Ok(Some(event));
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            self.wait(remaining)?;
        }
    }

    fn wait(&self, remaining: Duration) -> Result<(), HostError> {
        let both = [Some(self.kernel.as_fd()), self.udev.as_ref().map(AsFd::as_fd)];
        let both: Vec<_> = both.into_iter().flatten().collect();
        readable(&both, remaining).map_err(|why| {
            let (what, object) = ("cannot wait for", "device events".to_owned());
            HostError::Io { what, object, source: why.into() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_does_not_come_is_waited_for_only_so_long_and_udevs_word_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::under(folder.path());
        let data = roots.run.join("udev/data");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::create_dir_all(roots.sys.join("dev/block")).unwrap();
        std::os::unix::fs::symlink("../../devices/x/block/sdz", roots.sys.join("dev/block/1000:1")).unwrap();
        let events = DeviceEvents::subscribe(&roots).unwrap();
        let start = Instant::now();
        while events.next(Duration::from_millis(30)).unwrap().is_some() {}
        assert!(start.elapsed() >= Duration::from_millis(30));

        let write = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            std::fs::write(data.join(".new"), "whole").unwrap();
            std::fs::rename(data.join(".new"), data.join("b1000:1")).unwrap();
        });
        let wanted = DeviceEvent::Described { name: "sdz".into() };
        // The machine has events of its own meanwhile.
        while events.next(Duration::from_secs(60)).unwrap().expect("it comes") != wanted {}
        write.join().unwrap();
    }
}
