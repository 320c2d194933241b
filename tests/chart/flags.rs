//! Flags: the program has each flag that the chart passes, by its own `--help`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::helm::{self, built, of_kind};

/// Flags of localpool that the chart need not pass: the first three come from the environment, and discovery gets the
/// second of them from the controller. A person says which cluster is meant; a pod is in it.
const OTHERWISE: [&str; 7] = ["node-name", "namespace", "pod-name", "kubeconfig", "context", "help", "version"];

/// The flags in a `--help`: words behind one or two dashes at the beginning of a line.
fn flags_of(program: &Path, args: &[&str]) -> BTreeSet<String> {
    let done = Command::new(program).args(args).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let mut flags = BTreeSet::new();
    for line in text.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        for word in line.split([' ', ',', '=', '\t']).take_while(|word| word.starts_with('-') || word.is_empty()) {
            flags.insert(word.trim_start_matches('-').to_owned());
        }
    }
    assert!(flags.len() > 3, "{} {args:?} --help: {text}", program.display());
    flags
}

fn passed(container: &Value) -> Vec<String> {
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    args.map(|arg| arg.trim_start_matches('-').split('=').next().unwrap().to_owned()).collect()
}

/// Each container that runs this program, with its own arguments behind the name.
fn running<'a>(objects: &'a [Value], name: &str) -> Vec<&'a Value> {
    let kinds = ["DaemonSet", "Deployment", "Job"];
    let pods = kinds.iter().flat_map(|kind| of_kind(objects, kind)).map(|object| &object["spec"]["template"]["spec"]);
    pods.flat_map(|pod| ["initContainers", "containers"].into_iter().filter_map(|list| pod[list].as_array()).flatten())
        .filter(|container| container["name"] == name || container["command"][0] == name)
        .collect()
}

#[test]
fn the_sidecars_have_the_flags_that_they_are_given() {
    let Some(helm) = helm::one() else { return };
    let objects = helm.objects(&[]);
    for name in ["csi-provisioner", "csi-resizer"] {
        let Some(program) = built(name) else { return };
        let flags = flags_of(&program, &[]);
        let containers = running(&objects, name);
        assert_eq!(containers.len(), 1, "{name}");
        for flag in passed(containers[0]) {
            assert!(flags.contains(&flag), "{name} has no --{flag}");
        }
    }
}

#[test]
fn localpool_is_given_all_flags_of_its_roles_and_no_others() {
    let Some(helm) = helm::one() else { return };
    let exec = "controller.nodeDiskSetup.enabled=true,controller.nodeDiskSetup.execNamespaces={a}";
    let all = "crds.takeOwnership=true,node.udevRulesDir=/etc/udev/rules.d,node.lvmDir=/etc/lvm,\
               controller.statusPage.enabled=true";
    let objects = helm.objects(&["--set", all, "--set", exec]);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_localpool"));
    let mut containers = running(&objects, "localpool");
    assert_eq!(containers.len(), 3, "agent, controller, CRD job");
    let discovery = super::pods::discovery(&objects);
    containers.push(&discovery["spec"]["template"]["spec"]["containers"][0]);
    for container in containers {
        let role = container["command"][1].as_str().unwrap();
        let flags = flags_of(&program, &[role]);
        let passed = passed(container);
        for flag in &passed {
            assert!(flags.contains(flag), "localpool {role} has no --{flag}");
        }
        for flag in flags.iter().filter(|flag| flag.len() > 1 && !OTHERWISE.contains(&flag.as_str())) {
            assert!(passed.contains(flag), "the chart does not say --{flag} to localpool {role}");
        }
    }
}
