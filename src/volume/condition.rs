//! The health of a volume, in one reason word and a sentence. Pure.

use std::borrow::Cow;

use crate::pool::{Standing, VolumeView};

/// A volume's condition; `reason` is one word for machines, `message` a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub abnormal: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
}

impl Condition {
    pub fn healthy() -> Self {
        Self { abnormal: false, reason: "Healthy".into(), message: "the volume is healthy".to_owned() }
    }

    pub fn abnormal(reason: impl Into<Cow<'static, str>>, message: String) -> Self {
        Self { abnormal: true, reason: reason.into(), message }
    }

    /// The condition as the pool knows it, without a look at the mounts.
    pub fn of(view: &VolumeView) -> Self {
        if let Some(why) = &view.conflict {
            return Self::abnormal("Conflict", format!("the volume is in conflict: {why}"));
        }
        match &view.standing {
            Standing::Missing => {
                Self::abnormal("DiskMissing", format!("disk {} is not there; is it unplugged or dead?", view.disk))
            }
            Standing::NotReady(why) => {
                Self::abnormal("DiskNotReady", format!("disk {} cannot be used: {why}", view.disk))
            }
            Standing::Ready if view.record.is_none() => Self::abnormal(
                "NotDescribed",
                format!("the label of disk {} does not describe the volume; its data is kept", view.disk),
            ),
            Standing::Ready => Self::healthy(),
        }
    }
}
