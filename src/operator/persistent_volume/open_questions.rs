//! Which questions of agents are answered now. Pure.
//!
//! Each reading is of all PersistentVolumes: a question that nobody can answer must not cause one with each
//! change of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::unanswered;
use crate::api::crd::{DevicePool, PoolQuestion};
use crate::device::NodeName;
use crate::host::Backoff;
use crate::operator::api_server::object_key::Uid;

/// The wait before a question is tried again: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// A question, with the object that asks it.
pub type Asker = (Arc<DevicePool>, PoolQuestion);

/// The questions that were tried and have no answer. Times are monotonic.
#[derive(Debug, Default)]
pub struct OpenQuestions(BTreeMap<QuestionKey, Tried>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QuestionKey {
    pool: Option<Uid<DevicePool>>,
    token: String,
}

#[derive(Debug)]
struct Tried {
    again: Duration,
    backoff: Backoff,
}

impl OpenQuestions {
    /// Those that are tried now, and after which time there are more. Which paths are promised to a node depends on its
    /// labels: without the Node, only what is asked about volumes has an answer.
    pub fn due(
        &mut self,
        pools: Vec<Arc<DevicePool>>,
        has_node: impl Fn(&NodeName) -> bool,
        now: Duration,
    ) -> (Vec<Asker>, Option<Duration>) {
        let asker = |pool: Arc<DevicePool>| {
            let question = unanswered(&pool)?.clone();
            (!question.promises || has_node(&pool.node())).then_some((pool, question))
        };
        let open: BTreeMap<_, Asker> = pools.into_iter().filter_map(asker).map(|one| (key(&one), one)).collect();
        self.0.retain(|key, _| open.contains_key(key));
        let is_due = |key: &_| self.0.get(key).is_none_or(|tried| tried.again <= now);
        let due: Vec<_> = open.into_iter().filter(|(key, _)| is_due(key)).collect();
        for (key, _) in &due {
            let new = || Tried { again: now, backoff: RETRY };
            let tried = self.0.entry(key.clone()).or_insert_with(new);
            tried.again = now + tried.backoff.wait();
        }
        let again = self.0.values().map(|tried| tried.again.saturating_sub(now)).min();
        (due.into_iter().map(|(_, asker)| asker).collect(), again)
    }
}

fn key((pool, question): &Asker) -> QuestionKey {
    QuestionKey { pool: Uid::of(&**pool), token: question.token.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(node: &str, token: &str, promises: bool) -> Arc<DevicePool> {
        let mut pool = DevicePool::new(node, Default::default());
        pool.metadata.uid = Some(node.to_owned());
        let question = PoolQuestion { token: token.to_owned(), promises, volumes: Vec::new() };
        pool.status.get_or_insert_default().question = Some(question);
        Arc::new(pool)
    }

    fn due(asked: &mut OpenQuestions, pools: &[Arc<DevicePool>], seconds: u64) -> (Vec<String>, Option<u64>) {
        let (due, again) = asked.due(pools.to_vec(), |node| *node != "gone", Duration::from_secs(seconds));
        (due.into_iter().map(|(_, question)| question.token).collect(), again.map(|again| again.as_secs()))
    }

    #[test]
    fn a_question_without_an_answer_is_tried_less_and_less_often_whatever_changes_and_holds_up_no_other() {
        let (mut asked, a) = (OpenQuestions::default(), asking("a", "1", true));
        assert_eq!(due(&mut asked, std::slice::from_ref(&a), 0), (vec!["1".to_owned()], Some(1)));
        for _ in 0..20 {
            assert_eq!(due(&mut asked, std::slice::from_ref(&a), 0), (vec![], Some(1)), "something else changed");
        }
        assert_eq!(due(&mut asked, std::slice::from_ref(&a), 1), (vec!["1".to_owned()], Some(2)));
        let both = [a, asking("b", "2", true)];
        assert_eq!(due(&mut asked, &both, 2), (vec!["2".to_owned()], Some(1)));
        let again = [asking("a", "3", true)];
        assert_eq!(due(&mut asked, &again, 2), (vec!["3".to_owned()], Some(1)), "it is another question");
        assert_eq!(due(&mut asked, &[], 2), (vec![], None), "nobody asks any more");
    }

    #[test]
    fn without_its_node_only_what_is_asked_about_volumes_has_an_answer() {
        let mut asked = OpenQuestions::default();
        assert_eq!(due(&mut asked, &[asking("gone", "1", true)], 0), (vec![], None));
        assert_eq!(due(&mut asked, &[asking("gone", "2", false)], 0), (vec!["2".to_owned()], Some(1)));
    }
}
