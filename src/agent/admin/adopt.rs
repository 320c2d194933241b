//! `localpool disk adopt`: a person takes a disk over, whatever kept the agent from it.
//!
//! Takes in what the disk is called; gives out what was done or would be. Each reason that keeps a disk out has its own
//! way in.

use std::sync::Arc;

use super::AdminError;
use crate::agent::{reconciler::Reconciler, verb::Run};
use crate::device::{self, Device, DiskId, NodeName, Owner, Verdict, label::Label};
use crate::host::Access;
use crate::pool::{
    BareDevice, Cordon, LabelledDisk, LastSeen, LostClaim, LostVolume, Member, Opened, PoolDisk, PoolError, Standing,
    relabel,
};

impl Reconciler {
    /// Writes this node's name on a disk of another one; its volumes wait for their own adoption.
    fn take_over(&mut self, device: &Device) -> Result<(), AdminError> {
        let Owner { cluster, node } = self.pool.owner().clone();
        self.relabel(device, move |label| {
            label.volumes.values_mut().for_each(|record| record.found = true);
            (label.cluster, label.node) = (cluster, node);
        })
    }

    /// Changes the label of a disk that is no member now, and that a person takes as it is, whatever was seen of it
    /// before.
    pub(in crate::agent) fn relabel(
        &mut self,
        device: &Device,
        change: impl FnOnce(&mut Label) + Send + 'static,
    ) -> Result<(), AdminError> {
        let Some(label) = device.label.clone() else {
            let (disk, why) = (device.raw.path.display().to_string(), "it has no label".to_owned());
            return Err(AdminError::NotAdoptable { disk, why });
        };
        let (host, raw) = (Arc::clone(&self.host), device.raw.clone());
        let (pool, id) = (Arc::clone(&self.pool), device.id.clone());
        let last_number = pool.journal().last_seen(&id).written;
        self.done_in_time::<AdminError>(&device.id, move || {
            let disk = host.open(&raw, Access::Own).map_err(AdminError::Open)?;
            let was = Owner { cluster: label.cluster.clone(), node: label.node.clone() };
            let opened = PoolDisk::open(disk, label.disk, &was, &LastSeen::default())?;
            let Opened::Ours(mut disk) = opened else { return Ok(()) };
            disk.outnumber(last_number);
            disk.change(|content| {
                let mut label = content.pruned_label();
                label.given_up = false;
                change(&mut label);
                Ok(relabel(label))
            })?;
            // Where one copy rots, the other one is as new.
            disk.mirror()?;
            // As long as the journal says otherwise, all this can be done again.
            Ok(pool.journal().take_as_it_is(&id, disk.content().written).map_err(PoolError::from)?)
        })?;
        self.memory.discovery.changed(&device.raw.name);
        Ok(())
    }

