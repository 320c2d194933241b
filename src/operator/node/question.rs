//! What an agent asks the controller about PersistentVolumes, through its DevicePool: no agent reads them.
//!
//! Takes in what to ask; gives out the answer that has the token of this question. The controller reads the
//! PersistentVolumes after it has seen the token, so the answer knows all that existed when the question was asked. Who
//! asks while a question is under way is in the next one, together with all others who wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use uuid::Uuid;

use crate::api::crd::{DevicePool, DevicePoolSpec, PoolAnswer, PoolQuestion, PromisedPath};
use crate::device::NodeName;
use crate::operator::api_server::error::{HOW, OperatorError, error_message};
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::kube_volume::PersistentVolume;
use crate::volume::VolumeId;

/// How long the controller may take. Whoever asks asks again after that, which writes the question again.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The field manager of the question: the report of the pool, which has another one, leaves it as it is.
const MANAGER: &str = "localpool-agent-question";

/// The questions of one agent: there is one at a time.
#[derive(Clone)]
pub struct Questions(Arc<QuestionState>);

struct QuestionState {
    api: Api<DevicePool>,
    node: NodeName,
    timeout: Duration,
    /// What is asked next.
    next: Mutex<Arc<Batch>>,
    turn: tokio::sync::Mutex<()>,
}

/// What is asked together, and the answer.
#[derive(Default)]
struct Batch {
    wanted: Mutex<QuestionParts>,
    answer: OnceLock<Result<PoolAnswer, Arc<OperatorError>>>,
}

#[derive(Clone, Debug, Default)]
struct QuestionParts {
    promises: bool,
    volumes: BTreeSet<VolumeId>,
}

impl Questions {
    pub fn new(client: Client, node: NodeName) -> Self {
        Self::with_timeout(client, node, TIMEOUT)
    }

    /// The controller is waited for that long.
    pub fn with_timeout(client: Client, node: NodeName, timeout: Duration) -> Self {
        let (next, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(QuestionState { api: Api::all(client), node, timeout, next, turn }))
    }

    /// All paths of this node that PersistentVolumes of other provisioners promise.
    pub(in crate::operator) async fn promises(&self) -> Result<Vec<PromisedPath>, OperatorError> {
        complete(self.ask(|wanted| wanted.promises = true).await?)
    }

    /// The PersistentVolume that names the volume for this node.
    pub(in crate::operator) async fn named_by(
        &self,
        id: VolumeId,
    ) -> Result<Option<ObjectName<PersistentVolume>>, OperatorError> {
        let answer = self
            .ask(|wanted| {
                wanted.volumes.insert(id);
            })
            .await?;
        let name = id.to_string();
        let named = answer.named.into_iter().find(|named| named.volume == name);
        Ok(named.map(|named| named.persistent_volume.into()))
    }

