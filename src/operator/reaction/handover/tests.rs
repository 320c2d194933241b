//! Leaders one after the other. What each of the points means is in ADR 15, "A leader takes over what the one before
//! has watched".

use std::collections::BTreeSet;

use super::*;
use crate::health::HealthReason;
use crate::operator::persistent_volume::plan::Now;
use crate::operator::reaction::marked::MarkedVolume;
use crate::operator::reaction::memory::ReactionMemory;
use crate::operator::reaction::sample::{lost, now, settings};
use crate::operator::reaction::settings::ReactionSettings;
use crate::operator::reaction::tally::NodeTally;
use crate::operator::reaction::view::ReactionPast;
use crate::operator::status::steady::Lasting;

const YES: Lasting<()> = Lasting::Yes(());

fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn left(seconds: i64) -> Lasting<()> {
    Lasting::In(secs(seconds))
}

/// A leader that has made a pass. Its monotonic clock has begun with it.
struct TestLeader {
    memory: ReactionMemory,
    volumes: Vec<MarkedVolume>,
    bad: usize,
    most_bad: u8,
    now: Now,
    past: ReactionPast,
}

impl TestLeader {
    /// Begins this many seconds after noon, with what the one before has left.
    fn begins(wall: i64, text: Option<&str>, volumes: &[MarkedVolume], bad: usize) -> Self {
        Self::with(&settings(), wall, text, volumes, bad)
    }

    fn with(settings: &ReactionSettings, wall: i64, text: Option<&str>, volumes: &[MarkedVolume], bad: usize) -> Self {
        let mut memory = ReactionMemory::new(settings, own_watch(settings.recover_after));
        if let Some(handover) = text.and_then(Handover::read) {
            memory.take_over(handover);
        }
        let now = Now { wall: now() + secs(wall), monotonic: SignedDuration::ZERO };
        let most_bad = settings.max_bad_nodes;
        let past = memory.take_in(volumes, NodeTally { bad, all: 20 }, most_bad, now);
        Self { memory, volumes: volumes.to_vec(), bad, most_bad, now, past }
    }

    fn pass(&mut self, wall: i64, monotonic: i64) {
        let Now { wall: before, monotonic: since } = self.now;
        self.now = Now { wall: before + secs(wall), monotonic: since + secs(monotonic) };
        let nodes = NodeTally { bad: self.bad, all: 20 };
        self.past = self.memory.take_in(&self.volumes, nodes, self.most_bad, self.now);
    }

    /// Passes of ten seconds.
    fn watches(&mut self, seconds: i64) -> &mut Self {
        (0..seconds / 10).for_each(|_| self.pass(10, 10));
        self
    }

    fn leaves(&self) -> Option<String> {
        self.memory.handover(&self.volumes, self.now).map(|handover| handover.text())
    }

    /// Of the first volume, and of the cluster.
    fn waits(&self) -> (Lasting<()>, Lasting<()>) {
        (self.past.seen[&self.volumes[0].uid], self.past.calm)
    }
}

/// What one leaves that begins at noon and watches for so long.
fn left_after(seconds: i64, volumes: &[MarkedVolume], bad: usize) -> String {
    TestLeader::begins(0, None, volumes, bad).watches(seconds).leaves().expect("something counts")
}

#[test]
fn the_next_leader_goes_on_where_the_one_before_was_and_what_lies_between_them_does_not_count() {
    let lost = [lost("db", 1)];
    let text = left_after(200, &lost, 1);
    let mut next = TestLeader::begins(230, Some(&text), &lost, 1);
    assert_eq!(next.waits(), (left(150), left(150)));
    assert_eq!(next.past.unwatched, secs(30));
    assert_eq!(next.watches(140).waits(), (left(10), left(10)));
    assert_eq!(next.watches(10).waits(), (YES, YES));
    let text = left_after(100, &lost, 1);
    assert_eq!(TestLeader::begins(160, Some(&text), &lost, 1).waits(), (left(200), left(200)));
}

#[test]
fn point_1_the_stop_by_max_bad_nodes_outlasts_the_leader() {
    let lost = [lost("db", 1)];
    let many = left_after(290, &lost, 3);
    assert_eq!(TestLeader::begins(300, Some(&many), &lost, 1).waits(), (left(150), left(300)));
    // The one before had seen few of them; what has happened since is not known.
    let few = left_after(290, &lost, 1);
    let mut next = TestLeader::begins(300, Some(&few), &lost, 3);
    assert_eq!(next.waits().1, left(300));
    next.bad = 1;
    assert_eq!(next.watches(10).waits().1, left(300));
    // It holds one after another.
    let mut next = TestLeader::begins(300, Some(&many), &lost, 1);
    let text = next.watches(100).leaves().expect("one");
    assert_eq!(TestLeader::begins(420, Some(&text), &lost, 1).waits().1, left(200));
}

