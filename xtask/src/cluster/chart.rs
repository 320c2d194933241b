//! The chart on the cluster, with the lines of the README, and the sets of the examples on the disks of this run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use super::super::process::run as run_command;
use super::{Cluster, disks};

const SETS: [&str; 3] = ["whole", "slots", "carved"];

impl Cluster {
    /// The `helm` of the README's lines: Helm 3, with the values for a test cluster.
    pub(super) fn make_helm(&self) -> io::Result<()> {
        let (bin, root, folder) = (self.target.join("cluster/bin"), &self.root, &self.folder);
        let (bin, root, folder) = (bin.display(), root.display(), folder.display());
        let script = format!(
            r#"#!/bin/sh
# Helm for the test cluster: README's lines, and the values that a cluster of one node without a registry needs.
case $1 in
install | upgrade)
    exec "{bin}/${{LOCALPOOL_HELM:-helm3}}" "$@" --timeout 3m --values "{root}/charts/localpool/ci/cluster-values.yaml" \
        --set "node.kubeletDir={folder}/kubelet" --set "node.stateDir={folder}/localpool"
    ;;
esac
exec "{bin}/${{LOCALPOOL_HELM:-helm3}}" "$@"
"#
        );
        let place = self.work.join("bin");
        fs::create_dir_all(&place)?;
        fs::write(place.join("helm"), script)?;
        fs::set_permissions(place.join("helm"), fs::Permissions::from_mode(0o755))
    }

    pub(super) fn install(&self) -> io::Result<()> {
        let lines = install_lines(&fs::read_to_string(self.root.join("README.md"))?);
        if !lines.contains("helm install") {
            let why = "README has no install lines between <!-- install --> and <!-- end -->";
            return Err(io::Error::other(why));
        }
        let script = self.work.join("install");
        fs::write(&script, &lines)?;
        print!("{lines}");
        let mut bash = self.command("bash");
        run_command(bash.args(["-euo", "pipefail"]).arg(script)).map_err(|_| {
            self.explain();
            io::Error::other("README's install lines failed")
        })
    }

    pub(super) fn apply_sets(&self) -> io::Result<()> {
        let place = self.work.join("sets");
        fs::create_dir_all(&place)?;
        for set in SETS {
            let file = format!("set-{set}.yaml");
            let example = fs::read_to_string(self.root.join("examples").join(&file))?;
            let ours = place.join(format!("{set}.yaml"));
            fs::write(&ours, for_loop_disks(&example, &disks::paths_of(&self.work, set)))?;
            run_command(self.command("kubectl").args(["apply", "-f"]).arg(ours))?;
        }
        self.run("kubectl", &["apply", "-f", "examples/storageclass.yaml"])
    }
}

/// The blocks of code between the marks of the README, without their fences.
fn install_lines(readme: &str) -> String {
    let (mut is_on, mut is_code, mut lines) = (false, false, String::new());
    for line in readme.lines() {
        is_on = (is_on || line.starts_with("<!-- install -->")) && !line.starts_with("<!-- end -->");
        if is_on && line.starts_with("```") {
            is_code = !is_code;
        } else if is_on && is_code {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    lines
}

/// A set of the examples that selects loop disks by these paths instead of disks of a model, as many as there are.
fn for_loop_disks(example: &str, paths: &str) -> String {
    let (mut is_inside, mut lines) = (false, Vec::new());
    for line in example.lines() {
        let is_field = line.strip_prefix("  ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
        is_inside &= !is_field;
        if line.starts_with("  deviceInclusionSpec:") {
            lines.extend([line.to_owned(), "    deviceTypes: [loop]".to_owned(), format!("    paths: [{paths}]")]);
            is_inside = true;
        } else if line.starts_with("    partSize:") {
            // A slot that is being erased has all its blocks allocated for a time.
            lines.push("    partSize: 8Gi".to_owned());
        } else if !is_inside && !line.starts_with("  maxDeviceCount:") {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_install_lines_are_the_code_between_the_marks() {
        let readme = "```sh\nmake demo\n```\n<!-- install -->\nFirst:\n```sh\nkubectl create\n```\nThen:\n\
                      ```sh\nhelm install x\n```\n<!-- end -->\n```sh\nhelm uninstall\n```\n";
        assert_eq!(install_lines(readme), "kubectl create\nhelm install x\n");
        assert_eq!(install_lines("```sh\nhelm install\n```\n"), "");
    }

    #[test]
    fn a_set_selects_the_loop_disks_and_nothing_else_of_it_changes() {
        let example = "\
spec:
  storageClassName: a
  maxDeviceCount: 4
  deviceInclusionSpec:
    # A model.
    models: [X]
    minSize: 1Ti
  partitioningSpec:
    partSize: 100Gi
    count: 8
";
        let wanted = "\
spec:
  storageClassName: a
  deviceInclusionSpec:
    deviceTypes: [loop]
    paths: [/w/disks/slots-*.img]
  partitioningSpec:
    partSize: 8Gi
    count: 8
";
        assert_eq!(for_loop_disks(example, "/w/disks/slots-*.img"), wanted);
    }
}
