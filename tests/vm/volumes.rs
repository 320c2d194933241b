//! Volumes with data: made and filled by CSI calls, and checked again after whatever happened to their disk.

use crate::bench::Bench;
use crate::csi::{Use, target};

/// A volume, and what was written to it.
#[derive(Clone, Debug)]
pub struct Volume {
    pub name: String,
    pub id: String,
    pub usage: Use,
    sum: String,
}

/// Random bytes that are written to each volume, in MiB.
const DATA: u32 = 4;

impl Bench {
    /// Makes a volume of this class, uses it, and writes to it; it stays in use.
    pub fn volume(&mut self, name: &str, class: &str, mib: u64, usage: Use) -> Volume {
        let id = self.csi(async |csi| {
            let id = csi.create(name, class, mib, usage).await.unwrap();
            csi.stage(&id, usage).await.unwrap();
            csi.publish(&id, usage).await.unwrap();
            id
        });
        let data = data(&id, usage);
        let sum = self.guest.run(&format!(
            "dd if=/dev/urandom of={data} bs=1M count={DATA} conv=fsync,notrunc status=none; sync
             head --bytes={DATA}M {data} | sha256sum"
        ));
        Volume { name: name.to_owned(), id, usage, sum }
    }

    /// Its user has gone.
    pub fn put_away(&mut self, volume: &Volume) {
        let id = volume.id.as_str();
        self.csi(async |csi| {
            csi.unpublish(id).await.unwrap();
            csi.unstage(id).await.unwrap();
        });
    }

    pub fn use_again(&mut self, volume: &Volume) {
        let (id, usage) = (volume.id.as_str(), volume.usage);
        self.csi(async |csi| {
            csi.stage(id, usage).await.unwrap();
            csi.publish(id, usage).await.unwrap();
        });
    }

    /// Reads from the medium, not from the guest's memory.
    pub fn has_its_data(&mut self, volume: &Volume) {
        let data = data(&volume.id, volume.usage);
        let said =
            self.guest.run(&format!("sync; echo 3 >/proc/sys/vm/drop_caches; head --bytes={DATA}M {data} | sha256sum"));
        assert_eq!(said, volume.sum, "the data of {} is not what was written", volume.name);
    }
}

fn data(id: &str, usage: Use) -> String {
    match usage {
        Use::Block => target(id),
        Use::Ext4 | Use::Xfs | Use::Btrfs => target(id) + "/data",
    }
}
