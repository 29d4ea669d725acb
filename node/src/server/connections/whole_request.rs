//! Owns what is recognised at once: a request for one object, or a fetch of a peer, in one piece and in plain words.
//! Never decides on anything else, and never takes a request for less than it says.

use std::ops::Range;

use crate::machine::Kind;
use crate::raft::Correlation;
use crate::server::operations::{OBJECT_PATHS, method_of_change};
use crate::server::wire::{self, RequestKind};

/// How many headers such a request has at most.
const MAX_HEADER_COUNT: usize = 24;

/// Headers that change what a request or its body is: not plain.
const NOT_PLAIN: [&str; 6] = [
    "connection",
    "transfer-encoding",
    "expect",
    "upgrade",
    "te",
    "trailer",
];

/// Somebody asks for something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WholeRequest<'a> {
    pub(super) asked: Asked<'a>,
    /// Where its body is.
    pub(super) body: Range<usize>,
    /// The headers, without its length.
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// A peer's fetch.
    Fetch,
    /// To read an object.
    Read(Kind, &'a str),
    /// To set a register, or to add to another object.
    Change(Kind, &'a str),
}

impl<'a> WholeRequest<'a> {
    /// `None` for everything else, and for what is not all there, or more than that.
    pub(super) fn parse(received: &'a [u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADER_COUNT];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(head_bytes)) = request.parse(received) else {
            return None;
        };
        if request.version != Some(1) {
            return None;
        }
        let asked = asked(request.method?, request.path?)?;
        let mut length = None;
        let mut others = Vec::with_capacity(request.headers.len());
        for header in request.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                if length.is_some() {
                    return None;
                }
                length = Some(wire::content_length(header.value)?);
            } else if NOT_PLAIN.into_iter().any(is) {
                return None;
            } else {
                others.push((header.name, header.value));
            }
        }
        let body_bytes = match asked {
            Asked::Read(..) => length.unwrap_or(0),
            _ => length?,
        };
        let body = head_bytes..head_bytes.checked_add(body_bytes)?;
        (body.end == received.len()).then_some(Self {
            asked,
            body,
            headers: others,
        })
    }

    /// What a header says that is there.
    pub(super) fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    }

    /// What a peer calls its request.
    pub(super) fn correlation(&self) -> Option<Correlation> {
        let value = self.header(wire::CORRELATION_HEADER)?;
        wire::correlation_of(str::from_utf8(value).ok()?)
    }
}

fn asked<'a>(method: &str, target: &'a str) -> Option<Asked<'a>> {
    if target == RequestKind::Fetch.path() {
        return (method == "POST").then_some(Asked::Fetch);
    }
    let (name, key) = target.strip_prefix('/')?.split_once('/')?;
    let (_, kind) = OBJECT_PATHS.into_iter().find(|(known, _)| *known == name)?;
    // What needs no decoding, and has no query behind it.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_plain) {
        return None;
    }
    match method {
        "GET" => Some(Asked::Read(kind, key)),
        _ if method_of_change(kind) == method => Some(Asked::Change(kind, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
        format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n{body}").into_bytes()
    }

    #[test]
    fn what_comes_in_one_piece_is_known() {
        let headers = "X-Kraft-Correlation: 7\r\nContent-Length: 2\r\n";
        let whole = request("POST /raft/fetch", headers, "{}");
        let end = whole.len();
        let known = WholeRequest::parse(&whole).unwrap();
        assert_eq!((known.asked, &known.body), (Asked::Fetch, &(end - 2..end)));
        assert_eq!(known.correlation(), Some(Correlation(7)));
        assert_eq!(known.header("Host"), Some(&b"x"[..]));
        for length in 0..end {
            let part = WholeRequest::parse(&whole[..length]);
            assert_eq!(part, None, "{length} bytes are not all");
        }
        let two = [&whole[..], &whole].concat();
        assert_eq!(WholeRequest::parse(&two), None, "nor is more than one");
        let read = request("GET /sets/a-b_c.1~", "accept: */*\r\n", "");
        let asked = WholeRequest::parse(&read).unwrap().asked;
        assert_eq!(asked, Asked::Read(Kind::Set, "a-b_c.1~"));
    }

    #[test]
    fn objects_are_changed_by_the_methods_that_they_take() {
        let change = |line: &str| {
            let whole = request(line, "content-length: 2\r\n", "{}");
            let known = WholeRequest::parse(&whole)?;
            let Asked::Change(kind, key) = known.asked else {
                return None;
            };
            assert_eq!(key, "k");
            Some(kind)
        };
        assert_eq!(change("PUT /registers/k"), Some(Kind::Register));
        assert_eq!(change("POST /lists/k"), Some(Kind::List));
        assert_eq!(change("POST /counters/k"), Some(Kind::Counter));
        for line in [
            "POST /registers/k",
            "PUT /sets/k",
            "PUT /registers/",
            "PUT /registers/k/",
            "PUT /registers/k?a=b",
            "PUT /registers/%6B",
            "PUT //registers/k",
            "PUT /Registers/k",
            "POST /registers/k/compare-and-set",
            "PUT http://x/registers/k",
            "PUT /raft/fetch",
            "POST /raft/vote",
        ] {
            assert_eq!(change(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_server_for_everything() {
        for headers in [
            "",
            "content-length: 2\r\ncontent-length: 2\r\n",
            "content-length: +2\r\n",
            "content-length: 2, 2\r\n",
            "content-length: 18446744073709551615\r\n",
            "content-length: 2\r\nTransfer-Encoding: chunked\r\n",
            "content-length: 2\r\nconnection: close\r\n",
            "content-length: 2\r\nexpect: 100-continue\r\n",
        ] {
            let whole = request("PUT /registers/k", headers, "{}");
            assert_eq!(WholeRequest::parse(&whole), None, "{headers}");
        }
        let old = b"GET /registers/k HTTP/1.0\r\n\r\n";
        assert_eq!(WholeRequest::parse(old), None);
    }
}
