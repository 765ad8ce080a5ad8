//! The answer to GET of a directory: a plain page for people, JSON for programs.
//!
//! A directory may be of any size. Its first entries are sorted; if there are more than fit into memory, the rest
//! follows as the far end finds it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use farhaul::read::{Depth, ListEntry, ListItem, PathKind, Remote};
use farhaul_words::Error;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{BodySender, Gone, written};
use crate::paths::{FarPath, encoded};

/// How many entries are sorted.
const SORTED_MAX: usize = 50_000;
/// How many links are looked at together.
const LINKS_AT_ONCE: usize = 1000;
/// Bytes that are collected before they are sent.
const SENT_AT_ONCE: usize = 64 << 10;
/// The most bytes of a list that wait in memory.
const ROOM: u64 = 4 << 20;

/// Who reads a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    People,
    Programs,
}

impl Reader {
    /// Programs say `Accept: application/json`.
    pub(crate) fn of(headers: &HeaderMap) -> Reader {
        let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
        let kinds = accepts.split(',').map(|kind| kind.split(';').next().unwrap_or("").trim());
        let mut known = kinds.filter_map(|kind| match kind {
            "application/json" => Some(Reader::Programs),
            "text/html" | "application/xhtml+xml" => Some(Reader::People),
            _ => None,
        });
        known.next().unwrap_or(Reader::People)
    }
}

/// Something in a directory. A link stands for what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: PathKind,
    pub(crate) attributes: ListEntry,
}

impl Entry {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == PathKind::Directory
    }

    /// Its address, as seen from the directory.
    pub(crate) fn address(&self) -> String {
        let slash = if self.is_directory() { "/" } else { "" };
        format!("{}{slash}", encoded(&self.name))
    }
}

/// Calls `take` with the entries of a directory, in groups. The directory itself is not among them.
pub(crate) fn entries<E: From<Error>>(
    remote: &Remote,
    directory: &FarPath,
    mut take: impl FnMut(Vec<Entry>) -> Result<(), E>,
) -> Result<(), E> {
    let mut group = Vec::new();
    let mut is_sorted = true;
    for item in remote.list_within(&directory.bytes, Depth::One, ROOM)? {
        match item? {
            ListItem::Entry(entry) if entry.path.is_empty() => {}
            ListItem::Entry(entry) => group.push(entry),
            // What cannot be looked at cannot be read either.
            ListItem::Failed { .. } | ListItem::NotEntered(_) => {}
        }
        if group.len() >= if is_sorted { SORTED_MAX } else { LINKS_AT_ONCE } {
            take(looked_at(remote, directory, std::mem::take(&mut group), is_sorted)?)?;
            is_sorted = false;
        }
    }
    take(looked_at(remote, directory, group, is_sorted)?)
}

/// Replaces links by what they lead to. A link that leads nowhere is left out.
fn looked_at(
    remote: &Remote,
    directory: &FarPath,
    mut group: Vec<ListEntry>,
    is_sorted: bool,
) -> Result<Vec<Entry>, Error> {
    if is_sorted {
        group.sort_by(|one, other| one.path.cmp(&other.path));
    }
    let links: Vec<Vec<u8>> = group
        .iter()
        .filter(|entry| entry.kind == PathKind::Symlink)
        .map(|entry| directory.entry(&entry.path))
        .collect();
    let mut targets = remote.stats(links, true);
    let mut entries = Vec::with_capacity(group.len());
    for entry in group {
        let (name, attributes) = match entry.kind {
            PathKind::Symlink => match targets.next() {
                Some((_, Ok(target))) => (entry.path, target),
                Some((_, Err(error))) if remote.ended().is_some() => return Err(error),
                _ => continue,
            },
            _ => (entry.path.clone(), entry),
        };
        let kind = attributes.kind;
        if matches!(kind, PathKind::File | PathKind::Directory) {
            entries.push(Entry { name, kind, attributes });
        }
    }
    Ok(entries)
}

/// The answer. The list is written while it is taken.
pub(crate) fn answer(
    remote: Arc<Remote>,
    directory: FarPath,
    reader: Reader,
    permit: OwnedSemaphorePermit,
) -> Response {
    let kind = match reader {
        Reader::People => "text/html; charset=utf-8",
        Reader::Programs => "application/json",
    };
    let body = written(permit, move |to| {
        let mut out = Output { to, held: Vec::new(), count: 0 };
        let done = match reader {
            Reader::People => out.page(&remote, &directory),
            Reader::Programs => out.json(&remote, &directory),
        };
        if let Err(Stop::Failed(error)) = done {
            to.fail(&error);
        }
    });
    response(kind, body)
}

