//! The page for browsers: the files that `./x web` has built from `web/`, embedded in the program.
//!
//! How to read it: [`PageFiles`] provides the files; [`answer`], a pure function, answers a browser's request
//! for one of them.
//!
//! Always true: only files of the build are served; the page cannot load anything from other sites, nor run
//! scripts that stand in its HTML; a program without the page says so, and says how to build it.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};

/// The policy that says what the page may load and do in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The names of files in this folder contain a hash of their content.
const ASSETS: &str = "assets/";

/// Files that the build has compressed have the plain name with one of these endings. The best encoding is
/// first.
const ENCODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

/// One file of the page.
#[derive(Debug, Clone)]
pub(crate) struct PageFile {
    pub(crate) bytes: Cow<'static, [u8]>,
    /// The hash of its content.
    pub(crate) hash: [u8; 32],
}

/// Provides the files of the page.
pub(crate) trait PageFiles {
    /// The file with this name, as the build has named it.
    fn get(&self, name: &str) -> Option<PageFile>;
}

/// The files of the build: a release has them in the program, other builds read them from the build's folder.
/// Cargo notices when such files change or go, but not when the first ones appear; that is why `./x web`
/// touches this source file.
pub(crate) struct BuiltPage;

#[cfg(not(debug_assertions))]
#[derive(rust_embed::RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct EmbeddedPage;

#[cfg(not(debug_assertions))]
impl PageFiles for BuiltPage {
    fn get(&self, name: &str) -> Option<PageFile> {
        let file = EmbeddedPage::get(name)?;
        Some(PageFile { hash: file.metadata.sha256_hash(), bytes: file.data })
    }
}

/// Reads from the disk each time, so that the program need not be built again while somebody works on the
/// page.
#[cfg(debug_assertions)]
impl PageFiles for BuiltPage {
    fn get(&self, name: &str) -> Option<PageFile> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist");
        let bytes = std::fs::read(std::path::Path::new(folder).join(name)).ok()?;
        Some(PageFile { hash: *blake3::hash(&bytes).as_bytes(), bytes: bytes.into() })
    }
}

/// The answer to a browser that asks for this path.
pub(crate) fn answer(files: &dyn PageFiles, path: &str, headers: &HeaderMap) -> Response<Body> {
    let name = match path.trim_start_matches('/') {
        "" => "index.html",
        name => name,
    };
    let response = match find(files, name, headers) {
        Some(response) => response,
        None if name == "index.html" => said(StatusCode::OK, NOT_BUILT),
        None => said(StatusCode::NOT_FOUND, NOT_THERE),
    };
    guarded(response)
}

fn find(files: &dyn PageFiles, name: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    if !is_name(name) {
        return None;
    }
    let plain = files.get(name)?;
    let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let accepted = header(header::ACCEPT_ENCODING).unwrap_or_default();
    let packed = ENCODINGS.iter().filter(|(encoding, _)| accepts(accepted, encoding));
    let packed = packed.into_iter().find_map(|(encoding, ending)| {
        let file = files.get(&format!("{name}{ending}"))?;
        (file.bytes.len() < plain.bytes.len()).then_some((file, Some(*encoding)))
    });
    let (file, encoding) = packed.unwrap_or((plain, None));
    let tag = tag(&file.hash);
    let is_known = header(header::IF_NONE_MATCH).is_some_and(|known| has_tag(known, &tag));
    let (status, body) = match is_known {
        true => (StatusCode::NOT_MODIFIED, Body::empty()),
        false => (StatusCode::OK, Body::from(bytes(file.bytes))),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let out = response.headers_mut();
    let caching = if name.starts_with(ASSETS) { "public, max-age=31536000, immutable" } else { "no-cache" };
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    out.insert(header::ETAG, HeaderValue::from_str(&tag).ok()?);
    if !is_known {
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind_of(name)));
        if let Some(encoding) = encoding {
            out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
    }
    Some(response)
}

fn bytes(content: Cow<'static, [u8]>) -> Bytes {
    match content {
        Cow::Borrowed(content) => Bytes::from_static(content),
        Cow::Owned(content) => Bytes::from(content),
    }
}

/// True if a name can be one of the build: at most one directory deep, and not that of a compressed copy.
fn is_name(name: &str) -> bool {
    let base = name.strip_prefix(ASSETS).unwrap_or(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_beside = ENCODINGS.iter().any(|(_, ending)| base.ends_with(ending));
    !base.is_empty() && !base.starts_with('.') && base.bytes().all(is_plain) && !is_beside
}

/// True if the browser accepts an encoding, by its `Accept-Encoding`.
fn accepts(accepted: &str, encoding: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let is_refused = parts
            .filter_map(|part| part.strip_prefix("q="))
            .any(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0));
        is_it && !is_refused
    })
}

