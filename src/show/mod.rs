//! What people read: tables, wide and JSON, of devices and of volumes.
//!
//! Takes in devices and views of volumes, gives out text. Pure.

pub mod devices;
pub mod health;
mod list;
mod listed;
mod row;
#[cfg(test)]
pub mod sample;
mod shell;
mod table;
pub mod volumes;

pub use list::{InList, ListColumn, list};
pub use row::{DeviceList, DeviceRow};

pub use listed::{ListedDevice, verdict_and_reason};
pub use shell::shell_word;
pub use table::{Heads, Paint, TableCell, TableStyle, Tone, one_line};
