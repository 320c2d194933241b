//! QEMU's monitor: plugs and unplugs devices of a running guest.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Why the monitor did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("QEMU's monitor cannot be reached")]
    Unreachable(#[source] std::io::Error),
    #[error("QEMU's monitor said {0:?}")]
    Garbled(String),
    #[error("QEMU refused {command}: {why}")]
    Refused { command: String, why: String },
    #[error("no event {event} within {limit:?}")]
    NoEvent { event: String, limit: Duration },
}

pub struct Qmp {
    stream: BufReader<UnixStream>,
    events: Vec<Value>,
}

const ANSWER: Duration = Duration::from_secs(60);

impl Qmp {
    pub fn connect(socket: &Path) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(socket).map_err(QmpError::Unreachable)?;
        let mut qmp = Self { stream: BufReader::new(stream), events: Vec::new() };
        qmp.read(ANSWER)?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let line = format!("{}\n", json!({"execute": command, "arguments": arguments}));
        self.stream.get_mut().write_all(line.as_bytes()).map_err(QmpError::Unreachable)?;
        loop {
            let answer = self.read(ANSWER)?;
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or_default().to_owned();
                return Err(QmpError::Refused { command: command.to_owned(), why });
            }
            match answer.get("return") {
                Some(value) => return Ok(value.clone()),
                None => self.events.push(answer),
            }
        }
    }

    /// Waits until a device has left the guest.
    pub fn await_deleted(&mut self, id: &str, limit: Duration) -> Result<(), QmpError> {
        let wanted = |event: &Value| event["event"] == "DEVICE_DELETED" && event["data"]["device"] == id;
        let until = Instant::now() + limit;
        loop {
            if let Some(at) = self.events.iter().position(wanted) {
                self.events.remove(at);
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            let none = || QmpError::NoEvent { event: format!("DEVICE_DELETED of {id}"), limit };
            if left.is_zero() {
                return Err(none());
            }
            match self.read(left) {
                Ok(event) => self.events.push(event),
                Err(QmpError::Unreachable(why))
                    if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(none());
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn read(&mut self, limit: Duration) -> Result<Value, QmpError> {
        self.stream.get_ref().set_read_timeout(Some(limit)).map_err(QmpError::Unreachable)?;
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(QmpError::Unreachable)?;
        serde_json::from_str(&line).map_err(|_| QmpError::Garbled(line))
    }
}
