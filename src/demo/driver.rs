//! `localpool standalone` as a process of its own, and clients of its socket.
//!
//! Takes in a lab whose disks the driver may use; it is killed, started again and asked to stop. It never outlives its
//! handle.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::error::DemoError;
use super::lab::Lab;
use crate::rpc::client::connect;
use crate::rpc::proto::ProbeRequest;
use crate::rpc::proto::controller_client::ControllerClient;
use crate::rpc::proto::identity_client::IdentityClient;
use crate::rpc::proto::node_client::NodeClient;

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOPS_WITHIN: Duration = Duration::from_secs(15);
/// How long one call may take; mkfs is the longest.
const CALL_MAY_TAKE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The running process. Dropping it kills it.
#[derive(Debug)]
pub struct Driver {
    child: Child,
}

/// A client of each of its services.
#[derive(Clone, Debug)]
pub struct Clients {
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
}

impl Driver {
    /// This same binary, on the lab's socket, state directory and sets. Returns clients once it says that it is ready.
    pub async fn start(lab: &Lab) -> Result<(Self, Clients), DemoError> {
        let log = OpenOptions::new().create(true).append(true).open(lab.log());
        let log = log.map_err(DemoError::io("open", lab.log().display()))?;
        let errors = log.try_clone().map_err(DemoError::io("open", lab.log().display()))?;
        let socket = lab.path("csi.sock");
        let mut command = Command::new(binary()?);
        command.arg("standalone").args(["--node-name", "demo", "--device-min-age", "0s"]);
        command.arg("--socket").arg(&socket).arg("--state-dir").arg(state_dir(lab)).arg("--sets").arg(sets(lab));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // Ctrl-C goes only to the demo, which then takes everything down in order.
        command.process_group(0);
        let child = command.spawn().map_err(DemoError::io("start", "the driver"))?;
        let mut driver = Self { child };
        let clients = driver.ready(&socket).await?;
        Ok((driver, clients))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn ready(&mut self, socket: &std::path::Path) -> Result<Clients, DemoError> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.ended()? {
                return Err(DemoError::Driver(format!("ended before it was ready: {status}")));
            }
            // The socket of a driver that was killed remains, but nobody answers on it.
            if let Ok(channel) = connect(socket).await
                && let Ok(answer) = IdentityClient::new(channel.clone()).probe(ProbeRequest {}).await
                && answer.into_inner().ready == Some(true)
            {
                let controller = ControllerClient::new(channel.clone());
                return Ok(Clients { controller, node: NodeClient::new(channel) });
            }
            if Instant::now() >= until {
                return Err(DemoError::Driver(format!("was not ready within {} s", READY_WITHIN.as_secs())));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, DemoError> {
        self.child.try_wait().map_err(DemoError::io("wait for", "the driver"))
    }

    /// SIGKILL: no chance to tidy up or to write anything.
    pub fn kill(mut self) -> Result<(), DemoError> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(DemoError::io("kill", "the driver"))
    }

    /// SIGTERM, as an orchestrator does.
    pub async fn stop(mut self) -> Result<(), DemoError> {
        let pid = i32::try_from(self.child.id()).map_err(|_| DemoError::Driver("has no process id".to_owned()))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|errno| DemoError::io("stop", "the driver")(errno.into()))?;
        let until = Instant::now() + STOPS_WITHIN;
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(DemoError::Driver(format!("was asked to stop, and ended with {status}"))),
                None if Instant::now() >= until => {
                    return Err(DemoError::Driver(format!(
                        "was asked to stop, but still ran after {} s",
                        STOPS_WITHIN.as_secs()
                    )));
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It has ended already, so there is nothing to kill; its number is not reused before it is waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The program for the driver and for every other command of the demo: the binary of this process.
pub fn binary() -> Result<PathBuf, DemoError> {
    std::env::current_exe().map_err(DemoError::io("find", "this binary"))
}

pub fn state_dir(lab: &Lab) -> PathBuf {
    lab.path("state")
}

pub fn sets(lab: &Lab) -> PathBuf {
    lab.path("sets.yaml")
}

/// One call, with the driver's words if it refuses.
pub async fn call<T>(
    call: &'static str,
    object: &str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, DemoError> {
    match tokio::time::timeout(CALL_MAY_TAKE, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => {
            let (object, message) = (object.to_owned(), status.message().to_owned());
            Err(DemoError::Refused { call, object, code: status.code(), message })
        }
        Err(_) => {
            Err(DemoError::wrong(object, format!("{call} was not answered within {} s", CALL_MAY_TAKE.as_secs())))
        }
    }
}
