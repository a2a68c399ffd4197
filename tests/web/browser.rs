//! A day of an administrator in a real browser: headless Chromium from the distribution, driven over WebDriver.
//!
//! Screenshots of every page at both widths and in both themes are kept in `target/web`, for people to look at.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::actions::{Actions, InputSource, KeyAction, KeyActions};
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};

use crate::client::{Server, token};
use crate::lab::{Lab, can_mount};

/// Time limit for an element to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A driver of Chromium, which ends with the test.
struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    /// Starts the driver; `None` without a browser.
    fn start() -> Option<Driver> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("chromedriver");
        let command = command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            assert!(std::env::var_os("CENOTE_REQUIRE_BROWSER").is_none(), "chromedriver is not installed");
            return None;
        };
        Some(Driver { child, port })
    }

    async fn open(&self) -> Client {
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en", "--window-size=1280,1000"],
        });
        let Value::Object(capabilities) = json!({ "acceptInsecureCerts": true, "goog:chromeOptions": options }) else {
            unreachable!("an object")
        };
        let capabilities: Capabilities = capabilities;
        let address = format!("http://127.0.0.1:{}", self.port);
        for _ in 0..100 {
            match ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
                .capabilities(capabilities.clone())
                .connect(&address)
                .await
            {
                Ok(client) => return client,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("the browser does not start");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of the DevTools protocol.
#[derive(Debug)]
struct DevTools(&'static str, Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "cmd": self.0, "params": self.1 }).to_string()))
    }
}

/// A browser window with the pages of a server.
struct Window {
    client: Client,
    server: Server,
    folder: PathBuf,
}

impl Window {
    async fn go(&self, path: &str) {
        self.client.goto(&format!("https://localhost:{}{path}", self.server.port)).await.unwrap();
    }

    async fn text(&self) -> String {
        self.client.find(Locator::Css("body")).await.unwrap().text().await.unwrap()
    }

    /// Waits until the page shows a text.
    async fn shows(&self, text: &str) {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            // The page may be changing.
            let shown = match self.client.find(Locator::Css("body")).await {
                Ok(body) => body.text().await.unwrap_or_default(),
                Err(_) => String::new(),
            };
            if shown.contains(text) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "the page does not show '{text}':\n{shown}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn fill(&self, css: &str, text: &str) {
        let field = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Clicks an element; a live part may replace the element meanwhile.
    async fn click(&self, css: &str) {
        let middle = "arguments[0].scrollIntoView({ block: 'center' })";
        for attempt in 0.. {
            let element = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await.unwrap();
            let argument = vec![serde_json::to_value(&element).unwrap()];
            let clicked = match self.client.execute(middle, argument).await {
                Ok(_) => element.click().await,
                Err(error) => Err(error),
            };
            match clicked {
                Ok(()) => return,
                Err(error) => assert!(attempt < 5, "{css}: {error}"),
            }
        }
    }

    /// Presses a button of a change, confirms, and waits for the end.
    async fn change(&self, action: &str, typed: Option<&str>) {
        self.click(&format!("form[action=\"/change/{action}\"] button")).await;
        self.shows("This command will run").await;
        if let Some(name) = typed {
            self.fill("#typed", name).await;
        }
        self.click("form.confirm button").await;
        self.shows("✓ done").await;
    }

    /// Fails if a part of the page has no name or no place for a screen reader.
    async fn is_accessible(&self, name: &str) {
        let problems = self.client.execute(include_str!("accessible.js"), vec![]).await.unwrap();
        assert_eq!(problems, json!([]), "{name}");
    }

    /// Keeps pictures of a page at both widths and in both themes. Fails if the page is wider than the window, or is
    /// not accessible.
    async fn picture(&self, name: &str) {
        self.is_accessible(name).await;
        for theme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
            self.client.issue_cmd(DevTools("Emulation.setEmulatedMedia", media)).await.unwrap();
            for width in [380, 1600] {
                let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
                self.client.issue_cmd(DevTools("Emulation.setDeviceMetricsOverride", metrics)).await.unwrap();
                let wide = self.client.execute("return document.documentElement.scrollWidth", vec![]).await.unwrap();
                assert!(wide.as_u64().unwrap() <= width, "{name} is {wide} wide at {width}");
                let whole = json!({ "captureBeyondViewport": true });
                let picture = self.client.issue_cmd(DevTools("Page.captureScreenshot", whole)).await.unwrap();
                let bytes = base64(picture["data"].as_str().unwrap());
                fs::write(self.folder.join(format!("{name}-{width}-{theme}.png")), bytes).unwrap();
            }
        }
        self.client.issue_cmd(DevTools("Emulation.clearDeviceMetricsOverride", json!({}))).await.unwrap();
    }
}

/// The keys of WebDriver.
const TAB: char = '\u{E004}';
const ENTER: char = '\u{E007}';

/// What the keyboard needs to know about the focused element: name, whether the focus is visible, whether the element
/// comes after the element before.
const FOCUSED: &str = r#"
const focused = document.activeElement, before = window.beforeFocus;
window.beforeFocus = focused;
const style = getComputedStyle(focused), box = focused.getBoundingClientRect();
const label = focused.labels?.[0]?.textContent ?? focused.getAttribute("aria-label") ?? focused.textContent;
return {
  name: label.trim(),
  isBody: focused === document.body,
  isVisible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0
    && box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth,
  follows: !before || before === document.body || !before.isConnected
    || (before.compareDocumentPosition(focused) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0,
};
"#;

impl Window {
    /// Presses a key, or types a text, as a keyboard does.
    async fn press(&self, keys: &str) {
        for value in keys.chars() {
            let actions = KeyActions::new("keyboard".to_owned());
            let pressed = actions.then(KeyAction::Down { value }).then(KeyAction::Up { value });
            self.client.perform_actions(Actions::from(pressed)).await.unwrap();
        }
    }

    /// Presses Tab until the element of this name is focused. Each focus on the way is visible, and comes after the
    /// one before.
    async fn tab_to(&self, name: &str) {
        let mut passed = Vec::new();
        for _ in 0..150 {
            self.press(&TAB.to_string()).await;
            let focused = self.client.execute(FOCUSED, vec![]).await.unwrap();
            let found = focused["name"].as_str().unwrap().to_owned();
            // Behind the last element, the focus leaves the page.
            if focused["isBody"] == false {
                assert_eq!(focused["isVisible"], true, "the focus on '{found}' is not visible");
                assert_eq!(focused["follows"], true, "'{found}' comes after {passed:?}");
            }
            if found == name {
                return;
            }
            passed.push(found);
        }
        panic!("'{name}' is not reached: {passed:?}");
    }

    /// Goes to an element with Tab, and presses Enter.
    async fn enter(&self, name: &str) {
        self.tab_to(name).await;
        self.press(&ENTER.to_string()).await;
    }

    /// Confirms the shown change, and continues after its end.
    async fn confirm(&self, title: &str) {
        self.shows("This command will run").await;
        self.enter(title).await;
        self.shows("✓ done").await;
        self.enter("Continue").await;
    }
}

/// Runs a test in a browser with a server of a new lab; not at all without mounts or without a browser.
fn in_browser(test: impl AsyncFnOnce(&Lab, &Window)) {
    if !can_mount() {
        return;
    }
    let Some(driver) = Driver::start() else { return };
    let lab = Lab::new();
    let server = Server::start(&lab);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../web");
    fs::create_dir_all(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let window = Window { client: driver.open().await, server, folder };
        test(&lab, &window).await;
        window.client.clone().close().await.unwrap();
    });
}

#[test]
fn the_keyboard_alone_is_enough() {
    in_browser(with_keys);
}

/// From signing in to a file system, a snapshot and a rollback, with Tab, Enter and letters.
async fn with_keys(lab: &Lab, window: &Window) {
    window.go("/").await;
    window.shows("pool web token").await;
    // The field of the token is focused at once.
    window.press(&token(lab, &[])).await;
    window.press(&ENTER.to_string()).await;
    window.shows("This machine has no pools yet").await;
    // The first Tab offers to skip the navigation.
    window.enter("Skip to the content").await;
    window.enter("Create a pool").await;
    window.shows("Devices: paths of disks").await;
    window.tab_to("Name").await;
    window.press("tank").await;
    window.press(&TAB.to_string()).await;
    window.press(&format!("192M:{}", lab.at("a.img"))).await;
    window.tab_to("Mount point (empty for the default)").await;
    window.press(&lab.at("mnt/tank")).await;
    window.enter("Create").await;
    window.confirm("Create a pool").await;
    window.go("/").await;
    window.shows("Nothing needs attention").await;
    window.shows("tank").await;
    window.enter("Datasets").await;
    window.shows("File systems below").await;
    window.tab_to("New file system").await;
    window.press("home").await;
    window.press(&ENTER.to_string()).await;
    window.confirm("Create a file system").await;
    window.enter("home").await;
    window.shows("Snapshots (0)").await;
    window.tab_to("New snapshot").await;
    window.press("monday").await;
    window.press(&ENTER.to_string()).await;
    window.confirm("Take a snapshot").await;
    fs::write(lab.mount("tank/home").join("late"), "late").unwrap();
    window.enter("monday").await;
    window.enter("Roll back to this snapshot").await;
    window.shows("would free").await;
    window.shows("Type the name to confirm").await;
    window.tab_to("This cannot be undone. Type the name to confirm: tank/home").await;
    window.press("tank/home").await;
    window.press(&ENTER.to_string()).await;
    window.shows("✓ done").await;
    assert!(!lab.mount("tank/home").join("late").exists());
    window.enter("Continue").await;
    // A property, behind a fold.
    window.go("/dataset/tank/home").await;
    window.enter("Change atime").await;
    window.press(&TAB.to_string()).await;
    window.press("off").await;
    window.enter("Set").await;
    window.confirm("Set a property").await;
    assert_eq!(lab.fs(&["get", "-Ho", "value", "atime", "tank/home"]).trim(), "off");
    window.go("/").await;
    window.enter("Sign out").await;
    window.shows("To get a token").await;
}

/// Bytes of a text in base 64.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut pending, mut bits) = (Vec::new(), 0u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|known| *known == byte)) {
        pending = (pending << 6 | digit as u32) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((pending >> bits) as u8);
        }
    }
    bytes
}

