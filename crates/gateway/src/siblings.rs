//! Other gateways to the same place nearby, which are asked for a chunk before the far end is.
//!
//! Each stretch of a file belongs to one gateway of the list, by rendezvous hashing: all of them agree which one, and if
//! one leaves the list, only its own stretches move. The others fetch from it, so that the far end gives each chunk once.
//!
//! Always true: a sibling's chunk is of the version that was asked for, and has the digest that the sibling sends with
//! it. A sibling that fails costs a moment, and the far end is asked in its place.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::conditions::Version;
use crate::paths::FarPath;
use crate::store::{CHUNK, OpenFile};

/// Marks a request of a sibling; the answer has the digest of its content under the same name.
pub(crate) const SIBLING: HeaderName = HeaderName::from_static("farhaul-sibling");
/// So many chunks behind each other belong to one gateway.
const STRETCH: u64 = 16;
/// How long a sibling may take for a chunk, which it may have to fetch itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// A sibling that has failed is not asked for this long.
const DOWN_FOR: Duration = Duration::from_secs(5);
/// How many connections to a sibling are kept.
const KEPT_MAX: usize = 64;

/// The list of gateways: this one, and the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiblingList {
    /// The address of this gateway, as the others have it in their lists: `http://HOST:PORT`.
    pub own: String,
    pub others: Vec<String>,
}

pub(crate) struct Siblings {
    own: String,
    others: Vec<Arc<Sibling>>,
}

struct Sibling {
    name: String,
    authority: String,
    kept: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
    down_until: Mutex<Option<Instant>>,
}

#[derive(Debug, thiserror::Error)]
enum AskFailure {
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it took too long")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its content is not what it says")]
    Content,
}

/// The host and port of an address `http://HOST:PORT`.
fn authority(address: &str) -> Result<String, Error> {
    let uri = address.parse::<Uri>().ok();
    let whole = uri.filter(|uri| uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/"));
    match whole.as_ref().and_then(Uri::authority).filter(|authority| authority.port_u16().is_some()) {
        Some(authority) if !authority.as_str().contains('@') => Ok(authority.to_string()),
        _ => Err(Error::new(Code::BadOption, format!("{address} is no address of a sibling"))
            .with_hint("write it as http://HOST:PORT")),
    }
}

impl Siblings {
    pub(crate) fn new(list: &SiblingList) -> Result<Siblings, Error> {
        let own = authority(&list.own)?;
        let mut others = Vec::new();
        for address in &list.others {
            let authority = authority(address)?;
            if authority != own && !others.iter().any(|other: &Arc<Sibling>| other.authority == authority) {
                others.push(Arc::new(Sibling {
                    name: authority.clone(),
                    authority,
                    kept: Mutex::default(),
                    down_until: Mutex::default(),
                }));
            }
        }
        Ok(Siblings { own, others })
    }

    /// The sibling to which a chunk belongs; `None` if that is this gateway.
    fn owner(&self, path: &[u8], index: u64) -> Option<&Arc<Sibling>> {
        let weight = |name: &str| {
            let mut hasher = blake3::Hasher::new();
            hasher
                .update(&(index / STRETCH).to_le_bytes())
                .update(path)
                .update(b"\0")
                .update(name.as_bytes());
            *hasher.finalize().as_bytes()
        };
        let best = self.others.iter().max_by_key(|sibling| weight(&sibling.name))?;
        (weight(&best.name) > weight(&self.own)).then_some(best)
    }

    /// A chunk from the sibling to which it belongs; `None` if the far end has to be asked. Blocks.
    pub(crate) fn fetch(&self, runtime: &Handle, file: &OpenFile, index: u64) -> Option<Bytes> {
        let sibling = self.owner(&file.path, index)?;
        if sibling.down_until.lock().in_any_case().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let asked =
            runtime.block_on(async { tokio::time::timeout(PATIENCE, sibling.ask(file, index)).await });
        match asked.map_err(AskFailure::from).flatten() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::debug!(%error, sibling = sibling.name, "a sibling has failed");
                // Another version is nobody's fault.
                if !matches!(error, AskFailure::Status(StatusCode::PRECONDITION_FAILED)) {
                    *sibling.down_until.lock().in_any_case() = Some(Instant::now() + DOWN_FOR);
                }
                None
            }
        }
    }
}