#[test]
fn point_1_few_bad_nodes_are_few_by_the_next_leader_s_own_setting() {
    let lost = [lost("db", 1)];
    let half = ReactionSettings { max_bad_nodes: 50, ..settings() };
    // Eight of twenty are few for this one, and many for the next one.
    let text = TestLeader::with(&half, 0, None, &lost, 8).watches(200).leaves().expect("one");
    assert_eq!(TestLeader::begins(230, Some(&text), &lost, 1).waits(), (left(150), left(300)));
    // What is few for a tenth is few for a half.
    let text = left_after(200, &lost, 1);
    assert_eq!(TestLeader::with(&half, 230, Some(&text), &lost, 8).waits(), (left(150), left(150)));
}

#[test]
fn point_2_only_what_was_written_within_a_minute_counts_and_nothing_odd() {
    let lost = [lost("db", 1)];
    let text = left_after(200, &lost, 1);
    let first = |wall, text: &str| TestLeader::begins(wall, Some(text), &lost, 1).waits();
    assert_eq!(first(200, &text).0, left(150));
    assert_eq!(first(260, &text).0, left(150));
    for (wall, why) in [(261, "older"), (199, "of a clock that is ahead"), (86_600, "a day old")] {
        assert_eq!(first(wall, &text), (left(300), left(300)), "{why}");
    }
    let odd = [
        String::new(),
        "yes".to_owned(),
        text[..text.len() - 1].to_owned(),
        text.replace("\"version\":1", "\"version\":2"),
        text.replace("\"calm\":200,", ""),
        text.replace("\"calm\":200", "\"calm\":-200"),
        text.replace("\"calm\":200", "\"calm\":200,\"more\":1"),
        text.replace("Ready", "Well"),
    ];
    for odd in odd {
        assert_ne!(odd, text);
        assert_eq!(first(210, &odd), (left(300), left(300)), "{odd}");
    }
    let read = Handover::read(&text).expect("it is whole");
    let of_time = |wall| read.is_of_time(now() + secs(wall));
    assert!(of_time(170) && of_time(260), "before it was written, and since");
    assert!(!of_time(100) && !of_time(261), "another leader renewed it, and left nothing");
}

#[test]
fn point_2_only_what_the_next_leader_finds_in_its_first_pass_is_taken_over() {
    let (one, other) = (lost("db", 1), lost("db", 2));
    let text = left_after(200, &[one.clone(), other.clone()], 1);
    let mut next = TestLeader::begins(210, Some(&text), std::slice::from_ref(&one), 1);
    next.volumes.push(other.clone());
    next.watches(10);
    assert_eq!(next.past.seen[&one.uid], left(140));
    assert_eq!(next.past.seen[&other.uid], left(300), "it was well when this leader began");
    let another = lost("db", 0);
    let next = TestLeader::begins(210, Some(&text), std::slice::from_ref(&another), 1);
    assert_eq!(next.past.seen[&another.uid], left(300), "nobody has watched it");
    let fenced = MarkedVolume { home: HomeState::Fenced, ..one };
    assert_eq!(TestLeader::begins(210, Some(&text), std::slice::from_ref(&fenced), 1).waits().0, left(300));
    let text = left_after(200, std::slice::from_ref(&fenced), 1);
    assert_eq!(TestLeader::begins(210, Some(&text), &[fenced], 1).waits().0, left(150));
}

#[test]
fn what_another_process_of_the_agent_has_found_is_not_taken_over_and_nothing_that_it_has_not_confirmed() {
    let by = |process: &str| MarkedVolume { process: Some(process.into()), ..lost("db", 1) };
    let text = left_after(200, &[by("a")], 1);
    assert_eq!(TestLeader::begins(210, Some(&text), &[by("a")], 1).waits().0, left(150));
    assert_eq!(TestLeader::begins(210, Some(&text), &[by("b")], 1).waits().0, left(300), "it began in between");
    let silent = MarkedVolume { process: None, ..by("a") };
    assert_eq!(TestLeader::begins(210, Some(&text), &[silent], 1).waits().0, left(300), "it does not say");
    let repeated = MarkedVolume { unconfirmed: by("a").losses, ..by("a") };
    assert_eq!(TestLeader::begins(0, None, std::slice::from_ref(&repeated), 1).watches(200).leaves(), None);
    let mut next = TestLeader::begins(210, Some(&text), &[repeated], 1);
    assert!(next.past.seen.is_empty());
    next.volumes = vec![by("a")];
    assert_eq!(next.watches(10).waits().0, left(300), "nobody knew while this leader began");
}

