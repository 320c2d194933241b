//! The health of disks and volumes as objects show it, and back, and what is new in it. Pure but for the time of what is
//! new.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;

use super::event::EventNote;

use crate::api::crd::HealthEntry;
use crate::health::{Condition, Finding, HealthReason};

/// What is wrong, for a status. What was there `before` keeps its time, through restarts of the agent too.
pub fn entries(before: &[HealthEntry], condition: &Condition) -> Vec<HealthEntry> {
    let entry = |Finding { reason, message, since }: &Finding| {
        let known = before.iter().find(|entry| entry.reason == reason.word()).and_then(|entry| entry.since.clone());
        HealthEntry {
            reason: reason.to_string(),
            severity: reason.severity().word().to_owned(),
            message: message.clone(),
            since: Some(known.unwrap_or_else(|| whole_seconds(since.unwrap_or_else(Timestamp::now)))),
        }
    };
    condition.findings().iter().map(entry).collect()
}

/// The time of what is new.
pub fn now() -> Time {
    whole_seconds(Timestamp::now())
}

/// As the API server stores it: what is compared with it later must be equal.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// What a status says is wrong.
pub fn condition(entries: &[HealthEntry]) -> Condition {
    let finding = |entry: &HealthEntry| Finding {
        reason: HealthReason::from(entry.reason.clone()),
        message: entry.message.clone(),
        since: entry.since.as_ref().map(|time| time.0),
    };
    Condition::of(entries.iter().map(finding).collect())
}

/// An Event for each reason that is new, and one if nothing is wrong any more. One that keeps its reason and has another
/// sentence is none.
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
        };
        let (hot, worn) = (entry("DiskTemperature", "hot"), entry("DiskWornOut", "worn"));
        let recovered = EventNote { type_: EventType::Normal, reason: "Recovered".to_owned(), note: "well".to_owned() };
        let words = |before: &[HealthEntry], now: &[HealthEntry]| -> Vec<String> {
            let events = events(before, now, recovered.clone());
            events.iter().map(|event| format!("{:?} {} {}", event.type_, event.reason, event.note)).collect()
        };
        assert_eq!(words(&[], &[]), [] as [String; 0]);
        assert_eq!(words(&[], std::slice::from_ref(&hot)), ["Warning DiskTemperature hot"]);
        assert_eq!(words(std::slice::from_ref(&hot), &[hot.clone(), worn.clone()]), ["Warning DiskWornOut worn"]);
        assert_eq!(words(&[hot.clone(), worn.clone()], &[entry("DiskWornOut", "more worn")]), [] as [String; 0]);
        assert_eq!(words(&[worn], &[]), ["Normal Recovered well"]);
    }

    #[test]
    fn what_goes_on_keeps_its_time_and_what_is_new_has_its_own() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let finding = |reason, since| Finding { since: Some(since), ..Finding::new(reason, "words") };
        let first = entries(&[], &finding(HealthReason::DiskMissing, at(100)).into());
        let both = vec![finding(HealthReason::DiskMissing, at(200)), finding(HealthReason::DiskTemperature, at(200))];
        let second = entries(&first, &Condition::of(both));
        let times: Vec<_> = second.iter().map(|entry| entry.since.as_ref().map(|time| time.0.as_second())).collect();
        assert_eq!(times, [Some(100), Some(200)]);
        assert_eq!(second[1].severity, "Degraded");
        assert_eq!(condition(&second).word(), "DiskMissing");
        assert_eq!(condition(&[]), Condition::default());
    }

    #[test]
    fn a_word_of_a_later_agent_comes_through() {
        let later = HealthEntry {
            reason: "Cursed".to_owned(),
            severity: "DataLoss".to_owned(),
            message: "m".to_owned(),
            since: None,
        };
        assert_eq!(condition(&[later]).word(), "Cursed");
    }
}
