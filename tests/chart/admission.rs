//! The admission policies, as far as their text shows: whom they bind, to what, and that nothing weakens them. The
//! cluster tier tries them.

use serde_json::{Value, json};

use super::helm::{self, of_kind};

fn policy<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let policies = of_kind(objects, "ValidatingAdmissionPolicy");
    &policies.into_iter().find(|policy| helm::name(policy) == name).unwrap()["spec"]
}

#[test]
fn policies_deny_and_fail_closed() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let (own, operators) = ("localpool.dev", "local.storage.openshift.io");
    for (name, groups) in [
        ("localpool-node", [own, "events.k8s.io"].as_slice()),
        ("localpool-intent", &[own]),
        ("localpool-discovery", &[operators]),
        ("localpool-discovery-pods", &["apps"]),
        ("localpool-marks", &[""]),
        ("localpool-reaction", &["", ""]),
        ("localpool-sets", &[operators]),
    ] {
        let policy = policy(&objects, name);
        assert_eq!(policy["failurePolicy"], "Fail");
        let rules = policy["matchConstraints"]["resourceRules"].as_array().unwrap();
        assert_eq!(rules.len(), groups.len());
        for (rule, group) in rules.iter().zip(groups) {
            // A version that is served later is covered too.
            assert_eq!((&rule["apiGroups"], &rule["apiVersions"]), (&json!([group]), &json!(["*"])));
        }
        for exclusion in ["excludeResourceRules", "namespaceSelector", "objectSelector"] {
            assert!(policy["matchConstraints"][exclusion].is_null(), "{exclusion}");
        }
    }
    for binding in of_kind(&objects, "ValidatingAdmissionPolicyBinding") {
        let spec = binding["spec"].as_object().unwrap();
        assert_eq!(spec["validationActions"], json!(["Deny"]));
        assert_eq!(spec["policyName"], helm::name(binding));
        assert_eq!(spec.len(), 2, "a binding that matches less: {spec:?}");
    }
    assert_eq!(of_kind(&objects, "ValidatingAdmissionPolicyBinding").len(), 7);
}

#[test]
fn the_policies_name_the_identities_that_the_pods_have() {
    let Some(helm) = helm::one() else { return };
    for (args, prefix) in [(vec![], "localpool"), (vec!["--set", "fullnameOverride=disks"], "disks")] {
        let objects = helm.objects(&args);
        let of = |kind: &str| {
            of_kind(&objects, kind)[0]["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap().to_owned()
        };
        let condition = |name: &str| {
            let conditions = policy(&objects, &format!("{prefix}-{name}"))["matchConditions"].as_array().unwrap();
            assert_eq!(conditions.len(), 1, "each further condition lets something through");
            conditions[0]["expression"].as_str().unwrap().to_owned()
        };
        let user = |account: String| format!("\"system:serviceaccount:localpool:{account}\"");
        assert_eq!(condition("node"), format!("request.userInfo.username == {}", user(of("DaemonSet"))));
        assert_eq!(condition("intent"), format!("request.userInfo.username != {}", user(of("Deployment"))));
        let controller = user(of("Deployment"));
        assert_eq!(condition("discovery-pods"), format!("request.userInfo.username == {controller}"));
        assert_eq!(condition("marks"), format!("request.userInfo.username == {controller}"));
        assert_eq!(condition("reaction"), format!("request.userInfo.username == {controller}"));
        let discovery = super::pods::discovery(&objects)["spec"]["template"]["spec"]["serviceAccountName"].clone();
        let discovery = user(discovery.as_str().unwrap().to_owned());
        assert_eq!(condition("discovery"), format!("request.userInfo.username == {discovery}"));
    }
}

#[test]
fn the_policy_of_discovery_covers_all_that_its_role_can_write() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let rule = &policy(&objects, "localpool-discovery")["matchConstraints"]["resourceRules"][0];
    assert_eq!(rule["operations"], json!(["CREATE", "UPDATE", "DELETE"]));
    let roles = of_kind(&objects, "ClusterRole");
    let role = roles.into_iter().find(|role| helm::name(role) == "localpool-discovery").unwrap();
    for granted in role["rules"].as_array().unwrap() {
        let writes = granted["verbs"].as_array().unwrap().iter().any(|verb| verb != "get");
        for resource in granted["resources"].as_array().unwrap().iter().filter(|_| writes) {
            assert!(rule["resources"].as_array().unwrap().contains(resource), "{resource}");
        }
    }
}

#[test]
fn the_policy_of_nodes_covers_all_that_their_role_can_write() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let rules = policy(&objects, "localpool-node")["matchConstraints"]["resourceRules"].as_array().unwrap();
    let mut held = Vec::new();
    for rule in rules {
        assert_eq!(rule["operations"], json!(["CREATE", "UPDATE", "DELETE"]));
        held.extend(rule["resources"].as_array().unwrap().iter().map(|resource| (&rule["apiGroups"], resource)));
    }
    let role = of_kind(&objects, "ClusterRole").into_iter().find(|role| helm::name(role) == "localpool-node").unwrap();
    let reads = |verb: &Value| ["get", "list", "watch"].contains(&verb.as_str().unwrap());
    let is_ours = |rule: &&Value| rule["apiGroups"] == json!(["localpool.dev"]);
    for granted in role["rules"].as_array().unwrap() {
        if granted["verbs"].as_array().unwrap().iter().all(reads) && !is_ours(&granted) {
            continue;
        }
        for resource in granted["resources"].as_array().unwrap() {
            let held = held.contains(&(&granted["apiGroups"], resource));
            assert!(held, "{resource} of every node can be written by each");
        }
    }
    assert_eq!(held.len(), 5, "{held:?}");
}
