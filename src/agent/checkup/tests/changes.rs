//! What a checkup says is otherwise than before: whoever writes objects looks at that alone.

use super::*;
use crate::device::label::Layout;
use crate::health::HealthReason;

/// How many volumes the node of these tests has.
const MANY: usize = 12;

const EXT4: WantedUsage = WantedUsage::Mount(Some(FsKind::Ext4));

/// A node with many volumes on two disks, of which all is known. The first one has a filesystem.
fn crowded() -> (Node, Vec<VolumeView>) {
    let mut node = node_of(Rule { layout: Layout::Carved {}, ..sample::rule("set") });
    for name in ["fake0", "fake1"] {
        node.host.set_health(name, Health::Passed);
    }
    let usage = |number| if number == 0 { EXT4 } else { WantedUsage::Block };
    let make = |number| made_as(&node.checkup.pool, &format!("v{number}"), usage(number));
    let views: Vec<VolumeView> = (0..MANY).map(make).collect();
    let change = node.change();
    assert_eq!(change.volumes, views.iter().map(|view| view.id).collect(), "the first checkup shows all");
    assert!(change.is_of_pool());
    assert_eq!(node.change(), HealthChange::default());
    (node, views)
}

fn only(view: &VolumeView) -> HealthChange {
    HealthChange { volumes: [view.id].into(), ..HealthChange::default() }
}

#[test]
fn a_volume_that_is_made_mounted_unmounted_or_deleted_has_nobody_look_at_another_one() {
    let (mut node, _) = crowded();
    let view = made_as(&node.checkup.pool, "new", EXT4);
    assert_eq!(node.change(), only(&view));
    node.host.filesystems().make(FsKind::Ext4, &view.node, view.id.uuid()).expect("a filesystem");
    node.host.mounts().mount(&view.node, "/target".as_ref(), FsKind::Ext4, &[]).expect("mounted");
    node.board.mounted(view.id, "/target".as_ref(), node.board.unmounts());
    assert_eq!(node.change(), HealthChange::default());
    node.board.unmounted(view.id, "/target".as_ref());
    node.host.mounts().unmount("/target".as_ref()).expect("unmounted");
    assert_eq!(node.change(), HealthChange::default());
    node.checkup.pool.delete(view.id).expect("deleted");
    assert_eq!(node.change(), HealthChange::default());
    assert!(node.board.expected().is_empty(), "nobody expects it anywhere");
}

#[test]
fn what_is_wrong_with_one_volume_or_one_disk_is_looked_at_there_and_nowhere_else() {
    let (mut node, views) = crowded();
    let view = &views[0];
    node.host.mounts().mount(&view.node, "/target".as_ref(), FsKind::Ext4, &[]).expect("mounted");
    node.change();
    let read_only = FilesystemState { is_read_only: true, ..FilesystemState::default() };
    node.host.set_filesystem_state("/target".as_ref(), read_only);
    assert_eq!(node.change(), only(view));
    let name = node.disk_of(view);
    node.host.set_report(name, warning(DiskWarning::Temperature));
    node.agent.reports().all_changed();
    let change = node.change();
    let on_it = views.iter().filter(|other| other.disk == view.disk).map(|other| other.id).collect();
    assert_eq!((change.disks, change.volumes), ([view.disk.clone()].into(), on_it));
    assert_eq!(node.change(), HealthChange::default());
}

#[test]
fn a_volume_that_is_made_and_published_while_a_checkup_runs_is_expected_where_it_is() {
    let (mut node, views) = crowded();
    node.host.mounts().mount(&views[0].node, "/target".as_ref(), FsKind::Ext4, &[]).expect("mounted");
    let (host, board, pool) = (Arc::clone(&node.host), node.board.clone(), Arc::clone(&node.checkup.pool));
    host.mounts.gate.set_hangs_at(Some("filesystem_state"));
    let id = VolumeId::of_name("late");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host.mounts.gate.until_somebody_waits();
            let view = made_as(&pool, "late", WantedUsage::Block);
            host.mounts().bind(&view.node, "/late".as_ref(), TargetAccess::ReadWrite).expect("bound");
            board.mounted(id, "/late".as_ref(), board.unmounts());
            host.mounts.gate.set_hangs_at(None);
        });
        node.change();
    });
    assert_eq!(node.board.targets(id), [PathBuf::from("/late")].into());
    node.host.mounts().unmount("/late".as_ref()).expect("unmounted");
    node.change();
    let view = node.checkup.pool.volume(id).expect("it is here");
    assert_eq!(volume_reasons(&node, &view), [HealthReason::NotMountPoint.word()]);
}
