//! Another version of chart, binary and custom resources (scripts/later-version), installed over this one and rolled
//! back, by the lines of docs/guides/upgrade.md.

use std::cell::Cell;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use serde_json::json;

use crate::check::{Needs, Space, check};
use crate::cluster::{HOME, SOON, eventually, name, run};
use crate::page::{Section, section, typed};
use crate::peace::{disturbing, quietly};
use crate::pods::As;

/// A version of localpool, given by its chart.
struct Version {
    chart: PathBuf,
    number: String,
    /// The schema version of its custom resources.
    schema: String,
}

impl Version {
    fn of(chart: &Path) -> Self {
        let after = |file: &str, key: &str| {
            let text = std::fs::read_to_string(chart.join(file)).unwrap();
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{key} is in {file}")).trim_matches(['"', '\'']).to_owned()
        };
        let schema = after("files/crds.yaml", "localpool.dev/schema");
        Self { chart: chart.to_owned(), number: after("Chart.yaml", "appVersion"), schema }
    }

    /// Waits until everything that runs is of this version, with its custom resources.
    async fn is_here(&self, space: &Space) {
        let tag = format!(":{}", self.number);
        let others = async || {
            let pods = space.list("Pod", Some(HOME)).await;
            // The controller starts before its sidecars, as an init container that stays.
            let containers = ["containers", "initContainers"]
                .iter()
                .flat_map(|which| pods.iter().flat_map(move |pod| pod["spec"][which].as_array().into_iter().flatten()));
            let images = containers.filter_map(|container| container["image"].as_str());
            let of_driver = images.filter(|image| image.contains("/localpool:"));
            let others: Vec<_> = of_driver.filter(|image| !image.ends_with(&tag)).map(str::to_owned).collect();
            if others.is_empty() { Ok(()) } else { Err(others) }
        };
        eventually("no other version runs", SOON, others).await;
        for definition in space.list("CustomResourceDefinition", None).await {
            if let Some(schema) = definition["metadata"]["annotations"]["localpool.dev/schema"].as_str() {
                assert_eq!(schema, self.schema, "{}", name(&definition));
            }
        }
    }
}

/// How long a claim may wait while all of the driver is replaced. Nobody releases the provisioner's Lease: it expires
/// after 15 s, and is looked at every 5 s. A failure is retried within 10 s, by the chart's values for a test cluster.
const PAUSE: Duration = Duration::from_secs(45);

/// Volumes of a class, made one after another.
struct Made {
    class: String,
    with_pod: bool,
    volumes: Cell<usize>,
    /// The time from the claim to Bound.
    longest: Cell<Duration>,
}

impl Made {
    async fn of(space: &Space, binding: &str) -> Self {
        let class = space.class_with(&binding.to_lowercase(), binding, json!({"class": "local-carved"})).await;
        let (volumes, longest) = (Cell::default(), Cell::default());
        Self { class, with_pod: binding == "WaitForFirstConsumer", volumes, longest }
    }
}

#[test]
fn volumes_are_made_all_the_time_while_a_later_version_is_installed_and_rolled_back() {
    check(Needs::Machine, async |space| {
        let made = [Made::of(space, "Immediate").await, Made::of(space, "WaitForFirstConsumer").await];
        quietly(writes(space, "before")).await;
        disturbing(async {
            let ended = AssertUnwindSafe(there_and_back(space, &made)).catch_unwind().await;
            if let Err(panic) = ended {
                // All other checks need this version.
                let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool");
                run("helm", &["upgrade", "localpool", chart, "--namespace", HOME, "--wait"]).await;
                std::panic::resume_unwind(panic);
            }
        })
        .await;
    });
}

