//! The disks of this node that its PoolVolumes name: nothing on a bare device says whose it is, and the journal, which
//! does, can be lost, or be older than the volume.

use std::time::Duration;

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::api::crd::{FINALIZER, Intent, Phase, PoolVolume};
use crate::claim::NoAnswer;
use crate::device::{
    DiskId, NodeName, SetName,
    label::{SetRef, VolumeRecord, VolumeUsage},
};
use crate::host::FsKind;
use crate::operator::api_server::client::find_in_pages;
use crate::operator::api_server::error::OperatorError;
use crate::operator::pool_volume::request;
use crate::pool::{AskVolumes, LostVolume, ReportedVolume, WantedUsage};
use crate::volume::VolumeId;

/// How many are read at once, and how long the API server may take for all of them.
const PAGE: u32 = 250;
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Asks the API server, on a thread of its own: it blocks.
pub fn ask(client: Client, node: NodeName, runtime: Handle) -> AskVolumes {
    Box::new(move || {
        let listed = runtime.block_on(async { tokio::time::timeout(LIST_TIMEOUT, list(&client, &node)).await });
        listed.map_err(|_| NoAnswer::Late { within: LIST_TIMEOUT })?.map_err(OperatorError::no_answer)
    })
}

async fn list(client: &Client, node: &NodeName) -> Result<Vec<ReportedVolume>, OperatorError> {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<PoolVolume>(&()));
    let params = ListParams::default().fields(&format!("spec.node={node}")).limit(PAGE);
    let fetch =
        async |params| objects.list(&params).await.map_err(OperatorError::api("listing the PoolVolumes of this node"));
    let mut reported = Vec::new();
    let add = |found: Vec<DynamicObject>| {
        reported.extend(found.into_iter().filter_map(|object| reported_by(object).transpose()));
        None::<()>
    };
    match find_in_pages(params, fetch, add).await {
        // Without the kind there is no volume of it.
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        read => read?,
    };
    reported.into_iter().collect()
}

/// What one object says of its disk. An object that this version cannot read (a later one wrote it) still counts for
/// its device: if even the device cannot be read, nothing is known of any device.
fn reported_by(object: DynamicObject) -> Result<Option<ReportedVolume>, OperatorError> {
    let (name, disk) = (object.name_any(), object.data["status"]["disk"].clone());
    let (id, is_made) = (name.parse().ok(), object.data["status"]["size"].is_number());
    match (object.try_parse::<PoolVolume>(), disk) {
        (Ok(object), _) => Ok(named_by(&object)),
        (Err(_), Value::Null) => Ok(None),
        (Err(_), Value::String(disk)) => {
            Ok(Some(ReportedVolume { disk: DiskId::named(disk), id, volume: None, is_made }))
        }
        (Err(source), _) => Err(OperatorError::Unreadable { name, source }),
    }
}

/// The disk that a volume is on, or will be made on.
fn named_by(object: &PoolVolume) -> Option<ReportedVolume> {
    let status = object.status.as_ref()?;
    let is_let_go = !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    if object.metadata.deletion_timestamp.is_some() && is_let_go && object.spec.intent == Intent::Delete {
        // Its deletion was done, and somebody else keeps the object. The data of a volume that was deleted by hand is
        // still there.
        return None;
    }
    let disk = status.disk.clone()?;
    let volume = described_by(object, Some(FsKind::Ext4)).map(|(id, record)| {
        let set = status.set.as_deref().map(SetName::parse).unwrap_or_default();
        // The set is found by its name alone.
        LostVolume { id, set: SetRef::new(set, ""), record }
    });
    // A volume that was not made yet has no size, even if its deletion is ordered.
    let is_made = status.size.is_some();
    Some(ReportedVolume { disk, id: object.name_any().parse().ok(), volume, is_made })
}

/// The volume as its disk would describe it. `otherwise`: its filesystem, if the object does not say which.
pub(super) fn described_by(object: &PoolVolume, otherwise: Option<FsKind>) -> Option<(VolumeId, VolumeRecord)> {
    let (wanted, status) = (request(object).ok()?, object.status.as_ref()?);
    let made = || status.fs_type.as_deref().and_then(|kind| kind.parse().ok());
    let usage = match wanted.usage {
        WantedUsage::Block => VolumeUsage::Block,
        WantedUsage::Mount(asked) => VolumeUsage::Mount(asked.or_else(made).or(otherwise)?),
    };
    let record = VolumeRecord {
        name: wanted.name,
        required: wanted.required,
        limit: wanted.limit,
        parameters: wanted.parameters,
        usage,
        fs_size: 0,
        found: status.phase == Phase::Found,
    };
    Some((wanted.id, record))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{being_deleted, in_phase};
    use super::*;
    use crate::operator::api_server::error::error_message;

    #[test]
    fn a_volume_that_this_version_cannot_read_keeps_its_device_and_holds_up_no_other() {
        let reported = |disk: Value| {
            let value = serde_json::json!({
                "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": "x"},
                "spec": {"node": "n", "volumeName": "v", "required": 1, "volumeMode": "Tape"},
                "status": {"phase": "Melting", "disk": disk},
            });
            reported_by(serde_json::from_value(value).expect("an object"))
        };
        let on = |disk: &str| ReportedVolume { disk: DiskId::named(disk), id: None, volume: None, is_made: false };
        assert_eq!(reported(serde_json::json!("serial-1")).expect("its disk is read"), Some(on("serial-1")));
        assert_eq!(reported(Value::Null).expect("there is no disk"), None, "it is on none");
        let error =
            error_message(&reported(serde_json::json!({"id": "serial-1"})).expect_err("on which one is not known"));
        assert!(error.contains("PoolVolume x") && error.contains("Tape"), "{error}");
    }

    #[test]
    fn only_what_was_made_says_that_a_volume_is_there_and_an_object_that_others_keep_says_nothing() {
        let reported = |phase: Phase, change: &dyn Fn(&mut PoolVolume)| {
            let mut object = in_phase(phase);
            object.finalizers_mut().push(FINALIZER.to_owned());
            let status = object.status.get_or_insert_default();
            (status.disk, status.size) = (Some(DiskId::named("serial-1")), Some(1 << 30));
            change(&mut object);
            named_by(&object).map(|reported| reported.is_made)
        };
        for phase in [Phase::Ready, Phase::Found, Phase::Deleting] {
            assert_eq!(reported(phase, &|_| {}), Some(true), "{phase:?}");
            // Its deletion was ordered before it was made.
            assert_eq!(
                reported(phase, &|object| object.status.as_mut().expect("set").size = None),
                Some(false),
                "{phase:?}"
            );
            for (intent, is_made) in [(Intent::Delete, None), (Intent::Keep, Some(true))] {
                let kept = |object: &mut PoolVolume| {
                    *object = being_deleted(object.clone());
                    object.spec.intent = intent;
                    object.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
                };
                assert_eq!(reported(phase, &kept), is_made, "{phase:?}");
            }
        }
    }
}
