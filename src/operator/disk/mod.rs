//! The disks in a DevicePool: what a person chose (`cordon`) and ordered (`orders`) in the spec, what is to be
//! measured of them (`benchmarks`), what the status says of each (`status`), which are members of arrays (`member`), the filesystems that a person named
//! (`filesystems`), which Events are about it (`events`), and which devices come first (`relevance`).

pub(in crate::operator) mod benchmarks;
pub(in crate::operator) mod cordon;
pub(in crate::operator) mod events;
pub(in crate::operator) mod filesystems;
pub(in crate::operator) mod member;
pub(in crate::operator) mod orders;
pub(in crate::operator) mod relevance;
#[cfg(test)]
pub(in crate::operator) mod sample;
pub(in crate::operator) mod status;
