//! Pods: what each container may do, what it sees, and what it gets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::chart;
use super::helm::{self, name, of_kind};

const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Name and specification of each pod that is rendered.
fn pods(objects: &[Value]) -> BTreeMap<String, &Value> {
    let kinds = ["DaemonSet", "Deployment", "Job"];
    let all = kinds.iter().flat_map(|kind| of_kind(objects, kind));
    all.map(|object| (name(object).to_owned(), &object["spec"]["template"]["spec"])).collect()
}

fn containers(pod: &Value) -> Vec<&Value> {
    let lists = ["initContainers", "containers"];
    lists.iter().filter_map(|list| pod[*list].as_array()).flatten().collect()
}

/// The DaemonSet that the controller creates for a LocalVolumeDiscovery, from its arguments.
pub fn discovery(objects: &[Value]) -> Value {
    let deployments = of_kind(objects, "Deployment");
    let pod = &deployments[0]["spec"]["template"]["spec"];
    let args = list(&pod["initContainers"][0], "args");
    let flag = args.iter().find_map(|arg| arg.as_str().unwrap().strip_prefix("--discovery-daemonset=")).unwrap();
    serde_json::from_str(&flag.replace("$$(", "$(")).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    value[key].as_array().map(|items| items.iter().collect()).unwrap_or_default()
}

fn ports(pod: &Value) -> BTreeMap<String, u64> {
    let all = containers(pod).into_iter().flat_map(|container| list(container, "ports"));
    all.map(|port| (port["name"].as_str().unwrap().to_owned(), port["containerPort"].as_u64().unwrap())).collect()
}

#[test]
fn the_agent_writes_udev_rules_only_where_it_is_told_a_folder_and_only_there() {
    let Some(helm) = helm::one() else { return };
    let agent = |objects: &[Value]| pods(objects)["localpool-node"].clone();
    let text = |pod: &Value| pod.to_string();
    assert!(!text(&agent(&helm.objects(&[]))).contains("udev-rules"));
    let pod = agent(&helm.objects(&["--set", "node.udevRulesDir=/etc/udev/rules.d"]));
    let container = &pod["containers"][0];
    assert!(list(container, "args").contains(&&Value::from("--udev-rules-dir=/etc/udev/rules.d")));
    let mount = serde_json::json!({"name": "udev-rules", "mountPath": "/etc/udev/rules.d"});
    assert!(list(container, "volumeMounts").contains(&&mount));
    let host = serde_json::json!({"path": "/etc/udev/rules.d", "type": "DirectoryOrCreate"});
    assert!(list(&pod, "volumes").iter().any(|volume| volume["name"] == "udev-rules" && volume["hostPath"] == host));
    let refused = helm.template(helm::KUBERNETES[0], &["--set", "node.udevRulesDir=rules.d"]);
    assert!(!refused.status.success(), "a folder has a whole path");
}

#[test]
fn mounts_of_the_agent_reach_the_host_only_below_the_folders_that_the_values_name() {
    let Some(helm) = helm::one() else { return };
    let shared = |values: &[&str]| {
        let objects = helm.objects(values);
        let pod = pods(&objects)["localpool-node"].clone();
        let mounts = list(&pod["containers"][0], "volumeMounts").into_iter();
        let shared = mounts.filter(|mount| mount["mountPropagation"] == "Bidirectional");
        let mut paths: Vec<String> = shared.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect();
        for volume in
            list(&pod, "volumes").into_iter().filter(|volume| volume["name"].as_str().unwrap().contains("host-"))
        {
            assert_eq!(volume["hostPath"]["type"], "DirectoryOrCreate");
            assert!(paths.contains(&volume["hostPath"]["path"].as_str().unwrap().to_owned()));
        }
        paths.retain(|path| path != "/var/lib/kubelet");
        paths
    };
    assert_eq!(shared(&[]), [""; 0]);
    let setup = "controller.nodeDiskSetup.enabled=true";
    assert_eq!(shared(&["--set", setup]), [""; 0]);
    assert_eq!(shared(&["--set", "node.hostMountDirs={/srv/a,/srv/b}"]), ["/srv/a", "/srv/b"]);
    let made = format!("{setup},controller.nodeDiskSetup.localRaidDisks=true,node.hostMountDirs={{/mnt/raid-disks}}");
    assert_eq!(shared(&["--set", &made]), ["/mnt/raid-disks"], "once, whoever names it");
    // A pod has a path once.
    let both = helm.objects(&["--set", "node.hostMountDirs={/mnt}"]);
    let pod = pods(&both)["localpool-node"].clone();
    let of_mnt = list(&pod["containers"][0], "volumeMounts").into_iter().filter(|mount| mount["mountPath"] == "/mnt");
    assert_eq!(of_mnt.count(), 1);
}

