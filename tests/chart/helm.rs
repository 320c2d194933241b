//! Helm itself: where it is, and what it renders from the chart. Gives out the rendered objects as JSON values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use localpool_testing::skipped;
use serde_json::Value;

use super::chart;

/// The newest Kubernetes of our test cluster, and the oldest that the chart allows.
pub const KUBERNETES: [&str; 2] = ["1.36.3", "1.32.0"];

#[derive(Clone, Debug)]
pub struct Helm {
    path: PathBuf,
}

/// A program that `make cluster-build` builds, or `None` with a line that says so.
pub fn built(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("LOCALPOOL_CLUSTER_BIN") {
        Some(program) => PathBuf::from(program).parent().unwrap().to_owned(),
        // The binary under test is in <target>/<profile>.
        None => PathBuf::from(env!("CARGO_BIN_EXE_localpool")).ancestors().nth(2).unwrap().join("cluster/bin"),
    };
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("needs {}, which `make cluster-build` builds", path.display()));
    None
}

/// Helm 3 and Helm 4; `None` with a line that says so if one of them is missing.
pub fn both() -> Option<[Helm; 2]> {
    Some([Helm { path: built("helm3")? }, Helm { path: built("helm4")? }])
}

/// One of them, if it does not matter which.
pub fn one() -> Option<Helm> {
    both().map(|[helm, _]| helm)
}

impl Helm {
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.path);
        // It must not use its own settings on this machine.
        command.env_clear().env("HOME", "/nonexistent").args(args);
        command.output().unwrap()
    }

    /// Rendered once for all tests: the chart is the same for each of them.
    pub fn template(&self, kubernetes: &str, args: &[&str]) -> Output {
        type Rendered = BTreeMap<Vec<String>, Arc<OnceLock<Output>>>;
        static RENDERED: Mutex<Rendered> = Mutex::new(BTreeMap::new());
        let chart = chart();
        let mut all = vec!["template", "localpool", chart.to_str().unwrap(), "--namespace=localpool"];
        let version = format!("--kube-version={kubernetes}");
        all.push(&version);
        all.extend_from_slice(args);
        let key = [self.path.to_str().unwrap()].iter().chain(&all).map(|&word| word.to_owned()).collect();
        let done = Arc::clone(RENDERED.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        done.get_or_init(|| self.run(&all)).clone()
    }

    /// The text that is rendered with these arguments.
    pub fn text(&self, args: &[&str]) -> String {
        let done = self.template(KUBERNETES[0], args);
        assert!(done.status.success(), "helm template {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// The objects that are rendered with these arguments.
    pub fn objects(&self, args: &[&str]) -> Vec<Value> {
        parse(&self.text(args))
    }
}

pub fn parse(text: &str) -> Vec<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Values of the chart that `charts/localpool/ci` tries.
pub fn files_of_values() -> Vec<String> {
    let entries = std::fs::read_dir(chart().join("ci")).unwrap();
    let mut files: Vec<String> = entries.map(|e| e.unwrap().path().to_str().unwrap().to_owned()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files
}
