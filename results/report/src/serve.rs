//! Owns the local web server over a run store: list of runs, reports, files beside them.
//! Never serves anything outside the store, and never writes anything but rendered reports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use results::housekeeping::may_be_going_on;
use results::packed;
use results::store::{CAMPAIGNS, RunFolder, Store};
use tower_http::services::ServeDir;

use crate::error::{ReportError, Result};
use crate::host::Names;
use crate::index_page::Reached;
use crate::{archive, campaign_page, index_page, render_run};

/// The pages bring a stricter policy of their own; this one also covers recorded files.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How soon a page of a run that goes on is to be asked for again, in seconds.
const REFRESH: HeaderValue = HeaderValue::from_static("3");

#[derive(Clone)]
struct Site {
    store: Store,
    names: Names,
    /// One rendering at a time: two would write the same temporary file.
    rendering: Arc<tokio::sync::Mutex<()>>,
}

/// Serves the store until the future is dropped: `/` is the list of runs, rendered anew for every
/// request; `/<run>/` is the report of a run, rendered anew when the recording is newer; `/<run>.tar.gz` is
/// all of it in one file; `/campaigns/<name>.html` is a campaign, rendered anew for every request. Pages of what
/// goes on ask for themselves again.
///
/// Which addresses can reach it is decided by the listener alone. It answers to addresses, to `localhost` and to
/// `names`: by any other name, a page of another site could read what is served to this machine.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(store: Store, listener: std::net::TcpListener, names: Names) -> Result<()> {
    let root = store.root().to_path_buf();
    let trouble = |source| ReportError::Serve {
        store: root.clone(),
        source,
    };
    listener.set_nonblocking(true).map_err(trouble)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(trouble)?;
    axum::serve(listener, router(store, names))
        .await
        .map_err(trouble)
}

fn router(store: Store, names: Names) -> Router {
    let files = ServeDir::new(store.root());
    let site = Site {
        store,
        names,
        rendering: Arc::default(),
    };
    Router::new()
        .fallback_service(files)
        .layer(middleware::from_fn_with_state(site, guard))
}

/// Decides about every request before a file is touched.
async fn guard(State(site): State<Site>, request: Request, next: Next) -> Response {
    if !is_meant(&site.names, &request) {
        let answer = "This server does not go by that name. Use its address, or start it with --host NAME.\n";
        return protected((StatusCode::MISDIRECTED_REQUEST, answer).into_response());
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let answer = "Only GET and HEAD are served here.\n";
        return protected((StatusCode::METHOD_NOT_ALLOWED, answer).into_response());
    }
    let Some(segments) = segments(request.uri().path()) else {
        return not_found();
    };
    if segments.is_empty() || segments == ["index.html"] {
        return protected(list(&site).await);
    }
    if let [folder, page] = segments.as_slice()
        && folder == CAMPAIGNS
        && let Some(name) = page.strip_suffix(".html")
    {
        return protected(campaign(&site, name).await);
    }
    if let Some(run) = archive::asked_for(&segments) {
        return match resolve(site.store.root(), &[run.to_owned()]) {
            Some(path) if path.is_dir() => protected(download(&path)),
            _ => not_found(),
        };
    }
    let Some(path) = resolve(site.store.root(), &segments) else {
        return not_found();
    };
    let is_report = match segments.len() {
        1 => path.is_dir(),
        2 => segments[1] == "index.html",
        _ => false,
    };
    let is_live = is_report && refresh(&site, &path).await;
    let kind = content_type(&segments, is_report);
    let mut response = next.run(request).await;
    if response.status().is_success() || response.status() == StatusCode::PARTIAL_CONTENT {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if is_live {
            headers.insert(header::REFRESH, REFRESH);
        }
    } else if response.status() == StatusCode::NOT_FOUND {
        return not_found();
    }
    protected(response)
}

/// Whether every name that the request has for this server is one of its own. Browsers always send one.
fn is_meant(names: &Names, request: &Request) -> bool {
    let in_address = request.uri().authority().map(|it| it.as_str());
    let headers = request.headers().get_all(header::HOST).into_iter();
    let mut hosts = headers
        .map(|host| host.to_str().unwrap_or_default())
        .chain(in_address);
    hosts.all(|host| names.include(host))
}

async fn list(site: &Site) -> Response {
    let store = site.store.clone();
    let page = tokio::task::spawn_blocking(move || index_page::page(&store, Reached::Served));
    answer(page.await, "The list of runs could not be rendered.")
}

/// A campaign, rendered anew: the runs it names may be gone, and it may still be going on.
async fn campaign(site: &Site, name: &str) -> Response {
    let (store, name) = (site.store.clone(), name.to_owned());
    let page = tokio::task::spawn_blocking(move || {
        // Not to be told from one that is damaged: neither has anything to show.
        let campaign = store.campaign(&name).ok()?;
        let is_live = campaign.may_be_going_on();
        Some(campaign_page::page(&store, &campaign).map(|page| (page, is_live)))
    });
    match page.await {
        Ok(None) => not_found(),
        Ok(Some(page)) => answer(Ok(page), ""),
        Err(error) => answer(Err(error), "The campaign could not be rendered."),
    }
}

