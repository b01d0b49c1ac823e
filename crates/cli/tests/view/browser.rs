//! A headless Chromium, driven through ChromeDriver's HTTP interface.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenure_servers::wait_for;

use crate::http::{get, request};
use crate::load::DEADLINE;
use crate::programs::{Program, installed};

/// An open window. Its programs end with the value.
pub struct Browser {
    address: String,
    session: String,
    _driver: Program,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A window of so many pixels; `None` where Chromium or its driver isn't installed.
    pub fn open(test: &str, url: &str) -> Option<Browser> {
        let (chromium, driver) = (installed(test, "chromium")?, installed(test, "chromedriver")?);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(driver);
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = Program(command.spawn().unwrap());
        let is_ready = || get(&address, "/status").is_ok_and(|answer| answer.json()["value"]["ready"] == true);
        wait_for(DEADLINE, "ChromeDriver to answer", is_ready).unwrap();
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        // Without these Chromium asks its maker's servers for updates, and in a container finds no sandbox and little
        // shared memory.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            &folder,
        ];
        let options = json!({ "binary": chromium, "args": arguments });
        let capabilities =
            json!({ "alwaysMatch": { "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } } });
        let answer = request(&address, "POST", "/session", &[], &json!({ "capabilities": capabilities }).to_string());
        let answer = answer.unwrap().json();
        let session = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        let browser = Browser { address, session, _driver: driver, _profile: profile };
        browser.call("url", &json!({ "url": url }));
        Some(browser)
    }

    #[track_caller]
    fn call(&self, what: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{what}", self.session);
        let answer = request(&self.address, "POST", &path, &[], &body.to_string()).unwrap().json();
        assert!(answer["value"]["error"].is_null(), "{what} {body}: {answer}");
        answer["value"].clone()
    }

    /// What a script returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.call("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&self, what: &str, expression: &str) {
        let script = format!("return Boolean({expression})");
        if let Err(why) = wait_for(DEADLINE, what, || self.run(&script) == true) {
            panic!("{why}; the page says: {}\n{:?}", self.run("return document.body.innerText"), self.errors());
        }
    }

    fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.call("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// A window of so many pixels, on a system that prefers `light` or `dark`.
    pub fn look_like(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Presses one key that writes a character.
    pub fn press(&self, key: &str) {
        let actions = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.call("actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] }));
    }

    /// Errors and warnings on the console since the last call.
    pub fn errors(&self) -> Vec<Value> {
        let entries = self.call("se/log", &json!({ "type": "browser" }));
        let is_bad = |entry: &&Value| entry["level"] != "INFO" && entry["level"] != "DEBUG";
        entries.as_array().map_or(Vec::new(), |entries| entries.iter().filter(is_bad).cloned().collect())
    }

    /// Draws what the window shows into a PNG file.
    pub fn screenshot(&self, file: &Path) {
        let picture = self.devtools("Page.captureScreenshot", json!({ "format": "png" }));
        let text = picture["data"].as_str().unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, decoded(text)).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver's end leaves its browser running.
        let _ = request(&self.address, "DELETE", &format!("/session/{}", self.session), &[], "");
    }
}

/// What a text in base 64 stands for.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let bytes = |four: &[u8]| {
        let bits = four.iter().fold(0_u32, |bits, &digit| bits << 6 | u32::from(digit)) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(bytes).collect()
}
