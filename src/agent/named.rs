//! Filesystems that an administrator mounted and named, as members of the pool: taken for a set, opened, left.
//!
//! Takes in what the last checkup said of each name; what hangs or fails stands against its own filesystem.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::again::Again;
use super::decide::Owned;
use super::known_disks::know;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::claim::{NodeMatch, Rule};
use crate::device::DiskId;
use crate::health::{FilesystemBoard, FilesystemReport, FilesystemUse};
use crate::host::timeout::Late;
use crate::host::{DevNo, Host, chain};
use crate::pool::{
    Carrier, FilesystemProblem, Knowledge, LookedFor, Member, NamedFilesystem, OpeningError, Pool, PoolFilesystem,
    Standing, Unasked, find_mounted,
};

impl Reconciler {
    /// It looks at the filesystems of this board.
    pub fn attending(mut self, filesystems: FilesystemBoard) -> Self {
        self.filesystems = filesystems;
        self
    }

    /// Members whose filesystem is not in its place leave, and those that are join, or are taken for a set.
    pub(super) fn attend_filesystems(&mut self, pass: &mut PassState) {
        let all = self.filesystems.clone().reports();
        self.await_first_look(&all, pass);
        self.leave_unnamed(&all, pass);
        // Those that leave first: a name may have got the path of another one.
        let judged = || all.iter().filter_map(|(entry, report)| Some((entry, report.as_ref()?)));
        for (_, report) in judged() {
            match (report.uuid, &report.problem) {
                (Some(uuid), Some(problem)) => {
                    self.leave_filesystem(&DiskId::of_filesystem(uuid), standing(problem), pass);
                }
                (None, Some(problem)) if problem.may_hide_volumes() => {
                    self.count_unread(DiskId::named(report.disk.name.as_str()), &chain(problem), pass);
                }
                (_, _) => {}
            }
        }
        for (entry, report) in judged() {
            // Nobody has looked at the path that it has now.
            if report.problem.is_none() && (&report.disk.path, report.disk.quota) == (&entry.path, entry.quota) {
                self.use_filesystem(entry, report, pass);
            }
        }
    }

    /// Until each name was looked at, none of those that the journal knows is missing: it may be at its path.
    fn await_first_look(&self, all: &[(NamedFilesystem, Option<FilesystemReport>)], pass: &mut PassState) {
        // The object that names them is read while passes begin.
        let is_named = self.filesystems.is_named() || !self.question.is_asked();
        let unseen = all.iter().filter(|(_, report)| report.is_none()).map(|(entry, _)| entry.name.as_str());
        let unseen: Vec<&str> = unseen.chain((!is_named).then_some("spec.disks")).collect();
        if unseen.is_empty() {
            return;
        }
        let known = self.pool.journal().known(|id| id.is_filesystem() && self.pool.member(id).is_none());
        let ids = known.into_iter().map(|(id, _)| id).chain(unseen.into_iter().map(DiskId::named));
        ids.for_each(|id| self.count_unread(id, "its path was not looked at yet", pass));
    }

    /// What is no member may hold volumes all the same: those that the journal has there, or any where that was lost.
    fn count_unread(&self, disk: DiskId, why: &str, pass: &mut PassState) {
        let journal = self.pool.journal();
        let knowledge = match (journal.known(|known| *known == disk).is_empty(), journal.is_in_doubt()) {
            (false, _) => Knowledge::Part,
            (true, true) => Knowledge::None,
            (true, false) => return,
        };
        pass.unread.push(Unasked { disk, why: format!("is not ready: {why}"), listed: BTreeSet::new(), knowledge });
    }

