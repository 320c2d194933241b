//! Sends what is planned to the API server, and keeps its answers in the stores.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

use super::recorded_write::RecordedWrite;
use super::result_map::{MAP_NAME, ResultMap};
use crate::api::crd::{BenchmarkRequest, DevicePool, LocalVolumeSet, NodeDiskSetup, NodeDiskSetupStatus};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::write::{Write, patch, patch_status};
use crate::operator::disk_setup::own_set::OwnSet;
use crate::operator::stores::Stores;

/// The field manager of the results.
const MANAGER: &str = "localpool-node-tuner";
/// The object that is made where the administrator asks for it.
const DEFAULT_SETUP: &str = "local-raid-disks";

/// Where the answers go.
pub struct RecordWriter {
    pub client: Client,
    /// That of the release, in which the sets of NodeDiskSetups are.
    pub namespace: String,
    pub stores: Stores,
    pub setups: Store<NodeDiskSetup>,
    pub maps: Store<ConfigMap>,
}

impl RecordWriter {
    pub async fn carry_out(&self, write: &RecordedWrite) -> Result<(), OperatorError> {
        match write {
            RecordedWrite::Map(namespace, seen, map) => self.write_map(namespace, seen.as_deref(), map).await,
            RecordedWrite::Requests(pool, requests) => self.write_requests(pool, requests).await.map(drop),
            RecordedWrite::Set(_, set) => self.write_set(set).await,
            RecordedWrite::Status(setup, status) => self.write_status(setup, status).await,
        }
    }

    async fn write_map(
        &self,
        namespace: &ObjectName<Namespace>,
        seen: Option<&ConfigMap>,
        map: &ResultMap,
    ) -> Result<(), OperatorError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace.as_str());
        let params = PatchParams::apply(MANAGER).force();
        let (what, sent) = (format!("writing ConfigMap {namespace}/{MAP_NAME}"), self.maps.list_count());
        let object = map.object(namespace, seen);
        match Write::of(within(&what, api.patch(MAP_NAME, &params, &Patch::Apply(&object))).await)? {
            Write::Done(written) => self.maps.learn(without_managers(written), sent),
            // Somebody changed it first: the watch shows it.
            Write::Changed => {}
        }
        Ok(())
    }

    /// As of the version that was seen: a command that another controller has noted there meanwhile must not be lost.
    pub async fn write_requests(
        &self,
        pool: &DevicePool,
        requests: &[BenchmarkRequest],
    ) -> Result<Write<()>, OperatorError> {
        let (api, name) = (Api::<DevicePool>::all(self.client.clone()), pool.name_any());
        let (what, sent) =
            (format!("asking the agent of DevicePool {name} to measure"), self.stores.pools.list_count());
        let seen = json!({"uid": pool.uid(), "resourceVersion": pool.resource_version()});
        let change = json!({"metadata": seen, "spec": {"benchmarks": requests}});
        match patch(&api, &name, &what, change).await? {
            Write::Done(written) if written.spec.benchmarks == requests => {
                self.stores.pools.learn(written, sent);
                Ok(Write::Done(()))
            }
            Write::Changed => Ok(Write::Changed),
            // Otherwise it would be written again with each change of the cluster.
            Write::Done(_) => {
                let why = "the API server does not keep it; apply this version's CustomResourceDefinitions";
                Err(OperatorError::Refused(format!("{what}: {why}")))
            }
        }
    }

    async fn write_set(&self, set: &OwnSet) -> Result<(), OperatorError> {
        let api = Api::<LocalVolumeSet>::namespaced(self.client.clone(), &self.namespace);
        let (params, sent) = (PostParams::default(), self.stores.sets.list_count());
        let answer = match set {
            OwnSet::Missing(set) => {
                let what = format!("making LocalVolumeSet {}/{}", self.namespace, set.name_any());
                within(&what, api.create(&params, set)).await
            }
            // With the version that was seen: whoever changed it meanwhile is looked at first.
            OwnSet::Differs(set) => {
                let (what, name) =
                    (format!("changing LocalVolumeSet {}/{}", self.namespace, set.name_any()), set.name_any());
                within(&what, api.replace(&name, &params, set)).await
            }
            OwnSet::Absent | OwnSet::Kept | OwnSet::Refused(_) => return Ok(()),
        };
        if let Write::Done(written) = Write::of(answer)? {
            self.stores.sets.learn(written, sent);
        }
        Ok(())
    }

    async fn write_status(&self, setup: &NodeDiskSetup, status: &NodeDiskSetupStatus) -> Result<(), OperatorError> {
        let (api, name) = (Api::<NodeDiskSetup>::all(self.client.clone()), setup.name_any());
        let (what, sent) = (format!("writing the status of NodeDiskSetup {name}"), self.setups.list_count());
        let change = json!({"metadata": {"uid": setup.uid()}, "status": status});
        if let Write::Done(written) = patch_status(&api, &name, &what, change).await? {
            self.setups.learn(written, sent);
        }
        Ok(())
    }

    /// One that is there, even if it is on its way out, stays as it is.
    pub async fn make_default(&self) -> Result<(), OperatorError> {
        if self.setups.get(DEFAULT_SETUP).is_some() {
            return Ok(());
        }
        let what = format!("making NodeDiskSetup {DEFAULT_SETUP}");
        let (api, sent) = (Api::<NodeDiskSetup>::all(self.client.clone()), self.setups.list_count());
        let (api_version, kind) = (NodeDiskSetup::api_version(&()), NodeDiskSetup::kind(&()));
        // With a server-side apply its name is in the request, so that RBAC can hold it to that.
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": DEFAULT_SETUP}, "spec": {},
        });
        let params = PatchParams::apply(MANAGER);
        let answer = within(&what, api.patch(DEFAULT_SETUP, &params, &Patch::Apply(&object))).await;
        if let Write::Done(made) = Write::of(answer)? {
            self.setups.learn(made, sent);
        }
        Ok(())
    }
}

/// Thousands of keys are noted there once more.
pub fn without_managers(mut map: ConfigMap) -> ConfigMap {
    map.metadata.managed_fields = None;
    map
}