#[test]
fn the_agent_puts_a_filter_into_lvms_folder_only_where_it_is_told_one_and_the_rules_that_the_filter_needs() {
    let Some(helm) = helm::one() else { return };
    let rules = "node.udevRulesDir=/etc/udev/rules.d";
    let pod = pods(&helm.objects(&["--set", rules]))["localpool-node"].clone();
    assert!(!pod.to_string().contains("lvm"));
    let pod = pods(&helm.objects(&["--set", &format!("{rules},node.lvmDir=/etc/lvm")]))["localpool-node"].clone();
    let container = &pod["containers"][0];
    assert!(list(container, "args").contains(&&Value::from("--lvm-dir=/etc/lvm")));
    let mount = serde_json::json!({"name": "lvm", "mountPath": "/etc/lvm"});
    assert!(list(container, "volumeMounts").contains(&&mount));
    let host = serde_json::json!({"path": "/etc/lvm", "type": "DirectoryOrCreate"});
    assert!(list(&pod, "volumes").iter().any(|volume| volume["name"] == "lvm" && volume["hostPath"] == host));
    let refused = helm.template(helm::KUBERNETES[0], &["--set", "node.lvmDir=/etc/lvm"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("node.lvmDir needs node.udevRulesDir"), "{message}");
}

#[test]
fn by_default_only_the_agent_shares_anything_with_the_host_and_never_the_network() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let pods = pods(&objects);
    assert_eq!(pods.keys().collect::<Vec<_>>(), ["localpool-controller", "localpool-crds", "localpool-node"]);
    for (name, pod) in pods {
        assert!(pod["hostNetwork"].is_null() && pod["hostIPC"].is_null(), "{name}");
        let paths: BTreeSet<&str> =
            list(pod, "volumes").iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
        if name == "localpool-node" {
            assert_eq!(pod["hostPID"], true, "mounts in other namespaces are not seen without it");
            assert_eq!(paths, BTreeSet::from(["/dev", "/mnt", "/run/udev", "/var/lib/kubelet", "/var/lib/localpool"]));
        } else {
            assert!(pod["hostPID"].is_null() && paths.is_empty(), "{name}: {paths:?}");
        }
    }
}

#[test]
fn the_status_page_is_off_and_once_it_is_on_no_other_pod_reaches_it() {
    let Some(helm) = helm::one() else { return };
    let of = |values: &[&str]| {
        let objects = helm.objects(values);
        let controller = pods(&objects)["localpool-controller"]["initContainers"][0].clone();
        let args: Vec<String> = list(&controller, "args").iter().map(|arg| arg.as_str().unwrap().to_owned()).collect();
        let page: Vec<String> = args.into_iter().filter(|arg| arg.starts_with("--status-page")).collect();
        let policies = of_kind(&objects, "NetworkPolicy").iter().map(ToString::to_string).collect::<String>();
        (page, controller["ports"].clone(), policies)
    };
    let (page, ports, policies) = of(&[]);
    assert_eq!(page, [""; 0]);
    let (page, with_page, with_policies) = of(&["--set", "controller.statusPage.enabled=true"]);
    assert_eq!(page, ["--status-page=127.0.0.1:9812"]);
    assert_eq!((with_page, with_policies), (ports, policies), "it is no port of the pod");
    let (page, ..) = of(&["--set", "controller.statusPage.enabled=true,controller.statusPage.port=8888"]);
    assert_eq!(page, ["--status-page=127.0.0.1:8888"]);
}

