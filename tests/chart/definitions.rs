//! The CustomResourceDefinitions: the copy in the chart is up to date, and the roles name all of them and no others.

use std::collections::BTreeSet;
use std::process::Command;

use super::helm::{self, name, of_kind, parse};
use super::{chart, repository};

const REMAKE: &str = "UPDATE_DOCS=1 cargo test --test chart writes it";

fn printed() -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_localpool")).arg("crds").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_definitions_in_the_chart_are_those_that_localpool_prints() {
    let file = chart().join("files/crds.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (comment, rest) = text.split_once('\n').unwrap();
    assert!(comment.starts_with("# "));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{comment}\n{}", printed())).unwrap();
        return;
    }
    assert!(rest == printed(), "charts/localpool/files/crds.yaml is not fresh; {REMAKE}");
}

#[test]
fn roles_and_documents_name_every_definition_and_no_other() {
    let definitions = parse(&printed());
    let names: BTreeSet<&str> = definitions.iter().map(name).collect();
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let security = std::fs::read_to_string(repository().join("docs/security.md")).unwrap();
    for name in &names {
        assert!(readme.contains(name) && security.contains(name), "{name}");
    }
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    let mut rules = 0;
    for role in of_kind(&objects, "ClusterRole") {
        for rule in role["rules"].as_array().unwrap() {
            if rule["resources"][0] == "customresourcedefinitions" {
                let held: BTreeSet<&str> =
                    rule["resourceNames"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
                assert_eq!(held, names, "{}", name(role));
                rules += 1;
            }
        }
    }
    assert_eq!(rules, 3, "agent, controller, CRD job");
}
