//! The subcommands that run a role: their options, and the settings that these become.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgAction, Args};
use jiff::SignedDuration;

use super::state::StateArgs;
use crate::operator::controller::{
    DaemonTemplate, DeletedNodePolicy, DiskSetupSettings, ReactionMode, ReactionSettings,
};
use crate::role::{LogFormat, Sidecar, controller, discovery, node, standalone};

#[derive(Debug, Args)]
pub struct StandaloneArgs {
    /// Unix socket to serve CSI on; created with mode 0600, together with its directory if that does not exist
    #[arg(long, default_value = "/run/localpool/csi.sock", env = "LOCALPOOL_SOCKET", hide_env_values = true)]
    socket: PathBuf,
    #[command(flatten)]
    state: StateArgs,
    /// YAML file of LocalVolumeSets (several documents): which disks may be used, and how
    #[arg(long, default_value = "/etc/localpool/sets.yaml", env = "LOCALPOOL_SETS", hide_env_values = true)]
    sets: PathBuf,
    /// Address of /healthz, /readyz and /metrics; without it none of them is served
    #[arg(long, env = "LOCALPOOL_HTTP", hide_env_values = true)]
    http: Option<SocketAddr>,
    /// How long a disk must be seen blank and without any event before it is claimed, such as 60s or 5m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    device_min_age: Duration,
    /// How many volumes the orchestrator may put on this node at once; 0 means no limit
    #[arg(long, default_value_t = 0)]
    max_volumes_per_node: u32,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    state: StateArgs,
    /// kubelet's root directory; the CSI and registration sockets are created in its `plugins` and `plugins_registry`
    #[arg(long, default_value = "/var/lib/kubelet", env = "LOCALPOOL_KUBELET_DIR", hide_env_values = true)]
    kubelet_dir: PathBuf,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:9808", env = "LOCALPOOL_HTTP", hide_env_values = true)]
    http: SocketAddr,
    /// How long a disk must be seen blank and without any event before it is claimed, such as 60s or 5m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    device_min_age: Duration,
    /// How many volumes the scheduler may put on this node at once; 0 means no limit
    #[arg(long, default_value_t = 0)]
    max_volumes_per_node: u32,
    /// Directory that the rules of `localpool udev-rules` are written to at the start, such as /etc/udev/rules.d
    #[arg(long, value_name = "DIR")]
    udev_rules_dir: Option<PathBuf>,
    /// Directory of LVM's configuration, such as /etc/lvm, that the filter of `localpool lvm-filter` is
    /// written to at the start
    #[arg(long, value_name = "DIR")]
    lvm_dir: Option<PathBuf>,
    /// Log lines as text or json
    #[arg(long, default_value = "text", value_parser = parse_log_format)]
    log_format: LogFormat,
}

#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// Namespace of this pod: of its lease, and of the sidecars' ServiceAccount
    #[arg(long, env = "LOCALPOOL_NAMESPACE", hide_env_values = true)]
    namespace: String,
    /// Name of this pod, which is its identity in the lease
    #[arg(long, env = "LOCALPOOL_POD_NAME", hide_env_values = true)]
    pod_name: String,
    /// Unix socket to serve CSI on, shared with the sidecars
    #[arg(long, default_value = "/csi/csi.sock", env = "LOCALPOOL_SOCKET", hide_env_values = true)]
    socket: PathBuf,
    /// Another socket, for the resizer, where volumes can only be expanded
    #[arg(long)]
    resizer_socket: Option<PathBuf>,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:9809", env = "LOCALPOOL_HTTP", hide_env_values = true)]
    http: SocketAddr,
    /// Address of the status page, a read-only page for a browser: a loopback address, as it asks nobody who they are. Reach it
    /// with `kubectl port-forward`. Without it the page is not served
    #[arg(long, value_parser = parse_loopback)]
    status_page: Option<SocketAddr>,
    /// Name of the lease whose holder writes StorageClasses, statuses and events
    #[arg(long, default_value = "localpool-controller")]
    lease: String,
    /// ServiceAccount of the sidecars; its token is renewed in --sidecar-token-dir
    #[arg(long, requires = "sidecar_token_dir")]
    sidecar_service_account: Option<String>,
    /// Directory that the sidecars mount as their identity
    #[arg(long, requires = "sidecar_service_account")]
    sidecar_token_dir: Option<PathBuf>,
    /// Labels of the agents' pods, in the controller's namespace: if a pod is not ready, its agent counts as silent
    #[arg(long, default_value = "app.kubernetes.io/name=localpool,app.kubernetes.io/component=node")]
    agent_pods: String,
    /// What happens to the objects of volumes whose Node object was deleted: Keep, or Release to give them up
    #[arg(long, default_value = "Keep", value_parser = parse_gone)]
    deleted_node_volumes: DeletedNodePolicy,
    /// Reserve marked, unbound PersistentVolumes, those of this driver and local ones of other provisioners: their
    /// claimRef names a claim that does not exist
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    reserve_marked: bool,
    /// Remove the taint localpool.dev/agent-not-ready of a node when its agent is ready
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    remove_startup_taint: bool,
    #[command(flatten)]
    disk_setups: DiskSetupArgs,
    #[command(flatten)]
    reaction: ReactionArgs,
    /// The DaemonSet that a LocalVolumeDiscovery runs, as JSON; without it there is no discovery
    #[arg(long, env = "LOCALPOOL_DISCOVERY_DAEMONSET", hide_env_values = true)]
    discovery_daemonset: Option<DaemonTemplate>,
    /// Log lines as text or json
    #[arg(long, default_value = "text", value_parser = parse_log_format)]
    log_format: LogFormat,
}

