//! Roles: the tables of docs/security.md are the rules that the chart renders, both ways; and what no role may do.

use std::collections::BTreeSet;

use localpool_testing::rights::{self, Right, Rights, all_of};
use serde_json::Value;

use super::helm::{self, name, of_kind};
use super::repository;

const CONTROLLER: &str = "localpool-controller";
/// A role that the controller has in some modes.
const REACTION: &str = "localpool-reaction";
/// One that it has where a value asks for it.
const STARTUP_TAINT: &str = "localpool-startup-taint";
/// Others.
const STATUS_PAGE: &str = "localpool-status-page";
const NODE_DISK_SETUP: &str = "localpool-node-disk-setup";
/// One that it has in the namespaces that a value lists.
const BENCHMARK_EXEC: &str = "localpool-benchmark-exec";
/// Roles for people, which nobody has by the chart.
const READER: &str = "localpool-reader";

fn documented() -> Rights {
    rights::documented(repository())
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// What the chart renders, by ServiceAccount, by way of the bindings.
fn rendered(objects: &[Value]) -> Rights {
    let mut rights = Rights::new();
    for (binding_kind, role_kind, scope) in
        [("ClusterRoleBinding", "ClusterRole", "cluster"), ("RoleBinding", "Role", "namespace")]
    {
        for binding in of_kind(objects, binding_kind) {
            assert_eq!(binding["roleRef"]["kind"], role_kind, "{}", name(binding));
            let role = binding["roleRef"]["name"].as_str().unwrap();
            let role = of_kind(objects, role_kind).into_iter().find(|object| name(object) == role).unwrap();
            for subject in binding["subjects"].as_array().unwrap() {
                assert_eq!((&subject["kind"], &subject["namespace"]), (&"ServiceAccount".into(), &"localpool".into()));
                let account = subject["name"].as_str().unwrap();
                let of_account = rights.entry(account.to_owned()).or_default();
                for rule in role["rules"].as_array().unwrap() {
                    add(of_account, rule, scope);
                }
            }
        }
    }
    rights
}

fn add(rights: &mut BTreeSet<Right>, rule: &Value, scope: &'static str) {
    let names = if rule["resourceNames"].is_null() { vec!["any".to_owned()] } else { strings(&rule["resourceNames"]) };
    let known = ["apiGroups", "resources", "resourceNames", "verbs"];
    assert!(rule.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{rule}");
    let of = |key: &str| strings(&rule[key]);
    rights.extend(all_of(scope, &[of("apiGroups"), of("resources"), names, of("verbs")]));
}

#[test]
fn the_rights_of_every_part_are_those_that_docs_security_says() {
    let Some(helms) = helm::both() else { return };
    let mut documented = documented();
    for more in [REACTION, STARTUP_TAINT, STATUS_PAGE, NODE_DISK_SETUP, BENCHMARK_EXEC, READER] {
        documented.remove(more).unwrap();
    }
    for helm in helms {
        let rendered = rendered(&helm.objects(&[]));
        assert_eq!(rendered.keys().collect::<Vec<_>>(), documented.keys().collect::<Vec<_>>());
        for (account, rights) in &rendered {
            let unsaid: Vec<_> = rights.difference(&documented[account]).collect();
            assert!(unsaid.is_empty(), "docs/security.md does not say of {account}: {unsaid:#?}");
            let unfounded: Vec<_> = documented[account].difference(rights).collect();
            assert!(unfounded.is_empty(), "docs/security.md says of {account} what is not so: {unfounded:#?}");
        }
    }
}

#[test]
fn what_no_run_of_the_cluster_shows_is_excused_only_where_a_part_has_that_right() {
    let given = rights::of_accounts(repository());
    let excused = rights::unseen(repository());
    assert!(excused.values().map(BTreeSet::len).sum::<usize>() > 0);
    for (account, rights) in excused {
        for one in rights {
            let is_it = |right: &Right| Right { scope: one.scope, ..right.clone() } == one;
            assert!(given[&account].iter().any(is_it), "{account}: {one}");
        }
    }
}

#[test]
fn the_controller_has_the_rights_of_the_reaction_by_its_mode() {
    let Some(helm) = helm::one() else { return };
    let rights = |mode: &str| {
        let mode = format!("controller.reaction.mode={mode}");
        rendered(&helm.objects(&["--set", &mode])).remove(CONTROLLER).unwrap()
    };
    let off = rights("Off");
    let more = |mode: &str| rights(mode).difference(&off).cloned().collect::<BTreeSet<Right>>();
    let documented = documented().remove(REACTION).unwrap();
    assert_eq!(more("On"), documented);
    let reads = |right: &Right| ["get", "list"].contains(&right.verb.as_str());
    assert_eq!(more("DryRun"), documented.into_iter().filter(reads).collect());
    assert!(
        off.iter().chain(&more("On")).all(|right| right.resource != "pods" || reads(right) || right.verb == "watch")
    );
}

#[test]
fn the_controller_may_write_nodes_only_where_it_removes_their_startup_taint() {
    let Some(helm) = helm::one() else { return };
    let rights = |value: bool| {
        let value = format!("controller.removeStartupTaint={value}");
        rendered(&helm.objects(&["--set", &value])).remove(CONTROLLER).unwrap()
    };
    let more: BTreeSet<Right> = rights(true).difference(&rights(false)).cloned().collect();
    assert_eq!(more, documented().remove(STARTUP_TAINT).unwrap());
    assert!(rights(false).iter().all(|right| right.resource != "nodes" || right.verb != "patch"));
}

#[test]
fn the_controller_may_watch_the_pods_of_all_namespaces_only_where_it_shows_them_and_read_no_more_of_them() {
    let Some(helm) = helm::one() else { return };
    let rights = |value: bool| {
        let value = format!("controller.statusPage.enabled={value}");
        rendered(&helm.objects(&["--set", &value])).remove(CONTROLLER).unwrap()
    };
    let (off, on) = (rights(false), rights(true));
    let more: BTreeSet<Right> = on.difference(&off).cloned().collect();
    assert_eq!(more, documented().remove(STATUS_PAGE).unwrap());
    assert_eq!(off, rendered(&helm.objects(&[])).remove(CONTROLLER).unwrap(), "it is off by default");
    let of_pods = |rights: &BTreeSet<Right>| -> Vec<String> {
        let own = rights.iter().filter(|right| right.resource.starts_with("pods") && right.scope == "cluster");
        own.map(|right| format!("{} {}", right.verb, right.resource)).collect()
    };
    assert_eq!(
        (of_pods(&off), of_pods(&on)),
        (vec!["list pods".into()], vec!["list pods".into(), "watch pods".into()])
    );
}

#[test]
fn the_controller_may_write_one_config_map_of_a_namespace_and_only_where_node_disk_setups_count() {
    let Some(helm) = helm::one() else { return };
    let rights = |value: bool| {
        let value = format!("controller.nodeDiskSetup.enabled={value}");
        rendered(&helm.objects(&["--set", &value])).remove(CONTROLLER).unwrap()
    };
    let (off, on) = (rights(false), rights(true));
    let more: BTreeSet<Right> = on.difference(&off).cloned().collect();
    assert_eq!(more, documented().remove(NODE_DISK_SETUP).unwrap());
    let maps: BTreeSet<&Right> = on.iter().filter(|right| right.resource == "configmaps").collect();
    assert!(!maps.is_empty() && maps.iter().all(|right| right.name == "localpool-node-tuner"), "{maps:?}");
    assert!(off.iter().all(|right| right.resource != "configmaps"));
    // Of objects that people write it makes none but sets beside itself, and the one that a value asks for.
    let makes = |rights: &BTreeSet<Right>| -> Vec<String> {
        let own = |right: &&Right| ["localvolumesets", "nodedisksetups"].contains(&right.resource.as_str());
        let written =
            rights.iter().filter(own).filter(|right| !["get", "list", "watch"].contains(&right.verb.as_str()));
        written.map(|right| format!("{} {} {}", right.scope, right.verb, right.resource)).collect()
    };
    assert_eq!(makes(&off), [""; 0]);
    assert_eq!(makes(&on), ["namespace create localvolumesets", "namespace update localvolumesets"]);
    let values = "controller.nodeDiskSetup.enabled=true,controller.nodeDiskSetup.localRaidDisks=true";
    let with_default = rendered(&helm.objects(&["--set", values])).remove(CONTROLLER).unwrap();
    let more: Vec<&Right> = with_default.difference(&on).collect();
    assert_eq!(more.len(), 2);
    for right in more {
        assert_eq!((right.resource.as_str(), right.name.as_str()), ("nodedisksetups", "local-raid-disks"));
        assert!(["create", "patch"].contains(&right.verb.as_str()), "{right:?}");
    }
}

#[test]
fn the_controller_may_run_something_in_pods_of_the_namespaces_that_a_value_lists_and_of_no_other() {
    let Some(helm) = helm::one() else { return };
    let on = "controller.nodeDiskSetup.enabled=true";
    let objects = |spaces: &str| {
        let value = format!("controller.nodeDiskSetup.execNamespaces={{{spaces}}}");
        helm.objects(&["--set", on, "--set", &value])
    };
    let runs = |right: &&Right| right.resource == "pods/exec";
    let without = rendered(&helm.objects(&["--set", on])).remove(CONTROLLER).unwrap();
    assert_eq!(without.iter().filter(runs).count(), 0);
    let listed = objects("scylla,other");
    let with = rendered(&listed).remove(CONTROLLER).unwrap();
    let more: BTreeSet<Right> = with.difference(&without).cloned().collect();
    assert_eq!(more, documented().remove(BENCHMARK_EXEC).unwrap());
    for kind in ["Role", "RoleBinding"] {
        let own = of_kind(&listed, kind).into_iter().filter(|object| name(object) == BENCHMARK_EXEC);
        let spaces: Vec<&str> = own.map(|object| object["metadata"]["namespace"].as_str().unwrap()).collect();
        assert_eq!(spaces, ["scylla", "other"], "{kind}");
    }
    let args =
        |objects: &[Value]| of_kind(objects, "Deployment")[0].to_string().contains("--exec-namespaces=scylla,other");
    assert!(args(&listed) && !args(&helm.objects(&["--set", on])));
}

#[test]
fn whoever_only_looks_has_the_rights_that_docs_security_says_and_changes_nothing() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let mut rights = BTreeSet::new();
    for (kind, scope) in [("ClusterRole", "cluster"), ("Role", "namespace")] {
        for role in of_kind(&objects, kind).into_iter().filter(|role| name(role) == READER) {
            role["rules"].as_array().unwrap().iter().for_each(|rule| add(&mut rights, rule, scope));
        }
    }
    assert_eq!(rights, documented().remove(READER).unwrap());
    assert!(rights.iter().all(|right| ["get", "list", "watch"].contains(&right.verb.as_str())));
    assert!(rights.iter().all(|right| !["secrets", "configmaps", "*"].contains(&right.resource.as_str())));
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        assert!(of_kind(&objects, kind).into_iter().all(|binding| binding["roleRef"]["name"] != READER), "{kind}");
    }
}

