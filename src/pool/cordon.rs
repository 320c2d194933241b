//! Which disks of the pool take no new volumes, and why. Values only.
//!
//! Takes in what checkups judge and what a person chooses; a choice counts more. A cordon concerns new volumes: those
//! that the disk has, or that it was already named for, are made, grow and are deleted as always.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::device::DiskId;

/// A disk that becomes unfit again so soon after its cordon ended is on probation then: one that hangs now and then
/// would otherwise change what its node offers each time.
const RELAPSE: Duration = Duration::from_secs(3600);
/// How long a disk on probation must be fit before its cordon ends.
const PROBATION: Duration = Duration::from_secs(600);

/// What is said of a disk that a person gave up, and that is back. Goes on after its name.
pub const WAS_GIVEN_UP: &str = "was given up while it was missing, and is back";

/// What a person has chosen for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CordonChoice {
    Cordoned,
    /// By an order that takes the disk out of service.
    Ordered,
    /// Whatever checkups find.
    Open,
}

/// What a checkup makes of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    Fit,
    /// In words for people.
    Unfit(String),
    /// It has not answered yet, or is away: what was known before counts.
    NotKnown,
}

/// Why a disk takes no new volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// A person has chosen so.
    Chosen,
    /// A person has ordered something that takes the disk out of service.
    Ordered,
    /// A checkup found it unfit: what it found, as text.
    Unfit(String),
    /// It is fit, but was unfit several times lately: what was found, as text.
    Probation(String),
    /// It was given up while it was away, and is back: a person decides what becomes of it, and of what is on it.
    GivenUp,
}

impl Cordon {
    /// Who cordons disks, as the label of a metric.
    pub const CAUSES: [&'static str; 2] = ["person", "health"];

    /// Who has cordoned the disk.
    pub fn cause(&self) -> &'static str {
        let [person, health] = Self::CAUSES;
        match self {
            Self::Chosen | Self::Ordered | Self::GivenUp => person,
            Self::Unfit(_) | Self::Probation(_) => health,
        }
    }
}

impl fmt::Display for Cordon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("a person has cordoned it"),
            Self::Ordered => f.write_str("a person has ordered Drain, Release or GiveUp for it"),
            Self::Unfit(why) => f.write_str(why),
            Self::GivenUp => write!(
                f,
                "GivenUp: it {WAS_GIVEN_UP}; its volumes are kept, and not used: the order Adopt, or `localpool disk adopt`, \
                 takes it back with them"
            ),
            Self::Probation(why) => {
                let minutes = PROBATION.as_secs() / 60;
                write!(
                    f,
                    "{why} (this comes and goes: the cordon ends when the disk has been well for {minutes} minutes)"
                )
            }
        }
    }
}

/// Why an earlier process found a disk unfit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierCordon {
    /// In one word.
    pub what: String,
    /// As text, with that word.
    pub why: String,
}

/// The cordons of a pool.
#[derive(Debug, Default)]
pub struct Cordons(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    judged: BTreeMap<DiskId, Judged>,
    /// What an earlier process found and nobody has confirmed or ended yet, the worst first.
    earlier: BTreeMap<DiskId, Vec<EarlierCordon>>,
    /// What nobody has answered this process about, by word. A disk that is not named was not looked at yet.
    in_question: BTreeMap<DiskId, BTreeSet<&'static str>>,
    chosen: BTreeMap<DiskId, CordonChoice>,
}

/// What checkups have made of a disk.
#[derive(Debug)]
enum Judged {
    /// And when its last cordon ended.
    Fit { opened: Option<Duration> },
    /// Why, for how long it must be fit, and since when it is.
    Unfit { why: String, probation: Duration, fit_since: Option<Duration> },
}

impl Judged {
    /// What one more checkup makes of it.
    fn after(self, fitness: Fitness, now: Duration) -> Self {
        match (self, fitness) {
            (Self::Fit { opened }, Fitness::Unfit(why)) => {
                let is_relapse = opened.is_some_and(|opened| now.saturating_sub(opened) < RELAPSE);
                let probation = if is_relapse { PROBATION } else { Duration::ZERO };
                Self::Unfit { why, probation, fit_since: None }
            }
            (Self::Unfit { probation, .. }, Fitness::Unfit(why))
            | (Self::Unfit { why, probation, .. }, Fitness::NotKnown) => {
                Self::Unfit { why, probation, fit_since: None }
            }
            (Self::Unfit { why, probation, fit_since }, Fitness::Fit) => {
                let since = fit_since.unwrap_or(now);
                match now.saturating_sub(since) >= probation {
                    true => Self::Fit { opened: Some(now) },
                    false => Self::Unfit { why, probation, fit_since: Some(since) },
                }
            }
            (fit @ Self::Fit { .. }, Fitness::Fit | Fitness::NotKnown) => fit,
        }
    }
}

