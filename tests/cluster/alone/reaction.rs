//! The reaction (docs/reaction.md): disks and nodes are lost under StatefulSets of three, which are whole again without
//! a person, and nothing is deleted where it must not.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use localpool::host::fake::Platter;
use serde_json::json;

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, attempt, eventually, kubectl, name, run};
use crate::machine::Disk;
use crate::page::{section, typed};
use crate::runbook::command;
use crate::sets_of_three::{Member, RealDisks, members, remove_set, set_of_three, that_ask};
use crate::simulated::{SIMULATED, SimulatedNodes, Trouble, set_of_simulated_disks};
use crate::table::cell;

/// `recoverAfter`, the shortest that there is, less what two nodes are away of it: after a minute their
/// volumes would be marked.
const BEFORE_IT_ENDS: Duration = Duration::from_secs(45);

/// The simulated nodes: what each of the sets loses, two that all of them need, and one to spare.
const GONE: usize = 0;
const FENCED: usize = 1;
const DISK: usize = 2;
const SPLIT: [usize; 2] = [3, 4];
const FREE: usize = 5;
/// Each set that is on simulated nodes: what it is called, the node that it loses, and the claims of a pod.
type Fake = (&'static str, usize, &'static [&'static str]);
const FAKE: [Fake; 3] = [("gone", GONE, &["data"]), ("fenced", FENCED, &["data"]), ("disk", DISK, &["data", "more"])];

/// The chart of this tree, with the reaction in this mode. Four of seven nodes may be bad.
async fn switch(mode: &str) {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
    let of = |values: &str| {
        let values: Vec<String> = values.split(' ').map(|value| format!("controller.reaction.{value}")).collect();
        values.join(",")
    };
    let texts = of(&format!("mode={mode} recoverAfter=1m maxBadNodes=60%"));
    let numbers = of("atOnce=10 perHour=20");
    // Its job tolerates every taint, and would be scheduled to a node without a machine.
    let numbers = format!("{numbers},crds.apply=false");
    let release = ["upgrade", "localpool", chart, "--namespace", HOME];
    run("helm", &[&release[..], &["--set-string", &texts, "--set", &numbers]].concat()).await;
    kubectl(&["-n", HOME, "rollout", "status", "deployment/localpool-controller", "--timeout=5m"]).await;
}

/// The label of the nodes that a set may use.
fn label(set: &str) -> String {
    format!("test.localpool.dev/{set}")
}

struct Stage {
    simulated: SimulatedNodes,
    real: RealDisks,
}

impl Stage {
    async fn new(space: &Space) -> Self {
        let names: Vec<String> = (0..=FREE).map(|number| format!("{}-{number}", space.namespace)).collect();
        let simulated = SimulatedNodes::new(space, &names, 1 << 30).await;
        Self { simulated, real: RealDisks::new(space).await }
    }

    fn node(&self, number: usize) -> &str {
        &self.simulated.nodes[number].name
    }

    async fn permit(&self, space: &Space, number: usize, set: &str) {
        let labels = json!({"metadata": {"labels": {label(set): "yes"}}});
        space.patch("Node", None, self.node(number), &labels).await;
    }
}

/// A StatefulSet on the node that it loses and the two others.
async fn fake(space: &Space, stage: &Stage, (set, lost, claims): Fake) {
    for number in SPLIT.into_iter().chain([lost]) {
        stage.permit(space, number, set).await;
    }
    let term = json!({"labelSelector": {"matchLabels": {"app": set}}, "topologyKey": "kubernetes.io/hostname"});
    let apart = json!({
        "nodeSelector": {label(set): "yes"},
        "tolerations": [{"key": SIMULATED, "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    });
    set_of_three(space, set, claims, "fake", apart).await;
}

/// The set of simulated disks, and the StatefulSets. The node that is not ready leaves at once: its volumes are marked
/// a minute later, and `recoverAfter` begins then.
async fn prepare(space: &Space, stage: &mut Stage) {
    that_ask(space, &set_of_simulated_disks(space), FREE + 1).await;
    fake(space, stage, FAKE[1]).await;
    stage.simulated.begins(stage.node(FENCED), Trouble::Away);
    stage.simulated.nodes[FENCED].kill().await;
    tokio::join!(
        set_of_three(space, "real", &["data"], "real", json!({})),
        fake(space, stage, FAKE[0]),
        fake(space, stage, FAKE[2]),
    );
}

/// All pods of the sets, as they were; those whose volumes are lost, by the set.
struct Before {
    real: Member,
    gone: Member,
    fenced: Member,
    disk: Member,
    others: Vec<Member>,
}

impl Before {
    async fn of(space: &Space, stage: &Stage) -> Self {
        let mut others = members(space, "real").await;
        let real = others.remove(1);
        let mut lost = Vec::new();
        for (set, number, _) in FAKE {
            let (its, rest): (Vec<_>, Vec<_>) =
                members(space, set).await.into_iter().partition(|member| member.node() == stage.node(number));
            lost.extend(its);
            others.extend(rest);
        }
        let Ok([gone, fenced, disk]) = <[Member; 3]>::try_from(lost) else { panic!("one of each set") };
        Self { real, gone, fenced, disk, others }
    }

    /// No claim is deleted; the pod of the node that is gone is Kubernetes' own affair.
    async fn nothing_is_deleted(&self, space: &Space) {
        for member in self.others.iter().chain([&self.real, &self.fenced, &self.disk]) {
            member.is_untouched(space).await;
        }
        self.gone.is_kept(space).await;
    }
}

/// What was lost, and comes back in the end.
struct Lost {
    disk: Disk,
    saved: PathBuf,
    platter: Arc<Platter>,
    gone: Arc<Platter>,
    writes: u64,
}

/// A disk of the real node and one of a simulated one die, and one node is deleted. The pod on the dead disk of the
/// simulated node does not end.
async fn lose(space: &Space, stage: &mut Stage, before: &Before) -> Lost {
    let disk = space.machine().place(before.real.handles()[0]).await.expect("it is on a disk").disk;
    let saved = disk.dies(space.machine()).await;
    let platter = stage.simulated.nodes[DISK].host.unplug("sda").expect("it was there");
    stage.simulated.nodes[DISK].pool().nudge();
    stage.simulated.begins(stage.node(DISK), Trouble::Hangs);
    stage.simulated.nodes[GONE].kill().await;
    let gone = stage.simulated.nodes[GONE].host.platter("sda").expect("its disk");
    let page = section("troubleshooting.md", "A node never comes back");
    typed(&page.command("kubectl delete node", &[("NODE", stage.node(GONE))])).await;
    for (set, _, _) in FAKE {
        stage.permit(space, FREE, set).await;
    }
    Lost { disk, saved, platter, writes: gone.write_count(), gone }
}

/// While two of three nodes are away, which looks like a split of the network, nothing begins whose interval has
/// passed; the nodes come back.
async fn many_nodes_are_away(space: &Space, stage: &Stage, before: &Before) {
    for member in [&before.real, &before.disk] {
        member.is_lost(space).await;
    }
    tokio::time::sleep(BEFORE_IT_ENDS).await;
    for number in SPLIT {
        stage.simulated.begins(stage.node(number), Trouble::Away);
    }
    many_are_bad(space, before.real.volumes.len() + before.disk.volumes.len()).await;
    before.nothing_is_deleted(space).await;
    let lost = name(&before.real.volumes[0]);
    command("LocalpoolReactionStopped", "get pv")
        .shows(&space.nodes().await[0], &[lost, "Bound", &space.namespace])
        .await;
    for number in SPLIT {
        stage.simulated.ends(stage.node(number));
    }
}

/// Its interval has passed, and those of others that began with it: it may still run.
async fn fenced(space: &Space, stage: &Stage, member: &Member) {
    member.is_held(space, "NodeNotFenced").await;
    member.is_untouched(space).await;
    let (node, volume) = (stage.node(FENCED), member.handles()[0]);
    command("LocalpoolReactionHeld", "poolvolumes").shows(node, &[volume, node, "NodeNotFenced"]).await;
    command("LocalpoolReactionHeld", "get events")
        .shows(node, &[&space.namespace, "ReactionHeld", "NodeNotFenced"])
        .await;
    let table = command("LocalpoolAgentSilent", "devicepools").shows(node, &[node, "Unknown"]).await;
    assert_ne!(cell(&table, node, "SINCE"), cell(&table, node, "AGE"), "{table}");
    assert!(cell(&table, node, "SINCE").starts_with(|c: char| c.is_ascii_digit()), "{table}");
    let fence = json!([
        {"key": SIMULATED, "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
    ]);
    space.patch("Node", None, stage.node(FENCED), &json!({"spec": {"taints": fence}})).await;
    member.is_whole_again(space).await;
}

/// The leader counts these volumes: what holds back the whole cluster is not reported for each of them.
async fn many_are_bad(space: &Space, volumes: usize) {
    let poll = async || {
        let found = leader_reports(space, "localpool_controller_reaction_held").await?;
        let counts = found.iter().filter_map(|line| line.split_once("{why=\"ManyNodesBad\"} ")?.1.parse().ok());
        if counts.max().is_some_and(|count: usize| count >= volumes) { Ok(()) } else { Err(found.join(", ")) }
    };
    eventually("the reaction waits, as many nodes are bad", SOON, poll).await;
}

/// The lines of one metric that the leader serves.
async fn leader_reports(space: &Space, metric: &str) -> Result<Vec<String>, String> {
    let pod = leader(space).await;
    let path = format!("/api/v1/namespaces/{HOME}/pods/{pod}:9809/proxy/metrics");
    let metrics = attempt("kubectl", &["get", "--raw", &path]).await?;
    Ok(metrics.lines().filter(|line| line.starts_with(metric)).map(str::to_owned).collect())
}

async fn leader(space: &Space) -> String {
    let poll = async || {
        let lease = space.get("Lease", Some(HOME), "localpool-controller").await.ok_or("no lease")?;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        holder.map(str::to_owned).ok_or("nobody")
    };
    eventually("a controller leads", SOON, poll).await
}

/// The controllers are killed while the pod on the lost disk, whose claims are deleted, does not end. They have the
/// same names afterwards, so nobody waits for the lease.
async fn killed_in_the_middle(space: &Space, stage: &Stage, member: &Member) {
    let ends = async || {
        for claim in &member.claims {
            let claim = space.get("PersistentVolumeClaim", space.here(), name(claim)).await.expect("it has its pod");
            if claim["metadata"]["deletionTimestamp"].is_null() {
                return Err("a claim");
            }
        }
        Ok(())
    };
    eventually("both claims of the pod are deleted", SOON, ends).await;
    let counted = async || {
        let found = leader_reports(space, "localpool_controller_reaction_steps_total").await?;
        if found.is_empty() { Err("no step".to_owned()) } else { Ok(()) }
    };
    eventually("the leader counts what it has done", SOON, counted).await;
    let (node, volume) = (stage.node(DISK), name(&member.volumes[0]));
    command("LocalpoolReactionStuck", "get pv").shows(node, &[volume, "\"began\""]).await;
    command("LocalpoolReactionStuck", "poolvolumes").shows(node, &[volume, node, "Waits"]).await;
    let controllers = space.machine().processes(&["localpool", "controller"]);
    assert!(!controllers.is_empty());
    for pid in controllers {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    stage.simulated.ends(stage.node(DISK));
    let moved = member.is_whole_again(space).await;
    assert_eq!(moved.node(), stage.node(FREE));
}

async fn real(space: &Space, lost: &Lost, member: &Member) {
    member.is_whole_again(space).await;
    space.shell_soon(member.name(), "echo new >/data/line && sync").await;
    space.event(name(&member.claims[0]), &["ReactionClaimDeleted"]).await;
    lost.disk.returns(&lost.saved).await;
    member.let_go(space).await;
}

async fn gone(space: &Space, lost: &Lost, member: &Member) {
    let words = [member.handles()[0], member.node(), "NodeGone"];
    command("LocalpoolVolumeWithoutNode", "poolvolumes").shows(member.node(), &words).await;
    member.is_whole_again(space).await;
    member.is_forgotten(space).await;
    assert_eq!(lost.gone.write_count(), lost.writes, "nothing is erased");
}

/// A controller that was killed waits for an interval before it begins anything, so that comes last.
async fn play(space: &Space, stage: &mut Stage) {
    space.shell("real-0", "echo kept >/data/line && sync").await;
    let before = Before::of(space, stage).await;
    let lost = lose(space, stage, &before).await;
    many_nodes_are_away(space, stage, &before).await;
    tokio::join!(
        real(space, &lost, &before.real),
        gone(space, &lost, &before.gone),
        fenced(space, stage, &before.fenced),
    );
    killed_in_the_middle(space, stage, &before.disk).await;
    for member in &before.others {
        member.is_untouched(space).await;
    }
    assert_eq!(space.shell("real-0", "cat /data/line").await.trim(), "kept");

    let node = &stage.simulated.nodes[DISK];
    node.host.plug("sda", &format!("SERIAL-{}", node.name), lost.platter);
    node.pool().nudge();
    let taint = json!([{"key": SIMULATED, "effect": "NoSchedule"}]);
    space.patch("Node", None, stage.node(FENCED), &json!({"spec": {"taints": taint}})).await;
    stage.simulated.ends(stage.node(FENCED));
    stage.simulated.nodes[FENCED].run(&space.client);
    tokio::join!(before.disk.let_go(space), before.fenced.let_go(space));
}

/// Everything goes, so that no check after this one finds a node that nobody runs, or the reaction.
async fn clear(space: &Space, stage: Stage) {
    // Else no pod ends after a failure.
    stage.simulated.all_end();
    let all_sets = async {
        let sets = ["real", "gone", "fenced", "disk"].map(|set| remove_set(space, set));
        futures::future::join_all(sets).await;
        space.delete("LocalVolumeSet", space.here(), "fake").await;
        space.until_gone("LocalVolumeSet", space.here(), "fake").await;
    };
    let removed = AssertUnwindSafe(all_sets).catch_unwind().await;
    tokio::join!(stage.simulated.remove(space), switch("Off"));
    removed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    stage.real.remove(space).await;
}

#[test]
fn what_is_lost_under_sets_of_three_is_whole_elsewhere_and_nothing_is_deleted_while_many_nodes_are_away() {
    check(Needs::Machine, async |space| {
        let mut stage = Stage::new(space).await;
        let steps = async {
            tokio::join!(switch("On"), prepare(space, &mut stage));
            play(space, &mut stage).await;
        };
        let ended = AssertUnwindSafe(steps).catch_unwind().await;
        if ended.is_err() {
            for arguments in
                [&["get", "pv", "-o", "yaml"][..], &["get", "statefulsets,pods,pvc,pdb", "-A", "-o", "wide"]]
            {
                eprintln!("{}", kubectl(arguments).await);
            }
        }
        let cleared = AssertUnwindSafe(clear(space, stage)).catch_unwind().await;
        ended.and(cleared).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
