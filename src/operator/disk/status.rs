//! What the DevicePool's status says of one disk. Pure but for the times of what is new.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;

use crate::api::crd::{DiskState, DiskStatus};
use crate::device::label::Layout;
use crate::health::{Condition, HEALTHY, HealthReason};
use crate::operator::disk::member::MEMBER;
use crate::operator::{bytes::signed, status::condition::condition, status::health};
use crate::pool::{CORDONED, DiskView, FAILING, Standing};

/// Type of the condition of a DevicePool that says whether all of its disks are healthy.
const DISKS_HEALTHY: &str = "DisksHealthy";
/// How many disks it names at most: its message stays the same size whatever happens to a shelf.
const MOST_NAMED: usize = 8;

/// The status of a disk. The state, its condition, and what is wrong with it, keep their times from `before`, the disks
/// of the status until now.
pub fn disk_status(view: &DiskView, condition: &Condition, before: &[DiskStatus], agent: &str) -> DiskStatus {
    let DiskView {
        id,
        path,
        model,
        layout,
        array: _,
        set,
        size,
        free,
        erasing,
        reserved,
        erasure: _,
        volumes,
        partitions: _,
        standing: _,
        host_mount,
        owned: _,
        busy: _,
        failing: _,
        array_problem: _,
        cordon,
    } = view;
    let (state, message) = state(view);
    let known = before.iter().find(|disk| disk.id == *id);
    let earlier = known.map(|disk| disk.health.clone()).unwrap_or_default();
    let conditions = known.map(|disk| disk.conditions.clone()).unwrap_or_default();
    let now = health::after(condition, &earlier, agent);
    let unchanged = known.filter(|disk| disk.state == state);
    let layout = match layout {
        Layout::Whole {} => "Whole",
        Layout::Slots { .. } => "Slots",
        Layout::Carved {} => "Carved",
        Layout::Directory { .. } => "Directory",
        Layout::Member(_) => MEMBER,
        Layout::RawDevice {} => "RawDevice",
    };
    DiskStatus {
        id: id.clone(),
        path: path.display().to_string(),
        model: model.clone(),
        layout: layout.to_owned(),
        set: set.to_string(),
        size: signed(*size),
        free: signed(*free),
        erasing: signed(*erasing),
        reserved: signed(*reserved),
        volumes: signed(*volumes),
        host_path: host_mount.path().map(|path| path.display().to_string()),
        state,
        // An agent of an earlier version wrote none.
        state_since: unchanged.and_then(|disk| disk.state_since.clone()).or_else(|| Some(health::now())),
        message,
        cordon: cordon.as_ref().map(ToString::to_string),
        // Whoever measures it says that.
        benchmark: None,
        health: health::entries(&earlier, &now, Some(agent)),
        conditions: vec![healthy(&conditions, &now)],
    }
}

/// Whether nothing is wrong with the disk.
fn healthy(before: &[KubeCondition], now: &Condition) -> KubeCondition {
    let message = if now.is_healthy() { "nothing is wrong with the disk".to_owned() } else { now.message() };
    condition(before, HEALTHY, now.is_healthy(), now.word(), message, None)
}

/// Whether all disks are healthy: the worst reason, and the disks.
pub fn disks_healthy(before: &[KubeCondition], disks: &[DiskStatus]) -> KubeCondition {
    let worst = |disk: &DiskStatus| disk.health.first().map(|entry| HealthReason::from(entry.reason.clone()));
    let mut sick: Vec<(HealthReason, &DiskStatus)> =
        disks.iter().filter_map(|disk| Some((worst(disk)?, disk))).collect();
    sick.sort_by_key(|(reason, disk)| (Reverse(reason.severity()), reason.clone(), disk.id.clone()));
    let Some((reason, _)) = sick.first() else {
        return condition(before, DISKS_HEALTHY, true, HEALTHY, "nothing is wrong with any disk", None);
    };
    let mut named: Vec<String> =
        sick.iter().take(MOST_NAMED).map(|(reason, disk)| format!("{} {reason}", disk.id)).collect();
    named.extend(sick.len().checked_sub(MOST_NAMED + 1).map(|more| format!("and {} more", more + 1)));
    let message = format!("{} of {} disks: {}", sick.len(), disks.len(), named.join(", "));
    condition(before, DISKS_HEALTHY, false, reason.word(), message, None)
}

