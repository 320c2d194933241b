//! The rights that docs/security.md says each part has, and of which it says that no run of the tests shows them. Takes in
//! the page, gives out each right by itself; `asked` compares them with what the parts asked for.

pub mod asked;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::Path;

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Of a ClusterRole, `cluster`; of a Role in the release's namespace, `namespace`.
    pub scope: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// With its subresource, such as `pods/eviction`.
    pub resource: String,
    /// Of the only object that it is for, or `any`.
    pub name: String,
    pub verb: String,
}

/// By the heading that they have there: a ServiceAccount, or a role that one has where a value asks for it.
pub type Rights = BTreeMap<String, BTreeSet<Right>>;

/// Roles that the controller has where a value asks for them.
pub const OF_CONTROLLER: [&str; 5] = [
    "localpool-reaction",
    "localpool-startup-taint",
    "localpool-status-page",
    "localpool-node-disk-setup",
    "localpool-benchmark-exec",
];
/// A role for people, which no part has.
pub const OF_PEOPLE: &str = "localpool-reader";
/// The heading above the rights that a run does not show. Its tables name the ServiceAccount first.
const UNSEEN: &str = "### What no run shows";

impl Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, group, resource, name, verb } = self;
        write!(f, "{verb} {resource}.{group} {name} ({scope})")
    }
}

impl Right {
    /// Whether this right is enough for a request, which names the object that it is for, if it is for one.
    fn covers(&self, request: &Self) -> bool {
        let same = |one: &Self| (one.scope, one.group.clone(), one.resource.clone(), one.verb.clone());
        same(self) == same(request) && (self.name == "any" || self.name == request.name)
    }
}

/// The tables of the page, which is in this repository.
pub fn documented(repository: &Path) -> Rights {
    read(&page(repository))
}

/// What each ServiceAccount may do in some installation.
pub fn of_accounts(repository: &Path) -> Rights {
    let mut rights = documented(repository);
    rights.remove(OF_PEOPLE).unwrap();
    for role in OF_CONTROLLER {
        let more = rights.remove(role).unwrap();
        rights.get_mut("localpool-controller").unwrap().extend(more);
    }
    rights
}

/// The rights that parts need although no run shows that they use them, by ServiceAccount.
pub fn unseen(repository: &Path) -> Rights {
    read_unseen(&page(repository))
}

fn page(repository: &Path) -> String {
    std::fs::read_to_string(repository.join("docs/security.md")).unwrap()
}

fn read(page: &str) -> Rights {
    let mut rights = Rights::new();
    for (heading, cells) in rows(page) {
        let account = heading.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`'));
        let Some(account) = account else { continue };
        let [how_far, lists @ .., _] = &cells[..] else { unreachable!("six cells") };
        add(&mut rights, account, scope(how_far), lists, &cells);
    }
    rights
}

fn read_unseen(page: &str) -> Rights {
    let mut rights = Rights::new();
    for (_, cells) in rows(page).into_iter().filter(|(heading, _)| heading == UNSEEN) {
        let [accounts, lists @ .., _] = &cells[..] else { unreachable!("six cells") };
        words(accounts).iter().for_each(|account| add(&mut rights, account, "cluster", lists, &cells));
    }
    rights
}

fn add(rights: &mut Rights, account: &str, scope: &'static str, lists: &[String], row: &[String]) {
    assert!(row[5].len() > 5, "docs/security.md: a rule without a reason: {row:?}");
    let lists: Vec<Vec<String>> = lists.iter().map(|list| words(list)).collect();
    for right in all_of(scope, &lists.try_into().unwrap()) {
        let right = Right { group: right.group.replace("core", ""), ..right };
        let new = rights.entry(account.to_owned()).or_default().insert(right);
        assert!(new, "docs/security.md: said twice: {row:?}");
    }
}

/// The rows of tables with six columns below headings of the third level, each with its heading.
fn rows(page: &str) -> Vec<(String, Vec<String>)> {
    let (mut heading, mut rows) = (None, Vec::new());
    for line in page.lines() {
        if line.starts_with('#') {
            heading = Some(line).filter(|line| line.starts_with("### `") || *line == UNSEEN);
        }
        let (Some(heading), Some(row)) = (heading, line.strip_prefix("| ")) else { continue };
        let cells: Vec<String> = row.trim_end_matches(" |").split(" | ").map(str::to_owned).collect();
        assert_eq!(cells.len(), 6, "docs/security.md: not six cells: {line}");
        if !["scope", "part"].contains(&cells[0].as_str()) {
            rows.push((heading.to_owned(), cells));
        }
    }
    rows
}

/// Each combination of groups, resources, names and verbs.
pub fn all_of(scope: &'static str, [groups, resources, names, verbs]: &[Vec<String>; 4]) -> Vec<Right> {
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
