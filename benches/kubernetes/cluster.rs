//! The cluster that is measured: its objects, the counters of its apiserver, its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::PoolVolume;
use serde_json::{Value, json};

use crate::pace::Pace;

/// Where all that is measured happens.
pub const SPACE: &str = "localpool-bench";
pub const CLASS: &str = "local-carved";
pub const MIB: u64 = 1 << 20;
/// Until anything that is waited for must have happened.
const TIMEOUT: Duration = Duration::from_secs(600);

pub struct Cluster {
    pub client: Client,
    pub node: String,
    pub pace: Pace,
    /// Of scripts/test-cluster: everything that the run makes on the machine.
    pub work: PathBuf,
    folder: PathBuf,
}

/// When each object of a kind first was as it should be, by name.
pub type Times = BTreeMap<String, Instant>;

fn env_path(name: &str) -> Result<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .ok_or_else(|| anyhow!("{name} is missing: run scripts/test-cluster bench"))
}

impl Cluster {
    /// Deletes the namespace, and makes it again.
    pub async fn new(pace: Pace) -> Result<Self> {
        let work = env_path("LOCALPOOL_TEST_WORK")?;
        let folder = env_path("LOCALPOOL_CLUSTER_DIR")?;
        let client = Client::try_default().await.context("KUBECONFIG names no cluster")?;
        let pools: Api<localpool::api::crd::DevicePool> = Api::all(client.clone());
        let pools = pools.list(&ListParams::default()).await?;
        let node = pools.items.first().context("no node has a DevicePool")?.name_any();
        let cluster = Self { client, node, pace, work, folder };
        cluster.make(&Api::<Namespace>::all(cluster.client.clone()), json!({"metadata": {"name": SPACE}})).await?;
        Ok(cluster)
    }

    pub async fn facts(&self) -> Result<Vec<(&'static str, String)>> {
        let version = self.client.apiserver_version().await?;
        Ok(vec![
            ("Kubernetes", version.git_version),
            (
                "Cluster",
                "one node; etcd (not syncing), apiserver, controllers and kubelet share the machine with what is measured"
                    .to_owned(),
            ),
            ("Disks", "loop devices on sparse image files".to_owned()),
        ])
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), SPACE)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), SPACE)
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub fn pool_volumes(&self) -> Api<PoolVolume> {
        Api::all(self.client.clone())
    }

    pub async fn make<K>(&self, api: &Api<K>, object: Value) -> Result<()>
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object)?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("making {}", object.meta().name.clone().unwrap_or_default()))
            }
        }
    }

    /// A claim for so many bytes.
    pub async fn claim(&self, name: &str, class: &str, bytes: u64) -> Result<()> {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": bytes.to_string()}},
            },
        });
        self.make(&self.claims(), claim).await
    }

    /// A pod that waits, with a claim.
    pub async fn pod(&self, name: &str) -> Result<()> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "app", "image": "localpool.dev/test-app:dev", "imagePullPolicy": "Never",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
            },
        });
        self.make(&self.pods(), pod).await
    }

    /// A class of the same disks that binds at once.
    pub async fn immediate_class(&self) -> Result<&'static str> {
        const NAME: &str = "localpool-bench-immediate";
        let classes: Api<k8s_openapi::api::storage::v1::StorageClass> = Api::all(self.client.clone());
        let class = json!({
            "metadata": {"name": NAME}, "provisioner": "csi.localpool.dev", "parameters": {"class": CLASS},
            "volumeBindingMode": "Immediate",
        });
        self.make(&classes, class).await?;
        Ok(NAME)
    }

    /// Deletes all pods and claims, and waits until what was provisioned for them is gone too.
    pub async fn clear(&self) -> Result<()> {
        let all = ListParams::default();
        self.pods().delete_collection(&DeleteParams::default().grace_period(0), &all).await?;
        until("no pod is left", async || Ok(self.pods().list(&all).await?.items.is_empty())).await?;
        self.claims().delete_collection(&DeleteParams::default(), &all).await?;
        until("no claim is left", async || Ok(self.claims().list(&all).await?.items.is_empty())).await?;
        let of_ours = |pv: &PersistentVolume| {
            let spec = pv.spec.as_ref();
            spec.and_then(|spec| spec.claim_ref.as_ref()).is_some_and(|claim| claim.namespace.as_deref() == Some(SPACE))
                && spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete")
        };
        until("no volume is left", async || Ok(!self.volumes().list(&all).await?.items.iter().any(of_ours))).await?;
        until("no PoolVolume is left", async || Ok(self.pool_volumes().list(&all).await?.items.is_empty())).await
    }

    /// Counters of the apiserver: requests so far, by verb and resource.
    pub async fn requests(&self) -> Result<Requests> {
        let request = axum::http::Request::get("/metrics").body(Vec::new())?;
        Ok(Requests::read(&self.client.request_text(request).await?))
    }

    /// The process of a component of the cluster.
    pub fn component(&self, name: &str) -> Result<u32> {
        let path = self.folder.join("run").join(format!("{name}.json"));
        let record = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let record: Value = serde_json::from_slice(&record)?;
        let pid = record["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.filter(|pid| *pid != 0).ok_or_else(|| anyhow!("{name} does not run"))
    }
}

