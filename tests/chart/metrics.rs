//! Metrics: the table in docs/kubernetes.md has all that the code serves and no other, and what a query asks for.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::repository;

/// Words of the query language that alerts and panels use.
const PROMQL: [&str; 12] = [
    "absent",
    "and",
    "count",
    "histogram_quantile",
    "increase",
    "max",
    "max_over_time",
    "or",
    "rate",
    "sum",
    "time",
    "unless",
];

/// The files that serve metrics whose names begin like this. The first half of some names is in a `format!`.
const PLACES: [(&str, &str); 8] = [
    ("localpool_set_", "role/disk_metrics.rs"),
    ("localpool_controller_rpc_", "rpc/measure.rs"),
    ("localpool_node_rpc_", "rpc/measure.rs"),
    ("localpool_controller_", "operator/metrics/mod.rs"),
    ("localpool_controller_", "operator/metrics/reaction.rs"),
    ("", "role/disk_metrics.rs"),
    ("", "role/metrics.rs"),
    ("", "role/registry.rs"),
];

/// The text of a source file, without its tests.
fn source(path: &str) -> String {
    let text = std::fs::read_to_string(repository().join("src").join(path)).unwrap();
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

/// The source file that serves a metric, if one does.
pub fn source_of(metric: &str) -> Option<String> {
    let mut texts = PLACES.iter().filter_map(|(start, path)| Some((metric.strip_prefix(start)?, source(path))));
    texts.find(|(name, text)| text.contains(&format!("\"{name}\""))).map(|(_, text)| text)
}

/// The metrics and labels in an expression.
pub struct Asked {
    pub metrics: Vec<String>,
    /// Labels in its matchers, with the value.
    pub picked: Vec<(String, String)>,
    /// Labels that it groups by; none if it does not group.
    pub grouped: Vec<String>,
    pub is_aggregate: bool,
}

fn all(pattern: &Regex, text: &str) -> Vec<Vec<String>> {
    let captures = |it: regex::Captures<'_>| it.iter().flatten().map(|part| part.as_str().to_owned()).collect();
    pattern.captures_iter(text).map(captures).collect()
}

/// Made once: there are many expressions.
struct Patterns {
    picked: Regex,
    groups: Regex,
    /// Matchers, ranges and groupings contain no metrics.
    without_metrics: Regex,
    words: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let of = |pattern: &str| Regex::new(pattern).unwrap();
    Patterns {
        picked: of(r#"(\w+)(?:=~?|!=)"([^"]*)""#),
        groups: of(r"\b(?:by|on) \(([^)]*)\)"),
        without_metrics: of(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on) \([^)]*\)"),
        words: of(r"\b[a-z_]\w*"),
    }
});

pub fn asked(expression: &str) -> Asked {
    let picked = all(&PATTERNS.picked, expression);
    let picked = picked.iter().flat_map(|it| it[2].split('|').map(|value| (it[1].clone(), value.to_owned()))).collect();
    let groups = all(&PATTERNS.groups, expression);
    let grouped = groups.iter().flat_map(|it| it[1].split(", ")).map(str::to_owned).collect();
    let rest = PATTERNS.without_metrics.replace_all(expression, " ");
    let words: Vec<String> = all(&PATTERNS.words, &rest).into_iter().map(|it| it[0].clone()).collect();
    let is_aggregate = words.iter().any(|word| ["max", "sum", "count"].contains(&word.as_str()));
    let metrics = words.into_iter().filter(|word| !PROMQL.contains(&word.as_str())).collect();
    Asked { metrics, picked, grouped, is_aggregate }
}

/// The metrics in the table of docs/kubernetes.md.
pub fn documented() -> BTreeSet<String> {
    let document = std::fs::read_to_string(repository().join("docs/kubernetes.md")).unwrap();
    let table = document.split("| metric | of |").nth(1).unwrap().split("\n\n").next().unwrap();
    let cells = table.lines().filter_map(|line| line.split('|').nth(1));
    let name = Regex::new(r"`(localpool_\w+)").unwrap();
    cells.flat_map(|cell| all(&name, cell)).map(|it| it[1].clone()).collect()
}

/// The metrics that the code makes, by the literals in it.
fn served() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (start, path) in PLACES {
        let pattern = match path {
            "rpc/measure.rs" => r#"name\("(\w+)"\)"#,
            "operator/metrics/mod.rs" | "operator/metrics/reaction.rs" => r#"opts\(\s*"(\w+)""#,
            // A figure of a set is a row: a bracket that begins a line, its name, then its help.
            _ if start == "localpool_set_" => r#"(?m)^\s+\(\s*"([a-z_]+)",\s*"[A-Z]"#,
            _ => r#""(localpool_[a-z_]+)""#,
        };
        names.extend(
            all(&Regex::new(pattern).unwrap(), &source(path)).into_iter().map(|it| format!("{start}{}", it[1])),
        );
    }
    names
}

#[test]
fn the_table_of_metrics_has_every_metric_that_is_served_and_no_other() {
    let served = served();
    assert!(served.len() > 35, "only {} were found: {served:?}", served.len());
    assert_eq!(documented(), served);
}
