//! Values: unknown ones are refused, each known one has an effect, and both Helms agree.

use std::process::Command;

use serde_json::{Map, Value};

use super::helm::{self, Helm, KUBERNETES};
use super::{chart, repository};

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(chart().join(path)).unwrap()).unwrap()
}

#[test]
fn both_helms_render_the_same_objects_and_find_nothing_to_complain_of() {
    let Some(helms) = helm::both() else { return };
    let mut cases = vec![vec![]];
    let files = helm::files_of_values();
    cases.extend(files.iter().map(|file| vec!["--values", file.as_str()]));
    for case in cases {
        for kubernetes in KUBERNETES {
            let [three, four] = helms.each_ref().map(|helm| {
                let done = helm.template(kubernetes, &case);
                assert!(done.status.success(), "{case:?}: {}", String::from_utf8_lossy(&done.stderr));
                let mut objects = helm::parse(&String::from_utf8(done.stdout).unwrap());
                objects.sort_by_key(|object| (object["kind"].to_string(), helm::name(object).to_owned()));
                objects
            });
            assert_eq!(three, four, "{case:?}");
        }
        for helm in &helms {
            let chart = chart();
            let mut args = vec!["lint", "--strict", "--kube-version=1.32.0", chart.to_str().unwrap()];
            args.extend_from_slice(&case);
            let done = helm.run(&args);
            let output = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && !output.contains("[WARNING]") && !output.contains("[ERROR]"), "{output}");
        }
    }
}

#[test]
fn a_value_that_the_chart_does_not_know_or_of_another_kind_is_refused_by_name() {
    let Some(helms) = helm::both() else { return };
    let wrong = [
        ("nodes.hostNetwork=true", "nodes"),
        ("node.kubletDir=/x", "kubletDir"),
        ("node.http.prt=1", "prt"),
        ("node.deviceMinAge=5", "deviceMinAge"),
        ("node.kubeletDir=var/lib", "kubeletDir"),
        ("node.maxUnavailable=0", "maxUnavailable"),
        ("node.resources.request.cpu=1", "request"),
        ("node.tolerations[0].efect=NoSchedule", "efect"),
        ("controller.replicas=0", "replicas"),
        ("controller.statusPage.address=0.0.0.0", "address"),
        ("controller.statusPage.port=0", "port"),
        ("controller.deletedNodeVolumes=Erase", "deletedNodeVolumes"),
        ("controller.reaction.mode=Yes", "mode"),
        ("controller.reaction.mode=false", "mode"),
        ("controller.reaction.recoverAfter=30s", "recoverAfter"),
        ("controller.reaction.atOnce=0", "atOnce"),
        ("controller.reaction.maxBadNodes=0%", "maxBadNodes"),
        ("controller.reaction.mode=On,admission.enabled=false", "admission.enabled"),
        ("provisioner.image.tga=v1", "tga"),
        ("resizer.port=70000", "port"),
        ("image.digest=sha256:12", "digest"),
        ("crds.keep=false", "keep"),
        ("admission.enable=false", "enable"),
        ("networkPolicy.apiServerPorts[0]=https", "apiServerPorts"),
        ("log.format=xml", "format"),
        ("serviceMonitor.enabled=1", "enabled"),
        ("prometheusRule.labels.a=b", "labels"),
        ("grafanaDashboard.enable=true", "enable"),
        ("kubernetesServicePort=https", "kubernetesServicePort"),
        ("commonLabels.app\\.kubernetes\\.io/name=other", "propertyName 'app.kubernetes.io/name'"),
        ("node.provisionerDirs[0]=mnt", "provisionerDirs"),
        ("node.hostMountDirs[0]=mnt", "hostMountDirs"),
        ("controller.nodeDiskSetup.localRaidDisks=true", "nodeDiskSetup.enabled"),
        ("controller.nodeDiskSetup.execNamespaces={a}", "nodeDiskSetup.enabled"),
        ("controller.nodeDiskSetup.execNamespaces[0]=A b", "execNamespaces"),
        (
            "controller.nodeDiskSetup.enabled=true,controller.nodeDiskSetup.execNamespaces={other,localpool}",
            "the namespace of this release",
        ),
        ("node.updateStrategy=Recreate", "updateStrategy"),
        ("node.extraArgs[0]=other", "extraArgs"),
        ("controller.extraEnv[0].nam=X", "extraEnv"),
        ("storageClasses[0].name=fast", "class"),
        ("storageClasses[0].name=fast,storageClasses[0].class=x,storageClasses[0].reclaimPolicy=Keep", "reclaimPolicy"),
        ("storageClasses[0].name=fast,storageClasses[0].class=x,storageClasses[0].parameters.class=y", "class"),
        ("storageClasses[0].name=fast,storageClasses[0].class=x,storageClasses[0].parameters.tpye=y", "tpye"),
        (
            "storageClasses[0].name=fast,storageClasses[0].class=x,storageClasses[0].labels.localpool\\.dev/component=y",
            "propertyName",
        ),
        ("openshift.scc=true", "scc"),
        ("roles.edit=true", "edit"),
    ];
    for helm in helms {
        for (set, named) in wrong {
            let done = helm.template(KUBERNETES[0], &["--set", set]);
            let output = String::from_utf8_lossy(&done.stderr);
            assert!(!done.status.success(), "--set {set} was taken");
            assert!(output.contains(named), "--set {set}: {output}");
        }
    }
}

