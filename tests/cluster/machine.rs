//! The machine of the node, if the test set it up: the loop disks, the data on them, and the processes of the cluster.

use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use localpool_testing::loops::{self, LoopDevice};
use serde_json::Value;

use crate::cluster::{Cluster, HOME, SOON, attempt, eventually, name, run};

pub const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder of this run, with all its disks.
    pub work: PathBuf,
    /// The cluster's own folder.
    pub folder: PathBuf,
}

/// A loop device on an image of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk(LoopDevice);

impl Deref for Disk {
    type Target = LoopDevice;

    fn deref(&self) -> &LoopDevice {
        &self.0
    }
}

/// One entry of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub guid: String,
    pub kind: String,
    pub start: u64,
    pub len: u64,
}

/// Where a volume's bytes are, in an image.
#[derive(Clone, Debug)]
pub struct Place {
    pub disk: Disk,
    pub start: u64,
    pub len: u64,
}

impl Machine {
    pub fn of_this_run() -> Option<Self> {
        let work = PathBuf::from(std::env::var_os("LOCALPOOL_TEST_WORK")?);
        let folder = PathBuf::from(std::env::var_os("LOCALPOOL_CLUSTER_DIR")?);
        Some(Self { work, folder })
    }

    /// Runs `localpool-cluster` with these arguments.
    pub async fn cluster(&self, arguments: &[&str]) -> String {
        run("localpool-cluster", arguments).await
    }

    /// All loop devices of this run, by image.
    pub fn disks(&self) -> Vec<Disk> {
        loops::attached(&self.work).into_iter().map(Disk).collect()
    }

    /// Makes a loop disk for one check.
    pub async fn disk(&self, name: &str, size: u64) -> Disk {
        // The agent knows a blank loop device by its file's inode, and does not claim again what was released. So no
        // image is used twice, and all are removed only at the end.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        let image = self.work.join("disks").join(format!("{name}-{now}.img"));
        loops::image(&image, size);
        let node = run("losetup", &["--find", "--show", image.to_str().unwrap()]).await;
        let disk = Disk(LoopDevice { node: PathBuf::from(node.trim()), image });
        disk.unmap().await;
        disk
    }

    /// Releases a disk of one check. The data of its last volume is erased first.
    pub async fn remove(&self, cluster: &Cluster, disk: &Disk) {
        let path = disk.node.to_str().unwrap();
        let release = async || match cluster.try_agent(&["localpool", "disk", "release", path]).await {
            // The answer to an earlier try was lost.
            Err(why) if why.contains("is not in the pool: blank") => Ok(()),
            other => other.map(drop),
        };
        eventually(&format!("{path} is released"), SOON, release).await;
        disk.unmap().await;
        run("losetup", &["--detach", path]).await;
    }

    /// Where the volume of a PoolVolume is, by the tables on the disks themselves.
    pub async fn place(&self, id: &str) -> Option<Place> {
        for disk in self.disks() {
            let entry = disk.entries().await.into_iter().find(|entry| entry.guid == id);
            if let Some(Entry { start, len, .. }) = entry {
                return Some(Place { disk, start, len });
            }
        }
        None
    }

    /// The process of an agent or another container, by its command line, as the machine sees it.
    pub fn processes(&self, arguments: &[&str]) -> Vec<i32> {
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let of_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            arguments.iter().enumerate().all(|(at, word)| line.get(at) == Some(&word.as_bytes()))
                && self.is_in_cluster(*pid)
        };
        processes.filter(of_ours).collect()
    }

    /// Whether it is below a shim of this cluster's containerd.
    fn is_in_cluster(&self, pid: i32) -> bool {
        let parent = |pid: i32| -> Option<i32> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
        };
        let mut at = pid;
        while let Some(next) = parent(at).filter(|next| *next > 1) {
            let line = fs::read_to_string(format!("/proc/{next}/cmdline")).unwrap_or_default();
            if line.contains("containerd-shim") && line.contains(self.folder.to_str().unwrap()) {
                return true;
            }
            at = next;
        }
        false
    }
}