/// The tag of a content: 128 bits of its hash.
fn tag(hash: &[u8; 32]) -> String {
    let digits: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

fn has_tag(known: &str, tag: &str) -> bool {
    known.split(',').any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

const NOT_BUILT: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Farhaul</title>\n\
     <h1>The page is not in this program</h1>\n\
     <p>This farhaul was built without its page. In its source directory, <code>./x web</code> builds the page, and\n\
     <code>cargo build</code> then puts it into the program.</p>\n\
     <p>All that the page shows is also available without it: <code>farhaul top</code>, <code>farhaul jobs</code>, and the API below\n\
     <code>/api/v1</code>.</p>\n</html>\n";

const NOT_THERE: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Farhaul: not there</title>\n\
     <h1>There is no such page</h1>\n<p><a href=\"/\">Farhaul's page</a></p>\n</html>\n";

/// A page that is part of the program itself.
fn said(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn guarded(mut response: Response<Body>) -> Response<Body> {
    let out = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        out.insert(header::HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt as _;

    use super::*;

    struct NamedFiles(BTreeMap<&'static str, &'static [u8]>);

    impl PageFiles for NamedFiles {
        fn get(&self, name: &str) -> Option<PageFile> {
            let bytes = *self.0.get(name)?;
            Some(PageFile { bytes: bytes.into(), hash: *blake3::hash(bytes).as_bytes() })
        }
    }

    fn built() -> NamedFiles {
        let files: [(&str, &[u8]); 8] = [
            ("index.html", b"<!doctype html><title>Farhaul</title>"),
            ("favicon.svg", b"<svg/>"),
            ("assets/index-a1b2.js", b"console.log('a long script')"),
            ("assets/index-a1b2.js.br", b"brotli"),
            ("assets/index-a1b2.js.gz", b"gzip"),
            ("assets/small-c3.css", b"a{}"),
            ("assets/small-c3.css.gz", b"longer than it"),
            ("sub/deep.js", b"x"),
        ];
        NamedFiles(files.into())
    }

    async fn ask(
        files: &dyn PageFiles,
        path: &str,
        asked: &[(&'static str, &str)],
    ) -> (Response<()>, Vec<u8>) {
        let mut headers = HeaderMap::new();
        for (name, value) in asked {
            headers.insert(*name, value.parse().unwrap());
        }
        let (head, body) = answer(files, path, &headers).into_parts();
        (Response::from_parts(head, ()), body.collect().await.unwrap().to_bytes().to_vec())
    }

    fn header<'a>(response: &'a Response<()>, name: &str) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[tokio::test]
    async fn each_file_is_answered_with_its_type_and_how_long_it_is_good() {
        let files = built();
        for (path, kind, caching) in [
            ("/", "text/html; charset=utf-8", "no-cache"),
            ("/index.html", "text/html; charset=utf-8", "no-cache"),
            ("/favicon.svg", "image/svg+xml", "no-cache"),
            (
                "/assets/index-a1b2.js",
                "text/javascript; charset=utf-8",
                "public, max-age=31536000, immutable",
            ),
            ("/assets/small-c3.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"),
        ] {
            let (head, body) = ask(&files, path, &[]).await;
            assert_eq!((head.status().as_u16(), header(&head, "content-type")), (200, kind), "{path}");
            assert_eq!(header(&head, "cache-control"), caching, "{path}");
            assert!(!body.is_empty() && header(&head, "content-encoding").is_empty());
            let tag = header(&head, "etag").to_string();
            for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
                let (head, body) = ask(&files, path, &[("if-none-match", &known)]).await;
                assert_eq!((head.status().as_u16(), body.len()), (304, 0), "{known}");
                assert_eq!(header(&head, "etag"), tag);
            }
            assert_eq!(ask(&files, path, &[("if-none-match", "\"other\"")]).await.0.status().as_u16(), 200);
        }
    }

    #[tokio::test]
    async fn compressed_content_is_for_who_takes_it_and_where_it_is_shorter() {
        let files = built();
        let mut tags = Vec::new();
        for (accepted, encoding, body) in [
            ("gzip, deflate, br, zstd", "br", &b"brotli"[..]),
            ("gzip", "gzip", b"gzip"),
            ("br;q=0, GZIP;q=0.5", "gzip", b"gzip"),
            ("identity", "", b"console.log('a long script')"),
            ("brotli, xgzip", "", b"console.log('a long script')"),
        ] {
            let (head, content) =
                ask(&files, "/assets/index-a1b2.js", &[("accept-encoding", accepted)]).await;
            assert_eq!((header(&head, "content-encoding"), &content[..]), (encoding, body), "{accepted}");
            assert_eq!(header(&head, "content-type"), "text/javascript; charset=utf-8");
            assert_eq!(header(&head, "vary"), "accept-encoding");
            tags.push(header(&head, "etag").to_string());
        }
        tags.dedup();
        assert_eq!(tags.len(), 3, "each content has a tag of its own");
        let (head, _) = ask(&files, "/assets/small-c3.css", &[("accept-encoding", "gzip")]).await;
        assert_eq!(header(&head, "content-encoding"), "");
    }

    #[tokio::test]
    async fn what_was_not_built_is_not_there() {
        let files = built();
        for path in [
            "/nothing",
            "/assets/",
            "/assets/nothing.js",
            "/assets/../index.html",
            "/assets/index-a1b2.js.br",
            "/sub/deep.js",
            "/.git",
            "//index.html/x",
            "/assets/%2e%2e/index.html",
        ] {
            let (head, body) = ask(&files, path, &[]).await;
            assert_eq!(head.status().as_u16(), 404, "{path}");
            assert!(String::from_utf8(body).unwrap().contains("no such page"));
        }
    }

    #[tokio::test]
    async fn a_program_without_the_page_says_how_to_build_it() {
        let (head, body) = ask(&NamedFiles(BTreeMap::new()), "/", &[]).await;
        assert_eq!((head.status().as_u16(), header(&head, "cache-control")), (200, "no-store"));
        assert!(String::from_utf8(body).unwrap().contains("./x web"));
    }

    #[tokio::test]
    async fn every_answer_is_guarded() {
        for (files, path) in [
            (built(), "/"),
            (built(), "/assets/small-c3.css"),
            (built(), "/none"),
            (NamedFiles(BTreeMap::new()), "/"),
        ] {
            let (head, _) = ask(&files, path, &[]).await;
            let policy = header(&head, "content-security-policy");
            assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
            assert!(policy.ends_with("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
            assert_eq!(header(&head, "x-content-type-options"), "nosniff");
            assert_eq!(header(&head, "referrer-policy"), "no-referrer");
            assert_eq!(header(&head, "cross-origin-opener-policy"), "same-origin");
        }
    }
}
