//! The ten questions of docs/troubleshooting.md, as far as a program of the page picks the answer out of what somebody else
//! has written: objects of all nodes, or the audit log of an API server. tests/cluster/alone/questions.rs types each command.

use serde_json::{Value, json};

use crate::read;
use crate::runbooks::{LOST_SINCE as SINCE, disk, jq, picked, pool, programs};

#[test]
fn which_disks_hang_is_answered_for_those_of_the_pool_and_those_that_no_set_could_read() {
    let page = read("docs/troubleshooting.md");
    let (_, below) = page.split_once("**Which disks hang?**").unwrap();
    let [(program, _), ..] = programs(below)[..] else { panic!("no program") };
    let hangs = json!([{"reason": "DiskNotAnswering", "severity": "Inaccessible", "since": SINCE, "message": "m"}]);
    let set = |name: &str| {
        json!({"namespace": "d", "name": name, "class": "c", "devices": 0, "partitions": 0, "available": 0, "largest": 0,
        "smallest": 0, "blockAvailable": 0, "blockLargest": 0, "blockSmallest": 0, "unmatched": [
            {"device": "/dev/sdc", "reason": "could not be read: opening or reading it took more than 20s; it is read again when that ends"},
            {"device": "/dev/sda", "reason": "it is mounted at /"},
        ]})
    };
    let well = disk(json!({"id": "gpt-well"}));
    let status = json!({"disks": [disk(json!({"health": hangs})), well], "sets": [set("a"), set("b")]});
    let said = picked(program, &json!({"items": [pool(json!({}), status), pool(json!({}), json!({}))]}));
    let of_pool = format!("worker-0 gpt-7a1f… /dev/sdb {SINCE}\n");
    let outside = "worker-0 /dev/sdc could not be read: opening or reading it took more than 20s; it is read again when that ends\n";
    assert_eq!(said, format!("{of_pool}{outside}"), "each once");
    assert!(read("src/host/timeout.rs").contains("opening or reading it took more than"), "the words of the agent");
}

/// A line of the audit log of an API server, about what `who` did.
fn audited(who: &str, verb: &str, uri: &str, object: Value, stage: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": stage, "requestURI": uri,
        "verb": verb, "user": {"username": who}, "objectRef": object, "stageTimestamp": SINCE})
}

#[test]
fn who_ordered_something_for_a_disk_or_typed_a_verb_is_picked_out_of_the_audit_log() {
    let page = read("docs/troubleshooting.md");
    let (_, below) = page.split_once("Which person it was needs a second command").unwrap();
    let program = below.split_once("jq -r '").unwrap().1.split_once("' audit.log").unwrap().0;
    let pool = |name: &str| json!({"resource": "devicepools", "name": name});
    let exec = json!({"resource": "pods", "subresource": "exec", "name": "localpool-node-x2k4d"});
    let typed = "/api/v1/namespaces/localpool/pods/localpool-node-x2k4d/exec?command=localpool&command=disk&command=release&command=gpt-7a1f";
    let (agent, done) = ("system:serviceaccount:localpool:localpool-node", "ResponseComplete");
    let log = [
        audited("ann", "patch", "/1", pool("worker-0"), done),
        audited("ben", "create", typed, exec.clone(), done),
        audited("ben", "create", typed, exec.clone(), "ResponseStarted"),
        audited("cat", "create", "/exec?command=sh", exec, done),
        audited("dan", "patch", "/2", pool("worker-1"), done),
        audited("eve", "get", "/3", pool("worker-0"), done),
        audited(agent, "patch", "/4", pool("worker-0"), done),
        audited("fay", "list", "/5", Value::Null, done),
    ];
    let lines: String = log.iter().map(|line| format!("{line}\n")).collect();
    let said = jq(program, &lines);
    assert_eq!(said, format!("{SINCE} ann patch /1\n{SINCE} ben create {typed}\n"));
}
