//! The devices that one scan saw.

use std::time::Duration;

use crate::device::disk_id::DiskId;
use crate::device::id;
use crate::device::judged::Device;
use crate::device::label::Hardware;
use crate::host::{DeviceKind, RawDisk};

/// All devices of a machine at one scan, in the order in which the host names them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Monotonic time when the scan began.
    pub at: Duration,
    pub devices: Vec<Device>,
}

/// The whole disk of a partition.
pub fn disk_of<'a>(devices: &'a [Device], raw: &RawDisk) -> Option<&'a RawDisk> {
    let DeviceKind::Partition(partition) = &raw.kind else { return None };
    devices.iter().map(|device| &device.raw).find(|disk| disk.name == partition.disk)
}

impl Snapshot {
    /// The id of a device as a bare one: by its hardware, whatever it carries.
    pub fn bare_id(&self, device: &Device) -> DiskId {
        id::hardware_id(&device.raw, disk_of(&self.devices, &device.raw)).into()
    }

    /// The whole disk that a device is, or is on ([`id::whole_disk`]).
    pub fn whole_disk(&self, device: &Device) -> Option<Hardware> {
        id::whole_disk(&device.raw, disk_of(&self.devices, &device.raw))
    }
}
