//! The requests of a plan to the API server, in the order in which they are sent. Values.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

use super::plan::BenchmarkPlan;
use super::result_map::ResultMap;
use crate::api::crd::{BenchmarkRequest, DevicePool, NodeDiskSetup, NodeDiskSetupStatus};
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::disk_setup::own_set::OwnSet;
use crate::operator::disk_setup::setups::{ReadSetup, Setups};

/// One request of a plan.
pub enum RecordedWrite {
    Map(ObjectName<Namespace>, Option<Arc<ConfigMap>>, ResultMap),
    Requests(Arc<DevicePool>, Vec<BenchmarkRequest>),
    Set(Arc<NodeDiskSetup>, OwnSet),
    Status(Arc<NodeDiskSetup>, NodeDiskSetupStatus),
}

/// By which it is known whether a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordedKey {
    Map(ObjectName<Namespace>),
    Requests(Uid<DevicePool>),
    Set(Uid<NodeDiskSetup>),
    Status(Uid<NodeDiskSetup>),
}

impl RecordedWrite {
    /// What pods wait for comes first.
    pub fn all_of(plan: BenchmarkPlan, setups: &Setups) -> Vec<Self> {
        let BenchmarkPlan { maps, requests, starts: _, asked: _, sets, statuses, due: _ } = plan;
        let maps = maps.into_iter().map(|(namespace, seen, map)| Self::Map(namespace, seen, map));
        let requests = requests.into_iter().map(|(pool, requests)| Self::Requests(pool, requests));
        let object = |place: usize| setups.all().get(place).map(|ReadSetup { object, .. }| Arc::clone(object));
        let sets = sets.into_iter().filter_map(|(place, set)| Some(Self::Set(object(place)?, set)));
        let statuses = statuses.into_iter().filter_map(|(place, status)| Some(Self::Status(object(place)?, status)));
        maps.chain(requests).chain(sets).chain(statuses).collect()
    }

    pub fn key(&self) -> Option<RecordedKey> {
        match self {
            Self::Map(namespace, ..) => Some(RecordedKey::Map(namespace.clone())),
            Self::Requests(pool, _) => Uid::of(&**pool).map(RecordedKey::Requests),
            Self::Set(setup, _) => Uid::of(&**setup).map(RecordedKey::Set),
            Self::Status(setup, _) => Uid::of(&**setup).map(RecordedKey::Status),
        }
    }
}
