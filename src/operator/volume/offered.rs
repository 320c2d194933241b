//! Whether sets and LocalVolumes can serve a request at all, however much room their nodes have. Pure.
//!
//! If they cannot, the claim gets one clear answer: no other node could serve it.

use std::sync::Arc;

use kube::ResourceExt as _;

use crate::claim::Rule;
use crate::device::{SetName, label::VolumeUsage};
use crate::host::FsKind;
use crate::operator::set::parsed::{ParsedRules, SetObject};
use crate::volume::{Error, Selector, WantedUsage};

/// An object that a request may mean.
pub struct Candidate {
    /// Its kind and name, for people.
    what: String,
    reading: ParsedRules,
}

impl Candidate {
    /// Its valid rules that a request means.
    pub fn rules<'a>(&'a self, selector: &Selector) -> impl Iterator<Item = &'a Rule> {
        let valid = self.reading.as_ref().as_ref().into_iter().flatten();
        valid.filter(move |rule| selector.selects(rule))
    }
}

/// The objects of a kind that a request means, by their names and classes.
pub fn candidates<K: SetObject>(selector: &Selector, objects: &[Arc<K>], readings: Vec<ParsedRules>) -> Vec<Candidate> {
    let meant = |object: &K| {
        let name = SetName::new(object.namespace().unwrap_or_default(), object.name_any());
        let class = selector.class.as_ref().is_none_or(|class| object.classes().contains(&class.as_str()));
        let set = selector.set.as_ref().is_none_or(|set| *set == name);
        (class && set).then(|| format!("{} {name}", K::kind(&())))
    };
    let candidate = |(object, reading): (&Arc<K>, ParsedRules)| Some(Candidate { what: meant(object)?, reading });
    objects.iter().zip(readings).filter_map(candidate).collect()
}

/// The valid rules that a request means, or why there are none.
pub fn rules<'a>(selector: &Selector, candidates: &'a [Candidate]) -> Result<Vec<&'a Rule>, Error> {
    let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(selector)).collect();
    if !rules.is_empty() {
        return Ok(rules);
    }
    let invalid = |candidate: &'a Candidate| Some((&candidate.what, candidate.reading.as_ref().as_ref().err()?));
    Err(Error::Precondition(match candidates.iter().find_map(invalid) {
        Some((what, problems)) => format!("{what}, which should give disks to {selector}, is not valid: {problems}"),
        None => format!(
            "no LocalVolumeSet and no LocalVolume gives disks to {selector}: create one, or correct the parameters of \
             the StorageClass"
        ),
    }))
}

/// Whether one of the rules allows this use.
pub fn allows(selector: &Selector, rules: &[&Rule], usage: WantedUsage) -> Result<(), Error> {
    if rules.iter().any(|rule| allowed(rule, usage)) {
        return Ok(());
    }
    let (asked, only) = mode_names(usage);
    Err(Error::Invalid(format!(
        "the sets of {selector} allow volumeMode {only} only, and a volume of volumeMode {asked} is asked for"
    )))
}

/// Whether the set allows this use of a volume.
pub fn allowed(rule: &Rule, usage: WantedUsage) -> bool {
    rule.allows(match usage {
        WantedUsage::Block => VolumeUsage::Block,
        WantedUsage::Mount(kind) => VolumeUsage::Mount(kind.unwrap_or(FsKind::Ext4)),
    })
}

/// The mode that is asked for, and the only mode of a set that does not allow it.
pub fn mode_names(usage: WantedUsage) -> (&'static str, &'static str) {
    match usage {
        WantedUsage::Block => ("Block", "Filesystem"),
        WantedUsage::Mount(_) => ("Filesystem", "Block"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::crd::LocalVolumeSet;
    use crate::operator::set::parsed::Parsed;

    fn set_of(name: &str, spec: Value) -> Arc<LocalVolumeSet> {
        let metadata = json!({"name": name, "namespace": "d", "uid": name});
        let set = json!({"apiVersion": "v", "kind": "k", "metadata": metadata, "spec": spec});
        Arc::new(serde_json::from_value(set).expect("a set"))
    }

    fn asked(class: Option<&str>, set: Option<&str>, usage: WantedUsage) -> Result<(), Error> {
        let sets = [
            set_of("block", json!({"storageClassName": "raw", "volumeMode": "Block"})),
            set_of("files", json!({"storageClassName": "files", "volumeMode": "Filesystem"})),
            set_of("any", json!({"storageClassName": "any"})),
            set_of("typo", json!({"storageClassName": "typo", "dryrun": true})),
        ];
        let selector = Selector { class: class.map(str::to_owned), set: set.map(SetName::parse) };
        let candidates = candidates(&selector, &sets, Parsed::default().of_any_node(&sets));
        allows(&selector, &rules(&selector, &candidates)?, usage)
    }

    const MOUNT: WantedUsage = WantedUsage::Mount(None);

    #[test]
    fn a_request_that_a_set_can_serve_is_not_spoken_of() {
        for (class, set, usage) in [
            (Some("raw"), None, WantedUsage::Block),
            (Some("files"), None, MOUNT),
            (Some("any"), None, WantedUsage::Block),
            (Some("any"), Some("d/any"), MOUNT),
            (None, Some("d/files"), MOUNT),
        ] {
            assert!(asked(class, set, usage).is_ok(), "{class:?} {set:?}");
        }
    }

    #[test]
    fn a_mode_that_no_set_of_the_class_allows_is_an_invalid_request_that_names_the_mode() {
        for (class, usage, only) in [("raw", MOUNT, "Block only"), ("files", WantedUsage::Block, "Filesystem only")] {
            let refused = asked(Some(class), None, usage);
            let names_both = |words: &str| words.contains(only) && words.contains(&format!("class {class}"));
            assert!(matches!(&refused, Err(Error::Invalid(words)) if names_both(words)), "{refused:?}");
        }
    }

    #[test]
    fn a_set_that_is_missing_or_invalid_is_told_by_its_name_and_no_other_node_is_tried() {
        for (class, set, words) in [
            (Some("none"), None, "no LocalVolumeSet and no LocalVolume gives disks to class none"),
            (Some("raw"), Some("d/files"), "class raw by set d/files"),
            (None, Some("d/none"), "set d/none"),
            (
                Some("typo"),
                None,
                "LocalVolumeSet d/typo, which should give disks to class typo, is not valid: spec.dryrun",
            ),
        ] {
            let refused = asked(class, set, MOUNT);
            assert!(matches!(&refused, Err(Error::Precondition(message)) if message.contains(words)), "{refused:?}");
        }
    }
}
