//! Which DevicePool is meant by the id of a disk. Pure.

use crate::api::crd::{DevicePool, DiskState, DiskStatus};
use crate::device::{DiskId, NodeName};

/// Why it is not known which DevicePool is meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHolder {
    #[error(
        "no DevicePool has a disk {disk}: `kubectl get devicepools -o yaml` lists the ids of all disks in status.disks"
    )]
    Unknown { disk: DiskId },
    #[error("disk {disk} is missing on nodes {}: write into spec.disks of one DevicePool", listed(nodes))]
    Missing { disk: DiskId, nodes: Vec<NodeName> },
    #[error("disk {disk} is in the pools of nodes {}: one of them is a copy", listed(nodes))]
    Several { disk: DiskId, nodes: Vec<NodeName> },
}

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
pub fn holder<'p>(disk: &DiskId, pools: &'p [DevicePool]) -> Result<&'p DevicePool, NoHolder> {
    let Holders { here, missing } = Holders::of(disk, pools);
    match (&here[..], &missing[..]) {
        ([pool], _) | ([], [pool]) => Ok(pool),
        ([], []) => Err(NoHolder::Unknown { disk: disk.clone() }),
        ([], several) => Err(NoHolder::Missing { disk: disk.clone(), nodes: nodes(several) }),
        (several, _) => Err(NoHolder::Several { disk: disk.clone(), nodes: nodes(several) }),
    }
}

pub fn disk_status<'p>(pool: &'p DevicePool, disk: &DiskId) -> Option<&'p DiskStatus> {
    pool.status.as_ref()?.disks.iter().find(|status| status.id == *disk)
}

pub fn nodes(pools: &[&DevicePool]) -> Vec<NodeName> {
    pools.iter().map(|pool| pool.node()).collect()
}

fn listed(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
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
        let both = of(&[ready, missing.clone(), sick]).expect_err("which of them?").to_string();
        assert!(both.contains("b and c: one of them is a copy"), "{both}");
        let two = of(&[missing, pool("d", "Missing")]).expect_err("which of them?").to_string();
        assert!(two.contains("missing on nodes a and d") && !two.contains("copy"), "{two}");
        assert!(of(&[]).is_err_and(|none| none.to_string().contains("no DevicePool has a disk gpt-1")));
    }
}
