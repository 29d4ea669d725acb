//! Owns a run folder as one compressed file to take away.
//! Never follows a link, and never holds more of the archive than the reader is about to take.

use std::io::{self, Write};
use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::channel::{Channel, Sender};
use tokio::runtime::Handle;

/// What the name of a run ends with where its archive is meant.
pub(crate) const ENDING: &str = ".tar.gz";
/// How many pieces may wait for the reader.
const PIECES_WAITING: usize = 4;
/// Size of a piece, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The run whose archive a path asks for.
pub(crate) fn asked_for(segments: &[String]) -> Option<&str> {
    match segments {
        [only] => only.strip_suffix(ENDING).filter(|run| !run.is_empty()),
        _ => None,
    }
}

/// The archive of a run folder, made while it is sent.
pub(crate) fn response(run: &Path) -> Response {
    let (sender, body) = Channel::<Bytes, io::Error>::new(PIECES_WAITING);
    let (run, runtime) = (run.to_path_buf(), Handle::current());
    tokio::task::spawn_blocking(move || {
        let pieces = Pieces { sender, runtime };
        let mut pieces = io::BufWriter::with_capacity(PIECE_BYTES, pieces);
        let written = write(&run, &mut pieces).and_then(|()| pieces.flush());
        // A reader who is told nothing takes half an archive for a whole one.
        if let (Err(error), Ok(pieces)) = (written, pieces.into_inner()) {
            pieces.sender.abort(error);
        }
    });
    let mut response = Body::new(body).into_response();
    let kind = HeaderValue::from_static("application/gzip");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Writes all files and folders of a run.
fn write(run: &Path, to: &mut dyn Write) -> io::Result<()> {
    let name = run.file_name().unwrap_or(run.as_os_str());
    let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::fast()));
    archive.follow_symlinks(false);
    archive.append_dir_all(name, run)?;
    archive.into_inner()?.finish()?;
    Ok(())
}

struct Pieces {
    sender: Sender<Bytes, io::Error>,
    runtime: Handle,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.sender.send_data(Bytes::copy_from_slice(bytes));
        let sent = self.runtime.block_on(sent);
        // The reader went away.
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