impl Disk {
    pub async fn unmap(&self) {
        let _ = attempt("partx", &["--delete", self.path()]).await;
    }

    /// Without a byte, it is not there any more; returns what was on it.
    pub async fn dies(&self, machine: &Machine) -> PathBuf {
        let saved = machine.work.join(self.image.file_name().unwrap()).with_extension("saved");
        let (image, node) = (self.image.to_str().unwrap(), self.path());
        run("cp", &["--sparse=always", image, saved.to_str().unwrap()]).await;
        run("truncate", &["--size=0", image]).await;
        run("losetup", &["--set-capacity", node]).await;
        saved
    }

    pub async fn returns(&self, saved: &Path) {
        run("cp", &["--sparse=always", saved.to_str().unwrap(), self.image.to_str().unwrap()]).await;
        run("losetup", &["--set-capacity", self.path()]).await;
    }

    pub fn size(&self) -> u64 {
        fs::metadata(&self.image).unwrap().len()
    }

    /// The partition table, as util-linux reads it.
    pub async fn entries(&self) -> Vec<Entry> {
        let arguments = ["--raw", "--noheadings", "--output", "UUID,TYPE,START,SECTORS", self.path()];
        let output = match attempt("partx", &arguments).await {
            Ok(output) => output,
            Err(output) if output.contains("failed to read partition table") => return Vec::new(),
            Err(output) => panic!("{output}"),
        };
        let entry = |line: &str| {
            let [guid, kind, start, sectors] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
            let bytes = |sectors: &str| sectors.parse::<u64>().ok().map(|sectors| sectors * SECTOR);
            Some(Entry { guid: guid.to_owned(), kind: kind.to_owned(), start: bytes(start)?, len: bytes(sectors)? })
        };
        output.lines().filter_map(entry).collect()
    }
}

impl Place {
    /// Whether anything in these bytes is not zero. Holes of the image are not read.
    pub fn holds_data(&self) -> bool {
        let image = File::open(&self.disk.image).unwrap();
        // The page cache of the loop device counts too.
        image.sync_all().unwrap();
        let end = self.start + self.len;
        let mut at = self.start;
        let mut buffer = vec![0; 1 << 20];
        while at < end {
            let Some(data) = next_data(&image, at).filter(|data| *data < end) else { return false };
            let len = usize::try_from((end - data).min(1 << 20)).unwrap();
            image.read_exact_at(&mut buffer[..len], data).unwrap();
            if buffer[..len].iter().any(|byte| *byte != 0) {
                return true;
            }
            at = data + len as u64;
        }
        false
    }
}

fn next_data(file: &File, from: u64) -> Option<u64> {
    let from = i64::try_from(from).unwrap();
    let found = nix::unistd::lseek(file, from, nix::unistd::Whence::SeekData).ok()?;
    u64::try_from(found).ok()
}

impl Cluster {
    /// The pod of the agent on the first node that has one, once it is ready. Nobody runs those of simulated nodes,
    /// which have no address.
    pub async fn agent_pod(&self) -> Value {
        let agent = |pod: &Value| {
            pod["metadata"]["labels"]["app.kubernetes.io/component"] == "node"
                && crate::pods::is_ready(pod)
                && pod["status"]["podIP"].is_string()
        };
        let poll = async || self.list("Pod", Some(HOME)).await.into_iter().find(agent).ok_or("none");
        eventually("an agent is ready", SOON, poll).await
    }

    /// Runs a command in the container of the agent.
    pub async fn agent(&self, arguments: &[&str]) -> String {
        self.try_agent(arguments).await.unwrap_or_else(|output| panic!("{output}"))
    }

    pub async fn try_agent(&self, arguments: &[&str]) -> Result<String, String> {
        let pod = self.agent_pod().await;
        let mut all = vec!["--namespace", HOME, "exec", name(&pod), "--"];
        all.extend_from_slice(arguments);
        attempt("kubectl", &all).await
    }
}
