//! What each part has asked an API server for, by its audit log. Takes in the log and the rights; gives out, as sentences,
//! where one does not fit the other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use serde_json::Value;

use super::{Right, Rights};

/// How a check names itself where it tries what somebody else's token may do: such requests are not of who has it.
pub const BY_HAND: &str = "tried-by-hand";

/// Who has asked for what, and which of it was refused.
#[derive(Default)]
pub struct Asked {
    allowed: Rights,
    refused: BTreeMap<String, BTreeSet<Refused>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    /// The least that would have been enough.
    wanted: Right,
    namespace: String,
}

impl Asked {
    /// The requests of the ServiceAccounts of a namespace.
    pub fn read(log: impl BufRead, namespace: &str) -> Self {
        let mut asked = Self::default();
        // The last line may be under way.
        let requests = log.lines().map(Result::unwrap).filter_map(|line| serde_json::from_str(&line).ok());
        requests.for_each(|request| asked.add(&request, namespace));
        asked
    }

    fn add(&mut self, request: &Value, namespace: &str) {
        let user = request["user"]["username"].as_str().unwrap();
        let of = format!("system:serviceaccount:{namespace}:");
        let Some(account) = user.strip_prefix(&of).map(str::to_owned) else { return };
        let object = &request["objectRef"];
        // Versions and definitions are everybody's to read, and of no kind.
        if request["userAgent"] == BY_HAND || object.is_null() {
            return;
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let resource = match text("subresource") {
            sub if sub.is_empty() => text("resource"),
            sub => format!("{}/{sub}", text("resource")),
        };
        let (group, name, verb) = (text("apiGroup"), text("name"), request["verb"].as_str().unwrap().to_owned());
        let notes = &request["annotations"];
        if notes["authorization.k8s.io/decision"] == "allow" {
            let by = notes["authorization.k8s.io/reason"].as_str().unwrap_or_default();
            let scope = if by.contains("ClusterRoleBinding") { "cluster" } else { "namespace" };
            self.allowed.entry(account).or_default().insert(Right { scope, group, resource, name, verb });
        } else {
            let scope = if text("namespace") == namespace { "namespace" } else { "cluster" };
            let wanted = Right { scope, group, resource, name, verb };
            self.refused.entry(account).or_default().insert(Refused { wanted, namespace: text("namespace") });
        }
    }

    /// Each right that nobody used, each use that no right is for, and each exception that excuses nothing.
    pub fn against(&self, given: &Rights, unseen: &Rights) -> Vec<String> {
        let mut wrong = Vec::new();
        let nothing = BTreeSet::new();
        let accounts: BTreeSet<&String> =
            given.keys().chain(unseen.keys()).chain(self.allowed.keys()).chain(self.refused.keys()).collect();
        for account in accounts {
            let of = |rights: &Rights| rights.get(account).unwrap_or(&nothing).clone();
            let (given, unseen, asked) = (of(given), of(unseen), of(&self.allowed));
            // An exception does not say how far the right goes. Of one in all namespaces and one in its own, it means the former.
            let excuses = |right: &Right, one: &Right| {
                right == one || (!given.contains(one) && Right { scope: one.scope, ..right.clone() } == *one)
            };
            let is_excused = |right: &&Right| unseen.iter().any(|one| excuses(right, one));
            let unused = given.iter().filter(|right| !asked.iter().any(|one| right.covers(one)));
            wrong.extend(
                unused.filter(|right| !is_excused(right)).map(|right| format!("{account} never used: {right}")),
            );
            let unfounded = asked.iter().filter(|one| !given.iter().any(|right| right.covers(one)));
            wrong.extend(unfounded.map(|one| format!("{account} was allowed what no table says: {one}")));
            // While the chart is removed, the roles go before the last requests of the pods.
            let is_given = |refused: &&Refused| given.iter().any(|right| is_enough(right, &refused.wanted));
            let refused = self.refused.get(account).into_iter().flatten().filter(|refused| !is_given(refused));
            wrong.extend(refused.map(|Refused { wanted, namespace }| {
                format!("{account} asked in namespace {namespace:?} without a right: {wanted}")
            }));
            let idle = unseen.iter().filter(|one| !given.iter().any(|right| excuses(right, one)));
            wrong.extend(idle.map(|one| format!("{account} has no such right to be excused: {one}")));
        }
        wrong
    }
}

/// One for all namespaces is enough in each.
fn is_enough(right: &Right, wanted: &Right) -> bool {
    let reaches = right.scope == "cluster" || wanted.scope == "namespace";
    reaches && Right { scope: wanted.scope, ..right.clone() }.covers(wanted)
}

#[cfg(test)]
mod tests {
    use super::super::{read, read_unseen};
    use super::*;

    const PAGE: &str = "\
## Roles
### `a-node`
| scope | group | resources | names | verbs | why |
|---|---|---|---|---|---|
| cluster | core | nodes | any | list, watch | labels and taints |
| cluster | core | namespaces | kube-system | get | which cluster |
| namespace | apps | daemonsets | own | create, patch | what it runs |

### What no run shows
| part | group | resources | names | verbs | why |
|---|---|---|---|---|---|
| a-node | apps | daemonsets | own | create | an apply asks for it as well |

## Another table
| a | b |
|---|---|
| c | d |
";

