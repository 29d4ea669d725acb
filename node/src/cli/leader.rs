//! Owns how the tools find the leader of a running cluster, starting from any of its nodes.
//! Never shows anything to people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ids::{DirectoryId, Epoch, NodeId, Offset};

/// How long one node may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How many times a node may name another one as the leader. Leadership can move while we ask.
const MAX_HOP_COUNT: usize = 4;

/// Accepts what Kafka's tools take, and a URL.
pub(super) fn parse_server(text: &str) -> Result<String, String> {
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    super::parse_peer(&format!("0={url}")).map(|peer| peer.url)
}

/// The part of a node's answer about its quorum that the tools use.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Quorum {
    pub(super) cluster_id: String,
    #[serde(default)]
    pub(super) seeded_bug: Option<String>,
    pub(super) id: NodeId,
    pub(super) role: String,
    pub(super) epoch: Epoch,
    pub(super) leader: Option<NodeId>,
    pub(super) high_watermark: Option<Offset>,
    pub(super) log_end: Offset,
    pub(super) voters: Vec<Member>,
    #[serde(default)]
    pub(super) observers: Vec<Member>,
    pub(super) endpoints: BTreeMap<NodeId, String>,
}

/// A replica as the leader knows it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Member {
    pub(super) id: NodeId,
    #[serde(default)]
    pub(super) directory_id: Option<DirectoryId>,
    #[serde(default)]
    pub(super) endpoint: Option<String>,
    pub(super) log_end_offset: Option<Offset>,
    pub(super) last_fetch_ns: Option<u64>,
    pub(super) last_caught_up_ns: Option<u64>,
}

/// Why the leader could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("cannot set up an HTTP client: {0}")]
    Setup(String),
    #[error("{url} does not answer as a node: {reason}")]
    NoAnswer { url: String, reason: String },
    #[error("{node} at {url} knows no leader in epoch {epoch}; try again, or ask another node")]
    NoLeader {
        node: NodeId,
        url: String,
        epoch: Epoch,
    },
    #[error("the leadership moves too fast to follow; try again")]
    Restless,
}

/// Finds the leader and what it says of the quorum.
pub(super) fn describe(bootstrap_server: &str) -> Result<Quorum, AskError> {
    block_on(async |client| Ok(find(client, bootstrap_server).await?.1))
}

/// Posts `body` to the leader's `path`; it has `limit` on top of the usual time to answer.
pub(super) fn post<T: DeserializeOwned>(
    bootstrap_server: &str,
    path: &str,
    body: impl Fn(&Quorum) -> Vec<u8>,
    limit: Duration,
) -> Result<T, AskError> {
    block_on(async |client| {
        let (url, quorum) = find(client, bootstrap_server).await?;
        let request = client
            .post(format!("{url}{path}"))
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .timeout(ANSWER_LIMIT + limit)
            .body(body(&quorum));
        let answer = async { request.send().await?.error_for_status()?.json().await };
        answer.await.map_err(|error| no_answer(&url, &error))
    })
}

fn block_on<T>(
    action: impl AsyncFnOnce(&reqwest::Client) -> Result<T, AskError>,
) -> Result<T, AskError> {
    let setup = |error: &dyn std::error::Error| AskError::Setup(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| setup(&error))?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(ANSWER_LIMIT)
        .build()
        .map_err(|error| setup(&error))?;
    runtime.block_on(action(&client))
}

/// The leader's address, and what it says.
async fn find(
    client: &reqwest::Client,
    bootstrap_server: &str,
) -> Result<(String, Quorum), AskError> {
    let mut url = bootstrap_server.to_owned();
    for _ in 0..=MAX_HOP_COUNT {
        let quorum = fetch(client, &url)
            .await
            .map_err(|error| no_answer(&url, &error))?;
        if quorum.role == "leader" {
            return Ok((url, quorum));
        }
        let others = quorum.leader.filter(|leader| *leader != quorum.id);
        let Some(leader_url) = others.and_then(|leader| quorum.endpoints.get(&leader)) else {
            return Err(AskError::NoLeader {
                node: quorum.id,
                url,
                epoch: quorum.epoch,
            });
        };
        url.clone_from(leader_url);
    }
    Err(AskError::Restless)
}

async fn fetch(client: &reqwest::Client, url: &str) -> reqwest::Result<Quorum> {
    let request = client.get(format!("{url}/quorum"));
    request.send().await?.error_for_status()?.json().await
}

fn no_answer(url: &str, error: &reqwest::Error) -> AskError {
    AskError::NoAnswer {
        url: url.to_owned(),
        reason: in_full(error),
    }
}

/// An error with its causes: the outermost one of an HTTP client rarely says what happened.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}
