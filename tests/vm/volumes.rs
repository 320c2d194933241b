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

/// A volume to make: its name, class, MiB and use.
pub type WantedVolume<'a> = (&'a str, &'a str, u64, Use);

impl Bench {
    /// Makes a volume of this class, uses it, and writes to it; it stays in use.
    pub fn volume(&mut self, name: &str, class: &str, mib: u64, usage: Use) -> Volume {
        self.volumes(&[(name, class, mib, usage)]).remove(0)
    }

    /// The same for several, beside each other.
    pub fn volumes(&mut self, wanted: &[WantedVolume<'_>]) -> Vec<Volume> {
        let ids = self.csi(async |csi| {
            let make = |(name, class, mib, usage): WantedVolume<'_>| {
                let (mut csi, name, class) = (csi.clone(), name.to_owned(), class.to_owned());
                async move {
                    let id = csi.create(&name, &class, mib, usage).await.unwrap();
                    csi.stage(&id, usage).await.unwrap();
                    csi.publish(&id, usage).await.unwrap();
                    id
                }
            };
            futures::future::join_all(wanted.iter().copied().map(make)).await
        });
        let paths: Vec<String> = wanted.iter().zip(&ids).map(|((.., usage), id)| data(id, *usage)).collect();
        let paths = paths.join(" ");
        let sums = self.guest.run(&format!(
            "for file in {paths}; do dd if=/dev/urandom of=$file bs=1M count={DATA} conv=fsync,notrunc status=none; done
             sync; for file in {paths}; do head --bytes={DATA}M $file | sha256sum; done"
        ));
        let volume = |(((name, .., usage), id), sum): ((&WantedVolume<'_>, String), &str)| Volume {
            name: (*name).to_owned(),
            id,
            usage: *usage,
            sum: sum.to_owned() + "\n",
        };
        wanted.iter().zip(ids).zip(sums.lines()).map(volume).collect()
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
