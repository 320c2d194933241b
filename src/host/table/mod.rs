//! GPT: one table as a value that is valid by construction, and its two copies on a disk.
//!
//! Takes in a [`BlockDevice`](crate::host::BlockDevice), gives out a [`Table`]; the bytes are in `codec`, reading and
//! choosing between the copies in `copies`, every write in `write`. Nothing on a disk is believed before it is checked,
//! and a partition's number never changes. docs/adr/0002-gpt-library.md says why the codec is our own.

mod codec;
mod copies;
mod ends;
mod error;
mod lba;
mod name;
mod over;
mod partitions;
mod write;

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;

pub use codec::{BOOT_SIGNATURE, PROTECTIVE, SIGNATURE, backup_bytes, mbr_bytes, primary_bytes};
pub use copies::{Choice, Mbr, Part, TableCopies, TableRefusal, choose, read_copies};
pub use error::TableError;
pub use lba::Lba;
pub use name::Name;
pub use partitions::{Entry, Ours, SLOTS, Table};
pub use write::{TableWriteError, repair, unchanged, wipe_backup, wipe_primary, write_first, write_table};