#[test]
fn a_day_in_the_browser() {
    in_browser(day);
}

async fn day(lab: &Lab, window: &Window) {
    // Signing in: first with a wrong token.
    window.go("/").await;
    window.shows("pool web token").await;
    window.picture("sign-in").await;
    window.fill("#token", "wrong").await;
    window.click("form.card button").await;
    window.shows("The token is unknown or has expired").await;
    window.fill("#token", &token(lab, &[])).await;
    window.click("form.card button").await;
    window.shows("This machine has no pools yet").await;
    // Plan and create a pool of images.
    window.go("/plan?disks=4*8T+2*4T&survive=1&space=16T").await;
    window.shows("2 mirrors of").await;
    window.picture("plan").await;
    window.go("/new").await;
    window.fill("#pool", "tank").await;
    window.fill("#vdevs", &format!("mirror 192M:{} 192M:{}", lab.at("a.img"), lab.at("b.img"))).await;
    window.fill("#mountpoint", &lab.at("mnt/tank")).await;
    window.picture("new").await;
    window.click("form[action=\"/change/create-pool\"] button").await;
    window.shows("Dry run").await;
    window.picture("confirm").await;
    window.click("form.confirm button").await;
    window.shows("✓ done").await;
    window.picture("command").await;
    // A dataset, a file and a snapshot.
    window.go("/dataset/tank").await;
    window.fill("#create-name", "home").await;
    window.change("create", None).await;
    let file = lab.mount("tank/home").join("letter");
    fs::write(&file, "dear reader").unwrap();
    window.go("/dataset/tank/home").await;
    window.fill("#snapshot-name", "monday").await;
    window.change("snapshot", None).await;
    // A second snapshot, for the time line.
    lab.fs(&["snapshot", "tank/home@tuesday"]);
    window.go("/dataset/tank/home").await;
    window.shows("monday").await;
    window.shows("oldest at the left").await;
    window.picture("dataset").await;
    window.go("/dataset/tank").await;
    window.picture("root").await;
    // A stream to a file and back, with its progress.
    window.go("/snapshot/tank/home%40monday").await;
    window.fill("#send-file", &lab.at("stream")).await;
    window.change("send", None).await;
    window.picture("sent").await;
    window.go("/dataset/tank").await;
    let fold = window.client.find(Locator::Css("details:has(form[action=\"/change/receive\"])")).await.unwrap();
    window.client.execute("arguments[0].open = true", vec![serde_json::to_value(&fold).unwrap()]).await.unwrap();
    window.fill("#receive-file", &lab.at("stream")).await;
    window.change("receive", None).await;
    assert!(lab.fs(&["list", "-H", "-t", "snapshot", "tank/received"]).contains("tank/received@monday"));
    // The file is deleted, and restored from the snapshot.
    fs::remove_file(&file).unwrap();
    window.go("/snapshot/tank/home%40monday").await;
    window.picture("snapshot").await;
    window.go("/files?at=tank/home%40monday&path=/").await;
    window.shows("letter").await;
    window.picture("files").await;
    window.change("restore", None).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "dear reader");
    // A scrub, seen to its end without loading the page again.
    window.go("/pool/tank").await;
    window.change("scrub", None).await;
    window.go("/pool/tank").await;
    window.shows("Scrub: finished").await;
    // A property.
    window.go("/dataset/tank/home").await;
    let set = "form[action=\"/change/set\"]:has(input[value=\"compression\"])";
    let open = "arguments[0].closest('details').open = true";
    let form = window.client.find(Locator::Css(set)).await.unwrap();
    window.client.execute(open, vec![serde_json::to_value(&form).unwrap()]).await.unwrap();
    window.fill(&format!("{set} [name=value]"), "zstd").await;
    window.click(&format!("{set} button")).await;
    window.shows("fs set compression=zstd tank/home").await;
    window.click("form.confirm button").await;
    window.shows("✓ done").await;
    assert_eq!(lab.fs(&["get", "-Ho", "value", "compression", "tank/home"]).trim(), "zstd");
    lose_a_disk(lab, window).await;
    another_session(lab, window).await;
}

