//! A Kubernetes node selector: the nodes that a set applies to.
//!
//! Takes in the field and a [`Node`], gives out whether it selects the node. Terms are alternatives; within one term,
//! everything must hold; a term without a requirement selects nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::strict::{Case, Field, Object, Problems};
use crate::claim::NodeMatch;
use crate::device::NodeName;

/// The node for which sets are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub labels: BTreeMap<String, String>,
}

impl Node {
    /// A node without Kubernetes: it only has a name.
    pub fn standalone(name: impl Into<NodeName>) -> Self {
        let name = name.into();
        let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_string())]);
        Self { name, labels }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("Gt", Operator::Gt),
    ("Lt", Operator::Lt),
];

/// Reads the selector and says whether it selects the node. Absent: every node.
pub fn read(field: Field<'_, '_>, node: &Node) -> NodeMatch {
    if !field.is_given() {
        return NodeMatch::Selected;
    }
    let mut selector = field.object();
    let terms = selector.field(&["nodeSelectorTerms"]).required();
    let read = terms.list();
    if read.as_ref().is_some_and(Vec::is_empty) {
        terms.problem("must have at least one term");
    }
    selector.finish();
    // Every term is read, so that all mistakes are reported, whichever term selects.
    let selected: Vec<bool> = read.into_iter().flatten().map(|term| term_selects(term, node)).collect();
    if selected.contains(&true) { NodeMatch::Selected } else { NodeMatch::NotSelected }
}

/// Whether any selector of a list selects the node. Absent: none does.
pub fn any_selects(field: &Field<'_, '_>, node: &Node) -> bool {
    // Each is read, so that all mistakes are reported.
    let selected: Vec<NodeMatch> =
        field.list().unwrap_or_default().into_iter().map(|selector| read(selector, node)).collect();
    selected.contains(&NodeMatch::Selected)
}

/// Whether a NodeSelector of another owner may select the node: one that cannot be understood may.
pub fn may_select(selector: &Value, node: &Node) -> bool {
    let problems = Problems::default();
    let fields = json!({"selector": selector});
    let mut object = Object::root(&fields, &problems);
    let answer = read(object.field(&["selector"]), node);
    object.finish();
    answer == NodeMatch::Selected || !problems.into_vec().is_empty()
}

fn term_selects(term: Field<'_, '_>, node: &Node) -> bool {
    let mut term = term.object();
    let labels = requirements(&mut term, "matchExpressions", |field, key, operator, values| {
        let holds = check(operator, node.labels.get(key).map(String::as_str), values);
        if holds.is_none() {
            field.problem(expects(operator));
        }
        holds.unwrap_or(false)
    });
    let fields = requirements(&mut term, "matchFields", |field, key, operator, values| {
        if key != "metadata.name" {
            field.problem(format!("{key:?} is not a field that can select nodes: use metadata.name"));
            return false;
        }
        match (operator, values) {
            (Operator::In, [name]) => node.name == *name,
            (Operator::NotIn, [name]) => node.name != *name,
            _ => {
                field.problem("needs the operator In or NotIn and one value");
                false
            }
        }
    });
    term.finish();
    let all: Vec<bool> = labels.into_iter().chain(fields).collect();
    !all.is_empty() && !all.contains(&false)
}

/// For each requirement of a list, whether it holds according to `holds`.
fn requirements(
    term: &mut Object<'_, '_>,
    name: &'static str,
    holds: impl Fn(&Field<'_, '_>, &str, Operator, &[String]) -> bool,
) -> Vec<bool> {
    let list = term.field(&[name]).list().unwrap_or_default();
    let read = |element: Field<'_, '_>| {
        let mut requirement = element.object();
        let key = requirement.field(&["key"]).required();
        let key_text = key.string().unwrap_or_default();
        let operator = requirement.field(&["operator"]).required().one_of(&OPERATORS, Case::Exact);
        let values_field = requirement.field(&["values"]);
        // A label may have an empty value.
        let values: Vec<String> =
            values_field.list().iter().flatten().filter_map(|value| value.string().map(str::to_owned)).collect();
        if key.is_given() && key_text.is_empty() {
            key.problem("is empty");
        }
        requirement.finish();
        operator.is_some_and(|operator| holds(&values_field, key_text, operator, &values))
    };
    list.into_iter().map(read).collect()
}

/// `None`: the values do not fit the operator.
fn check(operator: Operator, label: Option<&str>, values: &[String]) -> Option<bool> {
    let listed = || label.is_some_and(|label| values.iter().any(|value| value == label));
    let compared = |holds: fn(i64, i64) -> bool| {
        let [bound] = values else { return None };
        let bound: i64 = bound.parse().ok()?;
        Some(label.and_then(|label| label.parse().ok()).is_some_and(|label| holds(label, bound)))
    };
    match operator {
        Operator::In => (!values.is_empty()).then(listed),
        Operator::NotIn => (!values.is_empty()).then(|| !listed()),
        Operator::Exists => values.is_empty().then_some(label.is_some()),
        Operator::DoesNotExist => values.is_empty().then_some(label.is_none()),
        Operator::Gt => compared(|label, bound| label > bound),
        Operator::Lt => compared(|label, bound| label < bound),
    }
}

