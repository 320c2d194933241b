//! The devices that sets would take if they were here: `localpool set plan`. Looks, and does nothing.

use super::admin::AdminError;
use super::claim::Promised;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::claim::{NodeMatch, Rule, SetOutcome};
use crate::device::{Device, Size, Snapshot};
use crate::health::FilesystemReport;
use crate::host::chain;
use crate::pool::NamedFilesystem;

impl Reconciler {
    /// Lines for people: each set of `wanted`, among the sets that are there; one of the same name takes its place.
    pub(in crate::agent) fn preview(&mut self, wanted: &[Rule]) -> Result<Vec<String>, AdminError> {
        let seen = self.scan()?;
        let (snapshot, note) = match self.leave_promised(&seen, &mut PassState::default()) {
            Ok(Promised { all: _, snapshot }) => (snapshot.unwrap_or(seen), None),
            Err(error) => (seen, Some(chain(&error))),
        };
        let same = |a: &Rule, b: &Rule| a.set.has_name_of(&b.set);
        let there = || self.rules.iter().map(|rule| (**rule).clone());
        let mut rules: Vec<Rule> = there().filter(|rule| !wanted.iter().any(|new| same(new, rule))).collect();
        // What keeps every set from new disks here is known from those that are there.
        let is_so = |node: NodeMatch, rule: &Rule| {
            // LocalVolumes have a definition of their own.
            rule.node == node && (node != NodeMatch::HeldBack || rule.named.is_none())
        };
        let of_all = [NodeMatch::HeldBack, NodeMatch::StandsBack];
        let node = of_all.into_iter().find(|node| self.rules.iter().any(|rule| is_so(*node, rule)));
        let node = node.unwrap_or_default();
        rules.extend(wanted.iter().map(|new| {
            let set = there().find(|rule| same(rule, new)).map_or_else(|| new.set.clone(), |rule| rule.set);
            Rule { set, dry_run: true, node, ..new.clone() }
        }));
        let (of_filesystems, rules): (Vec<Rule>, Vec<Rule>) =
            rules.into_iter().partition(|rule| rule.filesystems.is_some());
        let election = self.elect(&snapshot, &rules);
        let of_wanted = |outcome: &&SetOutcome| wanted.iter().any(|new| new.set.has_name_of(&outcome.set));
        let outcomes = election.outcomes.iter().filter(of_wanted);
        let is_wanted = |rule: &&Rule| wanted.iter().any(|new| new.set.has_name_of(&rule.set));
        let of_filesystems = of_filesystems.iter().filter(is_wanted).flat_map(|rule| self.would_take_filesystems(rule));
        let of_disks = outcomes.flat_map(|outcome| lines(&snapshot, outcome));
        Ok(note.into_iter().chain(of_disks).chain(of_filesystems).collect())
    }
}

impl Reconciler {
    /// A set that takes named filesystems, and no disks.
    fn would_take_filesystems(&self, rule: &Rule) -> Vec<String> {
        let all = self.filesystems.reports();
        let row = |(entry, report): &(NamedFilesystem, Option<FilesystemReport>)| {
            let is_ready = report.as_ref().is_some_and(|report| report.problem.is_none());
            let (verb, why) = match (is_ready && entry.allows_scheduling, entry.is_chosen_by(rule)) {
                (true, true) => ("take", ""),
                (false, true) => ("leave", "  status.diskStatus says why it takes no volumes"),
                (_, false) => ("leave", "  its tags or its quota are not those of the set"),
            };
            format!("  {verb:5}  {}  {}{why}", entry.name, entry.path.display())
        };
        let head = format!("set {} takes no disks; of {} named filesystems it would", rule.set, all.len());
        [head].into_iter().chain(all.iter().map(row)).collect()
    }
}

/// The set, then each device with what would become of it.
fn lines(snapshot: &Snapshot, outcome: &SetOutcome) -> Vec<String> {
    let taken = outcome.would_take.iter().map(|name| (name, "take", String::new()));
    let rejected = outcome.rejected.iter().map(|(name, rejection)| (name, "leave", rejection.to_string()));
    let mut rows: Vec<[String; 5]> = Vec::new();
    for (name, verb, why) in taken.chain(rejected) {
        let Some(device) = snapshot.devices.iter().find(|device| device.raw.name == *name) else { continue };
        // A loop device without a file is no device that anybody asks about.
        if device.raw.size > 0 {
            rows.push(row(device, verb, why));
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let line = |[verb, path, size, model, why]: &[String; 5]| {
        let [a, b, c, d] = widths;
        format!("  {verb:a$}  {path:b$}  {size:>c$}  {model:d$}  {why}").trim_end().to_owned()
    };
    let head = format!("set {} would take {} of {} devices", outcome.set, outcome.would_take.len(), rows.len());
    [head].into_iter().chain(rows.iter().map(line)).collect()
}

fn row(device: &Device, verb: &str, why: String) -> [String; 5] {
    let model = device.raw.model.as_deref().unwrap_or("-").escape_debug().to_string();
    [verb.to_owned(), device.raw.path.display().to_string(), Size(device.raw.size).to_string(), model, why]
}
