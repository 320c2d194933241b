//! What became of a LocalVolumeSet or a LocalVolume, in one word: the reason of its conditions.

use crate::device::word_enum;

word_enum! {
    /// One word; the controller writes it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum SetReason {
        Valid,
        Invalid,
        DevicesClaimed,
        NoDevices,
        NoNodeSelected,
        /// Of a LocalVolumeSet: its spec asks for a dry run.
        DryRun,
        /// Of a LocalVolume: its managementState says so.
        Unmanaged,
        NoDevicePaths,
        /// Every path of a LocalVolume leads to a device.
        Found,
        /// A path leads to none, or there is no StorageClass yet.
        Missing,
        /// The StorageClass has the provisioner of localpool.
        Ready,
        /// The StorageClass is another provisioner's.
        ForeignProvisioner,
        /// The API server refuses the StorageClass.
        Refused,
    }
}