    fn request(verb: &str, object: &str, decision: &str, binding: &str) -> String {
        let object: Value = serde_json::from_str(object).unwrap();
        let line = serde_json::json!({
            "verb": verb, "objectRef": object, "user": {"username": "system:serviceaccount:home:a-node"},
            "annotations": {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason": format!("RBAC: allowed by {binding} of a role"),
            },
        });
        format!("{line}\n")
    }

    /// Everything that the page gives and a run shows.
    fn used() -> Vec<String> {
        let cluster = "ClusterRoleBinding";
        vec![
            request("list", r#"{"resource": "nodes"}"#, "allow", cluster),
            request("watch", r#"{"resource": "nodes", "name": "one"}"#, "allow", cluster),
            request("get", r#"{"resource": "namespaces", "name": "kube-system"}"#, "allow", cluster),
            request(
                "patch",
                r#"{"apiGroup": "apps", "resource": "daemonsets", "name": "own"}"#,
                "allow",
                "RoleBinding",
            ),
        ]
    }

    fn wrong(page: &str, log: &[String]) -> Vec<String> {
        Asked::read(log.concat().as_bytes(), "home").against(&read(page), &read_unseen(page))
    }

    #[test]
    fn what_is_given_and_used_is_right() {
        assert_eq!(wrong(PAGE, &used()), [""; 0]);
    }

    #[test]
    fn a_right_that_nobody_uses_is_named() {
        let log = used();
        assert_eq!(wrong(PAGE, &log[1..]), ["a-node never used: list nodes. any (cluster)"]);
        // One that is used of another object is not used of this one.
        let page = PAGE.replace("kube-system", "default");
        let said = wrong(&page, &log);
        assert!(said.contains(&"a-node never used: get namespaces. default (cluster)".to_owned()), "{said:?}");
        // A right in all namespaces makes the same one in one namespace idle.
        let page = PAGE
            .replace("| namespace | apps", "| namespace | core | nodes | any | list | once more |\n| namespace | apps");
        assert_eq!(wrong(&page, &log), ["a-node never used: list nodes. any (namespace)"]);
    }

    #[test]
    fn a_use_that_no_right_is_for_is_named() {
        let more = |line: String| [used(), vec![line]].concat();
        let refused =
            more(request("get", r#"{"resource": "secrets", "namespace": "n", "name": "s"}"#, "forbid", "none"));
        assert_eq!(
            wrong(PAGE, &refused),
            ["a-node asked in namespace \"n\" without a right: get secrets. s (cluster)"]
        );
        // Somebody gave more than the tables say.
        let allowed = more(request("delete", r#"{"resource": "nodes", "name": "one"}"#, "allow", "ClusterRoleBinding"));
        assert_eq!(wrong(PAGE, &allowed), ["a-node was allowed what no table says: delete nodes. one (cluster)"]);
        let page = PAGE.replace("list, watch |", "list |");
        assert_eq!(wrong(&page, &used()), ["a-node was allowed what no table says: watch nodes. one (cluster)"]);
    }

    #[test]
    fn what_is_refused_although_it_is_given_was_asked_while_the_chart_was_removed_and_does_not_count() {
        let patch = |namespace: &str| {
            let object = format!(
                r#"{{"apiGroup": "apps", "resource": "daemonsets", "namespace": "{namespace}", "name": "own"}}"#
            );
            request("patch", &object, "forbid", "none")
        };
        let nodes = request("list", r#"{"resource": "nodes"}"#, "forbid", "none");
        assert_eq!(wrong(PAGE, &[used(), vec![patch("home"), nodes]].concat()), [""; 0]);
        assert_eq!(
            wrong(PAGE, &[used(), vec![patch("elsewhere")]].concat()),
            ["a-node asked in namespace \"elsewhere\" without a right: patch daemonsets.apps own (cluster)"]
        );
    }

    #[test]
    fn an_exception_excuses_its_right_alone_and_only_one_that_is_given() {
        let page = PAGE.replace("own | create | an apply", "own | delete | an apply");
        assert_eq!(
            wrong(&page, &used()),
            [
                "a-node never used: create daemonsets.apps own (namespace)",
                "a-node has no such right to be excused: delete daemonsets.apps own (cluster)"
            ]
        );
    }

    #[test]
    fn an_exception_does_not_excuse_the_same_right_in_one_namespace_beside_that_in_all() {
        let more = "| cluster | apps | daemonsets | own | create | everywhere |\n";
        let page = PAGE.replace("| namespace | apps", &format!("{more}| namespace | apps"));
        assert_eq!(wrong(&page, &used()), ["a-node never used: create daemonsets.apps own (namespace)"]);
        let binding = "RoleBinding";
        let object = r#"{"apiGroup": "apps", "resource": "daemonsets", "name": "own"}"#;
        assert_eq!(wrong(&page, &[used(), vec![request("create", object, "allow", binding)]].concat()), [""; 0]);
    }

    #[test]
    fn what_a_check_tries_by_hand_and_what_others_ask_for_does_not_count() {
        let others = |line: &str, from: &str, to: &str| line.replace(from, to);
        let secrets = request("get", r#"{"resource": "secrets"}"#, "forbid", "none");
        let by_hand = others(&secrets, "\"verb\"", &format!("\"userAgent\":\"{BY_HAND}\",\"verb\""));
        let other = others(&secrets, "serviceaccount:home", "serviceaccount:elsewhere");
        let torn = secrets[..secrets.len() / 2].to_owned();
        assert_eq!(wrong(PAGE, &[used(), vec![by_hand, other, torn]].concat()), [""; 0]);
    }
}
