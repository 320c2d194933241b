//! The volumes of all nodes with their claims and pods, one row each. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde::Serialize;

use super::asked_disk::{DiskAsked, ambiguous, called};
use super::disks::{WELL, health_tone, size_cell, state_tone, text_cell};
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::{DiskId, NodeName, VolumeId};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::{ObjectKey, ObjectName};
use crate::operator::bytes::unsigned;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool_volume::{filesystem, phase};
use crate::show::{InList, ListColumn, TableCell};

/// Which pods use a claim, by its key.
pub type PodsOfPvc = BTreeMap<ObjectKey, BTreeSet<ObjectName<Pod>>>;

/// Which volumes a person wants; all of these have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFilter {
    pub node: Option<NodeName>,
    /// Any name of it.
    pub disk: Option<String>,
    pub namespace: Option<ObjectName<Namespace>>,
}

/// The same, with the disk by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedVolumes {
    pub node: Option<NodeName>,
    pub disk: Option<DiskId>,
    pub namespace: Option<ObjectName<Namespace>>,
}

/// One volume. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVolume {
    pub id: ObjectName<PoolVolume>,
    /// The claim that has it, or had it last: no PersistentVolume names it if `persistentVolume` is empty.
    pub namespace: Option<ObjectName<Namespace>>,
    pub claim: Option<ObjectName<PersistentVolumeClaim>>,
    pub pods: Vec<ObjectName<Pod>>,
    pub node: NodeName,
    pub disk: Option<DiskId>,
    /// `namespace/name`, as the object has it.
    pub set: Option<String>,
    pub class: Option<String>,
    pub persistent_volume: Option<ObjectName<PersistentVolume>>,
    /// The phase; of a volume that is Ready `Unusable` if it cannot be used now, `Unknown` if its agent is silent.
    pub state: String,
    /// `Healthy`, or the reason of the worst that is wrong with it.
    pub health: String,
    pub message: Option<String>,
    /// Bytes.
    pub size: u64,
    /// `Block`, or its filesystem.
    pub usage: String,
}

/// The wanted volumes, by namespace and claim.
pub fn volumes(
    all: &[PoolVolume],
    persistent: &[PersistentVolume],
    pods: &PodsOfPvc,
    wanted: &WantedVolumes,
) -> Vec<ClusterVolume> {
    let named: BTreeMap<VolumeId, &PersistentVolume> =
        persistent.iter().filter_map(|one| Some((one.own()?, one))).collect();
    let naming = |volume: &PoolVolume| volume.name_any().parse().ok().and_then(|id: VolumeId| named.get(&id).copied());
    let rows = all.iter().map(|volume| ClusterVolume::of(volume, naming(volume), pods));
    let mut rows: Vec<ClusterVolume> = rows.filter(|row| wanted.has(row)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.claim, &a.id).cmp(&(&b.namespace, &b.claim, &b.id)));
    rows
}

impl VolumeFilter {
    /// With the disk by its id: a person names it by NODE/ID, NODE/sdb, its id or its path. `all` has volumes of disks that no
    /// pool has any more.
    pub fn resolved(self, pools: &[DevicePool], all: &[PoolVolume]) -> Result<WantedVolumes, OperatorError> {
        let Self { node, disk, namespace } = self;
        let wanted = WantedVolumes { node, disk: None, namespace };
        let Some(text) = disk else { return Ok(wanted) };
        let on = |id: &str, node: Option<&NodeName>| {
            let is_it = |volume: &PoolVolume| {
                let disk = volume.status.as_ref().and_then(|status| status.disk.as_ref());
                disk.is_some_and(|disk| disk.as_str() == id) && node.is_none_or(|node| volume.spec.node == *node)
            };
            all.iter().any(is_it)
        };
        let is_id = |pool: &DevicePool| {
            pool.status.iter().flat_map(|status| &status.disks).any(|disk| disk.id.as_str() == text)
        };
        if on(&text, None) || pools.iter().any(is_id) {
            return Ok(WantedVolumes { disk: Some(DiskId::named(text)), ..wanted });
        }
        let mut asked = text.parse::<DiskAsked>().ok();
        // `/dev/sdb` and `sdb` name no node.
        asked
            .take_if(|asked| pools.iter().all(|pool| pool.node() != asked.node) && !on(&asked.disk, Some(&asked.node)));
        let node = asked.as_ref().map(|asked| asked.node.clone()).or_else(|| wanted.node.clone());
        let name = asked.as_ref().map_or(text.as_str(), |asked| asked.disk.as_str());
        let pools = pools.iter().filter(|pool| node.as_ref().is_none_or(|node| pool.node() == *node));
        let found: Vec<(NodeName, DiskId)> =
            pools.flat_map(|pool| called(pool, name).into_iter().map(|disk| (pool.node(), disk.id.clone()))).collect();
        match &found[..] {
            [(node, id)] => wanted.on(node, id.clone()),
            [] => match &asked {
                Some(asked) if on(&asked.disk, Some(&asked.node)) => {
                    wanted.on(&asked.node, DiskId::named(asked.disk.as_str()))
                }
                _ => Err(OperatorError::Refused(format!(
                    "no node has a disk {text} in its pool: `kubectl localpool disks` lists them"
                ))),
            },
            several => {
                let names: Vec<String> = several.iter().map(|(node, id)| format!("{node}/{id}")).collect();
                Err(ambiguous(&text, &names))
            }
        }
    }
}