    async fn ask(&self, add: impl FnOnce(&mut QuestionParts)) -> Result<PoolAnswer, OperatorError> {
        let batch = {
            let next = self.next();
            add(&mut next.wanted.lock().unwrap_or_else(PoisonError::into_inner));
            Arc::clone(&next)
        };
        let _turn = self.0.turn.lock().await;
        // Another caller of this batch may have had the turn before, and asked for all of them.
        let answer = match batch.answer.get() {
            Some(answer) => answer.clone(),
            None => {
                self.close(&batch);
                let wanted = batch.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let answer = self.put(wanted).await.map_err(Arc::new);
                batch.answer.get_or_init(|| answer).clone()
            }
        };
        answer.map_err(|error| OperatorError::Refused(error_message(&*error)))
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Arc<Batch>> {
        self.0.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever asks from now on is in the next batch.
    fn close(&self, batch: &Arc<Batch>) {
        let mut next = self.next();
        if Arc::ptr_eq(&next, batch) {
            *next = Arc::default();
        }
    }

    /// Writes the question, and waits for its answer.
    async fn put(&self, wanted: QuestionParts) -> Result<PoolAnswer, OperatorError> {
        let QuestionState { api, node, timeout, next: _, turn: _ } = &*self.0;
        let QuestionParts { promises, volumes } = wanted;
        let volumes = volumes.into_iter().collect();
        let question = PoolQuestion { token: Uuid::new_v4().to_string(), promises, volumes };
        let asked = async {
            self.write(&question).await?;
            let is_answered = |pool: Option<&DevicePool>| answer_to(pool, &question.token).is_some();
            let seen = await_condition(api.clone(), node, is_answered).await;
            let seen = seen.map_err(|error| OperatorError::Refused(format!("waiting for the controller: {error}")))?;
            Ok(answer_to(seen.as_ref(), &question.token).cloned())
        };
        match tokio::time::timeout(*timeout, asked).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => Err(OperatorError::Refused(format!(
                "localpool's controller has not answered within {} s what PersistentVolumes say of this node: is a \
                 controller of this version the leader?",
                timeout.as_secs()
            ))),
        }
    }

    async fn write(&self, question: &PoolQuestion) -> Result<(), OperatorError> {
        let QuestionState { api, node, .. } = &*self.0;
        let what = || OperatorError::api(format!("asking the controller through DevicePool {node}"));
        let params = PatchParams::apply(MANAGER).force();
        let status = json!({"question": question});
        let patch = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "status": status});
        let write = async || api.patch_status(node, &params, &Patch::Apply(&patch)).await;
        let written = match write().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let pool = DevicePool::new(node, DevicePoolSpec::default());
                match api.create(&PostParams::default(), &pool).await {
                    Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 409) => {
                        return Err(what()(error));
                    }
                    Ok(_) | Err(_) => write().await,
                }
            }
            written => written,
        };
        let written = written.map_err(what())?;
        match written.status.and_then(|status| status.question).as_ref() == Some(question) {
            true => Ok(()),
            false => Err(OperatorError::Refused(format!(
                "the API server does not keep a question to the controller: apply this version's \
                 CustomResourceDefinitions ({HOW})"
            ))),
        }
    }
}

/// The answer to this question, and to no other: an older one may have missed a PersistentVolume.
fn answer_to<'a>(pool: Option<&'a DevicePool>, token: &str) -> Option<&'a PoolAnswer> {
    pool?.spec.answer.as_ref().filter(|answer| answer.token == token)
}

/// The promises, if none is missing: a disk that is promised must not look free.
fn complete(answer: PoolAnswer) -> Result<Vec<PromisedPath>, OperatorError> {
    let PoolAnswer { promises, promises_omitted, .. } = answer;
    match promises_omitted {
        0 => Ok(promises),
        more => Err(OperatorError::Refused(format!(
            "PersistentVolumes of other provisioners promise more paths of this node than an answer of the controller \
             holds: {more} are missing"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_question_that_was_asked_counts() {
        let mut pool = DevicePool::new("n", DevicePoolSpec::default());
        assert_eq!(answer_to(None, "2"), None);
        assert_eq!(answer_to(Some(&pool), "2"), None);
        for (token, counts) in [("1", false), ("2", true), ("3", false)] {
            pool.spec.answer = Some(PoolAnswer { token: token.to_owned(), ..PoolAnswer::default() });
            assert_eq!(answer_to(Some(&pool), "2").is_some(), counts, "{token}");
        }
    }

    #[test]
    fn an_answer_without_room_for_all_promises_is_none() {
        let path = PromisedPath { name: "pv".to_owned(), provisioner: None, path: "/dev/sda".to_owned() };
        let answer = PoolAnswer { promises: vec![path.clone()], ..PoolAnswer::default() };
        assert_eq!(complete(answer.clone()).expect("all of them"), [path]);
        let why = complete(PoolAnswer { promises_omitted: 7, ..answer }).expect_err("it is cut");
        assert!(why.to_string().contains("7 are missing"), "{why}");
    }
}
