//! The verbs on PoolVolumes, each on the state that was seen: the first to change an object wins, and the other looks
//! again. Takes in an object as it was seen, gives out the object as it is now, or that it changed meanwhile.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api::crd::{FINALIZER, Intent, PoolVolume};
use crate::operator::client::{find_in_pages, is_object_name, within};
use crate::operator::error::OperatorError;
use crate::operator::write::{self, Write};
use crate::volume::{DRIVER_NAME, VolumeId};

/// How many objects one answer holds.
const PAGE: u32 = 500;

#[derive(Clone)]
pub struct VolumeApi {
    volumes: Api<PoolVolume>,
    persistent: Api<PersistentVolume>,
}

impl VolumeApi {
    pub fn new(client: Client) -> Self {
        Self { volumes: Api::all(client.clone()), persistent: Api::all(client) }
    }

    /// The object of a volume.
    pub async fn volume(&self, id: VolumeId) -> Result<Option<PoolVolume>, OperatorError> {
        self.get(&id.to_string()).await
    }

    /// By its name, which is no id if a person made the object.
    pub async fn get(&self, name: &str) -> Result<Option<PoolVolume>, OperatorError> {
        within(&format!("reading PoolVolume {name}"), self.volumes.get_opt(name)).await
    }

    pub async fn create(&self, object: &PoolVolume) -> Result<Write<PoolVolume>, OperatorError> {
        let what = format!("creating PoolVolume {}", object.name_any());
        match within(&what, self.volumes.create(&PostParams::default(), object)).await {
            // The kind itself was not found: no second look finds it.
            Err(error) if error.is_not_found() => Err(error),
            answer => Write::of(answer),
        }
    }

    /// Changes the spec.
    pub async fn change(&self, object: &PoolVolume, spec: Value) -> Result<Write<PoolVolume>, OperatorError> {
        self.patch(object, json!({ "spec": spec })).await
    }

    /// Orders that the volume be erased.
    pub async fn order_erasure(&self, object: &PoolVolume) -> Result<Write<PoolVolume>, OperatorError> {
        self.change(object, json!({ "intent": Intent::Delete })).await
    }

    async fn patch(&self, object: &PoolVolume, mut change: Value) -> Result<Write<PoolVolume>, OperatorError> {
        let name = object.name_any();
        change["metadata"]["resourceVersion"] = json!(object.resource_version());
        let what = format!("changing PoolVolume {name}");
        write::patch(&self.volumes, &name, &what, change).await
    }

    /// Deletes the object, whatever its state; its finalizer holds it. `None`: it is already gone.
    pub async fn delete(&self, object: &PoolVolume) -> Result<Write<Option<PoolVolume>>, OperatorError> {
        self.delete_if(object, Preconditions { uid: object.uid(), resource_version: None }).await
    }

    async fn delete_if(
        &self,
        object: &PoolVolume,
        preconditions: Preconditions,
    ) -> Result<Write<Option<PoolVolume>>, OperatorError> {
        let name = object.name_any();
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let what = format!("deleting PoolVolume {name}");
        let deleted = Write::of(within(&what, self.volumes.delete(&name, &params)).await)?;
        Ok(deleted.map(|answer| answer.left().filter(|object| !object.finalizers().is_empty())))
    }

    /// Withdraws an object in the state that was seen, so that it is gone at once. An agent that accepted it meanwhile
    /// wins.
    pub async fn withdraw(&self, object: &PoolVolume) -> Result<Write<()>, OperatorError> {
        let held = match object.metadata.deletion_timestamp {
            Some(_) => object.clone(),
            None => {
                let exactly = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
                match self.delete_if(object, exactly).await? {
                    Write::Changed => return Ok(Write::Changed),
                    Write::Done(None) => return Ok(Write::Done(())),
                    Write::Done(Some(held)) => held,
                }
            }
        };
        self.let_go(&held).await
    }

    /// Removes our finalizer.
    pub async fn let_go(&self, held: &PoolVolume) -> Result<Write<()>, OperatorError> {
        let others: Vec<&String> = held.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        Ok(self.patch(held, json!({ "metadata": { "finalizers": others } })).await?.map(|_| ()))
    }

    /// The PersistentVolume of a volume that has an object. The provisioner gives it the name of the volume; one that a
    /// person created may have any name.
    pub async fn persistent_volume_of(&self, object: &PoolVolume) -> Result<Option<PersistentVolume>, OperatorError> {
        let (handle, name) = (object.name_any(), &object.spec.volume_name);
        if is_object_name(name)
            && let Some(found) = self.persistent_volume_named(name).await?.filter(|found| has_handle(found, &handle))
        {
            return Ok(Some(found));
        }
        self.persistent_volume_with(&handle).await
    }

    /// The PersistentVolume that names the object, by its handle alone.
    pub async fn persistent_volume_naming(
        &self,
        object: &PoolVolume,
    ) -> Result<Option<PersistentVolume>, OperatorError> {
        self.persistent_volume_with(&object.name_any()).await
    }

    pub async fn persistent_volume_named(&self, name: &str) -> Result<Option<PersistentVolume>, OperatorError> {
        within(&format!("reading PersistentVolume {name}"), self.persistent.get_opt(name)).await
    }

    /// The PersistentVolume of a volume, if there is one.
    pub async fn persistent_volume(&self, id: VolumeId) -> Result<Option<PersistentVolume>, OperatorError> {
        self.persistent_volume_with(&id.to_string()).await
    }

    async fn persistent_volume_with(&self, handle: &str) -> Result<Option<PersistentVolume>, OperatorError> {
        let fetch = async |params| within("listing PersistentVolumes", self.persistent.list(&params)).await;
        let ours = |volume: &PersistentVolume| has_handle(volume, handle);
        find_in_pages(ListParams::default().limit(PAGE), fetch, |volumes| volumes.into_iter().find(ours)).await
    }
}

/// Whether it belongs to the volume with this id.
pub fn is_of(volume: &PersistentVolume, id: VolumeId) -> bool {
    has_handle(volume, &id.to_string())
}

fn has_handle(volume: &PersistentVolume, handle: &str) -> bool {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.is_some_and(|csi| csi.driver == DRIVER_NAME && csi.volume_handle == handle)
}
