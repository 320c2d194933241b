//! One check: a namespace of its own, its outcome in the list that scripts/test-cluster prints, and nothing of it
//! stays.

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use localpool_testing::{record, skipped};
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME, attempt, eventually, kubectl, name};
use crate::machine::Machine;
use crate::peace::quietly;

/// What a check needs besides a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Cluster,
    /// The machine of the node: its disks, its processes, and a cluster that may be broken.
    Machine,
}

/// A namespace of one check.
pub struct Space {
    cluster: Cluster,
    pub namespace: String,
}

impl Deref for Space {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// Runs a check in a namespace of its own. Its name is that of the test.
pub fn check(needs: Needs, body: impl AsyncFnOnce(&Space)) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main").to_owned();
    let sentence = test.rsplit("::").next().unwrap_or(&test).replace('_', " ");
    let begun = Instant::now();
    let skip = match std::env::var("LOCALPOOL_TEST_CLUSTER").as_deref() {
        Ok("own") => None,
        Ok("external") if needs == Needs::Cluster => None,
        Ok("external") => Some("needs the machine of the node"),
        _ => Some("needs a cluster: make test-cluster"),
    };
    if let Some(why) = skip {
        skipped(why);
        return outcome("skipped", begun, &sentence, why);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let space = quietly(Space::new(&test)).await;
        let ended = AssertUnwindSafe(body(&space)).catch_unwind().await;
        if ended.is_err() {
            space.explain().await;
        }
        let removed = AssertUnwindSafe(quietly(space.remove())).catch_unwind().await;
        ended.and(removed)
    });
    match ended {
        Ok(()) => outcome("ok", begun, &sentence, ""),
        Err(panic) => {
            outcome("FAILED", begun, &sentence, "");
            std::panic::resume_unwind(panic);
        }
    }
}

fn outcome(outcome: &str, begun: Instant, sentence: &str, why: &str) {
    record("LOCALPOOL_TEST_RESULTS", outcome, begun.elapsed(), sentence, why);
}

impl Space {
    async fn new(test: &str) -> Self {
        let cluster = Cluster::new().await;
        let words: String = test.rsplit("::").next().unwrap().chars().take(36).collect();
        let namespace = format!("t-{}", words.replace('_', "-").trim_end_matches('-'));
        // From a run that was killed.
        cluster.delete("Namespace", None, &namespace).await;
        cluster.until_gone("Namespace", None, &namespace).await;
        Self { cluster: cluster.clone(), namespace: namespace.clone() }.remove_classes().await;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.create(&object).await;
        let account = async || match cluster.get("ServiceAccount", Some(&namespace), "default").await {
            Some(_) => Ok(()),
            None => Err("none yet"),
        };
        eventually("a namespace gets its ServiceAccount", crate::cluster::SOON, account).await;
        Self { cluster, namespace }
    }

    pub fn here(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    /// Only for checks that need the machine.
    pub fn machine(&self) -> &Machine {
        self.cluster.machine.as_ref().expect("the check says that it needs the machine")
    }

    /// With its pods, claims, and what was provisioned for them.
    async fn remove(&self) {
        let volumes = self.cluster.list("PersistentVolume", None).await;
        let ours: Vec<String> = volumes
            .iter()
            .filter(|pv| pv["spec"]["claimRef"]["namespace"] == self.namespace.as_str())
            .filter(|pv| pv["spec"]["persistentVolumeReclaimPolicy"] == "Delete")
            .map(|pv| name(pv).to_owned())
            .collect();
        self.cluster.delete("Namespace", None, &self.namespace).await;
        self.cluster.until_gone("Namespace", None, &self.namespace).await;
        for pv in ours {
            self.cluster.until_gone("PersistentVolume", None, &pv).await;
        }
        self.remove_classes().await;
    }

    /// Classes have no namespace; those of this check begin with its name.
    async fn remove_classes(&self) {
        let prefix = format!("{}-", self.namespace);
        for class in self.cluster.list("StorageClass", None).await {
            if name(&class).starts_with(&prefix) {
                self.cluster.delete("StorageClass", None, name(&class)).await;
            }
        }
    }

    /// Prints to standard error what a person would look at.
    async fn explain(&self) {
        let own = self.namespace.as_str();
        for words in [
            &["get", "pods,pvc", "-n", own, "-o", "wide"][..],
            &["get", "events", "-n", own, "--sort-by=.lastTimestamp"],
            &["get", "devicepools,poolvolumes", "-o", "wide"],
            &["get", "pods", "-n", HOME, "-o", "wide"],
            &["logs", "-n", HOME, "daemonset/localpool-node", "--tail=20"],
            &["logs", "-n", HOME, "deployment/localpool-controller", "--all-containers", "--all-pods", "--tail=12"],
        ] {
            let output = attempt("kubectl", words).await.unwrap_or_else(|failed| failed);
            eprintln!("--- kubectl {}\n{output}", words.join(" "));
        }
    }

    /// The events about an object of this namespace, as sentences.
    pub async fn events(&self, object: &str) -> Vec<String> {
        let all = self.cluster.list("Event", self.here()).await;
        let about = |event: &&Value| event["involvedObject"]["name"] == object;
        let message = |event: &Value| {
            format!("{}: {}", event["reason"].as_str().unwrap_or(""), event["message"].as_str().unwrap_or(""))
        };
        all.iter().filter(about).map(message).collect()
    }

    /// Waits for an event with all of these words.
    pub async fn event(&self, object: &str, words: &[&str]) -> String {
        self.event_within(crate::cluster::SOON, object, words).await
    }

    pub async fn event_within(&self, time: Duration, object: &str, words: &[&str]) -> String {
        let poll = async || {
            let events = self.events(object).await;
            let found = events.iter().find(|event| words.iter().all(|word| event.contains(word)));
            found.cloned().ok_or(events)
        };
        eventually(&format!("an event of {object} with {words:?}"), time, poll).await
    }

    /// kubectl in this namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut all = vec!["--namespace", self.namespace.as_str()];
        all.extend_from_slice(arguments);
        kubectl(&all).await
    }
}
