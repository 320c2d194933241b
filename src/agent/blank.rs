//! Whether a disk reads as zeros, where its set asks for that: bytes that nothing recognises are somebody's too.
//!
//! Takes in a disk that is about to be claimed, gives out nothing or the reason against it, and remembers the refused
//! ones, so that a disk is read once and not at each pass. What is read is bounded: all of a small disk, of others the
//! first and the last [`EDGE`] and [`SAMPLES`] places spread evenly between. One pass reads for [`AT_MOST`] or so, and
//! leaves the other disks to the next one, as people wait for the thread that reads.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::NotZeros;
use crate::device::{Device, REMEMBERED_FOR, Remembered};
use crate::host::{
    Access, BlockDevice, Host, HostError, Incarnation, IoError, KernelName, RawDisk,
    timeout::{self, TimeoutError, Timeouts},
};

/// Read whole up to this size.
const SMALL: u64 = 64 << 20;
const EDGE: u64 = 4 << 20;
const SAMPLES: u64 = 256;
const SAMPLE_BYTES: u64 = 4096;
/// One read.
const PIECE: u64 = 1 << 20;
const AT_MOST: Duration = Duration::from_secs(5);

/// The findings on the disks that were read.
#[derive(Debug)]
pub(super) struct Blanks {
    /// Why they were refused.
    refused: Remembered<NotZeros>,
    timeouts: Timeouts<Incarnation>,
    /// How long this pass has read.
    spent: Duration,
}

/// Why a disk is not claimed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotBlank {
    /// It is remembered.
    #[error(transparent)]
    Holds(#[from] NotZeros),
    #[error("it is waiting to be read, because it must hold only zeros")]
    Waits,
    /// It does not answer, or not yet.
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Open(#[from] HostError),
    #[error(transparent)]
    Read(#[from] IoError),
}

impl NotBlank {
    /// Whether the next pass may know more. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Waits | Self::Hangs(_) | Self::Read(_) => true,
            Self::Open(error) => error.retryable(),
            Self::Holds(_) => false,
        }
    }
}

impl Default for Blanks {
    fn default() -> Self {
        Self { refused: Remembered::default(), timeouts: Timeouts::new(timeout::DEVICE_TIMEOUT), spent: Duration::ZERO }
    }
}

impl Blanks {
    pub fn begin_pass(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// An event of a device, by kernel name: it may hold something else now.
    pub fn changed(&mut self, name: &KernelName) {
        self.refused.changed(name);
    }

    pub fn all_changed(&mut self) {
        self.refused.all_changed();
    }

    /// Those that are not here any more are waited for no more.
    pub fn forget(&mut self, here: impl Fn(&Incarnation) -> bool) {
        self.timeouts.forget(here);
    }

    /// The data that was found on a device, and is remembered. Not for ever, as not every change of a disk comes with
    /// an event.
    pub fn known(&self, device: &Device, now: Duration) -> Result<(), NotZeros> {
        self.refused.fresh(&device.raw, now, REMEMBERED_FOR).map_or(Ok(()), |why| Err(*why))
    }

    /// Reads a disk. Read-only: closing a descriptor that could write would be an event of the disk.
    pub fn prove(&mut self, host: &Arc<dyn Host>, raw: &RawDisk) -> Result<(), NotBlank> {
        if self.spent >= AT_MOST {
            return Err(NotBlank::Waits);
        }
        let at = host.monotonic();
        let read = {
            let (host, raw) = (Arc::clone(host), raw.clone());
            move || {
                let disk = host.open(&raw, Access::ReadOnly)?;
                Ok::<_, NotBlank>(first_byte(&*disk)?)
            }
        };
        let found = self.timeouts.ask(&raw.incarnation(), read);
        self.spent = self.spent.saturating_add(host.monotonic().saturating_sub(at));
        let Some(first) = found?? else { return Ok(()) };
        let why = NotZeros { first };
        self.refused.keep(raw, at, why);
        Err(why.into())
    }
}

/// Where the first byte other than zero is, of those that are looked at.
fn first_byte(disk: &dyn BlockDevice) -> Result<Option<u64>, IoError> {
    for (start, len) in places(disk.geometry().size) {
        let mut at = start;
        while at < start + len {
            let piece = PIECE.min(start + len - at);
            let mut buf = vec![0; usize::try_from(piece).unwrap_or(0)];
            disk.read_at(at, &mut buf)?;
            if let Some(index) = buf.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + index as u64));
            }
            at += piece;
        }
    }
    Ok(None)
}

