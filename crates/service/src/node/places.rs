//! Where a job's content comes from and goes to, as far as it matters to others than the engine.

use farhaul::{DEFAULT_PORT, Place};
use farhaul_session::Error;

use crate::access::Places;
use crate::job::JobSpec;

/// The places of a job: sources, then the destination, then the directories that these are spread over.
pub(crate) fn of_spec(spec: &JobSpec) -> Result<Places, Error> {
    let (mut places, destination) = spec.places()?;
    places.push(destination);
    let spread = spec.options.spread.iter().flatten();
    for directory in spread {
        places.push(Place::parse(directory.as_ref())?);
    }
    Ok(Places(places))
}

/// What the other host is called when jobs are counted: by how it is reached, and where.
pub(crate) fn peer_of(places: &[Place]) -> Option<String> {
    places.iter().find_map(|place| match place {
        Place::Daemon(host, _) => {
            Some(format!("fh://{}:{}", bracketed(&host.name), host.port.unwrap_or(DEFAULT_PORT)))
        }
        Place::Ssh(host, _) => {
            let user = host.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
            let port = host.port.map_or(String::new(), |port| format!(":{port}"));
            Some(format!("ssh://{user}{}{port}", bracketed(&host.name)))
        }
        Place::Local(_) | Place::Pipe => None,
    })
}

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_string() }
}

/// `push`, `pull`, `local`, or `third` between two other hosts, seen from this node.
pub(crate) fn direction_of(places: &[Place], destination: &Place) -> &'static str {
    match (places.iter().any(|place| place.host().is_some()), destination.host().is_some()) {
        (true, true) => "third",
        (true, false) => "pull",
        (false, true) => "push",
        (false, false) => "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        Place::parse(text.as_ref()).unwrap()
    }

    #[test]
    fn a_peer_is_the_same_however_its_files_are_called() {
        let peer = |names: &[&str]| peer_of(&names.iter().map(|name| place(name)).collect::<Vec<_>>());
        assert_eq!(peer(&["/a", "fh://hpc/b"]), peer(&["fh://hpc:33001/c", "/d"]));
        assert_eq!(peer(&["fh://[::1]/b"]).unwrap(), "fh://[::1]:33001");
        assert_eq!(peer(&["u@h:b", "/a"]).unwrap(), "ssh://u@h");
        assert_eq!(peer(&["/a", "/b"]), None);
    }

    #[test]
    fn a_direction_is_seen_from_here() {
        let direction = |from: &str, to: &str| direction_of(&[place(from)], &place(to));
        assert_eq!(direction("/a", "/b"), "local");
        assert_eq!(direction("/a", "h:b"), "push");
        assert_eq!(direction("fh://h/a", "/b"), "pull");
        assert_eq!(direction("fh://h/a", "fh://g/b"), "third");
    }
}
