//! The program itself, as the pod starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use localpool::api::crd::Intent;
use localpool::operator::crds::{self, Ownership};
use localpool::rpc::client::connect;
use localpool::rpc::proto::controller_client::ControllerClient;
use localpool::rpc::proto::identity_client::IdentityClient;
use localpool::rpc::proto::volume_capability::access_mode::Mode;
use localpool::rpc::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use localpool::rpc::proto::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, ProbeRequest, Topology,
    TopologyRequirement, VolumeCapability,
};
use localpool::volume::VolumeId;
use localpool_testing::{GIB, Running, eventually_async, free_address};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::agent::{AGAIN, Stage, TIMEOUT, unique};
use crate::cluster;
use crate::server::Cluster;

pub struct Controller {
    child: Running,
    port: u16,
    /// Of its status page.
    page: u16,
    pub socket: PathBuf,
    /// Where the resizer connects.
    resizer: PathBuf,
    token: PathBuf,
}

impl Controller {
    pub fn start(cluster: &Cluster, pod: &str) -> Self {
        Self::start_as(cluster, pod, &cluster.server.kubeconfig())
    }

    fn start_as(cluster: &Cluster, pod: &str, kubeconfig: &Path) -> Self {
        let (port, page) = (free_address().port(), free_address().port());
        let path = |name: &str| cluster.server.path(&format!("{pod}{name}"));
        let (socket, resizer, token) = (path(".sock"), path("-resizer.sock"), path("-token"));
        let log = std::fs::File::create(cluster.server.path(&format!("{pod}.log"))).expect("ours");
        let child = Command::new(env!("CARGO_BIN_EXE_localpool"))
            .args(["controller", "--namespace=localpool", "--sidecar-service-account=sidecars", "--log-format=json"])
            .args([format!("--pod-name={pod}"), format!("--socket={}", socket.display())])
            .arg(format!("--resizer-socket={}", resizer.display()))
            .arg(format!("--status-page=127.0.0.1:{page}"))
            .args([format!("--http=127.0.0.1:{port}"), format!("--sidecar-token-dir={}", token.display())])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Self { child: Running(child), port, page, socket, resizer, token }
    }

    /// Status and body.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        Self::ask(self.port, path, "Host: it\r\n").await
    }

    /// The same of its status page; `headers` end with a line each.
    pub async fn page(&self, path: &str, headers: &str) -> Option<(u16, String)> {
        Self::ask(self.page, path, headers).await
    }

    async fn ask(port: u16, path: &str, headers: &str) -> Option<(u16, String)> {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let code = text.split(' ').nth(1)?.parse().ok()?;
        Some((code, text))
    }

    pub async fn wait_for(&self, path: &str, code: u16) {
        self.wait_within(TIMEOUT, path, code).await;
    }

    async fn wait_within(&self, timeout: Duration, path: &str, code: u16) {
        let answers = async || self.get(path).await.is_some_and(|(found, _)| found == code);
        assert!(eventually_async(timeout, AGAIN, answers).await, "{path} never answered {code}");
    }

    /// Asks it to stop; returns how long that took.
    pub fn stop(mut self) -> Duration {
        let began = Instant::now();
        self.child.terminate();
        let status = self.child.wait().expect("it is ours");
        assert!(status.success(), "{status}");
        began.elapsed()
    }
}

async fn holder(cluster: &Cluster) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "localpool");
    let lease = leases.get_opt("localpool-controller").await.expect("an answer")?;
    lease.spec?.holder_identity.filter(|name| !name.is_empty())
}

async fn until_held_by(cluster: &Cluster, pod: &str) {
    let leads = async || holder(cluster).await.as_deref() == Some(pod);
    assert!(eventually_async(TIMEOUT, AGAIN, leads).await, "{pod} never led");
}

pub async fn namespace(cluster: &Cluster) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "localpool"}});
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = serde_json::from_value(object).expect("ours");
    namespaces.create(&PostParams::default(), &namespace).await.expect("a new one");
}