async fn there_and_back(space: &Space, made: &[Made; 2]) {
    let this = Version::of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/charts/localpool")));
    let later = Version::of(&space.machine().work.join("later"));
    assert_ne!(this.number, later.number);
    let steps = async {
        more(made).await;
        upgraded(&later).await;
        later.is_here(space).await;
        more(made).await;
        claims(space, "later").await;
        writes(space, "between").await;
        typed(&guide("Undo").command("helm rollback localpool --namespace", &[])).await;
        this.is_here(space).await;
        more(made).await;
        claims(space, "again").await;
        for pod in ["before", "between"] {
            has_its_data(space, pod).await;
        }
    };
    tokio::select! {
        never = make(space, &made[0]) => match never {},
        never = make(space, &made[1]) => match never {},
        never = pools_are_ready(space) => match never {},
        () = steps => {}
    }
    for Made { class, volumes, longest, .. } in made {
        let (volumes, longest) = (volumes.get(), longest.get());
        println!("{volumes} volumes of {class} were made meanwhile; the longest wait for one was {longest:.1?}");
        assert!(longest <= PAUSE, "a claim of {class} waited {longest:?}");
    }
}

fn guide(title: &str) -> Section {
    section("guides/upgrade.md", title)
}

/// With the values of before, which the guide has written into a file.
async fn upgraded(later: &Version) {
    let folder = tempfile::tempdir().unwrap();
    let values = folder.path().join("values.yaml");
    let words = [("charts/localpool", later.chart.to_str().unwrap()), ("values.yaml", values.to_str().unwrap())];
    typed(&guide("Before").command("helm get values", &words)).await;
    typed(&guide("Do").command("helm upgrade localpool", &words)).await;
}

/// Claims that are bound and deleted again, one after another. Nobody waits until one is gone: the next claim shall
/// wait for the pause, not for the deletion of this one.
async fn make(space: &Space, made: &Made) -> Infallible {
    loop {
        let claim = format!("{}-{}", if made.with_pod { "used" } else { "made" }, made.volumes.get());
        let begun = Instant::now();
        space.create(&space.claim(&claim, &made.class, "16Mi")).await;
        if made.with_pod {
            space.create(&space.pod(&claim, &claim, As::Folder)).await;
        }
        space.until_bound(&claim).await;
        made.longest.set(made.longest.get().max(begun.elapsed()));
        if made.with_pod {
            space.until_running(&claim).await;
            space.delete("Pod", space.here(), &claim).await;
        }
        space.delete("PersistentVolumeClaim", space.here(), &claim).await;
        made.volumes.set(made.volumes.get() + 1);
    }
}

/// Waits until volumes are made from now on.
async fn more(made: &[Made; 2]) {
    let volumes = || made.each_ref().map(|made| made.volumes.get());
    let [now, late] = volumes();
    let poll = async || match volumes() {
        [more, later] if more >= now + 3 && later >= late + 3 => Ok(()),
        few => Err(few),
    };
    eventually("more volumes are made", SOON, poll).await;
}

/// In no version may the nodes of the other one offer nothing.
async fn pools_are_ready(space: &Space) -> Infallible {
    loop {
        for pool in space.list("DevicePool", None).await {
            for condition in pool["status"]["conditions"].as_array().into_iter().flatten() {
                assert!(condition["type"] != "Ready" || condition["status"] != "False", "{condition}");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A new disk is taken, serves a volume, and is released.
async fn claims(space: &Space, set: &str) {
    let (disk, class) = space.own_disk(set, 1 << 30).await;
    space.running(set, &class, "64Mi", As::Folder).await;
    space.remove_pod(set).await;
    space.remove_claim(set).await;
    space.remove_disk(set, &disk).await;
}

async fn writes(space: &Space, pod: &str) {
    space.running(pod, "local-carved", "64Mi", As::Folder).await;
    space.shell(pod, &format!("echo {pod} >/data/file && sync")).await;
}

/// The pod was never restarted; and a new pod has the data, too.
async fn has_its_data(space: &Space, pod: &str) {
    let line = "echo more >>/data/more && cat /data/file";
    assert_eq!(space.shell(pod, line).await.trim(), pod);
    let object = space.get("Pod", space.here(), pod).await.unwrap();
    assert_eq!(object["status"]["containerStatuses"][0]["restartCount"], 0);
    space.remove_pod(pod).await;
    space.create(&space.pod(pod, pod, As::Folder)).await;
    space.until_running(pod).await;
    assert_eq!(space.shell(pod, line).await.trim(), pod);
}
