//! The locations of a job in the form that the store keeps: judging them reads no document.

use std::path::PathBuf;

use farhaul::copy::{HostSpec, LocationSpec};
use farhaul::sisters::{escape, unescape};

use super::JobPlaces;

/// One location. Its fields have no tabs: a host has none, and a path is escaped.
fn text_of(place: &LocationSpec) -> String {
    let far = |kind: char, HostSpec { user, name, port }: &HostSpec, path: &[u8]| {
        let user = user.as_deref().unwrap_or_default();
        let port = port.map_or(String::new(), |port| port.to_string());
        format!("{kind}{}\t{}\t{port}\t{}", escape(user.as_bytes()), escape(name.as_bytes()), escape(path))
    };
    match place {
        LocationSpec::Pipe => "p".into(),
        LocationSpec::Local(path) => format!("l{}", escape(path.as_os_str().as_encoded_bytes())),
        LocationSpec::Ssh(host, path) => far('s', host, path),
        LocationSpec::Daemon(host, path) => far('d', host, path),
    }
}

fn place_of(text: &str) -> Option<LocationSpec> {
    use std::os::unix::ffi::OsStringExt as _;
    let (kind, rest) = text.split_at_checked(1)?;
    let words = |text: &str| String::from_utf8(unescape(text)?).ok();
    let far = || {
        let mut fields = rest.split('\t');
        let (user, name) = (words(fields.next()?)?, words(fields.next()?)?);
        let port = match fields.next()? {
            "" => None,
            port => Some(port.parse().ok()?),
        };
        let path = unescape(fields.next()?)?;
        let host = HostSpec { user: Some(user).filter(|user| !user.is_empty()), name, port };
        fields.next().is_none().then_some((host, path))
    };
    match kind {
        "p" => rest.is_empty().then_some(LocationSpec::Pipe),
        "l" => Some(LocationSpec::Local(PathBuf::from(std::ffi::OsString::from_vec(unescape(rest)?)))),
        "s" => far().map(|(host, path)| LocationSpec::Ssh(host, path)),
        "d" => far().map(|(host, path)| LocationSpec::Daemon(host, path)),
        _ => None,
    }
}

impl JobPlaces {
    /// The text that the store keeps. Each location has a line.
    pub(crate) fn to_text(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(text_of).collect();
        lines.join("\n")
    }

    /// Reads the text; `None` if it is not one.
    pub(crate) fn of_text(text: &str) -> Option<JobPlaces> {
        text.split('\n').map(place_of).collect::<Option<Vec<_>>>().map(JobPlaces)
    }

    /// About how many bytes of memory they take.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|place| place.path().len() + std::mem::size_of::<LocationSpec>() + 64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_read_back_as_they_were_written() {
        let names: [&[u8]; 11] = [
            b"/a/b c",
            b"/a\n\t\\b\xff",
            b"null:",
            b"zero:5",
            b"u@h:rel/x",
            b"h:",
            b"ssh://u@h:2222/x",
            b"fh://hpc/in\tx",
            b"fh://[fd00::1]:4000/x",
            b"fh://u@h/",
            b"-",
        ];
        let place =
            |name: &[u8]| LocationSpec::parse(std::os::unix::ffi::OsStrExt::from_bytes(name)).unwrap();
        let places = JobPlaces(names.iter().map(|name| place(name)).collect());
        assert_eq!(JobPlaces::of_text(&places.to_text()).unwrap(), places);
        for wrong in ["", "x", "l\n", "d", "dh", "d\th\tx\t/", "d\th\t1\t/\t", "px", "é"] {
            assert!(JobPlaces::of_text(wrong).is_none_or(|places| places.to_text() == wrong), "{wrong:?}");
        }
    }
}
