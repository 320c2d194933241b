//! What is known of a device that a person wants to take over, and which way it can come in. Pure.

use crate::agent::admin::error::AdminError;
use crate::device::{Believed, Device, DiskId, Reason, Verdict};
use crate::pool::{LostClaim, LostVolume, Standing};

/// All that decides.
pub(super) struct AdoptionCandidate {
    /// As the person called it.
    pub text: String,
    pub device: Device,
    pub member: Membership,
    /// Its id as a bare device.
    pub bare_id: DiskId,
    /// PoolVolumes have a claim of it, and the journal has none.
    pub lost: Option<LostClaim>,
    /// The journal says of the bare device that it was given up.
    pub was_given_up: bool,
    /// The journal says that it was released.
    pub was_released: bool,
    /// A labelled disk of the pool with this id is in use.
    pub is_used: bool,
}

/// The member of the pool that the device is.
pub(super) enum Membership {
    None,
    Labelled,
    /// It was given up, and is back.
    GivenUp,
    Bare(Box<BareMembership>),
}

/// A bare device of the pool.
pub(super) struct BareMembership {
    pub id: DiskId,
    pub standing: Standing,
    /// The claim that PoolVolumes have there, if it contradicts the journal.
    pub reported: Option<LostClaim>,
    pub has_volume: bool,
}

/// The way in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WayIn {
    /// It is the disk from then on, and others with its label are its copies.
    Copy,
    /// PoolVolumes are right about the bare device.
    Reported { id: DiskId, lost: LostClaim },
    /// The content of the bare device is taken as it is; the text says why the device is not ready.
    Bare { why: String },
    /// The labelled disk was given up, and is used again.
    GivenUp,
    /// The bare device was given up: its content decides.
    Content,
    /// It is taken as it is, if it is an earlier state of what was here last.
    Earlier,
    /// It gets the label of this node.
    Foreign,
    /// Sets may claim it again.
    Released,
}

impl AdoptionCandidate {
    pub fn refused(&self, why: impl Into<String>) -> AdminError {
        AdminError::NotAdoptable { disk: self.text.clone(), why: why.into() }
    }

    /// Each reason that keeps a disk out has its own way in; the first one counts.
    pub fn way_in(&self) -> Result<WayIn, AdminError> {
        let Self { text: _, device, member, bare_id, lost, was_given_up, was_released, is_used } = self;
        if let Believed::No(why) = &device.believed {
            return match device.verdict {
                Verdict::Ours if device.label.is_some() => Ok(WayIn::Copy),
                Verdict::Ours | Verdict::Unclaimed | Verdict::Foreign { .. } => Err(self.refused(why)),
                Verdict::Theirs(_) | Verdict::Unknown(_) => Err(self.refused(why)),
            };
        }
        match member {
            Membership::Bare(member) => return self.bare_way_in(member),
            Membership::GivenUp => return Ok(WayIn::GivenUp),
            Membership::Labelled | Membership::None => {}
        }
        if let Some(lost) = lost {
            return match lost.others.is_empty() {
                true => Ok(WayIn::Reported { id: bare_id.clone(), lost: lost.clone() }),
                false => Err(self.refused(several(bare_id, lost))),
            };
        }
        if device.verdict != Verdict::Unclaimed && *was_given_up {
            return Ok(WayIn::Content);
        }
        match (&device.verdict, &device.label) {
            (Verdict::Ours, Some(_)) if !is_used => Ok(WayIn::Earlier),
            (Verdict::Ours, _) => Err(self.in_pool_already()),
            (Verdict::Foreign { .. }, Some(_)) => Ok(WayIn::Foreign),
            (Verdict::Foreign { .. }, None) => Err(self.refused("adopt its whole disk instead")),
            (Verdict::Unclaimed, _) if *was_released => Ok(WayIn::Released),
            (Verdict::Unclaimed, _) => Err(self.refused("it is blank; a LocalVolumeSet that selects it claims it")),
            // An array without a label; its claim looks at what is on it.
            (Verdict::Theirs(Reason::OfSet { .. }), _) if *was_released => Ok(WayIn::Released),
            (Verdict::Theirs(reason), _) => Err(self.refused(reason.to_string())),
            (Verdict::Unknown(why), _) => Err(self.refused(why)),
        }
    }

    pub fn in_pool_already(&self) -> AdminError {
        self.refused("it is in this node's pool already")
    }

