//! The label's two copies: frames of a checksummed header and a JSON payload, at 1 MiB and at 1.5 MiB.
//!
//! A label is written over the older copy, by one write, so that a torn write spares the newer one. The header has the
//! same shape in every format, so that a newer label is recognised and not touched. All numbers are little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | format |
//! | 12 | 4 | header length, 64 in format 1 |
//! | 16 | 16 | disk GUID |
//! | 32 | 8 | sequence |
//! | 40 | 4 | payload length |
//! | 44 | 4 | payload CRC32 |
//! | 48 | 4 | header CRC32, with this field as zero |
//! | 52 | 12 | zero |

use uuid::Uuid;

use crate::device::label::{ArrayPlace, FORMAT, LABEL_EXTENT, Label};
use crate::host::{BlockDevice, Extent, IoError};

const MAGIC: &[u8; 8] = b"lclpool\x1a";
const HEADER: u32 = 64;
/// Frames begin and end on this, whatever the sector.
const BLOCK: u32 = 4096;
/// Bytes of one copy.
const HALF: u32 = 512 << 10;
/// Bytes of payload that a copy has room for.
pub const ROOM: u32 = HALF - HEADER;

/// One of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    A,
    B,
}

/// Where the newest label is. The next one goes to the other copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestCopy {
    pub half: Half,
    pub sequence: u64,
}

/// A copy that verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequenced {
    pub label: Label,
    pub sequence: u64,
}

/// The content of the two copies.
#[derive(Debug)]
pub struct LabelCopies {
    pub a: Result<Sequenced, LabelError>,
    pub b: Result<Sequenced, LabelError>,
}

