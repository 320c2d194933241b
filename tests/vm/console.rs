//! What a guest shows that does not come up: the end of its console, after its kernel was asked by its keyboard which
//! tasks wait, and what the processors do.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::qmp::Qmp;

/// The level of the messages that the console shows; the tasks that wait; the stack of each processor
/// (admin-guide/sysrq.rst).
const SYSRQ: [&str; 3] = ["8", "w", "l"];
/// What these print, on an emulated serial port.
const PRINTS: Duration = Duration::from_secs(10);
const LINES: usize = 300;

/// The last lines of the console.
pub fn asked(qmp: &mut Qmp, console: &Path) -> String {
    for key in SYSRQ {
        let keys: Vec<Value> = ["alt", "sysrq", key].iter().map(|key| json!({"type": "qcode", "data": key})).collect();
        if let Err(error) = qmp.execute("send-key", &json!({"keys": keys})) {
            return format!("QEMU does not answer: {error}");
        }
        std::thread::sleep(PRINTS / 5);
    }
    std::thread::sleep(PRINTS);
    let said = std::fs::read(console).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
