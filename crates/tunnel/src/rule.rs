//! What `farhaul tunnel` is asked for: where connections come in, and where they lead, as ssh writes it.

use farhaul_words::{Code, Error};

use crate::targets::Target;

/// A place to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPlace {
    /// A name or an address of the host; the loopback interface if it is empty, everything if it is `*`.
    pub bind: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// One way of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forward {
    /// This end listens, and the far end connects to the target.
    Local {
        /// Where this end listens.
        at: ListenPlace,
        /// Where the far end connects to.
        target: Target,
    },
    /// The far end listens, and this end connects to the target.
    Remote {
        /// Where the far end listens.
        at: ListenPlace,
        /// Where this end connects to.
        target: Target,
    },
    /// This end listens for clients of SOCKS 5, which name their targets.
    Dynamic {
        /// Where this end listens.
        at: ListenPlace,
    },
}

impl Forward {
    /// Reads `[BIND:]PORT:HOST:PORT`, as for -L.
    pub fn local(text: &str) -> Result<Forward, Error> {
        both(text).map(|(at, target)| Forward::Local { at, target })
    }

    /// Reads `[BIND:]PORT:HOST:PORT`, as for -R.
    pub fn remote(text: &str) -> Result<Forward, Error> {
        both(text).map(|(at, target)| Forward::Remote { at, target })
    }

    /// Reads `[BIND:]PORT`, as for -D.
    pub fn dynamic(text: &str) -> Result<Forward, Error> {
        let wrong = || bad(text, "[BIND:]PORT");
        let at = match &split(text).ok_or_else(wrong)?[..] {
            [port] => place(None, port),
            [bind, port] => place(Some(bind), port),
            _ => None,
        };
        Ok(Forward::Dynamic { at: at.ok_or_else(wrong)? })
    }

    /// The option's letter.
    pub fn letter(&self) -> &'static str {
        match self {
            Forward::Local { .. } => "L",
            Forward::Remote { .. } => "R",
            Forward::Dynamic { .. } => "D",
        }
    }

    /// Where connections come in.
    pub fn at(&self) -> &ListenPlace {
        match self {
            Forward::Local { at, .. } | Forward::Remote { at, .. } | Forward::Dynamic { at } => at,
        }
    }

    /// Where connections lead, unless their clients say that.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Forward::Local { target, .. } | Forward::Remote { target, .. } => Some(target),
            Forward::Dynamic { .. } => None,
        }
    }
}

impl std::fmt::Display for ListenPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.bind.is_empty() { "localhost".into() } else { self.bind.clone() };
        Target { host, port: self.port }.fmt(f)
    }
}

fn both(text: &str) -> Result<(ListenPlace, Target), Error> {
    let wrong = || bad(text, "[BIND:]PORT:HOST:PORT");
    let (at, host, port) = match &split(text).ok_or_else(wrong)?[..] {
        [at, host, port] => (place(None, at), *host, *port),
        [bind, at, host, port] => (place(Some(bind), at), *host, *port),
        _ => return Err(wrong()),
    };
    let port = port.parse::<u16>().ok().filter(|&port| port > 0 && is_host(host));
    at.zip(port).map(|(at, port)| (at, Target { host: host.into(), port })).ok_or_else(wrong)
}

fn place(bind: Option<&str>, port: &str) -> Option<ListenPlace> {
    let port = port.parse().ok()?;
    let bind = match bind {
        None => String::new(),
        Some("" | "*") => "*".into(),
        Some(bind) if is_host(bind) => bind.into(),
        Some(_) => return None,
    };
    Some(ListenPlace { bind, port })
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= crate::messages::HOST_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The parts between colons; what stands in brackets is one part.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (part, behind) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (part, behind) = inner.split_once(']')?;
                (part, behind)
            }
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        parts.push(part);
        match behind.strip_prefix(':') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

fn bad(text: &str, form: &str) -> Error {
    Error::new(Code::BadOption, format!("{text}: write {form}, with addresses of IPv6 in brackets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_written_as_for_ssh() {
        let local = |bind: &str, port, host: &str, to| Forward::Local {
            at: ListenPlace { bind: bind.into(), port },
            target: Target { host: host.into(), port: to },
        };
        for (text, expected) in [
            ("5432:db:5432", local("", 5432, "db", 5432)),
            ("0:db:1", local("", 0, "db", 1)),
            ("*:80:db:1", local("*", 80, "db", 1)),
            (":80:db:1", local("*", 80, "db", 1)),
            ("10.0.0.1:80:[::1]:1", local("10.0.0.1", 80, "::1", 1)),
            ("[fd00::1]:80:[fd00::2]:1", local("fd00::1", 80, "fd00::2", 1)),
        ] {
            assert_eq!(Forward::local(text).unwrap(), expected, "{text}");
        }
        let at = |bind: &str, port| Forward::Dynamic { at: ListenPlace { bind: bind.into(), port } };
        assert_eq!(Forward::dynamic("1080").unwrap(), at("", 1080));
        assert_eq!(Forward::dynamic("[::1]:1080").unwrap(), at("::1", 1080));
        assert_eq!(Forward::remote("[::1]:80:h:1").unwrap().at().to_string(), "[::1]:80");
    }

    #[test]
    fn what_is_no_way_is_refused_with_the_form_that_is_wanted() {
        for text in [
            "",
            "80",
            "80:db",
            "80:db:0",
            "80::1",
            "x:db:1",
            "80:db:1:2:3",
            "[::1:80:db:1",
            "[::1]x:80:db:1",
            "80:d b:1",
            "99999:db:1",
        ] {
            let error = Forward::local(text).unwrap_err();
            assert!(
                error.code() == Code::BadOption && error.what().contains("[BIND:]PORT:HOST:PORT"),
                "{text}"
            );
        }
        assert!(Forward::dynamic("a:b:1").is_err() && Forward::dynamic("").is_err());
    }
}
