//! The answer to PROPFIND (RFC 4918): what a directory has, for file systems of WebDAV that are mounted. All properties
//! that are known are told, whichever were asked for.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use farhaul::read::{ListEntry, PathKind, Remote};

use crate::conditions::Version;
use crate::failure::Refusal;
use crate::listing::{Entry, entries, escaped, modified};
use crate::paths::FarPath;

const DEPTH: HeaderName = HeaderName::from_static("depth");
/// The most entries of an answer, which stands in memory as a whole.
const ENTRIES_MAX: usize = 100_000;

/// What a request asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Itself,
    WithEntries,
}

impl Extent {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Extent, Refusal> {
        match headers.get(DEPTH).map(HeaderValue::as_bytes) {
            Some(b"0") => Ok(Extent::Itself),
            Some(b"1") => Ok(Extent::WithEntries),
            // The standard allows to refuse this.
            None | Some(b"infinity") => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "a whole tree is not listed at once: ask with Depth: 1 (propfind-finite-depth)",
            )),
            Some(_) => Err(Refusal::bad_request("Depth is 0, 1 or infinity")),
        }
    }
}

/// The answer. Blocks.
pub(crate) fn answer(remote: &Remote, path: &FarPath, extent: Extent) -> Result<Response, Refusal> {
    let itself = remote.stat(&path.bytes)?;
    let is_directory = itself.kind == PathKind::Directory;
    if !is_directory && (path.is_directory || itself.kind != PathKind::File) {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such file or directory"));
    }
    let base = FarPath { is_directory, bytes: path.bytes.clone() };
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n");
    let own_name = path.bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
    add(&mut out, &base.address(), own_name, &itself);
    if is_directory && extent == Extent::WithEntries {
        let mut count = 0;
        let mut describe = |group: Vec<Entry>| {
            for entry in group {
                count += 1;
                if count > ENTRIES_MAX {
                    let what = format!("the directory has more than {ENTRIES_MAX} entries: list it by GET");
                    return Err(Refusal::new(StatusCode::INSUFFICIENT_STORAGE, what));
                }
                add(
                    &mut out,
                    &format!("{}{}", base.address(), entry.address()),
                    &entry.name,
                    &entry.attributes,
                );
            }
            Ok(())
        };
        entries(remote, &base, &mut describe)?;
    }
    out.push_str("</D:multistatus>\n");
    let mut response = Response::new(Body::from(out));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let kind = HeaderValue::from_static("application/xml; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn add(out: &mut String, address: &str, name: &[u8], entry: &ListEntry) {
    let name = escaped(&String::from_utf8_lossy(name));
    let modified = modified(entry);
    let own = match entry.kind {
        PathKind::Directory => "<D:resourcetype><D:collection/></D:resourcetype>".to_string(),
        _ => format!(
            "<D:resourcetype/><D:getcontentlength>{}</D:getcontentlength><D:getetag>{}</D:getetag>",
            entry.identity.size,
            escaped(&Version::of(&entry.identity).tag),
        ),
    };
    out.push_str(&format!(
        "<D:response><D:href>{address}</D:href><D:propstat><D:prop><D:displayname>{name}</D:displayname>{own}\
         <D:getlastmodified>{modified}</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
         </D:response>\n"
    ));
}