/// The places that are read on a disk of this size: start and length of each, inside of it, the ends first.
fn places(size: u64) -> Vec<(u64, u64)> {
    if size <= SMALL {
        return vec![(0, size)];
    }
    let between = size - 2 * EDGE - SAMPLE_BYTES;
    let sample = |index: u64| {
        let skip = u128::from(between) * u128::from(index) / u128::from(SAMPLES - 1);
        (EDGE + u64::try_from(skip).unwrap_or(between) / SAMPLE_BYTES * SAMPLE_BYTES, SAMPLE_BYTES)
    };
    [(0, EDGE), (size - EDGE, EDGE)].into_iter().chain((0..SAMPLES).map(sample)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::reconciler::Reconciler;
    use crate::claim::{Blankness, Rejection, Rule, sample::rule};
    use crate::device::{Owner, sample::unclaimed};
    use crate::host::{
        Extent, Geometry,
        fake::{FakeHost, Fault},
    };
    use crate::pool::{Pool, Workers};

    const MIB: u64 = 1 << 20;

    fn geometry(size: u64) -> Geometry {
        Geometry { size, sector: 512, offloads_zeroes: true }
    }

    fn asked(host: &Arc<FakeHost>) -> Arc<dyn Host> {
        Arc::clone(host) as Arc<dyn Host>
    }

    fn device(host: &FakeHost, name: &str) -> Device {
        let raw = host.scan().unwrap().into_iter().find(|raw| raw.name == name).unwrap();
        Device { raw, ..unclaimed(name) }
    }

    #[test]
    fn places_lie_on_the_disk_cover_its_ends_and_leave_no_large_gap() {
        for size in [512, MIB, SMALL, SMALL + 512, 10 << 30, 8_001_563_222_016, u64::MAX / 2] {
            let mut places = places(size);
            places.sort_unstable();
            assert_eq!(places[0].0, 0);
            assert!(places.iter().all(|(start, len)| start + len <= size), "{size}");
            assert!(places.iter().any(|(start, len)| start + len == size), "{size}");
            assert!(places.iter().map(|(_, len)| len).sum::<u64>() <= SMALL);
            let widest = places.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0 + pair[0].1)).max();
            assert!(widest.unwrap_or(0) <= size / (SAMPLES - 1) + SAMPLE_BYTES, "{size}");
        }
    }

    #[test]
    fn one_byte_anywhere_on_a_small_disk_and_at_either_end_of_a_large_one_is_seen() {
        let host = Arc::new(FakeHost::default());
        for (index, (size, at)) in
            [(64 * MIB, 40 * MIB + 3), (1 << 40, 4 * MIB - 1), (1 << 40, (1 << 40) - 4 * MIB), (1 << 40, (1 << 40) - 1)]
                .into_iter()
                .enumerate()
        {
            let name = format!("fake{index}");
            let platter = host.add_disk(&name, &name, geometry(size));
            let mut blanks = Blanks::default();
            blanks.prove(&asked(&host), &device(&host, &name).raw).expect("it is blank");
            platter.poke(at, &[1]);
            let refused = blanks.prove(&asked(&host), &device(&host, &name).raw).expect_err("it is not");
            assert!(matches!(refused, NotBlank::Holds(NotZeros { first }) if first == at), "{refused}");
        }
    }

    #[test]
    fn what_was_found_is_believed_until_an_event_another_disk_or_an_hour() {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "S", geometry(MIB)).poke(0, &[1]);
        let found = device(&host, "fake0");
        let mut blanks = Blanks::default();
        let read = |blanks: &mut Blanks| drop(blanks.prove(&asked(&host), &found.raw));
        let known = |blanks: &Blanks, device: &Device, seconds| blanks.known(device, Duration::from_secs(seconds));
        assert_eq!(known(&blanks, &found, 0), Ok(()));
        read(&mut blanks);
        assert!(known(&blanks, &found, 3599).is_err());
        assert_eq!(known(&blanks, &found, 3600), Ok(()));
        let other = Device { raw: RawDisk { diskseq: Some(99), ..found.raw.clone() }, ..found.clone() };
        assert_eq!(known(&blanks, &other, 0), Ok(()));
        blanks.changed(&"fake1".into());
        assert!(known(&blanks, &found, 0).is_err());
        blanks.changed(&"fake0".into());
        assert_eq!(known(&blanks, &found, 0), Ok(()));
        read(&mut blanks);
        blanks.all_changed();
        assert_eq!(known(&blanks, &found, 0), Ok(()));
    }

    #[test]
    fn a_disk_that_cannot_be_read_is_not_blank_and_is_asked_again() {
        let host = Arc::new(FakeHost::default());
        let platter = host.add_disk("fake0", "S", geometry(MIB));
        platter.inject(Fault { what: "read", range: Extent { start: 0, end: 1 }, times: 1 });
        let mut blanks = Blanks::default();
        let raw = device(&host, "fake0").raw;
        let unread = blanks.prove(&asked(&host), &raw).expect_err("it is not read");
        assert!(matches!(unread, NotBlank::Read(_)) && unread.retryable(), "{unread}");
        blanks.prove(&asked(&host), &raw).expect("it is blank");
    }

    #[test]
    fn a_pass_that_has_read_for_long_leaves_the_other_disks_to_the_next() {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "S", geometry(MIB));
        let raw = device(&host, "fake0").raw;
        let mut blanks = Blanks { spent: AT_MOST, ..Blanks::default() };
        let unread = blanks.prove(&asked(&host), &raw).expect_err("it waits");
        assert!(matches!(unread, NotBlank::Waits) && unread.retryable(), "{unread}");
        blanks.begin_pass();
        blanks.prove(&asked(&host), &raw).expect("it is blank");
    }

    #[test]
    fn a_set_that_asks_for_zeros_leaves_a_written_disk_for_a_blank_one_and_reads_it_once() {
        let host = Arc::new(FakeHost::default());
        let written = host.add_disk("fake0", "S0", geometry(64 * MIB));
        written.poke(20 * MIB, &[1]);
        host.add_disk("fake1", "S1", geometry(64 * MIB));
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let rule = Rule { blankness: Blankness::Zeros, max_devices: Some(1), ..rule("set") };
        let mut agent = Reconciler::new(host, pool, Duration::ZERO, vec![rule]);
        let mut pass = || agent.pass().expect("a pass");
        pass();
        let refused = pass();
        assert_eq!((refused.claimed, refused.ripe_in), (vec![], Some(Duration::ZERO)));
        assert_eq!(pass().claimed, ["fake1"]);
        // Read again, it would be a problem.
        written.inject(Fault { what: "read", range: Extent { start: 19 * MIB, end: 21 * MIB }, times: u32::MAX });
        let last = pass();
        assert_eq!((last.claimed, last.problems), (vec![], std::collections::BTreeMap::new()));
        let holds = Rejection::NotZeros(NotZeros { first: 20 * MIB });
        let message = format!("it holds unrecognised data, first seen at byte {}", 20 * MIB);
        assert_eq!(holds.to_string(), message);
        assert_eq!(last.outcomes[0].rejected, [("fake0".into(), holds)]);
        assert_eq!(written.write_count(), 0);
    }

    #[test]
    fn a_disk_that_hung_while_it_was_read_and_is_gone_leaves_all_time_to_the_others() {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "S0", geometry(MIB));
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let mut agent = Reconciler::new(host.clone(), pool, Duration::ZERO, Vec::new());
        let short = Duration::from_millis(10);
        let (_end, ended) = std::sync::mpsc::channel::<()>();
        let timeouts = &mut agent.memory.blanks.timeouts;
        *timeouts = Timeouts::new(short);
        timeouts.ask(&device(&host, "fake0").raw.incarnation(), move || ended.recv()).expect_err("it hangs");
        agent.pass().expect("a pass");
        assert_eq!(agent.memory.blanks.timeouts.timeout(), short / 2, "it is here");
        host.unplug("fake0");
        agent.pass().expect("a pass");
        assert_eq!(agent.memory.blanks.timeouts.timeout(), short);
    }
}