#[test]
fn point_4_of_a_node_that_is_gone_nothing_is_taken_over() {
    for home in [HomeState::Gone, HomeState::Silent, HomeState::NotReady] {
        let gone = MarkedVolume { home, losses: BTreeSet::from([HealthReason::NodeGone]), ..lost("db", 1) };
        let ready = lost("db", 2);
        // While an agent is silent, that its node was gone says nothing: no time runs at all.
        let takes_nothing = |next: &TestLeader| match home {
            HomeState::Silent => !next.past.seen.contains_key(&gone.uid),
            HomeState::Gone | HomeState::NotReady | HomeState::Ready | HomeState::Fenced => {
                next.past.seen.get(&gone.uid) == Some(&left(300))
            }
        };
        let both = [gone.clone(), ready.clone()];
        assert_eq!(TestLeader::begins(0, None, std::slice::from_ref(&gone), 1).watches(200).leaves(), None);
        let text = left_after(200, &both, 1);
        let next = TestLeader::begins(210, Some(&text), &both, 1);
        assert_eq!(next.past.seen[&ready.uid], left(150), "{home:?}");
        assert!(takes_nothing(&next), "{home:?}");
        // Nor if the leader before has seen its node otherwise.
        let before = MarkedVolume { home: HomeState::Ready, losses: lost("db", 1).losses, ..gone.clone() };
        let text = left_after(200, &[before], 1);
        assert!(takes_nothing(&TestLeader::begins(210, Some(&text), std::slice::from_ref(&gone), 1)), "{home:?}");
    }
}

#[test]
fn point_5_while_another_node_has_the_disk_no_time_counts_for_either_leader() {
    let here = lost("db", 1);
    let elsewhere = MarkedVolume { is_elsewhere: true, ..here.clone() };
    let mut leader = TestLeader::begins(0, None, std::slice::from_ref(&elsewhere), 1);
    assert_eq!(leader.watches(200).leaves(), None);
    assert!(leader.past.seen.is_empty());
    leader.volumes = vec![here.clone()];
    assert_eq!(leader.watches(10).waits().0, left(300));
    let text = left_after(200, std::slice::from_ref(&here), 1);
    let mut next = TestLeader::begins(210, Some(&text), &[elsewhere], 1);
    next.volumes = vec![here];
    assert_eq!(next.watches(10).waits().0, left(300));
}

#[test]
fn point_6_a_jump_of_all_clocks_holds_the_next_leader_too() {
    let lost = [lost("db", 1)];
    let mut leader = TestLeader::begins(0, None, &lost, 1);
    leader.watches(200).pass(3610, 10);
    assert_eq!(leader.past.clock, left(300));
    let text = leader.watches(20).leaves().expect("one");
    let mut next = TestLeader::begins(3600 + 240, Some(&text), &lost, 1);
    assert_eq!(next.waits().0, left(150));
    assert_eq!(next.past.clock, left(280));
    let text = next.watches(30).leaves().expect("one");
    assert_eq!(TestLeader::begins(3600 + 280, Some(&text), &lost, 1).past.clock, left(250));
}

#[test]
fn point_6_a_jump_between_two_leaders_makes_no_time_of_an_object_older() {
    let lost = [lost("db", 1)];
    let text = left_after(200, &lost, 1);
    // Ten seconds, and a jump of forty.
    let mut next = TestLeader::begins(250, Some(&text), &lost, 1);
    assert_eq!(next.past.unwatched, secs(50));
    let text = next.watches(100).leaves().expect("one");
    let mut last = TestLeader::begins(350 + 40, Some(&text), &lost, 1);
    assert_eq!(last.past.unwatched, secs(90), "of both gaps");
    assert_eq!(last.watches(290).past.unwatched, secs(90));
    assert_eq!(last.watches(10).past.unwatched, SignedDuration::ZERO, "it has watched for the interval itself");
    assert_eq!(
        TestLeader::begins(261, Some(&left_after(200, &lost, 1)), &lost, 1).past.unwatched,
        SignedDuration::ZERO
    );
}

#[test]
fn point_7_without_trust_each_leader_counts_for_itself_and_acts_later() {
    let hour = ReactionSettings { recover_after: SignedDuration::from_hours(1), ..settings() };
    let lost = [lost("db", 1)];
    let text = left_after(200, &lost, 1);
    // Its clock is behind that of the leader before, for good.
    let mut next = TestLeader::with(&hour, -4000, Some(&text), &lost, 1);
    assert_eq!(next.waits(), (left(3600), left(3600)));
    assert_eq!(next.watches(3600).waits(), (YES, YES));
}

