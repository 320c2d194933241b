//! A whole node of a cluster in this process: the real agent with its pool on a fake machine. Its disk is memory;
//! everything else is what runs on a node. The cluster tier uses it too.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use localpool::agent::{AgentHandle, BenchmarkPace, Checkup, CheckupHandle, DiskBenchmarker, Reconciler, TargetThread};
use localpool::device::Owner;
use localpool::health::Board;
use localpool::host::{Host, fake::FakeHost};
use localpool::operator::agent::{
    NodeOperator, PassSummary, Questions, Writes, ask_promises, ask_volumes, of_this_cluster,
};
use localpool::pool::{Pool, Workers};
use localpool::volume::VolumeLocks;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A node of the cluster: its machine outlives its agent.
pub struct SimNode {
    pub name: String,
    pub host: Arc<FakeHost>,
    /// What its state directory says about its cluster, if that is compared with the API server.
    pub cluster: Option<String>,
    /// Its clock, which its agent only uses for the age of a request for a volume.
    pub clock: fn() -> Timestamp,
    /// How long its agent waits for an answer of the controller.
    pub timeout: Duration,
    /// How long its agent watches a disk before it measures it, and waits for it to be idle.
    pub pace: BenchmarkPace,
    /// Held while a call handles a volume; they belong to the process.
    pub locks: VolumeLocks,
    /// What its agent has found, and where volumes are mounted for kubelet. It belongs to the process, too.
    pub board: Board,
    pub running: Option<Running>,
}

/// What a kill of the agent's process ends.
pub struct Running {
    operator: JoinHandle<()>,
    pub agent_handle: AgentHandle,
    thread: std::thread::JoinHandle<()>,
    pub checkups: CheckupHandle,
    targets: TargetThread,
    target_thread: std::thread::JoinHandle<()>,
    /// What it has written.
    #[allow(dead_code, reason = "no check of the cluster tier counts it")]
    pub writes: Arc<Writes>,
    pool: Arc<Pool>,
}

impl SimNode {
    /// A Node object with these labels, and a running agent on its machine.
    pub async fn of(client: &Client, name: &str, labels: Value, host: FakeHost) -> Self {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let nodes: Api<Node> = Api::all(client.clone());
        let node = serde_json::from_value(node).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("a new node");
        let mut node = Self {
            name: name.to_owned(),
            host: Arc::new(host),
            cluster: None,
            clock: Timestamp::now,
            timeout: Duration::from_secs(30),
            pace: BenchmarkPace {
                watch: Duration::from_millis(50),
                again: Duration::from_millis(100),
                timeout: Duration::from_secs(600),
            },
            locks: VolumeLocks::default(),
            board: Board::default(),
            running: None,
        };
        node.run(client);
        node
    }

    pub fn run(&mut self, client: &Client) {
        let machine: Arc<dyn Host> = Arc::clone(&self.host) as Arc<dyn Host>;
        let cluster = self.cluster.clone().unwrap_or_else(|| "sim".to_owned());
        let owner = Owner { cluster: cluster.clone(), node: self.name.as_str().into() };
        let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Threads).expect("a pool"));
        let agent = Reconciler::new(machine, Arc::clone(&pool), Duration::ZERO, Vec::new());
        let runtime = tokio::runtime::Handle::current();
        let agent = agent.asking_for_volumes(ask_volumes(client.clone(), self.name.as_str().into(), runtime.clone()));
        let questions = Questions::with_timeout(client.clone(), self.name.as_str().into(), self.timeout);
        let mut ask = ask_promises(questions.clone(), runtime.clone());
        if self.cluster.is_some() {
            ask = of_this_cluster(client.clone(), cluster, runtime, ask);
        }
        let agent = agent.asking_promises(ask);
        self.board = Board::default();
        let (board, (tell, health_changes)) = (self.board.clone(), mpsc::unbounded_channel());
        let agent = agent.attending(board.filesystems());
        let checkup = Checkup::new(Arc::clone(&self.host) as _, Arc::clone(&pool), board.clone(), agent.reports());
        let (checkups, _) = CheckupHandle::start(checkup, Vec::new(), move |change| drop(tell.send(change)));
        let recalled = checkups.clone();
        let (targets, target_thread) =
            TargetThread::start(Arc::clone(&self.host) as _, board.clone(), move || recalled.due());
        let (see, seen) = watch::channel(None);
        let after_pass = checkups.clone();
        let (agent_handle, thread) = AgentHandle::start(agent, Arc::clone(&pool), None, move |pass| {
            see.send_replace(Some(Arc::new(PassSummary::of(pass))));
            after_pass.due();
        });
        let writes = Arc::new(Writes::default());
        self.locks = VolumeLocks::default();
        let (handle, locks) = (agent_handle.clone(), self.locks.clone());
        let (operator, inbox) =
            NodeOperator::new(client.clone(), questions, Arc::clone(&pool), handle, locks, Arc::clone(&writes));
        let benchmarker = DiskBenchmarker::new(Arc::clone(&self.host) as _, Arc::clone(&pool), board.clone());
        let benchmarker = benchmarker.with_pace(self.pace);
        let operator = operator.by_clock(self.clock).with_health(board, checkups.clone()).with_benchmarker(benchmarker);
        let operator = tokio::spawn(operator.run(inbox, seen, health_changes));
        self.running = Some(Running { operator, agent_handle, thread, checkups, targets, target_thread, writes, pool });
    }

    pub async fn kill(&mut self) {
        let Some(Running { operator, agent_handle, thread, checkups, targets, target_thread, writes: _, pool }) =
            self.running.take()
        else {
            return;
        };
        operator.abort();
        let _ = operator.await;
        checkups.stop();
        targets.stop();
        agent_handle.stop();
        drop(pool);
        let ended = move || thread.join().and(target_thread.join());
        tokio::task::spawn_blocking(ended).await.expect("it ends").expect("no bug");
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.running.as_ref().expect("it runs").pool
    }
}

/// Also when a check fails: then nobody writes objects for it any more.
impl Drop for SimNode {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.operator.abort();
            running.checkups.stop();
            running.targets.stop();
            running.agent_handle.stop();
        }
    }
}
