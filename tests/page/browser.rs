//! A browser without a window, spoken to over two pipes by its own protocol. It is ended with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use localpool_testing::{Folder, Running, attempt, eventually, skipped};
use serde_json::{Value, json};

/// How long it may take for an answer: it shares the processor with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const FLAGS: [&str; 13] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // In a container, and as root, it cannot make one of its own; it only sees our page.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
];

pub struct Browser {
    _process: Running,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    count: u64,
    /// What the page or the browser complained of: errors of scripts, and what the policy of the page forbids.
    pub complaints: Vec<String>,
    _profile: Folder,
}

impl Browser {
    /// `None`: there is none on this machine.
    pub fn start() -> Option<Self> {
        let Some(program) = NAMES.into_iter().find(|name| attempt(name, &["--version"]).is_ok()) else {
            skipped("no chromium: `scripts/deps page` installs it");
            return None;
        };
        let profile = Folder::new("page");
        let mut process = Command::new("sh")
            // It reads from the third and writes to the fourth file.
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null", program])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                if tell.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let process = Running(process);
        let mut browser = Self {
            _process: process,
            to,
            from: told,
            session: None,
            count: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser.window(1280, 800);
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.count += 1;
        let mut message = json!({"id": self.count, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.from.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no answer to {method}"));
            if answer["id"] == self.count {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"]["text"].to_string());
            }
            _ => {}
        }
    }

    /// Loads a page, and waits until it has heard from its server.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.until("document.querySelector('#live span')?.textContent === 'live'");
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let done = self
            .call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true, "awaitPromise": true}));
        assert!(done["exceptionDetails"].is_null(), "{expression}: {}", done["exceptionDetails"]);
        done["result"]["value"].clone()
    }

    /// The text of the first element of a selector.
    pub fn text(&mut self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({})?.innerText", json!(selector)));
        found.as_str().unwrap_or_else(|| panic!("there is no {selector}")).to_owned()
    }

    pub fn until(&mut self, expression: &str) {
        let holds = eventually(TIMEOUT, || self.value(expression) == true);
        assert!(holds, "never so: {expression}; the page says {}", self.value("document.body.innerText"));
    }

    pub fn window(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// `dark` or `light`.
    pub fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// A key, by its name and its old number.
    pub fn key(&mut self, key: &str, number: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": number});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Points at the middle of the first element of a selector.
    pub fn point_at(&mut self, selector: &str) {
        let middle = self.value(&format!(
            "{{ const e = document.querySelector({}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); [r.x + r.width / 2, r.y + r.height / 2] }}",
            json!(selector)
        ));
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": middle[0], "y": middle[1]}));
    }

    /// What is to be seen now, as PNG.
    pub fn picture(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false}));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, from_base64(picture["data"].as_str().unwrap())).unwrap();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        held = (held << 6 | u32::from(digit(byte))) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).unwrap());
        }
    }
    bytes
}

#[test]
fn what_the_browser_writes_in_base64_is_read() {
    assert_eq!(from_base64("TG9jYWw="), b"Local");
    assert_eq!(from_base64("/+8A"), [0xff, 0xef, 0]);
}
