//! The health of disks and volumes as objects show it, and back, and what is new in it. Pure but for the
//! time of what is new.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;

use crate::operator::event::EventNote;
use crate::operator::status::second::to_second;

use crate::api::crd::HealthEntry;
use crate::health::{Condition, Finding, FoundBy, HealthReason, LossScope};

/// What is wrong, for a status. What was there `before` keeps its time, through restarts of the agent too. `by` is the
/// process of the agent that writes it, which confirms the losses that it has found; `None`: the controller writes it.
pub fn entries(before: &[HealthEntry], condition: &Condition, by: Option<&str>) -> Vec<HealthEntry> {
    let entry = |Finding { reason, message, since, found_by }: &Finding| {
        let known = before.iter().find(|entry| entry.reason == reason.word()).and_then(|entry| entry.since.clone());
        HealthEntry {
            reason: reason.to_string(),
            severity: reason.severity().word().to_owned(),
            message: message.clone(),
            since: Some(known.unwrap_or_else(|| Time(to_second(since.unwrap_or_else(Timestamp::now))))),
            confirmed_by: match found_by {
                FoundBy::Itself => by.filter(|_| is_confirmed(reason)).map(str::to_owned),
                FoundBy::Told(confirmed_by) => confirmed_by.clone(),
            },
        }
    };
    condition.findings().iter().map(entry).collect()
}

/// What is wrong now, and what the object had `before`, as long as nobody has answered the process `agent` about it. A
/// loss that this process has found itself is over with its finding: it would stay confirmed, though a disk that left
/// and came back has answered nothing yet.
pub fn after(now: &Condition, before: &[HealthEntry], agent: &str) -> Condition {
    let of_others = before.iter().filter(|entry| entry.confirmed_by.as_deref() != Some(agent));
    now.after(&condition(&of_others.cloned().collect::<Vec<_>>()))
}

/// Whether somebody needs to know that the agent has found it itself: it would be a write of each volume else.
fn is_confirmed(reason: &HealthReason) -> bool {
    match reason.loss() {
        LossScope::Own | LossScope::Paths => true,
        // The controller finds the latter itself.
        LossScope::Never | LossScope::All => false,
    }
}

/// The time of what is new.
pub fn now() -> Time {
    Time(to_second(Timestamp::now()))
}

/// What a status says is wrong.
pub fn condition(entries: &[HealthEntry]) -> Condition {
    let finding = |entry: &HealthEntry| Finding {
        reason: HealthReason::from(entry.reason.clone()),
        message: entry.message.clone(),
        since: entry.since.as_ref().map(|time| time.0),
        found_by: FoundBy::Told(entry.confirmed_by.clone()),
    };
    Condition::of(entries.iter().map(finding).collect())
}

/// An Event for each reason that is new, and one if nothing is wrong any more. One that keeps its reason and has
/// another sentence is none.
pub fn events(before: &[HealthEntry], now: &[HealthEntry], recovered: EventNote) -> Vec<EventNote> {
    let is_new = |entry: &&HealthEntry| before.iter().all(|known| known.reason != entry.reason);
    let warning = |entry: &HealthEntry| EventNote {
        type_: EventType::Warning,
        reason: entry.reason.clone(),
        note: entry.message.clone(),
    };
    let mut events: Vec<EventNote> = now.iter().filter(is_new).map(warning).collect();
    events.extend((now.is_empty() && !before.is_empty()).then_some(recovered));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_an_event_when_it_comes_and_so_is_health_when_the_last_reason_goes() {
        let entry = |reason: &str, message: &str| HealthEntry {
            reason: reason.to_owned(),
            severity: "Degraded".to_owned(),
            message: message.to_owned(),
            since: None,
            confirmed_by: None,
        };
        let (hot, worn) = (entry("DiskTemperature", "hot"), entry("DiskWornOut", "worn"));
        let recovered = EventNote { type_: EventType::Normal, reason: "Recovered".to_owned(), note: "well".to_owned() };
        let text = |before: &[HealthEntry], now: &[HealthEntry]| -> Vec<String> {
            let events = events(before, now, recovered.clone());
            events.iter().map(|event| format!("{:?} {} {}", event.type_, event.reason, event.note)).collect()
        };
        assert_eq!(text(&[], &[]), [] as [String; 0]);
        assert_eq!(text(&[], std::slice::from_ref(&hot)), ["Warning DiskTemperature hot"]);
        assert_eq!(text(std::slice::from_ref(&hot), &[hot.clone(), worn.clone()]), ["Warning DiskWornOut worn"]);
        assert_eq!(text(&[hot.clone(), worn.clone()], &[entry("DiskWornOut", "more worn")]), [] as [String; 0]);
        assert_eq!(text(&[worn], &[]), ["Normal Recovered well"]);
    }

    #[test]
    fn a_loss_outlasts_the_process_that_has_found_it_and_not_its_own_finding() {
        let lost = entries(&[], &Finding::new(HealthReason::DiskReadOnly, "it was so").into(), Some("a"));
        let nobody = Condition::default().unheard();
        let then = |agent: &str| entries(&lost, &after(&nobody, &lost, agent), Some(agent));
        assert_eq!(then("b"), lost, "nobody has answered the next process");
        assert_eq!(then("a"), [], "its disk came back as another device: no process confirms it");
        let worse = entries(&[], &Finding::new(HealthReason::DiskFailing, "it was so").into(), Some("a"));
        assert_eq!(entries(&worse, &after(&nobody, &worse, "a"), Some("a")), worse, "nothing follows from that");
    }

    #[test]
    fn what_goes_on_keeps_its_time_and_what_is_new_has_its_own() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let finding = |reason, since| Finding { since: Some(since), ..Finding::new(reason, "words") };
        let first = entries(&[], &finding(HealthReason::DiskMissing, at(100)).into(), Some("a"));
        let both = vec![finding(HealthReason::DiskMissing, at(200)), finding(HealthReason::DiskTemperature, at(200))];
        let second = entries(&first, &Condition::of(both), Some("b"));
        let times: Vec<_> = second.iter().map(|entry| entry.since.as_ref().map(|time| time.0.as_second())).collect();
        assert_eq!(times, [Some(100), Some(200)]);
        assert_eq!(second[1].severity, "Degraded");
        assert_eq!(condition(&second).word(), "DiskMissing");
        let confirmed = |all: &[HealthEntry]| all.iter().map(|one| one.confirmed_by.clone()).collect::<Vec<_>>();
        assert_eq!(confirmed(&second), [Some("b".to_owned()), None], "only a loss, and by whoever has found it");
        let told = entries(&second, &condition(&second), Some("c"));
        assert_eq!(told, second, "what an object says is nothing that this process has found");
        assert_eq!(condition(&[]), Condition::default());
    }

    #[test]
    fn a_word_of_a_later_agent_comes_through() {
        let later = HealthEntry {
            reason: "Cursed".to_owned(),
            severity: "DataLoss".to_owned(),
            message: "m".to_owned(),
            since: None,
            confirmed_by: None,
        };
        assert_eq!(condition(&[later]).word(), "Cursed");
    }
}
