//! What a person may ask of the pool: the inventory, giving disks back, taking disks over. Each verb can say
//! what it would do instead.

mod journal;
mod settle;

use std::path::Path;

use super::thread::Verb;
use super::{PassReport, Reconciler};
use crate::claim::rejection::Rejection;
use crate::device::discovery::{DiscoveryError, Snapshot};
use crate::device::size::Size;
use crate::device::{self, Device, Verdict};
use crate::host::HostError;
use crate::host::raw::Kind;
use crate::pool::bare::BareDevice;
use crate::pool::content::Content;
use crate::pool::device_pool::{Owner, Pool, PoolError};
use crate::pool::disk::ApplyError;
use crate::pool::journal::BareClaim;
use crate::pool::labelled::{LabelledDisk, Standing, VolumeView};
use crate::pool::member::Member;
use crate::show::devices::Shown;

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("no disk here is {0}; `localpool devices -o wide` lists ids, paths and links")]
    NoSuchDisk(String),
    #[error("{disk} is not in the pool: {why}")]
    NotInPool { disk: String, why: String },
    #[error("{disk} cannot be taken over: {why}")]
    NotAdoptable { disk: String, why: String },
    #[error("the machine's disks could not be looked at")]
    Look(#[from] DiscoveryError),
    #[error("the disk could not be opened")]
    Open(#[source] HostError),
    #[error(transparent)]
    Disk(#[from] ApplyError),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Whether `device` is what a person calls `text`: id, path or any link.
fn is_called(device: &Device, text: &str) -> bool {
    let path = Path::new(text);
    device.id.text == text || device.raw.path == path || device.raw.links.iter().any(|link| link == path)
}

/// `would wipe`, or `wiped`.
pub(super) fn tense(dry_run: bool, verb: &str, done: &str) -> String {
    if dry_run { format!("would {verb}") } else { done.to_owned() }
}

impl Reconciler {
    /// Does what a person asked, or says what it would do.
    pub fn verb(&mut self, verb: &Verb) -> Result<Vec<String>, AdminError> {
        match verb {
            Verb::ReleaseDisk { disk, dry_run } => self.release(disk, *dry_run),
            Verb::AdoptDisk { disk, dry_run } => self.adopt(disk, *dry_run),
            Verb::SettleVolume { volume, keep, dry_run } => self.settle(*volume, keep, *dry_run),
            Verb::SetAsideJournal { dry_run } => self.set_aside_journal(*dry_run),
            Verb::PlanSets { sets } => self.preview(sets),
        }
    }

    /// A device, and its member where it has one: a bare device's by its hardware, whatever it carries.
    fn find(&mut self, text: &str) -> Result<(Snapshot, Device, Option<Member>), AdminError> {
        let set = self.look()?;
        let found = set.devices.iter().find(|device| is_called(device, text));
        let device = found.ok_or_else(|| AdminError::NoSuchDisk(text.to_owned()))?.clone();
        let bare = self.pool().bare_member_of(&set, &device).map(Member::Bare);
        // A copy is not the member that has its id.
        let labelled =
            self.pool().labelled_disk(&device.id.text).filter(|_| device.standing == device::Standing::Ready);
        let member = bare.or(labelled.map(Member::Labelled));
        Ok((set, device, member))
    }

    fn release(&mut self, text: &str, dry_run: bool) -> Result<Vec<String>, AdminError> {
        let (_, device, member) = match self.find(text) {
            Err(AdminError::NoSuchDisk(id)) => return self.forget(&id, dry_run),
            found => found?,
        };
        let not_in_pool = || {
            let why = crate::show::devices::verdict_and_reason(&Shown { device: device.clone(), note: None }).1;
            AdminError::NotInPool { disk: text.to_owned(), why }
        };
        let member = member.ok_or_else(not_in_pool)?;
        let path = device.raw.path.display();
        let what = match &member {
            Member::Labelled(member) => {
                member.lock_in_time()?.disk()?.can_release()?;
                tense(dry_run, "wipe", "wiped") + " label and partition tables"
            }
            Member::Bare(member) => {
                member.can_release().map_err(PoolError::from)?;
                tense(dry_run, "end", "ended") + " the raw claim"
            }
        };
        if !dry_run {
            self.give_up(&member)?;
        }
        Ok(vec![
            format!("{what} of {path} ({})", device.id),
            format!("no set claims it again until `localpool disk adopt {path}`"),
        ])
    }

    /// A disk that is away, by its id: nothing can be wiped there, and it is only not missed any more.
    fn forget(&self, id: &str, dry_run: bool) -> Result<Vec<String>, AdminError> {
        let away =
            self.pool().disk_views().into_iter().find(|disk| disk.id == id && disk.standing == Standing::Missing);
        let path = away.ok_or_else(|| AdminError::NoSuchDisk(id.to_owned()))?.path;
        let was = match path.as_os_str().is_empty() {
            true => String::new(),
            false => format!(" (it was {})", path.display()),
        };
        let mut lines = vec![
            format!("{} {id}, which is missing{was}", tense(dry_run, "forget", "forgot")),
            "another disk may take its place in the set".to_owned(),
        ];
        match self.pool().member(id) {
            // Nothing on a bare device says that it was ours.
            Some(Member::Bare(member)) => {
                let adopt = format!("should it come back, no set claims it until `localpool disk adopt {id}`");
                match member.view() {
                    Some(VolumeView { id, record, .. }) => {
                        let name = record.map_or_else(String::new, |record| record.name);
                        lines.push(format!("volume {id} ({name}) is given up; its data stays on the device"));
                        lines.push(adopt + ", and then only if it is blank");
                    }
                    None => lines.push(adopt),
                }
            }
            _ => lines.push("should it come back, it joins the pool with its volumes".to_owned()),
        }
        if !dry_run && !self.pool().forget(id)? {
            return Err(AdminError::NoSuchDisk(id.to_owned()));
        }
        Ok(lines)
    }

    fn adopt(&mut self, text: &str, dry_run: bool) -> Result<Vec<String>, AdminError> {
        let (set, device, member) = self.find(text)?;
        let path = device.raw.path.display().to_string();
        let refused = |why: String| AdminError::NotAdoptable { disk: text.to_owned(), why };
        if let device::Standing::NotReady(why) = &device.standing {
            return match device.verdict {
                Verdict::Ours if device.label.is_some() => self.adopt_copy(&set, &device, dry_run),
                _ => Err(refused(why.clone())),
            };
        }
        if let Some(Member::Bare(member)) = member {
            let Standing::NotReady(why) = member.shown().standing.clone() else {
                return Err(refused("it is in this node's pool already".to_owned()));
            };
            let claim = self.pool().journal().bare_claim(&member.id);
            let what = match member.view() {
                Some(view) if claim.is_some_and(|claim| claim.should_be_blank()) => format!(
                    "{} {path}, with volume {}; a filesystem is kept where it is this volume's, and else made over what is there",
                    tense(dry_run, "take", "took"),
                    view.id
                ),
                Some(view) => {
                    format!("{} {path} as it is, with volume {}", tense(dry_run, "take", "took"), view.id)
                }
                None => format!("{} {path}, and offer it again then", tense(dry_run, "erase", "began to erase")),
            };
            if !dry_run {
                let id = member.id.clone();
                self.done_in_time(&id, move || member.settle().map_err(PoolError::from))?;
            }
            return Ok(vec![format!("{path}: {why}"), what]);
        }
        let hardware = set.hardware_id(&device);
        if let Some(lost) = self.pool().journal().lost().remove(&hardware) {
            return self.adopt_lost(&device, &hardware, lost, dry_run);
        }
        if device.verdict != Verdict::Unclaimed && self.pool().journal().given_up().contains(&hardware) {
            if !dry_run {
                self.readmit(&device, &hardware)?;
            }
            return Ok(vec![
                format!("{} what is on {path} ({hardware}) say whose it is", tense(dry_run, "let", "let")),
                "sets claim what is blank of it; what is on it stays as it is".to_owned(),
            ]);
        }
        if let Some(lines) = self.adopt_older(&device, dry_run)? {
            return Ok(lines);
        }
        match (&device.verdict, &device.label) {
            (Verdict::Foreign { cluster, node }, Some(label)) => {
                let Owner { cluster: to_cluster, node: to_node } = self.pool().owner().clone();
                let mut lines = vec![format!(
                    "{} the label of {path}: from node {node} of cluster {cluster} to node {to_node} of cluster {to_cluster}",
                    tense(dry_run, "write", "wrote")
                )];
                for (id, record) in &label.volumes {
                    let next = format!("`localpool volume adopt {id}` makes it usable");
                    lines.push(format!("volume {id} ({}) is kept, and not used; {next}", record.name));
                }
                lines.extend(self.given_up(&device.id.text, |volume| !label.volumes.contains_key(volume)));
                if !dry_run {
                    self.take_over(&device)?;
                    self.pool().journal().take_as_it_is(&device.id.text).map_err(PoolError::from)?;
                }
                Ok(lines)
            }
            (Verdict::Unclaimed, _) if self.pool().journal().released().contains(&device.id.text) => {
                if !dry_run {
                    self.readmit(&device, &device.id.text)?;
                }
                Ok(vec![format!("{} sets claim {path} again", tense(dry_run, "let", "let"))])
            }
            (Verdict::Unclaimed, _) => {
                Err(refused("it is blank; a LocalVolumeSet that selects it claims it".to_owned()))
            }
            (Verdict::Ours, _) => Err(refused("it is in this node's pool already".to_owned())),
            (Verdict::Theirs(reason), _) => Err(refused(reason.to_string())),
            (Verdict::Unknown(why), _) => Err(refused(why.clone())),
            (Verdict::Foreign { .. }, None) => Err(refused("adopt its whole disk instead".to_owned())),
        }
    }
}

/// All devices of a pass, each pool disk with what it has free and each free one with why no set takes it.
pub fn inventory(pool: &Pool, pass: &PassReport) -> Vec<Shown> {
    let lost = pool.journal().lost();
    let note = |device: &Device| -> Option<String> {
        if let Some(problem) = pass.problems.get(&device.raw.name) {
            return Some(match device.verdict {
                _ if pool.bare_member_of(&pass.set, device).is_some() => {
                    format!("in pool as a bare device, but not ready: {problem}")
                }
                Verdict::Ours => format!("in pool, but not ready: {problem}"),
                _ => format!("not claimed: {problem}"),
            });
        }
        match device.verdict {
            Verdict::Ours => match pool.labelled_disk(&device.id.text) {
                Some(member) => Some(member_note(&member)),
                None if lost.contains_key(&pass.set.hardware_id(device)) => {
                    Some(journal::lost_note(device, &lost[&pass.set.hardware_id(device)]))
                }
                None => partition_note(pool, pass, device),
            },
            Verdict::Unclaimed if pool.journal().released().contains(&device.id.text) => Some(format!(
                "given back; `localpool disk adopt {}` lets sets claim it again",
                device.raw.path.display()
            )),
            Verdict::Unclaimed => Some(unclaimed_note(pass, device)),
            _ => None,
        }
    };
    let shown = |device: &Device| {
        let mut device = device.clone();
        let note = match pool.bare_member_of(&pass.set, &device) {
            // It may have been claimed since the look.
            Some(member) => {
                device.verdict = Verdict::Ours;
                note(&device).or_else(|| Some(raw_note(pool, &member)))
            }
            None => note(&device),
        };
        Shown { note, device }
    };
    pass.set.devices.iter().map(shown).collect()
}

fn raw_note(pool: &Pool, member: &BareDevice) -> String {
    let words = match pool.journal().bare_claim(&member.id) {
        Some(BareClaim { volume: Some(volume), .. }) => format!("holds volume {}", volume.id),
        Some(BareClaim { erasing: Some(_), .. }) => match &member.shown().held {
            Some(held) => format!("to be erased; {held}"),
            None => "being erased".to_owned(),
        },
        Some(BareClaim { size, .. }) => format!("{} free", Size(size)),
        None => "its claim has just ended".to_owned(),
    };
    format!("in pool as a bare device, {words}")
}

fn member_note(member: &LabelledDisk) -> String {
    let shown = member.shown();
    let content = &shown.content;
    let volumes = content.volumes().count();
    let plural = if volumes == 1 { "" } else { "s" };
    let mut words = match &shown.standing {
        Standing::Ready => format!("in pool, {} free, {volumes} volume{plural}", Size(content.free().total())),
        Standing::NotReady(why) => format!("in pool, but not ready: {why}"),
        Standing::Missing => "in pool, but missing".to_owned(),
    };
    let erasing: u64 = content.erasing().map(|(_, entry, _)| entry.extent.len()).sum();
    if erasing > 0 {
        words.push_str(&format!(", {} being erased", Size(erasing)));
    }
    if let (Standing::Ready, Some(held)) = (&shown.standing, shown.held()) {
        words.push_str(&format!("; {held}"));
    }
    if shown.rule.is_none() {
        words.push_str(&unowned(content));
    }
    words
}

/// What a partition of a pool disk is there for.
fn partition_note(pool: &Pool, pass: &PassReport, device: &Device) -> Option<String> {
    let Kind::Partition(partition) = &device.raw.kind else { return None };
    let disk = pass.set.devices.iter().find(|disk| disk.raw.name == partition.disk)?;
    let member = pool.labelled_disk(&disk.id.text)?;
    let shown = member.shown();
    let content = &shown.content;
    if content.label_entry().is_some_and(|(number, _)| number == partition.number) {
        return Some(format!("label of {}, kept open so that nobody else takes the disk", disk.raw.path.display()));
    }
    let volume = content.volumes().find(|volume| volume.number == partition.number)?;
    let name = volume.record.map_or_else(|| volume.id().to_string(), |record| record.name.clone());
    Some(format!("volume {name}"))
}

fn unowned(content: &Content) -> String {
    let set = &content.label.set;
    format!("; its set {}/{} does not exist: it offers nothing", set.namespace, set.name)
}

fn unclaimed_note(pass: &PassReport, device: &Device) -> String {
    let reason = |left: &Rejection| left.to_string();
    let left: Vec<String> = pass
        .outcomes
        .iter()
        .filter_map(|outcome| {
            // A LocalVolume has nothing to say of a device that it does not name.
            let mut rejected = outcome.rejected.iter().filter(|(_, left)| *left != Rejection::NotNamed);
            let (_, left) = rejected.find(|(name, _)| *name == device.raw.name)?;
            Some(format!("set {}/{}: {}", outcome.set.namespace, outcome.set.name, reason(left)))
        })
        .collect();
    match (pass.outcomes.is_empty(), left.is_empty()) {
        (true, _) => "blank and not in use; no set asks for it".to_owned(),
        (false, true) => "blank and not in use".to_owned(),
        (false, false) => format!("blank and not in use; {}", left.join("; ")),
    }
}
