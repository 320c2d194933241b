//! Reads the objects that an answer needs, each list page by page.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::asked_disk::DiskAsked;
use super::claim_pod::NOT_ENDED;
use super::node_summary::{COMPONENT_LABEL, ClusterCase};
use super::volumes::PodsOfPvc;
use super::why_disk::DiskCase;
use super::why_pvc::{PvcCase, PvcEvent, is_ended};
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::NodeName;
use crate::operator::api_server::client::{find_in_pages, within};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::{ObjectKey, ObjectName};
use crate::operator::kube_volume::{LivePersistentVolumes, PersistentVolume};
use crate::operator::node::kube_node;
use crate::operator::persistent_volume::pod_pvcs::{each_pod, pvc_names};
use crate::operator::volume::PvcName;

/// How many objects one answer of the API server holds.
const PAGE: u32 = 500;

/// All objects of a list, of each what `keep` leaves.
pub async fn list_all<K, T>(
    api: &Api<K>,
    params: ListParams,
    mut keep: impl FnMut(K) -> Option<T>,
) -> Result<Vec<T>, OperatorError>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    let mut found = Vec::new();
    let what = format!("listing {}", K::plural(&()));
    let fetch = async |params| within(&what, api.list(&params)).await;
    let take = |page: Vec<K>| -> Option<()> {
        found.extend(page.into_iter().filter_map(&mut keep));
        None
    };
    find_in_pages(params.limit(PAGE), fetch, take).await?;
    Ok(found)
}

/// All objects of a kind, in all namespaces.
pub async fn all<K>(client: &Client) -> Result<Vec<K>, OperatorError>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    list_all(&Api::all(client.clone()), ListParams::default(), Some).await
}

/// The same; of a kind that the API server does not serve there is none.
async fn all_served<K>(client: &Client) -> Result<Vec<Arc<K>>, OperatorError>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    match arcs(client).await {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}

/// All Nodes, without what localpool does not read.
pub async fn nodes(client: &Client) -> Result<Vec<Node>, OperatorError> {
    list_all(&Api::all(client.clone()), ListParams::default(), |node| Some(kube_node::needed(node))).await
}

/// A node that nobody knows is a mistake of whoever names it.
pub async fn known_node(client: &Client, node: &NodeName) -> Result<(), OperatorError> {
    let (pools, nodes): (Api<DevicePool>, Api<Node>) = (Api::all(client.clone()), Api::all(client.clone()));
    let has_pool = within(&format!("reading DevicePool {node}"), pools.get_opt(node)).await?.is_some();
    if has_pool || within(&format!("reading Node {node}"), nodes.get_opt(node)).await?.is_some() {
        return Ok(());
    }
    Err(OperatorError::Refused(format!("there is no node {node}: `kubectl localpool status` lists the nodes")))
}

/// The same of a namespace, as far as this person may see namespaces.
pub async fn known_namespace(client: &Client, name: &str) -> Result<(), OperatorError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match within(&format!("reading Namespace {name}"), namespaces.get_metadata_opt(name)).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            Err(OperatorError::Refused(format!("there is no namespace {name}: `kubectl get namespaces` lists them")))
        }
        Err(error) if error.code() == Some(403) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn arcs<K>(client: &Client) -> Result<Vec<Arc<K>>, OperatorError>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    list_all(&Api::all(client.clone()), ListParams::default(), |one| Some(Arc::new(one))).await
}

/// What is known of a claim, and of all that could serve it.
pub async fn pvc_case(client: Client, name: &PvcName) -> Result<PvcCase, OperatorError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), name.namespace());
    let pvc = within(&format!("reading PersistentVolumeClaim {name}"), claims.get_opt(name.name())).await?;
    let Some(pvc) = pvc else {
        let namespace = name.namespace();
        known_namespace(&client, namespace).await?;
        return Err(OperatorError::Refused(format!(
            "there is no claim {name}: `kubectl -n {namespace} get pvc` lists those of its namespace"
        )));
    };
    let spec = pvc.spec.clone().unwrap_or_default();
    let class = match spec.storage_class_name.as_deref().filter(|class| !class.is_empty()) {
        Some(class) => {
            let classes: Api<StorageClass> = Api::all(client.clone());
            within(&format!("reading StorageClass {class}"), classes.get_opt(class)).await?
        }
        None => None,
    };
    let persistent = match spec.volume_name.as_deref().filter(|volume| !volume.is_empty()) {
        Some(volume) => LivePersistentVolumes::new(client.clone()).get(&volume.into()).await?,
        None => None,
    };
    let mut pods: Vec<Pod> = Vec::new();
    each_pod(&client, name.namespace(), |pod| {
        if !is_ended(&pod) && pvc_names(&pod).iter().any(|used| used == name.name()) {
            pods.push(pod);
        }
    })
    .await?;
    Ok(PvcCase {
        name: name.clone(),
        event: last_event(&client, &pvc, name).await.unwrap_or_else(|error| Some(PvcEvent::unread(&error))),
        pvc,
        class,
        persistent,
        pods,
        sets: arcs(&client).await?,
        local_volumes: arcs(&client).await?,
        disk_setups: all_served(&client).await?,
        pools: all(&client).await?,
        volumes: all(&client).await?,
        nodes: nodes(&client).await?,
    })
}

