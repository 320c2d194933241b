//! What a release says of itself, and its manifests for `kubectl apply -k` on a real API server.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use localpool_testing::Folder;
use localpool_testing::apiserver::TOKEN;
use serde_json::Value;

use super::apiserver::ApiServer;
use super::helm::{self, parse};
use super::{chart, repository};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(chart().join(file)).unwrap()).unwrap()
}

#[test]
fn artifact_hub_gets_the_images_that_the_chart_runs() {
    let listed: Value = {
        let annotations = &yaml("Chart.yaml")["annotations"];
        serde_saphyr::from_str(annotations["artifacthub.io/images"].as_str().unwrap()).unwrap()
    };
    let listed: BTreeSet<&str> = listed.as_array().unwrap().iter().filter_map(|one| one["image"].as_str()).collect();
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let templates = objects.iter().filter_map(|object| object["spec"]["template"]["spec"].as_object());
    let containers = templates.flat_map(|pod| ["containers", "initContainers"].map(|list| pod.get(list)));
    let containers = containers.flatten().filter_map(Value::as_array).flatten();
    let run: BTreeSet<&str> = containers.filter_map(|container| container["image"].as_str()).collect();
    assert_eq!(listed, run);
}

#[test]
fn the_manifests_of_a_release_install_all_that_the_chart_does_and_change_nothing_the_second_time() {
    let Some(helm) = helm::one() else { return };
    let Some(server) = ApiServer::start() else { return };
    let folder = Folder::new("localpool-manifests-");
    let made =
        Command::new(repository().join("scripts/release")).arg("--manifests").arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let apply = ["apply", "--server-side", "-k", folder.path().to_str().unwrap()];
    let first = server.admin(&apply, "");
    assert!(first.contains("namespace/localpool serverside-applied"), "{first}");
    let definitions = parse(&fs::read_to_string(chart().join("files/crds.yaml")).unwrap());
    let rendered = helm.objects(&["--no-hooks"]);
    for object in definitions.iter().chain(&rendered) {
        let (kind, name) =
            (object["kind"].as_str().unwrap().to_lowercase(), object["metadata"]["name"].as_str().unwrap());
        let is_it = |line: &str| line.starts_with(&kind) && line.ends_with(&format!("/{name} serverside-applied"));
        assert!(first.lines().any(is_it), "{kind} {name} is not in: {first}");
    }
    let versions = || {
        let text =
            server.admin(&["get", "all,crd,clusterrole,validatingadmissionpolicy,csidriver", "-A", "-o", "json"], "");
        let all: Value = serde_json::from_str(&text).unwrap();
        let own = all["items"].as_array().unwrap().iter().filter(|object| object.to_string().contains("localpool"));
        own.map(|object| (object["metadata"]["name"].to_string(), object["metadata"]["generation"].to_string()))
            .collect::<BTreeSet<_>>()
    };
    let before = versions();
    server.admin(&apply, "");
    assert_eq!(versions(), before, "what is there stays as it is");

    // The chart's job takes the definitions over.
    let config = server.kubeconfig(TOKEN);
    let job =
        Command::new(env!("CARGO_BIN_EXE_localpool")).args(["crds", "--apply"]).env("KUBECONFIG", config).output();
    let job = job.unwrap();
    assert!(job.status.success(), "{}", String::from_utf8_lossy(&job.stderr));
}

#[test]
fn a_release_has_the_name_of_its_image_wherever_the_chart_says_it() {
    if helm::one().is_none() {
        return;
    }
    let release = |image: &str| {
        let folder = Folder::new("localpool-manifests-");
        let mut script = Command::new(repository().join("scripts/release"));
        let made = script.arg("--manifests").arg(folder.path()).env("RELEASE_IMAGE", image).output().unwrap();
        // The script looks itself for the old name in the chart.
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::read_to_string(folder.path().join("localpool.yaml")).unwrap()
    };
    let manifests = release("ghcr.io/example/localpool");
    assert!(manifests.contains(&format!("ghcr.io/example/localpool:{VERSION}")));
    assert!(!manifests.contains("localpool.dev/localpool:"));
    assert!(release("localpool.dev/localpool").contains(&format!("localpool.dev/localpool:{VERSION}")));
}
