//! The events after which a scan of the machine's devices is due: the kernel's, and udev's records of them.
//!
//! Takes in both, the kernel's as netlink messages of group 1 (udev's group 2 does not reach pods); gives out
//! [`DeviceEvent`]s, one by one as they come. One may be lost or late, and whoever gets one looks at everything.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt, socket, sockopt,
};

use super::device_event::DeviceEvent;
use super::error::HostError;
use super::kernel_name::KernelName;
use super::roots::Roots;
use super::udev_events::Descriptions;
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

/// A subscription to the kernel's own events, active as soon as it is made.
#[derive(Debug)]
struct UeventSocket {
    socket: OwnedFd,
}

const KERNEL_EVENTS: u32 = 1;
/// Room for some thousand events, so that a shelf of disks at once does not overflow.
const BUFFER: usize = 2 << 20;
/// More than the kernel puts into one event (2 KiB of environment and a path).
const LONGEST: usize = 16 << 10;

impl UeventSocket {
    fn subscribe() -> Result<Self, HostError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let socket =
            socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol).map_err(failed("cannot open"))?;
        // This only asks for a larger buffer: without it more events are Overflow, and nothing is missed.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER);
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_EVENTS)).map_err(failed("cannot subscribe to"))?;
        Ok(Self { socket })
    }

    /// The next of them, if one has come.
    fn try_next(&self) -> Result<Option<DeviceEvent>, HostError> {
        let mut message = vec![0; LONGEST];
        loop {
            match recvfrom::<NetlinkAddr>(self.socket.as_raw_fd(), &mut message) {
                // Only the kernel has the address 0; a process may send to the group too.
                Ok((len, Some(sender))) if sender.pid() == 0 => {
                    if let Some(event) = parse(&message[..len]) {
                        return Ok(Some(event));
                    }
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => return Ok(Some(DeviceEvent::Overflow)),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(why) => return Err(failed("cannot read")(why)),
            }
        }
    }
}

impl AsFd for UeventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> HostError {
    move |why| HostError::Io { what, object: "the kernel's device events".into(), source: why.into() }
}

/// Reads `action@devpath` and its `KEY=VALUE`s; `None` if it is an event of something else.
fn parse(message: &[u8]) -> Option<DeviceEvent> {
    let mut parts = message.split(|byte| *byte == 0);
    parts.next().filter(|header| header.contains(&b'@'))?;
    let (mut subsystem, mut node, mut place, mut reports) = (None, None, None, false);
    for part in parts {
        let Some((key, value)) = std::str::from_utf8(part).ok().and_then(|part| part.split_once('=')) else { continue };
        match key {
            "SUBSYSTEM" => subsystem = Some(value),
            "DEVNAME" => node = Some(value),
            "DEVPATH" => place = value.rsplit('/').next(),
            // An asynchronous event of the controller: a critical warning, or an error.
            "NVME_AEN" => reports = true,
            _ => {}
        }
    }
    // A device without a node has its name in the path only.
    let name = node.map(KernelName::from).or_else(|| place.map(KernelName::of_sysfs))?;
    match subsystem.filter(|_| !name.is_empty())? {
        "block" => Some(DeviceEvent::Changed { name }),
        "nvme" if reports => Some(DeviceEvent::Reported { controller: name }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(parts: &[&str]) -> Vec<u8> {
        parts.iter().flat_map(|part| [part.as_bytes(), b"\0"].concat()).collect()
    }

    fn name(parts: &[&str]) -> Option<KernelName> {
        match parse(&event(parts)) {
            Some(DeviceEvent::Changed { name }) => Some(name),
            _ => None,
        }
    }

    #[test]
    fn block_events_name_their_device() {
        let add = [
            "add@/devices/virtual/block/loop0",
            "ACTION=add",
            "DEVPATH=/devices/virtual/block/loop0",
            "SUBSYSTEM=block",
        ];
        assert_eq!(name(&add).as_deref(), Some("loop0"));
        let part = [
            "remove@/x",
            "DEVPATH=/devices/pci/block/sda/sda1",
            "SUBSYSTEM=block",
            "DEVNAME=sda1",
            "DEVTYPE=partition",
        ];
        assert_eq!(name(&part).as_deref(), Some("sda1"));
        let odd = ["change@/x", "DEVPATH=/devices/pci/block/cciss!c0d0", "SUBSYSTEM=block"];
        assert_eq!(name(&odd).as_deref(), Some("cciss/c0d0"));
    }

    #[test]
    fn an_asynchronous_event_of_nvme_names_its_controller() {
        let reports = [
            "change@/devices/pci0000:00/0000:00:04.0/nvme/nvme0",
            "ACTION=change",
            "DEVPATH=/devices/pci0000:00/0000:00:04.0/nvme/nvme0",
            "SUBSYSTEM=nvme",
            "NVME_AEN=0x020101",
            "NVME_TRTYPE=pcie",
            "MAJOR=241",
            "MINOR=0",
            "DEVNAME=nvme0",
            "SEQNUM=4711",
        ];
        assert_eq!(parse(&event(&reports)), Some(DeviceEvent::Reported { controller: "nvme0".into() }));
        for other in ["NVME_EVENT=connected", "ACTION=add"] {
            assert_eq!(
                parse(&event(&reports.map(|part| if part.starts_with("NVME_AEN") { other } else { part }))),
                None
            );
        }
        let of_block = reports.map(|part| if part == "SUBSYSTEM=nvme" { "SUBSYSTEM=block" } else { part });
        assert_eq!(name(&of_block).as_deref(), Some("nvme0"));
        assert_eq!(parse(b"change@/x\0SUBSYSTEM=nvme\0NVME_AEN=0x1\0DEVNAME=\0"), None);
    }

    #[test]
    fn events_of_other_subsystems_and_broken_ones_are_no_hints() {
        assert_eq!(name(&["add@/devices/x", "DEVPATH=/devices/x/bdi", "SUBSYSTEM=bdi", "DEVNAME=sda"]), None);
        assert_eq!(name(&["add@/x", "SUBSYSTEM=block"]), None);
        assert_eq!(name(&["add@/x", "SUBSYSTEM=block", "DEVPATH=/devices/"]), None);
        assert_eq!(name(&["libudev", "SUBSYSTEM=block", "DEVNAME=sda"]), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"\0\0\0"), None);
        assert_eq!(parse(b"add@/x\0SUBSYSTEM=block\0DEVNAME=\xff\xfe\0"), None);
        assert_eq!(
            parse(b"add@/x\0SUBSYSTEM=block\0DEVNAME=sda"),
            Some(DeviceEvent::Changed { name: "sda".into() }),
            "no final NUL"
        );
    }

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

    proptest! {
        #[test]
        fn events_of_any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes);
        }

        #[test]
        fn events_that_look_real_never_panic(text in r"(add@|SUBSYSTEM=block|SUBSYSTEM=nvme|NVME_AEN=|DEVNAME=|DEVPATH=/|!|=|\x00|a){0,20}") {
            parse(text.as_bytes());
        }
    }
}
