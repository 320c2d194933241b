//! The commands that run in pods: begins them, and keeps what came of them until the DevicePool has it.
//!
//! A command runs in a task of this controller. What ends the controller, or its lease, ends the connection; whether the
//! command goes on nobody knows then, which is why it is noted in the DevicePool before it begins.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::in_pod::{MARGIN, PodOf, PodsSeen, RunKey, SeenRun, WantedCommand};
use super::io_properties;
use super::pod_choice::{PodTarget, choose};
use super::pod_exec::{ApiServerExec, CommandEnd, PodExec};
use crate::api::PodCommand;
use crate::api::crd::{CommandBegun, CommandEnded};
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::event::clip;
use crate::operator::persistent_volume::pod_pvcs::{each_pod, pvc_names};
use crate::operator::status::second::to_second;

/// How long a disk may be idle without a container to run the command in, until its pods go on without figures.
const WITHOUT_CONTAINER: Duration = Duration::from_secs(600);
/// How long after a refusal of the API server a namespace counts as one without the right.
const REFUSED: Duration = Duration::from_secs(600);
/// In which namespaces something may be run in pods, and who does that.
#[derive(Clone)]
pub struct PodCommands {
    namespaces: BTreeSet<ObjectName<Namespace>>,
    exec: Arc<dyn PodExec>,
}

impl PodCommands {
    /// By the API server.
    pub fn new(client: Client, namespaces: impl IntoIterator<Item = String>) -> Self {
        Self::by(Arc::new(ApiServerExec(client)), namespaces)
    }

    pub fn by(exec: Arc<dyn PodExec>, namespaces: impl IntoIterator<Item = String>) -> Self {
        let namespaces = namespaces.into_iter().map(ObjectName::from).collect();
        Self { namespaces, exec }
    }
}

/// The commands of this controller.
pub(super) struct PodRuns {
    client: Client,
    commands: PodCommands,
    tasks: JoinSet<TaskEnd>,
    /// What each task is about, also if it does not end as it should.
    of: HashMap<Id, (RunKey, ObjectName<Namespace>)>,
    runs: BTreeMap<RunKey, SeenRun>,
    /// Since when no container was found, and why.
    waits: BTreeMap<RunKey, (Instant, String)>,
    refused: BTreeMap<ObjectName<Namespace>, Instant>,
}

/// What came of a task.
enum TaskEnd {
    Run(SeenRun),
    Forbidden,
    /// Only the time of the command ends it.
    Lost(String),
}

impl PodRuns {
    pub fn new(client: Client, commands: PodCommands) -> Self {
        let (runs, waits, refused) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { client, commands, tasks: JoinSet::new(), of: HashMap::new(), runs, waits, refused }
    }

    /// What is known now.
    pub fn seen(&mut self) -> PodsSeen {
        self.refused.retain(|_, since| since.elapsed() < REFUSED);
        let waits = self.waits.iter().map(|(key, (_, why))| (key.clone(), why.clone())).collect();
        PodsSeen {
            allowed: self.commands.namespaces.clone(),
            refused: self.refused.keys().cloned().collect(),
            runs: self.runs.clone(),
            waits,
        }
    }

    /// Forgets what no request is about any more.
    pub fn retain(&mut self, is_asked: impl Fn(&RunKey) -> bool) {
        self.runs.retain(|key, run| *run == SeenRun::Running || is_asked(key));
        self.waits.retain(|key, _| is_asked(key));
    }

    /// Waits until a command has ended. For ever, if none runs.
    pub async fn ended(&mut self) {
        let (id, seen) = match self.tasks.join_next_with_id().await {
            Some(Ok(ended)) => ended,
            // Otherwise it would count as one that runs, and its node would measure nothing any more.
            Some(Err(error)) => (error.id(), TaskEnd::Lost(error.to_string())),
            None => std::future::pending().await,
        };
        if let Some((key, namespace)) = self.of.remove(&id) {
            self.note(key, namespace, seen);
        }
    }

    fn note(&mut self, key: RunKey, namespace: ObjectName<Namespace>, seen: TaskEnd) {
        let run = match seen {
            TaskEnd::Run(run) => run,
            TaskEnd::Forbidden => {
                self.refused.insert(namespace, Instant::now());
                SeenRun::NotBegun("the API server does not let the controller run anything there".to_owned())
            }
            TaskEnd::Lost(why) => {
                tracing::warn!(
                    node = key.0.as_str(),
                    disk = key.1.as_str(),
                    why,
                    "what became of a command is not known"
                );
                self.runs.remove(&key);
                return;
            }
        };
        self.runs.insert(key, run);
    }

