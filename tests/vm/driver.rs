//! The driver in the guest: `localpool standalone` with sets for the disks of all cases, and this program's connection
//! to it.

use std::collections::HashMap;
use std::time::Duration;

use localpool_testing::found;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::bench::Bench;
use crate::csi::Csi;

/// How long a disk must stay blank and unchanged here.
pub const MIN_AGE: Duration = Duration::from_secs(5);
/// The limit for whatever happens by itself, in a guest that is emulated.
pub const SOON: Duration = Duration::from_secs(300);

/// From an event that makes a checkup due until all faces show its news, by the guest's clock: half of the time between
/// two checkups without an event, so that it was the event. Without emulation and other work beside
/// it, a second or two.
pub const AT_ONCE: Duration = Duration::from_secs(30);
/// Where its metrics are, in the guest.
pub const HTTP: &str = "127.0.0.1:9808";

/// The folder below which a set has its filesystem mounted for the node: without it no disk is taken for that set.
const NODE_MOUNTS: &str = "/mnt/raid-disks";

/// Sets that divide the disks of the cases by what they are, and one for each disk that belongs to one check.
const SETS: &str = "
nvme|models: [NVMe]\\n    maxSize: 900Mi|layout: Whole
flash|vendors: [QEMU, ATA]\\n    deviceMechanicalProperties: [NonRotational]\\n    maxSize: 900Mi|partitioningSpec: {count: 2}
turning|deviceMechanicalProperties: [Rotational]\\n    maxSize: 900Mi|partitioningSpec: {mode: Dynamic}
shared|deviceTypes: [mpath]|layout: RawDevice
hot-nvme|paths: ['/dev/disk/by-id/*hot-nvme*']|partitioningSpec: {mode: Dynamic}
hot-scsi|paths: ['/dev/disk/by-id/*hot-scsi*']|partitioningSpec: {mode: Dynamic}
hot-virtio|paths: ['/dev/disk/by-id/*hot-virtio*']|partitioningSpec: {mode: Dynamic}
hot-usb|paths: ['/dev/disk/by-id/*hot-usb*']|partitioningSpec: {mode: Dynamic}
storm|paths: ['/dev/disk/by-id/*storm*']|partitioningSpec: {mode: Dynamic}
folders|paths: ['/dev/disk/by-id/*folders*']|layout: Directory
array-two|paths: ['/dev/disk/by-id/*array-two-?']|array: {level: raid0}\\n  minDeviceCount: 2\\n  partitioningSpec: {mode: Dynamic}
array-one|paths: ['/dev/disk/by-id/*array-one']|array: {level: raid0}\\n  layout: Directory\\n  hostMountPath: /mnt/raid-disks
bare-tenant|paths: ['/dev/disk/by-id/*bare-tenant']|layout: RawDevice
bad-sectors|paths: ['/dev/disk/by-id/*bad-sectors']|partitioningSpec: {mode: Dynamic}
host-rules|paths: ['/dev/disk/by-id/*host-rules-?']|layout: RawDevice
stuck-labelled|paths: ['/dev/disk/by-id/*stuck-labelled']|partitioningSpec: {mode: Dynamic}
stuck-bare|paths: ['/dev/disk/by-id/*stuck-bare', '/dev/disk/by-id/*stuck-free']|layout: RawDevice
failing-nvme|paths: ['/dev/disk/by-id/*failing-nvme*']|partitioningSpec: {mode: Dynamic}
failing-scsi|paths: ['/dev/disk/by-id/*failing-scsi']|partitioningSpec: {mode: Dynamic}
failing-pulled|paths: ['/dev/disk/by-id/*failing-pulled']|partitioningSpec: {mode: Dynamic}
failing-stuck|paths: ['/dev/disk/by-id/*failing-stuck']|partitioningSpec: {mode: Dynamic}
second-tenant|paths: ['/dev/disk/by-id/*bare-tenant-part*']\\n    deviceTypes: [disk, part]|layout: RawDevice
";

/// A LocalVolume names what no set can select: mapped devices, each with a class of its own.
const NAMED: [(&str, &str); 5] = [
    ("third-tenant", "tenantvg-data"),
    ("failing-ext4", "failing-ext4"),
    ("failing-xfs", "failing-xfs"),
    ("failing-btrfs", "failing-btrfs"),
    ("failing-array", "failing_array-data"),
];

