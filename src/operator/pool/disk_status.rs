//! What the DevicePool's status says of one disk. Pure but for the times of what is new.

use crate::api::crd::{DiskState, DiskStatus};
use crate::device::label::Layout;
use crate::health::Condition;
use crate::operator::{bytes::signed, health};
use crate::pool::{CORDONED, DiskView, FAILING, Standing};

/// The status of a disk. What is wrong with it keeps its time from `before`, the disks of the status until now.
pub fn disk_status(view: &DiskView, condition: &Condition, before: &[DiskStatus]) -> DiskStatus {
    let DiskView {
        id,
        path,
        model,
        layout,
        set,
        size,
        free,
        erasing,
        erasure: _,
        volumes,
        partitions: _,
        standing: _,
        owned: _,
        held: _,
        failing: _,
        cordon,
    } = view;
    let (state, message) = state(view);
    let known = before.iter().find(|disk| disk.id == *id);
    let earlier = known.map(|disk| disk.health.clone()).unwrap_or_default();
    let layout = match layout {
        Layout::Whole {} => "Whole",
        Layout::Slots { .. } => "Slots",
        Layout::Carved {} => "Carved",
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
        volumes: signed(*volumes),
        state,
        message,
        cordon: cordon.as_ref().map(ToString::to_string),
        health: health::entries(&earlier, &condition.after(&health::condition(&earlier))),
    }
}

/// Whether the disk can be used, and what a person should know.
fn state(view: &DiskView) -> (DiskState, Option<String>) {
    match &view.standing {
        Standing::Ready if !view.owned => {
            let words = format!("its set {} does not exist: it offers no space", view.set);
            (DiskState::Ready, Some(words))
        }
        Standing::Ready => {
            let failing = view.failing.as_ref().map(|why| format!("{FAILING}: {why}"));
            let cordon = view.cordon.as_ref().map(|why| format!("{CORDONED}: {why}"));
            let messages: Vec<String> = view.held.iter().cloned().chain(failing).chain(cordon).collect();
            (DiskState::Ready, (!messages.is_empty()).then(|| messages.join("; ")))
        }
        Standing::NotReady(why) => (DiskState::NotReady, Some(why.clone())),
        Standing::Missing => (
            DiskState::Missing,
            Some(format!(
                "it is not there; is it unplugged or dead? Order GiveUp for it in spec.disks, or run `localpool disk \
                 give-up {}` in the agent's pod, to give it up",
                view.id
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::crd::HealthEntry;
    use crate::claim::sample::rule;
    use crate::device::DiskId;
    use crate::health::{Board, Finding, Look};
    use crate::pool::KnownDisk;

    fn known() -> KnownDisk {
        KnownDisk {
            set: rule("a").set,
            layout: Layout::Carved {},
            path: "/dev/sda".into(),
            model: None,
            hardware: None,
            size: 1,
            written: 0,
            volumes: None,
            unseen: BTreeSet::new(),
        }
    }

    #[test]
    fn an_erasure_that_fails_is_in_the_message_and_in_the_health_and_keeps_its_time() {
        let failing = Some("bytes 0-512 could not be written".to_owned());
        let view = DiskView { standing: Standing::Ready, failing, ..DiskView::absent(DiskId::named("gpt-1"), known()) };
        let condition = Condition::of(Finding::of_disk(&view));
        let first = disk_status(&view, &condition, &[]);
        let message = first.message.clone().unwrap_or_default();
        assert!(first.state == DiskState::Ready && message.contains("is tried again: bytes 0-512"), "{message}");
        assert_eq!(first.health[0].reason, "BackgroundWorkFails");
        let long_ago = Some(Time(Timestamp::UNIX_EPOCH));
        let first = DiskStatus { health: vec![HealthEntry { since: long_ago, ..first.health[0].clone() }], ..first };
        assert_eq!(disk_status(&view, &condition, std::slice::from_ref(&first)), first);
        assert_eq!(disk_status(&DiskView { failing: None, ..view }, &Condition::default(), &[first]).health, []);
    }

    #[test]
    fn what_an_earlier_agent_has_found_stays_until_this_one_has_looked() {
        let view = DiskView { standing: Standing::Ready, ..DiskView::absent(DiskId::named("gpt-1"), known()) };
        let found = HealthEntry {
            reason: "DiskFailing".to_owned(),
            severity: "Degraded".to_owned(),
            message: "words".to_owned(),
            since: Some(Time(Timestamp::UNIX_EPOCH)),
        };
        let gone = HealthEntry { reason: "DiskMissing".to_owned(), ..found.clone() };
        let before = disk_status(&view, &Condition::default(), &[]);
        let before = DiskStatus { health: vec![gone, found.clone()], ..before };
        let board = Board::default();
        let health = || disk_status(&view, &board.of_disk(&view), std::slice::from_ref(&before)).health;
        assert_eq!(health(), [found], "the pool knows that the disk is there");
        assert!(board.look(Look::default(), Timestamp::UNIX_EPOCH, Duration::ZERO), "a change for those who waited");
        assert_eq!(health(), []);
    }
}