pub async fn account_of_sidecars(cluster: &Cluster) {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "localpool");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sidecars"}});
    let account = serde_json::from_value(account).expect("ours");
    accounts.create(&PostParams::default(), &account).await.expect("a new one");
}

#[tokio::test]
async fn a_controller_whose_token_has_expired_says_so_and_works_with_the_next_one() {
    let cluster = cluster!(fresh);
    namespace(&cluster).await;
    account_of_sidecars(&cluster).await;
    crds::apply(cluster.client.clone(), Ownership::Respect).await.expect("served");
    let (file, good) = (cluster.server.path("rotated-token"), cluster.server.token());
    std::fs::write(&file, "expired").expect("ours");
    let kubeconfig = cluster.server.kubeconfig_with(&format!("tokenFile: {}", file.display()));
    let controller = Controller::start_as(&cluster, "expired", &kubeconfig);
    controller.wait_for("/healthz", 200).await;
    let log = || std::fs::read_to_string(cluster.server.path("expired.log")).expect("its log");
    let is_said = async || log().contains("Unauthorized");
    assert!(eventually_async(TIMEOUT, AGAIN, is_said).await, "nothing is said of it: {}", log());
    assert_eq!(controller.get("/readyz").await.expect("served").0, 503);
    // As kubelet replaces it: a new file, renamed over the old one. Clients read it again within a minute.
    let next = cluster.server.path("next-token");
    std::fs::write(&next, good).expect("ours");
    std::fs::rename(next, file).expect("ours");
    controller.wait_within(4 * TIMEOUT, "/readyz", 200).await;
    until_held_by(&cluster, "expired").await;
    controller.stop();
}

#[tokio::test]
async fn the_controller_waits_for_its_crds_serves_csi_and_hands_its_lease_over() {
    let cluster = cluster!(fresh);
    namespace(&cluster).await;
    let controller = Controller::start(&cluster, "first");
    controller.wait_for("/healthz", 200).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!controller.socket.exists(), "the socket is there before the sidecars have an identity");
    account_of_sidecars(&cluster).await;

    assert!(eventually_async(TIMEOUT, AGAIN, async || controller.socket.exists()).await, "no socket");
    let token = std::fs::read_to_string(controller.token.join("token")).expect("a token");
    assert_eq!(token.split('.').count(), 3, "it is no token: {token:.20}");
    assert_eq!(std::fs::read_to_string(controller.token.join("namespace")).expect("there"), "localpool");
    let channel = connect(&controller.socket).await.expect("connected");
    let probe = async || {
        let answer = IdentityClient::new(channel.clone()).probe(ProbeRequest {}).await.expect("an answer");
        answer.into_inner().ready
    };
    assert_eq!((controller.get("/readyz").await.expect("served").0, probe().await), (503, Some(false)));
    crds::apply(cluster.client.clone(), Ownership::Respect).await.expect("served");
    controller.wait_for("/readyz", 200).await;
    assert_eq!(probe().await, Some(true));

    let stage = Stage::new(&cluster.client).await;
    let (node, name) = (unique("n"), unique("pvc"));
    stage.node(&node).await;
    let id = VolumeId::of_name(&name);
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    let term = Topology { segments: [("topology.localpool.dev/node".to_owned(), node.clone())].into() };
    let request = CreateVolumeRequest {
        name: name.clone(),
        volume_capabilities: vec![capability],
        accessibility_requirements: Some(TopologyRequirement { requisite: vec![], preferred: vec![term.clone()] }),
        ..CreateVolumeRequest::default()
    };
    let mut csi = ControllerClient::new(channel.clone());
    let agent = async {
        let asked = stage.asked(id).await;
        stage.make(&asked, 1).await;
    };
    // As the provisioner does: the program may see the new node a little later than the test.
    let making = async {
        loop {
            match csi.create_volume(request.clone()).await {
                Err(status) if status.code() == tonic::Code::ResourceExhausted => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                ended => break ended,
            }
        }
    };
    let (made, ()) = tokio::join!(making, agent);
    let made = made.expect("made").into_inner().volume.expect("a volume");
    assert_eq!((made.volume_id, made.accessible_topology), (id.to_string(), vec![term]));
    let agent = async {
        let going = stage.see(id, "deleted", |object| object.metadata.deletion_timestamp.is_some()).await;
        stage.let_go(&going).await;
    };
    let delete = DeleteVolumeRequest { volume_id: id.to_string(), ..DeleteVolumeRequest::default() };
    let (deleted, ()) = tokio::join!(csi.delete_volume(delete), agent);
    deleted.expect("deleted");

    until_held_by(&cluster, "first").await;
    // Its watch may show a little later what was answered, and that it leads.
    for line in [
        "localpool_controller_rpc_total{code=\"OK\",method=\"CreateVolume\"} 1",
        "localpool_controller_volumes{phase=\"Ready\"} 0",
        "localpool_controller_leader 1",
    ] {
        let is_there = async || controller.get("/metrics").await.is_some_and(|(_, metrics)| metrics.contains(line));
        assert!(
            eventually_async(TIMEOUT, AGAIN, is_there).await,
            "{line} is not in {:?}",
            controller.get("/metrics").await
        );
    }

    let second = Controller::start(&cluster, "second");
    second.wait_for("/readyz", 200).await;
    assert!(second.get("/metrics").await.expect("served").1.contains("localpool_controller_leader 0"));
    let took = controller.stop();
    // A pod has 30 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
    until_held_by(&cluster, "second").await;
    second.stop();
    assert_eq!(holder(&cluster).await, None, "the lease was not let go");
}

