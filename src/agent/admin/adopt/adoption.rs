//! A disk that a person takes over: what is done for it, and what that means for its volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agent::admin::error::AdminError;
use crate::agent::admin::plan::{Ran, VerbPlan};
use crate::agent::reconciler::Reconciler;
use crate::device::{
    Device, DiskId, HardwareId, NodeName, Owner, VolumeId,
    label::{Hardware, VolumeUsage},
};
use crate::pool::{BareClaim, BareDevice, BareVolume, LabelledDisk, PoolError};

/// A disk that is taken over, by the way in which it comes in.
pub(in crate::agent::admin) enum DiskAdoption {
    /// It is the disk from then on, and `copies` are its copies.
    Copy {
        device: Device,
        hardware: HardwareId,
        copies: BTreeSet<HardwareId>,
        /// Volumes that the disk had, and that are not on this one.
        gone: Vec<VolumeId>,
    },
    /// It is taken as it is, though it is an earlier state.
    Earlier {
        device: Device,
        /// The difference that makes it an earlier state.
        why: String,
        kept: Vec<(VolumeId, String)>,
        gone: Vec<VolumeId>,
    },
    /// The label of another node becomes one of this node.
    Foreign { device: Device, from: (String, NodeName), to: Owner, gone: Vec<VolumeId> },
    /// A labelled disk that was given up is used again.
    GivenUp {
        device: Device,
        member: Arc<LabelledDisk>,
        /// The consequences for its volumes.
        notes: Vec<String>,
    },
    /// A bare device that is not ready is taken with what is on it.
    Bare { device: Device, member: Arc<BareDevice>, why: String, volume: Option<BareContent> },
    /// A bare device gets the claim that PoolVolumes have of it.
    Claim { device: Device, id: DiskId, claim: Box<BareClaim>, volume: Box<BareVolume>, erased: Option<u64> },
    /// A bare device of which nobody knows a volume: its content decides.
    Unknown { device: Device, id: DiskId },
    /// A bare device that was given up: its content decides.
    Content { device: Device, id: DiskId },
    /// Sets may claim it again.
    Released { device: Device },
}

/// The volume of a bare device that is not ready.
pub(in crate::agent::admin) struct BareContent {
    pub id: VolumeId,
    /// Nothing was written for it yet.
    pub should_be_blank: bool,
}

impl VerbPlan for DiskAdoption {
    type Done = ();

    fn perform(&self, agent: &mut Reconciler) -> Result<(), AdminError> {
        match self {
            Self::Copy { device, hardware, copies, gone: _ } => take_copy(agent, device, hardware, copies),
            Self::Earlier { device, .. } => agent.relabel(device, |_| ()),
            Self::Foreign { device, to, .. } => {
                let Owner { cluster, node } = to.clone();
                agent.relabel(device, move |label| {
                    label.volumes.values_mut().for_each(|record| record.found = true);
                    (label.cluster, label.node) = (cluster, node);
                })
            }
            Self::GivenUp { device, member, notes: _ } => {
                let disk = Arc::clone(member);
                Ok(agent.errands.done_in_time::<PoolError>(&device.id, move || Ok(disk.take_back()?))?)
            }
            Self::Bare { member, .. } => {
                let (id, member) = (member.id.clone(), Arc::clone(member));
                Ok(agent.errands.done_in_time(&id, move || member.settle().map_err(PoolError::from))?)
            }
            Self::Claim { id, claim, .. } => {
                Ok(agent.pool().journal().take_up(id, BareClaim::clone(claim)).map_err(PoolError::from)?)
            }
            Self::Unknown { id, .. } => {
                agent.pool().journal().give_up_lost(id).map_err(PoolError::from)?;
                Ok(())
            }
            Self::Content { device, id } => Ok(agent.readmit(device, id)?),
            Self::Released { device } => Ok(agent.readmit(device, &device.id)?),
        }
    }

