//! A disk as a person names it, and which disk of a pool that is. Pure.

use crate::api::crd::{DevicePool, DiskState, DiskStatus};
use crate::device::{DiskId, NodeName};
use crate::operator::api_server::error::OperatorError;
use crate::show::shell_word;

/// The disk that a person asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskAsked {
    pub node: NodeName,
    /// Its id, its path, a link to it, or the end of one of these: `sdb`.
    pub disk: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not NODE/DISK, as worker-1/sdb or worker-1/ID")]
pub struct NoDiskName(String);

impl std::str::FromStr for DiskAsked {
    type Err = NoDiskName;

    fn from_str(text: &str) -> Result<Self, NoDiskName> {
        match text.split_once('/') {
            Some((node, disk)) if !node.is_empty() && !disk.trim_matches('/').is_empty() => {
                Ok(Self { node: node.into(), disk: disk.trim_start_matches('/').to_owned() })
            }
            _ => Err(NoDiskName(text.to_owned())),
        }
    }
}

impl DiskAsked {
    pub fn is(&self, name: &str) -> bool {
        is_called(name, &self.disk)
    }

    /// The one disk of the pool that is meant; none: the pool has none of that name.
    pub fn one_of<'p>(&self, pool: &'p DevicePool) -> Result<Option<&'p DiskStatus>, OperatorError> {
        match &called(pool, &self.disk)[..] {
            [] => Ok(None),
            [disk] => Ok(Some(disk)),
            several => {
                let node = &self.node;
                let names: Vec<String> = several.iter().map(|disk| format!("{node}/{}", disk.id)).collect();
                Err(ambiguous(&self.disk, &names))
            }
        }
    }

    /// The id of the disk, for an order. One that is missing there and was put into another node is not meant.
    pub fn id(&self, pools: &[DevicePool]) -> Result<DiskId, OperatorError> {
        let Self { node, disk: name } = self;
        let refused = |message| Err(OperatorError::Refused(message));
        let Some(pool) = pools.iter().find(|pool| pool.node() == *node) else {
            return refused(format!("node {node} has no DevicePool: `kubectl localpool status` shows the nodes"));
        };
        let Some(disk) = self.one_of(pool)? else {
            return refused(format!(
                "node {node} has no disk {name} in its pool: `kubectl localpool disks --node {node}` lists those that it has"
            ));
        };
        let has_it = |pool: &&DevicePool| {
            let mut disks = pool.status.iter().flat_map(|status| &status.disks);
            disks.any(|one| one.id == disk.id && one.state != DiskState::Missing)
        };
        match pools.iter().find(has_it) {
            Some(other) if disk.state == DiskState::Missing => {
                let (id, now) = (&disk.id, other.node());
                refused(format!("disk {id} is missing on node {node}, and is in node {now}: name it {now}/{id}"))
            }
            _ => Ok(disk.id.clone()),
        }
    }
}

/// Whether something is known by this name: its end is enough, from a `/` on.
fn is_called(known: &str, name: &str) -> bool {
    known == name || known.strip_suffix(name).is_some_and(|before| before.ends_with('/'))
}

/// The disks of the pool that have this id, or else this path. A missing disk keeps its last path, and another disk may have
/// that now: it is only meant if no other is.
pub fn called<'p>(pool: &'p DevicePool, name: &str) -> Vec<&'p DiskStatus> {
    let disks = || pool.status.iter().flat_map(|status| &status.disks);
    let by_id: Vec<&DiskStatus> = disks().filter(|disk| is_called(disk.id.as_str(), name)).collect();
    if !by_id.is_empty() {
        return by_id;
    }
    let by_path = disks().filter(|disk| is_called(&disk.path, name));
    let (missing, here): (Vec<_>, Vec<_>) = by_path.partition(|disk| disk.state == DiskState::Missing);
    if here.is_empty() { missing } else { here }
}

/// The command that says all of a disk, between backticks.
pub fn why_line(node: &NodeName, disk: &DiskId) -> String {
    let disk = shell_word(disk.as_str());
    format!("`kubectl localpool why disk {node}/{disk}`")
}

pub fn ambiguous(name: &str, disks: &[String]) -> OperatorError {
    OperatorError::Refused(format!("{name} can mean {}: name one of them", disks.join(" and ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::volume::sample::pool;

    fn with(node: &str, disks: &[(&str, &str, &str)]) -> DevicePool {
        let mut pool = pool(node, [9, 9, 1]);
        let read = |(id, path, state): &(&str, &str, &str)| -> DiskStatus {
            let disk: Value = json!({"id": id, "path": path, "layout": "Carved", "set": "d/s", "size": 9, "free": 1,
                                     "volumes": 0, "state": state});
            serde_json::from_value(disk).expect("a disk")
        };
        pool.status.as_mut().expect("set").disks = disks.iter().map(read).collect();
        pool
    }

    #[test]
    fn a_missing_disk_gives_its_path_to_its_replacement_and_two_of_one_path_are_refused_with_their_ids() {
        let asked: DiskAsked = "n/sdb".parse().expect("a disk");
        let one = with("n", &[("old", "/dev/sdb", "Missing"), ("new", "/dev/sdb", "Ready")]);
        assert_eq!(asked.one_of(&one).expect("one").expect("there").id.as_str(), "new");
        let old: DiskAsked = "n/old".parse().expect("a disk");
        assert_eq!(old.one_of(&one).expect("one").expect("there").id.as_str(), "old", "an id is no path");
        let two = with("n", &[("a", "/dev/sdb", "Missing"), ("b", "/dev/sdb", "Missing")]);
        let said = asked.one_of(&two).expect_err("two").to_string();
        assert!(said.contains("n/a and n/b"), "{said}");
    }

    #[test]
    fn an_order_takes_what_a_list_prints_and_not_a_disk_that_moved_to_another_node() {
        let pools = [with("n", &[("a", "/dev/sdb", "Missing")]), with("m", &[("a", "/dev/sdc", "Ready")])];
        let id = |text: &str| {
            let asked = text.parse::<DiskAsked>().expect("a disk");
            asked.id(&pools).map(|id| id.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(id("m/a"), Ok("a".to_owned()));
        assert_eq!(id("m/sdc"), Ok("a".to_owned()));
        assert!(id("n/a").is_err_and(|said| said.contains("name it m/a")));
        assert!(id("m/b").is_err_and(|said| said.contains("kubectl localpool disks --node m")));
        assert!(id("o/a").is_err_and(|said| said.contains("has no DevicePool")));
    }
}