#[tokio::test]
async fn the_socket_of_the_resizer_grows_a_volume_and_makes_and_deletes_none() {
    let cluster = cluster!(fresh);
    namespace(&cluster).await;
    account_of_sidecars(&cluster).await;
    crds::apply(cluster.client.clone(), Ownership::Respect).await.expect("served");
    let controller = Controller::start(&cluster, "growth");
    controller.wait_for("/readyz", 200).await;
    let stage = Stage::new(&cluster.client).await;
    let (_, _, id) = stage.ready().await;

    let mut csi = ControllerClient::new(connect(&controller.resizer).await.expect("connected"));
    let delete = DeleteVolumeRequest { volume_id: id.to_string(), ..DeleteVolumeRequest::default() };
    let refused = csi.delete_volume(delete).await.expect_err("not here");
    assert_eq!(refused.code(), tonic::Code::Unimplemented, "{refused}");
    let create = CreateVolumeRequest { name: unique("pvc"), ..CreateVolumeRequest::default() };
    let refused = csi.create_volume(create).await.expect_err("not here");
    assert_eq!(refused.code(), tonic::Code::Unimplemented, "{refused}");
    let kept = stage.objects.get(&id.to_string()).await.expect("it is there");
    assert!(kept.metadata.deletion_timestamp.is_none() && kept.spec.intent == Intent::Keep, "{kept:?}");

    let two = i64::try_from(2 * GIB).expect("small");
    let agent = async {
        let asked = stage.see(id, "asked to grow", |object| object.spec.size == Some(two)).await;
        stage.say(&asked, json!({"observedSize": two, "size": two})).await.expect("first");
    };
    let expand = ControllerExpandVolumeRequest {
        volume_id: id.to_string(),
        capacity_range: Some(CapacityRange { required_bytes: two, limit_bytes: 0 }),
        ..ControllerExpandVolumeRequest::default()
    };
    let (grown, ()) = tokio::join!(csi.controller_expand_volume(expand), agent);
    assert_eq!(grown.expect("grown").into_inner().capacity_bytes, two);
    controller.stop();
}