#[test]
fn discovery_sees_what_the_agent_sees_and_can_write_to_none_of_it() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        let objects = helm.objects(&["--values", &file]);
        let daemon = discovery(&objects);
        let pod = &daemon["spec"]["template"]["spec"];
        let agent = &of_kind(&objects, "DaemonSet")[0]["spec"]["template"]["spec"];
        assert_eq!((&pod["hostPID"], &pod["hostNetwork"]), (&agent["hostPID"], &agent["hostNetwork"]));
        let [container] = list(pod, "containers")[..] else { panic!("one container") };
        let agents = &agent["containers"][0];
        for same in ["image", "imagePullPolicy", "securityContext"] {
            assert_eq!(container[same], agents[same], "{same}");
        }
        let mounts = list(container, "volumeMounts");
        assert!(mounts.iter().all(|mount| mount["readOnly"] == true), "{mounts:?}");
        let paths = |pod: &Value| -> BTreeSet<String> {
            let paths = list(pod, "volumes").into_iter().filter_map(|volume| volume["hostPath"]["path"].as_str());
            paths.map(str::to_owned).collect()
        };
        let kubelet = agents["args"].to_string();
        // It serves no volumes, so it needs neither the kubelet's folder nor files of the host to write.
        let rules =
            |path: &String| ["udev-rules", "lvm"].iter().any(|of| kubelet.contains(&format!("--{of}-dir={path}")));
        let is_shown = |path: &String| {
            let mut mounts = list(agents, "volumeMounts").into_iter();
            mounts
                .any(|mount| mount["mountPath"] == **path && mount["name"].as_str().unwrap().starts_with("host-mounts"))
        };
        let is_own = |path: &&String| !rules(path) && !is_shown(path);
        let more: Vec<String> = paths(agent).difference(&paths(pod)).filter(is_own).cloned().collect();
        let [more] = &more[..] else { panic!("{more:?}") };
        assert!(kubelet.contains(&format!("--kubelet-dir={more}")), "all but the kubelet's folder: {more}");
        assert!(paths(pod).is_subset(&paths(agent)));
        assert!(list(container, "ports").is_empty(), "it listens to nobody");
        let labels = &daemon["spec"]["template"]["metadata"]["labels"];
        let selector = daemon["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(selector.iter().all(|(key, value)| labels[key] == *value));
        assert!(daemon["metadata"]["name"].as_str().unwrap().ends_with("-discovery"));
    }
}

#[test]
fn the_controller_finds_the_agents_by_the_labels_that_their_pods_have() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        let objects = helm.objects(&["--values", &file, "--set", "nameOverride=disks"]);
        let of = |kind: &str| of_kind(&objects, kind)[0]["spec"].clone();
        let controller = &of("Deployment")["template"]["spec"]["initContainers"][0];
        let args = list(controller, "args").into_iter().filter_map(|arg| arg.as_str().map(str::to_owned));
        let selector = args.filter_map(|arg| arg.strip_prefix("--agent-pods=").map(str::to_owned)).next().unwrap();
        let agents = of("DaemonSet")["selector"]["matchLabels"].as_object().unwrap().clone();
        let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap());
        let wanted: BTreeSet<String> = agents.iter().map(pair).collect();
        assert_eq!(selector.split(',').map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
    }
}

#[test]
fn only_the_agent_is_privileged_and_all_others_are_confined() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        let objects = helm.objects(&["--values", &file]);
        for (name, pod) in pods(&objects) {
            for container in containers(pod) {
                let own = &container["securityContext"];
                assert_eq!(own["readOnlyRootFilesystem"], true, "{name} {}", container["name"]);
                if name.ends_with("-node") {
                    assert_eq!((&own["privileged"], &own["runAsUser"]), (&true.into(), &0.into()));
                    continue;
                }
                assert_eq!(own["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(own["capabilities"], serde_json::json!({"drop": ["ALL"]}), "{name}");
                assert!(own["privileged"].is_null(), "{name}");
                let of_pod = &pod["securityContext"];
                assert_eq!(of_pod["runAsNonRoot"], true, "{name}");
                // OpenShift gives the user ids.
                let ids = if file.contains("openshift") { Value::Null } else { 65532.into() };
                for id in ["runAsUser", "runAsGroup", "fsGroup"] {
                    assert_eq!(of_pod[id], ids, "{name} {id}");
                }
                assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            }
        }
    }
}

