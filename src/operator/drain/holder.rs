//! Which DevicePool is meant by the id of a disk. Pure.

use kube::ResourceExt as _;

use crate::api::crd::{DevicePool, DiskState, DiskStatus};
use crate::device::DiskId;

/// The pools that have a disk. One that moved is missing where it was.
pub struct Holders<'p> {
    pub here: Vec<&'p DevicePool>,
    pub missing: Vec<&'p DevicePool>,
}

impl<'p> Holders<'p> {
    pub fn of(disk: &DiskId, pools: &'p [DevicePool]) -> Self {
        let known = pools.iter().filter_map(|pool| Some((pool, disk_status(pool, disk)?.state)));
        let (missing, here): (Vec<_>, Vec<_>) = known.partition(|(_, state)| *state == DiskState::Missing);
        let pools = |known: Vec<(&'p DevicePool, DiskState)>| known.into_iter().map(|(pool, _)| pool).collect();
        Self { here: pools(here), missing: pools(missing) }
    }
}

/// The one pool that has the disk, or is the only one that misses it.
pub fn holder<'p>(disk: &DiskId, pools: &'p [DevicePool]) -> Result<&'p DevicePool, String> {
    let Holders { here, missing } = Holders::of(disk, pools);
    match (&here[..], &missing[..]) {
        ([pool], _) | ([], [pool]) => Ok(pool),
        ([], []) => Err(no_disk(disk)),
        ([], several) => {
            Err(format!("disk {disk} is missing on nodes {}: write into spec.disks of one DevicePool", nodes(several)))
        }
        (several, _) => Err(of_several(disk, several)),
    }
}

pub fn disk_status<'p>(pool: &'p DevicePool, disk: &DiskId) -> Option<&'p DiskStatus> {
    pool.status.as_ref()?.disks.iter().find(|status| status.id == *disk)
}

pub fn of_several(disk: &DiskId, pools: &[&DevicePool]) -> String {
    format!("disk {disk} is in the pools of nodes {}: one of them is a copy", nodes(pools))
}

pub fn no_disk(disk: &DiskId) -> String {
    format!(
        "no DevicePool has a disk {disk}: `kubectl get devicepools -o yaml` lists the ids of all disks in status.disks"
    )
}

fn nodes(pools: &[&DevicePool]) -> String {
    pools.iter().map(|pool| pool.name_any()).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(node: &str, state: &str) -> DevicePool {
        let disk = json!({
            "id": "gpt-1", "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 9, "free": 9, "volumes": 0,
            "state": state,
        });
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node}, "spec": {},
            "status": {"disks": [disk]},
        });
        serde_json::from_value(pool).expect("a DevicePool")
    }

    #[test]
    fn a_disk_that_moved_is_of_the_node_that_has_it_and_only_two_that_are_here_are_a_copy() {
        let disk = DiskId::named("gpt-1");
        let of = |pools: &[DevicePool]| holder(&disk, pools).map(|pool| pool.name_any());
        let (missing, ready, sick) = (pool("a", "Missing"), pool("b", "Ready"), pool("c", "NotReady"));
        assert_eq!(of(&[missing.clone(), ready.clone()]), Ok("b".to_owned()));
        assert_eq!(of(&[sick.clone(), missing.clone()]), Ok("c".to_owned()));
        assert_eq!(of(std::slice::from_ref(&missing)), Ok("a".to_owned()));
        assert!(of(&[ready, missing.clone(), sick]).is_err_and(|said| said.contains("b and c: one of them is a copy")));
        let two = of(&[missing, pool("d", "Missing")]).expect_err("which of them?");
        assert!(two.contains("missing on nodes a and d") && !two.contains("copy"), "{two}");
        assert!(of(&[]).is_err_and(|said| said.contains("no DevicePool has a disk gpt-1")));
    }
}
