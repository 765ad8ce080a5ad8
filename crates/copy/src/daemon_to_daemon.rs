//! Copies between two daemons: the client's checks of such a job, and the work of the daemon that brings the
//! content to the other daemon or fetches it from there.
//!
//! Always true: the driving daemon resolves paths as if its client had asked for the same copy by itself,
//! within what that client may use, and it fetches only what was asked for.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use farhaul_connect::{
    AllowedRequest, ContentDirection, DaemonTarget, Errand, EstablishedSession, HelloParams, PathPrefixes,
};
use farhaul_session::budget::{Budget, Charge, Resource};
use farhaul_session::handle::Handle;
use farhaul_text::escape;
use farhaul_volume::GeneratedSource;
use farhaul_words::{Code, Error};

use super::copy_outcome::CopyOutcome;
use super::destination::{PulledNames, is_null, last_component};
use super::job::{CopyJob, Location, RemoteEnd, only_content};
use super::location_checks::without_dots;
use super::manifest::ManifestLog;
use super::report::Report;
use super::request;
use super::request::{CopyDirection, CopyRequest};
use super::resolution;
use super::resolution::{Confinement, DestinationWish};
use super::serve::{CLIENT_LANES_MAX, CLIENT_MEMORY_MAX, CopyServerPolicy};
use super::{AgreedCopy, CopySide, CopySource, Destination, Terms};
use crate::options::TransferOptions;

/// A job whose source and destination are at daemons; the client has checked it.
#[derive(Debug, Clone)]
pub struct BetweenJob {
    /// The daemon that has the content.
    pub from: DaemonTarget,
    /// The daemon that the content goes to.
    pub to: DaemonTarget,
    /// A file on this host that gets a line for each entry.
    pub manifest: Option<PathBuf>,
    sources: Vec<Vec<u8>>,
    target: Vec<u8>,
    options: TransferOptions,
    /// The directories that the copy may not leave at the daemon of the sources, and at that of the destination.
    within: [Option<PathPrefixes>; 2],
}

impl BetweenJob {
    /// Whether a job is one between two daemons.
    pub fn is_one(job: &CopyJob) -> bool {
        let is_daemon = |location: &Location| matches!(location, Location::Daemon { .. });
        !job.sources.is_empty() && job.sources.iter().all(is_daemon) && is_daemon(&job.destination)
    }

    /// Checks a job, and refuses what would need this host between the two daemons.
    pub fn of(job: CopyJob) -> Result<BetweenJob, Error> {
        let refuse = |option: &str, why: &str| {
            let what = format!("{option} cannot be used between two daemons: {why}");
            let hint =
                "leave the option out, or copy by way of this host: from one daemon here, then to the other";
            Err(Error::new(Code::BadOption, what).with_hint(hint))
        };
        if job.names.is_some() {
            return refuse("`files-from`", "the list is on this host");
        }
        if job.retry.is_some() {
            return refuse("`retry-failed`", "the list is on this host");
        }
        if job.receipt.is_some() {
            return refuse(
                "`receipt`",
                "this host is not an end of the copy, and could only sign what it is told",
            );
        }
        if !job.spread.is_empty() {
            return refuse("`spread`", "a daemon lets another one use one place only");
        }
        if !job.options.network.paths.is_empty() {
            return refuse("`path`", "its addresses would be those of other hosts");
        }
        let mut job = only_content(job, None)?;
        let manifest = job.manifest.take();
        let asked = &mut job.options.integrity.manifest;
        *asked = manifest.as_ref().map(|_| asked.take().unwrap_or_default());
        let options = job.options.checked()?;
        let Location::Daemon { target: to, path: target } = job.destination else {
            return Err(not_between());
        };
        let mut from: Option<DaemonTarget> = None;
        let mut sources = Vec::new();
        for source in job.sources {
            let Location::Daemon { target, path } = source else { return Err(not_between()) };
            let is_same = |one: &DaemonTarget| {
                RemoteEnd::Daemon(one.clone()).is_same(&RemoteEnd::Daemon(target.clone()))
            };
            if from.as_ref().is_some_and(|from| !is_same(from)) {
                let what = "the sources are on different hosts: copy from one after the other";
                return Err(Error::new(Code::BadOption, what));
            }
            from.get_or_insert(target);
            sources.push(path);
        }
        super::are_written_distinct(&sources)?;
        request::are_not_too_many(&sources)?;
        let from = from.ok_or_else(not_between)?;
        let within = [job.within.far_sources, job.within.far_destination];
        Ok(BetweenJob { from, to, manifest, sources, target, options, within })
    }

