//! Reads what requests have in common: capabilities, sizes, parameters, topology. Pure; every refusal names the field.

use std::collections::{BTreeMap, HashMap};

use crate::device::{NodeName, SetName};
use crate::host::FsKind;
use crate::rpc::proto::volume_capability::{AccessType as CsiAccessType, access_mode::Mode};
use crate::rpc::proto::{CapacityRange, Topology, TopologyRequirement, VolumeCapability};
use crate::volume::{AccessType, Error, Nodes, Selector, TOPOLOGY_KEY, WantedUsage};

/// CSI 1.13, "Size Limits": strings without a stated limit have at most 128 bytes.
const MAX_STRING: usize = 128;
/// Keys that Kubernetes' sidecars add; they are accepted without a check.
const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";
/// The size of a volume if the request names none.
const DEFAULT_SIZE: u64 = 1 << 30;

/// One capability: how the volume is to be used, and in which mode.
#[derive(Clone, Debug)]
pub struct Capability {
    pub access_type: AccessType,
    pub single_target: bool,
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(message.into()))
}

/// A string that must be there and within limits.
pub fn required<'a>(field: &str, text: &'a str) -> Result<&'a str, Error> {
    match text.len() {
        0 => invalid(format!("{field} is missing")),
        1..=MAX_STRING => Ok(text),
        len => invalid(format!("{field} has {len} bytes; CSI allows {MAX_STRING}")),
    }
}

/// A volume's name: any text without the control characters that CSI bans, which are all but tab and line ends. They
/// would reach labels, logs and terminals.
pub fn volume_name(text: &str) -> Result<&str, Error> {
    let name = required("name", text)?;
    match name.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        false => Ok(name),
        true => invalid(format!("name {name:?} contains a control character")),
    }
}

/// Reads one capability.
pub fn access(capability: Option<&VolumeCapability>) -> Result<Capability, Error> {
    let Some(capability) = capability else { return invalid("volume_capability is missing") };
    let mode = match &capability.access_mode {
        None => return invalid("volume_capability.access_mode is missing"),
        Some(mode) => Mode::try_from(mode.mode).unwrap_or(Mode::Unknown),
    };
    match mode {
        Mode::SingleNodeWriter
        | Mode::SingleNodeReaderOnly
        | Mode::SingleNodeSingleWriter
        | Mode::SingleNodeMultiWriter => {}
        Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
            return invalid(format!(
                "access mode {} is not supported: a local volume is on one node only",
                mode.as_str_name()
            ));
        }
        Mode::Unknown => return invalid("volume_capability.access_mode.mode is missing or unknown"),
    }
    let access_type = match &capability.access_type {
        None => return invalid("volume_capability has neither `mount` nor `block`"),
        Some(CsiAccessType::Block(_)) => AccessType::Block,
        Some(CsiAccessType::Mount(mount)) => {
            if !mount.volume_mount_group.is_empty() {
                return invalid("volume_mount_group is not supported; Kubernetes sets fsGroup itself");
            }
            AccessType::Mount { fs: filesystem(&mount.fs_type)?, flags: mount.mount_flags.clone() }
        }
    };
    Ok(Capability { access_type, single_target: mode == Mode::SingleNodeSingleWriter })
}

/// Reads all capabilities of a request that creates a volume or asks about one: they must agree.
pub fn usage(capabilities: &[VolumeCapability]) -> Result<WantedUsage, Error> {
    let mut wanted = None;
    for capability in capabilities {
        let usage = match access(Some(capability))?.access_type {
            AccessType::Block => WantedUsage::Block,
            AccessType::Mount { fs, .. } => WantedUsage::Mount(fs),
        };
        match wanted {
            None => wanted = Some(usage),
            Some(other) if other == usage => {}
            Some(_) => return invalid("volume_capabilities contradict each other: a volume is used in one way"),
        }
    }
    wanted.map_or_else(|| invalid("volume_capabilities is missing"), Ok)
}

fn filesystem(text: &str) -> Result<Option<FsKind>, Error> {
    match text {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|e: crate::host::UnknownFilesystem| Error::Invalid(format!("fs_type: {e}")))
        }
    }
}

