//! The documents of what is no transfer: files that are read where they are, and streams of a program's own data.

use std::net::SocketAddr;

use farhaul_copy::{Location, LocationSpec};
use farhaul_session::NetworkOptions;
use farhaul_stream::{ListenOptions, StreamOptions, StreamTarget};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

use super::connection::path;
use super::{Connection, location, read};

/// A place whose files are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadDocument {
    /// The place, written as on the command line. Later paths begin there.
    pub location: String,
    /// How content travels.
    #[serde(default)]
    pub network: NetworkOptions,
    /// How to get to the host.
    #[serde(default)]
    pub connection: Connection,
}

impl ReadDocument {
    /// Reads the document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<ReadDocument, Error> {
        read(text, "the document of a read")
    }

    /// The place.
    pub fn place(&self) -> Result<Location, Error> {
        let place = location(&self.location)?;
        if place == LocationSpec::Pipe || place.is_made() || place.is_sink() {
            let what = "pipes and null:, zero: or random: cannot be looked at; name files or directories";
            return Err(Error::new(Code::BadLocation, what));
        }
        self.connection.locate(&place)
    }
}

/// A stream that this end begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamDocument {
    /// The host, and no path: `fh://host[:port]`, or `[user@]host` for a program that ssh starts there.
    pub target: String,
    /// The stream's name.
    pub name: String,
    /// True to hand blocks out in the order in which they were put.
    #[serde(default)]
    pub in_order: bool,
    /// True for a digest of each block, which guards against faulty memory.
    #[serde(default)]
    pub digests: bool,
    /// How content travels.
    #[serde(default)]
    pub network: NetworkOptions,
    /// How to get to the host.
    #[serde(default)]
    pub connection: Connection,
}

impl StreamDocument {
    /// Reads the document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<StreamDocument, Error> {
        read(text, "the document of a stream")
    }

    /// The options of the stream.
    pub fn options(&self) -> StreamOptions {
        let StreamDocument { name, in_order, digests, network, .. } = self;
        StreamOptions {
            in_order: *in_order,
            digests: *digests,
            network: network.clone(),
            ..StreamOptions::new(name.clone())
        }
    }

    /// The program at the other end.
    pub fn target(&self) -> Result<StreamTarget, Error> {
        let place = LocationSpec::parse_host(std::ffi::OsStr::new(&self.target))?;
        match self.connection.locate(&place)? {
            Location::Ssh { target, .. } => Ok(StreamTarget::Ssh(target)),
            Location::Daemon { target, .. } => Ok(StreamTarget::Daemon(target)),
            Location::Local(_) | Location::Pipe => {
                Err(Error::new(Code::BadLocation, "a stream goes to another program: name its host"))
            }
        }
    }
}

/// A place where this program waits for streams.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenDocument {
    /// Addresses and ports, each for UDP and TCP; port 0 lets the system choose. Default: all, at the usual port.
    pub listen: Vec<SocketAddr>,
    /// The file of this program's own key.
    pub identity: Option<String>,
    /// The file of public keys that are let in.
    pub authorized_keys: Option<String>,
    /// The names of streams that clients may ask for; empty allows any.
    pub names: Vec<String>,
    /// True if the other end may send blocks unencrypted.
    pub allow_cipher_none: bool,
    /// The most bytes of blocks that one stream may have here.
    pub memory_max: Option<u64>,
}

impl ListenDocument {
    /// Reads the document. The error for an unknown field says where it is.
    pub fn read(text: &[u8]) -> Result<ListenDocument, Error> {
        read(text, "the document of a listener")
    }

    /// The options of the listener.
    pub fn options(&self) -> Result<ListenOptions, Error> {
        let usual = ListenOptions::default();
        let given = |text: &Option<String>| text.as_deref().map(path).transpose();
        Ok(ListenOptions {
            listen: if self.listen.is_empty() { usual.listen } else { self.listen.clone() },
            identity: given(&self.identity)?.unwrap_or(usual.identity),
            authorized_keys: given(&self.authorized_keys)?.unwrap_or(usual.authorized_keys),
            names: self.names.clone(),
            allow_cipher_none: self.allow_cipher_none,
            memory_max: self.memory_max.unwrap_or(usual.memory_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_or_streamed_to_is_refused() {
        let place = |text: &str| {
            ReadDocument::read(format!(r#"{{"location": "{text}"}}"#).as_bytes()).unwrap().place()
        };
        assert!(matches!(place("h:x"), Ok(Location::Ssh { .. })));
        for text in ["-", "null:", "zero:4"] {
            assert!(place(text).is_err(), "{text}");
        }
        let target = |text: &str| {
            let document = format!(r#"{{"target": "{text}", "name": "frames", "in_order": true}}"#);
            let document = StreamDocument::read(document.as_bytes()).unwrap();
            assert!(document.options().in_order);
            document.target()
        };
        assert!(matches!(target("fh://h:9"), Ok(StreamTarget::Daemon(target)) if target.port == 9));
        assert!(matches!(target("u@h"), Ok(StreamTarget::Ssh(_))));
        assert!(target("fh://h/path").is_err());
        let listen = ListenDocument::read(br#"{"listen": ["127.0.0.1:0"], "names": ["frames"]}"#).unwrap();
        assert_eq!(listen.options().unwrap().listen.len(), 1);
        assert!(ListenDocument::read(br#"{"port": 1}"#).is_err());
    }
}