    /// Of a member whose entry a person has removed nobody knows any more where it is.
    fn leave_unnamed(&mut self, all: &[(NamedFilesystem, Option<FilesystemReport>)], pass: &mut PassState) {
        let named: BTreeSet<DiskId> =
            all.iter().filter_map(|(_, report)| report.as_ref()?.uuid).map(DiskId::of_filesystem).collect();
        // Before the first look no name says which filesystem it is.
        if all.iter().any(|(_, report)| report.is_none()) {
            return;
        }
        for filesystem in
            self.pool.mounted_filesystems().into_iter().filter(|filesystem| !named.contains(&filesystem.id))
        {
            self.leave_filesystem(&filesystem.id, Standing::Missing, pass);
        }
    }

    fn leave_filesystem(&mut self, id: &DiskId, standing: Standing, pass: &mut PassState) {
        let Some(filesystem) = self.pool.mounted_filesystems().into_iter().find(|filesystem| filesystem.id == *id)
        else {
            // A mount of the pool's own that an earlier process left keeps it from being unmounted for nobody.
            if let Err(error) = self.host.mounts().detach(&self.host.own_mounts().join(id.as_str())) {
                tracing::warn!(disk = %id, error = %chain(&error), "a mount that nobody uses stays");
            }
            // It was in the pool before this process began.
            if let Standing::NotReady(why) = standing {
                self.count_unread(id.clone(), &why, pass);
            }
            return;
        };
        if filesystem.standing() == standing {
            return;
        }
        tracing::warn!(disk = %id, why = standing.why_away().unwrap_or_default(), "a named filesystem is not used any more");
        self.pool.member(id).iter().for_each(|member| know(&self.pool, member));
        // The last mount of a filesystem ends when all that was written to it is on the disk.
        let left = self.errands.errand(id, move || filesystem.leave_mounted(standing));
        pass.again.add(Again::Member, !matches!(left, Ok(true)));
    }

    fn use_filesystem(&mut self, entry: &NamedFilesystem, report: &FilesystemReport, pass: &mut PassState) {
        let Some(uuid) = report.uuid else { return };
        let id = DiskId::of_filesystem(uuid);
        if self.is_open(&id, entry, report.device) {
            return self.say_use(entry, &id);
        }
        let is_known = !self.pool.journal().known(|known| *known == id).is_empty();
        let (entry_now, is_released) = (entry.clone(), self.pool.journal().released().contains(&id));
        let wanted = LookedFor { entry: entry_now, uuid, rule: self.rule_for(entry, &id), is_known, is_released };
        let (pool, host) = (Arc::clone(&self.pool), Arc::clone(&self.host));
        let opened = self.errands.errand_now(&id, move |late| open(&pool, &host, wanted, late));
        let refused = match opened {
            Ok(Ok(())) => return self.say_use(entry, &id),
            Ok(Err(error)) => {
                pass.again.add(Again::Member, error.retryable());
                chain(&error)
            }
            Err(hangs) => {
                pass.again.add(Again::Member, true);
                chain(&hangs)
            }
        };
        // One that is a member says so itself.
        self.count_unread(id.clone(), &refused, pass);
        if self.filesystems.set_use(&entry.name, FilesystemUse::Refused(refused.clone())) {
            tracing::warn!(disk = %id, path = %entry.path.display(), why = refused, "a named filesystem cannot be used");
        }
    }

    /// Whether it is open as the filesystem that was seen there; what a person says of it counts from now on.
    fn is_open(&self, id: &DiskId, entry: &NamedFilesystem, device: Option<DevNo>) -> bool {
        let Some(Member::Filesystem(filesystem)) = self.pool.member(id) else { return false };
        let Some(carrier) = filesystem.carrier.mount() else { return false };
        let is_it = filesystem.is_usable() && carrier.shown().device == device && carrier.path() == entry.path;
        if is_it {
            carrier.change(|shown| shown.entry = entry.clone());
            filesystem.reserve(entry.reserved);
        }
        is_it
    }

