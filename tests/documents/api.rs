//! The page of all fields of the custom resources, made of their definitions. With `UPDATE_DOCS=1` it is written, else it
//! has to be what would be written. Each field says what it is: `kubectl explain` has nothing else.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use crate::{read, root};

const PAGE: &str = "docs/api.md";

/// Fields of Kubernetes that several kinds have, each with where it is shown: once, behind the kinds.
const SHARED: [(&str, &str); 3] =
    [("nodeSelectorTerms", "Node selectors"), ("tolerations", "Tolerations"), ("conditions", "Conditions")];

const HEAD: &str = "# Custom resources

Each field of each kind, as `kubectl explain` shows it; `UPDATE_DOCS=1 cargo test -F testing --test documents` writes this page.
What you write is in `spec`. [LocalVolumeSet](local-volume-sets.md), [LocalVolume](local-volumes.md),
[discovery](discovery.md), [NodeDiskSetup](node-disk-setup.md) and [DevicePool and PoolVolume](kubernetes.md) have pages that explain
them. `[]` is each entry of a list, and `NAME` each key of a map.
";

fn definitions() -> Vec<Value> {
    let done = Command::new(env!("CARGO_BIN_EXE_localpool")).arg("crds").output().unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(done.stdout).unwrap()).unwrap();
    all.into_iter().filter(|one| !one.is_null()).collect()
}

/// A field of a schema, and the fields in it.
struct Field<'a> {
    path: String,
    name: &'a str,
    schema: &'a Value,
}

impl Field<'_> {
    fn description(&self) -> &str {
        self.schema["description"].as_str().unwrap_or_default()
    }

    fn kind(&self) -> String {
        let of = |schema: &Value| match schema["type"].as_str() {
            _ if schema["x-kubernetes-int-or-string"] == true => "quantity".to_owned(),
            Some(kind) => kind.to_owned(),
            None => "any".to_owned(),
        };
        let kind = match (&self.schema["items"], &self.schema["additionalProperties"]) {
            (items @ Value::Object(_), _) => format!("list of {}", of(items)),
            (_, each @ Value::Object(_)) => format!("map of {}", of(each)),
            _ => of(self.schema),
        };
        match self.schema["enum"].as_array() {
            Some(words) => {
                let words = words.iter().filter_map(Value::as_str).filter(|word| !word.is_empty());
                words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            None => kind,
        }
    }
}

/// All fields of an object, each before those in it; those of Kubernetes only where `with_shared`.
fn fields<'a>(path: &str, schema: &'a Value, with_shared: bool, all: &mut Vec<Field<'a>>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        all.push(Field { path: path.clone(), name, schema });
        if !with_shared && SHARED.iter().any(|(shared, _)| shared == name) {
            continue;
        }
        fields(&path, schema, with_shared, all);
        fields(&format!("{path}[]"), &schema["items"], with_shared, all);
        fields(&format!("{path}.NAME"), &schema["additionalProperties"], with_shared, all);
    }
}

fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn row(field: &Field<'_>) -> String {
    let shared = SHARED.iter().find(|(name, _)| *name == field.name);
    let see = shared.map(|(_, title)| format!(" See [{title}](#{}).", title.to_lowercase().replace(' ', "-")));
    let text = field.description().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    format!("| `{}` | {} | {text}{} |\n", field.path, field.kind(), see.unwrap_or_default())
}

fn page(definitions: &[Value]) -> String {
    let mut page = HEAD.to_owned();
    let table = "\n| field | type | |\n|---|---|---|\n";
    for definition in definitions {
        let (spec, schema) = (&definition["spec"], schema(definition));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
        let (kind, scope) = (text(&spec["names"]["kind"]), text(&spec["scope"]).to_lowercase());
        write!(page, "\n## {kind}\n`{group}/{version}`, {scope}. {}\n{table}", text(&schema["description"])).unwrap();
        let mut all = Vec::new();
        fields("", schema, false, &mut all);
        let common = |field: &&Field<'_>| !["apiVersion", "kind", "metadata"].contains(&&*field.path);
        all.iter().filter(common).for_each(|field| page.push_str(&row(field)));
    }
    for (name, title) in SHARED {
        let mut all = Vec::new();
        definitions.iter().for_each(|definition| fields("", schema(definition), true, &mut all));
        let first = all.iter().find(|field| field.name == name).unwrap();
        let mut inner = Vec::new();
        fields("[]", &first.schema["items"], true, &mut inner);
        write!(page, "\n## {title}\n{}\n{table}", first.description()).unwrap();
        inner
            .iter()
            .for_each(|field| page.push_str(&row(&Field { path: field.path.clone(), name: "", schema: field.schema })));
    }
    page
}

#[test]
fn each_field_of_each_definition_says_what_it_is() {
    let definitions = definitions();
    let mut all = Vec::new();
    definitions.iter().for_each(|definition| fields("", schema(definition), true, &mut all));
    assert!(all.len() > 400, "only {} fields were found", all.len());
    let silent: Vec<&str> = all
        .iter()
        .filter(|field| field.path != "metadata" && field.description().is_empty())
        .map(|field| &*field.path)
        .collect();
    assert!(silent.is_empty(), "no description: {silent:#?}");
}

#[test]
fn the_page_of_the_custom_resources_is_that_of_their_definitions() {
    let wanted = page(&definitions());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(PAGE), &wanted).unwrap();
    } else {
        assert!(read(PAGE) == wanted, "{PAGE} is not fresh: UPDATE_DOCS=1 cargo test -F testing --test documents");
    }
}
