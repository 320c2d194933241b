//! The pool of a node and its agent, driven by hand on a fake machine: stopped at every effect (`crash`), with disks
//! that fail, leave and are copied (`faults`), that are members of an array (`arrays`, `array_faults`) or were of one
//! that is lost (`lost_arrays`), with volumes that are folders (`directories`) of filesystems that others have, too
//! (`host_mount`), or that an administrator mounted and named (`mounted`), are deleted in the background (`deletions`) and are kept within their sizes (`directory_quota`)
//! whatever goes wrong with one of them (`quota_faults`), with sectors and partitions that are damaged or in use
//! (`damage`), with a journal that is damaged, lost or too old (`journal`), with disks and filesystems that hang
//! (`hangs`), and with disks that earlier versions wrote (`bytes`).

mod array_faults;
mod arrays;
mod bytes;
mod crash;
mod damage;
mod deletions;
mod directories;
mod directory_quota;
mod faults;
mod hangs;
mod host_mount;
mod journal;
mod lost_arrays;
mod lost_records;
mod mounted;
mod node;
mod quota_faults;