/// Required and limit in bytes.
pub fn sizes(range: Option<&CapacityRange>) -> Result<(u64, Option<u64>), Error> {
    let Some(range) = range else { return Ok((DEFAULT_SIZE, None)) };
    let bytes = |field: &str, value: i64| {
        u64::try_from(value).map_err(|_| Error::Invalid(format!("capacity_range.{field} is negative: {value}")))
    };
    let (required, limit) = (bytes("required_bytes", range.required_bytes)?, bytes("limit_bytes", range.limit_bytes)?);
    match (required, limit) {
        (0, 0) => invalid("capacity_range has neither required_bytes nor limit_bytes"),
        (required, 0) => Ok((required, None)),
        (required, limit) if limit < required => {
            invalid(format!("capacity_range.limit_bytes {limit} is below capacity_range.required_bytes {required}"))
        }
        (0, limit) => Ok((DEFAULT_SIZE.min(limit), Some(limit))),
        (required, limit) => Ok((required, Some(limit))),
    }
}

/// Reads the parameters of a StorageClass; unknown ones are refused by name.
pub fn parameters(given: &HashMap<String, String>) -> Result<(Selector, BTreeMap<String, String>), Error> {
    let mut selector = Selector::default();
    let mut kept = BTreeMap::new();
    for (key, value) in given.iter().filter(|(key, _)| !key.starts_with(PROVISIONER_PREFIX)) {
        match key.as_str() {
            "class" => selector.class = Some(required("parameters.class", value)?.to_owned()),
            "set" if value.split('/').count() == 2 => selector.set = Some(SetName::parse(value)),
            "set" => return invalid(format!("parameters.set must be <namespace>/<name>, not {value:?}")),
            other => return invalid(format!("parameters.{other} is unknown; the known ones are class and set")),
        }
        kept.insert(key.clone(), value.clone());
    }
    Ok((selector, kept))
}

