//! The port [`Volumes`]: what the edges ask for, and what they get.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use super::condition::Condition;
use super::error::Error;
use super::id::VolumeId;
use crate::device::label::VolumeUsage;
use crate::pool::{Capacity, Selector, WantedUsage};

/// The name that orchestrators know the driver by.
pub const DRIVER_NAME: &str = "csi.localpool.dev";

/// The topology key of a node's name.
pub const TOPOLOGY_KEY: &str = "topology.localpool.dev/node";

/// Where volumes come from. One implementation works on this node's pool, another on objects of a cluster.
pub trait Volumes: Send + Sync + 'static {
    /// Makes a volume, or finds it made with the same properties.
    fn create(&self, wanted: VolumeRequest) -> impl Future<Output = Result<Volume, Error>> + Send;

    /// Deletes a volume. Not there: success.
    fn delete(&self, id: VolumeId) -> impl Future<Output = Result<(), Error>> + Send;

    /// Grows a volume to at least `required` bytes, at most `limit`.
    fn expand(
        &self,
        id: VolumeId,
        required: u64,
        limit: Option<u64>,
    ) -> impl Future<Output = Result<Volume, Error>> + Send;

    /// One volume; `None` where there is none of that id.
    fn get(&self, id: VolumeId) -> impl Future<Output = Result<Option<Volume>, Error>> + Send;

    /// All volumes, by id.
    fn list(&self) -> impl Future<Output = Result<Vec<Volume>, Error>> + Send;

    /// Whether somebody weighs requests by the capacity before any of them comes here. Then a request that cannot be served
    /// at all must not look like one for which there is no room now: nobody would hear why.
    const WEIGHED_BEFORE: bool = false;

    /// What can be given now, on `node` or anywhere; without a use, what can be given for any.
    fn capacity(
        &self,
        selector: Selector,
        usage: Option<WantedUsage>,
        node: Option<String>,
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
    /// As they were asked for, less what external tools add.
    pub parameters: BTreeMap<String, String>,
    pub selector: Selector,
    pub nodes: Nodes,
    /// How long the caller waits.
    pub patience: Duration,
}

/// Where a volume may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    #[default]
    Any,
    /// In order of preference, and nowhere else.
    Preferred(Vec<String>),
    /// On any one of these.
    AnyOf(Vec<String>),
}

/// A volume, as the edges see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// `None` where nothing describes the volume any more.
    pub usage: Option<VolumeUsage>,
    /// The node whose disk it is on.
    pub node: String,
    /// Waits for adoption: never listed or published.
    pub found: bool,
    pub condition: Condition,
}