/// The last warning about the claim that somebody wrote.
async fn last_event(
    client: &Client,
    pvc: &PersistentVolumeClaim,
    name: &PvcName,
) -> Result<Option<PvcEvent>, OperatorError> {
    let Some(uid) = pvc.uid() else { return Ok(None) };
    let events: Api<Event> = Api::namespaced(client.clone(), name.namespace());
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    Ok(list_all(&events, about, PvcEvent::of).await?.into_iter().max_by_key(|event| event.at))
}

/// The PersistentVolumes of this driver.
pub async fn own_persistent_volumes(client: &Client) -> Result<Vec<PersistentVolume>, OperatorError> {
    let mut found = Vec::new();
    let live = LivePersistentVolumes::new(client.clone());
    live.each(|one| found.extend(Some(one).filter(|one| one.own().is_some()))).await?;
    Ok(found)
}

/// The pods of all namespaces that use claims. Those that have ended use nothing.
pub async fn pods_of_pvcs(client: &Client) -> Result<PodsOfPvc, OperatorError> {
    let mut found: PodsOfPvc = BTreeMap::new();
    let pods: Api<Pod> = Api::all(client.clone());
    let running = ListParams::default().fields(NOT_ENDED);
    let take = |pod: Pod| -> Option<()> {
        let namespace = pod.namespace().unwrap_or_default();
        for claim in pvc_names(&pod) {
            found.entry(ObjectKey::new(&namespace, claim.as_str())).or_default().insert(ObjectName::of(&pod));
        }
        None
    };
    list_all(&pods, running, take).await?;
    Ok(found)
}

/// All claims, as `namespace/name`, each with its class and phase.
pub async fn pvcs(client: &Client) -> Result<Vec<(String, String)>, OperatorError> {
    let about = |pvc: PersistentVolumeClaim| {
        let class = pvc.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
        let phase = pvc.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        Some((format!("{}/{}", pvc.namespace()?, pvc.name_any()), format!("{class}, {phase}")))
    };
    list_all(&Api::all(client.clone()), ListParams::default(), about).await
}

/// localpool's own pods, wherever they are.
pub async fn own_pods(client: &Client) -> Result<Vec<Pod>, OperatorError> {
    let ours = ListParams::default().labels(COMPONENT_LABEL);
    list_all(&Api::all(client.clone()), ours, Some).await
}

pub async fn cluster_case(client: &Client) -> Result<ClusterCase, OperatorError> {
    let pods = own_pods(client).await?;
    Ok(ClusterCase {
        pools: arcs(client).await?,
        volumes: arcs(client).await?,
        nodes: nodes(client).await?.into_iter().map(Arc::new).collect(),
        leader: leader(client, &pods).await,
        sets: all_served(client).await?,
        local_volumes: all_served(client).await?,
        disk_setups: all_served(client).await?,
        pods,
    })
}

/// Who holds the controller's lease. Whoever may not read leases learns everything else.
async fn leader(client: &Client, pods: &[Pod]) -> Option<String> {
    let is_controller = |pod: &&Pod| pod.labels().get(COMPONENT_LABEL).is_some_and(|one| one == "controller");
    let namespace = pods.iter().find(is_controller).and_then(kube::ResourceExt::namespace)?;
    let leases: Api<LeaseObject> = Api::namespaced(client.clone(), &namespace);
    let held = |lease: LeaseObject| {
        let is_ours = lease.name_any().ends_with("-controller");
        is_ours.then_some(lease.spec?.holder_identity?)
    };
    let holders = list_all(&leases, ListParams::default(), held).await.ok()?;
    holders.into_iter().find(|holder| pods.iter().any(|pod| pod.name_any() == *holder))
}

pub async fn disk_case(client: &Client, asked: DiskAsked) -> Result<DiskCase, OperatorError> {
    let (pools, node): (Api<DevicePool>, _) = (Api::all(client.clone()), asked.node.clone());
    let here = ListParams::default().fields(&format!("spec.node={node}"));
    let volumes: Vec<PoolVolume> = list_all(&Api::all(client.clone()), here, Some).await?;
    Ok(DiskCase {
        pool: within(&format!("reading DevicePool {node}"), pools.get_opt(&node)).await?,
        persistent: if volumes.is_empty() { Vec::new() } else { own_persistent_volumes(client).await? },
        pods: if volumes.is_empty() { PodsOfPvc::new() } else { pods_of_pvcs(client).await? },
        volumes,
        results: all(client).await?,
        asked,
    })
}
