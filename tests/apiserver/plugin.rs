//! `kubectl localpool` as a person calls it: the program under that name, with a kubeconfig, and with no more rights than the
//! chart's roles for whoever only looks.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::DevicePool;
use localpool_testing::eventually_async;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agent::{AGAIN, TIMEOUT, on, unique};
use crate::cluster;
use crate::nodes::{make, offering};
use crate::server::Cluster;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool/templates/reader/rbac.yaml");

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// The rules of the chart's ClusterRole: they have nothing that Helm fills in.
fn rules() -> Value {
    let text = std::fs::read_to_string(CHART).expect("the chart");
    let rules = text.split("\nrules:\n").nth(1).expect("rules").split("\n---").next().expect("the first document");
    assert!(!rules.contains("{{"), "{rules}");
    serde_saphyr::from_str(rules).expect("YAML")
}

/// The file of a user of this name, who may do what the chart's role says.
async fn reader(cluster: &Cluster, user: &str) -> std::path::PathBuf {
    let role: ClusterRole = object(json!({"metadata": {"name": user}, "rules": rules()}));
    let binding = json!({
        "metadata": {"name": user}, "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": user, "apiGroup": "rbac.authorization.k8s.io"},
    });
    create(&Api::all(cluster.client.clone()), role).await;
    create::<ClusterRoleBinding>(&Api::all(cluster.client.clone()), object(binding)).await;
    nobody(cluster, user)
}

/// The file of a user of this name.
fn nobody(cluster: &Cluster, user: &str) -> std::path::PathBuf {
    cluster.server.kubeconfig_with(&format!("token: {}, as: {user}", cluster.server.token()))
}

async fn create<K>(api: &Api<K>, object: K) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &object).await.expect("a new object")
}

/// The API server learns of new rights by a watch.
async fn rights_count(kubeconfig: &Path) {
    let may = async || run("kubectl-localpool", kubeconfig, &["disks"]).await.status.success();
    assert!(eventually_async(TIMEOUT, AGAIN, may).await, "the rights do not count");
}

/// Pods need it, and no controller of the tests makes it.
async fn account(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = object(json!({"metadata": {"name": "default"}}));
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("an account: {error}"),
    }
}

/// Runs the program under a name.
async fn run(name: &'static str, kubeconfig: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_localpool"));
    command.arg0(name).args(words).arg("--kubeconfig").arg(kubeconfig).args(["--context", "it"]);
    command.env_remove("KUBECONFIG").stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("the program starts")
}

/// How a message says which cluster was asked.
fn asked_of(cluster: &Cluster) -> String {
    format!("(context it, server {})", cluster.server.url())
}

/// What the plugin answers.
async fn answer(kubeconfig: &Path, words: &[&str]) -> String {
    let output = run("kubectl-localpool", kubeconfig, words).await;
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A claim of this many MiB of a class whose volumes wait for a pod, and that class.
async fn claim(client: &Client, class: &str, mib: u64) -> String {
    let made: StorageClass = object(json!({
        "metadata": {"name": class}, "provisioner": "csi.localpool.dev", "parameters": {"class": class},
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
    }));
    create(&Api::all(client.clone()), made).await;
    let name = unique("data");
    let made: PersistentVolumeClaim = object(json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": format!("{mib}Mi")}}},
    }));
    create(&Api::namespaced(client.clone(), "default"), made).await;
    name
}

