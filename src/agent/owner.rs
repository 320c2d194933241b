//! Which set each member of the pool belongs to, and which members are given back. Pure.
//!
//! Takes in what labels and journal say of the members, and the rules; gives out actions, which `members` performs.

use std::borrow::Borrow;
use std::sync::Arc;

use super::decide::Action;
use crate::claim::{Reclaim, Rule};
use crate::device::DiskId;
use crate::device::label::{Layout, SetRef};

/// The layouts of sets that a bare device may belong to: one that takes whole disks takes partitions and mapped devices as they
/// are.
pub const OF_BARE: [Layout; 2] = [Layout::RawDevice {}, Layout::Whole {}];

/// A member, as far as it matters whose it is.
#[derive(Clone, Debug)]
pub struct Owned {
    pub id: DiskId,
    /// The set that claimed it, as the label or the journal says.
    pub set: SetRef,
    /// The layouts of sets that it may belong to, the likeliest first.
    pub layouts: Vec<Layout>,
    /// It can be read and written now.
    pub is_ready: bool,
    /// What is written of its set can be changed now.
    pub is_writable: bool,
    /// It had volumes, has none any more, and nothing of them is still to be erased.
    pub is_done_with: bool,
    /// What it offers by now.
    pub rule: Option<Arc<Rule>>,
}

/// Each member offers by the set that it names: by UID, else by name and layout. Then the new UID is written.
pub fn belong(members: &[Owned], rules: &[Arc<Rule>]) -> Vec<Action> {
    let mut actions = Vec::new();
    for member in members {
        let owner = owner(&member.set, &member.layouts, rules);
        if let Some(rule) = owner.filter(|rule| rule.set != member.set && member.is_writable) {
            actions.push(Action::Rename { id: member.id.clone(), set: rule.set.clone() });
        }
        if member.rule.as_ref().map(Arc::as_ptr) != owner.map(Arc::as_ptr) {
            actions.push(Action::Offer { id: member.id.clone(), rule: owner.cloned() });
        }
    }
    actions
}

/// Sets that reclaim by release give a disk back when its last volume is gone and erased.
pub fn give_back(members: &[Owned]) -> Vec<Action> {
    let releases = |member: &&Owned| member.rule.as_ref().is_some_and(|rule| rule.reclaim == Reclaim::Release);
    let done_with = members.iter().filter(|member| member.is_done_with && member.is_ready).filter(releases);
    done_with.map(|member| Action::GiveBack { id: member.id.clone() }).collect()
}

/// The set that owns a disk of one of these layouts: by UID, else another one of the same name and layout, which was made
/// after that was deleted.
pub fn owner<'r, R: Borrow<Rule>>(set: &SetRef, layouts: &[Layout], rules: &'r [R]) -> Option<&'r R> {
    let same_name = |of: &SetRef| of.has_name_of(set);
    let with = |layout: &Layout| {
        rules.iter().find(|rule| {
            let Rule { set, layout: its, .. } = Borrow::<Rule>::borrow(*rule);
            same_name(set) && its == layout
        })
    };
    let by_uid = rules.iter().find(|rule| Borrow::<Rule>::borrow(*rule).set.uid == set.uid);
    by_uid.or_else(|| layouts.iter().find_map(with))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample;

    fn rule(name: &str, uid: &str) -> Arc<Rule> {
        let rule = sample::rule(name);
        Arc::new(Rule { set: SetRef { uid: uid.to_owned(), ..rule.set.clone() }, ..rule })
    }

    fn member(of: &Rule) -> Owned {
        Owned {
            id: DiskId::named("gpt-1"),
            set: of.set.clone(),
            layouts: vec![of.layout.clone()],
            is_ready: true,
            is_writable: true,
            is_done_with: false,
            rule: None,
        }
    }

    fn offer(rule: &Arc<Rule>) -> Action {
        Action::Offer { id: DiskId::named("gpt-1"), rule: Some(Arc::clone(rule)) }
    }

    #[test]
    fn a_member_offers_by_its_set_once_and_by_none_when_that_is_gone() {
        let [fast, slow] = [rule("fast", "1"), rule("slow", "2")];
        let rules = [Arc::clone(&slow), Arc::clone(&fast)];
        assert_eq!(belong(&[member(&fast)], &rules), [offer(&fast)]);
        let attached = Owned { rule: Some(Arc::clone(&fast)), ..member(&fast) };
        assert_eq!(belong(std::slice::from_ref(&attached), &rules), []);
        assert_eq!(belong(&[attached], &[slow]), [Action::Offer { id: DiskId::named("gpt-1"), rule: None }]);
    }

    #[test]
    fn a_set_that_was_made_again_under_its_name_has_its_new_uid_written_if_it_asks_for_the_same_layout() {
        let [before, again] = [rule("fast", "1"), rule("fast", "2")];
        let rename = Action::Rename { id: DiskId::named("gpt-1"), set: again.set.clone() };
        assert_eq!(belong(&[member(&before)], std::slice::from_ref(&again)), [rename, offer(&again)]);
        let busy = Owned { is_writable: false, ..member(&before) };
        assert_eq!(belong(&[busy], std::slice::from_ref(&again)), [offer(&again)]);
        let other = Owned { layouts: vec![Layout::RawDevice {}], ..member(&before) };
        assert_eq!(belong(&[other], &[again]), []);
    }

    #[test]
    fn a_disk_is_given_back_when_it_is_done_with_and_its_set_says_so() {
        let releases = Arc::new(Rule { reclaim: Reclaim::Release, ..sample::rule("fast") });
        let done = Owned { is_done_with: true, rule: Some(Arc::clone(&releases)), ..member(&releases) };
        assert_eq!(give_back(std::slice::from_ref(&done)), [Action::GiveBack { id: DiskId::named("gpt-1") }]);
        let keeps =
            Owned { rule: Some(Arc::new(Rule { reclaim: Reclaim::Keep, ..(*releases).clone() })), ..done.clone() };
        let used = Owned { is_done_with: false, ..done.clone() };
        let away = Owned { is_ready: false, ..done.clone() };
        let of_nobody = Owned { rule: None, ..done };
        assert_eq!(give_back(&[keeps, used, away, of_nobody]), []);
    }
}