    /// A bare device of this node's pool.
    fn bare_way_in(&self, member: &BareMembership) -> Result<WayIn, AdminError> {
        let BareMembership { id, standing, reported, has_volume } = member;
        let Standing::NotReady(why) = standing else { return Err(self.in_pool_already()) };
        let Some(reported) = reported else { return Ok(WayIn::Bare { why: why.clone() }) };
        // Of several volumes the other verb says which is there.
        if *has_volume || reported.volume.is_none() || !reported.others.is_empty() {
            return Err(self.refused(why));
        }
        // By this the person says that the PoolVolume is right.
        Ok(WayIn::Reported { id: id.clone(), lost: reported.clone() })
    }
}

/// More than one object names the device.
fn several(id: &DiskId, lost: &LostClaim) -> String {
    let verb = |one: &LostVolume| format!("`localpool volume settle {} --keep {id}` ({})", one.id, one.record.name);
    let verbs: Vec<String> = lost.volumes().map(verb).collect();
    format!("several PoolVolumes name it; to keep the right one, use {}", verbs.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::{label, unclaimed};

    fn candidate(device: Device) -> AdoptionCandidate {
        AdoptionCandidate {
            text: "/dev/sda".to_owned(),
            bare_id: DiskId::named("serial--SN-sda"),
            device,
            member: Membership::None,
            lost: None,
            was_given_up: false,
            was_released: false,
            is_used: false,
        }
    }

    fn ours() -> Device {
        Device { verdict: Verdict::Ours, label: Some(label("c", "n").into()), ..unclaimed("sda") }
    }

    fn bare(standing: Standing, reported: Option<LostClaim>, has_volume: bool) -> Membership {
        let id = DiskId::named("serial--SN-sda");
        Membership::Bare(Box::new(BareMembership { id, standing, reported, has_volume }))
    }

    #[test]
    fn each_reason_that_keeps_a_disk_out_has_its_own_way_in_and_the_first_one_counts() {
        let foreign = Verdict::Foreign { cluster: "c".into(), node: "other".into() };
        let foreign = Device { verdict: foreign, ..ours() };
        let copy = Device { believed: Believed::No("a copy".to_owned()), ..ours() };
        let way = |candidate: AdoptionCandidate| candidate.way_in().map_err(|refused| refused.to_string());
        let not_ready = || Standing::NotReady("something is on it".to_owned());
        let lost = Some(LostClaim::default());

        assert_eq!(way(AdoptionCandidate { is_used: true, lost: lost.clone(), ..candidate(copy) }), Ok(WayIn::Copy));
        let why = || "something is on it".to_owned();
        let member = bare(not_ready(), None, true);
        assert_eq!(way(AdoptionCandidate { member, ..candidate(unclaimed("sda")) }), Ok(WayIn::Bare { why: why() }));
        let member = Membership::GivenUp;
        assert_eq!(way(AdoptionCandidate { member, was_given_up: true, ..candidate(ours()) }), Ok(WayIn::GivenUp));
        let reported = WayIn::Reported { id: DiskId::named("serial--SN-sda"), lost: LostClaim::default() };
        assert_eq!(way(AdoptionCandidate { lost, was_given_up: true, ..candidate(ours()) }), Ok(reported));
        assert_eq!(way(AdoptionCandidate { was_given_up: true, ..candidate(ours()) }), Ok(WayIn::Content));
        assert_eq!(way(candidate(ours())), Ok(WayIn::Earlier));
        assert_eq!(way(candidate(foreign)), Ok(WayIn::Foreign));
        let (was_given_up, was_released) = (true, true);
        let blank = AdoptionCandidate { was_given_up, was_released, ..candidate(unclaimed("sda")) };
        assert_eq!(way(blank), Ok(WayIn::Released));
    }

    #[test]
    fn what_is_no_reason_for_a_person_is_refused() {
        let refused = |candidate: AdoptionCandidate| candidate.way_in().expect_err("no way in").to_string();
        let member = bare(Standing::Ready, None, true);
        assert!(
            refused(AdoptionCandidate { member, ..candidate(unclaimed("sda")) })
                .contains("in this node's pool already")
        );
        let member = bare(Standing::NotReady("two volumes".to_owned()), Some(LostClaim::default()), true);
        assert!(refused(AdoptionCandidate { member, ..candidate(unclaimed("sda")) }).contains("two volumes"));
        assert!(
            refused(AdoptionCandidate { is_used: true, ..candidate(ours()) }).contains("in this node's pool already")
        );
        assert!(refused(candidate(unclaimed("sda"))).contains("it is blank"));
        let theirs = Device { verdict: Verdict::Theirs(Reason::Busy), ..unclaimed("sda") };
        assert!(refused(candidate(theirs)).contains(&Reason::Busy.to_string()));
        let copy = Device { believed: Believed::No("a copy".to_owned()), ..unclaimed("sda") };
        assert!(refused(candidate(copy)).contains("a copy"));
    }
}