fn expects(operator: Operator) -> &'static str {
    match operator {
        Operator::In | Operator::NotIn => "needs at least one value for In and NotIn",
        Operator::Exists | Operator::DoesNotExist => "must be absent for Exists and DoesNotExist",
        Operator::Gt | Operator::Lt => "needs one whole number for Gt and Lt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let mut node = Node::standalone("worker-0");
        node.labels.extend([("disks".to_owned(), "12".to_owned()), ("zone".to_owned(), String::new())]);
        node
    }

    fn select(selector: &Value) -> (NodeMatch, Vec<String>) {
        let (value, problems) = (json!({"s": selector}), Problems::default());
        let mut object = Object::root(&value, &problems);
        let answer = read(object.field(&["s"]), &node());
        object.finish();
        (answer, problems.into_vec().iter().map(ToString::to_string).collect())
    }

    fn term(key: &str, operator: &str, values: &Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn every_operator_means_what_kubernetes_says() {
        let host = "kubernetes.io/hostname";
        for (key, operator, values, selected) in [
            (host, "In", json!(["worker-0", "worker-1"]), true),
            (host, "In", json!(["worker-1"]), false),
            (host, "NotIn", json!(["worker-1"]), true),
            (host, "NotIn", json!(["worker-0"]), false),
            ("absent", "In", json!(["x"]), false),
            ("absent", "NotIn", json!(["x"]), true),
            ("zone", "In", json!([""]), true),
            ("zone", "Exists", json!(null), true),
            ("zone", "Exists", json!([]), true),
            ("absent", "Exists", json!(null), false),
            ("absent", "DoesNotExist", json!(null), true),
            ("zone", "DoesNotExist", json!(null), false),
            ("disks", "Gt", json!(["11"]), true),
            ("disks", "Gt", json!(["12"]), false),
            ("disks", "Lt", json!(["13"]), true),
            ("disks", "Lt", json!(["12"]), false),
            ("disks", "Gt", json!(["-3"]), true),
            (host, "Gt", json!(["1"]), false),
            ("absent", "Lt", json!(["1"]), false),
        ] {
            let expected = if selected { NodeMatch::Selected } else { NodeMatch::NotSelected };
            let answer = select(&json!({"nodeSelectorTerms": [term(key, operator, &values)]}));
            assert_eq!(answer, (expected, vec![]), "{key} {operator} {values}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_requirements_are_not() {
        let (yes, no) = (term("zone", "Exists", &json!(null)), term("zone", "DoesNotExist", &json!(null)));
        let both = json!({"matchExpressions": [yes["matchExpressions"][0], no["matchExpressions"][0]]});
        let by_name =
            |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let mixed =
            json!({"matchFields": by_name("worker-1")["matchFields"], "matchExpressions": yes["matchExpressions"]});
        for (terms, selected) in [
            (json!([no, yes]), true),
            (json!([no, no]), false),
            (json!([both]), false),
            (json!([{}]), false),
            (json!([{}, yes]), true),
            (json!([by_name("worker-0")]), true),
            (json!([by_name("worker-1")]), false),
            (json!([mixed]), false),
        ] {
            let (answer, problems) = select(&json!({"nodeSelectorTerms": terms}));
            assert_eq!((answer == NodeMatch::Selected, problems), (selected, vec![]), "{terms}");
        }
        assert_eq!(select(&Value::Null), (NodeMatch::Selected, vec![]));
    }

    #[test]
    fn selectors_that_say_nothing_or_nonsense_are_refused() {
        for (selector, piece) in [
            (json!({}), "nodeSelectorTerms: is required"),
            (json!({"nodeSelectorTerms": []}), "must have at least one term"),
            (json!({"nodeSelectorTerm": []}), "did you mean nodeSelectorTerms?"),
            (json!({"nodeSelectorTerms": [term("a", "in", &json!(["x"]))]}), "\"in\" is not one of In, NotIn"),
            (json!({"nodeSelectorTerms": [term("a", "In", &json!([]))]}), "needs at least one value"),
            (json!({"nodeSelectorTerms": [term("a", "Exists", &json!(["x"]))]}), "must be absent"),
            (json!({"nodeSelectorTerms": [term("a", "Gt", &json!(["x"]))]}), "needs one whole number"),
            (json!({"nodeSelectorTerms": [term("a", "Lt", &json!(["1", "2"]))]}), "needs one whole number"),
            (json!({"nodeSelectorTerms": [term("", "Exists", &json!(null))]}), "key: is empty"),
            (
                json!({"nodeSelectorTerms": [{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}]}),
                "use metadata.name",
            ),
            (
                json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}]}),
                "needs the operator In or NotIn",
            ),
            (json!({"nodeSelectorTerms": [{"matchExpresions": []}]}), "did you mean matchExpressions?"),
        ] {
            let (answer, problems) = select(&selector);
            assert_eq!(answer, NodeMatch::NotSelected, "{selector}");
            assert!(problems.iter().any(|problem| problem.contains(piece)), "{selector}: {problems:?}");
        }
    }
}
