//! Reads PersistentVolumes from the API server as they are now.
//!
//! What deletes, orders or adopts something decides by this and not by the leader's watch, which may be behind: a
//! PersistentVolume that it has not shown yet may name the volume. All of them are read page by page, and only one page
//! is kept at a time.

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::object::PersistentVolume;
use crate::api::crd::PoolVolume;
use crate::operator::api_server::client::{find_in_pages, is_object_name, within};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;

/// How many one answer of the API server holds.
const PAGE: u32 = 500;

/// The one reader of PersistentVolumes beside the leader's watch. Each call asks the API server.
#[derive(Clone)]
pub struct LivePersistentVolumes(Api<PersistentVolume>);

impl LivePersistentVolumes {
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// By its name, which may be any text; `None`: there is none, or no object can have that name.
    pub async fn get(&self, name: &ObjectName<PersistentVolume>) -> Result<Option<PersistentVolume>, OperatorError> {
        match is_object_name(name.as_str()) {
            true => within(&format!("reading PersistentVolume {name}"), self.0.get_opt(name.as_str())).await,
            false => Ok(None),
        }
    }

    /// The first in which `find` finds something.
    pub async fn find<T>(
        &self,
        mut find: impl FnMut(PersistentVolume) -> Option<T>,
    ) -> Result<Option<T>, OperatorError> {
        let fetch = async |params| within("listing PersistentVolumes", self.0.list(&params)).await;
        find_in_pages(ListParams::default().limit(PAGE), fetch, |page| page.into_iter().find_map(&mut find)).await
    }

    /// All of them, or an error: then some were not given out.
    pub async fn each(&self, mut take: impl FnMut(PersistentVolume)) -> Result<(), OperatorError> {
        self.find(|volume| {
            take(volume);
            None::<()>
        })
        .await
        .map(drop)
    }

    /// The one that names the volume with this id by its handle alone, on whatever node.
    pub async fn naming(&self, handle: &str) -> Result<Option<PersistentVolume>, OperatorError> {
        self.find(|volume| volume.has_handle(handle).then_some(volume)).await
    }

    /// The same for a volume that has an object. The provisioner gives it the name of the volume; one that a person
    /// created may have any name.
    pub async fn naming_object(&self, object: &PoolVolume) -> Result<Option<PersistentVolume>, OperatorError> {
        // The name of the object is the handle.
        let handle = object.name_any();
        match self.get(&object.spec.volume_name.as_str().into()).await?.filter(|found| found.has_handle(&handle)) {
            Some(found) => Ok(Some(found)),
            None => self.naming(&handle).await,
        }
    }
}