    /// Where the command runs, if there is a container for it now. After a while without one the request is over.
    pub async fn find(&mut self, key: &RunKey, wanted: &WantedCommand) -> Result<Option<PodTarget>, OperatorError> {
        let mut why = None;
        for of in &wanted.pods {
            let pods = self.pods(of).await?;
            match choose(&pods, of, &key.0, wanted) {
                Ok(target) => {
                    self.waits.remove(key);
                    return Ok(Some(target));
                }
                Err(reason) => why = why.or(Some(reason)),
            }
        }
        let why = why.unwrap_or_else(|| "no claim waits".to_owned());
        let (since, said) = self.waits.entry(key.clone()).or_insert_with(|| (Instant::now(), String::new()));
        said.clone_from(&why);
        if since.elapsed() >= WITHOUT_CONTAINER {
            let message = format!("no container for the command in {} s: {why}", WITHOUT_CONTAINER.as_secs());
            self.runs.insert(key.clone(), SeenRun::Ended(failed(message)));
        }
        Ok(None)
    }

    /// The pods that use a claim.
    async fn pods(&self, of: &PodOf) -> Result<Vec<Pod>, OperatorError> {
        let mut using = Vec::new();
        let take = |pod: Pod| using.extend(Some(pod).filter(|pod| pvc_names(pod).contains(&of.claim)));
        each_pod(&self.client, of.namespace.as_str(), take).await?;
        Ok(using)
    }

    /// Begins a command of which the DevicePool says so.
    pub fn begin(&mut self, key: RunKey, target: PodTarget, wanted: &WantedCommand) {
        let PodTarget { namespace, pod, container } = &target;
        tracing::info!(
            node = key.0.as_str(),
            disk = key.1.as_str(),
            namespace,
            pod,
            container,
            "a command measures a disk"
        );
        self.runs.insert(key.clone(), SeenRun::Running);
        let PodCommand { command, container: _, timeout } = wanted.command.clone();
        let (mount_point, namespace) = (wanted.mount_point.clone(), ObjectName::from(namespace.clone()));
        let run = self.commands.exec.run(target, command, timeout);
        let task = self.tasks.spawn(async move { judge(run.await, &mount_point) });
        self.of.insert(task.id(), (key, namespace));
    }
}

/// What the DevicePool says before a command begins.
pub(super) fn begun(target: &PodTarget, timeout: Duration, now: Timestamp) -> CommandBegun {
    let PodTarget { namespace, pod, container } = target;
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    let until = now.checked_add(timeout).and_then(|end| end.checked_add(MARGIN)).unwrap_or(now);
    CommandBegun { pod: format!("{namespace}/{pod}"), container: container.clone(), until: Time(to_second(until)) }
}

/// What is not `io_properties` is never kept.
fn judge(end: CommandEnd, mount_point: &str) -> TaskEnd {
    let ended = match end {
        CommandEnd::Printed(text) => match io_properties::figures(&text, mount_point) {
            Ok(figures) => CommandEnded { figures: Some(figures), message: None },
            Err(why) => failed(format!("what the command printed is not io_properties.yaml: {why}")),
        },
        CommandEnd::Failed(why) => failed(why),
        CommandEnd::Forbidden => return TaskEnd::Forbidden,
        CommandEnd::NotBegun(why) => return TaskEnd::Run(SeenRun::NotBegun(why)),
        CommandEnd::Lost(why) => return TaskEnd::Lost(why),
    };
    TaskEnd::Run(SeenRun::Ended(ended))
}

fn failed(why: String) -> CommandEnded {
    CommandEnded { figures: None, message: Some(clip(why)) }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;
    use crate::device::DiskId;

    /// A flaw of this program, or of a library.
    struct Panics;

    impl PodExec for Panics {
        fn run(&self, _: PodTarget, _: Vec<String>, _: Duration) -> BoxFuture<'static, CommandEnd> {
            async { panic!("while the answer is read") }.boxed()
        }
    }

    #[tokio::test]
    async fn a_task_that_panics_is_one_whose_end_nobody_saw_and_holds_up_its_node_no_longer() {
        let client = Client::try_from(kube::Config::new("http://localhost:1".parse().expect("an address")));
        let mut runs = PodRuns::new(client.expect("a client"), PodCommands::by(Arc::new(Panics), []));
        let key: RunKey = ("n".into(), DiskId::named("gpt-1"), Timestamp::UNIX_EPOCH);
        let target = PodTarget { namespace: "s".into(), pod: "p".into(), container: "c".into() };
        let command = PodCommand { command: Vec::new(), container: None, timeout: Duration::from_secs(1) };
        let wanted = WantedCommand { command, mount_point: "/data".into(), pods: Vec::new() };
        runs.begin(key.clone(), target, &wanted);
        assert_eq!(runs.seen().runs.get(&key), Some(&SeenRun::Running));
        runs.ended().await;
        assert_eq!(runs.seen().runs.get(&key), None);
    }
}
