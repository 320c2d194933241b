//! Runs a command in a container, through the API server.
//!
//! Takes in the container, the command and its time; gives out what it printed, or why there is nothing. It logs neither: they
//! may have secrets in them. Of what a command says on stderr its last words are given out.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use kube::client::UpgradeConnectionError;
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::pod_choice::PodTarget;

/// The most bytes that a command may print.
const PRINTED: usize = 64 << 10;
/// The most bytes of its last words.
const LAST_WORDS: usize = 512;
/// How many lines of them.
const LAST_LINES: usize = 5;
/// How long the API server may take to begin it.
const BEGIN: Duration = Duration::from_secs(30);

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    Printed(String),
    Failed(String),
    /// The API server does not let it run there.
    Forbidden,
    /// Nothing runs.
    NotBegun(String),
    /// It may still run, or may never have.
    Lost(String),
}

/// Whoever can run something in a pod.
pub trait PodExec: Send + Sync {
    fn run(&self, target: PodTarget, command: Vec<String>, limit: Duration) -> BoxFuture<'static, CommandEnd>;
}

/// The API server of the cluster.
pub struct ApiServerExec(pub Client);

impl PodExec for ApiServerExec {
    fn run(&self, target: PodTarget, command: Vec<String>, limit: Duration) -> BoxFuture<'static, CommandEnd> {
        Box::pin(run(self.0.clone(), target, command, limit))
    }
}

async fn run(client: Client, target: PodTarget, command: Vec<String>, limit: Duration) -> CommandEnd {
    let PodTarget { namespace, pod, container } = target;
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let params = AttachParams::default().stdin(false).stdout(true).stderr(true).container(container);
    let mut process = match tokio::time::timeout(BEGIN, api.exec(&pod, command, &params)).await {
        Ok(Ok(process)) => process,
        Ok(Err(error)) => return not_begun(error),
        Err(_) => return CommandEnd::Lost(format!("the API server did not begin it in {} s", BEGIN.as_secs())),
    };
    let (Some(out), Some(err), Some(status)) = (process.stdout(), process.stderr(), process.take_status()) else {
        return CommandEnd::Lost("its output cannot be read".to_owned());
    };
    // `process` is kept until then: the connection ends with it.
    collect(out, err, status, limit).await
}

fn not_begun(error: kube::Error) -> CommandEnd {
    let code = match &error {
        kube::Error::Api(status) => status.code,
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => code.as_u16(),
        _ => return CommandEnd::Lost(error.to_string()),
    };
    match code {
        401 | 403 => CommandEnd::Forbidden,
        // Whoever is between them has given up waiting for an answer.
        504 => CommandEnd::Lost("nobody answered in time whether it began: HTTP 504".to_owned()),
        _ => CommandEnd::NotBegun(format!("the API server did not begin the command: it answered with HTTP {code}")),
    }
}

/// Reads all that a command prints, and how it ended.
async fn collect(
    out: impl AsyncRead + Unpin,
    err: impl AsyncRead + Unpin,
    status: impl Future<Output = Option<Status>>,
    limit: Duration,
) -> CommandEnd {
    let all = async {
        let words = async { Ok(last_words(err).await) };
        let status = async { Ok(status.await) };
        tokio::try_join!(printed(out), words, status)
    };
    let (printed, words, status) = match tokio::time::timeout(limit, all).await {
        Ok(Ok(all)) => all,
        Ok(Err(TooMuch)) => {
            return CommandEnd::Failed(format!("the command printed more than {} KiB", PRINTED >> 10));
        }
        Err(_) => {
            let seconds = limit.as_secs();
            return CommandEnd::Failed(format!(
                "the command did not end within {seconds} s, and may go on in its container"
            ));
        }
    };
    let Some(status) = status else { return CommandEnd::Lost("the connection ended before the command".to_owned()) };
    if status.status.as_deref() == Some("Success") {
        return match String::from_utf8(printed) {
            Ok(text) => CommandEnd::Printed(text),
            Err(_) => CommandEnd::Failed("what the command printed is no text".to_owned()),
        };
    }
    let words = if words.is_empty() { String::new() } else { format!("; its last words: {words}") };
    CommandEnd::Failed(format!("the command {}{words}", ending(&status)))
}

/// How a command ended that did not succeed.
fn ending(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    match codes.find_map(|cause| cause.message.as_deref()) {
        Some(code) => format!("ended with exit code {}", plain(code)),
        None => format!("could not be run: {}", plain(status.message.as_deref().unwrap_or("no reason is said"))),
    }
}

/// It printed more than it may.
struct TooMuch;

