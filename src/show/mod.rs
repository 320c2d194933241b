//! What people read: tables, wide and JSON, of devices and of volumes.
//!
//! Takes in devices and views of volumes, gives out text. Pure.

pub mod devices;
pub mod health;
mod listed;
mod row;
#[cfg(test)]
pub mod sample;
pub mod volumes;

pub use row::{DeviceList, DeviceRow};

pub use listed::{ListedDevice, verdict_and_reason};
