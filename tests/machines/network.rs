//! Disks of other machines, and how they differ from those in this one.

use localpool::device::{Attachments, Reach};
use localpool::host::DeviceKind;

use crate::{machine, shown};

#[test]
fn disks_of_other_machines_are_network_disks() {
    let m = machine("cloud");
    for name in ["nbd0", "nbd1", "rbd0", "drbd1000"] {
        assert_eq!(m.disk(name).kind, DeviceKind::Network, "{name}");
    }
    assert_eq!((m.disk("nbd1").size, m.disk("drbd1000").read_only), (0, true));
    assert_eq!((&m.disk("xvda").kind, &m.disk("xvda").transport), (&DeviceKind::Disk, &None));
    let DeviceKind::Partition(part) = &m.disk("rbd0p1").kind else { panic!("no partition") };
    assert_eq!((part.disk.as_str(), part.start), ("rbd0", 4 << 20));
}

#[test]
fn iscsi_disks_are_told_by_their_session() {
    let m = machine("iscsi");
    let lun = m.disk("sdb");
    assert_eq!((shown(&lun.transport), shown(&lun.state)), ("iscsi", "running"));
    assert_eq!(shown(&lun.serial), "a1b2c3d4-e5f6-0718-293a-4b5c6d7e8f90");
    assert_eq!(shown(&lun.wwid), "naa.6001405a1b2c3d4e5f60718293a4b5c6");
    assert_eq!(m.links("sdb"), ["disk/by-path/ip-10.0.0.5:3260-iscsi-iqn.2003-01.org.linux-iscsi:data-lun-1"]);
    assert_eq!((shown(&m.disk("sdc").state), m.disk("sdc").read_only), ("transport-offline", true));
}

#[test]
fn disks_over_a_network_are_told_from_those_in_the_machine_and_from_what_only_a_hypervisor_knows() {
    use Reach::{Local, Network, Unknown};
    type Disks = [(&'static str, Reach, &'static str)];
    let expected: [(&str, &Disks); 10] = [
        (
            "aws",
            &[
                ("nvme0n1p1", Network, "Amazon EBS"),
                ("nvme1n1", Network, "Amazon EBS"),
                ("nvme2n1", Local, "Amazon EC2 instance store"),
            ],
        ),
        (
            "gcp",
            &[
                ("sda", Network, "Google Persistent Disk"),
                ("sda1", Network, "Google Persistent Disk"),
                ("sdb", Local, "Google Local SSD"),
                ("nvme0n1", Local, "Google Local SSD"),
                ("nvme1n1", Network, "Google Persistent Disk"),
                ("nvme2n1", Local, "Google Local SSD"),
            ],
        ),
        (
            "azure",
            &[
                ("sda", Unknown, "Azure system disk"),
                ("sdb", Local, "Azure temporary disk"),
                ("sdc", Network, "Azure managed disk"),
                ("sdd", Local, "Azure temporary disk"),
                ("sde", Unknown, "Hyper-V"),
                ("nvme0n2", Network, "Azure managed disk"),
                ("nvme1n1", Local, "Azure local NVMe"),
            ],
        ),
        (
            "fabrics",
            &[
                ("nvme1n1", Network, "NVMe over TCP"),
                ("nvme2n1", Network, "NVMe over RDMA"),
                ("nvme3n1", Network, "NVMe over Fibre Channel"),
                ("sdb1", Network, "Fibre Channel"),
                ("dm-0", Network, "Fibre Channel"),
                ("sda", Local, "-"),
            ],
        ),
        ("iscsi", &[("sdb", Network, "iSCSI"), ("sdc", Network, "iSCSI")]),
        (
            "cloud",
            &[
                ("xvda1", Unknown, "Xen"),
                ("nbd0", Network, "nbd"),
                ("rbd0p1", Network, "Ceph RBD"),
                ("drbd1000", Network, "DRBD"),
            ],
        ),
        ("virtio-vm", &[("vda", Unknown, "virtio")]),
        ("sas-server", &[("sda", Local, "-"), ("sdd", Local, "-")]),
        ("sata-laptop", &[("sda1", Local, "-"), ("sr0", Local, "-")]),
        ("nvme-server", &[("nvme0n1", Local, "-"), ("nvme1n1", Network, "NVMe over TCP")]),
    ];
    for (name, disks) in expected {
        let m = machine(name);
        let attachments = Attachments::new(&m.disks);
        for (disk, reach, by) in disks {
            let found = attachments.of(m.disk(disk));
            assert_eq!((found.reach, found.by.unwrap_or("-")), (*reach, *by), "{name}: {disk}");
        }
    }
}