impl Known {
    fn of(&self, disk: &DiskId) -> Option<Cordon> {
        match (self.chosen.get(disk), self.judged.get(disk)) {
            (Some(CordonChoice::Cordoned), _) => Some(Cordon::Chosen),
            (Some(CordonChoice::Ordered), _) => Some(Cordon::Ordered),
            (Some(CordonChoice::Open), _) => None,
            (None, None | Some(Judged::Fit { .. })) => {
                self.earlier.get(disk)?.first().map(|earlier| Cordon::Unfit(earlier.why.clone()))
            }
            (None, Some(Judged::Unfit { why, fit_since: None, .. })) => Some(Cordon::Unfit(why.clone())),
            (None, Some(Judged::Unfit { why, fit_since: Some(_), .. })) => Some(Cordon::Probation(why.clone())),
        }
    }

    fn cordoned(&self) -> BTreeMap<DiskId, Cordon> {
        let disks = self.judged.keys().chain(self.earlier.keys()).chain(self.chosen.keys());
        disks.filter_map(|disk| Some((disk.clone(), self.of(disk)?))).collect()
    }
}

impl Cordons {
    /// What a checkup makes of all disks of the pool, at this monotonic time. Gives whether any cordon is another one
    /// now, as all that change them do.
    pub fn judge(&self, disks: BTreeMap<DiskId, Fitness>, now: Duration) -> bool {
        self.change(|known| {
            known.judged.retain(|disk, _| disks.contains_key(disk));
            for (disk, fitness) in disks {
                match (known.judged.remove(&disk), fitness) {
                    (None, Fitness::NotKnown) => {}
                    (before, fitness) => {
                        known.judged.insert(disk, before.unwrap_or(Judged::Fit { opened: None }).after(fitness, now));
                    }
                }
            }
        })
    }

    /// What nobody has answered this process about, for each disk of the pool, in the words of [`EarlierCordon`]. What
    /// an earlier process found of all else ends, as if this one had found it until now.
    pub fn hear(&self, in_question: BTreeMap<DiskId, BTreeSet<&'static str>>, now: Duration) -> bool {
        self.change(|known| {
            known.in_question = in_question;
            let Known { judged, earlier, in_question, .. } = known;
            earlier.retain(|disk, all| {
                let open = in_question.get(disk);
                all.retain(|one| open.is_some_and(|open| open.contains(one.what.as_str())));
                if let (true, Some(ended @ Judged::Fit { .. })) = (all.is_empty(), judged.get_mut(disk)) {
                    *ended = Judged::Fit { opened: Some(now) };
                }
                !all.is_empty()
            });
        })
    }

    /// What an earlier process made of disks: it counts until somebody has answered this one about it.
    pub fn remember(&self, unfit: BTreeMap<DiskId, Vec<EarlierCordon>>) -> bool {
        self.change(|known| {
            for (disk, mut all) in unfit {
                let open = known.in_question.get(&disk);
                all.retain(|one| open.is_none_or(|open| open.contains(one.what.as_str())));
                if !all.is_empty() {
                    known.earlier.insert(disk, all);
                }
            }
        })
    }

    /// All that persons choose. A disk that is not named is as checkups judge it.
    pub fn choose(&self, chosen: BTreeMap<DiskId, CordonChoice>) -> bool {
        self.change(|known| known.chosen = chosen)
    }