#[test]
fn a_node_runs_one_container_never_two_agents_and_only_its_mounts_in_the_kubelets_folder_reach_the_host() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&["--set", "node.kubeletDir=/kubelet,node.udev=false"]);
    let daemons = of_kind(&objects, "DaemonSet");
    let [daemon] = daemons[..] else { panic!("{} DaemonSets", daemons.len()) };
    assert_eq!(daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"], 0);
    let pod = &daemon["spec"]["template"]["spec"];
    let containers = containers(pod);
    let [agent] = containers[..] else { panic!("{} containers", containers.len()) };
    let mounts: BTreeMap<&str, &Value> = list(agent, "volumeMounts")
        .into_iter()
        .map(|mount| (mount["mountPath"].as_str().unwrap(), &mount["mountPropagation"]))
        .collect();
    let expected = [
        ("/dev", &Value::Null),
        ("/kubelet", &"Bidirectional".into()),
        ("/mnt", &"HostToContainer".into()),
        ("/var/lib/localpool", &Value::Null),
    ];
    assert_eq!(mounts, BTreeMap::from(expected));
    let args: Vec<&str> = list(agent, "args").into_iter().map(|arg| arg.as_str().unwrap()).collect();
    assert!(args.contains(&"--kubelet-dir=/kubelet"), "{args:?}");
    assert_eq!(pod["tolerations"], serde_json::json!([{"operator": "Exists"}]));
}

#[test]
fn the_controllers_token_is_in_the_controllers_container_and_the_sidecars_have_their_own() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let pod = pods(&objects)["localpool-controller"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let at: BTreeMap<&str, (&Value, &Value)> = containers(pod)
        .into_iter()
        .map(|container| {
            let mounts = list(container, "volumeMounts");
            let here = mounts.iter().find(|mount| mount["mountPath"] == TOKENS).unwrap();
            (container["name"].as_str().unwrap(), (&here["name"], &here["readOnly"]))
        })
        .collect();
    let (own, theirs, read_only) = ("controller-token".into(), "sidecar-token".into(), true.into());
    let expected = [
        ("controller", (&own, &read_only)),
        ("csi-provisioner", (&theirs, &read_only)),
        ("csi-resizer", (&theirs, &read_only)),
    ];
    assert_eq!(at, BTreeMap::from(expected));
    for container in containers(pod) {
        let mounts = list(container, "volumeMounts");
        let sees = |volume: &str| mounts.iter().any(|mount| mount["name"] == volume);
        assert_eq!(sees("controller-token"), container["name"] == "controller", "{}", container["name"]);
    }
    let volumes = list(pod, "volumes");
    let of = |name: &str| *volumes.iter().find(|volume| volume["name"] == name).unwrap();
    assert_eq!(of("sidecar-token")["emptyDir"]["medium"], "Memory");
    let sources = list(&of("controller-token")["projected"], "sources");
    assert!(sources.iter().any(|source| source["serviceAccountToken"]["path"] == "token"));
}

#[test]
fn the_resizer_sees_no_socket_that_makes_or_deletes_volumes() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let pod = pods(&objects)["localpool-controller"];
    let sockets = |container: &str| -> Vec<(&str, &str)> {
        let found = containers(pod).into_iter().find(|one| one["name"] == container).unwrap();
        let mounts = list(found, "volumeMounts").into_iter();
        let text = |mount: &'_ Value, key: &str| mount[key].as_str().unwrap().to_owned();
        let mounts = mounts.map(|mount| (text(mount, "name"), text(mount, "mountPath")));
        let sockets = mounts.filter(|(name, _)| name.contains("socket"));
        sockets.map(|(name, path)| (&*name.leak(), &*path.leak())).collect()
    };
    assert_eq!(sockets("csi-resizer"), [("resizer-socket", "/csi")]);
    assert_eq!(sockets("csi-provisioner"), [("socket", "/csi")]);
    assert_eq!(sockets("controller"), [("socket", "/csi"), ("resizer-socket", "/resizer")]);
    let controller = containers(pod).into_iter().find(|one| one["name"] == "controller").unwrap();
    assert!(list(controller, "args").iter().any(|arg| *arg == "--resizer-socket=/resizer/csi.sock"));
}

