//! The verbs on PoolVolumes, each on the state that was seen: the first to change an object wins, and the other looks
//! again. Takes in an object as it was seen, gives out the object as it is now, or that it changed meanwhile.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api::crd::{FINALIZER, Intent, PoolVolume};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{self, Write};
use crate::volume::VolumeId;

#[derive(Clone)]
pub struct VolumeApi(Api<PoolVolume>);

impl VolumeApi {
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// The object of a volume.
    pub async fn volume(&self, id: VolumeId) -> Result<Option<PoolVolume>, OperatorError> {
        self.get(&id.to_string()).await
    }

    /// By its name, which is no id if a person made the object.
    pub async fn get(&self, name: &str) -> Result<Option<PoolVolume>, OperatorError> {
        within(&format!("reading PoolVolume {name}"), self.0.get_opt(name)).await
    }

    pub async fn create(&self, object: &PoolVolume) -> Result<Write<PoolVolume>, OperatorError> {
        let what = format!("creating PoolVolume {}", object.name_any());
        match within(&what, self.0.create(&PostParams::default(), object)).await {
            // The kind itself was not found: no second read finds it.
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
        write::patch(&self.0, &name, &what, change).await
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
        let deleted = Write::of(within(&what, self.0.delete(&name, &params)).await)?;
        Ok(deleted.map(|answer| answer.left().filter(|object| !object.finalizers().is_empty())))
    }

    /// Withdraws an object in the state that was seen, so that it is gone at once. An agent that accepted it meanwhile
    /// wins.
    pub async fn withdraw(&self, object: &PoolVolume) -> Result<Write<()>, OperatorError> {
        let finalized = match object.metadata.deletion_timestamp {
            Some(_) => object.clone(),
            None => {
                let exactly = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
                match self.delete_if(object, exactly).await? {
                    Write::Changed => return Ok(Write::Changed),
                    Write::Done(None) => return Ok(Write::Done(())),
                    Write::Done(Some(finalized)) => finalized,
                }
            }
        };
        self.let_go(&finalized).await
    }

    /// Removes our finalizer.
    pub async fn let_go(&self, finalized: &PoolVolume) -> Result<Write<()>, OperatorError> {
        let others: Vec<&String> = finalized.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        Ok(self.patch(finalized, json!({ "metadata": { "finalizers": others } })).await?.map(|_| ()))
    }
}