/// A disk is lost; the page reports it, and a new disk replaces it.
async fn lose_a_disk(lab: &Lab, window: &Window) {
    lab.damages();
    classes(lab, window).await;
    window.go("/pool/tank").await;
    window.shows("Throughput").await;
    window.picture("pool").await;
    window.click(".device a").await;
    window.shows("Nothing would be lost").await;
    window.picture("device").await;
    let address = window.client.current_url().await.unwrap();
    window.change("offline", None).await;
    window.go("/").await;
    window.shows("DEGRADED").await;
    window.picture("overview").await;
    window.client.goto(address.as_str()).await.unwrap();
    window.fill("#replace-new", &format!("192M:{}", lab.at("c.img"))).await;
    window.change("replace", None).await;
    window.go("/pool/tank").await;
    window.shows("c.img").await;
    window.go("/").await;
    window.shows("Nothing needs attention").await;
    window.go("/pool/tank/history").await;
    window.shows("pool replace").await;
    window.picture("history").await;
    window.go("/pool/tank/events").await;
    window.picture("events").await;
    // A pool that is exported is found, and imported from the page.
    fs::create_dir(lab.path("images")).unwrap();
    lab.pool(&["create", "-m", "none", "pond", &format!("64M:{}", lab.at("images/pond.img"))]);
    lab.pool(&["export", "pond"]);
    window.go(&format!("/import?folder={}", lab.at("images"))).await;
    window.shows("pond").await;
    let fold = window.client.find(Locator::Css("article summary")).await.unwrap();
    fold.click().await.unwrap();
    window.picture("import").await;
    window.fill("#new-name-0", "lake").await;
    window.change("import", None).await;
    lab.pool(&["list", "lake"]);
    window.go("/").await;
    window.shows("lake").await;
    window.picture("two-pools").await;
    window.go("/tasks").await;
    window.picture("commands").await;
}

