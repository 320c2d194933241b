//! The CustomResourceDefinitions: the copy in the chart is up to date, the role of the job names all of them and no others,
//! and those of the other parts name the ones that they read.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use regex::Regex;
use serde_json::Value;

use super::helm::{self, name, of_kind, parse};
use super::{chart, repository};

const REMAKE: &str = "UPDATE_DOCS=1 cargo test -F testing --test chart writes it";

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
fn documents_and_the_role_of_the_job_name_every_definition_and_the_other_roles_those_that_their_parts_read() {
    let definitions = parse(&printed());
    let names: BTreeSet<&str> = definitions.iter().map(name).collect();
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let security = std::fs::read_to_string(repository().join("docs/security.md")).unwrap();
    for name in &names {
        assert!(readme.contains(name) && security.contains(name), "{name}");
    }
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    // What claims disks, and beside it what the controller runs discovery for.
    let agent =
        BTreeSet::from(["localvolumesets.local.storage.openshift.io", "localvolumes.local.storage.openshift.io"]);
    let controller = agent.iter().copied().chain(["localvolumediscoveries.local.storage.openshift.io"]).collect();
    let mut named = BTreeMap::new();
    for role in of_kind(&objects, "ClusterRole") {
        for rule in role["rules"].as_array().unwrap() {
            if rule["resources"][0] == "customresourcedefinitions" {
                let held: BTreeSet<&str> =
                    rule["resourceNames"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
                assert!(named.insert(name(role), held).is_none(), "{}", name(role));
            }
        }
    }
    let expected = [("localpool-controller", controller), ("localpool-crds", names), ("localpool-node", agent)];
    assert_eq!(named, BTreeMap::from(expected));
}

/// The names of the columns that `kubectl get` prints of a definition; without `-o wide` those of priority 0.
fn columns(definition: &Value, wide: bool) -> Vec<String> {
    let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
    let shown = columns.iter().filter(|column| wide || column["priority"].as_i64().unwrap_or(0) == 0);
    let names = shown.map(|column| column["name"].as_str().unwrap().to_uppercase());
    ["NAME".to_owned()].into_iter().chain(names).collect()
}

/// What a table of `kubectl get` has wrong: its head, and cells that begin at no column.
fn wrong_in(table: &str, wanted: &[String]) -> Vec<String> {
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    if !head.split_whitespace().eq(wanted.iter().map(String::as_str)) {
        return vec![format!("{head}: not {wanted:?}")];
    }
    let cells = |line: &str| -> Vec<(usize, String)> {
        let cell = Regex::new(r"\S+(?: \S+)*").unwrap();
        // Places are counted in characters, as a terminal does.
        cell.find_iter(line).map(|cell| (line[..cell.start()].chars().count(), cell.as_str().to_owned())).collect()
    };
    let places = cells(head);
    let mut wrong = Vec::new();
    for (at, cell) in lines.flat_map(cells) {
        match places.iter().find(|(place, _)| *place == at).map(|(_, name)| name.as_str()) {
            None => wrong.push(format!("{cell} is in no column")),
            Some("CLAIM") if cell.split('/').count() != 2 => wrong.push(format!("{cell} is no NAMESPACE/NAME")),
            Some(_) => {}
        }
    }
    wrong
}

/// The phase of a volume is Ready after its disk died, and the agent of a node is, whose disks are all gone.
#[test]
fn no_column_of_kubectl_get_says_ready_of_what_may_be_dead() {
    for definition in parse(&printed()) {
        let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap().clone();
        for column in columns {
            let is_phase = name(&definition).starts_with("poolvolumes.") && column["jsonPath"] == ".status.phase";
            assert!(!is_phase && column["name"] != "Ready", "{}: {column}", name(&definition));
        }
    }
}

#[test]
fn the_tables_that_documents_show_of_kubectl_get_have_the_columns_of_the_definitions() {
    let definitions = parse(&printed());
    let docs = repository().join("docs");
    let folders = [docs.clone(), docs.join("runbooks")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let pages =
        files.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([repository().join("README.md")]);
    let block = Regex::new(r"kubectl get (devicepools|poolvolumes)( -o wide)?(?: \|[^\n]*)?\n```\n```text\n([^`]*)```")
        .unwrap();
    let (mut wrong, mut tables) = (Vec::new(), 0);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for shown in block.captures_iter(&text) {
            let definition = definitions.iter().find(|one| one["spec"]["names"]["plural"] == shown[1]).unwrap();
            let found = wrong_in(&shown[3], &columns(definition, shown.get(2).is_some()));
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", page.display())));
            tables += 1;
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(tables >= 10, "only {tables} were found");
}
