//! A Prometheus of one check: it scrapes and evaluates every two seconds, in a folder of its own, on a port of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use localpool_testing::{Running, free_address};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cluster::{SOON, eventually};

/// It ends with this value, and with the thread that starts it, however that ends.
pub struct Server {
    _process: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl Server {
    /// Starts it with these scrape configs and this file of rules, and waits until it answers.
    pub async fn start(scrapes: &Value, rules: &Value) -> Self {
        let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
        let config = json!({
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": scrapes,
        });
        // JSON is YAML.
        fs::write(folder.path().join("prometheus.yaml"), config.to_string()).unwrap();
        fs::write(folder.path().join("rules.yaml"), rules.to_string()).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "prometheus", "--config.file=prometheus.yaml"]);
        command.arg(format!("--web.listen-address={address}")).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Running(command.spawn().expect("setpriv of util-linux starts it"));
        let server = Self { _process: process, folder, address };
        let answers =
            async || server.get("/api/v1/status/runtimeinfo", &[]).await.map_err(|error| server.with_log(&error));
        eventually("Prometheus answers", SOON, answers).await;
        server
    }

    fn with_log(&self, error: &str) -> String {
        format!("{error}\n{}", fs::read_to_string(self.folder.path().join("log")).unwrap_or_default())
    }

    /// The data that its HTTP API answers. A warning is an error here.
    pub async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let words: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        let request = format!("GET {path}?{} HTTP/1.0\r\n\r\n", words.join("&"));
        let answer = self.exchange(&request).await.map_err(|error| error.to_string())?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let mut found: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))?;
        if found["status"] == "success" && found.get("warnings").is_none() {
            Ok(found["data"].take())
        } else {
            Err(format!("{parameters:?}: {found}"))
        }
    }

    async fn exchange(&self, request: &str) -> std::io::Result<String> {
        let mut stream = tokio::net::TcpStream::connect(self.address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}
