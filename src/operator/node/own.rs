//! The bare devices of this node that its PoolVolumes name: nothing on such a device says whose it is, and the journal
//! that does can be lost.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use tokio::runtime::Handle;

use super::wanted::request;
use crate::api::crd::{Phase, PoolVolume};
use crate::device::id::may_be_hardware;
use crate::device::label::{SetRef, VolumeRecord, VolumeUsage};
use crate::host::FsKind;
use crate::operator::{Error, words};
use crate::pool::apply::journal::AskOwn;
use crate::pool::apply::pool::WantedUsage;
use crate::pool::journal::LostVolume;

/// How many are read at once, and how long the API server may take for all of them.
const PAGE: u32 = 250;
const ENOUGH: Duration = Duration::from_secs(30);

/// The question, for the pool's own thread: it blocks.
pub fn ask(client: Client, node: String, runtime: Handle) -> AskOwn {
    Box::new(move || {
        let listed = runtime.block_on(async { tokio::time::timeout(ENOUGH, list(&client, &node)).await });
        listed.map_err(|_| format!("no answer within {ENOUGH:?}"))?.map_err(|error| words(&error))
    })
}

async fn list(client: &Client, node: &str) -> Result<Vec<(String, Option<LostVolume>)>, Error> {
    let objects: Api<PoolVolume> = Api::all(client.clone());
    let mut told = Vec::new();
    let mut page = ListParams::default().fields(&format!("spec.node={node}")).limit(PAGE);
    loop {
        let listed = match objects.list(&page).await {
            // Where there is no such kind, there is no such volume.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            listed => listed.map_err(Error::api("listing the PoolVolumes of this node"))?,
        };
        told.extend(listed.items.iter().filter_map(named_by));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(told),
        }
    }
}

/// The bare device that a volume is on, or is to be made on.
fn named_by(object: &PoolVolume) -> Option<(String, Option<LostVolume>)> {
    let status = object.status.as_ref()?;
    let disk = status.disk.clone().filter(|disk| may_be_hardware(disk))?;
    let volume = request(object).ok().map(|wanted| {
        let kind = || status.fs_type.as_deref().and_then(|kind| kind.parse().ok()).unwrap_or(FsKind::Ext4);
        let usage = match wanted.usage {
            WantedUsage::Block => VolumeUsage::Block,
            WantedUsage::Mount(asked) => VolumeUsage::Mount(asked.unwrap_or_else(kind)),
        };
        let (namespace, name) = status.set.as_deref().and_then(|set| set.split_once('/')).unwrap_or_default();
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        LostVolume {
            id: wanted.id,
            // A set of that name is the one.
            set: SetRef { namespace, name, uid: String::new() },
            record: VolumeRecord {
                name: wanted.name,
                required: wanted.required,
                limit: wanted.limit,
                parameters: wanted.parameters,
                usage,
                fs_size: 0,
                found: status.phase == Phase::Found,
            },
        }
    });
    Some((disk, volume))
}
