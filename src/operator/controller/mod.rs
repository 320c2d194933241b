//! The controller's side of Kubernetes: the one writer of specs.
//!
//! Takes in CSI's calls by the port `Volumes` and the cluster's objects by watches; gives out PoolVolumes, which the
//! agents of the nodes answer (`volume`), statuses of sets and LocalVolumes (`leader`, `set`), and the pods of
//! discovery.

use kube::Client;

pub use crate::operator::api_server::store::{Store, StoreState};
pub use crate::operator::benchmark::{
    BenchmarkRecorder, CommandEnd, DiskSetupSettings, PodCommands, PodExec, PodTarget,
};
pub use crate::operator::discovery::controller::{DaemonTemplate, Discoveries, TemplateError};
use crate::operator::kube_volume::LivePersistentVolumes;
pub use crate::operator::leader::stores::LeaderStores;
pub use crate::operator::leader::{DeletedNodePolicy, Leader, StartupTaint};
pub use crate::operator::metrics::Metrics;
pub use crate::operator::node::agent_pod::AgentPods;
pub use crate::operator::persistent_volume::{Answerer, Monitor, ReservePolicy};
pub use crate::operator::reaction::{ReactionMode, ReactionSettings, Reactor, Why};
pub use crate::operator::stores::{Changes, Stores};
pub use crate::operator::volume::controller::ClusterVolumes;
use crate::operator::volume::erased::Erased;
use crate::operator::volume::objects::VolumeApi;
use crate::operator::volume::refused_modes::RefusedModes;
use crate::volume::VolumeLocks;

impl Stores {
    /// The port `Volumes` on them.
    pub fn volumes(&self, client: Client) -> ClusterVolumes {
        ClusterVolumes {
            objects: VolumeApi::new(client.clone()),
            persistent: LivePersistentVolumes::new(client),
            stores: self.clone(),
            locks: VolumeLocks::default(),
            refused_modes: RefusedModes::default(),
            erased: Erased::default(),
        }
    }
}
