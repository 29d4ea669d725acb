//! Owns what tests of links do with the two ends of a connection.
//! Never knows which link it runs over.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Far longer than anything takes, so that only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(30);
/// Long enough that bytes which were going to arrive would have.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANG, future).await.expect("this hangs")
}

pub(crate) async fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut received = vec![0; expected.len()];
    within(stream.read_exact(&mut received)).await.unwrap();
    assert!(received == expected, "the bytes differ");
}

pub(crate) async fn expect_reset(stream: &mut TcpStream) {
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(crate) async fn expect_silence(stream: &mut TcpStream) {
    let read = timeout(QUIET, stream.read_u8()).await;
    assert!(read.is_err(), "something arrived: {read:?}");
}
