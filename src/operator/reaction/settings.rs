//! The settings of the administrator for the reaction.

use jiff::SignedDuration;

/// By this label, with this value, a StorageClass and a Namespace ask for the reaction.
pub const LABEL: &str = "localpool.dev/reaction";
pub const LABEL_VALUE: &str = "StatefulSet";
/// With this annotation, whatever its value, a PersistentVolume, a claim, a StatefulSet or a Namespace holds it back.
pub const PAUSE: &str = "localpool.dev/reaction-pause";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactionMode {
    /// Nothing begins. What has begun is taken back while that can be done, else it ends where it is.
    Off,
    /// As `Off`, but what would begin is reported.
    DryRun,
    On,
}

impl ReactionMode {
    /// The value in the chart, and the label of the metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::DryRun => "DryRun",
            Self::On => "On",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactionSettings {
    pub mode: ReactionMode,
    /// How long a volume may be unusable and come back.
    pub recover_after: SignedDuration,
    /// How many volumes are under way at once.
    pub at_once: usize,
    /// How many begin within an hour.
    pub per_hour: usize,
    /// Percent of the nodes that have volumes. If more of them are bad, nothing begins.
    pub max_bad_nodes: u8,
}
