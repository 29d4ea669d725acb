//! The web server over a store: what it serves, and what it must never serve.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use reqwest::StatusCode;
use results::store::Store;
use results_report::Names;

struct Served {
    root: tempfile::TempDir,
    store: Store,
    address: SocketAddr,
    client: reqwest::Client,
    server: tokio::task::JoinHandle<results_report::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn served() -> Served {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("runs"));
    crate::common::complete_run(&store, "one", 100, &crate::common::invalid_verdict());
    std::fs::write(root.path().join("secret.txt"), "SECRET").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(results_report::serve(
        store.clone(),
        listener,
        Names::default(),
    ));
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(30))
        .build()
        .unwrap();
    Served {
        root,
        store,
        address,
        client,
        server,
    }
}

impl Served {
    async fn get(&self, path: &str) -> (StatusCode, String, String) {
        let url = format!("http://{}{path}", self.address);
        let answer = self.client.get(url).send().await.unwrap();
        let header = |name: &str| {
            let value = answer
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned());
            value.unwrap_or_default()
        };
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert!(
            header("content-security-policy").contains("default-src 'none'"),
            "{path}"
        );
        let (status, kind) = (answer.status(), header("content-type"));
        (status, kind, answer.text().await.unwrap())
    }

    /// Sends a request line as it is: clients tidy up paths, attackers do not.
    async fn raw(&self, path: &str) -> String {
        self.raw_to("localhost", path).await
    }

    /// The same, by any name.
    async fn raw_to(&self, host: &str, path: &str) -> String {
        let (address, host, path) = (self.address, host.to_owned(), path.to_owned());
        let exchange = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let patience = Some(Duration::from_secs(30));
            stream.set_read_timeout(patience).unwrap();
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        });
        exchange.await.unwrap()
    }
}

