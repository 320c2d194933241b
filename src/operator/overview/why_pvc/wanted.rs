//! What a claim asks for, and of whom: its class, and the sets that give disks to that.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaimSpec};
use kube::ResourceExt as _;

use super::answer::AnswerStep;
use super::case::PvcCase;
use super::refusal::{Unserved, of_claim, of_class, unserved};
use crate::api::quantity;
use crate::claim::{NodeMatch, Rule};
use crate::device::SetName;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::node::kube_node;
use crate::operator::set::parsed::{Parsed, SetObject};
use crate::operator::volume::eligible::{Candidate, allows, candidates, rules};
use crate::volume::{DRIVER_NAME, Selector, WantedUsage};

/// The parameter with the filesystem, as Kubernetes' own tools read it.
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// Says that a claim without a class takes the default one.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What a claim that waits asks this driver for.
pub struct PvcWanted<'c> {
    pub class: &'c str,
    pub required: u64,
    pub limit: Option<u64>,
    pub usage: WantedUsage,
    pub selector: Selector,
    pub rules: Vec<Rule>,
    /// Whether a volume is only made when a pod waits for it.
    pub waits_for_pod: bool,
}

/// What the claim says, in one line.
pub fn claim_text(case: &PvcCase) -> String {
    let spec = spec_of(case);
    let phase = case.pvc.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let class = match spec.storage_class_name.as_deref() {
        None => "no StorageClass".to_owned(),
        Some("") => "the empty StorageClass".to_owned(),
        Some(class) => format!("StorageClass {class}"),
    };
    let mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
    let required = required(&spec).map_or_else(|| "no size".to_owned(), quantity::short);
    format!("{}: {phase}; asks for {required}, {mode}, {class}", case.name)
}

/// The PersistentVolume that the claim names, if it names one: then no other is made for it.
pub fn named_volume(case: &PvcCase) -> Option<Option<&PersistentVolume>> {
    let name = case.pvc.spec.as_ref()?.volume_name.as_deref().unwrap_or_default();
    (!name.is_empty()).then_some(case.persistent.as_ref())
}

fn spec_of(case: &PvcCase) -> PersistentVolumeClaimSpec {
    case.pvc.spec.clone().unwrap_or_default()
}

fn required(spec: &PersistentVolumeClaimSpec) -> Option<u64> {
    let requests = spec.resources.as_ref()?.requests.as_ref()?;
    quantity::parse(&requests.get("storage")?.0).ok()
}

fn limit(spec: &PersistentVolumeClaimSpec) -> Option<u64> {
    let limits = spec.resources.as_ref()?.limits.as_ref()?;
    quantity::parse(&limits.get("storage")?.0).ok()
}

impl<'c> PvcWanted<'c> {
    /// What the claim asks this driver for, or why it gets nothing from it.
    pub fn of(case: &'c PvcCase) -> Result<Self, Unserved> {
        let class = Self::class(case)?;
        let spec = spec_of(case);
        of_claim(&spec)?;
        of_class(spec_class(case).unwrap_or_default(), class)?;
        let parameters = class.parameters.as_ref();
        let parameter = |name: &str| parameters.and_then(|all| all.get(name)).filter(|text| !text.is_empty());
        let filesystem = parameter(FS_TYPE).map(|text| text.parse()).transpose();
        let usage = match (spec.volume_mode.as_deref(), filesystem) {
            (Some("Block"), _) => WantedUsage::Block,
            (_, Ok(kind)) => WantedUsage::Mount(kind),
            (_, Err(unknown)) => {
                let next = format!("make the StorageClass again with a {FS_TYPE} of ext4, xfs or btrfs");
                return unserved(None, format!("the parameter {FS_TYPE} of its StorageClass: {unknown}"), next);
            }
        };
        let (class_parameter, set) = (parameter("class").cloned(), parameter("set").map(|set| SetName::parse(set)));
        let selector = Selector { class: class_parameter, set };
        let rules = serving(case, &selector, usage)?;
        Ok(Self {
            class: spec_class(case).unwrap_or_default(),
            required: required(&spec).unwrap_or_default(),
            limit: limit(&spec),
            usage,
            selector,
            rules,
            waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        })
    }

    /// The class of the claim, if it is this driver's.
    fn class(case: &'c PvcCase) -> Result<&'c k8s_openapi::api::storage::v1::StorageClass, Unserved> {
        let Some(name) = spec_class(case) else {
            let annotation = format!("{DEFAULT_CLASS}=true");
            return match case.pvc.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) {
                Some(_) => unserved(
                    None,
                    "it names the empty StorageClass, so nobody makes a volume for it",
                    "create a PersistentVolume for it, or make the claim again with a StorageClass",
                ),
                None => unserved(
                    None,
                    "it names no StorageClass, and the cluster has no default one",
                    format!("make the claim again with a StorageClass, or annotate one with {annotation}"),
                ),
            };
        };
        let wanted = |classes: Vec<&str>| classes.contains(&name);
        let sets = case.sets.iter().filter(|set| wanted(set.classes())).map(|set| set.name_any());
        let named: Vec<String> = sets
            .chain(case.local_volumes.iter().filter(|set| wanted(set.classes())).map(|set| set.name_any()))
            .collect();
        let Some(class) = &case.class else { return missing_class(case, name, &named) };
        if class.provisioner != DRIVER_NAME {
            let provisioner = &class.provisioner;
            return unserved(
                Some(AnswerStep::new("class", format!("{name}, of the provisioner {provisioner}"))),
                format!("its volumes come from {provisioner}, and not from localpool"),
                format!(
                    "`kubectl -n {} describe pvc {}` shows what that says",
                    case.name.namespace(),
                    case.name.name()
                ),
            );
        }
        Ok(class)
    }

