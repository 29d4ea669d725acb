//! Owns the check that /openapi.json tells the truth: whatever it describes really happens, and
//! nothing else does. Every answer is had from real processes, and compared with its schema.
//! Never knows a status or code that the document does not name.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use crate::server_support::cluster::Cluster;
use crate::server_support::failing_disk::{FailingDisk, Failure, fail, mend};
use crate::server_support::raw::Raw;
use crate::server_support::{Node, ask, client, eventually, free_ports, single, start_command};
use jsonschema::Validator;
use nix::sys::signal::Signal;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// An operation of the document.
#[derive(Debug, Clone)]
struct Operation {
    id: String,
    method: Method,
    template: String,
    described: Value,
}

impl Operation {
    fn is_about_objects(&self) -> bool {
        self.described["tags"] == json!(["objects"])
    }

    fn is_change(&self) -> bool {
        self.described.get("requestBody").is_some()
    }

    /// The bodies that the document gives as examples.
    fn examples(&self) -> Vec<Value> {
        let examples = &self.described["requestBody"]["content"]["application/json"]["examples"];
        let examples = examples.as_object().into_iter().flatten();
        examples
            .map(|(_, example)| example["value"].clone())
            .collect()
    }

    /// Something else that the operation takes.
    fn other_body(&self) -> Value {
        match self.id.as_str() {
            "compareAndSetRegister" => json!({"expected": null, "new": "other"}),
            "addToCounter" => json!({"delta": 99}),
            "applyTransaction" => json!({"operations": [{"type": "list-read", "key": "other"}]}),
            _ => json!({"value": "other"}),
        }
    }

    fn path(&self) -> String {
        self.template.replace("{key}", &self.id)
    }

    fn request(&self, client: &reqwest::Client, port: u16) -> RequestBuilder {
        self.query(client, port, "")
    }

    fn query(&self, client: &reqwest::Client, port: u16, query: &str) -> RequestBuilder {
        let url = format!("http://127.0.0.1:{port}{}{query}", self.path());
        client.request(self.method.clone(), url)
    }

    /// As in the document.
    fn sound_request(&self, client: &reqwest::Client, port: u16) -> RequestBuilder {
        let request = self.request(client, port);
        match self.examples().first() {
            Some(body) => request.json(body),
            None => request,
        }
    }
}

/// The document, and what of it has been seen.
struct Document {
    root: Value,
    operations: Vec<Operation>,
    seen: Mutex<BTreeSet<String>>,
}

fn line(operation: &str, status: u16, code: &str) -> String {
    format!("{operation} {status} {code}")
}

impl Document {
    fn new(root: Value) -> Self {
        let mut operations = Vec::new();
        for (template, methods) in root["paths"].as_object().unwrap() {
            for (method, described) in methods.as_object().unwrap() {
                operations.push(Operation {
                    id: described["operationId"].as_str().unwrap().into(),
                    method: method.to_uppercase().parse().unwrap(),
                    template: template.clone(),
                    described: described.clone(),
                });
            }
        }
        Self {
            root,
            operations,
            seen: Mutex::default(),
        }
    }

    fn objects(&self) -> impl Iterator<Item = &Operation> {
        self.operations
            .iter()
            .filter(|operation| operation.is_about_objects())
    }

    fn changes(&self) -> impl Iterator<Item = &Operation> {
        self.operations
            .iter()
            .filter(|operation| operation.is_change())
    }