/// A page with whether it is to be asked for again.
fn answer(
    page: std::result::Result<Result<(String, bool)>, tokio::task::JoinError>,
    panicked: &str,
) -> Response {
    match page {
        Ok(Ok((page, is_live))) => {
            let mut response = Html(page).into_response();
            if is_live {
                response.headers_mut().insert(header::REFRESH, REFRESH);
            }
            response
        }
        Ok(Err(error)) => failure(&error.to_string()),
        Err(_) => failure(panicked),
    }
}

/// Files that grow cannot be packed: their sizes are written before their content.
fn download(run: &Path) -> Response {
    let folder = RunFolder::at(run);
    match folder.manifest() {
        Ok(manifest) if may_be_going_on(&folder, &manifest) => {
            let answer = "This run is still going on; ask again when it has ended.\n";
            (StatusCode::CONFLICT, answer).into_response()
        }
        Ok(_) => archive::response(run),
        Err(_) => not_found(),
    }
}

fn failure(reason: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")).into_response()
}

fn not_found() -> Response {
    let answer = "There is no such run or file in this store.\n";
    protected((StatusCode::NOT_FOUND, answer).into_response())
}

fn protected(mut response: Response) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Renders the report when it is missing or older than the recording. A failure is not the end: an
/// older report may still be there, and without one the answer is 404. Says whether the run goes on.
async fn refresh(site: &Site, run: &Path) -> bool {
    let folder = match run.is_dir() {
        true => run.to_path_buf(),
        false => run.parent().map(Path::to_path_buf).unwrap_or_default(),
    };
    let folder = RunFolder::at(folder);
    let _one_at_a_time = site.rendering.lock().await;
    let rendered = tokio::task::spawn_blocking(move || {
        // How a run without a verdict stands changes without any change of its files.
        if is_stale(&folder) || !folder.verdict_path().exists() {
            let _ = render_run(&folder);
        }
        let manifest = folder.manifest();
        manifest.is_ok_and(|manifest| may_be_going_on(&folder, &manifest))
    });
    rendered.await.unwrap_or(false)
}

fn is_stale(folder: &RunFolder) -> bool {
    let modified = |path: PathBuf| -> Option<SystemTime> {
        std::fs::metadata(path)
            .and_then(|about| about.modified())
            .ok()
    };
    let recorded = [
        folder.manifest_path(),
        packed::present(&folder.history_path()),
        folder.schedule_path(),
        folder.verdict_path(),
    ];
    let newest = recorded.into_iter().filter_map(modified).max();
    newest.is_some_and(|newest| modified(folder.report_path()).is_none_or(|done| done < newest))
}

/// The decoded segments of a URL path; `None` for anything that could leave the store.
fn segments(path: &str) -> Option<Vec<String>> {
    let mut segments = Vec::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        let segment = decode(segment)?;
        let hidden = segment.starts_with('.');
        if hidden || segment.contains(['/', '\\', '\0']) {
            return None;
        }
        segments.push(segment);
    }
    Some(segments)
}

fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The real path behind the segments, provided that it exists inside the store after every link on
/// the way was followed.
fn resolve(root: &Path, segments: &[String]) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let path = root.join(segments.iter().collect::<PathBuf>());
    match path.canonicalize() {
        Ok(path) => path.starts_with(&root).then_some(path),
        // A report that was never rendered is rendered on request.
        Err(_) if segments.len() == 2 && segments[1] == "index.html" => {
            let folder = path.parent()?.canonicalize().ok()?;
            let inside = folder.starts_with(&root) && folder != root && folder.is_dir();
            inside.then(|| folder.join("index.html"))
        }
        Err(_) => None,
    }
}

/// Recorded files are text or data: only reports that we rendered may run as pages.
fn content_type(segments: &[String], is_report: bool) -> &'static str {
    if is_report {
        return "text/html; charset=utf-8";
    }
    let name = segments.last().map(String::as_str).unwrap_or_default();
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("svg") if segments.len() == 2 => "image/svg+xml",
        Some("xml") if segments.len() == 2 => "application/xml",
        Some("jsonl" | "log" | "txt" | "html" | "svg" | "xml") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_leave_the_store_are_refused() {
        for path in [
            "/..",
            "/a/../b",
            "/%2e%2e/x",
            "/a/%2e%2E",
            "/a%2f..%2fb",
            "/a%5cb",
            "/a%00",
            "/.git",
            "/%zz",
            "/%f",
        ] {
            assert_eq!(segments(path), None, "{path}");
        }
        assert_eq!(segments("//a//b%20c/").unwrap(), ["a", "b c"]);
        assert!(segments("/").unwrap().is_empty());
    }

    #[test]
    fn only_reports_are_pages() {
        let kind = |path: &str| {
            let segments = segments(path).unwrap();
            content_type(&segments, false)
        };
        assert_eq!(kind("/run/nodes/n1/evil.html"), "text/plain; charset=utf-8");
        assert_eq!(kind("/run/latency.svg"), "image/svg+xml");
        assert_eq!(kind("/run/nodes/n1/x.svg"), "text/plain; charset=utf-8");
        assert_eq!(kind("/run/history.jsonl"), "text/plain; charset=utf-8");
        assert_eq!(
            kind("/run/nodes/n1/data/0.log.bin"),
            "application/octet-stream"
        );
    }
}