async fn printed(mut out: impl AsyncRead + Unpin) -> Result<Vec<u8>, TooMuch> {
    let mut all = Vec::new();
    let most = u64::try_from(PRINTED + 1).unwrap_or(u64::MAX);
    // Without the rest of it, the status says that the connection is lost.
    let _ = (&mut out).take(most).read_to_end(&mut all).await;
    if all.len() > PRINTED { Err(TooMuch) } else { Ok(all) }
}

/// The end of what a command says, in one line.
async fn last_words(mut err: impl AsyncRead + Unpin) -> String {
    let (mut end, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = err.read(&mut part).await {
        end.extend_from_slice(&part[..count]);
        end.drain(..end.len().saturating_sub(LAST_WORDS));
    }
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    plain(&lines[lines.len().saturating_sub(LAST_LINES)..].join(" | "))
}

/// A terminal shows it, and does nothing by it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn end(out: &[u8], err: &[u8], status: Value) -> CommandEnd {
        let status = serde_json::from_value(status).expect("a status");
        collect(out, err, async { status }, SOON).await
    }

    fn exit_code(code: &str) -> Value {
        let causes = json!([{"reason": "ExitCode", "message": code}]);
        json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}})
    }

    #[tokio::test]
    async fn what_a_command_prints_counts_if_it_succeeds() {
        let success = json!({"status": "Success"});
        assert_eq!(end(b"disks: []\n", b"hello", success.clone()).await, CommandEnd::Printed("disks: []\n".to_owned()));
        assert_eq!(end(&[b' '; PRINTED], b"", success.clone()).await, CommandEnd::Printed(" ".repeat(PRINTED)));
        let failed = |why: &str| CommandEnd::Failed(why.to_owned());
        assert_eq!(
            end(&[b' '; PRINTED + 1], b"", success.clone()).await,
            failed("the command printed more than 64 KiB")
        );
        assert_eq!(end(&[0xff], b"", success).await, failed("what the command printed is no text"));
    }

    #[tokio::test]
    async fn a_command_that_fails_is_told_by_its_exit_code_and_the_last_lines_of_stderr() {
        let failed = |why: &str| CommandEnd::Failed(why.to_owned());
        let said = b"1\n2\n3\n\x1b[31mno space\n\n4\r\n5\n";
        let expected = "the command ended with exit code 3; its last words: 2 | 3 |  [31mno space | 4 | 5";
        assert_eq!(end(b"disks: []", said, exit_code("3")).await, failed(expected));
        assert_eq!(end(b"", b"", exit_code("1")).await, failed("the command ended with exit code 1"));
        let long = end(b"", "ä".repeat(100_000).as_bytes(), exit_code("1")).await;
        assert!(matches!(&long, CommandEnd::Failed(why) if why.len() < LAST_WORDS + 100), "{long:?}");
        let missing = json!({"status": "Failure", "message": "exec: \"iotune\": not found"});
        assert_eq!(end(b"", b"", missing).await, failed("the command could not be run: exec: \"iotune\": not found"));
    }

    #[tokio::test]
    async fn a_connection_that_ends_first_leaves_open_what_became_of_the_command() {
        let lost = end(b"disks", b"", Value::Null).await;
        assert!(matches!(lost, CommandEnd::Lost(_)), "{lost:?}");
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_in_its_time_has_failed_and_so_has_one_that_floods() {
        let (out, mut writer) = tokio::io::duplex(16);
        let never = std::future::pending::<Option<Status>>;
        let hangs = collect(out, &b""[..], never(), Duration::from_millis(20)).await;
        assert!(matches!(&hangs, CommandEnd::Failed(why) if why.contains("did not end within")), "{hangs:?}");
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
        let floods = collect(tokio::io::repeat(b'x'), &b""[..], never(), Duration::from_secs(60)).await;
        assert!(matches!(&floods, CommandEnd::Failed(why) if why.contains("64 KiB")), "{floods:?}");
    }

    #[test]
    fn an_answer_in_place_of_a_connection_says_that_nothing_runs_and_any_other_error_does_not() {
        let switch = |code: u16| {
            let code = http_code(code);
            not_begun(kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)))
        };
        assert_eq!(switch(403), CommandEnd::Forbidden);
        assert!(matches!(switch(500), CommandEnd::NotBegun(why) if why.ends_with("HTTP 500")));
        assert!(matches!(switch(504), CommandEnd::Lost(_)), "it may run");
        let other = kube::Error::UpgradeConnection(UpgradeConnectionError::MissingUpgradeWebSocketHeader);
        assert!(matches!(not_begun(other), CommandEnd::Lost(_)));
    }

    fn http_code(code: u16) -> axum::http::StatusCode {
        axum::http::StatusCode::from_u16(code).expect("a code")
    }
}