impl Sibling {
    async fn ask(self: &Arc<Sibling>, file: &OpenFile, index: u64) -> Result<Bytes, AskFailure> {
        let kept = self.kept.lock().in_any_case().pop();
        if let Some(mut connection) = kept
            && connection.ready().await.is_ok()
        {
            // It may have been closed at this moment; then a new one is tried.
            if let Ok(bytes) = self.ask_over(connection, file, index).await {
                return Ok(bytes);
            }
        }
        let stream = tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(&self.authority)).await??;
        stream.set_nodelay(true)?;
        let (connection, serving) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(serving);
        self.ask_over(connection, file, index).await
    }

    async fn ask_over(
        &self,
        mut connection: SendRequest<Empty<Bytes>>,
        file: &OpenFile,
        index: u64,
    ) -> Result<Bytes, AskFailure> {
        let len = file.chunk_len(index);
        let begin = index * CHUNK;
        let mut request = Request::new(Empty::new());
        let path = FarPath { is_directory: false, bytes: file.path.clone() }.address();
        *request.uri_mut() = path.parse().map_err(|_| AskFailure::Content)?;
        let value = |text: String| HeaderValue::try_from(text).map_err(|_| AskFailure::Content);
        let headers = request.headers_mut();
        headers.insert(header::HOST, value(self.authority.clone())?);
        headers.insert(header::RANGE, value(format!("bytes={begin}-{}", begin + len - 1))?);
        headers.insert(header::IF_MATCH, value(Version::of(&file.identity).tag)?);
        headers.insert(SIBLING, HeaderValue::from_static("1"));
        let answer = connection.send_request(request).await?;
        if answer.status() != StatusCode::PARTIAL_CONTENT {
            return Err(AskFailure::Status(answer.status()));
        }
        let digest = answer.headers().get(SIBLING).cloned();
        let most = usize::try_from(len).map_err(|_| AskFailure::Content)?;
        let body = Limited::new(answer.into_body(), most).collect().await.map_err(|_| AskFailure::Content)?;
        let bytes = body.to_bytes();
        let is_right = bytes.len() as u64 == len && digest.is_some_and(|digest| digest == digest_of(&bytes));
        if !is_right {
            return Err(AskFailure::Content);
        }
        let mut kept = self.kept.lock().in_any_case();
        if kept.len() < KEPT_MAX {
            kept.push(connection);
        }
        Ok(bytes)
    }
}

/// The digest of a chunk, as it stands in the header.
pub(crate) fn digest_of(bytes: &[u8]) -> HeaderValue {
    HeaderValue::try_from(blake3::hash(bytes).to_hex().as_str()).expect("hexadecimal digits are plain")
}

/// The chunk that a sibling asks for; `None` if the request is not one of a sibling.
pub(crate) fn wanted_chunk(
    headers: &HeaderMap,
    ranges: &[farhaul::read::FileRange],
    file: &OpenFile,
) -> Option<u64> {
    headers.get(SIBLING)?;
    let [range] = ranges else { return None };
    let index = range.offset / CHUNK;
    (range.offset % CHUNK == 0 && range.len == file.chunk_len(index)).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(own: usize, all: usize) -> Siblings {
        let name = |at: usize| format!("http://10.0.0.{at}:8080");
        Siblings::new(&SiblingList { own: name(own), others: (0..all).map(name).collect() }).unwrap()
    }

    #[test]
    fn all_agree_to_whom_a_chunk_belongs_and_each_has_its_part() {
        let lists: Vec<_> = (0..4).map(|own| siblings(own, 4)).collect();
        let mut counts = [0; 4];
        for index in (0..4000).step_by(STRETCH as usize) {
            let owners: Vec<_> = lists
                .iter()
                .map(|list| {
                    list.owner(b"run7/a", index).map_or_else(|| list.own.clone(), |owner| owner.name.clone())
                })
                .collect();
            assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
            let own = (0..4).filter(|&own| lists[own].owner(b"run7/a", index).is_none());
            own.for_each(|own| counts[own] += 1);
        }
        assert!(counts.iter().sum::<i32>() == 250 && counts.iter().all(|count| *count > 30), "{counts:?}");
        assert!(siblings(0, 1).owner(b"x", 0).is_none());
    }

    #[test]
    fn only_plain_addresses_are_siblings() {
        for wrong in
            ["", "10.0.0.1:80", "https://a:1", "http://a", "http://a:1/x", "http://u@a:1", "http://a:1/?x"]
        {
            let list = SiblingList { own: "http://b:1".into(), others: vec![wrong.into()] };
            assert!(Siblings::new(&list).is_err() || wrong == "http://a:1/?x", "{wrong}");
        }
    }
}