    pub fn class_text(&self, case: &PvcCase) -> String {
        let binding = match self.waits_for_pod {
            true => "a volume is made when a pod waits for it",
            false => "a volume is made at once",
        };
        let reclaim = case.class.as_ref().and_then(|class| class.reclaim_policy.as_deref()).unwrap_or("Delete");
        format!("{}, of localpool, from the disks of {}; {binding}; {reclaim}", self.class, self.selector)
    }

    pub fn sets_text(&self) -> String {
        let one = |rule: &Rule| {
            let mode = rule.volume_mode.map_or_else(String::new, |mode| format!(", only {mode:?}"));
            let dry = if rule.dry_run { ", a dry run that claims nothing" } else { "" };
            format!("{}{mode}{dry}", rule.set.name)
        };
        self.rules.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Whether a set of the class selects the node.
    pub fn selects(&self, case: &PvcCase, node: &Node) -> bool {
        let is_selected = |rule: &Rule| rule.node != NodeMatch::NotSelected;
        let candidates = meant(case, &self.selector, Some(node));
        candidates.iter().any(|candidate| candidate.rules(&self.selector).any(is_selected))
    }

    /// Whether a set allows the mode of the claim. One that is not known here allows everything.
    pub fn allowed_by(&self, set: &SetName) -> bool {
        match self.rules.iter().find(|rule| rule.set.name == *set) {
            Some(rule) => allows(&self.selector, &[rule], self.usage).is_ok(),
            None => true,
        }
    }
}

/// Nobody has made the StorageClass that the claim names. `sets` have it as their storageClassName.
fn missing_class<T>(case: &PvcCase, name: &str, sets: &[String]) -> Result<T, Unserved> {
    let why = format!("there is no StorageClass {name}");
    // A set beside it would take the disks that its array is to have.
    if let Some(setup) = case.disk_setups.iter().find(|setup| setup.class() == name).filter(|_| sets.is_empty()) {
        let unread = "the controller has not read it; is the chart's value controller.nodeDiskSetup.enabled true?";
        let status = setup.status.as_ref().map(|status| status.message.as_str()).filter(|message| !message.is_empty());
        let setup_name = setup.name_any();
        let why = format!(
            "{why}: it comes with NodeDiskSetup {setup_name}, and {}",
            setup.slip().or(status).unwrap_or(unread)
        );
        return unserved(None, why, format!("correct it: kubectl edit nodedisksetup {setup_name}"));
    }
    if sets.is_empty() {
        let next = format!(
            "if {name} is misspelt, make the claim again with a class that `kubectl get sc` lists; otherwise create a \
             LocalVolumeSet with storageClassName: {name}, and its class is made with it"
        );
        return unserved(None, why, next);
    }
    let sets = sets.join(", ");
    let selector = Selector { class: Some(name.to_owned()), set: None };
    if let Err(invalid) = rules(&selector, &meant(case, &selector, None)) {
        let why = format!("{why}: the controller makes it when {sets} is valid, and {invalid}");
        return unserved(None, why, CORRECT);
    }
    unserved(
        None,
        format!("{why}, though {sets} names it: the controller makes the class of a valid set"),
        "`kubectl localpool status` says whether the controller runs",
    )
}

/// What to do if the parameters of the class lead to no set.
fn no_set(case: &PvcCase, selector: &Selector) -> String {
    let name = spec_class(case).unwrap_or_default();
    let see = format!("`kubectl get sc {name} -o yaml` shows its parameters");
    match (&selector.set, &selector.class) {
        (Some(set), class) => {
            let class = class.as_ref().map_or_else(String::new, |class| format!(" with storageClassName: {class}"));
            format!("{see}: make the class again without what is wrong there, or create the set {set}{class}")
        }
        (None, Some(class)) => format!(
            "if the claim should have another class, make it again: `kubectl get sc` lists them. If {class} is wrong, make \
             StorageClass {name} again; otherwise create a LocalVolumeSet with storageClassName: {class}"
        ),
        (None, None) => "create a LocalVolumeSet: docs/local-volume-sets.md".to_owned(),
    }
}

/// What to do about a set that is not valid.
const CORRECT: &str = "correct the set: its condition Valid lists everything that is wrong with it";

fn spec_class(case: &PvcCase) -> Option<&str> {
    case.pvc.spec.as_ref()?.storage_class_name.as_deref().filter(|class| !class.is_empty())
}

/// The sets and LocalVolumes that the claim means, as they are read for a node.
fn meant(case: &PvcCase, selector: &Selector, node: Option<&Node>) -> Vec<Candidate> {
    let node = node.map_or_else(|| crate::api::Node::standalone("any"), kube_node::selectable);
    let sets = candidates(selector, &case.sets, Parsed::default().of(&case.sets, &node));
    let volumes = candidates(selector, &case.local_volumes, Parsed::default().of(&case.local_volumes, &node));
    sets.into_iter().chain(volumes).collect()
}

/// The rules that can serve the claim at all.
fn serving(case: &PvcCase, selector: &Selector, usage: WantedUsage) -> Result<Vec<Rule>, Unserved> {
    let candidates = meant(case, selector, None);
    let rules = match rules(selector, &candidates) {
        Ok(rules) => rules,
        Err(why) => {
            let next = match candidates.is_empty() {
                true => no_set(case, selector),
                false => CORRECT.to_owned(),
            };
            return unserved(None, why.to_string(), next);
        }
    };
    match allows(selector, &rules, usage) {
        Ok(()) => Ok(rules.into_iter().cloned().collect()),
        Err(why) => {
            unserved(None, why.to_string(), "make the claim again with the other volumeMode, or with another class")
        }
    }
}