    /// What becomes of it, for whoever named it.
    fn say_use(&self, entry: &NamedFilesystem, id: &DiskId) {
        let of = match self.pool.member(id) {
            Some(Member::Filesystem(filesystem)) => match filesystem.carrier.mount().map(|carrier| carrier.shown()) {
                Some(shown) if shown.claim.given_up => FilesystemUse::GivenUp,
                Some(shown) => match &shown.rule {
                    Some(rule) if entry.is_chosen_by(rule) => FilesystemUse::Taken(shown.claim.set.name.clone()),
                    _ => FilesystemUse::NotChosen,
                },
                None => FilesystemUse::NotChosen,
            },
            _ if self.pool.journal().released().contains(id) => FilesystemUse::Released,
            _ => FilesystemUse::NotChosen,
        };
        self.filesystems.set_use(&entry.name, of);
    }

    /// Once sets have their members.
    pub(super) fn say_uses(&self) {
        for (entry, report) in self.filesystems.reports() {
            if let Some(FilesystemReport { uuid: Some(uuid), problem: None, .. }) = report
                && !self.filesystems.is_refused(&entry.name)
            {
                self.say_use(&entry, &DiskId::of_filesystem(uuid));
            }
        }
    }

    /// The oldest set that takes it.
    fn rule_for(&self, entry: &NamedFilesystem, id: &DiskId) -> Option<Arc<Rule>> {
        let journal = self.pool.journal();
        if journal.sound().is_err() || journal.released().contains(id) || !entry.allows_scheduling {
            return None;
        }
        let takes = |rule: &&Arc<Rule>| rule.node == NodeMatch::Selected && !rule.dry_run && entry.is_chosen_by(rule);
        self.rules.iter().filter(takes).min_by_key(|rule| (rule.created, rule.position, rule.set.clone())).cloned()
    }

    /// Such members, as they decide to which set each belongs.
    pub(super) fn owned_filesystems(&self) -> impl Iterator<Item = Owned> {
        let owned = |filesystem: Arc<PoolFilesystem>| {
            let shown = filesystem.carrier.shown();
            Owned {
                id: filesystem.id.clone(),
                set: shown.set,
                layouts: vec![shown.layout],
                is_ready: filesystem.is_usable(),
                is_writable: filesystem.is_usable(),
                // A person releases it.
                is_done_with: false,
                rule: shown.rule,
            }
        };
        self.pool.mounted_filesystems().into_iter().map(owned)
    }
}

/// A filesystem that is not at its path is away, and may be given up.
fn standing(problem: &FilesystemProblem) -> Standing {
    match problem {
        FilesystemProblem::NotMounted { .. }
        | FilesystemProblem::WrongDisk { .. }
        | FilesystemProblem::ConfigMissing { .. } => Standing::Missing,
        problem => Standing::NotReady(chain(problem)),
    }
}

/// It joins before it is opened: should that fail, the member says why.
fn open(pool: &Pool, host: &Arc<dyn Host>, wanted: LookedFor, late: &Late) -> Result<(), OpeningError> {
    let (entry, id) = (wanted.entry.clone(), DiskId::of_filesystem(wanted.uuid));
    let known = match pool.member(&id) {
        Some(Member::Filesystem(filesystem)) => Some(filesystem),
        Some(Member::Labelled(_) | Member::Bare(_)) | None => None,
    };
    let filesystem = match known {
        Some(filesystem) => filesystem,
        None => {
            let Some(carrier) = find_mounted(host, pool.owner(), wanted, late)? else { return Ok(()) };
            let filesystem = Arc::new(PoolFilesystem::new(Carrier::Mount(carrier), Arc::clone(host)));
            pool.join(Member::Filesystem(Arc::clone(&filesystem)));
            filesystem
        }
    };
    filesystem.reserve(entry.reserved);
    let (journal, path) = (pool.journal(), entry.path.clone());
    let is_held = journal.is_to_be_held(&id);
    filesystem.arrive_mounted(entry, pool.owner(), &journal.last_seen(&id), is_held)?;
    if let Err(error) = journal.is_held(&id) {
        tracing::warn!(disk = %id, error = %chain(&error), "after a restart it is held again");
    }
    tracing::info!(disk = %id, path = %path.display(), "a named filesystem is here");
    Ok(())
}
