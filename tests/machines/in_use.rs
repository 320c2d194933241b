//! Who uses a device: mounts of every namespace, btrfs, other provisioners.

use localpool::host::sysfs::scan;
use localpool::host::{ForeignLink, MountHow, Roots, UNSEEN_NAMESPACE};

use crate::{FS, HERE, machine, shown};

#[test]
fn use_is_seen_in_other_namespaces_under_other_names_and_as_a_bare_node() {
    let m = machine("in-use");
    assert_eq!(m.mounts("vda1"), [("/", HERE, FS), ("/host/log", 4026532500, FS)]);
    assert_eq!(m.mounts("vdb"), [("/data", 4026532500, FS)], "once for each namespace");
    let node = ("/var/lib/kubelet/plugins/kubernetes.io~csi/volumeDevices/a b/dev/x", HERE, MountHow::Node);
    assert_eq!(m.mounts("vdc"), [node]);
    assert_eq!(m.mounts("vdd1"), [("/var/lib/kubelet/volumeDevices/y", HERE, MountHow::Node)], "a removed node");
    assert_eq!(m.mounts("vdd"), [("/jail/old", 4026532600, FS)], "all that a jailed process shows of its namespace");
    assert_eq!(m.mounts("vde"), [("/srv/many", HERE, FS)], "by its source, over two links");
    assert!(m.mounts("vdf").is_empty());
    assert!(m.disk("vda2").swap && !m.disk("vda").swap, "a swap whose node was removed");
}

#[test]
fn every_member_of_a_mounted_btrfs_is_in_use() {
    let m = machine("btrfs");
    assert_eq!(m.mounts("dm-0"), [("/", HERE, FS), ("/home", HERE, FS)]);
    assert_eq!(m.mounts("vda1"), m.mounts("dm-0"), "not the source of the mount, and in it");
    let unseen = ("/sys/fs/btrfs/99999999-8888-7777-6666-555555555555", UNSEEN_NAMESPACE, FS);
    assert_eq!(m.mounts("vdc"), [unseen]);
    assert!(m.mounts("vdd").is_empty() && m.mounts("vda").is_empty());
}

#[test]
fn a_device_that_another_provisioners_link_leads_to_is_on_offer() {
    let m = machine("offered");
    let offered = |name: &str| match &m.disk(name).offered {
        ForeignLink::By(link) => link.strip_prefix(m.root()).unwrap().to_str().unwrap().to_owned(),
        ForeignLink::None => "-".to_owned(),
        ForeignLink::NotKnown(why) => panic!("{name}: {why}"),
    };
    assert_eq!(offered("vda"), "mnt/local-storage/fast/virtio-fast");
    assert_eq!(offered("vdb"), "mnt/disks/b");
    assert_eq!(offered("vdc"), "mnt/fast-disks/c", "through another link");
    assert_eq!((offered("vdd").as_str(), offered("vdd1").as_str()), ("-", "mnt/local-storage/slow/vdd1"));
    assert_eq!(offered("vde"), "-", "a folder of these may be a tenant's filesystem");
}

#[test]
fn where_offers_cannot_be_read_no_device_is_known_to_be_free() {
    let m = machine("offered");
    // A path longer than the limit: an error, also for root.
    let deep = "d".repeat(255);
    let roots = Roots { mnt: m.root().join("mnt").join(vec![deep.as_str(); 17].join("/")), ..Roots::under(m.root()) };
    let disks = scan(&roots).unwrap();
    assert!(disks.iter().all(|disk| matches!(&disk.offered, ForeignLink::NotKnown(why) if why.contains("too long"))));
    assert!(disks.iter().all(|disk| disk.unreadable.is_none()), "what is ours stays ours");
}

#[test]
fn what_is_mounted_or_swapped_on_says_what_it_holds() {
    let m = machine("sata-laptop");
    assert_eq!((shown(&m.disk("sda1").fs_type), shown(&m.disk("sda5").fs_type)), ("ext4", "swap"));
    assert_eq!(shown(&m.disk("sda").fs_type), "-");
}
