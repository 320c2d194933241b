//! What the controller does for a LocalVolumeDiscovery: it creates, keeps and deletes a DaemonSet, and writes the
//! status.
//!
//! Each pass looks at everything and writes what differs. `daemon`, `decide` and `creating` are pure; this module does
//! what they decide. The DaemonSet runs in our namespace, wherever the object is: whoever may write objects elsewhere
//! gets no privileged pod there.

mod creating;
mod daemon;
mod decide;
#[cfg(test)]
mod sample;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Node as KubeNode, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{
    DiscoverySpec, Invalid, Node,
    crd::{
        DISCOVERY_NAME, DiscoveryPhase, DiscoveryReason, LocalVolumeDiscovery, LocalVolumeDiscoveryStatus,
        discovery_crd,
    },
    parse_discovery,
};
use crate::host::Backoff;
use crate::operator::{
    api_server::{
        client::within,
        error::{HOW, OperatorError, error_message},
        object_key::{ObjectKey, Uid},
        store::Store,
        watch::{Watched, decoded, keep},
        write::write_status,
    },
    crds::owner::CrdOwnership,
    event::{EventNote, writer::EventWriter},
    metrics::Metrics,
    set::parsed::selected,
    stores::Stores,
};
use creating::Creating;
pub use daemon::{DaemonTemplate, TemplateError};
use decide::{DaemonState, Daemons, TOLD};

/// The field manager of the DaemonSet.
const MANAGER: &str = "localpool-controller";
/// Changes come in bursts; a pass waits for the end of one.
const SETTLE: Duration = Duration::from_millis(250);
/// The wait after a pass that could not do everything: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// The name of this work in metrics and logs.
const WORK: &str = "discovery";

/// The discovery part of the leader's work.
pub struct Discoveries {
    client: Client,
    /// Where the DaemonSet runs.
    namespace: String,
    /// `None` if the process was not given a template.
    template: Option<DaemonTemplate>,
    nodes: Store<KubeNode>,
    objects: Store<LocalVolumeDiscovery>,
    daemons: Store<DaemonSet>,
    pods: Store<Pod>,
    events: EventWriter,
    metrics: Metrics,
}

/// What came of an object.
struct CarriedOut {
    state: DaemonState,
    /// Everything that can be done was done.
    is_complete: bool,
}

