//! What a real apiserver lets discovery and the controller do, with the chart's own roles and policies: the code itself
//! writes with its own rights, and anything beyond them is refused.

use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use localpool::operator::{
    controller::{Discoveries, Metrics, Stores},
    discovery::{Reporter, result_name},
};
use localpool::show::DeviceRow;
use localpool_testing::eventually_async;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::apiserver::{Answer, TIMEOUT};
use super::helm;
use super::lab::{BY_DEFAULT, Lab};

const GROUP: &str = "local.storage.openshift.io/v1alpha1";

async fn client(lab: &Lab, token: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(lab.server.kubeconfig(token)).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.accept_invalid_certs = true;
    Client::try_from(config).unwrap()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let is_so = eventually_async(TIMEOUT, Duration::from_millis(100), async || holds()).await;
    assert!(is_so, "never: {what}");
}

fn result(name: &str, node: &str, label: &str) -> String {
    let labels = json!({"discovery-result-node": label});
    let metadata = json!({"name": name, "namespace": "localpool", "labels": labels});
    json!({"apiVersion": GROUP, "kind": "LocalVolumeDiscoveryResult", "metadata": metadata, "spec": {"nodeName": node}})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_writes_its_own_nodes_result_and_the_controller_runs_nothing_but_discovery() {
    let Some(lab) = BY_DEFAULT.lab() else { return };
    for node in ["one", "two"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("discovery-{node}"), "namespace": "localpool"},
            "spec": {"nodeName": node, "serviceAccountName": "localpool-discovery",
                "containers": [{"name": "localpool", "image": "none"}]},
        });
        lab.server.admin(&["create", "-f", "-"], &pod.to_string());
    }
    let one = lab.token("localpool-discovery", Some("discovery-one"));
    let two = lab.token("localpool-discovery", Some("discovery-two"));
    let nodeless = lab.token("localpool-discovery", None);
    let agent = lab.token("localpool-node", Some("agent-one"));

    // The code, with its own rights.
    let row = json!({"path": "/dev/sda", "verdict": "Unclaimed", "type": "disk"});
    let row: DeviceRow = serde_json::from_value(row).unwrap();
    let (rows, watched) = watch::channel(None);
    let reporter = Reporter {
        client: client(lab, &one).await,
        namespace: "localpool".into(),
        node: "one".into(),
        resync: Duration::from_secs(3600),
    };
    let reporting = tokio::spawn(reporter.run(watched));
    rows.send_replace(Some(Arc::new(vec![row])));
    let name = result_name(&"one".into());
    let get = ["get", "localvolumediscoveryresult", &name, "--namespace=localpool", "--output=json"];
    until("the result of node one", || lab.server.try_as_admin(&get, "").output.contains("/dev/sda")).await;
    reporting.abort();

    let apply = ["apply", "--server-side", "--field-manager=x", "-f", "-"].as_slice();
    let status = json!({
        "apiVersion": GROUP, "kind": "LocalVolumeDiscoveryResult", "metadata": {"name": name, "namespace": "localpool"},
        "status": {"discoveredTimeStamp": "2020-03-09T08:37:19Z", "discoveredDevices": []},
    });
    let apply_status =
        ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--field-manager=x", "-f", "-"]
            .as_slice();
    let other = Some("may not write the result of node");
    let delete = ["delete", "localvolumediscoveryresult", &name, "--namespace=localpool"];
    let tries: Vec<(&str, &[&str], String, Option<&str>)> = vec![
        (&one, apply, result("a", "two", "two"), other),
        (&one, apply, result("a", "one", "two"), Some("the labels of a result name its own node")),
        (&one, apply, result("a", "one", "one"), None),
        (&two, apply, result("a", "one", "one"), other),
        (&two, apply, result("a", "two", "two"), Some("a result always belongs to the same node")),
        (&two, apply_status, status.to_string(), other),
        (&nodeless, apply, result("b", "one", "one"), Some("does not say which node")),
        (&one, &delete, String::new(), Some("forbidden")),
        (&agent, apply, result("c", "one", "one"), Some("forbidden")),
        (&one, &["get", "pods", "--namespace=localpool"], String::new(), Some("forbidden")),
        (&one, &["get", "secrets", "--namespace=localpool"], String::new(), Some("forbidden")),
        (&one, &["get", "devicepools"], String::new(), Some("forbidden")),
    ];
    for (number, (who, what, text, refused)) in tries.into_iter().enumerate() {
        let Answer { taken, output } = lab.server.kubectl(who, what, &text);
        match refused {
            None => assert!(taken, "try {number}: {what:?} {text}: {output}"),
            Some(why) => {
                assert!(!taken && output.contains(why), "try {number}: {what:?} {text} was not refused: {output}")
            }
        }
    }

    // The controller's code, with its own rights, and the DaemonSet that the chart tells it to run.
    let controller = lab.token("localpool-controller", None);
    let daemon = super::pods::discovery(&helm::one().unwrap().objects(&[]));
    let (caches, mut tasks) = (Stores::default(), JoinSet::new());
    let own = client(lab, &controller).await;
    caches.watch(&own, &mut tasks);
    let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
    let pattern = Some(daemon.to_string().parse().unwrap());
    let work = Discoveries::new(own, &caches, metrics, "localpool", pattern, "test");
    tasks.spawn(work.run());
    let discovery = json!({
        "apiVersion": GROUP, "kind": "LocalVolumeDiscovery",
        "metadata": {"name": "auto-discover-devices", "namespace": "localpool"}, "spec": {},
    });
    lab.server.admin(&["create", "-f", "-"], &discovery.to_string());
    let get = ["get", "daemonset", "localpool-discovery", "--namespace=localpool", "--output=json"];
    until("the DaemonSet", || lab.server.try_as_admin(&get, "").taken).await;
    let told = ["get", "localvolumediscoveries", "--namespace=localpool", "--output=json"];
    until("its status", || lab.server.try_as_admin(&told, "").output.contains("\"phase\": \"Discovering\"")).await;
    lab.server.admin(&["delete", "localvolumediscovery", "auto-discover-devices", "--namespace=localpool"], "");
    until("it goes", || !lab.server.try_as_admin(&get, "").taken).await;

    let changed = |pointer: &str, value: Value| {
        let mut daemon = daemon.clone();
        (daemon["apiVersion"], daemon["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
        daemon["metadata"]["namespace"] = json!("localpool");
        match pointer {
            "" => {}
            _ => *daemon.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value,
        }
        daemon.to_string()
    };
    let container = "/spec/template/spec/containers/0";
    let evil = json!([{"name": "root", "hostPath": {"path": "/"}}, {"name": "dev", "hostPath": {"path": "/dev"}},
        {"name": "state", "hostPath": {"path": "/dev"}}, {"name": "udev", "hostPath": {"path": "/dev"}},
        {"name": "provisioner-0", "hostPath": {"path": "/dev"}}]);
    let part = json!({"name": "provisioner-0", "mountPath": "/mnt", "readOnly": true, "subPath": "disks/vol1"});
    let two = json!([{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]);
    for (pointer, value, refused) in [
        ("/metadata/name", json!("mine"), Some("forbidden")),
        (&format!("{container}/image"), json!("evil"), Some("and nothing else")),
        (&format!("{container}/command"), json!(["sh", "-c"]), Some("and nothing else")),
        (&format!("{container}/args/0"), json!("--evil"), Some("and nothing else")),
        (&format!("{container}/env/1/name"), json!("LD_PRELOAD"), Some("no other environment")),
        (&format!("{container}/volumeMounts/0/readOnly"), json!(false), Some("only to read it")),
        (&format!("{container}/volumeMounts/2/mountPath"), json!("/usr/local/bin"), Some("where it is on the host")),
        (&format!("{container}/volumeMounts/2"), part, Some("and as a whole")),
        ("/spec/template/spec/volumes", evil, Some("only to read it")),
        ("/spec/template/spec/containers", two, Some("and nothing else")),
        ("/spec/template/spec/serviceAccountName", json!("localpool-node"), Some("with its identity")),
        ("", Value::Null, None),
    ] {
        let Answer { taken, output } = lab.server.kubectl(&controller, apply, &changed(pointer, value));
        match refused {
            None => assert!(taken, "{output}"),
            Some(why) => assert!(!taken && output.contains(why), "{pointer} was not refused: {output}"),
        }
    }
}