/// Each value that has no further values below it, with its path. A value that the user fills in (`resources`,
/// selectors) counts as one.
fn leaves(values: &Map<String, Value>, above: &str, found: &mut Vec<(String, Value)>) {
    const FILLED_IN: [&str; 12] = [
        "commonLabels",
        "podSecurityContext",
        "annotations",
        "attachMetadata",
        "resources",
        "nodeSelector",
        "affinity",
        "podLabels",
        "podAnnotations",
        "serviceMonitor.labels",
        "prometheusRule.additionalLabels",
        "grafanaDashboard.labels",
    ];
    for (key, value) in values {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        let one = FILLED_IN.iter().any(|end| path == *end || path.ends_with(&format!(".{end}")));
        match value {
            Value::Object(below) if !one => leaves(below, &path, found),
            _ => found.push((path, value.clone())),
        }
    }
}

/// Another value of the same kind that the schema allows.
fn other(path: &str, value: &Value) -> Value {
    let affinity = || serde_json::json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
    let last = path.rsplit('.').next().unwrap();
    match (last, value) {
        ("digest", _) => format!("sha256:{}", "a".repeat(64)).into(),
        ("pullPolicy", _) => "Always".into(),
        ("format", _) => "json".into(),
        ("deletedNodeVolumes", _) => "Release".into(),
        ("mode", _) => "DryRun".into(),
        ("maxBadNodes", _) => "7%".into(),
        ("kubernetesServicePort", _) => "7443".into(),
        ("maxUnavailable", _) => "7%".into(),
        ("updateStrategy", _) => "OnDelete".into(),
        ("scrapeTimeout", _) => "7s".into(),
        ("provisionerDirs" | "hostMountDirs", _) => serde_json::json!(["/other"]),
        ("setNamespaces" | "execNamespaces", _) => serde_json::json!(["other"]),
        ("extraArgs", _) => serde_json::json!(["--other"]),
        ("extraEnv" | "extraVolumes" | "extraVolumeMounts", _) => serde_json::json!([{"name": "other"}]),
        ("relabelings" | "metricRelabelings", _) => serde_json::json!([{"action": "other"}]),
        ("topologySpreadConstraints", _) => serde_json::json!([{"topologyKey": "other"}]),
        ("storageClasses", _) => serde_json::json!([{"name": "other", "class": "other"}]),
        ("imagePullSecrets", _) => serde_json::json!([{"name": "other"}]),
        ("tolerations", _) => serde_json::json!([{"key": "other", "operator": "Exists"}]),
        ("apiServerPorts", _) => serde_json::json!([9443]),
        ("from", _) => serde_json::json!([{"podSelector": {}}]),
        ("affinity", _) => affinity(),
        ("resources", _) => serde_json::json!({"limits": {"cpu": "7"}}),
        (_, Value::Object(_)) => serde_json::json!({"other": "value"}),
        (_, Value::Bool(on)) => (!on).into(),
        (_, Value::Number(number)) => (number.as_i64().unwrap() + 3).into(),
        (_, Value::String(text)) if last.ends_with("Dir") => format!("{text}/other").into(),
        (_, Value::String(text)) if text.ends_with(['s', 'm']) && text[..1].parse::<u8>().is_ok() => "77s".into(),
        (_, Value::String(_)) => "other".into(),
        (_, other) => panic!("{path}: no other value for {other}"),
    }
}

fn render(helm: &Helm, json: &[String]) -> String {
    let args: Vec<&str> = json.iter().flat_map(|one| ["--set-json", one.as_str()]).collect();
    helm.text(&args)
}

