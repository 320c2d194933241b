//! PersistentVolumes that are marked, with a real mount on a real node.

use serde_json::Value;

use crate::by_hand::{Mounted, marks, watched};
use crate::check::{Needs, check};
use crate::runbook::command;

#[test]
fn a_local_volume_made_by_hand_is_marked_when_it_is_unmounted_and_not_any_more_when_it_is_mounted() {
    check(Needs::Machine, async |space| {
        let mounted = Mounted::new(space).await;
        let (volume, node) = watched(space, &mounted).await;
        mounted.unmount().await;
        let is_marked = |volume: &Value| marks(volume) == ["NotMountPoint"];
        let marked = space.until("PersistentVolume", None, &volume, "is marked", is_marked).await;
        assert!(marked["metadata"]["annotations"]["FirstMarkTime"].is_string(), "{marked}");
        assert_eq!(marked["spec"]["local"]["path"], mounted.path());
        command("LocalpoolLocalVolumeNotMounted", "kubectl").shows(&node, &[&volume, mounted.path()]).await;
        let marked = command("LocalpoolPersistentVolumeMarked", "get pv");
        marked.shows(&node, &[&volume, &node, mounted.path(), "NotMountPoint"]).await;
        command("LocalpoolPersistentVolumeMarked", "get devicepools").shows(&node, &[&volume, "NotMountPoint"]).await;
        let metric = "localpool_controller_marked_persistent_volumes";
        space.until_served("controller", metric, &["\"NotMountPoint\""]).await;
        mounted.mount().await;
        let is_well =
            |volume: &Value| marks(volume).is_empty() && volume["metadata"]["annotations"]["FirstMarkTime"].is_null();
        space.until("PersistentVolume", None, &volume, "is not marked any more", is_well).await;
        space.delete("PersistentVolume", None, &volume).await;
    });
}