    fn operation(&self, id: &str) -> &Operation {
        self.operations
            .iter()
            .find(|operation| operation.id == id)
            .unwrap()
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.root.pointer(&reference[1..]).unwrap(),
            None => value,
        }
    }

    fn validator(&self, schema: &Value) -> Validator {
        // References of the schema point into the document.
        let whole = json!({"components": self.root["components"], "allOf": [schema]});
        jsonschema::draft202012::new(&whole).unwrap()
    }

    fn validate(&self, schema: &Value, value: &Value, what: &str) {
        let validator = self.validator(schema);
        let errors: Vec<_> = validator
            .iter_errors(value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {value}\n{errors:#?}");
    }

    /// All that is described, as in `seen`.
    fn described(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for operation in &self.operations {
            for (status, response) in operation.described["responses"].as_object().unwrap() {
                let status: u16 = status.parse().unwrap();
                let content = self.resolved(response)["content"].as_object().unwrap();
                for media in content.values() {
                    let error = &media["schema"]["allOf"][1]["properties"]["error"];
                    match error["properties"]["code"]["enum"].as_array() {
                        Some(codes) if status != 200 => lines.extend(
                            codes
                                .iter()
                                .map(|code| line(&operation.id, status, code.as_str().unwrap())),
                        ),
                        _ => drop(lines.insert(line(&operation.id, status, ""))),
                    }
                }
            }
        }
        lines
    }

    /// Sends a request, compares the answer with what is described, and gives status and code.
    async fn ask(&self, operation: &Operation, request: RequestBuilder) -> (u16, String) {
        self.try_ask(operation, request).await.unwrap()
    }

    async fn try_ask(
        &self,
        operation: &Operation,
        request: RequestBuilder,
    ) -> Result<(u16, String), reqwest::Error> {
        let response = request.send().await?;
        let status = response.status().as_u16();
        let media = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let text = response.text().await?;
        let code = self.check(operation, status, &media, &text);
        Ok((status, code))
    }

    fn check(&self, operation: &Operation, status: u16, media: &str, text: &str) -> String {
        let what = format!("{} {status}", operation.id);
        let response = &operation.described["responses"][status.to_string()];
        assert!(!response.is_null(), "{what} is not described: {text}");
        let content = &self.resolved(response)["content"][media];
        assert!(!content.is_null(), "{what} has type {media}: {text}");
        let body = match media {
            "application/json" => serde_json::from_str(text).unwrap(),
            _ => Value::from(text),
        };
        self.validate(&content["schema"], &body, &what);
        let code = body["error"]["code"].as_str().unwrap_or_default();
        let mut seen = self.seen.lock().unwrap();
        seen.insert(line(&operation.id, status, code));
        code.into()
    }
}

fn pair(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// All that a leader answers by itself.
async fn on_a_leader(document: &Document) {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let client = client();
    let red = json!({"value": "red"});
    let colour = client.put(node.url("/registers/colour")).json(&red);
    document
        .ask(document.operation("writeRegister"), colour)
        .await;
    for operation in &document.operations {
        let sound = || operation.sound_request(&client, node.port);
        assert_eq!(
            document.ask(operation, sound()).await.0,
            200,
            "{}",
            operation.id
        );
        for body in operation.examples() {
            document
                .ask(operation, operation.request(&client, node.port).json(&body))
                .await;
        }
        let foreign = sound().header("x-kraft-cluster-id", "other");
        let expected = pair(400, "INCONSISTENT_CLUSTER_ID");
        assert_eq!(document.ask(operation, foreign).await, expected);
        let unknown = operation.query(&client, node.port, "?unknown=1");
        let unknown = match operation.examples().first() {
            Some(body) => unknown.json(body),
            None => unknown,
        };
        let expected = pair(400, "INVALID_REQUEST");
        assert_eq!(document.ask(operation, unknown).await, expected);
    }
    for operation in document.objects() {
        let malformed = if operation.is_change() {
            operation.request(&client, node.port).body("{\"value\":")
        } else {
            let local = operation.query(&client, node.port, "?consistency=local");
            assert_eq!(document.ask(operation, local).await.0, 200);
            operation.query(&client, node.port, "?consistency=some")
        };
        assert_eq!(
            document.ask(operation, malformed).await,
            pair(400, "INVALID_REQUEST")
        );
    }
    for operation in document.changes() {
        let huge = operation
            .request(&client, node.port)
            .body("x".repeat(1_000_000));
        assert_eq!(
            document.ask(operation, huge).await,
            pair(413, "INVALID_REQUEST")
        );
        let stamped = |number: u64, body: &Value| {
            let request = operation.request(&client, node.port).json(body);
            let request = request.header("x-client-id", &operation.id);
            document.ask(operation, request.header("x-request-id", number))
        };
        let first = stamped(7, &operation.examples()[0]).await;
        assert_eq!(stamped(7, &operation.examples()[0]).await, first);
        let other = stamped(7, &operation.other_body()).await;
        assert_eq!(other, pair(409, "REQUEST_ID_REUSED"));
        let older = stamped(1, &operation.examples()[0]).await;
        assert_eq!(older, pair(409, "STALE_REQUEST"));
    }
    limits_of_objects(document, &node, &client).await;
    slow_bodies(document, node.port).await;
}

async fn limits_of_objects(document: &Document, node: &Node, client: &reqwest::Client) {
    let add = document.operation("addToCounter");
    let body = json!({"delta": i64::MAX});
    for _ in 0..2 {
        document
            .ask(add, add.request(client, node.port).json(&body))
            .await;
    }
    let apply = document.operation("applyTransaction");
    let transact = |operations: Value| {
        let body = json!({"operations": operations});
        document.ask(apply, apply.request(client, node.port).json(&body))
    };
    let overflow = json!([{"type": "counter-add", "key": add.id, "delta": i64::MAX}]);
    assert_eq!(transact(overflow).await, pair(409, "COUNTER_OVERFLOW"));
    let long = json!([{"type": "register-write", "key": "long", "value": "x".repeat(60_000)}]);
    assert_eq!(transact(long).await.0, 200);
    let reads = json!(vec![json!({"type": "register-read", "key": "long"}); 128]);
    assert_eq!(transact(reads).await, pair(409, "RESULT_TOO_LARGE"));
}

/// Bodies that never end.
async fn slow_bodies(document: &Document, port: u16) {
    let mut waiting = Vec::new();
    for operation in document.changes() {
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{",
            operation.method,
            operation.path()
        );
        let mut raw = Raw::connect(port).unwrap();
        raw.send(head).unwrap();
        let answered = tokio::task::spawn_blocking(move || raw.answer().expect("an answer"));
        waiting.push((operation, answered));
    }
    for (operation, answered) in waiting {
        let answer = answered.await.unwrap();
        let text = String::from_utf8(answer.body).unwrap();
        let code = document.check(operation, answer.status, "application/json", &text);
        assert_eq!((answer.status, code), pair(408, "INVALID_REQUEST"));
    }
}

async fn without_a_leader(document: &Document) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = start_command();
    command.args(["--id=1", "--listen=127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    for (id, port) in (2..).zip(free_ports(2)) {
        command.arg(format!("--peer={id}=http://127.0.0.1:{port}"));
    }
    let node = Node::start(command, directory.path());
    for operation in document.objects() {
        let request = operation.sound_request(&client(), node.port);
        let expected = pair(421, "NOT_LEADER_OR_FOLLOWER");
        assert_eq!(document.ask(operation, request).await, expected);
    }
    let ready = document.operation("checkReadiness");
    let request = ready.request(&client(), node.port);
    let expected = pair(503, "LEADER_NOT_AVAILABLE");
    assert_eq!(document.ask(ready, request).await, expected);
    // It works all the same.
    let health = document.operation("checkHealth");
    let request = health.request(&client(), node.port);
    assert_eq!(document.ask(health, request).await.0, 200);
}

/// One connection is too many.
async fn with_too_many_connections(document: &Document) {
    let directory = tempfile::tempdir().unwrap();
    // Whoever fetches what is not there yet has the only place for that long.
    let patient = ["--fetch-max-wait-ms=40000", "--fetch-timeout-ms=80000"];
    let options: Vec<_> = ["--max-connections=1"].into_iter().chain(patient).collect();
    let node = single(directory.path(), &options).await;
    let (_, quorum) = ask(client().get(node.url("/quorum"))).await.unwrap();
    let fetch = json!({
        "cluster_id": "test", "replica": {"id": 9}, "current_leader_epoch": quorum["epoch"],
        "fetch_offset": quorum["log_end"], "last_fetched_epoch": quorum["log_end_epoch"],
        "high_watermark": quorum["high_watermark"], "max_wait_ms": 40_000, "max_bytes": 1, "read_round": 0,
    })
    .to_string();
    let mut holder = Raw::connect(node.port).unwrap();
    let length = fetch.len();
    let head = "POST /raft/fetch HTTP/1.1\r\nhost: x\r\ncontent-length:";
    holder
        .send(format!("{head} {length}\r\n\r\n{fetch}"))
        .unwrap();
    eventually("the only place is taken", async || {
        let request = client().get(node.url("/health"));
        (request.send().await.ok()?.status() == 503).then_some(())
    })
    .await;
    for operation in &document.operations {
        let request = operation.sound_request(&client(), node.port);
        let expected = pair(503, "OVERLOADED");
        assert_eq!(
            document.ask(operation, request).await,
            expected,
            "{}",
            operation.id
        );
    }
}

/// A node whose loop hangs in its disk.
async fn hanging(directory: &Path, disk: &FailingDisk, more: &str) -> Node {
    let data = directory.join("data");
    let mut command = start_command();
    command
        .args(["--id=1", "--listen=127.0.0.1:0", more, "--data"])
        .arg(&data);
    disk.apply(&mut command, &data);
    let node = Node::start(command, directory);
    let client = client();
    eventually("the node leads", async || {
        let request = client.put(node.url("/registers/a")).body("{\"value\":1}");
        (request.send().await.ok()?.status() == 200).then_some(())
    })
    .await;
    fail(&data, Failure::Hang);
    let url = node.url("/registers/a");
    // Its answer is of no interest, and may never come.
    tokio::spawn(client.put(url).body("{\"value\":2}").send());
    eventually("the loop hangs", async || {
        let request = client.get(node.url("/health"));
        (request.send().await.ok()?.status() == 503).then_some(())
    })
    .await;
    node
}

async fn on_a_disk_that_hangs(document: &Document, disk: &FailingDisk) {
    let directory = tempfile::tempdir().unwrap();
    let node = hanging(directory.path(), disk, "--client-deadline-ms=300").await;
    for operation in &document.operations {
        let request = operation.sound_request(&client(), node.port);
        let answer = document.ask(operation, request).await;
        if operation.is_about_objects() {
            assert_eq!(answer, pair(504, "REQUEST_TIMED_OUT"));
        } else if operation.id != "readOpenApi" {
            assert_eq!(
                answer,
                pair(503, "BROKER_NOT_AVAILABLE"),
                "{}",
                operation.id
            );
        }
    }
    mend(&directory.path().join("data"), Failure::Hang);
    let health = document.operation("checkHealth");
    eventually("it works again", async || {
        let request = health.request(&client(), node.port);
        (document.ask(health, request).await.0 == 200).then_some(())
    })
    .await;
}

async fn stopped_while_the_disk_hangs(document: &Document, disk: &FailingDisk) {
    let directory = tempfile::tempdir().unwrap();
    let mut node = hanging(directory.path(), disk, "--client-deadline-ms=60000").await;
    // Whether a request comes before the signal or shortly after makes no difference.
    node.signal(Signal::SIGTERM);
    let asked = document.objects().map(async |operation| {
        let request = operation.sound_request(&client(), node.port);
        assert_eq!(
            document.ask(operation, request).await,
            pair(504, "STOPPING")
        );
    });
    futures(asked.collect()).await;
    assert_eq!(node.ended().await.code(), Some(1));
    assert!(
        node.said().contains("did not stop in an orderly way"),
        "{}",
        node.said()
    );
}

/// Waits for all of them at once.
async fn futures<F: Future<Output = ()>>(all: Vec<F>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|next| next.as_mut().poll(context).is_pending());
        if all.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// A leader with two dead followers.
async fn abandoned(options: &[&str]) -> (Cluster, usize) {
    let mut cluster = Cluster::start(options);
    cluster.write_anywhere("a", json!(1)).await;
    let leader = cluster.leader().await;
    for at in (0..3).filter(|at| *at != leader) {
        cluster.kill(at);
    }
    (cluster, leader)
}

async fn when_leadership_is_lost(document: &Document) {
    let (cluster, leader) = abandoned(&["--client-deadline-ms=60000"]).await;
    let asked = document.changes().map(async |operation| {
        let request = operation.sound_request(&client(), cluster.ports[leader]);
        assert_eq!(
            document.ask(operation, request).await,
            pair(504, "LEADERSHIP_LOST")
        );
    });
    futures(asked.collect()).await;
}

async fn while_a_leader_resigns(document: &Document) {
    // Two dead voters cannot be told, so the resignation takes its full second.
    let options = ["--fetch-timeout-ms=20000", "--client-deadline-ms=100"];
    let (mut cluster, leader) = abandoned(&options).await;
    let mut node = cluster.nodes[leader].take().unwrap();
    node.signal(Signal::SIGTERM);
    let asked = document.objects().map(async |operation| {
        let client = client();
        eventually("a refusal", async || {
            let request = operation.sound_request(&client, node.port);
            let answer = document.try_ask(operation, request).await;
            let answer = answer.expect("the node resigns for a second");
            (answer == pair(503, "BROKER_NOT_AVAILABLE")).then_some(())
        })
        .await;
    });
    futures(asked.collect()).await;
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.said());
}

async fn document_of_a_node() -> Document {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let response = client()
        .get(node.url("/openapi.json"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    Document::new(response.json().await.unwrap())
}

#[tokio::test]
async fn everything_that_is_described_happens_and_nothing_else() {
    let document = document_of_a_node().await;
    let directory = tempfile::tempdir().unwrap();
    let disk = FailingDisk::new(directory.path());
    tokio::join!(
        on_a_leader(&document),
        without_a_leader(&document),
        with_too_many_connections(&document),
        on_a_disk_that_hangs(&document, &disk),
        stopped_while_the_disk_hangs(&document, &disk),
        when_leadership_is_lost(&document),
    );
    // By itself, as it has a second only.
    while_a_leader_resigns(&document).await;
    let (seen, described) = (document.seen.lock().unwrap(), document.described());
    let missing: Vec<_> = described.difference(&seen).collect();
    assert!(
        missing.is_empty(),
        "described, but never seen: {missing:#?}"
    );
    let surplus: Vec<_> = seen.difference(&described).collect();
    assert!(surplus.is_empty(), "seen, but not described: {surplus:#?}");
    assert!(described.len() > 100, "{}", described.len());
}

#[tokio::test]
async fn paths_and_methods_that_are_not_described_are_answered_as_described() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let document = document_of_a_node().await;
    for (request, status, name) in [
        (client().get(node.url("/nowhere")), 404, "NotFound"),
        (
            client().delete(node.url("/health")),
            405,
            "MethodNotAllowed",
        ),
    ] {
        let (got, body) = crate::server_support::ask(request).await.unwrap();
        assert_eq!(got, status, "{body}");
        let response = &document.root["components"]["responses"][name];
        document.validate(
            &response["content"]["application/json"]["schema"],
            &body,
            name,
        );
    }
}

#[tokio::test]
async fn every_example_fits_its_schema_and_every_name_is_used() {
    let document = document_of_a_node().await;
    assert_eq!(document.root["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut contents = Vec::new();
    find_contents(&document.root, &mut contents);
    let mut count = 0;
    for media in contents {
        for (name, example) in media["examples"].as_object().into_iter().flatten() {
            document.validate(&media["schema"], &example["value"], name);
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
    let text = document.root.to_string();
    for kind in ["schemas", "parameters", "responses"] {
        for name in document.root["components"][kind]
            .as_object()
            .unwrap()
            .keys()
        {
            // The two that belong to no path are named in the description.
            let by_name = ["NotFound", "MethodNotAllowed"].contains(&name.as_str());
            let reference = format!("\"#/components/{kind}/{name}\"");
            assert!(by_name || text.contains(&reference), "{name} is not used");
        }
    }
    let ids: BTreeSet<_> = document
        .operations
        .iter()
        .map(|operation| &operation.id)
        .collect();
    assert_eq!(ids.len(), document.operations.len());
}

/// Everything that has a media type.
fn find_contents<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "content" && member.is_object() {
                    found.extend(member.as_object().unwrap().values());
                }
                find_contents(member, found);
            }
        }
        Value::Array(members) => {
            for member in members {
                find_contents(member, found);
            }
        }
        _ => {}
    }
}

/// What the document says of bodies is what a node does with them.
#[tokio::test]
async fn bodies_are_taken_exactly_when_their_schema_takes_them() {
    let directory = tempfile::tempdir().unwrap();
    let node = single(directory.path(), &[]).await;
    let document = document_of_a_node().await;
    let client = client();
    let operation = |more: Value| json!({"operations": [more]});
    let bodies = [
        json!({}),
        json!([]),
        json!(null),
        json!({"value": null}),
        json!({"value": 1, "more": 2}),
        json!({"delta": 1}),
        json!({"delta": 1.5}),
        json!({"delta": "1"}),
        json!({"delta": null}),
        json!({"delta": i64::MIN}),
        json!({"delta": u64::MAX}),
        json!({"expected": 1, "new": 2}),
        json!({"expected": 1}),
        json!({"new": null}),
        json!({"operations": []}),
        json!({"operations": null}),
        json!({"operations": vec![json!({"type": "list-read", "key": "a"}); 128]}),
        json!({"operations": vec![json!({"type": "list-read", "key": "a"}); 129]}),
        operation(json!({"type": "list-read"})),
        operation(json!({"type": "list-read", "key": ""})),
        operation(json!({"type": "list-read", "key": 1})),
        operation(json!({"type": "list-read", "key": "a", "value": 1})),
        operation(json!({"type": "list-pop", "key": "a"})),
        operation(json!({"type": "counter-add", "key": "a"})),
        operation(json!({"type": "counter-add", "key": "a", "delta": 0})),
        operation(json!({"type": "set-add", "key": "a", "value": {"x": []}})),
        operation(json!({"key": "a"})),
        operation(json!("list-read")),
        operation(json!(["list-read", "a"])),
        json!(["blue"]),
        json!(["blue", "red"]),
        json!([5]),
        json!([[{"type": "list-read", "key": "a"}]]),
    ];
    for operation in document.changes() {
        let schema = document.validator(
            &operation.described["requestBody"]["content"]["application/json"]["schema"],
        );
        let mut taken = 0;
        for body in &bodies {
            let request = operation.request(&client, node.port).json(body);
            let (status, _) = document.ask(operation, request).await;
            let is_taken = status == 200 || status == 409;
            assert_eq!(
                schema.is_valid(body),
                is_taken,
                "{} {status}: {body}",
                operation.id
            );
            taken += usize::from(is_taken);
        }
        assert!(taken > 0 && taken < bodies.len(), "{}", operation.id);
    }
}