#[tokio::test]
async fn the_list_of_runs_is_always_fresh() {
    let served = served().await;
    let (status, kind, page) = served.get("/").await;
    assert_eq!(
        (status, kind.as_str()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert!(page.contains("href=\"one/index.html\"") && !page.contains("href=\"two/"));
    crate::common::complete_run(&served.store, "two", 10, &crate::common::valid_verdict());
    assert!(
        served
            .get("/index.html")
            .await
            .2
            .contains("href=\"two/index.html\"")
    );
}

#[tokio::test]
async fn a_report_is_rendered_on_request_and_again_when_the_verdict_changes() {
    let served = served().await;
    let (status, kind, page) = served.get("/one/").await;
    assert_eq!(
        (status, kind.as_str()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert!(page.contains("verdict invalid"));
    let (status, _, page) = served.get("/latest/index.html").await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("verdict invalid"));

    // File times may be as coarse as the kernel's tick.
    std::thread::sleep(Duration::from_millis(50));
    let folder = served.store.find("one").unwrap();
    folder
        .write_verdict(&crate::common::valid_verdict())
        .unwrap();
    assert!(
        served
            .get("/one/index.html")
            .await
            .2
            .contains("verdict valid")
    );
}

#[tokio::test]
async fn a_campaign_is_rendered_anew_and_nothing_else_is_a_page() {
    let served = served().await;
    crate::common::campaign(&served.store, "campaign-1");
    let (_, _, list) = served.get("/").await;
    assert!(list.contains("href=\"campaigns/campaign-1.html\""));
    let (status, kind, page) = served.get("/campaigns/campaign-1.html").await;
    assert_eq!(
        (status, kind.as_str()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert!(page.contains("href=\"../one/index.html\""));
    results::housekeeping::remove(&served.store.find("one").unwrap()).unwrap();
    let (_, _, page) = served.get("/campaigns/campaign-1.html").await;
    assert!(!page.contains("href=\"../one/index.html\""));
    let evil = served.store.campaigns_path().join("evil.html");
    std::fs::write(evil, "<script>alert(1)</script>").unwrap();
    let (status, _, page) = served.get("/campaigns/evil.html").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(!page.contains("alert"));
    let (status, kind, _) = served.get("/campaigns/campaign-1.json").await;
    assert_eq!(
        (status, kind.as_str()),
        (StatusCode::OK, "application/json")
    );
    let (status, ..) = served.get("/campaigns/%2e%2e%2fone.html").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn files_come_with_types_that_cannot_run() {
    let served = served().await;
    let page = served.store.root().join("one/nodes/n1/page.html");
    std::fs::write(page, "<script>alert(1)</script>").unwrap();
    served.get("/one/").await;
    for (path, expected) in [
        ("/one/latency.svg", "image/svg+xml"),
        ("/one/manifest.json", "application/json"),
        ("/one/history.jsonl", "text/plain; charset=utf-8"),
        ("/one/nodes/n1/node.log", "text/plain; charset=utf-8"),
        ("/one/nodes/n1/page.html", "text/plain; charset=utf-8"),
        ("/one/junit.xml", "application/xml"),
    ] {
        let (status, kind, content) = served.get(path).await;
        assert_eq!(
            (status, kind.as_str()),
            (StatusCode::OK, expected),
            "{path}"
        );
        assert!(!content.is_empty());
    }
    assert_eq!(
        served.get("/one/nothing.txt").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(served.get("/nothing/").await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.get("/one/nodes/").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn nothing_outside_the_store_is_served() {
    let served = served().await;
    let link = |target: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(target, served.store.root().join(name)).unwrap();
    };
    link(&served.root.path().join("secret.txt"), "one/file-link.txt");
    link(served.root.path(), "folder-link");
    std::fs::write(served.root.path().join("index.html"), "SECRET").unwrap();
    link(std::path::Path::new("/"), "one/root-link");
    for path in [
        "/../secret.txt",
        "/one/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/one/%2e%2e/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/%252e%252e/secret.txt",
        "//../secret.txt",
        "/one/file-link.txt",
        "/folder-link/secret.txt",
        "/folder-link/",
        "/folder-link/index.html",
        "/one/root-link/etc/hostname",
        "/one/.hidden",
        "/%00",
        "/%ff",
        "/%",
    ] {
        let answer = served.raw(path).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        assert!(!answer.contains("SECRET"), "{path}");
    }
    let inside = served.raw("/one/manifest.json").await;
    assert!(
        inside.starts_with("HTTP/1.1 200"),
        "the same request works inside: {inside}"
    );
}

#[tokio::test]
async fn a_name_that_somebody_else_pointed_here_reads_nothing() {
    let served = served().await;
    let port = served.address.port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        String::new(),
    ] {
        for path in ["/", "/one/", "/one/history.jsonl", "/one.tar.gz"] {
            let answer = served.raw_to(&host, path).await;
            assert!(
                answer.starts_with("HTTP/1.1 421 "),
                "{host}{path}: {answer}"
            );
            assert!(answer.contains("does not go by that name"), "{answer}");
        }
    }
    let in_address = format!("http://evil.example:{port}/");
    let answer = served.raw(&in_address).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    for host in [format!("localhost:{port}"), format!("[::1]:{port}")] {
        let answer = served.raw_to(&host, "/").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
}

#[tokio::test]
async fn nothing_can_be_written() {
    let served = served().await;
    let url = format!("http://{}/one/", served.address);
    for method in [
        reqwest::Method::POST,
        reqwest::Method::PUT,
        reqwest::Method::DELETE,
    ] {
        let answer = served
            .client
            .request(method, &url)
            .body("x")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    let head = served.client.head(&url).send().await.unwrap();
    assert_eq!(head.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_run_can_be_taken_away_in_one_file() {
    let served = served().await;
    let link = served.store.root().join("one/link.txt");
    std::os::unix::fs::symlink(served.root.path().join("secret.txt"), link).unwrap();
    let list = format!("http://{}/", served.address);
    let list = served.client.get(list).send().await.unwrap();
    let list = list.text().await.unwrap();
    assert!(list.contains("<a href=\"one.tar.gz\""), "{list}");
    let url = format!("http://{}/latest.tar.gz", served.address);
    let answer = served.client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "application/gzip");
    let packed = answer.bytes().await.unwrap();
    let unpacked = served.root.path().join("unpacked");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&packed[..]));
    archive.unpack(&unpacked).unwrap();
    for file in ["manifest.json", "history.jsonl", "nodes/n1/trace.jsonl"] {
        assert_eq!(
            std::fs::read(unpacked.join("one").join(file)).unwrap(),
            std::fs::read(served.store.root().join("one").join(file)).unwrap(),
            "{file}"
        );
    }
    assert!(
        unpacked.join("one/link.txt").is_symlink(),
        "links are not followed"
    );
    for path in [
        "/none.tar.gz",
        "/.tar.gz",
        "/%2e%2e.tar.gz",
        "/one/x.tar.gz",
    ] {
        assert_eq!(served.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn pages_of_a_run_that_goes_on_ask_for_themselves_again() {
    let served = served().await;
    let refresh = async |path: &str| {
        let url = format!("http://{}{path}", served.address);
        let answer = served.client.get(url).send().await.unwrap();
        (answer.status(), answer.headers().contains_key("refresh"))
    };
    assert_eq!(refresh("/").await, (StatusCode::OK, false));
    assert_eq!(refresh("/one/").await, (StatusCode::OK, false));
    let folder = served.store.find("one").unwrap();
    let mut manifest = folder.manifest().unwrap();
    manifest.ended = None;
    folder.write_manifest(&manifest).unwrap();
    assert_eq!(refresh("/").await, (StatusCode::OK, true));
    assert_eq!(refresh("/one/").await, (StatusCode::OK, true));
    let conflict = (StatusCode::CONFLICT, false);
    assert_eq!(
        refresh("/one.tar.gz").await,
        conflict,
        "its files still grow"
    );
    let ownership = folder.claim().unwrap();
    assert_eq!(refresh("/one.tar.gz").await, conflict);
    assert_eq!(refresh("/one/").await, (StatusCode::OK, true));
    // As when its harness is killed: the lock goes with the process.
    drop(ownership);
    assert_eq!(refresh("/one.tar.gz").await, (StatusCode::OK, false));
    assert_eq!(refresh("/").await, (StatusCode::OK, false));
    assert_eq!(refresh("/one/").await, (StatusCode::OK, false));
}

/// Thousands of runs: run with `cargo test --release -p results-report --test pages -- --ignored --nocapture serve` to see
/// the figures.
#[tokio::test]
#[ignore = "writes 5,000 run folders and measures times, which needs a quiet machine"]
#[allow(clippy::print_stderr)]
async fn five_thousand_runs_are_listed_within_a_second() {
    let served = served().await;
    let verdict = crate::common::valid_verdict();
    for number in 0..5000u64 {
        let name = format!("register-kill-20261129T140311{number:04}Z-{number}");
        let folder = served.store.create_run(&name).unwrap();
        let manifest = crate::common::manifest(&name, number);
        folder.write_manifest(&manifest).unwrap();
        std::fs::write(folder.history_path(), crate::common::history(50, number)).unwrap();
        std::fs::write(
            folder.schedule_path(),
            crate::common::schedule().to_string(),
        )
        .unwrap();
        for node in 1..=5 {
            let node = format!("n{node}");
            std::fs::create_dir_all(folder.node_path(&node)).unwrap();
            std::fs::write(folder.trace_path(&node), "").unwrap();
        }
        folder.write_verdict(&verdict).unwrap();
    }
    // Left alone for as long as it takes to be sure that nothing changes any more.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let mut took_ms = Vec::new();
    for _ in 0..4 {
        let started = std::time::Instant::now();
        let (status, _, page) = served.get("/").await;
        took_ms.push(started.elapsed().as_millis());
        assert_eq!(status, StatusCode::OK);
        assert_eq!(page.matches("data-label=\"Run\"").count(), 5001);
    }
    let started = std::time::Instant::now();
    let listed = results::overview::overviews(&served.store).unwrap();
    let list_ms = started.elapsed().as_millis();
    assert_eq!(listed.runs.len(), 5001);
    eprintln!(
        "5001 runs: served in {took_ms:?} ms (the first time all are read), listed in {list_ms} ms"
    );
    assert!(took_ms[1..].iter().all(|took_ms| *took_ms < 1000) && list_ms < 1000);
}
