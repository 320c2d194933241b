//! What is ours on a filesystem that an administrator mounted: the folder that all of it is below, and the file that says
//! of which set it is, as the label does on a disk. Texts and names alone. Pure.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::directory::{DocumentError, document_text, parse_document};
use crate::device::label::{Quota, SetRef};
use crate::device::{NodeName, Owner};

/// The folder at the root of such a filesystem. What is not in it is the administrator's.
pub const OWN_FOLDER: &str = "localpool";
/// In it: with this file the filesystem is in the pool.
pub const CLAIM: &str = "claim.json";
const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemClaim {
    format: u32,
    #[serde(rename = "diskUUID")]
    disk_uuid: Uuid,
    cluster: String,
    node: NodeName,
    pub set: SetRef,
    /// What keeps volumes within their sizes, for good.
    pub quota: Quota,
    /// A person gave it up while it was away: it waits for its adoption.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

impl FilesystemClaim {
    pub fn new(disk_uuid: Uuid, owner: &Owner, set: SetRef, quota: Quota) -> Self {
        let Owner { cluster, node } = owner.clone();
        Self { format: FORMAT, disk_uuid, cluster, node, set, quota, given_up: false }
    }

    /// Reads one that is of this filesystem and this node.
    pub fn parse(text: &str, disk_uuid: Uuid, owner: &Owner) -> Result<Self, DocumentError> {
        let found: Self = parse_document(text)?;
        if found.disk_uuid != disk_uuid {
            return Err(DocumentError::OtherDisk { found: found.disk_uuid, wanted: disk_uuid });
        }
        found.of(owner)
    }

    /// Of which filesystem one of this node is.
    pub fn disk_uuid_of(text: &str, owner: &Owner) -> Result<Uuid, DocumentError> {
        Ok(parse_document::<Self>(text)?.of(owner)?.disk_uuid)
    }

    fn of(self, owner: &Owner) -> Result<Self, DocumentError> {
        match (self.cluster.as_str(), &self.node) == (owner.cluster.as_str(), &owner.node) {
            true => Ok(self),
            false => Err(DocumentError::OtherNode { node: self.node, cluster: self.cluster }),
        }
    }

    pub fn text(&self) -> String {
        document_text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::set;

    fn owner(node: &str) -> Owner {
        Owner { cluster: "c".to_owned(), node: node.into() }
    }

    #[test]
    fn a_claim_is_read_by_its_own_filesystem_and_node_only() {
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let claim = FilesystemClaim::new(one, &owner("n"), set("s"), Quota::Project);
        assert_eq!(FilesystemClaim::parse(&claim.text(), one, &owner("n")).expect("its own"), claim);
        assert_eq!(FilesystemClaim::disk_uuid_of(&claim.text(), &owner("n")).expect("its own"), one);
        assert!(FilesystemClaim::disk_uuid_of(&claim.text(), &owner("m")).is_err());
        let refused = |text: &str, uuid, node: &str| {
            FilesystemClaim::parse(text, uuid, &owner(node)).expect_err("refused").to_string()
        };
        assert_eq!(refused(&claim.text(), other, "n"), format!("it is of disk {one}, not of {other}"));
        assert_eq!(refused(&claim.text(), one, "m"), "it is of node n, cluster c");
        for text in ["", "{}", &claim.text()[..30]] {
            assert_eq!(refused(text, one, "n"), "it is cut short or damaged", "{text:?}");
        }
        let newer = claim.text().replace("\"format\": 1", "\"format\": 2");
        assert_eq!(refused(&newer, one, "n"), "it has format 2, written by a later version of localpool");
        let held = FilesystemClaim { given_up: true, ..claim };
        assert_eq!(FilesystemClaim::parse(&held.text(), one, &owner("n")).expect("its own"), held);
    }
}
