//! Runs scripts in the guest, through the loop that answers at the other end of a virtio port (guest/usr/local/sbin).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Why there is no answer from the guest, or not a good one.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the guest cannot be reached")]
    Unreachable(#[source] std::io::Error),
    #[error("the guest did not answer within {0:?}")]
    Silent(Duration, #[source] std::io::Error),
    #[error("the guest answered {0:?}")]
    Garbled(String),
    #[error("the script ended with {status}{}; it said: {said}", if *status == 124 { " (its time was up)" } else { "" })]
    Failed { status: i32, said: String },
}

pub struct Agent {
    stream: BufReader<UnixStream>,
    last: u64,
}

/// How much longer than the script itself an answer may take: the guest is emulated, and may be busy.
const SLACK: Duration = Duration::from_secs(60);

impl Agent {
    pub fn connect(socket: &Path) -> Result<Self, AgentError> {
        let stream = UnixStream::connect(socket).map_err(AgentError::Unreachable)?;
        Ok(Self { stream: BufReader::new(stream), last: u64::from(std::process::id()) << 20 })
    }

    /// Runs a bash script; returns what it printed.
    pub fn run(&mut self, script: &str, limit: Duration) -> Result<String, AgentError> {
        self.last += 1;
        let line = format!("{} {} {}\n", self.last, limit.as_secs(), base64(script));
        self.stream.get_mut().set_read_timeout(Some(limit + SLACK)).map_err(AgentError::Unreachable)?;
        self.stream.get_mut().write_all(line.as_bytes()).map_err(AgentError::Unreachable)?;
        let silent = |source| AgentError::Silent(limit + SLACK, source);
        loop {
            let mut head = String::new();
            self.stream.read_line(&mut head).map_err(silent)?;
            let words: Vec<&str> = head.split_whitespace().collect();
            let numbers = match words[..] {
                [id, status, length] => (id.parse::<u64>(), status.parse::<i32>(), length.parse::<usize>()),
                _ => return Err(AgentError::Garbled(head)),
            };
            let (Ok(id), Ok(status), Ok(length)) = numbers else { return Err(AgentError::Garbled(head)) };
            let mut said = vec![0; length];
            self.stream.read_exact(&mut said).map_err(silent)?;
            // A late answer to an earlier script.
            if id != self.last {
                continue;
            }
            let said = String::from_utf8_lossy(&said).into_owned();
            return if status == 0 { Ok(said) } else { Err(AgentError::Failed { status, said }) };
        }
    }
}

fn base64(text: &str) -> String {
    let mut child =
        Command::new("base64").arg("--wrap=0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