    /// Refuses a copy whose two daemons have turned out to be one, if it would copy a file onto itself or a
    /// directory into itself. As the client has one root there, the names tell.
    pub fn check_within_one(&self) -> Result<(), Error> {
        if is_null(Path::new(OsStr::from_bytes(&self.target))) {
            return Ok(());
        }
        let to = without_dots(&self.target);
        for source in self.sources.iter().filter(|source| GeneratedSource::parse(source).is_none()) {
            let from = without_dots(source);
            let shown = |path: &[u8]| if path.is_empty() { "/".into() } else { escape(path) };
            let (source, target) = (shown(source), shown(&self.target));
            let is_onto_itself = from == to || from.file_name().is_some_and(|name| from == to.join(name));
            if to.starts_with(&from) && from != to || self.options.sync.is_some() && from.starts_with(&to) {
                let what = match self.options.sync {
                    Some(_) => format!("one of {source} and {target} is in the other, at the same daemon"),
                    None => format!("cannot copy a directory into itself: {target} is in {source}"),
                };
                return Err(Error::new(Code::IntoItself, what));
            }
            if is_onto_itself {
                let what = format!("{source} is copied to where it is: {target} is at the same daemon");
                return Err(Error::new(Code::SameFile, what));
            }
        }
        Ok(())
    }

    /// Whether the daemon at the destination can fetch the content: a grant is for one path, so there may be
    /// one source.
    pub fn can_be_fetched(&self) -> bool {
        self.sources.len() == 1
    }

    /// The request for the driving daemon, as a client would make it that copies from that daemon, or to it.
    pub fn request(&self, driver: DrivingDaemon) -> CopyRequest {
        let [at_sources, at_destination] = &self.within;
        let (direction, paths, within) = match driver {
            DrivingDaemon::Source => (CopyDirection::Pull, self.sources.clone(), at_sources),
            DrivingDaemon::Destination => (CopyDirection::Push, vec![self.target.clone()], at_destination),
        };
        let within = within.clone();
        CopyRequest { within, ..CopyRequest::new(direction, paths, self.options.clone()) }
    }

    /// The rights that the other daemon has to grant to the driving one.
    pub fn errand(&self, driver: DrivingDaemon) -> Errand {
        let [at_sources, at_destination] = &self.within;
        let (way, path, within) = match driver {
            DrivingDaemon::Source => (ContentDirection::Write, &self.target, at_destination),
            DrivingDaemon::Destination => (ContentDirection::Read, &self.sources[0], at_sources),
        };
        let asked = CopyRequest { paths: vec![path.clone()], ..self.request(driver) };
        let reach = asked.reach();
        let (deletes, follows, within) = (reach.deletes, reach.follows, within.clone());
        let looks_beside = way == ContentDirection::Write && !self.options.earlier.is_empty();
        let has_directory = self.options.backup.as_ref().is_some_and(|backup| !backup.dir.is_empty());
        let writes_beside = way == ContentDirection::Write && has_directory;
        Errand { way, path: path.clone(), deletes, follows, looks_beside, writes_beside, within }
    }
}

/// The daemon that opens the session with the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivingDaemon {
    /// The daemon that has the content; it sends it.
    Source,
    /// The daemon that the content goes to; it fetches it.
    Destination,
}

fn not_between() -> Error {
    Error::new(Code::Misuse, "source and destination are not both at daemons")
}

/// A copy with another daemon that this one makes for a client of its own. Everything that can be wrong on
/// this side has been checked.
pub struct DelegatedCopy {
    request: CopyRequest,
    side: CopySide,
    terms: Terms,
    /// The thread and the memory that a manifest takes.
    _kept: Option<(Charge, Charge)>,
}

/// Bytes of the records that wait to be sent to the client, and of their text.
const MANIFEST_BYTES: u64 = 4 << 20;