/// Processes of localpool in containers, by their role.
pub fn roles(role: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let program = words.next().map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
        if Path::new(&program).file_name().is_some_and(|name| name == "localpool")
            && words.next() == Some(role.as_bytes())
        {
            found.push(pid);
        }
    }
    if found.is_empty() {
        bail!("no process `localpool {role}` runs");
    }
    Ok(found)
}

/// Requests by verb and resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests(BTreeMap<(String, String), f64>);

impl Requests {
    fn read(text: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let found = labels.split("\",").find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
                found.unwrap_or_default().trim_end_matches('"').to_owned()
            };
            let resource = match (label("resource"), label("subresource")) {
                (resource, sub) if sub.is_empty() => resource,
                (resource, sub) => format!("{resource}/{sub}"),
            };
            *all.entry((label("verb"), resource)).or_default() += value.parse::<f64>().unwrap_or_default();
        }
        Self(all)
    }

    /// What came since then.
    pub fn since(&self, before: &Self) -> Self {
        let left = |(key, now): (&(String, String), &f64)| {
            let more = now - before.0.get(key).copied().unwrap_or_default();
            (more > 0.0).then(|| (key.clone(), more))
        };
        Self(self.0.iter().filter_map(left).collect())
    }

    pub fn sum(&self, counts: impl Fn(&str, &str) -> bool) -> f64 {
        self.0.iter().filter(|((verb, resource), _)| counts(verb, resource)).map(|(_, n)| n).fold(0.0, |sum, n| sum + n)
    }

    /// The largest, for people.
    pub fn words(&self, counts: impl Fn(&str, &str) -> bool, per: f64) -> String {
        let mut all: Vec<_> = self.0.iter().filter(|((verb, resource), _)| counts(verb, resource)).collect();
        all.sort_by(|a, b| b.1.total_cmp(a.1));
        let word = |((verb, resource), n): &(&(String, String), &f64)| {
            format!("{verb} {resource} {}", crate::measure::short(**n / per))
        };
        all.iter().take(12).map(word).collect::<Vec<_>>().join(", ")
    }
}

pub fn writes(verb: &str) -> bool {
    matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION")
}

/// Waits for something that is not timed.
pub async fn until(what: &str, mut poll: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    while !poll().await.with_context(|| what.to_owned())? {
        if Instant::now() > end {
            bail!("not within {} s: {what}", TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Watches until all of these objects are as they should be; says when each was.
pub async fn times<K>(api: Api<K>, names: BTreeSet<String>, holds: fn(&K) -> bool) -> Result<Times>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut times = Times::new();
    let watch = async {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).applied_objects());
        while let Some(object) = events.next().await {
            let object = object?;
            let name = object.name_any();
            if names.contains(&name) && holds(&object) {
                times.entry(name).or_insert_with(Instant::now);
            }
            if times.len() == names.len() {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, watch)
        .await
        .map_err(|_| anyhow!("{} objects were not ready in time", names.len()))??;
    Ok(times)
}