/// The head alone.
pub(crate) fn head(reader: Reader) -> Response {
    let kind = match reader {
        Reader::People => "text/html; charset=utf-8",
        Reader::Programs => "application/json",
    };
    response(kind, Body::empty())
}

fn response(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'; style-src 'unsafe-inline'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// Why a list ends early.
enum Stop {
    Failed(Error),
    Gone,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<Gone> for Stop {
    fn from(Gone: Gone) -> Stop {
        Stop::Gone
    }
}

struct Output<'a> {
    to: &'a BodySender,
    held: Vec<u8>,
    count: u64,
}

/// An entry as programs get it. The names of the fields are those of nginx.
#[derive(Serialize)]
struct EntryJson<'a> {
    /// The name as text. Bytes that are no text stand as U+FFFD; `href` has them all.
    name: &'a str,
    /// The address, as seen from the directory.
    href: &'a str,
    r#type: &'static str,
    /// When the content was last changed, as in HTTP.
    mtime: String,
    /// In bytes; only of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

impl Output<'_> {
    fn page(&mut self, remote: &Remote, directory: &FarPath) -> Result<(), Stop> {
        let title = escaped(&String::from_utf8_lossy(&[b"/", &directory.bytes[..]].concat()));
        self.add(&format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>body{{font-family:sans-serif;margin:2em}}td{{padding:0 2em 0 0}}td+td{{text-align:right;\
             font-variant-numeric:tabular-nums;white-space:nowrap}}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n<table>\n"
        ))?;
        if !directory.bytes.is_empty() {
            self.add("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n")?;
        }
        entries(remote, directory, |group| {
            group.iter().try_for_each(|entry| {
                let slash = if entry.is_directory() { "/" } else { "" };
                let name = escaped(&String::from_utf8_lossy(&entry.name));
                let size = if entry.is_directory() { String::new() } else { entry.attributes.identity.size.to_string() };
                let (address, when) = (entry.address(), day_and_time(&entry.attributes));
                // Without `./`, a name with a colon would be taken for another scheme; it stands as %3A, too.
                self.add(&format!(
                    "<tr><td><a href=\"./{address}\">{name}{slash}</a></td><td>{size}</td><td>{when}</td></tr>\n"
                ))
            })
        })?;
        self.add("</table>\n</body>\n</html>\n")?;
        self.flush()
    }

    fn json(&mut self, remote: &Remote, directory: &FarPath) -> Result<(), Stop> {
        self.add("[")?;
        entries(remote, directory, |group| {
            group.iter().try_for_each(|entry| {
                let is_directory = entry.is_directory();
                let json = EntryJson {
                    name: &String::from_utf8_lossy(&entry.name),
                    href: &entry.address(),
                    r#type: if is_directory { "directory" } else { "file" },
                    mtime: modified(&entry.attributes),
                    size: (!is_directory).then_some(entry.attributes.identity.size),
                };
                let json = serde_json::to_string(&json).expect("text and numbers");
                let comma = if self.count > 0 { ",\n" } else { "\n" };
                self.count += 1;
                self.add(&format!("{comma}{json}"))
            })
        })?;
        self.add("\n]\n")?;
        self.flush()
    }

    fn add(&mut self, text: &str) -> Result<(), Stop> {
        self.held.extend_from_slice(text.as_bytes());
        if self.held.len() >= SENT_AT_ONCE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        Ok(self.to.send(std::mem::take(&mut self.held))?)
    }
}

/// The time of the last change, as HTTP writes it.
pub(crate) fn modified(entry: &ListEntry) -> String {
    let seconds = u64::try_from(entry.identity.mtime.secs).unwrap_or(0).min(253_402_300_799);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn day_and_time(entry: &ListEntry) -> String {
    let time = jiff::Timestamp::from_second(entry.identity.mtime.secs).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

/// Text within HTML or XML, also within the quotes of an attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has none of them, and a page needs none.
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_what_it_understands() {
        for (accept, reader) in [
            ("", Reader::People),
            ("*/*", Reader::People),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Reader::People),
            ("application/json", Reader::Programs),
            ("application/json;q=0.9, text/html", Reader::Programs),
            ("text/html, application/json", Reader::People),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Reader::of(&headers), reader, "{accept}");
        }
    }

    #[test]
    fn no_name_is_markup() {
        assert_eq!(
            escaped("<a href='x'>&\"\n\u{9b}ü"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}ü"
        );
    }
}
