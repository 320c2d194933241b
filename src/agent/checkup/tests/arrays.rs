//! An array of disks of the pool: what is wrong with a member is wrong with all of it.

use super::*;
use crate::device::label::{ArrayLevel, Layout};

/// Two members, and the array of them.
fn array_node() -> Node {
    let rule =
        Rule { layout: Layout::Carved {}, array: Some(ArrayLevel::Raid0), min_devices: 2, ..sample::rule("set") };
    let host = Arc::new(FakeHost::default());
    let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
    let disks = ["fake0", "fake1"].map(|name| host.add_disk(name, name, geometry)).into();
    begun_on(host, disks, rule, 3)
}

#[test]
fn what_is_wrong_with_a_member_is_wrong_with_its_array_and_the_volumes_on_it_and_closes_it_until_it_is_well() {
    let mut node = array_node();
    let view = mounted(&node);
    node.checkup();
    let array = |node: &Node| {
        let path = std::path::Path::new("/dev/md127");
        node.checkup.pool.disk_views().into_iter().find(|view| view.path == path).expect("in the pool")
    };
    assert_eq!((node.reasons("md127"), array(&node).cordon), (Vec::new(), None));

    node.host.set_report("fake1", warning(DiskWarning::Unreliable));
    node.agent.reports().all_changed();
    let change = node.change();
    assert!(change.disks.contains(&array(&node).id) && change.volumes.contains(&view.id), "{change:?}");
    assert_eq!(node.reasons("fake1"), ["DiskFailing"]);
    assert_eq!(node.reasons("fake0"), [] as [String; 0], "the other member is well");
    assert_eq!(node.reasons("md127"), ["DiskFailing"]);
    assert_eq!(volume_reasons(&node, &view), ["DiskFailing"]);
    let said = node.board.of_disk(&array(&node)).message();
    assert!(said.contains("member gpt-") && said.contains("(/dev/fake1)"), "{said}");
    let cordon = array(&node).cordon.map(|cordon| cordon.to_string()).unwrap_or_default();
    assert!(cordon.contains("DiskFailing: member gpt-"), "{cordon}");
    assert_eq!(node.checkup.pool.capacity(&Selector::default(), WantedUsage::Block).available, 0);

    node.host.set_health("fake1", Health::Passed);
    node.host.advance(Duration::from_secs(3600));
    assert!(node.checkup());
    assert_eq!((node.reasons("md127"), array(&node).cordon), (Vec::new(), None));
    assert_eq!(volume_reasons(&node, &view), [] as [String; 0]);
}
