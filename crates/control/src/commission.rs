//! The commission, which tells a daemon what to copy: one JSON document.
//!
//! Always true: a peer's document is checked in [`Commission::read`] before anything acts on it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_connect::PinnedTarget;
use farhaul_connect::hello::HelloSecret;
use farhaul_copy::CopyRequest;
use farhaul_session::options::NetworkOptions;
use farhaul_text::printable;
use farhaul_words::{Code, Error};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most bytes of the document: it has room for all paths that a command line can hold (at most 6 MiB on
/// Linux), and for the other options.
pub(crate) const COMMISSION_MAX: usize = 16 << 20;
/// The most addresses that a host may have beside its name.
pub(crate) const ADDRESSES_MAX: usize = 16;
const HOST_MAX: usize = 255;
const KEY_MAX: usize = 64;
const PATH_MAX: usize = 4095;

/// A copy with another daemon.
#[derive(Debug, Clone)]
pub(crate) struct Commission {
    /// The request as the client would make it itself: which of its paths to read, or where to write.
    pub(crate) copy: CopyRequest,
    pub(crate) far: RemoteDaemon,
    /// Whether the client wants to know what becomes of each entry.
    pub(crate) details: bool,
}

/// The other daemon, and the path to read or write there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteDaemon {
    pub(crate) host: String,
    /// The addresses that the client finds for that host.
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// The fingerprint of its key.
    pub(crate) key: String,
    #[serde(with = "as_base64")]
    pub(crate) path: Vec<u8>,
    pub(crate) grant: HelloSecret,
}

#[derive(Serialize, Deserialize)]
struct Document {
    copy: serde_json::Value,
    network: NetworkOptions,
    far: RemoteDaemon,
    #[serde(default)]
    details: bool,
}

impl RemoteDaemon {
    pub(crate) fn target(&self) -> PinnedTarget {
        let RemoteDaemon { host, addresses, port, key, grant, .. } = self.clone();
        PinnedTarget { host, addresses, port, key, grant }
    }
}

impl Commission {
    pub(crate) fn write(&self) -> Result<Vec<u8>, Error> {
        let words = self.copy.words()?;
        let untold = |error: serde_json::Error| {
            Error::new(Code::Misuse, format!("the options cannot be sent to the far end: {error}"))
        };
        let copy = serde_json::from_slice(&words).map_err(untold)?;
        let network = self.copy.options.network.clone();
        let document = Document { copy, network, far: self.far.clone(), details: self.details };
        let bytes = serde_json::to_vec(&document).map_err(untold)?;
        match bytes.len() <= COMMISSION_MAX {
            true => Ok(bytes),
            false => {
                let what = format!("paths and filters take more than {} MiB", COMMISSION_MAX >> 20);
                Err(Error::new(Code::BadOption, what).with_hint("copy in several runs"))
            }
        }
    }

    /// Checks the document, which only this function does; what the client may do is checked elsewhere.
    pub(crate) fn read(bytes: &[u8]) -> Result<Commission, Error> {
        let bad = |what: String| {
            Error::new(Code::BadRequest, format!("the far end cannot understand the request: {what}"))
        };
        let wrong = |error: serde_json::Error| bad(printable(error.to_string().as_bytes(), 120));
        let Document { copy, network, far, details } = serde_json::from_slice(bytes).map_err(wrong)?;
        let words = serde_json::to_vec(&copy).map_err(wrong)?;
        let copy = CopyRequest::read(&words, &network.checked()?)?;
        let options = &copy.options;
        let is_spread = !options.spread.source.is_empty() || !options.spread.target.is_empty();
        if copy.more_paths > 0 {
            return Err(bad("it announces paths that it does not contain".into()));
        }
        if is_spread || options.select.by_name || !options.network.paths.is_empty() {
            return Err(bad("a copy between daemons has no `spread`, `files-from` and `path`".into()));
        }
        let RemoteDaemon { host, addresses, port, key, path, .. } = &far;
        let is_host = !host.is_empty() && host.len() <= HOST_MAX && !host.contains('\0');
        if !is_host || addresses.len() > ADDRESSES_MAX || *port == 0 {
            return Err(bad("the other daemon's address is not valid".into()));
        }
        if key.len() > KEY_MAX || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("the other daemon's key is not valid".into()));
        }
        if path.len() > PATH_MAX || path.contains(&0) {
            return Err(bad("the path at the other daemon is not valid".into()));
        }
        Ok(Commission { copy, far, details })
    }
}

mod as_base64 {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use farhaul_copy::CopyDirection;
    use serde_json::{Value, json};

    use super::*;

    fn commission() -> Commission {
        let network = NetworkOptions { flows: 3, ..NetworkOptions::default() };
        let paths = vec![b"run7/\xff".to_vec(), b"b".to_vec()];
        let copy = CopyRequest::new(CopyDirection::Pull, paths, network.into());
        let far = RemoteDaemon {
            host: "gamma".into(),
            addresses: vec!["10.0.0.3".parse().unwrap(), "fd00::3".parse().unwrap()],
            port: 33001,
            key: "SHA256:x".into(),
            path: b"in/\xfe".to_vec(),
            grant: HelloSecret([9; 32]),
        };
        Commission { copy, far, details: true }
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Result<Commission, Error> {
        let mut value = serde_json::from_slice(&commission().write().unwrap()).unwrap();
        change(&mut value);
        Commission::read(&serde_json::to_vec(&value).unwrap())
    }

    #[test]
    fn it_survives_the_way() {
        let read = Commission::read(&commission().write().unwrap()).unwrap();
        assert_eq!((read.copy, read.far), (commission().copy, commission().far));
        assert!(changed(|value| value["tomorrow"] = json!({"x": 1})).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = |len| Value::from("x".repeat(len));
        for (name, result) in [
            ("no host", changed(|v| v["far"]["host"] = "".into())),
            ("a long host", changed(|v| v["far"]["host"] = long(256))),
            ("port 0", changed(|v| v["far"]["port"] = 0.into())),
            ("many addresses", changed(|v| v["far"]["addresses"] = vec!["10.0.0.1"; 17].into())),
            ("a bad address", changed(|v| v["far"]["addresses"] = vec!["somewhere"].into())),
            ("a long key", changed(|v| v["far"]["key"] = long(65))),
            ("a short grant", changed(|v| v["far"]["grant"] = STANDARD.encode([1; 31]).into())),
            ("a long path", changed(|v| v["far"]["path"] = STANDARD.encode([b'x'; 4096]).into())),
            ("a zero in a path", changed(|v| v["far"]["path"] = STANDARD.encode([0]).into())),
            ("no path", changed(|v| v["copy"]["paths"] = json!([]))),
            ("paths to come", changed(|v| v["copy"]["more_paths"] = 1.into())),
            ("no flow", changed(|v| v["network"]["flows"] = 0.into())),
            (
                "paths",
                changed(|v| v["network"]["paths"] = json!([{"local": "10.0.0.1", "remote": "10.0.0.2"}])),
            ),
            ("a list of names", changed(|v| v["copy"]["options"]["select"]["by_name"] = true.into())),
        ] {
            assert!(result.is_err(), "{name}");
        }
        let spread = vec![STANDARD.encode("/a"), STANDARD.encode("/b")];
        assert!(changed(|v| v["copy"]["options"]["spread"] = json!({"source": spread})).is_err());
        let whole = commission().write().unwrap();
        for cut in 0..whole.len() {
            assert!(Commission::read(&whole[..cut]).is_err());
        }
    }
}