    /// Why a disk takes no new volumes; `None`: it takes some.
    pub fn of(&self, disk: &DiskId) -> Option<Cordon> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).of(disk)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) -> bool {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.cordoned();
        change(&mut known);
        known.cordoned() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;
    const SECOND: Duration = Duration::from_secs(1);

    fn disk(name: &str) -> DiskId {
        DiskId::named(name)
    }

    fn unfit(why: &str) -> Fitness {
        Fitness::Unfit(why.to_owned())
    }

    fn because(why: &str) -> Option<Cordon> {
        Some(Cordon::Unfit(why.to_owned()))
    }

    #[test]
    fn a_person_decides_and_otherwise_the_last_checkup_that_had_an_answer() {
        let cordons = Cordons::default();
        let of = || (cordons.of(&disk("a")), cordons.of(&disk("b")));
        assert!(cordons.judge([(disk("a"), unfit("it fails")), (disk("b"), Fitness::Fit)].into(), START));
        assert_eq!(of(), (because("it fails"), None));
        assert!(cordons.choose([(disk("a"), CordonChoice::Open), (disk("b"), CordonChoice::Cordoned)].into()));
        assert_eq!(of(), (None, Some(Cordon::Chosen)));
        let both_unfit = [(disk("a"), unfit("it is slow")), (disk("b"), unfit("it fails"))];
        assert!(!cordons.judge(both_unfit.into(), START), "overridden");
        assert!(cordons.choose(BTreeMap::new()));
        assert_eq!(of(), (because("it is slow"), because("it fails")));
        let both_away = [(disk("a"), Fitness::NotKnown), (disk("b"), Fitness::NotKnown)];
        assert!(!cordons.judge(both_away.into(), START));
        assert!(cordons.judge([(disk("a"), Fitness::NotKnown)].into(), START));
        assert_eq!(of(), (because("it is slow"), None), "b is no disk of the pool any more");
    }

    #[test]
    fn a_cordon_ends_with_its_cause_and_of_one_that_comes_and_goes_after_ten_good_minutes_in_a_row() {
        let cordons = Cordons::default();
        let judge = |fitness, at| cordons.judge([(disk("a"), fitness)].into(), at);
        let of = || cordons.of(&disk("a"));
        assert!(judge(unfit("it hangs"), START) && judge(Fitness::Fit, SECOND), "the first time");
        for minute in 1..30 {
            let at = minute * 60 * SECOND;
            judge(if minute % 9 == 1 { unfit("it hangs") } else { Fitness::Fit }, at);
            assert!(of().is_some(), "minute {minute}");
        }
        let well = 29 * 60 * SECOND;
        assert!(!judge(Fitness::Fit, well + PROBATION - SECOND));
        assert!(of().is_some_and(|cordon| cordon.to_string().ends_with("well for 10 minutes)")), "{:?}", of());
        assert!(judge(Fitness::Fit, well + PROBATION));
        assert_eq!(of(), None);
        let later = well + PROBATION + RELAPSE;
        assert!(judge(unfit("it hangs"), later) && judge(Fitness::Fit, later), "that was long ago");

        judge(unfit("it hangs"), later);
        judge(Fitness::Fit, later);
        judge(Fitness::NotKnown, later + PROBATION);
        judge(Fitness::Fit, later + PROBATION);
        assert!(of().is_some(), "it was away in between");
    }

    fn found(words: &[&str]) -> BTreeMap<DiskId, Vec<EarlierCordon>> {
        let one = |what: &&str| EarlierCordon { what: (*what).to_owned(), why: format!("{what}: it was so") };
        [(disk("a"), words.iter().map(one).collect())].into()
    }

    /// One checkup, after which nobody has answered about these.
    fn looked(cordons: &Cordons, fitness: Fitness, in_question: &[&'static str], at: Duration) -> bool {
        let judged = cordons.judge([(disk("a"), fitness)].into(), at);
        cordons.hear([(disk("a"), in_question.iter().copied().collect())].into(), at) | judged
    }

    #[test]
    fn what_an_earlier_process_found_counts_until_somebody_has_answered_this_one_about_it() {
        for is_late in [false, true] {
            let cordons = Cordons::default();
            let of = || cordons.of(&disk("a"));
            // The DevicePool may be read before the first checkup or after it.
            if is_late {
                assert!(!looked(&cordons, Fitness::Fit, &["Fails", "Hangs"], START));
            }
            assert!(cordons.remember(found(&["Hangs", "Fails"])) && !cordons.remember(found(&["Hangs", "Fails"])));
            assert_eq!(of(), because("Hangs: it was so"));
            assert!(!looked(&cordons, Fitness::NotKnown, &["Fails", "Hangs"], START));
            assert!(!looked(&cordons, Fitness::Fit, &["Fails", "Hangs"], START), "fit as far as it was asked");
            assert!(looked(&cordons, Fitness::Fit, &["Fails"], START));
            assert_eq!(of(), because("Fails: it was so"), "it has ended each question, and reported nothing");
            assert!(looked(&cordons, Fitness::Fit, &[], START));
            assert!(!cordons.remember(found(&["Fails"])), "this process knows better");
            assert_eq!(of(), None);
            assert!(looked(&cordons, unfit("it hangs"), &[], SECOND) && looked(&cordons, Fitness::Fit, &[], SECOND));
            assert!(of().is_some_and(|why| why.to_string().contains("comes and goes")), "the second time in an hour");
        }
    }

    #[test]
    fn a_disk_that_is_unfit_or_on_probation_stays_closed_for_what_was_found_before_too() {
        let cordons = Cordons::default();
        let of = || cordons.of(&disk("a"));
        for at in [START, SECOND] {
            looked(&cordons, unfit("it hangs"), &["Fails"], at);
            looked(&cordons, Fitness::Fit, &["Fails"], at);
        }
        assert!(matches!(of(), Some(Cordon::Probation(_))));
        cordons.remember(found(&["Fails"]));
        assert!(looked(&cordons, Fitness::Fit, &["Fails"], SECOND + PROBATION), "its probation ends");
        assert_eq!(of(), because("Fails: it was so"), "and nobody has answered");
        assert!(cordons.choose([(disk("a"), CordonChoice::Open)].into()));
        assert!(!looked(&cordons, Fitness::Fit, &[], SECOND + PROBATION) && of().is_none());
        assert!(!cordons.choose(BTreeMap::new()) && of().is_none(), "it has ended meanwhile");
    }
}