/// Why a copy is not a label, or a label was not written.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    #[error("reading label copy {half:?}")]
    Unreadable {
        half: Half,
        #[source]
        source: IoError,
    },
    #[error("writing label copy {half:?}")]
    Unwritable {
        half: Half,
        #[source]
        source: IoError,
    },
    #[error("there is no label")]
    Absent,
    #[error("the label header is damaged: {why}")]
    Header { why: &'static str },
    #[error("the label says that it is {says} bytes long, but there is only room for {room}")]
    Length { says: u32, room: u32 },
    #[error("the label's checksum is {computed:08x}, not {stored:08x} as its header says")]
    Payload { stored: u32, computed: u32 },
    /// Whole by its checksum, but written by a later version of localpool: not touched.
    #[error("the label's content is not understood")]
    Content {
        disk: Uuid,
        #[source]
        source: serde_json::Error,
    },
    #[error("the label contradicts itself: {why}")]
    Contradiction { why: &'static str },
    /// Written by a later version of localpool: not touched.
    #[error("the label of disk {disk} is of format {format}, newer than {FORMAT}, which this version knows")]
    NewerFormat { disk: Uuid, format: u32 },
    #[error("a label of {bytes} bytes does not fit into {room}")]
    TooLarge { bytes: usize, room: u32 },
    #[error("the label's sequence number cannot grow any more")]
    Exhausted,
    #[error("the label cannot be wiped: {why}")]
    InUse { why: String },
}

impl Half {
    const BOTH: [Half; 2] = [Half::A, Half::B];

    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    pub(super) fn extent(self) -> Extent {
        let start = match self {
            Self::A => LABEL_EXTENT.start,
            Self::B => LABEL_EXTENT.start + u64::from(HALF),
        };
        Extent { start, end: start + u64::from(HALF) }
    }
}

impl LabelCopies {
    pub fn get(&self, half: Half) -> &Result<Sequenced, LabelError> {
        match half {
            Half::A => &self.a,
            Half::B => &self.b,
        }
    }

    /// The format of a copy that a later version wrote for that disk, or for any disk if none is given. A copy of our
    /// own format with content that we do not understand comes from a later version, too: an older copy never replaces
    /// it.
    pub fn newer_format(&self, of: Option<Uuid>) -> Option<u32> {
        let format = |copy: &Result<Sequenced, LabelError>| match copy {
            Err(LabelError::NewerFormat { disk, format }) if of.is_none_or(|of| of == *disk) => Some(*format),
            Err(LabelError::Content { disk, .. }) if of.is_none_or(|of| of == *disk) => Some(FORMAT),
            Ok(_) | Err(_) => None,
        };
        format(&self.a).max(format(&self.b))
    }
}

/// Reads both copies. Each keeps its own failure.
pub fn read_label(dev: &dyn BlockDevice) -> LabelCopies {
    LabelCopies { a: read_half(dev, Half::A), b: read_half(dev, Half::B) }
}

/// The newest label of that disk, and where it is.
pub fn newest(copies: &LabelCopies, disk: Uuid) -> Option<(&Label, NewestCopy)> {
    Half::BOTH
        .into_iter()
        .filter_map(|half| Some((half, copies.get(half).as_ref().ok()?)))
        .filter(|(_, copy)| copy.label.disk == disk)
        .map(|(half, copy)| (&copy.label, NewestCopy { half, sequence: copy.sequence }))
        .rev()
        .max_by_key(|(_, copy)| copy.sequence)
}

/// Whether a disk whose label had the number `last_seen` can look like this. A lower number means an older state of the
/// disk; one less is possible if the newest copy has rotted.
pub fn is_as_new_as(copies: &LabelCopies, copy: NewestCopy, last_seen: u64) -> bool {
    copy.sequence >= last_seen || copy.sequence + 1 == last_seen && copies.get(copy.half.other()).is_err()
}

/// Writes a label over the copy that is not the last one, and syncs. `last` is `None` only for the first
/// label of a claim, which goes over the copy that matters least. A crash leaves the last label or this one.
pub fn write_label(dev: &dyn BlockDevice, label: &Label, last: Option<NewestCopy>) -> Result<NewestCopy, LabelError> {
    let copy = match last {
        Some(NewestCopy { half, sequence }) => {
            NewestCopy { half: half.other(), sequence: sequence.checked_add(1).ok_or(LabelError::Exhausted)? }
        }
        None => NewestCopy { half: least(&read_label(dev))?, sequence: 1 },
    };
    let bytes = encode(label, copy.sequence)?;
    write(dev, copy.half, &bytes)?;
    Ok(copy)
}

/// Zeros over both copies, the older first: the end of a release, when the tables are gone. What a crash leaves behind
/// still says that the disk was being released, or says nothing.
pub(super) fn zero_labels(dev: &dyn BlockDevice, first: Half) -> Result<(), LabelError> {
    let zeros = vec![0; HALF as usize];
    write(dev, first, &zeros)?;
    write(dev, first.other(), &zeros)
}

/// The copy to write a disk's first label over: one that says nothing, else the older one.
pub(super) fn least(copies: &LabelCopies) -> Result<Half, LabelError> {
    if let Some((disk, format)) = Half::BOTH.into_iter().find_map(|half| match copies.get(half) {
        Err(LabelError::NewerFormat { disk, format }) => Some((*disk, *format)),
        Err(LabelError::Content { disk, .. }) => Some((*disk, FORMAT)),
        Ok(_) | Err(_) => None,
    }) {
        return Err(LabelError::NewerFormat { disk, format });
    }
    Ok(match (&copies.a, &copies.b) {
        (Ok(a), Ok(b)) if a.sequence <= b.sequence => Half::A,
        (Ok(_), _) => Half::B,
        (Err(_), _) => Half::A,
    })
}

fn write(dev: &dyn BlockDevice, half: Half, bytes: &[u8]) -> Result<(), LabelError> {
    let done = dev.write_at(half.extent().start, bytes).and_then(|()| dev.sync());
    done.map_err(|source| LabelError::Unwritable { half, source })
}

fn encode(label: &Label, sequence: u64) -> Result<Vec<u8>, LabelError> {
    check(label)?;
    let payload = serde_json::to_vec(label).map_err(|source| LabelError::Content { disk: label.disk, source })?;
    let too_large = LabelError::TooLarge { bytes: payload.len(), room: ROOM };
    let length = u32::try_from(payload.len()).ok().filter(|length| *length <= ROOM).ok_or(too_large)?;
    let mut frame = vec![0; HEADER as usize];
    frame[..8].copy_from_slice(MAGIC);
    frame[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    frame[12..16].copy_from_slice(&HEADER.to_le_bytes());
    frame[16..32].copy_from_slice(&label.disk.to_bytes_le());
    frame[32..40].copy_from_slice(&sequence.to_le_bytes());
    frame[40..44].copy_from_slice(&length.to_le_bytes());
    frame[44..48].copy_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    let crc = crc32fast::hash(&frame);
    frame[48..52].copy_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(&payload);
    frame.resize(frame.len().next_multiple_of(BLOCK as usize), 0);
    Ok(frame)
}

fn read_half(dev: &dyn BlockDevice, half: Half) -> Result<Sequenced, LabelError> {
    let extent = half.extent();
    if dev.geometry().size < extent.end {
        return Err(LabelError::Absent);
    }
    let read = |length: usize| {
        let mut bytes = vec![0; length];
        dev.read_at(extent.start, &mut bytes).map_err(|source| LabelError::Unreadable { half, source })?;
        Ok(bytes)
    };
    let head = read(BLOCK as usize)?;
    let header = FrameHeader::decode(&head)?;
    let end = HEADER as usize + header.length as usize;
    let frame = if end <= head.len() { head } else { read(end.next_multiple_of(BLOCK as usize))? };
    header.open(&frame[HEADER as usize..end])
}

/// A header that is sound, of this version's format, and whose payload fits.
#[derive(Debug)]
struct FrameHeader {
    disk: Uuid,
    sequence: u64,
    length: u32,
    crc: u32,
}

impl FrameHeader {
    /// `block` is the first 4096 bytes of a copy.
    fn decode(block: &[u8]) -> Result<Self, LabelError> {
        if !block.starts_with(MAGIC) {
            return Err(LabelError::Absent);
        }
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes are four bytes"));
        let span = word(12);
        if !(HEADER..=BLOCK).contains(&span) {
            return Err(LabelError::Header { why: "its length is impossible" });
        }
        let mut covered = block[..span as usize].to_vec();
        covered[48..52].fill(0);
        if crc32fast::hash(&covered) != word(48) {
            return Err(LabelError::Header { why: "its checksum is wrong" });
        }
        let disk = Uuid::from_bytes_le(block[16..32].try_into().expect("sixteen bytes are sixteen bytes"));
        match word(8) {
            FORMAT if span == HEADER => {}
            format if format > FORMAT => return Err(LabelError::NewerFormat { disk, format }),
            _ => return Err(LabelError::Header { why: "its format is unknown" }),
        }
        let length = word(40);
        if length > ROOM {
            return Err(LabelError::Length { says: length, room: ROOM });
        }
        let sequence = u64::from_le_bytes(block[32..40].try_into().expect("eight bytes are eight bytes"));
        Ok(Self { disk, sequence, length, crc: word(44) })
    }

    fn open(&self, payload: &[u8]) -> Result<Sequenced, LabelError> {
        let computed = crc32fast::hash(payload);
        if computed != self.crc {
            return Err(LabelError::Payload { stored: self.crc, computed });
        }
        let label: Result<Label, _> = serde_json::from_slice(payload);
        let label = label.map_err(|source| LabelError::Content { disk: self.disk, source })?;
        if label.disk != self.disk {
            return Err(LabelError::Contradiction { why: "header and content name different disks" });
        }
        check(&label)?;
        Ok(Sequenced { label, sequence: self.sequence })
    }
}

/// What every label guarantees, and the code that takes space from the clean list relies on.
fn check(label: &Label) -> Result<(), LabelError> {
    let whole = label.clean.iter().all(|extent| extent.start < extent.end);
    let sorted = label.clean.windows(2).all(|pair| pair[0].end <= pair[1].start);
    if !whole || !sorted {
        return Err(LabelError::Contradiction { why: "the clean extents are not sorted and disjoint" });
    }
    match label.layout.member() {
        Some(ArrayPlace { place, count, .. }) if place >= count => {
            Err(LabelError::Contradiction { why: "the array has fewer members than its place says" })
        }
        Some(_) | None => Ok(()),
    }
}