impl Bench {
    /// Starts the driver if it does not run.
    pub fn driver(&mut self) {
        let unit = self.unit;
        let documents = SETS.trim().lines().map(document).collect::<String>() + &named();
        self.guest.run(&format!(
            "systemctl is-active --quiet {unit} && exit
             mkdir -p /etc/localpool /var/lib/pods {NODE_MOUNTS}; printf '%b' \"{documents}\" >/etc/localpool/sets.yaml
             systemd-run --quiet --collect --unit={unit} --property=StandardError=append:/var/log/localpool \\
                 /opt/localpool standalone --node-name guest --device-min-age {}s --http {HTTP}",
            MIN_AGE.as_secs()
        ));
        self.eventually("the driver answers", |bench| {
            // The socket of a driver that was stopped is still there.
            let said = bench.guest.try_run("socat -u /dev/null UNIX-CONNECT:/run/localpool/csi.sock", SOON);
            said.map(drop).map_err(|error| error.to_string())
        });
    }

    /// Stops the driver and starts it again; everything mounted and published stays.
    pub fn driver_again(&mut self) {
        self.stop_driver();
        self.driver();
    }

    pub fn stop_driver(&mut self) {
        self.connection = None;
        self.guest.run("systemctl stop csi-port 2>/dev/null || true; systemctl stop localpool");
    }

    /// Calls the driver's CSI services, over one connection for as long as the guest is up.
    pub fn csi<T>(&mut self, ask: impl AsyncFnOnce(&mut Csi) -> T) -> T {
        let (runtime, mut csi) = self.connection.take().unwrap_or_else(|| self.connect());
        let answer = runtime.block_on(ask(&mut csi));
        self.connection = Some((runtime, csi));
        answer
    }

    fn connect(&mut self) -> (Runtime, Csi) {
        self.driver();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let csi = runtime.block_on(Csi::over(&self.folder.join("csi")));
        // The guest's end is opened after ours: a virtio port without a peer reads as if the peer had closed it.
        self.guest.run(
            "systemctl stop csi-port 2>/dev/null || true
             systemd-run --quiet --collect --unit=csi-port \
                 socat -b 65536 GOPEN:/dev/virtio-ports/csi UNIX-CONNECT:/run/localpool/csi.sock",
        );
        (runtime, csi)
    }

    /// Waits until `poll` finds nothing wrong.
    #[track_caller]
    pub fn eventually<T>(&mut self, what: &str, poll: impl Fn(&mut Self) -> Result<T, String>) -> T {
        match found(SOON, Duration::from_millis(500), || poll(self)) {
            Ok(found) => found,
            Err(why) => {
                let log = self.guest.run("grep -v 'has the same identity' /var/log/localpool | tail -n 40 || true");
                panic!("{what}: not within {SOON:?}: {why}\n--- the driver's log\n{log}");
            }
        }
    }

    /// What `localpool devices` says about each node.
    pub fn by_path(&mut self) -> HashMap<String, Value> {
        let path = |device: &Value| device["path"].as_str().unwrap().to_owned();
        self.devices().into_iter().map(|device| (path(&device), device)).collect()
    }
}

fn document(line: &str) -> String {
    let [name, filter, how] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
    format!(
        "---\\napiVersion: local.storage.openshift.io/v1alpha1\\nkind: LocalVolumeSet\\nmetadata:\\n  name: {name}\\n  \
         namespace: vm\\nspec:\\n  storageClassName: {name}\\n  deviceInclusionSpec:\\n    minSize: 64Mi\\n    {filter}\\n  {how}\\n"
    )
}

fn named() -> String {
    let class = |(class, device): &(&str, &str)| {
        format!(
            "  - storageClassName: {class}\\n    forceWipeDevicesAndDestroyAllData: true\\n    \
             devicePaths: [/dev/mapper/{device}]\\n"
        )
    };
    "---\\napiVersion: local.storage.openshift.io/v1\\nkind: LocalVolume\\nmetadata:\\n  name: named\\n  \
     namespace: vm\\nspec:\\n  storageClassDevices:\\n"
        .to_owned()
        + &NAMED.iter().map(class).collect::<String>()
}
