//! The locations of a job, as far as they matter to others than the copy.

use farhaul::copy::LocationSpec;
use farhaul::document::EarlierRules;
use farhaul::options::SpreadOptions;
use farhaul::target::DEFAULT_PORT;
use farhaul_words::Error;

use crate::access::JobPlaces;
use crate::job::JobSpec;

/// The locations of a job: sources, destination, then the directories with earlier copies, the one that keeps what
/// is replaced, and those that sources and destination are spread over.
pub(crate) fn of_spec(spec: &JobSpec) -> Result<JobPlaces, Error> {
    let (sources, destination) = spec.places()?;
    let mut places = [&sources[..], std::slice::from_ref(&destination)].concat();
    let EarlierRules { link, compare } = &spec.options.earlier;
    let kept = spec.options.backup.as_ref().and_then(|backup| backup.dir.as_ref());
    for given in link.iter().chain(compare).chain(kept) {
        let given = farhaul::sisters::unescape(given).unwrap_or_default();
        // One that leads above the root stays as it is written, and is refused for that.
        let path = farhaul::sisters::earlier_path(destination.path(), &given).unwrap_or(given);
        places.push(destination.with_path(&path));
    }
    if spec.options.spread.is_empty() {
        return Ok(JobPlaces(places));
    }
    // Directories are on the host of the location that is spread over them.
    let SpreadOptions { source, target } = farhaul::sisters::spread_of(&spec.copy_job(0)?)?;
    let at = |place: &LocationSpec, directories: &[Vec<u8>]| -> Vec<LocationSpec> {
        directories.iter().map(|directory| place.with_path(directory)).collect()
    };
    // Sources on several hosts are refused later. Here each host counts.
    let is_first = |n: usize| !sources[..n].iter().any(|before| before.is_beside(&sources[n]));
    let hosts = (0..sources.len()).filter(|&n| is_first(n));
    places.extend(hosts.flat_map(|n| at(&sources[n], &source)));
    places.extend(at(&destination, &target));
    Ok(JobPlaces(places))
}

/// The name of the other host, which says how it is reached and at which address.
pub(crate) fn peer_of(places: &[LocationSpec]) -> Option<String> {
    places.iter().find_map(|place| match place {
        LocationSpec::Daemon(host, _) => {
            Some(format!("fh://{}:{}", bracketed(&host.name), host.port.unwrap_or(DEFAULT_PORT)))
        }
        LocationSpec::Ssh(host, _) => {
            let user = host.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
            let port = host.port.map_or(String::new(), |port| format!(":{port}"));
            Some(format!("ssh://{user}{}{port}", bracketed(&host.name)))
        }
        LocationSpec::Local(_) | LocationSpec::Pipe => None,
    })
}

/// The host and the port in a peer's name, as [`peer_of`] makes it.
pub(crate) fn host_of_peer(peer: &str) -> Option<(String, Option<u16>)> {
    let place = LocationSpec::parse_host(peer.as_ref()).ok()?;
    place.host().map(|host| (host.name.clone(), host.port))
}

/// The host of a location and its port, as tables of peers name them; `None` on this host.
pub(super) fn host_of(place: &LocationSpec) -> Option<(&str, Option<u16>)> {
    match place {
        LocationSpec::Daemon(host, _) => Some((&host.name, Some(host.port.unwrap_or(DEFAULT_PORT)))),
        LocationSpec::Ssh(host, _) => Some((&host.name, host.port)),
        LocationSpec::Local(_) | LocationSpec::Pipe => None,
    }
}

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_api::JobKind;

    fn place(text: &str) -> LocationSpec {
        LocationSpec::parse(text.as_ref()).unwrap()
    }

    #[test]
    fn a_peer_is_the_same_however_its_files_are_called() {
        let peer = |names: &[&str]| peer_of(&names.iter().map(|name| place(name)).collect::<Vec<_>>());
        assert_eq!(peer(&["/a", "fh://hpc/b"]), peer(&["fh://hpc:33001/c", "/d"]));
        assert_eq!(peer(&["fh://[::1]/b"]).unwrap(), "fh://[::1]:33001");
        assert_eq!(peer(&["u@h:b", "/a"]).unwrap(), "ssh://u@h");
        assert_eq!(peer(&["/a", "/b"]), None);
        // The name has all that the host is known by.
        let host = |names: &[&str]| host_of_peer(&peer(names).unwrap()).unwrap();
        assert_eq!(host(&["/a", "fh://[::1]/b"]), ("::1".into(), Some(DEFAULT_PORT)));
        assert_eq!(host(&["u@h:b", "/a"]), ("h".into(), None));
        assert_eq!(host(&["ssh://u@h:2222/b", "/a"]), ("h".into(), Some(2222)));
    }

    #[test]
    fn directories_lie_where_what_is_spread_over_them_lies() {
        let places = |from: &str, to: &str, spread: &[&[&str]]| {
            let mut spec = JobSpec::new(JobKind::Copy, vec![from.into()], to.into());
            let list = |list: &&[&str]| list.iter().map(|name| name.to_string()).collect();
            spec.options.spread = spread.iter().map(list).collect();
            of_spec(&spec).map(|places| places.0)
        };
        let all = |names: &[&str]| names.iter().map(|name| place(name)).collect::<Vec<_>>();
        assert_eq!(places("/a/x", "/b", &[]).unwrap(), all(&["/a/x", "/b"]));
        assert_eq!(
            places("/a/x", "fh://hpc/in", &[&["/a", "/c"], &["/in", "/in2"]]).unwrap(),
            all(&["/a/x", "fh://hpc/in", "/a", "/c", "fh://hpc/in", "fh://hpc/in2"])
        );
        assert_eq!(
            places("u@h:/a/x", "/a/y", &[&["/a", "/c"]]).unwrap(),
            all(&["u@h:/a/x", "/a/y", "u@h:/a", "u@h:/c", "/a", "/c"])
        );
        // An escaped path in the document is the same as the plain one.
        assert_eq!(
            places(r"/a/x", "/b", &[&["/a", r"/a\x2f..\x2fc"]]).unwrap(),
            all(&["/a/x", "/b", "/a", "/a/../c"])
        );
        assert!(places("/a/x", "/b", &[&["/c", "/d"]]).is_err());
    }
}