#[test]
fn point_9_a_leader_watches_longer_than_kubernetes_needs_to_see_a_dead_node() {
    let (lease, retry, grace, period) = (15, 2, 50, 5);
    assert!(OWN_WATCH.0 >= secs(2 * (lease + retry + grace + period)));
    let lost = [lost("db", 1)];
    let text = left_after(3600, &lost, 1);
    let mut next = TestLeader::begins(3610, Some(&text), &lost, 1);
    assert_eq!(next.waits(), (left(150), left(150)));
    // The nodes of the rack that died with the leader are seen at last.
    next.watches(140).bad = 8;
    assert_eq!(next.watches(10).waits(), (YES, left(300)));
    // Whoever has a longer grace has a longer interval. A shorter one leaves nothing to take over.
    let minutes = SignedDuration::from_mins;
    let watches = [1, 5, 12, 60].map(|interval| own_watch(minutes(interval)));
    assert_eq!(watches, [secs(150), secs(150), minutes(6), minutes(10)]);
    let minute = ReactionSettings { recover_after: SignedDuration::from_mins(1), ..settings() };
    assert_eq!(TestLeader::with(&minute, 3610, Some(&text), &lost, 1).waits(), (left(60), left(60)));
}

#[test]
fn a_chain_of_leaders_that_are_each_shorter_than_the_interval_ends() {
    let hour = ReactionSettings { recover_after: SignedDuration::from_hours(1), ..settings() };
    let lost = [lost("db", 1)];
    let (mut wall, mut led, mut text, mut leaders) = (0, 0, None::<String>, 0);
    let waited = loop {
        let mut leader = TestLeader::with(&hour, wall, text.as_deref(), &lost, 1);
        leaders += 1;
        leader.watches(700);
        led += 700;
        wall += 700 + 30;
        if leader.waits() == (YES, YES) {
            break leader;
        }
        text = leader.leaves();
    };
    assert_eq!((leaders, led), (6, 4200), "the last one within the hour");
    assert_eq!(waited.past.unwatched, secs(5 * 30));
}

#[test]
fn of_five_thousand_lost_volumes_those_that_were_lost_for_longest_fit() {
    let volumes: Vec<MarkedVolume> = (0..5000)
        .map(|number| MarkedVolume {
            uid: format!("00000000-0000-4000-8000-{number:012}").as_str().into(),
            ..lost("db", 1)
        })
        .collect();
    let mut leader = TestLeader::begins(0, None, &volumes[4000..], 1);
    leader.watches(100).volumes = volumes.clone();
    let text = leader.watches(100).leaves().expect("some");
    assert!(text.len() <= 64 << 10 && text.len() > 50 << 10, "{}", text.len());
    let next = TestLeader::begins(210, Some(&text), &volumes, 1);
    assert!(volumes[4000..].iter().all(|volume| next.past.seen[&volume.uid] == left(150)));
    let carried = |wait| next.past.seen.values().filter(|seen| **seen == left(wait)).count();
    assert!(carried(210) > 0, "some of the others");
    assert_eq!(carried(150) + carried(210) + carried(300), 5000);
}

#[test]
fn what_has_ended_must_not_stay_in_what_was_left() {
    let both = [lost("db", 1), lost("db", 2)];
    let leader = |seconds, volumes: &[MarkedVolume], bad| {
        let mut leader = TestLeader::begins(0, None, volumes, bad);
        leader.watches(seconds);
        leader
    };
    let of = |leader: &TestLeader| Handover::read(&leader.leaves().expect("one")).expect("it is whole");
    let before = of(&leader(100, &both, 1));
    let goes_on = |leader: &TestLeader| of(leader).goes_on_from(&before);
    assert!(goes_on(&leader(100, &both, 1)) && goes_on(&leader(110, &both, 1)));
    let mut well = leader(100, &both, 1);
    well.volumes.pop();
    assert!(!goes_on(well.watches(10)), "one is well");
    well.volumes = both.to_vec();
    assert!(!goes_on(well.watches(10)), "it was well");
    let mut many = leader(100, &both, 1);
    many.bad = 8;
    assert!(!goes_on(many.watches(10)));
    let mut jumped = leader(100, &both, 1);
    jumped.pass(100, 10);
    assert!(!goes_on(&jumped));
}

#[test]
fn nothing_is_left_of_volumes_that_are_never_moved() {
    let mut volume = lost("db", 1);
    volume.class.is_chosen = false;
    assert_eq!(TestLeader::begins(0, None, &[volume], 1).watches(200).leaves(), None);
    let well = MarkedVolume { losses: [].into(), ..lost("db", 1) };
    assert_eq!(TestLeader::begins(0, None, &[well], 1).watches(200).leaves(), None);
}
