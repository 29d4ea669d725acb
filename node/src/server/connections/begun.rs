//! Owns a stream of which somebody has read the beginning already.
//! Never loses or repeats a byte of it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream, and what was read of it before.
#[derive(Debug)]
pub(super) struct Begun<S> {
    beginning: Vec<u8>,
    given_bytes: usize,
    stream: S,
}

impl<S> Begun<S> {
    pub(super) fn new(beginning: Vec<u8>, stream: S) -> Self {
        Self {
            beginning,
            given_bytes: 0,
            stream,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.beginning[self.given_bytes..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let fits_bytes = left.len().min(into.remaining());
        into.put_slice(&left[..fits_bytes]);
        self.given_bytes += fits_bytes;
        if self.given_bytes == self.beginning.len() {
            self.beginning = Vec::new();
            self.given_bytes = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn the_beginning_comes_first_in_pieces_of_any_size() {
        for piece_bytes in 1..8 {
            let mut begun = Begun::new(b"begin".to_vec(), &b"ning"[..]);
            let mut read = Vec::new();
            loop {
                let mut piece = vec![0; piece_bytes];
                match begun.read(&mut piece).await.unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&piece[..count]),
                }
            }
            assert_eq!(read, b"beginning");
        }
    }
}
