//! What people read: tables, wide and JSON, of devices and of volumes.
//!
//! Takes in devices and views of volumes, gives out text. Pure.

pub mod devices;
pub mod row;
mod shown;
pub mod volumes;

pub use shown::{Shown, verdict_and_reason};