#[test]
fn the_sidecars_start_when_the_controller_is_ready_and_stop_before_it() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let pod = pods(&objects)["localpool-controller"];
    let [controller] = list(pod, "initContainers")[..] else { panic!("one native sidecar") };
    assert_eq!((&controller["name"], &controller["restartPolicy"]), (&"controller".into(), &"Always".into()));
    assert_eq!(controller["startupProbe"]["httpGet"]["path"], "/readyz");
}

#[test]
fn every_container_is_told_the_apiserver_that_the_values_name() {
    let Some(helm) = helm::one() else { return };
    let told = |args: &[&str]| {
        let objects = helm.objects(args);
        let mut told = Vec::new();
        for (name, pod) in pods(&objects) {
            for container in containers(pod) {
                let env = list(container, "env");
                let value = |key: &str| env.iter().find(|one| one["name"] == key).map(|one| one["value"].clone());
                let both = (value("KUBERNETES_SERVICE_HOST"), value("KUBERNETES_SERVICE_PORT"));
                told.push((format!("{name}/{}", container["name"].as_str().unwrap()), both));
            }
        }
        told
    };
    let file = chart().join("ci/host-network-values.yaml");
    let named = told(&["--values", file.to_str().unwrap()]);
    assert_eq!(named.len(), 5, "agent, controller, two sidecars, CRD job: {named:?}");
    let env =
        &discovery(&helm.objects(&["--values", file.to_str().unwrap()]))["spec"]["template"]["spec"]["containers"][0];
    let env = list(env, "env");
    let has = |name: &str, value: &str| env.iter().any(|one| one["name"] == name && one["value"] == value);
    assert!(has("KUBERNETES_SERVICE_HOST", "192.0.2.10") && has("KUBERNETES_SERVICE_PORT", "6443"), "{env:?}");
    for (container, both) in named {
        assert_eq!(both, (Some("192.0.2.10".into()), Some("6443".into())), "{container}");
    }
    assert!(told(&[]).iter().all(|(_, both)| *both == (None, None)), "Kubernetes' own address by default");
}

#[test]
fn two_controllers_are_never_put_on_one_node_where_they_would_share_its_host_name() {
    let Some(helm) = helm::one() else { return };
    let of = |args: &[&str]| {
        let objects = helm.objects(args);
        let deployment = of_kind(&objects, "Deployment")[0].clone();
        let anti = &deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"];
        let demanded = !anti["requiredDuringSchedulingIgnoredDuringExecution"].is_null();
        (demanded, deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"].clone())
    };
    assert_eq!(of(&[]), (false, 1.into()));
    // If the only node and its ports are taken, a new pod waits until an old one is gone.
    assert_eq!(of(&["--set", "controller.hostNetwork=true"]), (true, 0.into()));
}

#[test]
fn probes_ask_ports_that_are_there_at_the_address_that_is_bound() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        let objects = helm.objects(&["--values", &file]);
        for (name, pod) in pods(&objects) {
            let ports = ports(pod);
            for container in containers(pod) {
                let text = container["args"].to_string();
                for kind in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    let get = &container[kind]["httpGet"];
                    if get.is_null() {
                        continue;
                    }
                    let port = ports[get["port"].as_str().unwrap()];
                    let host = get["host"].as_str();
                    let bound = format!("{}:{port}", host.unwrap_or("0.0.0.0"));
                    assert!(text.contains(&bound), "{name} {}: {kind} asks {bound}: {text}", container["name"]);
                    // The pod has the kubelet's loopback only if they share a network.
                    assert!(host.is_none() || pod["hostNetwork"] == true, "{name}");
                }
            }
            if !name.ends_with("-crds") {
                assert!(containers(pod).iter().all(|container| !container["livenessProbe"].is_null()), "{name}");
            }
        }
    }
}

#[test]
fn network_policies_let_in_the_ports_that_are_served_and_out_the_apiserver() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    for (name, pod) in pods(&objects).into_iter().filter(|(name, _)| !name.ends_with("-crds")) {
        let policy = of_kind(&objects, "NetworkPolicy").into_iter().find(|policy| helm::name(policy) == name).unwrap();
        assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
        let open = |direction: &str| -> BTreeSet<u64> {
            let rules = list(&policy["spec"], direction);
            rules.iter().flat_map(|rule| list(rule, "ports")).map(|port| port["port"].as_u64().unwrap()).collect()
        };
        assert_eq!(open("ingress"), ports(pod).into_values().collect(), "{name}");
        assert_eq!(open("egress"), BTreeSet::from([443, 6443]), "{name}");
    }
}

