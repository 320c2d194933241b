//! The pool of a node and its agent, driven by hand on a fake machine: stopped at every effect (`crash`), with disks
//! that fail, leave and are copied (`faults`), with volumes that are folders (`directories`), with sectors and
//! partitions that are damaged or in use (`damage`), with a journal that is damaged, lost or too old (`journal`), with
//! disks and filesystems that hang (`hangs`), and with disks that earlier versions wrote (`bytes`).

mod bytes;
mod crash;
mod damage;
mod directories;
mod faults;
mod hangs;
mod journal;
mod node;
