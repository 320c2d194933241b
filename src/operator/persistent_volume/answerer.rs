//! Answers what agents ask about PersistentVolumes (`operator::question`), one reading of all of them for all who have
//! asked by then.
//!
//! It reads from the API server, not from what a watch has shown: a PersistentVolume that existed when an agent asked must
//! be in its answer, and a watch may be behind.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolume};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::answer::{Reading, unanswered};
use crate::api::Node;
use crate::api::crd::{DevicePool, PoolAnswer, PoolQuestion};
use crate::host::Backoff;
use crate::operator::client::{find_in_pages, within};
use crate::operator::error::OperatorError;
use crate::operator::metrics::Metrics;
use crate::operator::stores::Stores;
use crate::operator::write::{Write, patch};

/// Questions come in bursts, as when a cluster starts; one reading serves all within this time.
const SETTLE: Duration = Duration::from_millis(50);
/// The wait after an answer that could not be given: the first one, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How many PersistentVolumes are read at once, and how many answers are written at once.
const PAGE: u32 = 500;
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
        let mut changes = self.stores.pools.changes();
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            // Any change after this starts another look.
            changes.mark_unchanged();
            let asked: Vec<_> = self.stores.pools.all().into_iter().filter_map(asked).collect();
            let is_done = asked.is_empty() || self.answer(asked).await;
            let again = backoff.after(!is_done).unwrap_or(Duration::MAX);
            let _ = tokio::time::timeout(again, changes.changed()).await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Whether all were answered.
    async fn answer(&self, asked: Vec<(Arc<DevicePool>, PoolQuestion)>) -> bool {
        let Some(reading) = self.metrics.note(WORK, self.read().await) else { return false };
        let reading = &reading;
        let answers = asked.into_iter().map(async |(pool, question)| {
            let answered = self.answer_one(&pool, &question, reading).await;
            self.metrics.note(WORK, answered).is_some()
        });
        futures::stream::iter(answers).buffer_unordered(AT_ONCE).all(async |is_done| is_done).await
    }

    /// All PersistentVolumes as they are now, or a little later.
    async fn read(&self) -> Result<Reading, OperatorError> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut reading = Reading::default();
        let fetch = async |params| within("listing PersistentVolumes", volumes.list(&params)).await;
        let add = |found: Vec<PersistentVolume>| {
            found.into_iter().for_each(|volume| reading.add(volume));
            None::<()>
        };
        find_in_pages(ListParams::default().limit(PAGE), fetch, add).await?;
        Ok(reading)
    }

    async fn answer_one(
        &self,
        pool: &DevicePool,
        question: &PoolQuestion,
        reading: &Reading,
    ) -> Result<(), OperatorError> {
        let (nodes, name) = (Api::<KubeNode>::all(self.client.clone()), pool.name_any());
        // Its labels as they are now, for the same reason.
        let node = match within(&format!("reading Node {name}"), nodes.get(&name)).await {
            // Nobody waits for the answer.
            Err(error) if error.is_not_found() => return Ok(()),
            node => node?,
        };
        let answer = reading.answer(question, &Node { name: pool.node(), labels: node.labels().clone() });
        if answer.promises_omitted > 0 {
            let (here, more) = (answer.promises.len(), answer.promises_omitted);
            tracing::warn!(
                node = name,
                "{here} promised paths fit into an answer, and {more} do not: the node claims nothing"
            );
        }
        self.write(pool, &answer).await
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

fn asked(pool: Arc<DevicePool>) -> Option<(Arc<DevicePool>, PoolQuestion)> {
    let question = unanswered(&pool)?.clone();
    Some((pool, question))
}