impl WantedVolumes {
    /// Those on this disk of a node.
    fn on(self, node: &NodeName, disk: DiskId) -> Result<Self, OperatorError> {
        match &self.node {
            Some(given) if node != given => {
                Err(OperatorError::Refused(format!("--disk names a disk of node {node}, and --node names {given}")))
            }
            _ => Ok(Self { node: Some(node.clone()), disk: Some(disk), ..self }),
        }
    }

    fn has(&self, row: &ClusterVolume) -> bool {
        let Self { node, disk, namespace } = self;
        node.as_ref().is_none_or(|node| row.node == *node)
            && (disk.is_none() || *disk == row.disk)
            && (namespace.is_none() || *namespace == row.namespace)
    }
}

impl ClusterVolume {
    pub fn of(volume: &PoolVolume, persistent: Option<&PersistentVolume>, pods: &PodsOfPvc) -> Self {
        let status = volume.status.as_ref();
        let claim = persistent.and_then(PersistentVolume::bound_to);
        let claim = claim.or_else(|| volume.claim().map(str::to_owned));
        let (namespace, name) = match claim.as_deref().and_then(|claim| claim.split_once('/')) {
            Some((namespace, name)) => (Some(namespace.into()), Some(name.into())),
            None => (None, None),
        };
        let users = claim.as_deref().filter(|_| persistent.is_some()).and_then(|claim| pods.get(claim));
        let worst = status.and_then(|status| status.health.first());
        let message = worst.map(|entry| entry.message.clone());
        let size = status.and_then(|status| status.size).unwrap_or(volume.spec.required);
        let state = status.and_then(|status| status.state.clone()).unwrap_or_else(|| format!("{:?}", phase(volume)));
        Self {
            id: ObjectName::of(volume),
            namespace,
            claim: name,
            pods: users.into_iter().flatten().cloned().collect(),
            node: volume.spec.node.clone(),
            disk: status.and_then(|status| status.disk.clone()),
            set: status.and_then(|status| status.set.clone()),
            class: volume.spec.parameters.get("class").cloned(),
            persistent_volume: persistent.map(ObjectName::of),
            state,
            health: worst.map_or_else(|| WELL.to_owned(), |entry| entry.reason.clone()),
            message: message.or_else(|| status.and_then(|status| status.message.clone())),
            size: unsigned(size),
            usage: filesystem(volume).map_or_else(|| format!("{:?}", volume.spec.volume_mode), str::to_owned),
        }
    }
}

fn joined<K>(names: &[ObjectName<K>]) -> String {
    names.iter().map(ObjectName::as_str).collect::<Vec<_>>().join(",")
}

