//! udev's records as they are written: when its rules have judged a device, which is after the kernel's own event.
//! Links, and the serial numbers of USB disks, are known only then.
//!
//! Takes in `/run/udev/data` by inotify (udev's own messages do not reach pods), gives out the kernel names of devices.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::device_event::DeviceEvent;
use super::error::HostError;
use super::roots::Roots;
use crate::host::kernel_name::KernelName;

/// A subscription, active as soon as it is made.
#[derive(Debug)]
pub struct Descriptions {
    inotify: Inotify,
    /// Where device numbers lead to devices.
    numbers: PathBuf,
    read: RefCell<VecDeque<DeviceEvent>>,
}

impl Descriptions {
    /// `None` if there is no udev, or we cannot see it.
    pub fn watch(roots: &Roots) -> Result<Option<Self>, HostError> {
        let folder = roots.run.join("udev/data");
        let object = || folder.display().to_string();
        let failed = |why: Errno| HostError::Io { what: "cannot watch", object: object(), source: why.into() };
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(failed)?;
        // A record is renamed into its place when it is whole.
        match inotify.add_watch(&folder, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR) {
            Ok(_) => Ok(Some(Self { inotify, numbers: roots.sys.join("dev/block"), read: RefCell::default() })),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(why) => Err(failed(why)),
        }
    }

    /// The next record, if one has come.
    pub fn try_next(&self) -> Result<Option<DeviceEvent>, HostError> {
        loop {
            if let Some(record) = self.read.borrow_mut().pop_front() {
                return Ok(Some(record));
            }
            match self.inotify.read_events() {
                Ok(events) => {
                    let records = events.iter().filter_map(|event| {
                        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                            return Some(DeviceEvent::Overflow);
                        }
                        Some(DeviceEvent::Described { name: self.device(event.name.as_ref()?)? })
                    });
                    self.read.borrow_mut().extend(records);
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(why) => {
                    let (what, object) = ("cannot read", "udev's records".to_owned());
                    return Err(HostError::Io { what, object, source: why.into() });
                }
            }
        }
    }

    /// The device that a record describes; `None` if it is no block device, or has gone.
    fn device(&self, record: &OsStr) -> Option<KernelName> {
        let number = record.to_str()?.strip_prefix('b')?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        number.split_once(':').filter(|(major, minor)| is_number(major) && is_number(minor))?;
        let device = std::fs::read_link(self.numbers.join(number)).ok()?;
        Some(KernelName::of_sysfs(device.file_name()?.to_str()?))
    }
}

impl AsFd for Descriptions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_record_that_is_written_names_its_device_and_other_files_name_none() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::under(folder.path());
        assert!(Descriptions::watch(&roots).unwrap().is_none(), "no udev");
        let data = roots.run.join("udev/data");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(roots.sys.join("dev/block")).unwrap();
        for (number, place) in [("8:16", "../../devices/x/block/sdb"), ("104:0", "../../devices/x/block/cciss!c0d0")] {
            std::os::unix::fs::symlink(place, roots.sys.join("dev/block").join(number)).unwrap();
        }
        fs::write(data.join("b8:16"), "before").unwrap();
        let records = Descriptions::watch(&roots).unwrap().unwrap();
        assert_eq!(records.try_next().unwrap(), None, "what was there before is not told");
        for name in ["c8:16", "b8:16", "b9:9", "b8:16x", "b", "b:", "+usb:1-1", "n2", "b104:0"] {
            fs::write(data.join(".new"), "whole").unwrap();
            fs::rename(data.join(".new"), data.join(name)).unwrap();
        }
        let named = |name: &str| Some(DeviceEvent::Described { name: name.into() });
        assert_eq!(records.try_next().unwrap(), named("sdb"));
        assert_eq!(records.try_next().unwrap(), named("cciss/c0d0"));
        assert_eq!(records.try_next().unwrap(), None);
    }
}