impl DelegatedCopy {
    /// `asked` is what the client could have asked for by itself; its rights were judged for that. `far` is
    /// the path at the other daemon. Everything that is made for the copy counts in `budget`.
    pub fn prepare(
        mut asked: CopyRequest,
        far: Vec<u8>,
        policy: &CopyServerPolicy,
        allowed: &AllowedRequest,
        budget: &Budget,
    ) -> Result<DelegatedCopy, Error> {
        let confinement = Confinement::at_daemon(&policy.root, allowed, asked.within.as_ref())?;
        asked.single_file = false;
        let integrity = &mut asked.options.integrity;
        let kept = match &integrity.manifest {
            None => None,
            Some(_) => Some((budget.charge_of(Resource::Threads, 1)?, budget.charge(MANIFEST_BYTES)?)),
        };
        let network = &mut asked.options.network;
        network.memory_bytes = network.memory_bytes.min(CLIENT_MEMORY_MAX);
        network.testing = policy.testing;
        let (side, direction, is_directory, is_name) = match asked.direction {
            CopyDirection::Pull => {
                let origin = resolution::far_origin(&confinement, &asked, budget)?;
                let is_content = |path: &Vec<u8>| last_component(path).is_none();
                let are_several = matches!(&origin, CopySource::Scan(scan) if scan.source_count() > 1);
                let is_directory = are_several || asked.paths.iter().any(is_content) || far.ends_with(b"/");
                (CopySide::Send(origin), CopyDirection::Push, is_directory, false)
            }
            CopyDirection::Push => {
                let destination = destination(&confinement, &asked, &far)?;
                let is_name = matches!(&destination, Destination::Tree(target) if target.rename.is_some());
                (CopySide::Receive(destination), CopyDirection::Pull, false, is_name)
            }
        };
        let mut options = asked.options;
        options.files.delta = Some(options.files.delta.unwrap_or(true));
        let request = CopyRequest {
            target_is_directory: is_directory,
            target_is_name: is_name,
            ..CopyRequest::new(direction, vec![far], options)
        };
        let terms = Terms {
            strip_setuid: policy.strip_setuid,
            mask: policy.mask,
            lanes_max: Some(CLIENT_LANES_MAX),
            names: None,
            more_paths: None,
            log: None,
            keys: None,
            check: policy.check.clone(),
            sender: None,
        };
        Ok(DelegatedCopy { request, side, terms, _kept: kept })
    }

    /// The request to the other daemon.
    pub fn params(&self) -> Result<HelloParams, Error> {
        let opening = self.request.opening(request::needs(&self.request))?;
        Ok(HelloParams { opening, features: request::own_features(), udp: true, early: false })
    }

    /// Runs the copy to its end in a session with the other daemon. `entries` takes the manifest, if the
    /// client wants one; the copy waits for it.
    pub fn run(
        mut self,
        established: EstablishedSession,
        entries: Box<dyn Write + Send>,
        handle: &Handle,
    ) -> (Report, Option<Error>) {
        let is_dry_run = self.request.options.dry_run;
        let is_wanted = self.request.options.integrity.manifest.is_some();
        let log = match is_wanted.then(|| ManifestLog::told(entries, is_dry_run)).transpose() {
            Ok(log) => log,
            Err(error) => return (Report::default().ended_by(Some(&error)), Some(error)),
        };
        if let Some(log) = &log {
            log.set_mask(match &self.side {
                CopySide::Send(_) => request::mask_of(&established.terms),
                CopySide::Receive(_) => self.terms.mask,
            });
        }
        self.terms.log = log.clone();
        self.terms.sender = established.peer_key.clone();
        let agreed = AgreedCopy::new(established, self.request);
        let outcome = super::run(agreed, self.side, &self.terms, handle).and_manifest(log.as_deref());
        let CopyOutcome { report, error } = outcome;
        (report, error)
    }
}