/// Where the volume may be. A term without any key leaves the choice open; a term with a key that nodes do not have
/// here cannot be met.
pub fn nodes(topology: Option<&TopologyRequirement>) -> Result<Nodes, Error> {
    let Some(topology) = topology else { return Ok(Nodes::Any) };
    let mut keys = topology.requisite.iter().chain(&topology.preferred).flat_map(|term| term.segments.keys());
    if let Some(key) = keys.find(|key| *key != TOPOLOGY_KEY) {
        return invalid(format!(
            "the topology key {key} (allowedTopologies of the StorageClass) is not known here: volumes are placed by \
             {TOPOLOGY_KEY} only"
        ));
    }
    let named = |terms: &[Topology]| -> Option<Vec<NodeName>> {
        terms.iter().map(|term| term.segments.get(TOPOLOGY_KEY).map(|node| node.as_str().into())).collect()
    };
    Ok(match (topology.preferred.as_slice(), topology.requisite.as_slice()) {
        ([], []) => Nodes::Any,
        ([], requisite) => named(requisite).map_or(Nodes::Any, Nodes::AnyOf),
        (preferred, _) => named(preferred).map_or(Nodes::Any, Nodes::Preferred),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn capability(mode: Mode, access: CsiAccessType) -> VolumeCapability {
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access) }
    }

    fn mount(fs: &str) -> CsiAccessType {
        CsiAccessType::Mount(MountVolume { fs_type: fs.to_owned(), ..MountVolume::default() })
    }

    fn message_of<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        match result {
            Err(Error::Invalid(message)) => message,
            other => panic!("expected a refusal, not {other:?}"),
        }
    }

    #[test]
    fn capabilities_that_one_node_cannot_have_are_refused_by_name() {
        assert!(access(Some(&capability(Mode::SingleNodeWriter, mount("xfs")))).is_ok());
        assert!(access(Some(&capability(Mode::SingleNodeSingleWriter, mount("")))).expect("RWOP").single_target);
        let multi = access(Some(&capability(Mode::MultiNodeMultiWriter, mount(""))));
        assert!(message_of(multi).contains("MULTI_NODE_MULTI_WRITER"));
        let zfs = access(Some(&capability(Mode::SingleNodeWriter, mount("zfs"))));
        assert!(message_of(zfs).starts_with("fs_type: "));
        assert_eq!(message_of(access(None)), "volume_capability is missing");
        let both = [
            capability(Mode::SingleNodeWriter, mount("xfs")),
            capability(Mode::SingleNodeWriter, CsiAccessType::Block(BlockVolume {})),
        ];
        assert!(message_of(usage(&both)).contains("contradict"));
        assert!(message_of(usage(&[])).contains("volume_capabilities is missing"));
    }

    #[test]
    fn a_name_is_any_text_without_control_characters() {
        for good in ["pvc-1", "../../x", "ä ☃\t\n"] {
            assert_eq!(volume_name(good).expect("it is fine"), good);
        }
        for bad in ["a\0", "\u{1b}[31m", "\u{7f}", "\u{85}"] {
            assert!(message_of(volume_name(bad)).contains("control character"), "{bad:?}");
        }
        assert_eq!(message_of(volume_name("")), "name is missing");
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused_with_the_field() {
        let range = |required_bytes, limit_bytes| Some(CapacityRange { required_bytes, limit_bytes });
        assert_eq!(sizes(None).expect("a default"), (DEFAULT_SIZE, None));
        assert_eq!(sizes(range(5, 0).as_ref()).expect("fine"), (5, None));
        assert_eq!(sizes(range(0, 7).as_ref()).expect("fine"), (7, Some(7)));
        assert!(message_of(sizes(range(-1, 0).as_ref())).contains("required_bytes is negative"));
        assert!(message_of(sizes(range(1, -9).as_ref())).contains("limit_bytes is negative"));
        assert!(message_of(sizes(range(0, 0).as_ref())).contains("neither"));
        assert!(message_of(sizes(range(9, 8).as_ref())).contains("below"));
    }

    #[test]
    fn unknown_parameters_are_named_and_kubernetes_own_are_let_through() {
        let given = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>()
        };
        let (selector, kept) =
            parameters(&given(&[("class", "fast"), ("csi.storage.k8s.io/pvc/name", "x")])).expect("fine");
        assert_eq!((selector.class.as_deref(), kept.len()), (Some("fast"), 1));
        assert!(message_of(parameters(&given(&[("clas", "fast")]))).contains("parameters.clas is unknown"));
        assert!(message_of(parameters(&given(&[("set", "a")]))).contains("<namespace>/<name>"));
        assert!(message_of(parameters(&given(&[("class", "")]))).contains("parameters.class is missing"));
    }

    #[test]
    fn preferred_terms_come_in_their_order_and_requisite_ones_leave_the_choice() {
        let term = |node: &str| Topology { segments: [(TOPOLOGY_KEY.to_owned(), node.to_owned())].into() };
        let [a, b] = ["a", "b"].map(NodeName::from);
        let both = TopologyRequirement { requisite: vec![term("a"), term("b")], preferred: vec![term("b"), term("a")] };
        let nodes = |topology| nodes(topology).expect("ours");
        assert_eq!(nodes(Some(&both)), Nodes::Preferred(vec![b, a.clone()]));
        let requisite = TopologyRequirement { requisite: vec![term("a")], preferred: vec![] };
        assert_eq!(nodes(Some(&requisite)), Nodes::AnyOf(vec![a]));
        let open = TopologyRequirement { requisite: vec![Topology::default()], preferred: vec![] };
        assert_eq!((nodes(Some(&open)), nodes(None)), (Nodes::Any, Nodes::Any));
    }

    #[test]
    fn a_topology_that_nodes_do_not_have_here_is_refused_by_its_key() {
        let zone = || ("topology.kubernetes.io/zone".to_owned(), "a".to_owned());
        let alone = Topology { segments: [zone()].into() };
        let beside = Topology { segments: [zone(), (TOPOLOGY_KEY.to_owned(), "a".to_owned())].into() };
        for term in [alone, beside] {
            for (requisite, preferred) in [(vec![term.clone()], vec![]), (vec![], vec![term])] {
                let message = message_of(nodes(Some(&TopologyRequirement { requisite, preferred })));
                assert!(
                    message.contains("topology.kubernetes.io/zone") && message.contains("allowedTopologies"),
                    "{message}"
                );
            }
        }
    }
}
