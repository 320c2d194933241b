//! Which cluster a command asks: what it says when the file that names one is missing, and when the cluster does not
//! answer.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use super::SPAWN;

/// The plugin's `status` with this in the environment, and these arguments.
fn status(kubeconfig: &Path, args: &[&str]) -> Output {
    let _spawn = SPAWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_localpool"));
    command.args(["cluster", "status"]).args(args).env("KUBECONFIG", kubeconfig).env("HOME", "/nonexistent");
    command.env_remove("KUBERNETES_SERVICE_HOST").stdin(Stdio::null()).output().unwrap()
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_kubeconfig_that_is_missing_is_named_and_who_named_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let path = missing.to_str().unwrap();
    let said = complaint(&status(&missing, &[]));
    assert!(said.contains(&format!("the file {path}, which KUBECONFIG names, cannot be used: No such file")), "{said}");
    assert_eq!(said.matches(path).count(), 1, "{said}");
    // A context does not change which file is meant, and a flag counts before the variable.
    let said = complaint(&status(&missing, &["--context", "it"]));
    assert!(said.contains(&format!("{path}, which KUBECONFIG names")), "{said}");
    let said = complaint(&status(Path::new("/other"), &["--kubeconfig", path]));
    assert!(said.contains(&format!("{path}, which --kubeconfig names")) && !said.contains("/other"), "{said}");
}

#[test]
fn a_cluster_that_does_not_answer_is_named_by_its_context_and_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    // Nothing listens at a port that was free a moment ago.
    let server = format!("http://{}", localpool_testing::free_address());
    let context = |name: &str| json!({"name": name, "context": {"cluster": "it", "user": "it"}});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "staging",
        "clusters": [{"name": "it", "cluster": {"server": server}}], "users": [{"name": "it", "user": {}}],
        "contexts": [context("staging"), context("production")],
    });
    fs::write(&file, config.to_string()).unwrap();
    for (args, context) in [(&[][..], "staging"), (&["--context", "production"], "production")] {
        let said = complaint(&status(&file, args));
        assert!(said.trim_end().ends_with(&format!("(context {context}, server {server})")), "{said}");
    }
}