/// Whether the disk can be used, and what a person should know.
fn state(view: &DiskView) -> (DiskState, Option<String>) {
    let of_array = || view.array_problem.iter().cloned();
    let told = |messages: Vec<String>| (!messages.is_empty()).then(|| messages.join("; "));
    match &view.standing {
        Standing::Ready if !view.owned => {
            let message = format!("its set {} does not exist: it offers no space", view.set);
            (DiskState::Ready, told([message].into_iter().chain(of_array()).collect()))
        }
        Standing::Ready => {
            let failing = view.failing.as_ref().map(|why| format!("{FAILING}: {why}"));
            let cordon = view.cordon.as_ref().map(|why| format!("{CORDONED}: {why}"));
            let unmounted = view.host_mount.problem().map(str::to_owned);
            let messages = of_array().chain(view.busy.iter().cloned()).chain(unmounted).chain(failing).chain(cordon);
            (DiskState::Ready, told(messages.collect()))
        }
        Standing::NotReady(why) => (DiskState::NotReady, told([why.clone()].into_iter().chain(of_array()).collect())),
        Standing::Missing => (DiskState::Missing, Some(missing(view))),
    }
}

fn missing(view: &DiskView) -> String {
    match (&view.array_problem, view.array) {
        // To give up the array alone leaves the member missing.
        (Some(why), Some(_)) => format!(
            "it is an array that does not run: {why}. If a member is lost for good, give up that member: order GiveUp for it in \
             spec.disks, or run `localpool disk give-up` with its id in the agent's pod"
        ),
        _ => format!(
            "it is not there; is it unplugged or dead? Order GiveUp for it in spec.disks, or run `localpool disk give-up {}` in \
             the agent's pod, to give it up",
            view.id
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::crd::HealthEntry;
    use crate::claim::sample::rule;
    use crate::device::DiskId;
    use crate::health::{AnswerOf, Board, CheckupResult, Face, Finding, REASONS};
    use crate::operator::recorded_failures::{RecordedFailure, words};
    use crate::pool::KnownDisk;
    use crate::pool::sample::known_disk;

    fn known() -> KnownDisk {
        KnownDisk { set: rule("a").set, ..known_disk() }
    }

    fn standing(standing: Standing) -> DiskView {
        DiskView { standing, ..DiskView::absent(DiskId::named("gpt-1"), known()) }
    }

    #[test]
    fn the_time_of_a_state_moves_only_with_the_state_and_a_restart_keeps_it() {
        let long_ago = Some(Time(Timestamp::UNIX_EPOCH));
        let of = |view: &DiskView, before: &[DiskStatus]| disk_status(view, &Condition::default(), before, "a");
        let first = of(&standing(Standing::Ready), &[]);
        assert!(first.state_since.as_ref().is_some_and(|since| since.0.subsec_nanosecond() == 0), "{first:?}");
        let written = [DiskStatus { state_since: long_ago.clone(), ..first.clone() }];
        let sick = Condition::of(vec![Finding::new(HealthReason::DiskFailing, "words")]);
        assert_eq!(disk_status(&standing(Standing::Ready), &sick, &written, "a").state_since, long_ago);
        let missing = of(&standing(Standing::Missing), &written);
        assert!(missing.state_since > long_ago, "{missing:?}");
        let by_an_earlier_version = [DiskStatus { state_since: None, ..first }];
        assert!(of(&standing(Standing::Ready), &by_an_earlier_version).state_since.is_some());
    }

    #[test]
    fn an_array_that_cannot_be_used_says_why_at_itself_and_at_each_member() {
        let why = "these cannot be used now: gpt-2 (member 2)";
        let of = |view: DiskView| {
            let view = DiskView { array_problem: Some(why.to_owned()), ..view };
            disk_status(&view, &Condition::default(), &[], "a").message.unwrap_or_default()
        };
        let array = || Some(uuid::Uuid::nil());
        assert_eq!(of(standing(Standing::Ready)), why, "a member that is well");
        assert_eq!(of(standing(Standing::NotReady("torn".to_owned()))), format!("torn; {why}"));
        let missing = of(DiskView { array: array(), ..standing(Standing::Missing) });
        assert!(
            missing.starts_with(&format!(
                "it is an array that does not run: {why}. If a member is lost for good, give up that"
            )),
            "{missing}"
        );
        assert!(
            of(standing(Standing::Missing)).starts_with("it is not there; is it unplugged"),
            "a member that is away"
        );
    }

    #[test]
    fn a_disk_says_since_when_it_is_healthy_or_not_and_nothing_of_that_moves_while_nothing_changes() {
        let view = standing(Standing::Ready);
        let of = |reasons: &[HealthReason], before: &[DiskStatus]| {
            let all = reasons.iter().map(|reason| Finding::new(reason.clone(), format!("{reason} it is"))).collect();
            disk_status(&view, &Condition::of(all), before, "a")
        };
        let said = |disk: &DiskStatus| {
            let [condition] = &disk.conditions[..] else { panic!("one condition: {:?}", disk.conditions) };
            assert_eq!(condition.type_, "Healthy");
            (condition.status.clone(), condition.reason.clone(), condition.message.clone())
        };
        let owned =
            |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
        let since = |disk: &DiskStatus| disk.conditions[0].last_transition_time.clone();
        let long_ago = |disk: &DiskStatus| {
            let mut disk = disk.clone();
            disk.conditions[0].last_transition_time = Time(Timestamp::UNIX_EPOCH);
            disk
        };
        let well = long_ago(&of(&[], &[]));
        assert_eq!(said(&well), owned("True", "Healthy", "nothing is wrong with the disk"));
        assert_eq!(of(&[], std::slice::from_ref(&well)), well, "nothing has changed");
        let worn = of(&[HealthReason::DiskWornOut], std::slice::from_ref(&well));
        assert_eq!(said(&worn), owned("False", "DiskWornOut", "DiskWornOut it is"));
        assert!(since(&worn) > since(&well), "{worn:?}");
        let worn = long_ago(&worn);
        assert_eq!(of(&[HealthReason::DiskWornOut], std::slice::from_ref(&worn)), worn, "nothing has changed");
        let both = of(&[HealthReason::DiskWornOut, HealthReason::DiskReadOnly], std::slice::from_ref(&worn));
        assert_eq!(said(&both), owned("False", "DiskReadOnly", "DiskReadOnly it is; DiskWornOut it is"));
        assert_eq!(since(&both), since(&worn), "it was not healthy before");
        let again = of(&[], &[long_ago(&both)]);
        assert!(said(&again).0 == "True" && since(&again) > since(&worn), "since when it is healthy again: {again:?}");
        let by_an_earlier_version = DiskStatus { conditions: Vec::new(), ..well };
        assert_eq!(said(&of(&[], &[by_an_earlier_version])).0, "True");
    }

    /// The chain from a real kernel to the DevicePool: the vm tier holds the reasons, this what becomes of them.
    #[test]
    fn what_each_failure_on_a_real_kernel_reports_is_in_the_device_pool_until_its_repair() {
        for failure in RecordedFailure::all() {
            let mut before = Vec::new();
            for found in failure.of_disk() {
                let disk = disk_status(&standing(Standing::Ready), &found, &before, "a");
                let listed: Vec<String> = disk.health.iter().map(|entry| entry.reason.clone()).collect();
                assert_eq!(listed, words(&found), "{}", failure.name());
                let severities = disk.health.iter().map(|entry| entry.severity.as_str());
                let wanted = found.findings().iter().map(|finding| finding.reason.severity().word());
                assert!(severities.eq(wanted), "{}: {disk:?}", failure.name());
                let wanted = match listed.first() {
                    Some(worst) => ("False", worst.as_str()),
                    None => ("True", "Healthy"),
                };
                let pool = disks_healthy(&[], std::slice::from_ref(&disk));
                for said in [&disk.conditions[0], &pool] {
                    assert_eq!((said.status.as_str(), said.reason.as_str()), wanted, "{}", failure.name());
                }
                before = vec![disk];
            }
        }
    }

    #[test]
    fn a_pool_says_the_worst_of_its_disks_and_names_a_few_of_them() {
        let disk = |id: &str, reasons: &[HealthReason]| {
            let all = reasons.iter().map(|reason| Finding::new(reason.clone(), "words")).collect();
            let view = DiskView::absent(DiskId::named(id), known());
            DiskStatus { state: DiskState::Ready, ..disk_status(&view, &Condition::of(all), &[], "a") }
        };
        let word =
            |condition: &KubeCondition| (condition.status.clone(), condition.reason.clone(), condition.message.clone());
        let owned =
            |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
        for row in REASONS.iter().filter(|row| row.faces().contains(&Face::Disk)) {
            let reason = HealthReason::from(row.word.to_owned());
            let one = disks_healthy(&[], &[disk("gpt-1", &[reason])]);
            assert_eq!(word(&one), owned("False", row.word, &format!("1 of 1 disks: gpt-1 {}", row.word)));
        }
        let well = disks_healthy(&[], &[disk("gpt-1", &[])]);
        assert_eq!(word(&well), owned("True", "Healthy", "nothing is wrong with any disk"));
        assert_eq!(word(&disks_healthy(&[], &[])).0, "True");
        let worn = disk("gpt-1", &[HealthReason::DiskWornOut]);
        let gone = disk("gpt-2", &[HealthReason::DiskWornOut, HealthReason::DiskMissing]);
        let both = disks_healthy(std::slice::from_ref(&well), &[worn, gone, disk("gpt-3", &[])]);
        let message = "2 of 3 disks: gpt-2 DiskMissing, gpt-1 DiskWornOut";
        assert_eq!(word(&both), owned("False", "DiskMissing", message));
        let many: Vec<DiskStatus> =
            (10..30).map(|number| disk(&format!("gpt-{number}"), &[HealthReason::DiskMissing])).collect();
        let shelf = KubeCondition { last_transition_time: Time(Timestamp::UNIX_EPOCH), ..both };
        let many = disks_healthy(std::slice::from_ref(&shelf), &many);
        assert!(many.message.ends_with("gpt-17 DiskMissing, and 12 more"), "{}", many.message);
        assert_eq!(many.last_transition_time, shelf.last_transition_time, "it was False before");
        let nine: Vec<DiskStatus> =
            (0..9).map(|number| disk(&number.to_string(), &[HealthReason::DiskTemperature])).collect();
        assert!(disks_healthy(&[], &nine).message.ends_with("and 1 more"));
    }

    #[test]
    fn an_erasure_that_fails_is_in_the_message_and_in_the_health_and_keeps_its_time() {
        let failing = Some("bytes 0-512 could not be written".to_owned());
        let view = DiskView { standing: Standing::Ready, failing, ..DiskView::absent(DiskId::named("gpt-1"), known()) };
        let condition = Condition::of(Finding::of_disk(&view));
        let first = disk_status(&view, &condition, &[], "a");
        let message = first.message.clone().unwrap_or_default();
        assert!(first.state == DiskState::Ready && message.contains("is tried again: bytes 0-512"), "{message}");
        assert_eq!(first.health[0].reason, "BackgroundWorkFails");
        let long_ago = Some(Time(Timestamp::UNIX_EPOCH));
        let first = DiskStatus { health: vec![HealthEntry { since: long_ago, ..first.health[0].clone() }], ..first };
        assert_eq!(disk_status(&view, &condition, std::slice::from_ref(&first), "a"), first);
        assert_eq!(disk_status(&DiskView { failing: None, ..view }, &Condition::default(), &[first], "a").health, []);
    }

    #[test]
    fn what_an_earlier_agent_has_found_stays_until_the_disk_has_answered_this_one() {
        let view = DiskView { standing: Standing::Ready, ..DiskView::absent(DiskId::named("gpt-1"), known()) };
        let found = HealthEntry {
            reason: "DiskFailing".to_owned(),
            severity: "Degraded".to_owned(),
            message: "words".to_owned(),
            since: Some(Time(Timestamp::UNIX_EPOCH)),
            confirmed_by: None,
        };
        let gone = HealthEntry { reason: "DiskMissing".to_owned(), ..found.clone() };
        let before = disk_status(&view, &Condition::default(), &[], "a");
        let before = DiskStatus { health: vec![gone, found.clone()], ..before };
        let board = Board::default();
        let health = || disk_status(&view, &board.of_disk(&view), std::slice::from_ref(&before), "a").health;
        assert_eq!(health(), std::slice::from_ref(&found), "the pool knows that the disk is there");
        let look = |answers: &[AnswerOf]| {
            let answered_disks = [(view.id.clone(), answers.iter().copied().collect())].into();
            let change = board.update(
                CheckupResult { answered_disks, ..CheckupResult::default() },
                Timestamp::UNIX_EPOCH,
                Duration::ZERO,
            );
            !change.is_empty()
        };
        assert!(look(&[AnswerOf::Kernel]), "a change for those who waited for the first checkup");
        assert!(!look(&[AnswerOf::Kernel]) && health() == [found.clone()], "it has not reported");
        assert!(look(&[AnswerOf::Kernel, AnswerOf::Questions]) && health() == [found], "it has ended the question");
        assert!(look(&[AnswerOf::Kernel, AnswerOf::Questions, AnswerOf::Report]), "a change, though nothing is found");
        assert_eq!(health(), []);
    }
}
