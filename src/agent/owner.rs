//! Which set a member of the pool belongs to, and when it is given back.
//!
//! Takes in the rules and what the labels and the journal say; writes the set's UID where it was made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Reconciler;
use crate::claim::rule::{Reclaim, Rule};
use crate::device::label::{Label, Layout, SetRef};
use crate::host::chain;
use crate::pool::labelled::{SHORT_PATIENCE, Standing};
use crate::pool::member::Member;

impl Reconciler {
    /// Each member offers by the set that its label names: by UID, else by name and layout.
    /// Gives whether one was busy, and is to be looked at again.
    pub(super) fn attach_rules(&mut self, problems: &mut BTreeMap<String, String>) -> bool {
        let mut busy = false;
        for member in self.pool.labelled_disks() {
            let shown = member.shown();
            let rule = owner_of(&shown.content.label, &self.rules).cloned();
            if let Some(rule) = rule.as_ref().filter(|rule| rule.set != shown.content.label.set && shown.is_usable()) {
                let (writer, set) = (Arc::clone(&member), rule.set.clone());
                let relabelled = self.errand(&member.id, move || writer.relabel(set).map_err(|e| chain(&e)));
                if let Err(why) = relabelled.unwrap_or_else(|hangs| Err(chain(&hangs))) {
                    problems.insert(shown.raw.name.clone(), why);
                }
            }
            if shown.rule.as_ref().map(Arc::as_ptr) != rule.as_ref().map(Arc::as_ptr) {
                match member.lock_within(SHORT_PATIENCE) {
                    Ok(mut state) => state.rule = rule,
                    Err(error) => {
                        busy = true;
                        problems.insert(shown.raw.name.clone(), chain(&error));
                    }
                }
            }
            self.know(&member);
        }
        for member in self.pool.bare_devices() {
            let journal = self.pool.journal();
            let Some(set) = journal.bare_claim(&member.id).map(|claim| claim.set) else { continue };
            // A set that takes whole disks takes partitions and mapped devices as they are.
            let bare = [Layout::RawDevice {}, Layout::Whole {}];
            let rule = bare.iter().find_map(|layout| owner_among(&set, layout, &self.rules)).cloned();
            let shown = member.shown();
            if let Some(rule) = rule.as_ref().filter(|rule| rule.set != set)
                && let Err(error) = journal.change_bare(&member.id, |claim| claim.set = rule.set.clone())
            {
                problems.extend(shown.raw.as_ref().map(|raw| (raw.name.clone(), chain(&error))));
            }
            if shown.rule.as_ref().map(Arc::as_ptr) != rule.as_ref().map(Arc::as_ptr) {
                match member.lock_within(SHORT_PATIENCE) {
                    Ok(mut state) => state.rule = rule,
                    Err(error) => {
                        busy = true;
                        problems.extend(shown.raw.as_ref().map(|raw| (raw.name.clone(), chain(&error))));
                    }
                }
            }
        }
        busy
    }

    /// Sets that reclaim by release give a disk back when its last volume is gone and erased. Gives how many were.
    pub(super) fn give_back(&mut self) -> usize {
        let done_with: Vec<Member> =
            self.pool.members().into_iter().filter(|member| self.is_done_with(member)).collect();
        let mut count = 0;
        for member in done_with {
            match self.give_up(&member) {
                Ok(()) => count += 1,
                Err(error) => {
                    tracing::error!(disk = %member.id(), error = %chain(&error), "the disk could not be given back");
                }
            }
        }
        count
    }

    /// Whether a disk had volumes, has none any more, and is of a set that then gives it back.
    fn is_done_with(&self, member: &Member) -> bool {
        if member.rule().is_none_or(|rule| rule.reclaim != Reclaim::Release) {
            return false;
        }
        match member {
            Member::Labelled(member) => {
                let shown = member.shown();
                let content = &shown.content;
                let empty = content.volumes().next().is_none() && content.erasing().next().is_none();
                content.label.used && empty && shown.is_usable()
            }
            Member::Bare(member) => {
                let claim = self.pool.journal().bare_claim(&member.id);
                let is_empty =
                    claim.is_some_and(|claim| claim.used && claim.volume.is_none() && claim.erasing.is_none());
                is_empty && member.shown().standing == Standing::Ready
            }
        }
    }
}

fn owner_of<'r>(label: &Label, rules: &'r [Arc<Rule>]) -> Option<&'r Arc<Rule>> {
    owner_among(&label.set, &label.layout, rules)
}

/// The set that owns a disk: by UID, else one made anew with the same name and layout.
fn owner_among<'r>(set: &SetRef, layout: &Layout, rules: &'r [Arc<Rule>]) -> Option<&'r Arc<Rule>> {
    let same_name = |rule: &&Arc<Rule>| (&rule.set.namespace, &rule.set.name) == (&set.namespace, &set.name);
    let by_uid = rules.iter().find(|rule| rule.set.uid == set.uid);
    by_uid.or_else(|| rules.iter().find(|rule| same_name(rule) && rule.layout == *layout))
}
