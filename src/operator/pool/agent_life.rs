//! Whether the agent of each node lives, and what its DevicePool says of it. Pure.
//!
//! The controller is the one writer of the condition Ready: an agent cannot say that it is silent. An agent is silent
//! when its pod was not ready, or not there, for a while: a restart makes no noise.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::EventType;

use crate::api::crd::{DevicePool, PoolReason, READY};
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::event::EventNote;
use crate::operator::node::agent_pod::{AgentPod, PodReady};
use crate::operator::status::condition::{Holds, condition};
use crate::operator::status::second::to_second;
use crate::operator::status::steady::{Lasting, Steady};

/// What the pods say about an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentLife {
    Alive {
        since: Timestamp,
    },
    /// It counts as silent if nothing happens for so long.
    NotReady {
        left: SignedDuration,
    },
    Silent {
        since: Timestamp,
    },
}

/// Since when each agent is not ready. What this leader has seen begin is counted by the monotonic clock: a wall clock
/// that jumps makes no agent silent that has just restarted, and hides none that is silent. A leader that has just begun
/// learns the time before from the pods; only that of a pod that is not there begins again.
#[derive(Debug)]
pub struct Silences {
    lasting: Steady<NodeName, AgentReply>,
    /// By the wall clock: the time that the condition shows.
    since: BTreeMap<NodeName, Timestamp>,
}

/// Whether an agent answers, as far as its pods say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentReply {
    Answers,
    None,
}

impl Silences {
    /// An agent is silent after it was not ready for the time `grace`.
    pub fn new(grace: SignedDuration) -> Self {
        Self { lasting: Steady::new(grace), since: BTreeMap::new() }
    }

    /// The life of each of these nodes' agents now.
    pub fn observe(
        &mut self,
        nodes: impl IntoIterator<Item = NodeName>,
        pods_of: impl Fn(&NodeName) -> Vec<Arc<AgentPod>>,
        now: Timestamp,
        monotonic: SignedDuration,
    ) -> BTreeMap<NodeName, AgentLife> {
        let before = std::mem::take(&mut self.since);
        let mut observe = |node: NodeName| {
            let pods: Vec<PodReady> = pods_of(&node).iter().filter_map(|pod| pod.ready()).collect();
            let ready = pods.iter().filter_map(|pod| match pod {
                PodReady::Since(since) => Some(*since),
                PodReady::NotSince(_) => None,
            });
            if let Some(since) = ready.min() {
                self.lasting.observe(&node, AgentReply::Answers, SignedDuration::ZERO, monotonic);
                return (node, AgentLife::Alive { since });
            }
            let not_ready = pods.iter().filter_map(|pod| match pod {
                PodReady::NotSince(since) => Some(*since),
                PodReady::Since(_) => None,
            });
            // A pod that replaces another one is new, and the silence is not.
            let since = before.get(&node).copied().unwrap_or_else(|| not_ready.max().unwrap_or(now).min(now));
            self.since.insert(node.clone(), since);
            let life = match self.lasting.observe(&node, AgentReply::None, now.duration_since(since), monotonic) {
                Lasting::In(left) => AgentLife::NotReady { left },
                Lasting::Yes(_) => AgentLife::Silent { since },
            };
            (node, life)
        };
        let lives: BTreeMap<NodeName, AgentLife> = nodes.into_iter().map(&mut observe).collect();
        self.lasting.keep(|node| lives.contains_key(node));
        lives
    }
}

/// The condition with which the controller has said that the node's agent does not answer.
pub fn silence(pool: &DevicePool) -> Option<&Condition> {
    let conditions = pool.status.as_ref()?.conditions.as_slice();
    conditions.iter().find(|condition| condition.type_ == READY && condition.status != "True")
}

/// What has to be written.
#[derive(Debug, PartialEq)]
pub struct ReadyChange {
    /// All conditions of the DevicePool.
    pub conditions: Vec<Condition>,
    pub event: Option<EventNote>,
}

