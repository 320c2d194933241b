//! Members of arrays among the disks of a DevicePool's status: a member has no volumes itself. Pure.

use crate::api::crd::{DevicePoolStatus, DiskStatus};

/// The layout of a disk that is a member of an array.
pub const MEMBER: &str = "Member";

pub fn is_member(disk: &DiskStatus) -> bool {
    disk.layout == MEMBER
}

/// The arrays that may be the one of a member, and none of another disk: the set of a member has no other disks.
pub fn arrays_of<'s>(member: &'s DiskStatus, status: &'s DevicePoolStatus) -> impl Iterator<Item = &'s DiskStatus> {
    let is_array = |disk: &&DiskStatus| is_member(member) && !is_member(disk) && disk.set == member.set;
    status.disks.iter().filter(is_array)
}