#[test]
fn every_value_changes_something() {
    let Some(helm) = helm::one() else { return };
    let values = yaml("values.yaml");
    let mut found = Vec::new();
    leaves(values.as_object().unwrap(), "", &mut found);
    assert!(found.len() > 80, "only {} values", found.len());
    // Everything that other values depend on is turned on.
    let on = [
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "grafanaDashboard.enabled=true",
        "controller.nodeDiskSetup.enabled=true",
        "controller.statusPage.enabled=true",
        "node.udevRulesDir=\"/etc/udev/rules.d\"",
    ];
    let on = on.map(str::to_owned);
    let before = render(&helm, &on);
    for (path, value) in &found {
        let is_on = on.iter().any(|one| one.starts_with(&format!("{path}=")));
        let changed = format!("{path}={}", if is_on { value.clone() } else { other(path, value) });
        let all: Vec<String> = on.iter().cloned().chain([changed.clone()]).collect();
        assert_ne!(render(&helm, &all), before, "{changed} changes nothing: is the value used?");
    }
}

#[test]
fn every_value_is_in_the_schema_and_has_a_comment_right_above_it() {
    let values = yaml("values.yaml");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    let mut found = Vec::new();
    leaves(values.as_object().unwrap(), "", &mut found);
    let text = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (path, _) in &found {
        let place = line_of(&lines, path);
        assert!(lines[place - 1].trim_start().starts_with("# "), "values.yaml:{}: {path} is not explained", place + 1);
        let mut at = &schema;
        for key in path.split('.') {
            while let Some(reference) = at["$ref"].as_str() {
                at = &schema["definitions"][reference.strip_prefix("#/definitions/").unwrap()];
            }
            // A free-form object has no closed list.
            assert!(at["additionalProperties"] == false, "{path}: the schema would take a typo beside {key}");
            at = &at["properties"][key];
            assert!(!at.is_null(), "{path} is not in values.schema.json");
        }
    }
    closed(&schema, "");
}

/// The line that sets a value, counted from 0.
fn line_of(lines: &[&str], path: &str) -> usize {
    let mut at = 0;
    for (depth, key) in path.split('.').enumerate() {
        let wanted = format!("{}{key}:", "  ".repeat(depth));
        at +=
            lines[at..].iter().position(|line| line.starts_with(&wanted)).unwrap_or_else(|| panic!("{path}: no line"));
    }
    at
}

/// Every object with properties in the schema refuses others.
fn closed(schema: &Value, path: &str) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && schema["type"] == "object" {
                assert_eq!(schema["additionalProperties"], false, "{path} takes what it does not know");
            }
            fields.iter().for_each(|(key, value)| closed(value, &format!("{path}/{key}")));
        }
        Value::Array(items) => items.iter().for_each(|item| closed(item, path)),
        _ => {}
    }
}

#[test]
fn the_chart_has_the_version_of_the_crate_and_its_image_too() {
    let chart = yaml("Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let containerfile = std::fs::read_to_string(repository().join("Containerfile")).unwrap();
    let version = format!("ARG VERSION={}\n", env!("CARGO_PKG_VERSION"));
    assert!(containerfile.contains(&version), "Containerfile: {version}");
    let Some(helm) = helm::one() else { return };
    let image = format!("image: \"localpool.dev/localpool:{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(helm.text(&[]).matches(&image).count(), 3, "agent, controller, CRD job");
}

#[test]
fn a_kubernetes_that_is_too_old_is_refused() {
    let Some(helms) = helm::both() else { return };
    for helm in helms {
        let done = helm.template("1.31.9", &[]);
        assert!(!done.status.success());
        assert!(String::from_utf8_lossy(&done.stderr).contains("kubeVersion"));
    }
}

#[test]
fn the_test_cluster_has_the_reaction_off_and_the_interval_for_which_its_check_waits() {
    let Some(helm) = helm::one() else { return };
    let file = chart().join("ci/cluster-values.yaml");
    let text = helm.text(&["--values", file.to_str().unwrap()]);
    // tests/cluster/together/reaction_off.rs waits for 125 s.
    for argument in ["--reaction-mode=Off", "--reaction-recover-after=1m"] {
        assert!(text.contains(&format!("- {argument}\n")), "{argument}");
    }
}

#[test]
fn a_lost_volume_has_five_minutes_to_come_back_unless_the_values_say_otherwise() {
    assert_eq!(yaml("values.yaml")["controller"]["reaction"]["recoverAfter"], "5m");
    let help = Command::new(env!("CARGO_BIN_EXE_localpool")).args(["controller", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, of_it) = help.split_once("--reaction-recover-after").unwrap();
    let (of_it, _) = of_it.split_once("--reaction-at-once").unwrap();
    assert!(of_it.contains("[default: 5m]"), "{of_it}");
}