/// What the controller does about NodeDiskSetups.
#[derive(Debug, Args)]
struct DiskSetupArgs {
    /// Do what NodeDiskSetups ask for: set up disks by LocalVolumeSets of the controller's namespace, and write the speed of
    /// disks into ConfigMaps of the namespaces of claims
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    node_disk_setup: bool,
    /// Make the NodeDiskSetup local-raid-disks with its defaults, if there is none
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    local_raid_disks: bool,
    /// The namespaces in whose pods the command of a NodeDiskSetup may be run (its runIn: Pod), separated by commas; in
    /// others, the agents of the nodes measure
    #[arg(long, value_delimiter = ',')]
    exec_namespaces: Vec<String>,
}

impl DiskSetupArgs {
    fn settings(&self) -> DiskSetupSettings {
        let Self { node_disk_setup, local_raid_disks, exec_namespaces: _ } = self;
        match (node_disk_setup, local_raid_disks) {
            (false, _) => DiskSetupSettings::Ignored,
            (true, false) => DiskSetupSettings::Kept,
            (true, true) => DiskSetupSettings::KeptWithDefault,
        }
    }
}

/// What the controller does about pods whose local volume is lost.
#[derive(Debug, Args)]
struct ReactionArgs {
    /// Whether the claim of a lost volume is deleted and its pod evicted: Off, DryRun (only say what
    /// would be done) or On
    #[arg(long, default_value = "Off", value_parser = parse_mode)]
    reaction_mode: ReactionMode,
    /// How long a volume must be unusable before that, at least 1m
    #[arg(long, default_value = "5m", value_parser = parse_recovery)]
    reaction_recover_after: SignedDuration,
    /// How many lost volumes of the cluster to react to at once
    #[arg(long, default_value_t = 1)]
    reaction_at_once: usize,
    /// How many reactions to begin in an hour
    #[arg(long, default_value_t = 4)]
    reaction_per_hour: usize,
    /// Begin no reaction while more of the nodes than this are bad
    #[arg(long, default_value = "10%", value_parser = parse_percent)]
    reaction_max_bad_nodes: u8,
}

impl ReactionArgs {
    fn settings(self) -> ReactionSettings {
        let Self {
            reaction_mode: mode,
            reaction_recover_after: recover_after,
            reaction_at_once: at_once,
            reaction_per_hour: per_hour,
            reaction_max_bad_nodes: max_bad_nodes,
        } = self;
        ReactionSettings { mode, recover_after, at_once, per_hour, max_bad_nodes }
    }
}

#[derive(Debug, Args)]
pub struct DiscoveryArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Namespace of the LocalVolumeDiscovery, where the result is written
    #[arg(long)]
    namespace: String,
    /// How often to scan all devices even if no event came, such as 60m
    #[arg(long, default_value = "60m", value_parser = parse_duration)]
    resync: Duration,
    /// Log lines as text or json
    #[arg(long, default_value = "text", value_parser = parse_log_format)]
    log_format: LogFormat,
}

impl DiscoveryArgs {
    pub fn run(self) -> Result<()> {
        let Self { state, namespace, resync, log_format } = self;
        let node = state.node()?;
        let state_dir = state.state_dir;
        discovery::run(discovery::DiscoverySettings { node, state_dir, namespace, resync, log: log_format })
    }
}