/// `why` is the reason if the agent is silent. `None`: the DevicePool says it already.
pub fn decide(pool: &DevicePool, life: AgentLife, why: &HealthReason, now: Timestamp) -> Option<ReadyChange> {
    let before = pool.status.as_ref()?.conditions.as_slice();
    let present = before.iter().find(|condition| condition.type_ == READY);
    let (holds, since) = match (life, present) {
        (AgentLife::Alive { since }, _) => (Holds::True, since),
        // The agent has just written this object.
        (AgentLife::NotReady { .. }, None) => (Holds::True, now),
        (AgentLife::NotReady { .. }, Some(_)) => return None,
        (AgentLife::Silent { since }, _) => (Holds::Unknown, since),
    };
    let (reason, message) = match holds {
        Holds::True if pool.spec.cordon => (PoolReason::Cordoned.word(), "no new volumes here: spec.cordon is set"),
        Holds::True => (PoolReason::AgentReady.word(), "the node's agent is running"),
        Holds::False | Holds::Unknown => (why.word(), message_of(why)),
    };
    let mut next = condition(before, READY, holds, reason, message, None);
    let same_status = present.filter(|present| present.status == next.status);
    if same_status.is_none() {
        next.last_transition_time = Time(to_second(since));
    }
    if present == Some(&next) {
        return None;
    }
    let event = present.filter(|_| same_status.is_none()).map(|_| event(holds, reason, message));
    let others = before.iter().filter(|condition| condition.type_ != READY).cloned();
    Some(ReadyChange { conditions: others.chain([next]).collect(), event })
}

fn message_of(why: &HealthReason) -> &'static str {
    match why {
        HealthReason::NodeGone => "the node does not exist any more",
        HealthReason::NodeNotReady => "the node is not ready, so its agent does not answer",
        _ => "the node's agent does not answer: its pod is not ready, or not there",
    }
}

