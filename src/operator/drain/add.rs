//! `localpool disk add`: names a filesystem that somebody mounted on a node, in the node's DevicePool. Whether it can be
//! used is decided by the node's agent, and is said in the object.

use std::path::Path;

use kube::{Api, Client};
use serde_json::{Value, json};
use uuid::Uuid;

use super::holder::disk_status;
use super::objects::write_choice;
use crate::agent::Run;
use crate::api::crd::{DevicePool, FolderQuota};
use crate::device::{DiskId, NodeName};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::{HOW, OperatorError};

/// How the name begins that a filesystem gets if a person gives it none.
const NAME: &str = "disk-";
/// This many digits follow.
const DIGITS: usize = 8;

/// A filesystem to be named.
#[derive(Clone, Debug)]
pub struct AddedDisk {
    pub node: NodeName,
    pub path: String,
    /// `None`: it gets one.
    pub name: Option<String>,
    pub quota: FolderQuota,
}

/// Names it, unless the name or the path is used already.
pub async fn add(client: Client, disk: AddedDisk, run: Run) -> Result<Vec<String>, OperatorError> {
    let AddedDisk { node, path, name, quota } = disk;
    let pools: Api<DevicePool> = Api::all(client);
    let pool = within(&format!("reading DevicePool {node}"), pools.get_opt(&node)).await?;
    let pool =
        pool.ok_or_else(|| OperatorError::Refused(format!("node {node} has no DevicePool: no agent runs there")))?;
    let is_random = name.is_none();
    let id = DiskId::named(name.unwrap_or_else(random_name));
    if let Some(why) = in_use(&pool, &id, &path) {
        return Err(OperatorError::Refused(format!("node {node}: {why}")));
    }
    if run == Run::Real {
        let written = write_choice(&pools, &pool, &id, entry(&path, quota)).await?;
        if !is_kept(&written, &id, &path, quota) {
            // What is left of it says something of a disk that is not there.
            write_choice(&pools, &pool, &id, Value::Null).await?;
            return Err(OperatorError::Refused(format!(
                "the API server has not kept what was written of {path}: the CRD of DevicePools is of an older version of \
                 localpool. Nothing is named. Apply the CRDs of this version ({HOW}), and run this again"
            )));
        }
    }
    // The next run would choose another one.
    let shown = if is_random && run != Run::Real { format!("{NAME} and something random") } else { id.to_string() };
    Ok(vec![
        format!("{} {path} of node {node} as {shown}", run.tense("name", "named")),
        format!(
            "`kubectl get devicepool {node} -o yaml` shows in status.diskStatus whether it can be used, and why not"
        ),
    ])
}

/// Why it cannot have that name.
fn in_use(pool: &DevicePool, id: &DiskId, path: &str) -> Option<String> {
    let here = Some(Path::new(path));
    let named = pool.spec.disks.iter().find(|(_, choice)| choice.path.as_deref().map(Path::new) == here);
    if let Some((other, _)) = named {
        return Some(format!("{path} has a name already: {other}"));
    }
    if pool.spec.disks.contains_key(id) {
        return Some(format!("spec.disks has an entry {id} already"));
    }
    disk_status(pool, id).map(|disk| format!("{id} is the disk {} of the pool: choose another name", disk.path))
}

/// Whether the entry is in the spec as it was written: a CRD that does not know a field prunes it without a word.
fn is_kept(written: &DevicePool, id: &DiskId, path: &str, quota: FolderQuota) -> bool {
    let is_quota = |kept: Option<FolderQuota>| kept.unwrap_or(FolderQuota::Project) == quota;
    let kept = written.spec.disks.get(id);
    kept.is_some_and(|kept| kept.path.as_deref() == Some(path) && is_quota(kept.quota))
}

fn entry(path: &str, quota: FolderQuota) -> Value {
    match quota {
        FolderQuota::Project => json!({"path": path}),
        FolderQuota::None => json!({"path": path, "quota": quota}),
    }
}

fn random_name() -> String {
    let digits = Uuid::new_v4().simple().to_string();
    format!("{NAME}{}", &digits[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_added_without_a_name_is_called_disk_and_something_random() {
        let [one, other] = [random_name(), random_name()];
        assert_ne!(one, other);
        let is_hex = |digits: &str| digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(one.strip_prefix("disk-").is_some_and(is_hex), "{one}");
    }

    fn pool(spec: Value, status: Value) -> DevicePool {
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
            "spec": {"disks": spec}, "status": {"disks": status},
        });
        serde_json::from_value(pool).expect("a DevicePool")
    }

    #[test]
    fn neither_a_name_or_path_of_another_entry_nor_the_id_of_a_disk_of_the_pool_is_a_new_name() {
        let disk = json!({
            "id": "gpt-1", "path": "/dev/sdb", "layout": "Whole", "set": "s/s", "size": 1, "free": 1, "volumes": 0,
            "state": "Ready",
        });
        let pool = pool(json!({"a": {"path": "/mnt/a"}}), json!([disk]));
        let why = |id: &str, path: &str| in_use(&pool, &DiskId::named(id), path);
        assert_eq!(why("b", "/mnt/b"), None);
        assert_eq!(why("b", "/mnt/a/").as_deref(), Some("/mnt/a/ has a name already: a"));
        assert_eq!(why("a", "/mnt/b").as_deref(), Some("spec.disks has an entry a already"));
        let text = "gpt-1 is the disk /dev/sdb of the pool: choose another name";
        assert_eq!(why("gpt-1", "/mnt/b").as_deref(), Some(text));
    }

    #[test]
    fn an_entry_that_an_older_definition_has_pruned_is_not_taken_for_one_that_was_kept() {
        let kept = |entry: Value, quota| is_kept(&pool(entry, json!([])), &DiskId::named("a"), "/mnt/a", quota);
        assert!(kept(json!({"a": {"path": "/mnt/a"}}), FolderQuota::Project));
        assert!(kept(json!({"a": {"path": "/mnt/a", "quota": "none"}}), FolderQuota::None));
        for pruned in [json!({"a": {}}), json!({}), json!({"a": {"quota": "none"}}), json!({"a": {"path": "/mnt/a"}})] {
            assert!(!kept(pruned.clone(), FolderQuota::None), "{pruned}");
        }
    }

    #[test]
    fn an_entry_says_no_more_than_was_asked_for() {
        assert_eq!(entry("/mnt/a", FolderQuota::Project), json!({"path": "/mnt/a"}));
        assert_eq!(entry("/mnt/a", FolderQuota::None), json!({"path": "/mnt/a", "quota": "none"}));
    }
}