impl StandaloneArgs {
    pub fn run(self) -> Result<()> {
        let Self { socket, state, sets, http, device_min_age, max_volumes_per_node } = self;
        let node = state.node()?;
        standalone::run(standalone::StandaloneSettings {
            socket,
            state_dir: state.state_dir,
            sets,
            http,
            node,
            min_age: device_min_age,
            max_volumes: i64::from(max_volumes_per_node),
        })
    }
}

impl NodeArgs {
    pub fn run(self) -> Result<()> {
        let Self {
            state,
            kubelet_dir,
            http,
            device_min_age,
            max_volumes_per_node,
            udev_rules_dir,
            lvm_dir,
            log_format,
        } = self;
        let node = state.node()?;
        node::run(node::NodeSettings {
            node,
            state_dir: state.state_dir,
            kubelet_dir,
            http,
            min_age: device_min_age,
            max_volumes: i64::from(max_volumes_per_node),
            udev_rules_dir,
            lvm_dir,
            log: log_format,
        })
    }
}

impl ControllerArgs {
    pub fn run(self) -> Result<()> {
        let Self {
            namespace,
            pod_name,
            socket,
            resizer_socket,
            http,
            status_page,
            lease,
            sidecar_service_account,
            sidecar_token_dir,
            agent_pods,
            deleted_node_volumes,
            reserve_marked,
            remove_startup_taint,
            disk_setups,
            reaction,
            discovery_daemonset,
            log_format,
        } = self;
        let sidecar = sidecar_service_account.zip(sidecar_token_dir);
        controller::run(controller::ControllerSettings {
            namespace,
            pod_name,
            socket,
            resizer_socket,
            http,
            status_page,
            lease,
            agent_pods,
            deleted_node_volumes,
            reserve_marked,
            remove_startup_taint,
            disk_setups: disk_setups.settings(),
            exec_namespaces: disk_setups.exec_namespaces,
            reaction: reaction.settings(),
            sidecar: sidecar.map(|(account, folder)| Sidecar { account, folder }),
            discovery: discovery_daemonset,
            log: log_format,
        })
    }
}

fn parse_gone(text: &str) -> Result<DeletedNodePolicy, String> {
    match text {
        "Keep" => Ok(DeletedNodePolicy::Keep),
        "Release" => Ok(DeletedNodePolicy::Release),
        other => Err(format!("{other:?} is neither Keep nor Release")),
    }
}

fn parse_mode(text: &str) -> Result<ReactionMode, String> {
    let all = [ReactionMode::Off, ReactionMode::DryRun, ReactionMode::On];
    all.into_iter().find(|mode| mode.word() == text).ok_or_else(|| format!("{text:?} is not Off, DryRun or On"))
}

/// A shorter time would react to a restart.
fn parse_recovery(text: &str) -> Result<SignedDuration, String> {
    let time = SignedDuration::try_from(parse_duration(text)?).map_err(|error| error.to_string())?;
    match time < SignedDuration::from_mins(1) {
        true => Err(format!("{text} is shorter than 1m: a restarting node can be away that long")),
        false => Ok(time),
    }
}

fn parse_percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=100).contains(number))
        .ok_or_else(|| format!("{text:?} is not a percentage, such as 10%"))
}

/// The page names the claims of all namespaces, and whoever reaches it may read it.
fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("{text:?} is no address with a port, such as 127.0.0.1:9812"))?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err(format!("{text} can be reached from other pods, and the page asks nobody who they are: use 127.0.0.1"))
        }
    }
}

fn parse_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{other:?} is neither text nor json")),
    }
}

/// A number and a unit: s, m or h.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write a number and s, m or h, such as 60s or 5m");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_reaction_are_these_and_no_interval_is_shorter_than_a_minute() {
        assert_eq!(parse_mode("DryRun"), Ok(ReactionMode::DryRun));
        assert!(parse_mode("on").is_err() && parse_mode("false").is_err());
        assert_eq!(parse_recovery("60s"), Ok(SignedDuration::from_mins(1)));
        assert!(parse_recovery("59s").is_err());
        assert_eq!((parse_percent("1%"), parse_percent("100%")), (Ok(1), Ok(100)));
        for bad in ["0%", "101%", "10", "-1%", "1.5%", "%"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_status_page_is_only_served_where_no_other_pod_gets_to() {
        assert!(parse_loopback("127.0.0.1:9812").is_ok() && parse_loopback("[::1]:9812").is_ok());
        for bad in ["0.0.0.0:9812", "[::]:9812", "10.1.2.3:80", "127.0.0.1", "localhost:9812", ""] {
            assert!(parse_loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "5", "m", "5d", "-1s", "1.5s", "99999999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
