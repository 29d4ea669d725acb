//! Owns how the voters of a cluster of processes change: whom the nemesis asks, and what they answer.
//! Never decides what is asked; the course of a change does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nemesis::membership::{
    Answer, Book, Course, Member, Outcome, Quorum, Step, Token, Told, VoterRequest,
};
use nemesis::view::ClusterView;
use node::ids::{NodeId, ReplicaKey};
use node::message::{AddRaftVoterRequest, RemoveRaftVoterRequest, Request};
use node::server::wire::{self, RequestKind};
use results::manifest::{Manifest, Voters};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use super::client::CLUSTER_HEADER;
use super::cluster::Cluster;

/// How long a node may take to describe its quorum.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);
/// How long an answer of a leader is waited for.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long a request stays under way at most; a node gives up earlier.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// How long a leader tries to add a voter, in milliseconds.
const ADD_TIMEOUT_MS: u64 = 1_000;

/// Who is a member, and the changes that are under way.
#[derive(Debug)]
pub(super) struct Membership {
    book: Mutex<Book>,
    voters: Voters,
    http: reqwest::Client,
    cluster_id: String,
    begun: Instant,
}

/// What a node says of its quorum, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Described {
    id: i32,
    role: String,
    epoch: i32,
    #[serde(default)]
    uncommitted_voter_change: bool,
    voters: Vec<DescribedVoter>,
}

#[derive(Debug, Deserialize)]
struct DescribedVoter {
    id: i32,
    #[serde(default)]
    directory_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Changed {
    error: String,
    #[serde(default)]
    message: String,
}

impl Membership {
    /// The members that the run begins with.
    ///
    /// # Errors
    /// When the HTTP library cannot be set up.
    pub(super) fn new(manifest: &Manifest) -> reqwest::Result<Self> {
        let options = &manifest.options;
        let member_count = options.first_nodes().len();
        let book = Book::new(options.all_nodes(), member_count, options.nodes as usize);
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            book: Mutex::new(book),
            voters: options.cluster.voters,
            http,
            cluster_id: manifest.name.clone(),
            begun: Instant::now(),
        })
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the voters are in the log.
    pub(super) fn can_change(&self) -> bool {
        self.voters == Voters::Log
    }

    /// The members, in order.
    pub(super) fn members(&self) -> Vec<String> {
        self.book().members().cloned().collect()
    }

    /// What is known of the cluster, for whoever draws targets.
    pub(super) fn view(&self, leader: Option<&str>) -> ClusterView {
        let view = self.book().view(leader);
        if self.can_change() {
            return view;
        }
        ClusterView {
            observers: None,
            ..view
        }
    }

    /// Goes through a course to its end.
    pub(super) async fn go(self: &Arc<Self>, cluster: &Cluster, mut course: Course) -> Outcome {
        let mut told = Told::Waited;
        loop {
            let now_ms = self.now_ms();
            let step = course.next(now_ms, told, &mut self.book());
            told = match step {
                Step::Describe => Told::Quorum(self.describe(cluster).await),
                Step::Start { node } => Told::Started(cluster.start(&node).await),
                Step::Stop { node } => Told::Stopped(cluster.dismiss(&node).await),
                Step::Wait { pause_ms } => {
                    sleep(Duration::from_millis(pause_ms)).await;
                    Told::Waited
                }
                Step::Ask {
                    leader,
                    request,
                    token,
                } => Told::Answered(self.ask(cluster, &leader, &request, token).await),
                Step::Done(outcome) => return outcome,
            };
        }
    }

