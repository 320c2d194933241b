//! Answers what agents ask about PersistentVolumes (`operator::node::question`), one reading of all of them for all who
//! have asked by then.
//!
//! It reads from the API server, not from what a watch has shown: a PersistentVolume that existed when an agent asked
//! must be in its answer, and a watch may be behind.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::answer::Reading;
use super::open_questions::{Asker, OpenQuestions};
use crate::api::Node;
use crate::api::crd::{DevicePool, PoolAnswer, PoolQuestion};
use crate::device::NodeName;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{Write, patch};
use crate::operator::kube_volume::LivePersistentVolumes;
use crate::operator::metrics::Metrics;
use crate::operator::node::kube_node;
use crate::operator::stores::Stores;

/// Questions come in bursts, as when a cluster starts; one reading serves all within this time.
const SETTLE: Duration = Duration::from_millis(50);
/// The least time between two readings, whoever asks.
const BETWEEN: Duration = Duration::from_secs(1);
/// How many answers are written at once.
const AT_ONCE: usize = 16;
/// The name of this work in metrics and logs.
const WORK: &str = "answers";

/// The one reader of PersistentVolumes for all agents, on one replica.
pub struct Answerer {
    client: Client,
    stores: Stores,
    metrics: Metrics,
}

impl Answerer {
    pub fn new(client: Client, stores: Stores, metrics: Metrics) -> Self {
        Self { client, stores, metrics }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let (mut pools, mut nodes) = (self.stores.pools.changes(), self.stores.nodes.changes());
        let (mut open, began) = (OpenQuestions::default(), Instant::now());
        loop {
            // Any change after this starts another pass.
            pools.mark_unchanged();
            nodes.mark_unchanged();
            let has_node = |name: &NodeName| self.stores.nodes.get(name).is_some();
            let (due, again) = open.due(self.stores.pools.all(), has_node, began.elapsed());
            if !due.is_empty() {
                self.answer(due).await;
                tokio::time::sleep(BETWEEN).await;
                continue;
            }
            tokio::select! {
                _ = pools.changed() => {}
                _ = nodes.changed() => {}
                () = tokio::time::sleep(again.unwrap_or(Duration::MAX)) => {}
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn answer(&self, due: Vec<Asker>) {
        let Some(reading) = self.metrics.note(WORK, self.read().await) else { return };
        let reading = &reading;
        let answer = async |(pool, question): Asker| {
            self.metrics.note(WORK, self.answer_one(&pool, &question, reading).await);
        };
        each(due, answer).await;
    }

    /// All PersistentVolumes as they are now, or a little later.
    async fn read(&self) -> Result<Reading, OperatorError> {
        let mut reading = Reading::default();
        LivePersistentVolumes::new(self.client.clone()).each(|volume| reading.add(volume)).await?;
        Ok(reading)
    }

    async fn answer_one(
        &self,
        pool: &DevicePool,
        question: &PoolQuestion,
        reading: &Reading,
    ) -> Result<(), OperatorError> {
        let node = pool.node();
        let Some(labels) = self.labels(&node, question).await? else { return Ok(()) };
        let answer = reading.answer(question, &Node { name: node.clone(), labels });
        if answer.promises_omitted > 0 {
            let (here, more) = (answer.promises.len(), answer.promises_omitted);
            tracing::warn!(
                node = node.as_str(),
                "{here} promised paths fit into an answer, and {more} do not: the node claims nothing"
            );
        }
        self.write(pool, &answer).await
    }

    /// The labels of the node as they are now, for the same reason; `None`: it is gone. Only promises depend on them.
    async fn labels(
        &self,
        node: &NodeName,
        question: &PoolQuestion,
    ) -> Result<Option<BTreeMap<String, String>>, OperatorError> {
        if !question.promises {
            return Ok(Some(BTreeMap::new()));
        }
        let found = kube_node::live(&self.client, node).await?;
        Ok(found.map(|found| found.labels().clone()))
    }

    async fn write(&self, pool: &DevicePool, answer: &PoolAnswer) -> Result<(), OperatorError> {
        let (api, name) = (Api::<DevicePool>::all(self.client.clone()), pool.name_any());
        let sent = self.stores.pools.list_count();
        // All fields, so that nothing of an earlier answer stays.
        let change = json!({"metadata": {"uid": pool.uid()}, "spec": {"answer": answer}});
        let what = format!("answering the agent of DevicePool {name}");
        match patch(&api, &name, &what, change).await? {
            Write::Done(written) if written.spec.answer.as_ref() == Some(answer) => {
                self.stores.pools.learn(written, sent);
                Ok(())
            }
            // It is gone: the watch shows it.
            Write::Changed => Ok(()),
            Write::Done(_) => {
                let why = "the API server does not keep it; apply this version's CustomResourceDefinitions";
                Err(OperatorError::Refused(format!("{what}: {why}")))
            }
        }
    }
}

/// All of them, some at once: one that cannot be answered holds up no other.
async fn each<T, F: Future<Output = ()>>(all: Vec<T>, answer: impl FnMut(T) -> F) {
    futures::stream::iter(all).for_each_concurrent(AT_ONCE, answer).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn one_reading_answers_all_who_ask_though_one_of_them_is_slow_and_cannot_be_answered() {
        let answered = Mutex::new(0);
        let answer = async |number: i32| {
            if number == 1 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return;
            }
            tokio::task::yield_now().await;
            *answered.lock().expect("no panic") += 1;
        };
        each((0..100).collect(), answer).await;
        assert_eq!(answered.into_inner().expect("no panic"), 99);
    }
}