/// The destination at a daemon that fetches for its client.
fn destination(confinement: &Confinement, asked: &CopyRequest, far: &[u8]) -> Result<Destination, Error> {
    let path = asked.paths.first().ok_or_else(|| Error::new(Code::BadRequest, "it named no destination"))?;
    if is_null(Path::new(OsStr::from_bytes(path))) {
        return Ok(Destination::Null);
    }
    let wish = DestinationWish {
        is_directory: asked.target_is_directory || path.ends_with(b"/") || last_component(far).is_none(),
        is_name: asked.target_is_name,
        dry_run: asked.options.dry_run,
    };
    let mut target = resolution::far_target(confinement, path, wish, &[])?;
    target.asked = PulledNames::from_sources(&[far.to_vec()]);
    resolution::place_beside(confinement, path, &mut target, &asked.options)?;
    Ok(Destination::Tree(Box::new(target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(host: &str, path: &str) -> Location {
        let target = DaemonTarget { host: host.into(), ..DaemonTarget::default() };
        Location::Daemon { target, path: path.into() }
    }

    fn job(sources: Vec<Location>, destination: Location) -> CopyJob {
        CopyJob::new(sources, destination)
    }

    #[test]
    fn a_job_between_daemons_says_what_each_of_them_has_to_do() {
        let one = job(vec![daemon("b", "run7"), daemon("b", "run8")], daemon("c", "in/"));
        assert!(BetweenJob::is_one(&one));
        let between = BetweenJob::of(one).unwrap();
        assert!(!between.can_be_fetched());
        let asked = between.request(DrivingDaemon::Source);
        assert_eq!(
            (asked.direction, asked.paths),
            (CopyDirection::Pull, vec![b"run7".to_vec(), b"run8".to_vec()])
        );
        let errand = between.errand(DrivingDaemon::Source);
        assert_eq!(
            (errand.way, &errand.path[..], errand.deletes),
            (ContentDirection::Write, &b"in/"[..], false)
        );
        let mut sync = job(vec![daemon("b", "run7")], daemon("c", "in"));
        let delete = Some(crate::options::DeleteOptions::default());
        sync.options.sync = Some(crate::options::SyncOptions { delete, ..Default::default() });
        let between = BetweenJob::of(sync).unwrap();
        assert!(between.can_be_fetched() && between.errand(DrivingDaemon::Source).deletes);
        let errand = between.errand(DrivingDaemon::Destination);
        assert_eq!((errand.way, &errand.path[..]), (ContentDirection::Read, &b"run7/"[..]));
    }

    #[test]
    fn each_daemon_is_told_the_directories_of_its_own_end() {
        let prefixes = |directory: &str| PathPrefixes::new([directory.into()]).ok();
        let mut confined = job(vec![daemon("b", "run/7")], daemon("c", "in/x"));
        confined.within.far_sources = prefixes("/run");
        confined.within.far_destination = prefixes("/in");
        let between = BetweenJob::of(confined).unwrap();
        for (driver, own, other) in
            [(DrivingDaemon::Source, "/run", "/in"), (DrivingDaemon::Destination, "/in", "/run")]
        {
            assert_eq!(between.request(driver).within, prefixes(own), "{driver:?}");
            assert_eq!(between.errand(driver).within, prefixes(other), "{driver:?}");
        }
    }

    #[test]
    fn what_needs_this_host_is_refused_in_words() {
        let one = || job(vec![daemon("b", "x")], daemon("c", "y"));
        for (job, word) in [
            (CopyJob { names: Some(Vec::new()), ..one() }, "`files-from`"),
            (CopyJob { spread: vec![vec![b"a".to_vec()]], ..one() }, "`spread`"),
            (job(vec![daemon("b", "x"), daemon("d", "x2")], daemon("c", "y")), "different hosts"),
            (job(vec![daemon("b", "x"), daemon("b", "z/x")], daemon("c", "y")), "x"),
        ] {
            let error = BetweenJob::of(job).unwrap_err();
            assert!(error.what().contains(word), "{error}");
        }
        let with = BetweenJob::of(CopyJob { manifest: Some("m".into()), ..one() }).unwrap();
        assert!(
            with.manifest.is_some()
                && with.request(DrivingDaemon::Source).options.integrity.manifest.is_some()
        );
        let mut without = one();
        without.options.integrity.manifest = Some(Default::default());
        assert!(
            BetweenJob::of(without)
                .unwrap()
                .request(DrivingDaemon::Source)
                .options
                .integrity
                .manifest
                .is_none()
        );
        let local = Location::Local("x".into());
        assert!(!BetweenJob::is_one(&job(vec![local.clone()], daemon("c", "y"))));
        assert!(!BetweenJob::is_one(&job(vec![daemon("b", "x")], local)));
        assert!(!BetweenJob::is_one(&job(Vec::new(), daemon("c", "y"))));
    }
}