/// Devices of other classes come, and leave from the form of the pool's page.
async fn classes(lab: &Lab, window: &Window) {
    window.go("/pool/tank").await;
    let devices = ["log", "cache", "spare"].map(|class| format!("{class} 192M:{}", lab.at(&format!("{class}.img"))));
    window.fill("#add-vdevs", &devices.join(" ")).await;
    window.change("add", None).await;
    window.go("/").await;
    window.shows("Cache: ").await;
    for class in ["spare", "cache"] {
        window.go("/pool/tank").await;
        window.shows(&format!("{class}.img")).await;
        let list = window.client.find(Locator::Css("#remove-device")).await.unwrap();
        list.select_by_value(&lab.at(&format!("{class}.img"))).await.unwrap();
        window.click("form[action=\"/change/remove\"] button").await;
        window.shows("would be removed at once").await;
        window.picture("remove").await;
        window.click("form.confirm button").await;
        window.shows("✓ done").await;
    }
    assert!(!lab.pool(&["status", "tank"]).contains("cache.img"));
}

/// A session that only reads, and one that expires while the page is open.
async fn another_session(lab: &Lab, window: &Window) {
    window.click("form.user button").await;
    window.shows("Token").await;
    window.fill("#token", &token(lab, &["--read-only", "--expires", "4s"])).await;
    window.click("form.card button").await;
    window.shows("(read only)").await;
    window.go("/dataset/tank").await;
    assert!(!window.text().await.contains("Take snapshot"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    window.go("/dataset/tank").await;
    window.shows("pool web token").await;
}
