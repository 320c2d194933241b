//! What an event says about a device.

use super::kernel_name::KernelName;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A disk or partition, by its kernel name, came, went or changed.
    Changed { name: KernelName },
    /// udev has recorded what it knows of the device; the device itself may not have changed.
    Described { name: KernelName },
    /// An NVMe controller, by its kernel name, has something to report of itself; its namespaces are as they were.
    Reported { controller: KernelName },
    /// Something was lost: anything may have changed.
    Overflow,
}
