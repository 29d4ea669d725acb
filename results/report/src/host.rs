//! Owns by which names the server answers: a page of another site must not read it under a name of its own.
//! Never decides who can connect; the listener does.

use std::net::{IpAddr, Ipv6Addr};

/// Names besides addresses and `localhost` that a server goes by.
#[derive(Debug, Clone, Default)]
pub struct Names {
    list: Vec<String>,
}

impl Names {
    /// These names, however they are written.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let list = names.into_iter().map(|name| plain(&name));
        Self {
            list: list.collect(),
        }
    }

    /// Whether a request for `host`, with or without a port, is meant for this server. An address is: only a name
    /// can be made to point here by somebody else (DNS rebinding).
    pub(crate) fn include(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        let name = plain(name);
        let is_address = name.parse::<IpAddr>().is_ok() || is_bracketed_address(&name);
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_address || is_local || self.list.contains(&name)
    }
}

/// Names are the same in upper and lower case, and with the root's dot.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_bracketed_address(name: &str) -> bool {
    let inside = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inside.is_some_and(|inside| inside.parse::<Ipv6Addr>().is_ok())
}

fn without_port(host: &str) -> Option<&str> {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
            is_port.then_some(name)
        }
        _ => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_meant_and_others_are_not() {
        let names = Names::new(["Buildbox.example.".to_owned()]);
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "[::1]:8080",
            "[::1]",
            "192.0.2.7:80",
            "localhost",
            "LOCALHOST:8080",
            "localhost.:1",
            "runs.localhost",
            "buildbox.example:8080",
            "BUILDBOX.EXAMPLE.",
        ] {
            assert!(names.include(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "buildbox",
            "notlocalhost",
            "localhost:80:80",
            "[::1",
            "::1]:80",
            "localhost:80@evil.example",
        ] {
            assert!(!names.include(host), "{host}");
        }
    }
}
