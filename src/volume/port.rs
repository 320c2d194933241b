//! The port [`Volumes`]: what the edges ask for, and what they get.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use super::error::Error;
use crate::device::{NodeName, VolumeId, label::VolumeUsage};
use crate::health::Condition;
use crate::pool::{Capacity, Selector, WantedUsage};

/// The driver's name for orchestrators.
pub const DRIVER_NAME: &str = "csi.localpool.dev";

/// The topology key whose value is a node's name.
pub const TOPOLOGY_KEY: &str = "topology.localpool.dev/node";

/// The source of volumes. One implementation uses this node's pool, another one the objects of a cluster.
pub trait Volumes: Send + Sync + 'static {
    /// Makes a volume, or finds one that was made with the same properties.
    fn create(&self, wanted: VolumeRequest) -> impl Future<Output = Result<Volume, Error>> + Send;

    /// Deletes a volume. Succeeds if it does not exist.
    fn delete(&self, id: VolumeId) -> impl Future<Output = Result<(), Error>> + Send;

    /// Grows a volume to at least `required` bytes, at most `limit`.
    fn expand(
        &self,
        id: VolumeId,
        required: u64,
        limit: Option<u64>,
    ) -> impl Future<Output = Result<Volume, Error>> + Send;

    /// One volume; `None` if none has that id.
    fn get(&self, id: VolumeId) -> impl Future<Output = Result<Option<Volume>, Error>> + Send;

    /// All volumes, by id.
    fn list(&self) -> impl Future<Output = Result<Vec<Volume>, Error>> + Send;

    /// Whether a scheduler compares requests with the capacity before they come here. Then a request that cannot be
    /// served at all must not look like one that only lacks room now: nobody would see the reason.
    const WEIGHED_BEFORE: bool = false;

    /// The capacity now, on `node` or anywhere; without a usage, the capacity for any.
    fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<NodeName>,
    ) -> impl Future<Output = Result<Capacity, Error>> + Send;
}

/// What CreateVolume asks for.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// The CSI volume name.
    pub name: String,
    pub required: u64,
    pub limit: Option<u64>,
    pub usage: WantedUsage,
    /// The parameters of the request, without those that external tools add.
    pub parameters: BTreeMap<String, String>,
    pub selector: Selector,
    pub nodes: Nodes,
    /// How long the caller waits.
    pub timeout: Duration,
}

/// Where a volume may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    #[default]
    Any,
    /// In order of preference, and nowhere else.
    Preferred(Vec<NodeName>),
    /// On any one of these.
    AnyOf(Vec<NodeName>),
}

/// A volume, as the edges see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// `None` if the volume has lost its description.
    pub usage: Option<VolumeUsage>,
    /// The node whose disk it is on.
    pub node: NodeName,
    /// Waits for adoption: never listed or published.
    pub found: bool,
    pub condition: Condition,
}
