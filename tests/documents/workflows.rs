//! The workflows for a public CI, which nothing here runs: they are YAML, and what they call is there.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::{read, root, targets};

#[test]
fn workflows_call_what_is_there_and_try_the_oldest_kubernetes_that_the_chart_takes() {
    let mut minors = BTreeSet::new();
    let make = Regex::new(r"\bmake ([a-z][a-z-]*)").unwrap();
    let own = Regex::new(r"(?:^|\s)((?:scripts|\.ci)/\S+)").unwrap();
    let all =
        |pattern: &Regex, run: &str| pattern.captures_iter(run).map(|found| found[1].to_owned()).collect::<Vec<_>>();
    for file in [".github/workflows/ci.yml", ".github/workflows/release.yml"] {
        let workflow: Value = serde_saphyr::from_str(&read(file)).unwrap();
        let jobs = workflow["jobs"].as_object().unwrap();
        let steps = || jobs.values().flat_map(|job| job["steps"].as_array().unwrap());
        for run in steps().filter_map(|step| step["run"].as_str()) {
            all(&make, run).iter().for_each(|target| assert!(targets().contains(target), "{file}: make {target}"));
            all(&own, run).iter().for_each(|path| assert!(root().join(path).exists(), "{file}: {path}"));
        }
        assert!(steps().all(|step| step["run"].is_string() != step["uses"].is_string()), "{file}");
        let matrix = jobs.values().filter_map(|job| job["strategy"]["matrix"]["minor"].as_array()).flatten();
        minors.extend(matrix.filter_map(Value::as_str).map(str::to_owned));
    }
    let oldest = minors.first().unwrap();
    assert!(read("charts/localpool/Chart.yaml").contains(&format!("kubeVersion: \">={oldest}.0-0\"")), "{oldest}");
}
