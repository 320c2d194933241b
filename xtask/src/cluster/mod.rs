//! The cluster that the cluster tier runs on: builds what it is made of, starts it with disks and the chart, runs the
//! checks on it, and removes all of it. `scripts/test-cluster` calls this, and holds the lock and the signals.
//!
//! Takes in the words of the script and two folders from its environment, where PATH and KUBECONFIG are those of the
//! cluster; gives out what the steps print, an exit status, and logs below `target/test`.

mod chart;
mod checks;
mod disks;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{child, command, output, run as run_command};
use super::tree;

const NODE: &str = "localpool-node-1";
/// How long the agent may take to report all disks of the run.
const DISKS_WITHIN: Duration = Duration::from_secs(60);
const LINES_OF_EVENTS: usize = 25;

/// What the cluster is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Checks,
    /// Without the other version, which only a check needs.
    Figures,
}

struct Cluster {
    root: PathBuf,
    /// Cargo's target directory.
    target: PathBuf,
    /// Of localpool-cluster.
    folder: PathBuf,
    /// Everything that a run makes outside the cluster's folder.
    work: PathBuf,
    purpose: Purpose,
}

/// Does what the words say: `up COMMAND`, `check PROGRAM [WORD]` or `down`.
pub fn run(words: &[&str]) -> io::Result<ExitCode> {
    match words {
        ["up", "bench"] => Cluster::given(Purpose::Figures)?.up(),
        ["up", _] => Cluster::given(Purpose::Checks)?.up(),
        ["down"] => Cluster::given(Purpose::Checks)?.down(),
        ["check", program] => return checks::run(program, ""),
        ["check", program, word] => return checks::run(program, word),
        _ => Err(io::Error::other("usage: xtask cluster up COMMAND | check PROGRAM [WORD] | down")),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn say(message: impl Display) {
    println!("=== {message}");
}

/// Says what is done, and then how long it took if that is of interest.
fn step(message: &str, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    say(message);
    let begun = Instant::now();
    work()?;
    let seconds = begun.elapsed().as_secs();
    if seconds >= 2 {
        println!("    {seconds} s");
    }
    Ok(())
}

impl Cluster {
    fn given(purpose: Purpose) -> io::Result<Self> {
        let root = tree::root()?;
        let target = tree::target(&root);
        let (folder, work) = (tree::given("LOCALPOOL_CLUSTER_DIR")?, tree::given("LOCALPOOL_TEST_WORK")?);
        Ok(Self { root, target, folder, work, purpose })
    }

    fn command(&self, program: &str) -> Command {
        child(program, &self.root)
    }

    fn run(&self, program: &str, words: &[&str]) -> io::Result<()> {
        run_command(self.command(program).args(words))
    }

    fn is_ours(&self) -> bool {
        self.work.join("owner").exists()
    }

    fn up(&self) -> io::Result<()> {
        if self.folder.exists() && !self.is_ours() {
            return Err(io::Error::other(format!(
                "a cluster is up in {}, and it is not of this test: 'make cluster-down' first, if it may go",
                self.folder.display()
            )));
        }
        if self.is_ours() {
            step("taking away what an earlier run left", || self.down())?;
        }
        step("building binary, image and cluster", || self.build())?;
        fs::create_dir_all(&self.work)?;
        fs::write(self.work.join("owner"), "of scripts/test-cluster\n")?;
        self.make_helm()?;
        step("cluster up", || self.run("localpool-cluster", &["up"]))?;
        step("loading images", || self.load_images())?;
        step("making disks", || disks::make(&self.root, &self.work))?;
        step("installing the chart, as README says", || self.install())?;
        step("sets of examples/, for the loop disks", || self.apply_sets())?;
        step("waiting for the disks", || self.await_disks())
    }

    fn down(&self) -> io::Result<()> {
        if self.folder.exists() {
            if !self.is_ours() {
                let folder = self.folder.display();
                return Err(io::Error::other(format!(
                    "the cluster in {folder} is not of this test: make cluster-down"
                )));
            }
            let log = self.target.join("test/cluster-down.log");
            let file = fs::File::create(&log)?;
            let program = self.target.join("cluster/bin/localpool-cluster");
            let mut down = child(program, &self.root);
            let status = down.arg("down").stdout(file.try_clone()?).stderr(file).status()?;
            if !status.success() {
                eprint!("{}", fs::read_to_string(&log)?);
                return Err(io::Error::other(format!("localpool-cluster down ended with {status}")));
            }
        }
        disks::remove(&self.root, &self.work)
    }

    fn build(&self) -> io::Result<()> {
        // And the release binary in it.
        self.run("scripts/image", &[])?;
        if self.purpose == Purpose::Checks {
            let other = std::env::var("LOCALPOOL_TEST_OTHER").unwrap_or_default();
            self.run("scripts/later-version", &other.split_whitespace().collect::<Vec<_>>())?;
        }
        self.run("cluster/build", &[])
    }

    fn load_images(&self) -> io::Result<()> {
        let load = |image: &str| {
            let image = self.target.join(image);
            run_command(self.command("localpool-cluster").arg("load-image").arg(image))
        };
        load("image/localpool.tar")?;
        if self.purpose == Purpose::Checks {
            load("later/localpool.tar")?;
            run_command(
                command("cp", &self.root).arg("-r").arg(self.target.join("later/chart")).arg(self.work.join("later")),
            )?;
        }
        // The test image replaces the examples' own image here.
        let mut tag = self.command("ctr");
        tag.arg("--address").arg(self.folder.join("containerd/containerd.sock"));
        tag.args(["--namespace", "k8s.io", "images", "tag", "--force"]);
        tag.args(["localpool.dev/test-app:dev", "docker.io/library/busybox:1.36"]);
        run_command(tag.stdout(Stdio::null()))
    }

    fn await_disks(&self) -> io::Result<()> {
        let wanted = disks::count(&self.work)?.to_string();
        let until = Instant::now() + DISKS_WITHIN;
        let pool = ["get", "devicepool", NODE, "-o"];
        loop {
            let mut asked = command("kubectl", &self.root);
            let found = output(asked.args(pool).arg("jsonpath={.status.diskCount}")).unwrap_or_default();
            if found == wanted {
                break;
            }
            if Instant::now() >= until {
                self.explain();
                let found = if found.is_empty() { "no" } else { &found };
                return Err(io::Error::other(format!("the DevicePool shows {found} disks of {wanted}")));
            }
            thread::sleep(Duration::from_millis(200));
        }
        // The state of the pool while it is empty.
        let state = fs::File::create(self.work.join("pool.json"))?;
        run_command(command("kubectl", &self.root).args(pool).arg("json").stdout(state))?;
        self.run("kubectl", &["get", "devicepools"])
    }

    /// Shows what a person would look at. What cannot be shown is left out.
    fn explain(&self) {
        let show = |words: &[&str]| {
            let _ = command("kubectl", &self.root).args(words).stdout(io::stderr()).status();
        };
        show(&["get", "pods", "--all-namespaces", "-o", "wide"]);
        let mut events = command("kubectl", &self.root);
        events.args(["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"]);
        let events = output(&mut events).unwrap_or_default();
        let events: Vec<&str> = events.lines().collect();
        events[events.len().saturating_sub(LINES_OF_EVENTS)..].iter().for_each(|line| eprintln!("{line}"));
        show(&["get", "devicepools,poolvolumes,localvolumesets", "--all-namespaces", "-o", "wide"]);
        let mut pods = command("kubectl", &self.root);
        let pods = output(pods.args(["-n", "localpool", "get", "pods", "-o", "name"])).unwrap_or_default();
        for pod in pods.lines() {
            eprintln!("--- log of {pod}");
            show(&["-n", "localpool", "logs", pod, "--all-containers", "--tail=25"]);
        }
    }
}