#[test]
fn the_network_policy_of_discovery_lets_nobody_in() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let policies = of_kind(&objects, "NetworkPolicy");
    let policy = policies.into_iter().find(|policy| name(policy) == "localpool-discovery").unwrap();
    // Without a list there would be no rule; a rule without ports would allow all ports.
    assert_eq!(policy["spec"]["ingress"], serde_json::json!([]));
    assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
    assert_eq!(list(&policy["spec"]["egress"][0], "ports").len(), 2);
    let labels = &discovery(&objects)["spec"]["template"]["metadata"]["labels"];
    let selected = policy["spec"]["podSelector"]["matchLabels"].as_object().unwrap();
    assert!(selected.iter().all(|(key, value)| labels[key] == *value));
}

#[test]
fn metrics_are_found_by_the_ports_names() {
    let Some(helm) = helm::one() else { return };
    assert!(of_kind(&helm.objects(&[]), "ServiceMonitor").is_empty());
    let objects = helm.objects(&["--set", "serviceMonitor.enabled=true"]);
    let pods = pods(&objects);
    let monitors = of_kind(&objects, "ServiceMonitor");
    assert_eq!(monitors.len(), 2);
    for monitor in monitors {
        let service = format!("{}-metrics", name(monitor));
        let service = of_kind(&objects, "Service").into_iter().find(|object| name(object) == service).unwrap();
        let served = ports(pods[name(monitor)]);
        for port in list(&service["spec"], "ports") {
            let target = port["targetPort"].as_str().unwrap();
            assert_eq!(port["port"].as_u64(), Some(served[target]));
        }
        let scraped: BTreeSet<&str> =
            list(&monitor["spec"], "endpoints").iter().map(|endpoint| endpoint["port"].as_str().unwrap()).collect();
        assert_eq!(scraped, served.keys().map(String::as_str).collect());
    }
}

#[test]
fn a_disruption_budget_is_there_where_it_can_be_kept() {
    let Some(helm) = helm::one() else { return };
    assert_eq!(of_kind(&helm.objects(&[]), "PodDisruptionBudget").len(), 1);
    let single = helm.objects(&["--set", "controller.replicas=1"]);
    assert!(of_kind(&single, "PodDisruptionBudget").is_empty(), "it would keep a node from being drained");
}

#[test]
fn uninstalling_deletes_no_definition_no_volume_and_no_class() {
    let Some(helms) = helm::both() else { return };
    assert!(!chart().join("crds").exists(), "Helm installs that folder, and never upgrades it");
    let data = ["CustomResourceDefinition", "StorageClass", "PersistentVolume", "LocalVolumeSet", "Namespace"];
    for helm in helms {
        for file in helm::files_of_values() {
            let objects = helm.objects(&["--values", &file]);
            for object in &objects {
                assert!(!data.contains(&object["kind"].as_str().unwrap()), "{} {}", object["kind"], name(object));
            }
            let hooks: Vec<&Value> =
                objects.iter().filter(|object| !object["metadata"]["annotations"]["helm.sh/hook"].is_null()).collect();
            assert_eq!(hooks.len(), 4, "account, role, binding, job");
            for hook in hooks {
                let annotations = &hook["metadata"]["annotations"];
                assert_eq!(annotations["helm.sh/hook"], "pre-install,pre-upgrade,pre-rollback");
                assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded");
                let weight: i32 = annotations["helm.sh/hook-weight"].as_str().unwrap().parse().unwrap();
                assert_eq!(weight < 0, hook["kind"] != "Job", "rights come before the job");
            }
        }
    }
}

#[test]
fn helm_prints_the_log_of_a_crd_job_that_failed_and_keeps_the_job() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let jobs = of_kind(&objects, "Job");
    let [job] = jobs[..] else { panic!("{} jobs", jobs.len()) };
    let annotations = &job["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/hook-output-log-policy"], "hook-failed");
    let deleted = annotations["helm.sh/hook-delete-policy"].as_str().unwrap();
    assert!(!deleted.contains("hook-failed"), "{deleted}: nobody could read why");
}