/// Without the line that counts the nodes of other tests, which come and go.
fn without_other_nodes(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.contains("selected by no set of the class")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_only_looks_learns_why_a_claim_waits_and_who_may_nothing_learns_that() {
    let cluster = cluster!(shared);
    let (stage, label, node) = offering(&cluster.client, 512).await;
    let name = claim(&cluster.client, &label, 100).await;
    let kubeconfig = reader(&cluster, &unique("reader")).await;
    rights_count(&kubeconfig).await;
    let pvc = format!("default/{name}");
    let text = answer(&kubeconfig, &["why", "pvc", &pvc]).await;
    assert!(text.contains(&format!("node {} can give up to", node.name)), "{text}");
    assert!(text.contains(&format!("next    start a pod that uses the claim {name}\n")), "{text}");
    let text = without_other_nodes(&text);
    assert_eq!(without_other_nodes(&answer(&kubeconfig, &["why", "pvc", &name, "-n", "default"]).await), text);
    let same = run("localpool", &kubeconfig, &["cluster", "why", "pvc", &pvc]).await;
    assert_eq!(without_other_nodes(&String::from_utf8_lossy(&same.stdout)), text);

    account(&cluster.client).await;
    let pod: Pod = object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]},
    }));
    create(&Api::namespaced(cluster.client.clone(), "default"), pod).await;
    let pools: Api<DevicePool> = Api::all(cluster.client.clone());
    let cordon = json!({"spec": {"cordon": true}});
    pools.patch(&node.name, &PatchParams::default(), &Patch::Merge(&cordon)).await.expect("there");
    let json = answer(&kubeconfig, &["why", "pvc", &pvc, "-o", "json"]).await;
    let found: Value = serde_json::from_str(&json).expect("JSON");
    let nodes = found["nodes"].as_array().expect("a list");
    let here = nodes.iter().find(|one| one["node"] == node.name.as_str()).expect("the node");
    assert_eq!(here["obstacles"], json!(["its DevicePool is cordoned (spec.cordon)"]), "{json}");
    assert!(
        found["next"].as_str().expect("text").starts_with(&format!("kubectl patch devicepool {}", node.name)),
        "{json}"
    );
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    pods.delete(&name, &DeleteParams::default()).await.expect("there");

    let missing = run("kubectl-localpool", &kubeconfig, &["why", "pvc", "default/nothing"]).await;
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("there is no claim default/nothing: `kubectl -n default get pvc`"), "{said}");
    assert!(said.contains(&asked_of(&cluster)), "{said}");
    let refused = run("kubectl-localpool", &nobody(&cluster, &unique("nobody")), &["why", "pvc", &pvc]).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && said.contains("persistentvolumeclaims") && said.contains("forbidden"),
        "{said}"
    );
    assert!(said.contains(&asked_of(&cluster)), "{said}");
    drop(stage);
}

