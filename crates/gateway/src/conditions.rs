//! Which version of a file a request wants (RFC 9110, section 13).
//!
//! Always true: two contents of a file with the same tag have the same size, times and inode at the far end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, header};
use farhaul::read::FileIdentity;

/// What a file is at one moment, for clients that ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// The strong entity tag, with its quotes.
    pub(crate) tag: String,
    /// When the content was last changed.
    pub(crate) modified: SystemTime,
}

/// What is to be done about the conditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Answer,
    /// 304: the client has this version.
    NotModified,
    /// 412: the client wants another version.
    Failed,
}

impl Version {
    pub(crate) fn of(identity: &FileIdentity) -> Version {
        let FileIdentity { size, mtime, ctime, inode, device } = identity;
        let mut digest = blake3::Hasher::new();
        for number in [*size, *inode, *device] {
            digest.update(&number.to_le_bytes());
        }
        for time in [mtime, ctime] {
            digest.update(&time.secs.to_le_bytes());
            digest.update(&time.nanos.to_le_bytes());
        }
        let tag = format!("\"{}\"", &digest.finalize().to_hex()[..32]);
        // A time before 1970 cannot be said in HTTP.
        let seconds = u64::try_from(mtime.secs).unwrap_or(0).min(LATEST);
        Version { tag, modified: UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    /// Judges a request for this version, in the order of RFC 9110, section 13.2.2.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Judgement {
        if headers.contains_key(header::IF_MATCH) {
            if !self.is_listed(headers, &header::IF_MATCH, TagKind::Strong) {
                return Judgement::Failed;
            }
        } else if let Some(since) = date(headers, &header::IF_UNMODIFIED_SINCE)
            && self.modified > since
        {
            return Judgement::Failed;
        }
        if headers.contains_key(header::IF_NONE_MATCH) {
            if self.is_listed(headers, &header::IF_NONE_MATCH, TagKind::Any) {
                return Judgement::NotModified;
            }
        } else if let Some(since) = date(headers, &header::IF_MODIFIED_SINCE)
            && self.modified <= since
        {
            return Judgement::NotModified;
        }
        Judgement::Answer
    }

    /// Whether a range that was asked for is of this version. Otherwise all of the file is sent.
    pub(crate) fn is_of_range(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = headers.get(header::IF_RANGE) else { return true };
        let Ok(wanted) = wanted.to_str() else { return false };
        match wanted.starts_with('"') {
            true => wanted == self.tag,
            // A date says too little: a file may change twice in a second.
            false => false,
        }
    }

    fn is_listed(&self, headers: &HeaderMap, name: &HeaderName, kind: TagKind) -> bool {
        let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        lists.flat_map(|list| list.split(',')).map(str::trim).any(|tag| {
            let tag = match kind {
                TagKind::Any => tag.strip_prefix("W/").unwrap_or(tag),
                TagKind::Strong => tag,
            };
            tag == "*" || tag == self.tag
        })
    }
}

/// How tags are compared.
#[derive(Clone, Copy)]
enum TagKind {
    Strong,
    Any,
}

/// The last second that a date of HTTP can have: the end of the year 9999.
const LATEST: u64 = 253_402_300_799;

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use farhaul::names::FileTime;

    use super::*;

    fn identity(nanos: u32) -> FileIdentity {
        let mtime = FileTime { secs: 784_111_777, nanos };
        FileIdentity { size: 10, mtime, ctime: mtime, inode: 7, device: 8 }
    }

    fn judged(version: &Version, name: HeaderName, value: &str) -> Judgement {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        version.judge(&headers)
    }

    #[test]
    fn whatever_differs_is_another_version() {
        let version = Version::of(&identity(0));
        assert_ne!(version.tag, Version::of(&identity(1)).tag);
        assert_ne!(version.tag, Version::of(&FileIdentity { size: 11, ..identity(0) }).tag);
        assert_ne!(version.tag, Version::of(&FileIdentity { inode: 8, device: 7, ..identity(0) }).tag);
        assert_eq!(version, Version::of(&identity(0)));
        assert_eq!(httpdate::fmt_http_date(version.modified), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn the_conditions_of_the_standard_hold() {
        use Judgement::{Answer, Failed, NotModified};
        let version = Version::of(&identity(0));
        let tag = version.tag.clone();
        let (same, before) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:36 GMT");
        for (name, value, expected) in [
            (header::IF_MATCH, tag.clone(), Answer),
            (header::IF_MATCH, "*".into(), Answer),
            (header::IF_MATCH, format!("\"x\", {tag}"), Answer),
            (header::IF_MATCH, format!("W/{tag}"), Failed),
            (header::IF_MATCH, "\"x\"".into(), Failed),
            (header::IF_NONE_MATCH, tag.clone(), NotModified),
            (header::IF_NONE_MATCH, format!("W/{tag}"), NotModified),
            (header::IF_NONE_MATCH, "*".into(), NotModified),
            (header::IF_NONE_MATCH, "\"x\"".into(), Answer),
            (header::IF_MODIFIED_SINCE, same.into(), NotModified),
            (header::IF_MODIFIED_SINCE, before.into(), Answer),
            (header::IF_MODIFIED_SINCE, "yesterday".into(), Answer),
            (header::IF_UNMODIFIED_SINCE, same.into(), Answer),
            (header::IF_UNMODIFIED_SINCE, before.into(), Failed),
        ] {
            assert_eq!(judged(&version, name.clone(), &value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_range_is_sent_of_the_version_that_was_named() {
        let version = Version::of(&identity(0));
        for (value, expected) in [
            (Some(version.tag.clone()), true),
            (None, true),
            (Some("\"x\"".to_string()), false),
            (Some(format!("W/{}", version.tag)), false),
            (Some("Sun, 06 Nov 1994 08:49:37 GMT".to_string()), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = &value {
                headers.insert(header::IF_RANGE, value.parse().unwrap());
            }
            assert_eq!(version.is_of_range(&headers), expected, "{value:?}");
        }
    }
}
