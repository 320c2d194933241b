//! A running `localpool standalone`, the release binary, and clients of its socket.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use localpool::rpc::client::connect;
use localpool::rpc::proto::controller_client::ControllerClient;
use localpool::rpc::proto::identity_client::IdentityClient;
use localpool::rpc::proto::node_client::NodeClient;
use localpool::rpc::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};
use localpool::rpc::proto::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, ProbeRequest, VolumeCapability,
};
use localpool_testing::set_of_images;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::transport::Channel;

use crate::lab::Lab;

/// The driver that most benchmarks have, and the beginning of the names of its disks.
const POOL: &str = "pool";
const CLASS: &str = "bench";

/// What a set makes of its disks.
pub const CARVED: &str = "partitioningSpec: {mode: Dynamic}";
pub const FOLDERS: &str = "layout: Directory\n  quota: none";

/// The process; dropping it kills it.
pub struct Driver {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

/// What a volume is asked for as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Block,
    Mount,
    /// A folder of a filesystem that volumes share.
    Folder,
}

impl Usage {
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mount => "mount",
            Self::Folder => "folder",
        }
    }
}

/// One connection to the driver, as a sidecar has it.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
}

impl Driver {
    /// Starts the driver on all pool disks of the lab, carved; returns once it has claimed them and is ready.
    pub fn start(lab: &Lab, disks: usize) -> Result<Self> {
        Self::start_as(lab, POOL, disks, CARVED)
    }

    /// The same with another layout, on the disks `NAME-*.img`, and beside others of other names.
    pub fn start_as(lab: &Lab, name: &str, disks: usize, layout: &str) -> Result<Self> {
        let document = set_of_images("bench", CLASS, layout, &lab.path(&format!("{name}-*.img")));
        fs::write(lab.path(&format!("{name}.yaml")), document)?;
        let _ = fs::remove_dir_all(lab.path(&format!("{name}.state")));
        let mut driver = Self::spawn(lab, name)?;
        driver.wait_ready(disks)?;
        Ok(driver)
    }

    /// Starts the driver of that name again, with what the one before has left; returns at once.
    pub fn spawn(lab: &Lab, name: &str) -> Result<Self> {
        let [socket, state, sets, log] =
            ["sock", "state", "yaml", "log"].map(|ending| lab.path(&format!("{name}.{ending}")));
        let output = fs::File::create(&log)?;
        let child = lab
            .command(env!("CARGO_BIN_EXE_localpool"))
            // As it runs in its image.
            .env("MALLOC_ARENA_MAX", "1")
            .args(["standalone", "--node-name", name, "--device-min-age", "0s"])
            .arg("--socket")
            .arg(&socket)
            .arg("--state-dir")
            .arg(&state)
            .arg("--sets")
            .arg(&sets)
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .context("starting the driver")?;
        Ok(Self { child, socket, log })
    }

    /// Kills it, and waits until it is gone.
    pub fn end(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_ready(&mut self, disks: usize) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the driver ended with {status}: {}", self.log_tail());
            }
            if self.is_ready() && self.claimed() == disks {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the driver was not ready with {disks} disks within 30 s: {}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&self) -> bool {
        let asked = block_on(async {
            let client = Client::connect(&self.socket).await?;
            let answer = IdentityClient::new(client.channel).probe(ProbeRequest {}).await?;
            Ok(answer.into_inner().ready.unwrap_or(false))
        });
        asked.unwrap_or(false)
    }

    fn claimed(&self) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().matches("claimed a disk").count()
    }

    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.socket).await
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Runs a client's work: one thread, as the driver needs the other core.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

impl Client {
    async fn connect(socket: &Path) -> Result<Self> {
        Ok(Self { channel: connect(socket).await? })
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    /// Makes a volume and gives its id, and how long the call took.
    pub async fn create(&self, name: &str, size: u64, usage: Usage) -> Result<(String, Duration)> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: i64::try_from(size)?, limit_bytes: 0 }),
            volume_capabilities: vec![capability(usage)],
            parameters: parameters(),
            ..Default::default()
        };
        let mut controller = self.controller();
        let began = Instant::now();
        let answer = controller.create_volume(request).await.map_err(words("CreateVolume"))?;
        let took = began.elapsed();
        let volume = answer.into_inner().volume.ok_or_else(|| anyhow!("CreateVolume answers without a volume"))?;
        Ok((volume.volume_id, took))
    }

    pub async fn delete(&self, id: &str) -> Result<Duration> {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        let mut controller = self.controller();
        let began = Instant::now();
        controller.delete_volume(request).await.map_err(words("DeleteVolume"))?;
        Ok(began.elapsed())
    }

    pub async fn available(&self, usage: Usage) -> Result<u64> {
        let request = GetCapacityRequest {
            volume_capabilities: vec![capability(usage)],
            parameters: parameters(),
            ..Default::default()
        };
        let answer = self.controller().get_capacity(request).await.map_err(words("GetCapacity"))?;
        Ok(u64::try_from(answer.into_inner().available_capacity)?)
    }

    /// Waits until what was deleted is erased and free again.
    pub async fn wait_available(&self, bytes: u64, usage: Usage) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.available(usage).await? < bytes {
            if Instant::now() > deadline {
                bail!("what was deleted is not erased after 120 s");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Where `publish` has the volume staged.
    pub fn staging(lab: &Lab, id: &str) -> PathBuf {
        lab.path("staging").join(id)
    }

    /// Stages and publishes a volume; gives the path that a pod would have.
    pub async fn publish(&self, lab: &Lab, id: &str, usage: Usage) -> Result<PathBuf> {
        let (staging, target) = (Self::staging(lab, id), lab.path("published").join(id));
        fs::create_dir_all(&staging)?;
        fs::create_dir_all(lab.path("published"))?;
        let path_text = |path: &PathBuf| path.display().to_string();
        let mut node = NodeClient::new(self.channel.clone());
        let stage = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path_text(&staging),
            volume_capability: Some(capability(usage)),
            ..Default::default()
        };
        node.node_stage_volume(stage).await.map_err(words("NodeStageVolume"))?;
        let publish = NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path_text(&staging),
            target_path: path_text(&target),
            volume_capability: Some(capability(usage)),
            ..Default::default()
        };
        node.node_publish_volume(publish).await.map_err(words("NodePublishVolume"))?;
        Ok(target)
    }

    /// Whether NodeGetVolumeStats reports the volume as abnormal.
    pub async fn is_abnormal(&self, id: &str, target: &Path) -> Result<bool> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: target.display().to_string(),
            ..Default::default()
        };
        let mut node = NodeClient::new(self.channel.clone());
        let answer = node.node_get_volume_stats(request).await.map_err(words("NodeGetVolumeStats"))?;
        let condition = answer.into_inner().volume_condition;
        Ok(condition.ok_or_else(|| anyhow!("NodeGetVolumeStats answers without a condition"))?.abnormal)
    }
}

fn words(call: &'static str) -> impl Fn(tonic::Status) -> anyhow::Error {
    move |status| anyhow!("{call}: {:?}: {}", status.code(), status.message())
}

fn parameters() -> HashMap<String, String> {
    HashMap::from([("class".to_owned(), CLASS.to_owned())])
}

fn capability(usage: Usage) -> VolumeCapability {
    let mounted = |kind: &str| AccessType::Mount(MountVolume { fs_type: kind.to_owned(), ..Default::default() });
    let access = match usage {
        Usage::Block => AccessType::Block(BlockVolume {}),
        Usage::Mount => mounted("ext4"),
        Usage::Folder => mounted("xfs"),
    };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access),
    }
}