fn event(holds: Holds, reason: &str, message: &str) -> EventNote {
    match holds {
        Holds::True => EventNote {
            type_: EventType::Normal,
            reason: "AgentBack".to_owned(),
            note: "the node's agent answers again".to_owned(),
        },
        Holds::False | Holds::Unknown => EventNote {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: format!("{message}; no new volumes are made there"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::status::steady::GRACE;
    use crate::operator::volume::sample::{pool, status_condition};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(ready: &str, since: i64) -> Arc<AgentPod> {
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string()}]);
        made(json!(at(1).to_string()), conditions)
    }

    fn made(created: Value, conditions: Value) -> Arc<AgentPod> {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": created},
            "spec": {"nodeName": "n"}, "status": {"conditions": conditions},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn silences() -> Silences {
        Silences::new(GRACE)
    }

    /// The wall clock says `wall` when the leader has run for `ran` seconds.
    fn life_at(silences: &mut Silences, pods: &[Arc<AgentPod>], wall: i64, ran: i64) -> AgentLife {
        silences.observe(["n".into()], |_| pods.to_vec(), at(wall), secs(ran))[&NodeName::from("n")]
    }

    /// The clocks agree.
    fn life(silences: &mut Silences, pods: &[Arc<AgentPod>], now: i64) -> AgentLife {
        life_at(silences, pods, now, now - 50)
    }

    fn not_ready(left: i64) -> AgentLife {
        AgentLife::NotReady { left: secs(left) }
    }

    #[test]
    fn an_agent_is_silent_when_its_pod_was_not_ready_for_a_minute_and_alive_as_soon_as_it_is() {
        let silences = &mut silences();
        assert_eq!(life(silences, &[pod("True", 50)], 100), AgentLife::Alive { since: at(50) });
        assert_eq!(life(silences, &[pod("False", 100)], 101), not_ready(60), "it is seen a second later");
        assert_eq!(life(silences, &[pod("False", 100)], 160), not_ready(1));
        assert_eq!(life(silences, &[pod("False", 100)], 161), AgentLife::Silent { since: at(100) });
        assert_eq!(life(silences, &[pod("True", 170)], 170), AgentLife::Alive { since: at(170) });
        assert_eq!(life(silences, &[pod("False", 180)], 200), not_ready(60));
    }

    #[test]
    fn a_new_leader_knows_the_same_time_and_waits_no_other_minute() {
        assert_eq!(life(&mut silences(), &[pod("False", 100)], 160), AgentLife::Silent { since: at(100) });
        assert_eq!(life(&mut silences(), &[pod("False", 100)], 130), not_ready(30));
    }

    #[test]
    fn pods_that_come_and_are_never_ready_are_one_silence() {
        let seen = &mut silences();
        assert_eq!(life(seen, &[pod("False", 100)], 100), not_ready(60));
        let never_seen = made(json!(at(155).to_string()), json!([]));
        let never_seen = [never_seen];
        assert_eq!(life(seen, &never_seen, 160), AgentLife::Silent { since: at(100) });
        // A leader that has just begun knows only this pod.
        assert_eq!(life(&mut silences(), &never_seen, 160), not_ready(55));
    }

    #[test]
    fn a_rolling_restart_is_no_silence_and_neither_is_an_old_pod_beside_the_new_one() {
        let silences = &mut silences();
        assert_eq!(life(silences, &[pod("False", 100)], 100), not_ready(60));
        assert_eq!(life(silences, &[], 105), not_ready(55), "the pod is gone");
        assert_eq!(life(silences, &[pod("False", 110)], 110), not_ready(50));
        let both = [pod("False", 100), pod("True", 130)];
        assert_eq!(life(silences, &both, 131), AgentLife::Alive { since: at(130) });
    }

    #[test]
    fn a_node_without_a_pod_is_silent_a_minute_after_it_was_first_seen_so() {
        let seen = &mut silences();
        assert_eq!(life(seen, &[], 500), not_ready(60));
        assert_eq!(life(seen, &[], 560), AgentLife::Silent { since: at(500) });
        // The clock of a node may be ahead.
        assert_eq!(life(&mut silences(), &[pod("False", 900)], 500), not_ready(60));
    }

    const HOUR: i64 = 3600;

    #[test]
    fn a_leader_whose_clock_jumps_calls_no_agent_silent_whose_pod_is_ready_or_was_a_minute_ago() {
        for jump in [HOUR, -HOUR] {
            let silences = &mut silences();
            let clock = 2 * HOUR;
            assert_eq!(life_at(silences, &[pod("True", 50)], clock, 0), AgentLife::Alive { since: at(50) });
            assert_eq!(life_at(silences, &[pod("True", 50)], clock + jump + 1, 1), AgentLife::Alive { since: at(50) });
            // It restarts: the clock of its node has not jumped.
            let restarts = [pod("False", clock + 2)];
            assert_eq!(life_at(silences, &restarts, clock + jump + 2, 2), not_ready(60), "{jump}");
            assert_eq!(life_at(silences, &restarts, clock + jump + 61, 61), not_ready(1), "{jump}");
            // And jumps back.
            assert_eq!(life_at(silences, &restarts, clock + 61, 61), not_ready(1), "{jump}");
            let life = life_at(silences, &restarts, clock + 62, 62);
            assert_eq!(life, AgentLife::Silent { since: at((clock + 2).min(clock + jump + 2)) }, "{jump}");
        }
    }

    #[test]
    fn an_agent_that_is_not_ready_while_the_clock_jumps_is_silent_after_its_minute_and_stays_so() {
        for jump in [HOUR, -HOUR] {
            let silences = &mut silences();
            let (clock, stopped) = (2 * HOUR, [pod("False", 2 * HOUR)]);
            assert_eq!(life_at(silences, &stopped, clock, 0), not_ready(60));
            assert_eq!(life_at(silences, &stopped, clock + jump + 30, 30), not_ready(30), "{jump}");
            let silent = AgentLife::Silent { since: at(clock) };
            assert_eq!(life_at(silences, &stopped, clock + jump + 60, 60), silent, "{jump}");
            assert_eq!(life_at(silences, &stopped, clock + 61, 61), silent, "and back");
            assert_eq!(life_at(silences, &stopped, clock - HOUR, 62), silent, "{jump}");
        }
    }

    #[test]
    fn a_node_whose_pool_was_deleted_is_not_remembered() {
        let silences = &mut silences();
        assert_eq!(life(silences, &[], 500), not_ready(60));
        assert_eq!(silences.observe([], |_| vec![], at(520), secs(470)), BTreeMap::new());
        assert_eq!(life(silences, &[], 560), not_ready(60));
    }

    fn ready(pool: &DevicePool) -> (String, String, i64) {
        let conditions = &pool.status.as_ref().expect("set").conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == READY).expect("it is there");
        (ready.status.clone(), ready.reason.clone(), ready.last_transition_time.0.as_second())
    }

    /// Writes what is decided, and returns the reason of the Event.
    fn carry_out(pool: &mut DevicePool, life: AgentLife, why: &HealthReason) -> Option<Option<String>> {
        let ReadyChange { conditions, event } = decide(pool, life, why, at(7))?;
        pool.status.as_mut().expect("set").conditions = conditions;
        assert_eq!(decide(pool, life, why, at(8)), None, "once");
        Some(event.map(|event| event.reason))
    }

    #[test]
    fn a_pool_says_since_when_its_agent_is_silent_and_whatever_the_agent_says_stays() {
        let mut pool = pool("n", [3, 2, 1]);
        let claiming = status_condition("Claiming", "True", "AgentReady", "");
        pool.status.as_mut().expect("set").conditions = vec![claiming.clone()];
        let (alive, silent) = (AgentLife::Alive { since: at(50) }, AgentLife::Silent { since: at(100) });
        let why = &HealthReason::AgentSilent;
        assert_eq!(carry_out(&mut pool, alive, why), Some(None), "its beginning is no Event");
        assert_eq!(ready(&pool), ("True".to_owned(), "AgentReady".to_owned(), 50));
        assert_eq!(carry_out(&mut pool, not_ready(60), why), None);
        assert_eq!(carry_out(&mut pool, silent, why), Some(Some("AgentSilent".to_owned())));
        assert_eq!(ready(&pool), ("Unknown".to_owned(), "AgentSilent".to_owned(), 100));
        assert_eq!(carry_out(&mut pool, silent, &HealthReason::NodeNotReady), Some(None), "it is the same silence");
        assert_eq!(ready(&pool), ("Unknown".to_owned(), "NodeNotReady".to_owned(), 100));
        assert_eq!(carry_out(&mut pool, not_ready(60), why), None, "it is silent until it speaks");
        assert_eq!(carry_out(&mut pool, AgentLife::Alive { since: at(300) }, why), Some(Some("AgentBack".to_owned())));
        assert_eq!(ready(&pool), ("True".to_owned(), "AgentReady".to_owned(), 300));
        assert_eq!(pool.status.expect("set").conditions[0], claiming);
    }

    #[test]
    fn a_pool_that_was_just_written_is_ready_a_cordon_is_named_and_a_pool_without_a_status_is_not_judged() {
        let why = &HealthReason::AgentSilent;
        let mut new = pool("n", [3, 2, 1]);
        new.status.as_mut().expect("set").conditions.clear();
        assert_eq!(carry_out(&mut new, not_ready(60), why), Some(None));
        assert_eq!(ready(&new), ("True".to_owned(), "AgentReady".to_owned(), 7));
        new.spec.cordon = true;
        assert_eq!(carry_out(&mut new, AgentLife::Alive { since: at(9) }, why), Some(None));
        assert_eq!(ready(&new), ("True".to_owned(), "Cordoned".to_owned(), 7));
        new.status = None;
        assert_eq!(decide(&new, AgentLife::Silent { since: at(1) }, why, at(7)), None);
    }
}
