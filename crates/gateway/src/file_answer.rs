//! The answer to GET and HEAD of a file: all of it, a range, or several.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use farhaul::read::{FileRange, RangeQueue};
use farhaul_words::Code;
use std::sync::Arc;
use tokio::runtime::Handle;

use crate::body::{self, Answers, Part};
use crate::conditions::{Judgement, Version};
use crate::digests::WantedDigest;
use crate::failure::Refusal;
use crate::ranges::WantedBytes;
use crate::siblings::{SIBLING, digest_of, wanted_chunk};
use crate::store::{CHUNK, OpenFile, Store, Way};

/// Kinds of content that a browser would run as if they came from this host. They are saved, not shown.
const ACTIVE: [&str; 7] = ["html", "svg", "xml", "javascript", "ecmascript", "pdf", "flash"];

/// A range that was asked for before it was known whether the file is still the same version. If it is, one round trip was
/// enough.
pub(crate) struct EarlyRead {
    file: Arc<OpenFile>,
    range: FileRange,
    way: Way,
    queue: Option<RangeQueue>,
}

impl EarlyRead {
    /// Asks for the range of a request, if the file was read lately and has to be asked for again.
    pub(crate) fn begin(
        store: &Store,
        path: &[u8],
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<EarlyRead> {
        let (file, is_fresh) = store.files.known(path)?;
        let range = headers.get(header::RANGE)?.to_str().ok()?;
        let WantedBytes::Ranges(ranges) = WantedBytes::of(range, file.size()) else { return None };
        let [range] = ranges[..] else { return None };
        if is_fresh || method != Method::GET || range.len > CHUNK {
            return None;
        }
        let way = store.way(&file, &ranges);
        let queue = if way == Way::Ranges { file.ask_early(range) } else { None };
        Some(EarlyRead { file, range, way, queue })
    }
}

/// What an answer is made from.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) name: &'a [u8],
    pub(crate) file: &'a Arc<OpenFile>,
    pub(crate) early: Option<EarlyRead>,
}

/// The answer to GET or HEAD. Blocks for the digest, if one is wanted.
pub(crate) fn answer(asked: Asked<'_>, store: &Store, answers: &Answers) -> Result<Response, Refusal> {
    let Asked { method, headers, name, file, early } = asked;
    let version = Version::of(&file.identity);
    let size = file.size();
    match version.judge(headers) {
        Judgement::Answer => {}
        Judgement::NotModified => return Ok(bare(StatusCode::NOT_MODIFIED, &version)),
        Judgement::Failed => return Ok(bare(StatusCode::PRECONDITION_FAILED, &version)),
    }
    let wanted = match headers.get(header::RANGE).and_then(|value| value.to_str().ok()) {
        // A range is a wish about GET only.
        Some(range) if method == Method::GET && version.is_of_range(headers) => WantedBytes::of(range, size),
        _ => WantedBytes::All,
    };
    if let WantedBytes::Ranges(ranges) = &wanted
        && let Some(index) = wanted_chunk(headers, ranges, file)
        && let Some(answered) = to_sibling(store, file, index)
    {
        return answered.map(|bytes| chunk_answer(&version, content_range(ranges[0], size), bytes));
    }
    let content =
        |ranges: &[FileRange], parts: Vec<Part>, early: Option<EarlyRead>| -> Result<Body, Refusal> {
            let early = early.filter(|early| Arc::ptr_eq(&early.file, file) && *ranges == [early.range]);
            let way = early.as_ref().map_or_else(|| store.way(file, ranges), |early| early.way);
            if let (Way::Chunks, Some(fetches)) = (way, &store.fetches) {
                return Ok(body::chunks(fetches.clone(), file.clone(), parts, answers));
            }
            if let Some(queue) = early.and_then(|early| early.queue) {
                return Ok(body::ranges(queue, parts, true, answers)?);
            }
            match body::ranges(file.remote(&store.far_end)?.queue(), parts.clone(), false, answers) {
                // The session of the handle that was kept has ended.
                Err(error) if error.code() != Code::SourceChanged => {
                    Ok(body::ranges(file.reopen(&store.far_end)?.queue(), parts, false, answers)?)
                }
                begun => Ok(begun?),
            }
        };
    let digest = WantedDigest::of(headers)
        .map(|wanted| Ok::<_, Refusal>(wanted.written(&store.sum(file, wanted.sum)?)));
    let digest = digest.transpose()?;
    let kind = content_type(name);
    let (status, own, len, body): (_, Vec<(HeaderName, String)>, u64, Option<Body>) = match wanted {
        WantedBytes::Outside => {
            let refusal =
                Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "the file does not have this range");
            let size = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are plain");
            return Ok(refusal.with_header(header::CONTENT_RANGE, size).into_response());
        }
        WantedBytes::All => {
            let all = FileRange { offset: 0, len: size };
            let body = (method == Method::GET && size > 0)
                .then(|| content(&[all], vec![Part::Range(all)], None))
                .transpose()?;
            (StatusCode::OK, vec![(header::CONTENT_TYPE, kind.clone())], size, body)
        }
        WantedBytes::Ranges(ranges) => match ranges[..] {
            [range] => {
                let own = vec![
                    (header::CONTENT_TYPE, kind.clone()),
                    (header::CONTENT_RANGE, content_range(range, size)),
                ];
                let body = content(&[range], vec![Part::Range(range)], early)?;
                (StatusCode::PARTIAL_CONTENT, own, range.len, Some(body))
            }
            _ => {
                let boundary = boundary(&version);
                let parts = parts(&ranges, size, &kind, &boundary);
                let len = parts.iter().map(Part::len).sum();
                let own = vec![(header::CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"))];
                (StatusCode::PARTIAL_CONTENT, own, len, Some(content(&ranges, parts, None)?))
            }
        },
    };
    let mut response = bare(status, &version);
    if let Some(body) = body {
        *response.body_mut() = body;
    }
    let headers = response.headers_mut();
    for (name, value) in own {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| Refusal::bad_request("a name"))?);
    }
    headers.insert(header::CONTENT_LENGTH, len.into());
    if ACTIVE.iter().any(|active| kind.contains(active)) {
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    if let Some((name, value)) = digest {
        headers.insert(name, value);
    }
    Ok(response)
}

