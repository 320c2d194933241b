//! Roles: the tables of docs/security.md are the rules that the chart renders, both ways; and what no role may do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::helm::{self, name, of_kind};
use super::repository;

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    scope: &'static str,
    group: String,
    resource: String,
    name: String,
    verb: String,
}

const CONTROLLER: &str = "localpool-controller";
/// A role that the controller has in some modes.
const REACTION: &str = "localpool-reaction";

type Rights = BTreeMap<String, BTreeSet<Right>>;

fn words(cell: &str) -> Vec<String> {
    cell.split(',').map(|word| word.trim().to_owned()).collect()
}

fn scope(cell: &str) -> &'static str {
    match cell {
        "cluster" => "cluster",
        "namespace" => "namespace",
        other => panic!("docs/security.md: a scope is cluster or namespace, not {other:?}"),
    }
}

/// What docs/security.md says, by ServiceAccount.
fn documented() -> Rights {
    let text = std::fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let mut rights = Rights::new();
    let mut account = None;
    for line in text.lines() {
        if line.starts_with('#') {
            account = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')).map(str::to_owned);
        }
        let (Some(account), Some(row)) = (&account, line.strip_prefix("| ")) else { continue };
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [how_far, group, resources, names, verbs, why] = cells[..] else {
            panic!("docs/security.md: not six cells: {line}")
        };
        if how_far == "scope" {
            continue;
        }
        assert!(why.len() > 5, "docs/security.md: a rule without a reason: {line}");
        let lists = [words(group), words(resources), words(names), words(verbs)];
        for right in all_of(scope(how_far), &lists) {
            let right = Right { group: right.group.replace("core", ""), ..right };
            let new = rights.entry(account.clone()).or_default().insert(right);
            assert!(new, "docs/security.md: said twice: {line}");
        }
    }
    rights
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

/// Each combination of groups, resources, names and verbs.
fn all_of(scope: &'static str, [groups, resources, names, verbs]: &[Vec<String>; 4]) -> Vec<Right> {
    let mut all = Vec::new();
    for group in groups {
        for resource in resources {
            for name in names {
                for verb in verbs {
                    let (group, resource) = (group.clone(), resource.clone());
                    all.push(Right { scope, group, resource, name: name.clone(), verb: verb.clone() });
                }
            }
        }
    }
    all
}

#[test]
fn the_rights_of_every_part_are_those_that_docs_security_says() {
    let Some(helms) = helm::both() else { return };
    let mut documented = documented();
    documented.remove(REACTION).unwrap();
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
fn no_part_reads_secrets_gives_rights_or_acts_for_others() {
    let Some(helm) = helm::one() else { return };
    for file in helm::files_of_values() {
        for (account, rights) in rendered(&helm.objects(&["--values", &file])) {
            for right in rights {
                let Right { scope: _, group, resource, name, verb } = &right;
                assert!(
                    !["*", "secrets", "configmaps", "pods/exec"].contains(&resource.as_str()),
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
