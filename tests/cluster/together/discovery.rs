//! Discovery: what people apply for the Local Storage Operator, as it is in its documentation; a disk that is added;
//! and what remains when nobody asks any more. There is one discovery in a cluster, so there is one check.

use std::time::Instant;

use serde_json::{Value, json};

use crate::check::{Needs, check};
use crate::cluster::{HOME, SOON, eventually, name};

const SPACE: &str = "openshift-local-storage";
const NAME: &str = "auto-discover-devices";
/// Unchanged: the operator's users have this in their repositories.
const MANIFEST: &str = "\
apiVersion: local.storage.openshift.io/v1alpha1
kind: LocalVolumeDiscovery
metadata:
  name: auto-discover-devices
  namespace: openshift-local-storage
spec:
  nodeSelector:
    nodeSelectorTerms:
      - matchExpressions:
          - key: kubernetes.io/hostname
            operator: Exists
  tolerations:
    - key: node.ocs.openshift.io/storage
      operator: Equal
      value: \"true\"
      effect: NoSchedule
";

fn device<'a>(result: &'a Value, path: &str) -> Option<&'a Value> {
    result["status"]["discoveredDevices"].as_array()?.iter().find(|device| device["path"] == path)
}

#[test]
fn discovery_tells_of_a_disk_that_is_added_and_its_results_stay_when_it_goes() {
    check(Needs::Machine, async |space| {
        // From a run that was killed.
        space.delete("LocalVolumeDiscovery", Some(SPACE), NAME).await;
        space.delete("Namespace", None, SPACE).await;
        space.until_gone("Namespace", None, SPACE).await;
        space.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})).await;
        let file = space.machine().work.join("discovery.yaml");
        std::fs::write(&file, MANIFEST).unwrap();
        let named = MANIFEST.replace(NAME, "another-name");
        let other = space.machine().work.join("discovery-named.yaml");
        std::fs::write(&other, named).unwrap();
        let refused = crate::cluster::attempt("kubectl", &["apply", "-f", other.to_str().unwrap()]).await;
        assert!(refused.unwrap_err().contains("is called auto-discover-devices: use this name"));

        // The operator's own sample is for nodes that do not exist; people adapt it as below.
        let sample =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/together/samples/operator-localvolumediscovery.yaml");
        crate::cluster::kubectl(&["-n", SPACE, "apply", "-f", sample]).await;
        let waits = |object: &Value| object["status"]["conditions"].to_string().contains("NoNode");
        space.until("LocalVolumeDiscovery", Some(SPACE), NAME, "it says that it selects no node", waits).await;

        crate::cluster::kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
        let runs = |object: &Value| {
            let status = &object["status"];
            let all = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let available = all.iter().any(|one| one["type"] == "Available" && one["status"] == "True");
            status["phase"] == "Discovering"
                && available
                && status["observedGeneration"] == object["metadata"]["generation"]
        };
        space.until("LocalVolumeDiscovery", Some(SPACE), NAME, "all nodes are looked at", runs).await;
        let node = space.nodes().await.remove(0);
        let own = async || {
            let results = space.list("LocalVolumeDiscoveryResult", Some(SPACE)).await;
            results.into_iter().find(|result| result["spec"]["nodeName"] == node.as_str())
        };
        let whole =
            async || own().await.filter(|result| result["status"]["deviceCount"].as_i64() > Some(0)).ok_or("none");
        let result = eventually("a result of the node", SOON, whole).await;
        for label in ["discovery-result-node", "local.storage.openshift.io/discovery-node"] {
            assert_eq!(result["metadata"]["labels"][label], node.as_str());
        }
        assert!(result["metadata"]["ownerReferences"].is_null());
        let root = result["status"]["discoveredDevices"].as_array().unwrap();
        assert!(
            root.iter().any(|one| one["status"]["reason"].as_str().is_some_and(|why| why.contains("is mounted at")))
        );

        let begun = Instant::now();
        let disk = space.machine().disk(&format!("{}-found", space.namespace), 64 << 20).await;
        let path = disk.node.to_str().unwrap().to_owned();
        let told = async || {
            let result = own().await.unwrap_or_default();
            // A loop device that was there before may have had this name, and another size.
            let is_it = |found: &&Value| found["status"]["state"] == "Available" && found["size"] == 64 << 20;
            device(&result, &path).filter(is_it).cloned().ok_or("not yet")
        };
        let found = eventually("an added disk is in the result", SOON, told).await;
        // The acceptance limit is 2 s; the time that it took is in the log of the run.
        eprintln!("an added disk was in the result after {:?}", begun.elapsed());
        assert_eq!(found["type"], "loop");
        crate::cluster::run("losetup", &["--detach", &path]).await;
        let absent = async || match device(&own().await.unwrap_or_default(), &path) {
            None => Ok(()),
            Some(found) => Err(found.clone()),
        };
        eventually("a removed disk is not in the result", SOON, absent).await;

        let before = own().await.unwrap();
        space.delete("LocalVolumeDiscovery", Some(SPACE), NAME).await;
        space.until_gone("LocalVolumeDiscovery", Some(SPACE), NAME).await;
        space.until_gone("DaemonSet", Some(HOME), "localpool-discovery").await;
        let no_pods = async || {
            let pods = space.list("Pod", Some(HOME)).await;
            let of_it = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "discovery";
            match pods.iter().find(of_it) {
                None => Ok(()),
                Some(pod) => Err(name(pod).to_owned()),
            }
        };
        eventually("its pods go", SOON, no_pods).await;
        assert_eq!(own().await.unwrap()["metadata"]["uid"], before["metadata"]["uid"], "results stay");
        assert!(space.get("DaemonSet", Some(HOME), "localpool-node").await.is_some(), "the agent's is another one");
        space.delete("Namespace", None, SPACE).await;
        space.until_gone("Namespace", None, SPACE).await;
    });
}
