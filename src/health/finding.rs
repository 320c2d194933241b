//! One thing that is wrong now, and what the pool itself knows to be wrong.

use std::fmt;

use jiff::Timestamp;

use super::reason::HealthReason;
use crate::pool::{DiskView, FAILING, Standing, VolumeView, WAS_GIVEN_UP};

/// One thing that is wrong with a disk or a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub reason: HealthReason,
    /// A sentence for people.
    pub message: String,
    /// When it was first seen by this process; `None`: it has only just been computed.
    pub since: Option<Timestamp>,
    pub found_by: FoundBy,
}

/// Who has found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// This process.
    Itself,
    /// An object says it, and which process of an agent has found it itself, if one has.
    Told(Option<String>),
}

impl Finding {
    pub fn new(reason: HealthReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), since: None, found_by: FoundBy::Itself }
    }

    /// What the pool knows of a disk, without asking it.
    pub fn of_disk(view: &DiskView) -> Vec<Self> {
        let standing = of_standing(&view.standing, &view.id.to_string());
        let failing =
            view.failing.as_ref().map(|why| Self::new(HealthReason::BackgroundWorkFails, format!("{FAILING}: {why}")));
        standing.into_iter().chain(failing).collect()
    }

    /// What the pool knows of a volume, without looking at its mounts.
    pub fn of_volume(view: &VolumeView) -> Vec<Self> {
        if let Some(why) = &view.conflict {
            return vec![Self::new(HealthReason::Conflict, format!("the volume is in conflict: {why}"))];
        }
        if let Some(finding) = of_standing(&view.standing, &view.disk.to_string()) {
            return vec![finding];
        }
        if view.given_up {
            let message = format!("disk {} {WAS_GIVEN_UP}: it is not used before somebody adopts it", view.disk);
            return vec![Self::new(HealthReason::DiskNotReady, message)];
        }
        if view.record.is_none() {
            let message = format!("the label of disk {} does not describe the volume; its data is kept", view.disk);
            return vec![Self::new(HealthReason::NotDescribed, message)];
        }
        Vec::new()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

fn of_standing(standing: &Standing, disk: &str) -> Option<Finding> {
    match standing {
        Standing::Missing => {
            Some(Finding::new(HealthReason::DiskMissing, format!("disk {disk} is not there; is it unplugged or dead?")))
        }
        Standing::NotReady(why) => {
            Some(Finding::new(HealthReason::DiskNotReady, format!("disk {disk} cannot be used: {why}")))
        }
        Standing::Ready => None,
    }
}