#[test]
fn no_part_reads_secrets_gives_rights_or_acts_for_others() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        for (account, rights) in rendered(&helm.objects(&["--values", &file])) {
            for right in rights {
                let Right { scope, group, resource, name, verb } = &right;
                let is_of_results = resource == "configmaps" && name == "localpool-node-tuner";
                // In the namespaces that the file of values lists.
                let is_of_command = resource == "pods/exec"
                    && *scope == "namespace"
                    && account.ends_with("-controller")
                    && file.contains("everything");
                assert!(
                    is_of_results
                        || is_of_command
                        || !["*", "secrets", "configmaps", "pods/exec"].contains(&resource.as_str()),
                    "{account}: {right:?}"
                );
                assert!(!["*", "impersonate", "bind", "escalate", "deletecollection"].contains(&verb.as_str()));
                assert_ne!(group, "rbac.authorization.k8s.io");
                assert_ne!(group, "*");
                if resource == "serviceaccounts/token" {
                    assert_ne!(name, "any", "{account} could make itself a token of every identity");
                }
            }
        }
    }
}

#[test]
fn only_the_controller_and_the_provisioner_read_persistent_volumes_and_no_agent_does() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        let all = rendered(&helm.objects(&["--values", &file]));
        let reads = |right: &Right| right.resource == "persistentvolumes" || right.resource == "*";
        let readers: BTreeSet<&str> = all
            .iter()
            .filter(|(_, rights)| rights.iter().any(reads))
            .map(|(account, _)| account.rsplit_once('-').map_or(account.as_str(), |(_, part)| part))
            .collect();
        assert_eq!(readers, BTreeSet::from(["controller", "provisioner"]), "{file}");
    }
}

#[test]
fn every_identity_that_a_pod_uses_is_made_by_the_chart() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let accounts: BTreeSet<&str> = of_kind(&objects, "ServiceAccount").into_iter().map(name).collect();
    for kind in ["DaemonSet", "Deployment", "Job"] {
        for object in of_kind(&objects, kind) {
            let used = object["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
            assert!(accounts.contains(used), "{kind} {} uses {used}", name(object));
        }
    }
    let used = super::pods::discovery(&objects)["spec"]["template"]["spec"]["serviceAccountName"].clone();
    assert!(accounts.contains(used.as_str().unwrap()), "discovery uses {used}");
    let expected =
        ["localpool-controller", "localpool-crds", "localpool-discovery", "localpool-node", "localpool-provisioner"];
    assert_eq!(accounts, BTreeSet::from(expected));
}