impl InList for ClusterVolume {
    const LIST: &'static str = "volumes";
    const NONE: &'static str = "there are no volumes";
    const COLUMNS: &'static [ListColumn<Self>] = &[
        ListColumn::narrow("NAMESPACE", |volume| text_cell(volume.namespace.as_ref().map(ObjectName::as_str))),
        ListColumn::narrow("CLAIM", |volume| text_cell(volume.claim.as_ref().map(ObjectName::as_str))),
        ListColumn::narrow("POD", |volume| joined(&volume.pods).into()),
        ListColumn::narrow("NODE", |volume| volume.node.as_str().into()),
        ListColumn::narrow("STATE", |volume| TableCell::toned(&volume.state, state_tone(&volume.state))),
        ListColumn::narrow("HEALTH", |volume| TableCell::toned(&volume.health, health_tone(&volume.health))),
        ListColumn::number("SIZE", |volume| size_cell(volume.size)),
        ListColumn::narrow("USE", |volume| volume.usage.as_str().into()),
        ListColumn::narrow("ID", |volume| volume.id.as_str().into()),
        ListColumn::wide("DISK", |volume| text_cell(volume.disk.as_ref().map(DiskId::as_str))),
        ListColumn::wide("SET", |volume| text_cell(volume.set.as_deref())),
        ListColumn::wide("CLASS", |volume| text_cell(volume.class.as_deref())),
        ListColumn::wide("VOLUME", |volume| text_cell(volume.persistent_volume.as_ref().map(ObjectName::as_str))),
        ListColumn::wide("MESSAGE", |volume| text_cell(volume.message.as_deref())),
    ];

    /// What kubectl takes.
    fn name(&self) -> String {
        format!("poolvolume.localpool.dev/{}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::crd::{CLAIM_ANNOTATION, Phase};
    use crate::operator::volume::sample::{in_phase, pool};

    fn persistent(handle: &str) -> PersistentVolume {
        let csi = json!({"driver": "csi.localpool.dev", "volumeHandle": handle});
        let spec = json!({"csi": csi, "claimRef": {"namespace": "app", "name": "data"}});
        let value = json!({"metadata": {"name": "pvc-1"}, "spec": spec, "status": {"phase": "Bound"}});
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn a_volume_has_the_claim_and_the_pods_that_use_it_now() {
        let volume = in_phase(Phase::Ready);
        let pods = PodsOfPvc::from([("app/data".into(), ["db-0".into(), "db-1".into()].into())]);
        let of = |filter: WantedVolumes| {
            volumes(std::slice::from_ref(&volume), &[persistent(&volume.name_any())], &pods, &filter)
        };
        let rows = of(WantedVolumes::default());
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.namespace.clone(), row.claim.clone()), (Some("app".into()), Some("data".into())));
        assert_eq!(
            (joined(&row.pods), row.health.as_str(), row.usage.as_str()),
            ("db-0,db-1".to_owned(), WELL, "ext4")
        );
        assert_eq!(row.persistent_volume, Some("pvc-1".into()));
        let written = serde_json::to_value(row).expect("written");
        let texts = [&written["id"], &written["node"], &written["namespace"], &written["claim"], &written["pods"][1]];
        assert_eq!(texts, [&volume.name_any(), "n", "app", "data", "db-1"].map(|text: &str| json!(text)).each_ref());
        let in_ = |namespace: &str| of(WantedVolumes { namespace: Some(namespace.into()), ..Default::default() }).len();
        assert_eq!((in_("app"), in_("web")), (1, 0));
        let on = |node: &str| of(WantedVolumes { node: Some(node.into()), ..Default::default() }).len();
        assert_eq!((on("n"), on("m")), (1, 0));
        assert_eq!(of(WantedVolumes { disk: Some(DiskId::named("gpt-1")), ..Default::default() }).len(), 0);
    }

    #[test]
    fn a_disk_is_named_as_the_list_of_disks_prints_it_and_one_that_nobody_has_is_an_error() {
        let with = |node: &str, id: &str| {
            let disk = json!({"id": id, "path": "/dev/loop10", "layout": "Carved", "set": "d/s", "size": 9, "free": 1,
                              "volumes": 1, "state": "Ready"});
            let mut pool = pool(node, [9, 9, 1]);
            pool.status.as_mut().expect("set").disks = vec![serde_json::from_value(disk).expect("a disk")];
            pool
        };
        let mut volume = in_phase(Phase::Ready);
        volume.status.as_mut().expect("set").disk = Some(DiskId::named("given-up"));
        let of = |disk: &str, node: Option<&str>, pools: &[DevicePool]| {
            let filter =
                VolumeFilter { disk: Some(disk.to_owned()), node: node.map(NodeName::from), ..Default::default() };
            let found = filter.resolved(pools, std::slice::from_ref(&volume)).map_err(|error| error.to_string())?;
            Ok::<_, String>((found.node, found.disk.expect("a disk")))
        };
        let [a, given_up] = ["a", "given-up"].map(DiskId::named);
        let on_n = Ok((Some("n".into()), a.clone()));
        let one = [with("n", "a")];
        for name in ["n/a", "n/loop10", "n//dev/loop10", "loop10", "/dev/loop10"] {
            assert_eq!(of(name, None, &one), on_n, "{name}");
        }
        assert_eq!(of("a", None, &one), Ok((None, a)), "wherever it is");
        assert_eq!(of("given-up", None, &one), Ok((None, given_up.clone())));
        assert_eq!(of("n/given-up", None, &[]), Ok((Some("n".into()), given_up)));
        for wrong in ["n/b", "m/a", "sdz", "/dev/sdz"] {
            assert!(of(wrong, None, &one).is_err_and(|said| said.contains("kubectl localpool disks")), "{wrong}");
        }
        assert!(of("n/a", Some("m"), &one).is_err_and(|said| said.contains("--node names m")));
        let two = [with("n", "a"), with("m", "b")];
        assert!(of("loop10", None, &two).is_err_and(|said| said.contains("n/a and m/b")));
        assert_eq!(of("loop10", Some("n"), &two), on_n);
    }

    #[test]
    fn a_volume_that_no_persistent_volume_names_has_the_claim_that_had_it_last_and_no_pods() {
        let mut volume = in_phase(Phase::Found);
        volume.metadata.annotations = Some([(CLAIM_ANNOTATION.to_owned(), "app/data".to_owned())].into());
        let health = json!({"reason": "DiskMissing", "severity": "Inaccessible", "message": "it is away"});
        volume.status.as_mut().expect("set").health = vec![serde_json::from_value(health).expect("an entry")];
        let pods = PodsOfPvc::from([("app/data".into(), ["db-0".into()].into())]);
        let rows = volumes(&[volume], &[], &pods, &WantedVolumes::default());
        assert_eq!((rows[0].claim.clone(), rows[0].pods.len()), (Some("data".into()), 0));
        assert_eq!((rows[0].state.as_str(), rows[0].health.as_str()), ("Found", "DiskMissing"));
        assert_eq!((rows[0].persistent_volume.clone(), rows[0].message.as_deref()), (None, Some("it is away")));
    }
}