impl Discoveries {
    pub fn new(
        client: Client,
        stores: &Stores,
        metrics: Metrics,
        namespace: &str,
        template: Option<DaemonTemplate>,
        identity: &str,
    ) -> Self {
        Self {
            namespace: namespace.to_owned(),
            template,
            nodes: stores.nodes.clone(),
            objects: Store::new(|a, b| a == b),
            daemons: Store::new(|a, b| a.metadata.generation == b.metadata.generation && a.status == b.status),
            // Only what keeps a pod from running is of interest.
            pods: Store::new(|a, b| a.status == b.status),
            events: EventWriter::new(client.clone(), identity),
            metrics,
            client,
        }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        let objects = Watched::all(Api::all(self.client.clone()), "LocalVolumeDiscoveries");
        tasks.spawn(keep(self.objects.clone(), objects, decoded));
        if let Some(DaemonTemplate { name, selector, .. }) = &self.template {
            let api = Api::namespaced(self.client.clone(), &self.namespace);
            let named = Config::default().fields(&format!("metadata.name={name}"));
            tasks.spawn(keep(self.daemons.clone(), Watched::some(api, named, "DaemonSets"), decoded));
            let api = Api::namespaced(self.client.clone(), &self.namespace);
            let selected = Config::default().labels(selector);
            tasks.spawn(keep(self.pods.clone(), Watched::some(api, selected, "Pods of discovery"), decoded));
        }
        let (mut objects, mut daemons) = (self.objects.changes(), self.daemons.changes());
        let (mut pods, mut nodes) = (self.pods.changes(), self.nodes.changes());
        let mut backoff = RETRY;
        loop {
            // Any change after this starts another pass.
            for kind in [&mut objects, &mut daemons, &mut pods, &mut nodes] {
                kind.mark_unchanged();
            }
            let known = self.template.is_none() || (self.daemons.is_synced() && self.pods.is_synced());
            let done = match known && self.objects.is_synced() && self.nodes.is_synced() {
                true => self.pass().await,
                false => true,
            };
            let again = backoff.after(!done).unwrap_or(Duration::MAX);
            let _ = tokio::time::timeout(again, async {
                // A store ends only when the process does.
                let _ = tokio::select! {
                    changed = objects.changed() => changed,
                    changed = daemons.changed() => changed,
                    changed = pods.changed() => changed,
                    changed = nodes.changed() => changed,
                };
            })
            .await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Returns whether everything was done.
    async fn pass(&self) -> bool {
        let mut objects = self.objects.all();
        objects.retain(|object| object.metadata.deletion_timestamp.is_none());
        // The oldest one of the name is in charge.
        let age = |object: &LocalVolumeDiscovery| object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        objects.sort_by_key(|object| (object.name_any() != DISCOVERY_NAME, age(object), object.namespace()));
        if objects.is_empty() {
            return self.remove().await;
        }
        match self.is_ours().await {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) => {
                self.metrics.failed(WORK, &error);
                return false;
            }
        }
        let mut done = true;
        let mut in_charge: Option<&LocalVolumeDiscovery> = None;
        for object in &objects {
            let state = match in_charge {
                Some(other) => DaemonState::Refused {
                    reason: DiscoveryReason::NotInCharge,
                    message: format!(
                        "{}/{} is in charge, and a cluster can only have one discovery: delete one of them",
                        other.namespace().unwrap_or_default(),
                        other.name_any()
                    ),
                },
                None => {
                    in_charge = Some(object);
                    let carried_out = self.carry_out(object).await;
                    done &= carried_out.is_complete;
                    carried_out.state
                }
            };
            let status = decide::decide(object, &state);
            if object.status.as_ref() != Some(&status) {
                done &= self.metrics.note(WORK, write_status(&self.client, &**object, &status).await).is_some();
                self.write_event(object, &status).await;
            }
        }
        done
    }

    /// Whether the CRD is ours: under the CRD of the Local Storage Operator the objects belong to that operator.
    async fn is_ours(&self) -> Result<bool, OperatorError> {
        let ours = CrdOwnership::of::<LocalVolumeDiscovery>(&self.client).are_ours().await?;
        if !ours {
            let name = discovery_crd().name_any();
            tracing::warn!(
                "the CRD {name} is not of this version of localpool, so its objects are ignored; {HOW} replaces it \
                 (with the chart's value crds.takeOwnership, if it belongs to the Local Storage Operator)"
            );
        }
        Ok(ours)
    }

    /// Makes the DaemonSet what an object wants.
    async fn carry_out(&self, object: &LocalVolumeDiscovery) -> CarriedOut {
        let refused =
            |reason, message| CarriedOut { state: DaemonState::Refused { reason, message }, is_complete: true };
        let Some(template) = &self.template else {
            let message = "the controller has no DaemonSet to run (--discovery-daemonset is not set): install \
                           localpool by the chart";
            return refused(DiscoveryReason::NotConfigured, message.to_owned());
        };
        let (read, selected) = match self.read(object) {
            Ok(read) => read,
            // Pods that run already keep running.
            Err(problems) => return refused(DiscoveryReason::Invalid, problems.to_string()),
        };
        let wanted = match template.daemon(&self.namespace, object, &read) {
            Ok(wanted) => wanted,
            Err(error) => return refused(DiscoveryReason::Invalid, error_message(&error)),
        };
        let live = self.daemons.get(ObjectKey::new(&self.namespace, &template.name).as_str());
        let value = json!(wanted);
        let live = match live {
            Some(live) if daemon::covers(&value, &json!(*live)) => live,
            _ => match self.apply(&template.name, &value).await {
                Ok(live) => {
                    self.metrics.note(WORK, Ok(()));
                    Arc::new(live)
                }
                Err(error) => {
                    let message = error_message(&error);
                    self.metrics.failed(WORK, &error);
                    let state = DaemonState::Refused { reason: DiscoveryReason::DaemonSetNotWritten, message };
                    return CarriedOut { state, is_complete: false };
                }
            },
        };
        let pods = self.pods.all();
        let mut daemons = Daemons::of(&live, &pods, self.nodes.all().len(), selected);
        let lacking = daemons.lacks_pods();
        if lacking {
            let why = self.newest_event(&Uid::of(&*live).unwrap_or_default(), "reason=FailedCreate").await;
            daemons.troubles.extend(why.and_then(|event| event.message));
        }
        let creating = Creating::of(&live, &pods);
        daemons.troubles.extend(self.stuck(&creating).await);
        // The passage of time changes no object, so look again later.
        CarriedOut { state: DaemonState::Running(daemons), is_complete: !lacking && creating.is_empty() }
    }

    /// What the object asks for, and how many nodes it selects; or everything that is wrong with it.
    fn read(&self, object: &LocalVolumeDiscovery) -> Result<(DiscoverySpec, usize), Invalid> {
        let value = serde_json::to_value(object).map_err(Invalid::whole)?;
        let read = parse_discovery(&value, &Node::standalone("any"))?;
        Ok((read, selected(&value["spec"], &self.nodes.all())))
    }

    fn daemon_api(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn apply(&self, name: &str, wanted: &Value) -> Result<DaemonSet, OperatorError> {
        let mut wanted = wanted.clone();
        (wanted["apiVersion"], wanted["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
        let what = format!("applying DaemonSet {}/{name}", self.namespace);
        let params = PatchParams::apply(MANAGER).force();
        within(&what, self.daemon_api().patch(name, &params, &Patch::Apply(&wanted))).await
    }

    /// Nobody asks for discovery: the DaemonSet is deleted, the results stay.
    async fn remove(&self) -> bool {
        let Some(template) = &self.template else { return true };
        let Some(live) = self.daemons.get(ObjectKey::new(&self.namespace, &template.name).as_str()) else {
            return true;
        };
        if live.metadata.deletion_timestamp.is_some() || !live.annotations().contains_key(daemon::DISCOVERY_ANNOTATION)
        {
            return true;
        }
        let uid = Preconditions { uid: live.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(uid), ..DeleteParams::background() };
        let what = format!("deleting DaemonSet {}/{}", self.namespace, template.name);
        match within(&what, self.daemon_api().delete(&template.name, &params)).await {
            Err(error) if error.is_not_found() || error.is_conflict() => true,
            deleted => self.metrics.note(WORK, deleted).is_some(),
        }
    }

    /// Messages about pods that should have a container by now.
    async fn stuck(&self, creating: &[Creating]) -> Vec<String> {
        let now = jiff::Timestamp::now();
        let mut messages = Vec::new();
        for pod in creating.iter().filter(|pod| pod.is_stuck(now)) {
            // The others are only counted, so their events are not read.
            let why = if messages.len() < TOLD { self.newest_event(&pod.uid, "type=Warning").await } else { None };
            messages.push(pod.message(why.as_ref()));
        }
        messages
    }

    /// The message of an event about an object whose status has no reason.
    async fn newest_event<K>(&self, uid: &Uid<K>, such: &str) -> Option<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid},{such}"));
        match within("listing events", events.list(&params)).await {
            Ok(events) => creating::newest(events.items),
            Err(error) => {
                self.metrics.failed(WORK, &error);
                None
            }
        }
    }

    /// An Event if the phase has changed.
    async fn write_event(&self, object: &LocalVolumeDiscovery, status: &LocalVolumeDiscoveryStatus) {
        let before = object.status.as_ref().map(|status| status.phase);
        let (type_, reason) = match (before, status.phase) {
            (before, phase) if before == Some(phase) => return,
            (_, DiscoveryPhase::DiscoveryFailed) => (EventType::Warning, "DiscoveryFailed"),
            (_, DiscoveryPhase::Discovering) => (EventType::Normal, "Discovering"),
        };
        let message = status.conditions.first().map(|condition| condition.message.clone());
        let note = EventNote { type_, reason: reason.to_owned(), note: message.unwrap_or_default() };
        if let Err(error) = self.events.write(&object.object_ref(&()), "Discover", &note).await {
            self.metrics.failed(WORK, &error);
        }
    }
}
