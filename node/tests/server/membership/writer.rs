//! Owns a client that goes on writing while the cluster changes under it.
//! Never counts a write that was not acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::server_support::members::Members;
use crate::server_support::{ask, client, eventually};

/// Appends 0, 1, 2 and so on to a list, each until it is acknowledged, in a thread of its own: the test
/// waits for tools meanwhile.
pub(crate) struct Writer {
    written_count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// A client that knows where these nodes are, and not who leads.
    pub(crate) fn start(members: &Members, ids: &[i32]) -> Self {
        let urls: Vec<_> = ids.iter().map(|id| members.url(*id, "")).collect();
        let (written_count, stop) = <(Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (count, stopped) = (Arc::clone(&written_count), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(write(&urls, &count, &stopped));
        });
        Self {
            written_count,
            stop,
            thread,
        }
    }

    /// Waits until more writes were acknowledged from now on.
    pub(crate) async fn goes_on(&self) {
        let before = self.written_count.load(Ordering::Relaxed);
        eventually("more writes", async || {
            (self.written_count.load(Ordering::Relaxed) > before + 2).then_some(())
        })
        .await;
    }

    /// Stops, and checks that every write is there once and in order.
    pub(crate) async fn finish(self, members: &Members) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let count = self.written_count.load(Ordering::Relaxed);
        let expected: Vec<_> = (0..count).collect();
        let found = eventually("a read", async || {
            let url = members.url(members.leader().await, "/lists/writes");
            let (status, body) = ask(members.client.get(url)).await.ok()?;
            (status == 200).then(|| body["value"].clone())
        })
        .await;
        assert_eq!(found, json!(expected));
    }
}

async fn write(urls: &[String], written_count: &AtomicU64, stop: &AtomicBool) {
    let client = client();
    let mut url = urls[0].clone();
    let mut turn = 0;
    loop {
        let number = written_count.load(Ordering::Relaxed);
        let is_written = append(&client, &mut url, number).await;
        written_count.fetch_add(u64::from(is_written), Ordering::Relaxed);
        // Not after a write without an answer: nobody would know whether it is there.
        if is_written && stop.load(Ordering::Relaxed) {
            return;
        }
        // Whoever was asked knows no leader, or is gone.
        if url.is_empty() {
            turn += 1;
            url.clone_from(&urls[turn % urls.len()]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether it was acknowledged; if not, `url` becomes that of the leader, or empty where that is not
/// known.
async fn append(client: &reqwest::Client, url: &mut String, number: u64) -> bool {
    let request = client.post(format!("{url}/lists/writes"));
    let request = request
        .header("x-client-id", "writer")
        .header("x-request-id", number)
        .timeout(Duration::from_secs(2))
        .json(&json!({ "value": number }));
    let answer = ask(request).await;
    let leader = match &answer {
        Ok((200, _)) => return true,
        Ok((421, body)) => body["leader"]["url"].as_str(),
        Ok(_) | Err(_) => None,
    };
    url.clear();
    url.push_str(leader.unwrap_or_default());
    false
}

/// The numbers that a node has applied.
pub(crate) async fn local_numbers(members: &Members, id: i32) -> Option<Vec<Value>> {
    let url = members.url(id, "/lists/writes?consistency=local");
    let (status, body) = ask(members.client.get(url)).await.ok()?;
    (status == 200).then(|| body["value"].as_array().cloned())?
}
