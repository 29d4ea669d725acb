//! Owns driving a real browser: opening a page with a script added, and what that script says.
//! Never waits for long: a page that says nothing fails the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Waits until the page of a run is drawn.
pub const READY: &str = "await until(() => document.documentElement.dataset.ready === 'true');";

/// A word that no page writes to its console.
const MARK: &str = "BROWSER-TEST ";

/// Ends the browser also when a test fails.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The browser, if one is installed. With `BROWSER_TESTS=required` it must be.
pub fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let mut places = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        let required = std::env::var_os("BROWSER_TESTS").is_some_and(|word| word == "required");
        assert!(
            !required,
            "no Chromium is installed, and BROWSER_TESTS=required"
        );
        eprintln!("skipped: no Chromium is installed");
    }
    found
}

/// Opens `page` with `script` added, which ends by calling `done(value)`; returns that value.
///
/// The page's content security policy is taken out of the copy, since it would refuse the script; that
/// the page itself obeys it is a test of its own.
pub fn drive(page: &Path, script: &str) -> Option<Value> {
    drive_with(page, &[], "", script)
}

/// The same with flags of the browser, and with a library that the script uses.
pub fn drive_with(page: &Path, flags: &[&str], library: &str, script: &str) -> Option<Value> {
    let program = chromium()?;
    let html = std::fs::read_to_string(page).unwrap();
    let (before, rest) = html.split_once("<meta http-equiv=").unwrap();
    let (_, after) = rest.split_once('>').unwrap();
    let driver = format!(
        "<script>(async () => {{
            const done = (value) => console.log({MARK:?} + JSON.stringify(value));
            const sleep = (ms) => new Promise((then) => setTimeout(then, ms));
            const until = async (fits) => {{ while (!fits()) await sleep(20); }};
            const get = (id) => document.getElementById(id);
            addEventListener('error', (event) => done({{ error: event.message }}));
            try {{ {script} }} catch (error) {{ done({{ error: String(error.stack) }}); }}
        }})();</script>"
    );
    let library = match library {
        "" => String::new(),
        library => format!("<script>{library}</script>"),
    };
    let copy = page.with_file_name("driven.html");
    std::fs::write(&copy, format!("{before}{after}{library}{driver}")).unwrap();
    let line = console(&program, &copy, flags, |line| line.contains(MARK));
    let json = line.split_once(MARK).unwrap().1;
    // The console line ends with where it came from.
    let end = json.rfind("\", source:").unwrap_or(json.len());
    let value: Value = serde_json::from_str(&json[..end]).unwrap();
    assert!(value["error"].is_null(), "{value}");
    Some(value)
}

/// A browser without a window, which keeps what it keeps in `profile`; it has yet to be given a page.
pub fn headless(program: &Path, profile: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", profile.display()));
    command
}

/// The first line of the browser's log that `fits`.
fn console(program: &Path, page: &Path, flags: &[&str], fits: impl Fn(&str) -> bool) -> String {
    let profile = tempfile::tempdir().unwrap();
    let child = headless(program, profile.path())
        .args([
            "--enable-logging=stderr",
            "--window-size=1280,900",
            "--remote-debugging-port=0",
        ])
        // Later ones win.
        .args(flags)
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut browser = Browser(child);
    let log = BufReader::new(browser.0.stderr.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut seen = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) if fits(&line) => return line,
            Ok(line) => seen.push(line),
            Err(_) => panic!("the browser never said what was waited for: {seen:#?}"),
        }
    }
}
