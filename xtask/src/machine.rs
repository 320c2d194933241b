//! What this machine shows of a cluster, as lines of text: the same before the cluster is up and after it is down.
//! `cluster/check` calls this.
//!
//! Takes in the folder of the cluster; gives out the lines, or how they differ from those of before.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::process::{command, output};

/// Folders that containerd, CNI and kubelet make.
const FOLDERS: [&str; 4] = ["/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"];
const CGROUPS: &str = "/sys/fs/cgroup";
/// What each process of a cluster has in its environment, with the folder of the cluster.
const MEMBER: &str = "LOCALPOOL_CLUSTER_MEMBER";
/// Of the pods and of the services.
const NETWORKS: [&str; 2] = ["10.219.", "10.220."];
const SETTINGS: [&str; 4] = ["kernel.panic", "kernel.panic_on_oops", "vm.overcommit_memory", "vm.panic_on_oom"];

/// `show FOLDER` prints the lines; `compare FOLDER FILE` fails if they are not those of the file, and prints how.
pub fn run(words: &[&str]) -> io::Result<ExitCode> {
    match words {
        ["show", folder] => lines(Path::new(folder))?.iter().for_each(|line| println!("{line}")),
        ["compare", folder, file] => {
            let before = fs::read_to_string(file)?;
            let before: Vec<String> = before.lines().map(str::to_owned).collect();
            let differences = differences(&before, &lines(Path::new(folder))?);
            differences.iter().for_each(|line| println!("{line}"));
            return Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        _ => return Err(io::Error::other("usage: xtask machine show FOLDER | compare FOLDER FILE")),
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(folder: &Path) -> io::Result<Vec<String>> {
    // What a machine cannot show, it shows neither before nor after.
    let text = |program: &str, words: &[&str]| output(command(program, Path::new("/")).args(words)).unwrap_or_default();
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let mut all: Vec<String> = folders(folder).iter().map(|path| path.display().to_string()).collect();
    all.extend(mounts_below(&fs::read_to_string("/proc/self/mountinfo")?, folder));
    all.extend(text("ip", &["-brief", "link", "show"]).lines().map(first));
    let is_of_cluster = |line: &&str| NETWORKS.iter().any(|network| line.contains(network));
    all.extend(text("ip", &["route", "show", "table", "all"]).lines().filter(is_of_cluster).map(str::to_owned));
    let namespaces = text("lsns", &["--noheadings", "--output", "NS", "--type", "net"]);
    let mut namespaces: Vec<String> = namespaces.lines().map(str::to_owned).collect();
    namespaces.sort();
    namespaces.dedup();
    all.extend(namespaces);
    let files = text("losetup", &["--noheadings", "--output", "BACK-FILE"]);
    let below = folder.display().to_string();
    all.extend(files.lines().filter(|file| file.contains(&below)).map(str::to_owned));
    all.extend(text("sysctl", &[&["-n"], &SETTINGS[..]].concat()).lines().map(str::to_owned));
    all.extend(processes(folder)?);
    Ok(all)
}

/// Those that are there.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    all.extend(FOLDERS.map(PathBuf::from));
    let groups = fs::read_dir(CGROUPS).into_iter().flatten().flatten();
    all.extend(groups.map(|entry| entry.path().join("k8s.io")));
    all.retain(|path| path.exists());
    all
}

/// The mount points of a mountinfo whose path begins with that of the folder.
fn mounts_below(mountinfo: &str, folder: &Path) -> Vec<String> {
    let begins = folder.display().to_string();
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with(&begins)).map(str::to_owned).collect()
}

/// The command lines of the processes of the cluster. A process may end meanwhile.
fn processes(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let is_process = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
        let environment = if is_process { fs::read(path.join("environ")).unwrap_or_default() } else { Vec::new() };
        if is_member(&environment, folder) {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            found.push(format!("process: {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    Ok(found)
}

fn is_member(environment: &[u8], folder: &Path) -> bool {
    let wanted = format!("{MEMBER}={}", folder.display());
    environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes())
}

/// Lines that are there only before (`<`) or only after (`>`), each as often as it is.
fn differences(before: &[String], after: &[String]) -> Vec<String> {
    let mut more: BTreeMap<&str, i32> = BTreeMap::new();
    before.iter().for_each(|line| *more.entry(line).or_default() -= 1);
    after.iter().for_each(|line| *more.entry(line).or_default() += 1);
    let mut shown = Vec::new();
    for (line, count) in more {
        let sign = if count < 0 { '<' } else { '>' };
        shown.extend((0..count.abs()).map(|_| format!("{sign} {line}")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_gone_and_what_is_new_is_shown_as_often_as_it_is() {
        let (before, after) = (lines_of("lo\neth0\nkernel\nkernel"), lines_of("eth0\nlo\nkernel\nbridge\nbridge"));
        assert_eq!(differences(&before, &after), ["> bridge", "> bridge", "< kernel"]);
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn a_mount_below_the_folder_and_a_process_with_its_name_are_of_the_cluster() {
        let folder = Path::new("/var/lib/one");
        let mounts =
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n90 22 0:5 / /var/lib/one/kubelet/a rw shared:3 - tmpfs t rw\n";
        assert_eq!(mounts_below(mounts, folder), ["/var/lib/one/kubelet/a"]);
        assert!(is_member(b"A=b\0LOCALPOOL_CLUSTER_MEMBER=/var/lib/one\0", folder));
        assert!(!is_member(b"LOCALPOOL_CLUSTER_MEMBER=/var/lib/one-more\0", folder) && !is_member(b"", folder));
    }
}
