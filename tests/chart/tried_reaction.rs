//! What a real apiserver lets the controller delete, with the chart's roles and policies in it: a claim, a pod and a
//! volume as the reaction deletes them, and nothing else, and without the mode nothing at all.

use serde_json::{Value, json};

use super::apiserver::Answer;
use super::lab::{BY_DEFAULT, Lab, SWITCHED_ON, SharedLab};

const LABEL: &str = "localpool.dev/reaction";

/// A namespace that asks for the reaction and two that do not, each with a claim and a pod, and a controller whose role
/// allows it all, as one of yesterday may: the policy has to hold by itself. `of`: which test's they are.
fn lab<'l>(shared: &'l SharedLab, of: &str) -> Option<&'l Lab> {
    let lab = shared.lab()?;
    let admin = |args: &[&str]| lab.server.admin(args, "");
    let rights = "--resource=persistentvolumes,persistentvolumeclaims,pods/eviction";
    admin(&["create", "clusterrole", &yesterday(of), "--verb=delete,create,patch", rights]);
    let (role, subject) =
        (format!("--clusterrole={}", yesterday(of)), "--serviceaccount=localpool:localpool-controller");
    admin(&["create", "clusterrolebinding", &yesterday(of), &role, subject]);
    let mut objects = Vec::new();
    for (namespace, label) in [("asks", Some("StatefulSet")), ("silent", None), ("other", Some("Deployment"))] {
        let name = format!("{of}-{namespace}");
        let labels = label.map(|label| json!({LABEL: label}));
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}));
        // No controller of Kubernetes runs here.
        let metadata = json!({"name": "default", "namespace": name});
        objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        let claims = [("data", Some("pv-data")), ("unbound", None), ("unprotected", Some("pv-data"))];
        objects.extend(claims.map(|(claimed, volume)| claim(&name, claimed, volume)));
        objects.push(pod(&name));
    }
    lab.create(&objects);
    let finalizer = r#"{"metadata":{"finalizers":null}}"#;
    let asks = format!("--namespace={of}-asks");
    admin(&[&asks, "patch", "pvc", "unprotected", "--type=merge", "--patch", finalizer]);
    lab.wait_for_right("localpool-controller", &["delete", "persistentvolumeclaims", &asks], true);
    Some(lab)
}

/// The role of a controller of yesterday, and its binding.
fn yesterday(of: &str) -> String {
    format!("yesterday-{of}")
}

fn create(lab: &Lab, object: &Value) {
    lab.server.admin(&["create", "-f", "-"], &object.to_string());
}

fn claim(namespace: &str, name: &str, volume: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn pod(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": namespace},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "db", "image": "none"}]},
    })
}

/// A local volume that is marked and that nobody has, changed by this.
fn volume(name: &str, change: &Value) -> Value {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]});
    let annotations = json!({"FirstMarkTime": "2026-01-01T00:00:00Z", "pv.kubernetes.io/provisioned-by": "static"});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "local": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    });
    merge(&mut volume, change);
    volume
}

fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                match change {
                    Value::Null => drop(fields.remove(key)),
                    change => merge(fields.entry(key).or_insert(Value::Null), change),
                }
            }
        }
        (value, change) => *value = change.clone(),
    }
}

/// The UID of an object.
fn uid(lab: &Lab, path: &str) -> String {
    let object: Value = serde_json::from_str(&lab.server.admin(&["get", "--raw", path], "")).unwrap();
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The options of a deletion, as kube writes them, with what is changed in them.
fn options(uid: &str, change: &Value) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    merge(&mut options, change);
    options
}

/// As the controller asks for it.
struct Asked<'l> {
    lab: &'l Lab,
    /// Which test's.
    of: &'static str,
    controller: String,
}

impl<'l> Asked<'l> {
    fn of(lab: &'l Lab, of: &'static str) -> Self {
        Self { lab, of, controller: lab.token("localpool-controller", None) }
    }

    fn delete(&self, path: &str, change: &Value) -> Answer {
        let options = options(&uid(self.lab, path), change);
        self.lab.server.kubectl(&self.controller, &["delete", "--raw", path, "-f", "-"], &options.to_string())
    }

    fn claim(&self, namespace: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{}-{namespace}/persistentvolumeclaims/{name}", self.of)
    }

    fn evict(&self, namespace: &str, change: &Value) -> Answer {
        let namespace = format!("{}-{namespace}", self.of);
        let pod = format!("/api/v1/namespaces/{namespace}/pods/db-0");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "db-0", "namespace": namespace},
            "deleteOptions": options(&uid(self.lab, &pod), change),
        });
        let path = format!("{pod}/eviction");
        self.lab.server.kubectl(&self.controller, &["create", "--raw", &path, "-f", "-"], &eviction.to_string())
    }

    fn patch(&self, name: &str, patch: &Value) -> Answer {
        let patch = patch.to_string();
        let what = ["patch", "persistentvolume", name, "--type=merge", "--patch", &patch];
        self.lab.server.kubectl(&self.controller, &what, "")
    }
}

/// `why`: it is refused, with these words.
#[track_caller]
fn expect(what: &str, answer: &Answer, why: Option<&str>) {
    let Answer { taken, output } = answer;
    match why {
        None => assert!(taken, "{what}: {output}"),
        Some(why) => assert!(!taken && output.contains(why), "{what} was not refused: {output}"),
    }
}

const PRECONDITION: &str = "by its UID only";
const GRACE: &str = "no grace period";
const ASKS: &str = "the namespace does not have the label";