/// What a person must not give away.
const SECRET: &str = "hunter2-of-the-test";

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_the_objects_of_localpool_and_no_secret_and_no_value_of_an_environment() {
    let cluster = cluster!(shared);
    let (_stage, label, node) = offering(&cluster.client, 512).await;
    let name = claim(&cluster.client, &label, 100).await;
    let kubeconfig = reader(&cluster, &unique("reader")).await;
    // Before they count there is an archive, too, without what may not be read.
    rights_count(&kubeconfig).await;
    let secret: Secret = object(json!({"metadata": {"name": name}, "stringData": {"password": SECRET}}));
    create(&Api::namespaced(cluster.client.clone(), "default"), secret).await;
    account(&cluster.client).await;
    let pod: Pod = object(json!({
        "metadata": {
            "name": name, "annotations": {"example.com/token": SECRET},
            "labels": {"localpool.dev/component": "node"},
        },
        "spec": {"containers": [{
            "name": "c", "image": "i",
            "env": [{"name": "PASSWORD", "value": SECRET},
                    {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}}}],
        }]},
    }));
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    create(&pods, pod).await;
    let file = cluster.server.path(&format!("{name}.tar.gz"));
    let path = file.to_str().expect("UTF-8").to_owned();
    let made = async || run("kubectl-localpool", &kubeconfig, &["bundle", &path]).await;
    let first = made().await;
    assert!(first.status.success(), "{first:?}");
    let again = made().await;
    assert_eq!(again.status.code(), Some(1), "what is there stays: {again:?}");
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("is there already: name another file"), "{said}");
    pods.delete(&name, &DeleteParams::default()).await.expect("there");

    let tar = Command::new("tar").args(["xzOf", &path]).output().expect("tar");
    assert!(tar.status.success(), "{tar:?}");
    let text = String::from_utf8(tar.stdout).expect("UTF-8");
    for there in [
        &*node.name,
        &name,
        "PASSWORD",
        "\"provisioner\": \"csi.localpool.dev\"",
        "apiServer",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(text.contains(there), "{there} is not in it");
    }
    assert!(!text.contains(SECRET), "a secret is in it");
    // The role for the namespace of the release is not bound here: what it is for is named as not read.
    let listed = Command::new("tar").args(["tzf", &path]).output().expect("tar");
    let files = String::from_utf8(listed.stdout).expect("UTF-8");
    for file in [
        "versions.json",
        "status.json",
        "problems.txt",
        "not-read.txt",
        "objects/devicepools.json",
        "objects/events.json",
    ] {
        assert!(files.lines().any(|line| line == format!("localpool-bundle/{file}")), "{file}: {files}");
    }
    assert!(text.contains("leases.coordination.k8s.io is forbidden"), "what is not there is named");
    // Whoever may read nothing gets an archive that says so.
    let file = cluster.server.path(&format!("{name}-nothing.tar.gz"));
    let path = file.to_str().expect("UTF-8");
    let nothing = run("kubectl-localpool", &nobody(&cluster, &unique("nobody")), &["bundle", path]).await;
    assert!(nothing.status.success(), "{nothing:?}");
    let said = String::from_utf8_lossy(&nothing.stdout).into_owned();
    assert!(said.contains("not in it: listing pods") && said.contains("not in it: listing devicepools"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lists_of_the_whole_cluster_have_each_disk_and_volume_with_its_claim_and_its_pod() {
    let cluster = cluster!(shared);
    let (stage, label, node) = offering(&cluster.client, 512).await;
    let volume = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room");
    let kubeconfig = reader(&cluster, &unique("reader")).await;
    rights_count(&kubeconfig).await;
    let named = answer(&kubeconfig, &["disks", "--node", &node.name, "-o", "name"]).await;
    let disk = named.trim().to_owned();
    assert_eq!(disk, format!("{}/{}", node.name, node.pool().disk_views()[0].id));
    let id = volume.id.to_string();
    let table = answer(&kubeconfig, &["volumes", "--node", &node.name]).await;
    assert!(table.lines().count() == 2 && table.contains(&id) && table.starts_with("NAMESPACE"), "{table}");
    let bare = answer(&kubeconfig, &["volumes", "--node", &node.name, "--no-headers"]).await;
    assert_eq!(bare.lines().count(), 1, "{bare}");
    let on_disk = answer(&kubeconfig, &["volumes", "--disk", &disk]).await;
    assert!(on_disk.lines().count() == 2 && on_disk.contains(&id), "{on_disk}");
    let elsewhere = answer(&kubeconfig, &["volumes", "--disk", &disk, "-n", "kube-system"]).await;
    assert_eq!(elsewhere, "no volume matches\n");
    for wrong in [
        ["volumes", "--node", "no-such-node"],
        ["disks", "--node", "no-such-node"],
        ["volumes", "--disk", "no-such-disk"],
        ["volumes", "-n", "no-such-namespace"],
        ["why", "pvc", "no-such-namespace/data"],
    ] {
        let refused = run("kubectl-localpool", &kubeconfig, &wrong).await;
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("no-such-") && !said.contains("no claim"), "{said}");
        assert!(said.trim_end().ends_with(&asked_of(&cluster)), "{said}");
    }
    let named = answer(&kubeconfig, &["disk", "cordon", "--dry-run", &disk]).await;
    assert!(named.starts_with("would cordon disk "), "{named}");
    let why = answer(&kubeconfig, &["why", "disk", &disk]).await;
    assert!(why.contains(&id) && why.contains("takes new volumes"), "{why}");
    let status = answer(&kubeconfig, &["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let nodes = status["nodes"].as_array().expect("a list");
    let here = nodes.iter().find(|one| one["node"] == node.name.as_str()).expect("the node");
    assert_eq!(
        (&here["disks"], &here["volumes"], &here["version"]),
        (&json!(1), &json!(1), &json!(env!("CARGO_PKG_VERSION")))
    );
    assert!(answer(&kubeconfig, &["status"]).await.contains("no controller runs"));
}