    fn lines(&self, ran: &Ran<()>) -> Vec<String> {
        match self {
            Self::Copy { device, hardware, copies, gone } => {
                let path = device.raw.path.display();
                let made = ran.tense("make", "made");
                let mut lines = vec![format!("{made} {path} ({hardware}) the pool disk {}", device.id)];
                lines.extend(copies.iter().map(|copy| format!("{copy} is its copy from then on, and is not used")));
                lines.extend(volumes_of(device).map(|(id, name)| has_data(id, name)));
                lines.extend(gone.iter().map(not_on_it));
                lines
            }
            Self::Earlier { device, why, kept, gone } => {
                let took = ran.tense("take", "took");
                let mut lines = vec![format!("{took} {} as it is: {why}", device.raw.path.display())];
                lines.extend(kept.iter().map(|(id, name)| has_data(*id, name)));
                lines.extend(gone.iter().map(not_on_it));
                lines
            }
            Self::Foreign { device, from: (cluster, node), to, gone } => {
                let mut lines = vec![format!(
                    "{} the label of {}: from node {node} of cluster {cluster} to node {} of cluster {}",
                    ran.tense("write", "wrote"),
                    device.raw.path.display(),
                    to.node,
                    to.cluster
                )];
                lines.extend(volumes_of(device).map(|(id, name)| {
                    let next = format!("`localpool volume adopt {id}` makes it usable");
                    format!("volume {id} ({name}) is kept, and not used; {next}")
                }));
                lines.extend(gone.iter().map(not_on_it));
                lines
            }
            Self::GivenUp { device, notes, .. } => {
                let (path, took) = (device.raw.path.display(), ran.tense("take", "took"));
                let back = format!("{took} {path} ({}) back, which was given up", device.id);
                let offered =
                    "its space is offered again, unless GiveUp, Drain or Release is still ordered for it".to_owned();
                [back, offered].into_iter().chain(notes.iter().cloned()).collect()
            }
            Self::Bare { device, why, volume, .. } => bare_lines(device, why, volume.as_ref(), ran),
            Self::Claim { device, id, volume, erased, claim: _ } => claim_lines(device, id, volume, *erased, ran),
            Self::Unknown { device, id } => {
                let blank = "a set claims it only if it is blank; its content stays unchanged";
                vec![content_decides(device, id, ran), blank.to_owned()]
            }
            Self::Content { device, id } => {
                let blank = "sets claim it only if it is blank; its content stays unchanged";
                vec![content_decides(device, id, ran), blank.to_owned()]
            }
            Self::Released { device } => {
                vec![format!("{} sets claim {} again", ran.tense("let", "let"), device.raw.path.display())]
            }
        }
    }
}

fn take_copy(
    agent: &mut Reconciler,
    device: &Device,
    hardware: &HardwareId,
    copies: &BTreeSet<HardwareId>,
) -> Result<(), AdminError> {
    // The label first: as long as the journal calls it a copy, all this can be done again.
    let named = Hardware::of(hardware.clone(), &device.raw);
    agent.relabel(device, |label| label.hardware = named)?;
    let written = agent.pool().journal().identify(|identities| {
        let identity = identities.entry(device.id.clone()).or_default();
        identity.copies.extend(copies.iter().cloned());
        identity.copies.remove(hardware);
        identity.original = Some(hardware.clone());
    });
    Ok(written.map_err(PoolError::from)?)
}

fn claim_lines(device: &Device, id: &DiskId, volume: &BareVolume, erased: Option<u64>, ran: &Ran<()>) -> Vec<String> {
    let took = ran.tense("take", "took");
    let (path, is) = (device.raw.path.display(), content_of(volume));
    let mut lines = vec![format!("{took} {path} ({id}) with volume {}, {is}", volume.id)];
    lines.extend(erased.map(|bytes| {
        format!("at least its first {bytes} bytes were erased already, together with the previous volume")
    }));
    lines
}

fn bare_lines(device: &Device, why: &str, volume: Option<&BareContent>, ran: &Ran<()>) -> Vec<String> {
    let (path, took) = (device.raw.path.display(), ran.tense("take", "took"));
    let what = match volume {
        Some(BareContent { id, should_be_blank: true }) => format!(
            "{took} {path}, with volume {id}; a filesystem of this volume is kept; otherwise a new one is made over what \
             is there"
        ),
        Some(BareContent { id, should_be_blank: false }) => format!("{took} {path} as it is, with volume {id}"),
        None => format!("{} {path}, and offer it again then", ran.tense("erase", "began to erase")),
    };
    vec![format!("{path}: {why}"), what]
}

/// The state of the volume's data on the device.
fn content_of(volume: &BareVolume) -> &'static str {
    match (volume.record.usage, volume.formatted) {
        (VolumeUsage::Block, _) => "its data as it is",
        (VolumeUsage::Mount(_), true) => "with its own filesystem",
        (VolumeUsage::Mount(_), false) => {
            "without a filesystem of its own: a new, empty one is made if the device is blank"
        }
    }
}

fn content_decides(device: &Device, id: &DiskId, ran: &Ran<()>) -> String {
    format!("{} the content of {} ({id}) decide who owns it", ran.tense("let", "let"), device.raw.path.display())
}

/// The volumes that its label describes, with their names.
fn volumes_of(device: &Device) -> impl Iterator<Item = (VolumeId, &str)> {
    let volumes = device.label.iter().flat_map(|label| &label.volumes);
    volumes.map(|(id, record)| (*id, record.name.as_str()))
}

fn has_data(id: VolumeId, name: &str) -> String {
    format!("volume {id} ({name}) has the data of this disk")
}

fn not_on_it(id: &VolumeId) -> String {
    format!("volume {id} is not on it, and is given up")
}
