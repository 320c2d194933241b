//! What a disk answers to one of several questions. Pure.

use super::super::ioctl::ScsiReply;

/// The disk did not answer one of several questions: the numbers of the others would not be of one kind with those of
/// another time, when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// A page, or `None` if the disk refuses it.
pub type PageAnswer = Result<Option<Vec<u8>>, Unanswered>;

/// A status of SCSI: it refuses, or the sense data say what kept it from answering.
const CHECK_CONDITION: u8 = 2;
/// Of the sense data: it is not ready, and it was reset or changed since it was asked last.
const NOT_READY: u8 = 2;
const UNIT_ATTENTION: u8 = 6;

/// What the reply means for the page that came with it. A disk that is busy, or has just been reset, refuses nothing.
pub fn answer(reply: &ScsiReply, page: Vec<u8>) -> PageAnswer {
    let key = match reply.sense.first().map(|code| code & 0x7f) {
        Some(0x70 | 0x71) => reply.sense.get(2),
        Some(0x72 | 0x73) => reply.sense.get(1),
        _ => None,
    };
    match (reply.status, key.map(|key| key & 0x0f)) {
        (0, _) => Ok(Some(page)),
        (CHECK_CONDITION, Some(NOT_READY | UNIT_ATTENTION)) => Err(Unanswered),
        (CHECK_CONDITION, _) => Ok(None),
        _ => Err(Unanswered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_busy_or_was_reset_has_not_refused_what_it_was_asked_for() {
        let of = |status, sense: &[u8]| answer(&ScsiReply { status, sense: sense.to_vec() }, vec![7]);
        assert_eq!(of(0, &[]), Ok(Some(vec![7])));
        // Illegal request, and an ATA command that was aborted because the disk does not know it.
        for sense in [&[0x70, 0, 5][..], &[0x72, 5], &[0x70, 0, 0x0b], &[0x72, 0x0b], &[], &[0x70], &[0x7f, 6, 6]] {
            assert_eq!(of(2, sense), Ok(None), "{sense:x?}");
        }
        for sense in [&[0x70, 0, 2][..], &[0xf0, 0, 0x26], &[0x72, 6], &[0x73, 2]] {
            assert_eq!(of(2, sense), Err(Unanswered), "{sense:x?}");
        }
        // Busy, a reservation, a full queue, and an aborted task.
        for status in [0x08, 0x18, 0x28, 0x40] {
            assert_eq!(of(status, &[]), Err(Unanswered), "{status:x}");
        }
    }
}