#[test]
fn the_controller_deletes_claims_only_in_labelled_namespaces_and_with_a_uid() {
    let Some(lab) = lab(&SWITCHED_ON, "deletes") else { return };
    let (asked, none) = (Asked::of(lab, "deletes"), json!({}));
    let no_uid = json!({"preconditions": null});
    let tries = [
        ("silent", "data", none.clone(), Some(ASKS)),
        ("other", "data", none.clone(), Some(ASKS)),
        ("asks", "data", no_uid.clone(), Some(PRECONDITION)),
        ("asks", "data", json!({"preconditions": {"uid": null}}), Some(PRECONDITION)),
        ("asks", "data", json!({"gracePeriodSeconds": 0}), Some(GRACE)),
        ("asks", "data", json!({"propagationPolicy": "Orphan"}), Some(GRACE)),
        ("asks", "data", json!({"orphanDependents": true}), Some(GRACE)),
        ("asks", "unbound", none.clone(), Some("that have a volume")),
        ("asks", "unprotected", none.clone(), Some("that have a volume")),
        ("asks", "data", json!({"preconditions": {"uid": "another"}}), Some("another")),
        ("asks", "data", none.clone(), None),
    ];
    for (namespace, name, change, why) in tries {
        let answer = asked.delete(&asked.claim(namespace, name), &change);
        expect(&format!("{namespace}/{name} {change}"), &answer, why);
    }
    for (namespace, change, why) in [
        ("silent", none.clone(), Some(ASKS)),
        ("asks", no_uid.clone(), Some(PRECONDITION)),
        ("asks", json!({"gracePeriodSeconds": 0}), Some(GRACE)),
        ("asks", json!({"dryRun": ["All"]}), None),
        ("asks", none.clone(), None),
    ] {
        expect(&format!("the pod of {namespace} {change}"), &asked.evict(namespace, &change), why);
    }
    let nobody_has = "marked local volumes that nobody has";
    for (name, object, phase, change, why) in [
        ("bound", none.clone(), "Bound", none.clone(), Some(nobody_has)),
        ("released", none.clone(), "Released", none.clone(), Some(nobody_has)),
        (
            "well",
            json!({"metadata": {"annotations": {"FirstMarkTime": null}}}),
            "Available",
            none.clone(),
            Some(nobody_has),
        ),
        (
            "by-hand",
            json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": null}}}),
            "Available",
            none.clone(),
            Some(nobody_has),
        ),
        (
            "nfs",
            json!({"spec": {"local": null, "nfs": {"path": "/x", "server": "s"}}}),
            "Available",
            none.clone(),
            Some(nobody_has),
        ),
        ("free", none.clone(), "Available", no_uid, Some(PRECONDITION)),
        ("free-too", none.clone(), "Available", none, None),
    ] {
        create(lab, &volume(name, &object));
        is_in(lab, name, phase);
        expect(name, &asked.delete(&format!("/api/v1/persistentvolumes/{name}"), &change), why);
    }
}

fn is_in(lab: &Lab, name: &str, phase: &str) {
    let phase = json!({"status": {"phase": phase}}).to_string();
    lab.server.admin(&["patch", "pv", name, "--subresource=status", "--type=merge", "--patch", &phase], "");
}

#[test]
fn the_policy_retain_comes_with_the_record_and_stays() {
    let Some(lab) = lab(&SWITCHED_ON, "retains") else { return };
    let asked = Asked::of(lab, "retains");
    create(lab, &volume("v", &json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})));
    is_in(lab, "v", "Bound");
    let patch = |policy: &str, record: Value| json!({"metadata": {"annotations": {LABEL: record}}, "spec": {"persistentVolumeReclaimPolicy": policy}});
    let refused = Some("reclaim policy only as Retain, together");
    let tries = [
        (json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), refused),
        (patch("Recycle", json!("{}")), refused),
        (patch("Retain", json!("{}")), None),
        (json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}), refused),
        (patch("Delete", json!("{\"other\":1}")), refused),
        // Neither with the record: what is retained may be the only copy of somebody's data.
        (patch("Delete", Value::Null), refused),
    ];
    for (patch, why) in tries {
        expect(&patch.to_string(), &asked.patch("v", &patch), why);
    }
    let finished = json!({"metadata": {"annotations": {LABEL: null, "localpool.dev/reacted": "{}"}}});
    expect("it is finished", &asked.patch("v", &finished), None);
    let more = json!({"spec": {"mountOptions": ["a"]}});
    expect("another field of the spec", &asked.patch("v", &more), Some("and nothing else"));
}

#[test]
fn without_the_mode_there_is_no_right() {
    let Some(lab) = lab(&BY_DEFAULT, "off") else { return };
    let asked = Asked::of(lab, "off");
    let refused = Some("the reaction is not switched on");
    create(lab, &volume("free", &json!({})));
    is_in(lab, "free", "Available");
    for path in [asked.claim("asks", "data"), "/api/v1/persistentvolumes/free".to_owned()] {
        expect(&path, &asked.delete(&path, &json!({})), refused);
    }
    expect("a pod", &asked.evict("asks", &json!({})), refused);
    expect("a pod as a dry run", &asked.evict("asks", &json!({"dryRun": ["All"]})), refused);
    // And without the role of yesterday, not even the policy is asked.
    lab.server.admin(&["delete", "clusterrolebinding", &yesterday("off")], "");
    lab.wait_for_right("localpool-controller", &["delete", "persistentvolumeclaims", "--namespace=off-asks"], false);
    expect("a claim", &asked.delete(&asked.claim("asks", "data"), &json!({})), Some("cannot delete resource"));
    expect("a pod", &asked.evict("asks", &json!({})), Some("cannot create resource"));
}