    /// The time by which courses are measured.
    pub(super) fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// What the leader of the newest epoch says, of those who answer.
    async fn describe(&self, cluster: &Cluster) -> Option<Quorum> {
        let mut asked = tokio::task::JoinSet::new();
        for node in self.members() {
            let Some(address) = cluster.address(&node) else {
                continue;
            };
            let request = self
                .http
                .get(format!("http://{address}/quorum"))
                .header(CLUSTER_HEADER, &self.cluster_id)
                .timeout(DESCRIBE_LIMIT);
            asked.spawn(async move {
                let response = request.send().await.ok()?;
                response.json::<Described>().await.ok()
            });
        }
        let described = asked.join_all().await.into_iter().flatten();
        let leader = described
            .filter(|quorum| quorum.role == "leader")
            .max_by_key(|quorum| quorum.epoch)?;
        let voters = leader.voters.into_iter().map(|voter| Member {
            node: format!("n{}", voter.id),
            directory_id: voter.directory_id.unwrap_or_default(),
        });
        Some(Quorum {
            leader: format!("n{}", leader.id),
            voters: voters.collect(),
            is_change_pending: leader.uncommitted_voter_change,
        })
    }

    async fn ask(
        self: &Arc<Self>,
        cluster: &Cluster,
        leader: &str,
        request: &VoterRequest,
        token: Token,
    ) -> Answer {
        let prepared = self.wire_request(cluster, request).and_then(|request| {
            let address = cluster.address(leader);
            let address = address.ok_or_else(|| format!("{leader} does not run"))?;
            Ok((address, request))
        });
        let (address, request) = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                self.book().settled(token);
                return refused("REFUSED", message);
            }
        };
        let (this, leader) = (Arc::clone(self), leader.to_owned());
        // It goes on when nobody waits any more: as long as it may be carried out, that matters.
        let under_way = tokio::spawn(async move {
            match this.post(address, &request).await {
                Some(answer) => {
                    this.book().settled(token);
                    answer
                }
                None => {
                    this.book().given_up(token, &leader);
                    Answer::Silence
                }
            }
        });
        match timeout(PATIENCE, under_way).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Answer::Silence,
        }
    }

    /// `None` where the leader took the request and did not say what became of it.
    async fn post(&self, address: SocketAddr, request: &Request) -> Option<Answer> {
        let path = RequestKind::of(request).path();
        let sent = self
            .http
            .post(format!("http://{address}{path}"))
            .header(CLUSTER_HEADER, &self.cluster_id)
            .header("content-type", wire::JSON)
            .body(wire::encode_request(request))
            .timeout(REQUEST_LIMIT)
            .send()
            .await;
        let response = match sent {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                return Some(refused("CONNECTION_REFUSED", "it cannot be connected to"));
            }
            Err(_) => return None,
        };
        let status = response.status();
        if status.is_client_error() {
            return Some(refused(
                "REFUSED",
                format!("it answered with status {status}"),
            ));
        }
        let changed = response.json::<Changed>().await.ok()?;
        Some(match changed.error.as_str() {
            "NONE" => Answer::Done,
            code => refused(code, changed.message),
        })
    }

    fn wire_request(&self, cluster: &Cluster, request: &VoterRequest) -> Result<Request, String> {
        let cluster_id = self.cluster_id.clone();
        let key = |node: &str, directory_id: &str| -> Result<ReplicaKey, String> {
            let id = node.strip_prefix('n').and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| format!("{node} is no name of a node"))?;
            let directory_id = directory_id.parse();
            let directory_id =
                directory_id.map_err(|_| format!("the directory id of {node} is not known"))?;
            Ok(ReplicaKey {
                id: NodeId(id),
                directory_id: Some(directory_id),
            })
        };
        Ok(match request {
            VoterRequest::Add { node } => {
                let (directory_id, endpoint) = cluster.identity(node)?;
                Request::AddRaftVoter(AddRaftVoterRequest {
                    cluster_id,
                    timeout_ms: ADD_TIMEOUT_MS,
                    voter: key(node, &directory_id)?,
                    endpoint,
                    // The next change is asked for before this one is committed.
                    ack_when_committed: false,
                })
            }
            VoterRequest::Remove { voter } => Request::RemoveRaftVoter(RemoveRaftVoterRequest {
                cluster_id,
                voter: key(&voter.node, &voter.directory_id)?,
            }),
        })
    }
}

fn refused(code: &str, message: impl Into<String>) -> Answer {
    Answer::Refused {
        code: code.to_owned(),
        message: message.into(),
    }
}