    pub(super) fn adopt(&mut self, text: &str, run: Run) -> Result<Vec<String>, AdminError> {
        let (snapshot, device, member) = self.find(text)?;
        let refused = |why: String| AdminError::NotAdoptable { disk: text.to_owned(), why };
        if let device::Believed::No(why) = &device.believed {
            return match device.verdict {
                Verdict::Ours if device.label.is_some() => self.adopt_copy(&snapshot, &device, run),
                _ => Err(refused(why.clone())),
            };
        }
        if let Some(Member::Bare(member)) = member {
            return self.adopt_bare_member(text, &device, member, run);
        }
        let held = member.filter(|member| member.cordon() == Some(Cordon::GivenUp));
        if let Some(member) = held.as_ref().and_then(Member::labelled) {
            return self.adopt_held(&device, member, run);
        }
        let id = snapshot.bare_id(&device);
        if let Some(lost) = self.pool().journal().lost().remove(&id) {
            if !lost.others.is_empty() {
                return Err(refused(several(&id, &lost)));
            }
            return self.adopt_lost(&device, &id, lost, run);
        }
        if device.verdict != Verdict::Unclaimed && self.pool().journal().given_up().contains(&id) {
            return self.adopt_given_up(&device, &id, run);
        }
        if let Some(lines) = self.adopt_older(&device, run)? {
            return Ok(lines);
        }
        match (&device.verdict, &device.label) {
            (Verdict::Foreign { cluster, node }, Some(label)) => {
                self.adopt_foreign(&device, (cluster, node), label, run)
            }
            (Verdict::Unclaimed, _) if self.pool().journal().released().contains(&device.id) => {
                if run == Run::Real {
                    self.readmit(&device, &device.id)?;
                }
                let path = device.raw.path.display();
                Ok(vec![format!("{} sets claim {path} again", run.tense("let", "let"))])
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

    /// A bare device of this node's pool.
    fn adopt_bare_member(
        &mut self,
        text: &str,
        device: &Device,
        member: Arc<BareDevice>,
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        let refused = |why: String| AdminError::NotAdoptable { disk: text.to_owned(), why };
        let Standing::NotReady(why) = member.shown().standing.clone() else {
            return Err(refused("it is in this node's pool already".to_owned()));
        };
        let journal = self.pool().journal();
        if let Some(reported) = journal.contradiction(&member.id) {
            let has_volume = journal.bare_claim(&member.id).is_some_and(|claim| claim.volume.is_some());
            // Of several volumes the other verb says which is there.
            if has_volume || reported.volume.is_none() || !reported.others.is_empty() {
                return Err(refused(why));
            }
            // By this the person says that the PoolVolume is right.
            return self.adopt_lost(device, &member.id, reported, run);
        }
        self.adopt_bare(device, member, &why, run)
    }

    /// A bare device that is not ready: something is on it that is not what it was.
    fn adopt_bare(
        &mut self,
        device: &Device,
        member: Arc<BareDevice>,
        why: &str,
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        let path = device.raw.path.display();
        let claim = self.pool().journal().bare_claim(&member.id);
        let what = match member.view() {
            Some(view) if claim.is_some_and(|claim| claim.should_be_blank()) => format!(
                "{} {path}, with volume {}; a filesystem of this volume is kept; otherwise a new one is made over what \
                 is there",
                run.tense("take", "took"),
                view.id
            ),
            Some(view) => format!("{} {path} as it is, with volume {}", run.tense("take", "took"), view.id),
            None => format!("{} {path}, and offer it again then", run.tense("erase", "began to erase")),
        };
        if run == Run::Real {
            let id = member.id.clone();
            self.done_in_time(&id, move || member.settle().map_err(PoolError::from))?;
        }
        Ok(vec![format!("{path}: {why}"), what])
    }

    /// A disk with our label that was given up while it was away, and is back.
    fn adopt_held(&mut self, device: &Device, member: &Arc<LabelledDisk>, run: Run) -> Result<Vec<String>, AdminError> {
        let mut lines = vec![
            format!(
                "{} {} ({}) back, which was given up",
                run.tense("take", "took"),
                device.raw.path.display(),
                device.id
            ),
            "its space is offered again, unless GiveUp, Drain or Release is still ordered for it".to_owned(),
        ];
        lines.extend(member.shown().content.volumes().map(|volume| {
            let (id, name) = (volume.id(), volume.record.map_or("no name", |record| &record.name));
            match volume.record.is_some_and(|record| record.found) {
                true => {
                    format!("volume {id} ({name}) is kept, and not used; `localpool volume adopt {id}` makes it usable")
                }
                false => format!("volume {id} ({name}) can be used again, with its data"),
            }
        }));
        if run == Run::Real {
            let disk = Arc::clone(member);
            self.done_in_time::<PoolError>(&device.id, move || Ok(disk.take_back()?))?;
        }
        Ok(lines)
    }

    /// A bare device that was given up with what is on it.
    fn adopt_given_up(&mut self, device: &Device, id: &DiskId, run: Run) -> Result<Vec<String>, AdminError> {
        if run == Run::Real {
            self.readmit(device, id)?;
        }
        let path = device.raw.path.display();
        Ok(vec![
            format!("{} the content of {path} ({id}) decide who owns it", run.tense("let", "let")),
            "sets claim it only if it is blank; its content stays unchanged".to_owned(),
        ])
    }

    /// A disk of another node.
    fn adopt_foreign(
        &mut self,
        device: &Device,
        (cluster, node): (&str, &NodeName),
        label: &Label,
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        if label.layout.is_directory() {
            let why = format!(
                "its volumes are folders of a filesystem that says it is of node {node}, cluster {cluster}; only that node uses it"
            );
            return Err(AdminError::NotAdoptable { disk: device.raw.path.display().to_string(), why });
        }
        let Owner { cluster: to_cluster, node: to_node } = self.pool().owner().clone();
        let mut lines = vec![format!(
            "{} the label of {}: from node {node} of cluster {cluster} to node {to_node} of cluster {to_cluster}",
            run.tense("write", "wrote"),
            device.raw.path.display()
        )];
        for (id, record) in &label.volumes {
            let next = format!("`localpool volume adopt {id}` makes it usable");
            lines.push(format!("volume {id} ({}) is kept, and not used; {next}", record.name));
        }
        lines.extend(self.given_up(&device.id, |volume| !label.volumes.contains_key(volume)));
        if run == Run::Real {
            self.take_over(device)?;
        }
        Ok(lines)
    }
}

/// More than one object names the device.
fn several(id: &DiskId, lost: &LostClaim) -> String {
    let verb = |one: &LostVolume| format!("`localpool volume settle {} --keep {id}` ({})", one.id, one.record.name);
    let verbs: Vec<String> = lost.volumes().map(verb).collect();
    format!("several PoolVolumes name it; to keep the right one, use {}", verbs.join(" or "))
}