/// A chunk for a sibling; `None` without a cache.
fn to_sibling(store: &Store, file: &Arc<OpenFile>, index: u64) -> Option<Result<axum::body::Bytes, Refusal>> {
    let fetches = store.fetches.as_ref()?;
    if let Some(bytes) = fetches.read_disk(file, index, 0, file.chunk_len(index)) {
        return Some(Ok(bytes));
    }
    let fetched = Handle::current().block_on(fetches.want(file, index).wait());
    Some(fetched.map_err(|failure| Refusal::new(StatusCode::BAD_GATEWAY, failure.to_string())))
}

fn chunk_answer(version: &Version, range: String, bytes: axum::body::Bytes) -> Response {
    let mut response = bare(StatusCode::PARTIAL_CONTENT, version);
    let headers = response.headers_mut();
    headers.insert(SIBLING, digest_of(&bytes));
    headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(range).expect("digits are plain"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    *response.body_mut() = Body::from(bytes);
    response
}

/// An answer without content, with what all answers about a version have.
fn bare(status: StatusCode, version: &Version) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, HeaderValue::try_from(&version.tag).expect("digits are plain"));
    let modified = httpdate::fmt_http_date(version.modified);
    headers.insert(header::LAST_MODIFIED, HeaderValue::try_from(modified).expect("a date is plain"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // It may have changed the next moment. Who keeps it asks whether it has.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    response
}

/// The kind of content that a name promises.
fn content_type(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let guess = mime_guess::from_path(&*name).first_raw().unwrap_or("application/octet-stream");
    match guess.starts_with("text/") {
        // The encoding of a text is not known; this one is the usual one.
        true => format!("{guess}; charset=utf-8"),
        false => guess.to_string(),
    }
}

fn content_range(FileRange { offset, len }: FileRange, size: u64) -> String {
    format!("bytes {offset}-{}/{size}", offset + len - 1)
}

/// What separates the parts. Content that has it by chance does no harm, as the length of each part is said.
fn boundary(version: &Version) -> String {
    format!("farhaul-{}", version.tag.trim_matches('"'))
}

fn parts(ranges: &[FileRange], size: u64, kind: &str, boundary: &str) -> Vec<Part> {
    let head = |range: FileRange| {
        let range = content_range(range, size);
        format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
    };
    let mut parts: Vec<Part> =
        ranges.iter().flat_map(|range| [Part::Text(head(*range)), Part::Range(*range)]).collect();
    parts.push(Part::Text(format!("\r\n--{boundary}--\r\n")));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_would_run_is_known_by_its_name() {
        for name in [
            "a.html", "a.HTM", "a.svg", "a.xhtml", "a.xml", "a.js", "a.mjs", "a.pdf", "a.swf", "x.atom",
            "a.xsl",
        ] {
            let kind = content_type(name.as_bytes());
            assert!(ACTIVE.iter().any(|active| kind.contains(active)), "{name}: {kind}");
        }
        for name in ["a.png", "a.txt", "a.h5", "a", "a.tar.gz", "a.json", "a.root", "\u{fffd}.csv"] {
            let kind = content_type(name.as_bytes());
            assert!(!ACTIVE.iter().any(|active| kind.contains(active)), "{name}: {kind}");
        }
        assert_eq!(content_type(b"a.root\xff"), "application/octet-stream");
        assert_eq!(content_type(b"notes.txt"), "text/plain; charset=utf-8");
    }
}
