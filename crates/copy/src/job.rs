//! `farhaul cp` and `farhaul sync`: turns the locations that the user named into a session and its report.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use farhaul_connect as connect;
use farhaul_connect::features::Features;
use farhaul_connect::{
    DaemonTarget, DialRequester as _, EstablishedSession, HelloParams, PathPrefixes, SshTarget,
};
use farhaul_session::budget::Budget;
use farhaul_session::handle::Handle;
use farhaul_session::hello_reply::{PendingReply, RetryFlag};
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_session::setup::SessionLimits;
use farhaul_volume::{GeneratedSource, RelPath};
use farhaul_words::{Code, Error, ExitCode};

use super::AgreedCopy;
use super::confines::{self, Confines, resolved};
use super::content_check::ReceiverCheck;
use super::daemon_to_daemon::BetweenJob;
use super::location_checks::{
    below, check_destination, check_within, no_receipt, why_no_receipt, written_places,
};
use super::manifest::ManifestLog;
use super::output_file;
use super::receipt::{self, ReceiptOptions};
use super::report::Report;
use super::request;
use super::request::{CopyDirection, CopyRequest};
use super::resolution::{Confinement, place_beside};
use super::retry::RetrySelection;
use super::{
    CopyOutcome, CopySide, CopySource, Destination, DestinationWish, Terms, last_component,
    with_slash_if_home,
};
use crate::options::{SpreadOptions, TransferOptions, in_each};

/// A source or a destination. At either end `zero:` and `random:` (endless, or with a number of bytes behind)
/// are sources of generated content, and `null:` is a destination that keeps nothing.
#[derive(Debug, Clone)]
pub enum Location {
    Local(PathBuf),
    /// Standard input or output.
    Pipe,
    Ssh {
        target: SshTarget,
        path: Vec<u8>,
    },
    Daemon {
        target: DaemonTarget,
        path: Vec<u8>,
    },
}

impl Location {
    pub(super) fn is_far(&self) -> bool {
        matches!(self, Location::Ssh { .. } | Location::Daemon { .. })
    }

    /// A home directory over ssh means its content.
    fn with_slash_if_home(self) -> Location {
        match self {
            Location::Ssh { target, path } => Location::Ssh { target, path: with_slash_if_home(path) },
            Location::Local(_) | Location::Pipe | Location::Daemon { .. } => self,
        }
    }
}

/// One `farhaul cp` or, with [`TransferOptions::sync`], one `farhaul sync`.
#[derive(Debug, Clone)]
pub struct CopyJob {
    pub sources: Vec<Location>,
    pub destination: Location,
    /// Take only these names of the single source directory.
    pub names: Option<Vec<Vec<u8>>>,
    /// Take only the entries that failed in an earlier run of the same job.
    pub retry: Option<RetrySelection>,
    pub options: TransferOptions,
    /// Lists of directories: a location in one of the directories stands for the same location in all
    /// directories of its list. Resolved into the options.
    pub spread: Vec<Vec<Vec<u8>>>,
    /// A file that gets a line for each entry; an existing file is replaced. Needs the option `manifest`.
    pub manifest: Option<PathBuf>,
    /// The directories that sources and destinations have to lie below.
    pub within: JobConfines,
    /// Where the receipt goes, which both ends sign. Only a copy from or to a daemon can have one.
    pub receipt: Option<ReceiptOptions>,
    /// The limits that this end's session shares with other sessions of this process.
    pub means: SessionLimits,
    /// Looks at each file that arrives at this host before it gets its name.
    pub check: ReceiverCheck,
}

impl CopyJob {
    /// Returns a job that copies `sources` to `destination`, with the defaults for everything else. To change
    /// more than one thing, fill the rest of a literal from it:
    /// `CopyJob { manifest, options, ..CopyJob::new(sources, destination) }`.
    pub fn new(sources: impl IntoIterator<Item = Location>, destination: Location) -> CopyJob {
        CopyJob {
            sources: sources.into_iter().collect(),
            destination,
            names: None,
            retry: None,
            options: TransferOptions::default(),
            spread: Vec::new(),
            manifest: None,
            within: JobConfines::default(),
            receipt: None,
            means: SessionLimits::default(),
            check: ReceiverCheck::default(),
        }
    }
}

/// The directories that a job may use at each of its ends: its locations, those of `spread` among them, have to
/// lie below them by their text and by where links lead, throughout the transfer. At an end without a list they
/// may lie anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobConfines {
    /// Directories of this host. With a list, pipes are refused.
    pub local: Option<Vec<PathBuf>>,
    /// Directories at the far host that the sources are on. A far end that cannot keep to them is refused.
    pub far_sources: Option<PathPrefixes>,
    /// The same at the far host that the destination is on.
    pub far_destination: Option<PathPrefixes>,
}

/// The end of the copy that is not this one.
#[derive(Debug, Clone)]
pub(crate) enum RemoteEnd {
    Ssh(SshTarget),
    Daemon(DaemonTarget),
    /// The far end is in this process, too.
    Here,
}

/// Runs a job to its end. The report covers what was done, even if there is an error.
pub fn copy(job: CopyJob, handle: &Handle) -> (Report, Option<Error>) {
    handle.begin();
    let outcome = planned(job, |plan| plan.run(handle));
    handle.end_with(outcome.report.exit_code(outcome.error.as_ref()), outcome.error.as_ref());
    (outcome.report, outcome.error)
}

/// Checks a job as far as this end can without asking the far one.
pub fn check(job: &CopyJob) -> Result<(), Error> {
    match BetweenJob::is_one(job) {
        true => BetweenJob::of(job.clone()).map(|_| ()),
        false => CopyPlan::new(job.clone()).map(|_| ()),
    }
}

/// Plans a job and runs the plan. The report of a job that cannot be planned says why there is no receipt, as
/// that of a planned one does.
pub(crate) fn planned(job: CopyJob, run: impl FnOnce(CopyPlan) -> CopyOutcome) -> CopyOutcome {
    let receipt = job.receipt.clone();
    match contained(|| CopyPlan::new(job)).flatten() {
        Ok(plan) => contained(|| run(plan)).unwrap_or_else(CopyOutcome::failed),
        Err(error) => CopyOutcome::failed(error).with_receipt(receipt.as_ref(), None),
    }
}

/// A job that can begin: the request to the far end, the features that the far end needs for it, and the work
/// of this end.
pub(crate) struct ReadyJob {
    pub(crate) request: CopyRequest,
    pub(crate) needs: Features,
    pub(crate) side: CopySide,
    pub(crate) terms: Terms,
}

/// A job that has been checked: its direction, its far end, and what is still to be resolved at this end.
pub(crate) struct CopyPlan {
    pub(crate) far: RemoteEnd,
    request: CopyRequest,
    near: LocalEnd,
    names: Option<Vec<Vec<u8>>>,
    manifest: Option<PathBuf>,
    pub(crate) confines: Option<Confines>,
    pub(crate) receipt: Option<ReceiptOptions>,
    /// Why there can be no receipt, if that is known already.
    no_receipt: Option<&'static str>,
    pub(crate) means: SessionLimits,
    pub(crate) check: ReceiverCheck,
    /// The host that the files come from, for that check.
    sender: Option<String>,
}

/// The two ends of a job, and what the far one is asked for.
struct PlannedEnds {
    far: RemoteEnd,
    request: CopyRequest,
    near: LocalEnd,
}

enum LocalEnd {
    Send(Vec<PathBuf>),
    SendPipe,
    Receive(PathBuf),
    ReceivePipe,
}

impl CopyPlan {
    /// Checks a job and plans it. The order of the steps matters: each reads what those before it have made of
    /// the job.
    pub(crate) fn new(mut job: CopyJob) -> Result<CopyPlan, Error> {
        // The confines hold for the locations as the user wrote them.
        let confines = job.within.local.as_deref().map(Confines::of).transpose()?;
        if let Some(confines) = &confines {
            check_within(&job, confines)?;
        }
        let confines = confines.as_ref();
        output_file::check_apart(&job, &written_places(&job))?;
        // From here on each source says by its slash whether its content is meant. Names that the user lists
        // make it so, those of a retry do not: they may lie below several sources.
        job.sources = job.sources.into_iter().map(Location::with_slash_if_home).collect();
        let mut job = only_content(job, confines)?;
        let is_name = job.retry.as_ref().is_some_and(|retry| retry.renamed);
        let retried = job.retry.take().map(|retry| retry.names(&job.sources)).transpose()?;
        let spread = spread_of(&job)?;
        // The run that is retried was checked without the names of its failures, and so is this one.
        check_destination(&job, &spread, confines)?;
        let (transfer, no_receipt) = transfer_of(&job)?;
        // The options are judged once they are complete.
        let CopyJob {
            sources, destination, names, mut options, manifest, within, receipt, means, check, ..
        } = job;
        options.spread = spread;
        options.integrity.receipt = transfer;
        means.budget.clone().unwrap_or_else(Budget::of_process).can_ever_hold(&options.network)?;
        let ends = PlannedEnds::of(sources, destination, is_name, options.checked()?, confines)?;
        let PlannedEnds { far, mut request, near } = ends;
        // The confines of this host's ends are given to them directly.
        request.within = match (&far, request.direction) {
            (RemoteEnd::Here, _) => None,
            (_, CopyDirection::Pull) => within.far_sources,
            (_, CopyDirection::Push) => within.far_destination,
        };
        let (names, confines) = (retried.or(names), confines.cloned());
        let sender = far.host();
        Ok(CopyPlan {
            far,
            request,
            near,
            names,
            manifest,
            confines,
            receipt,
            no_receipt,
            means,
            check,
            sender,
        })
    }

    /// Resolves this end of the job. Errors of this end are found before the far end is asked.
    pub(crate) fn ready(&self, handle: &Handle) -> Result<ReadyJob, Error> {
        let side = self.side()?;
        let names = self.names.clone().filter(|_| matches!(side, CopySide::Receive(_)));
        let is_dry_run = self.request.options.dry_run;
        let log =
            self.manifest.as_deref().map(|path| ManifestLog::create(path, is_dry_run, handle)).transpose()?;
        let mut request = self.request.clone();
        let more_paths = match request.direction {
            CopyDirection::Pull => request.take_more_paths(),
            CopyDirection::Push => None,
        };
        if let CopySide::Receive(Destination::Tree(target)) = &side {
            // Only one source can get the name, and only the far end knows for how many a pattern stands.
            request.target_is_name = target.rename.is_some();
        }
        // Within one host there are no deltas, as reading both versions costs more than writing one. A file
        // that is changed in place has to be read anyway.
        let is_local = matches!(self.far, RemoteEnd::Here);
        let is_receipt_needed = self.receipt.as_ref().is_some_and(|receipt| receipt.is_required);
        let needs = request::needs(&request);
        let needs = if is_receipt_needed { needs.and(&[request::RECEIPT]) } else { needs };
        let needs = if more_paths.is_some() { needs.and(&[request::MORE_PATHS]) } else { needs };
        let (check, sender) = (self.check.clone(), self.sender.clone());
        let terms = Terms { names, more_paths, log, check, sender, ..Terms::default() };
        let options = &mut request.options;
        let follows = options.files.follow_growth_secs.is_some();
        options.files.delta =
            Some(options.files.delta.unwrap_or(!is_local || options.files.in_place || follows));
        Ok(ReadyJob { request, needs, side, terms })
    }

    fn run(&self, handle: &Handle) -> CopyOutcome {
        self.carry_out(handle, |ready| self.connect_and_copy(ready, handle))
    }

    /// Gets this end ready and leaves the rest to `copy`. However that ends, the manifest gets its end, and the
    /// report has the receipt or says why there is none.
    pub(crate) fn carry_out(
        &self,
        handle: &Handle,
        copy: impl FnOnce(ReadyJob) -> Result<CopyOutcome, Error>,
    ) -> CopyOutcome {
        let outcome = match contained(|| handle.prepare(|| self.ready(handle))).flatten() {
            Ok(ready) => {
                let log = ready.terms.log.clone();
                let outcome = contained(|| copy(ready)).flatten().unwrap_or_else(CopyOutcome::failed);
                outcome.and_manifest(log.as_deref())
            }
            Err(error) => CopyOutcome::failed(error),
        };
        self.with_receipt(outcome)
    }

    /// The outcome of a plan that cannot be carried out.
    pub(crate) fn failed(&self, error: Error) -> CopyOutcome {
        self.with_receipt(CopyOutcome::failed(error))
    }

    fn with_receipt(&self, outcome: CopyOutcome) -> CopyOutcome {
        outcome.with_receipt(self.receipt.as_ref(), self.no_receipt)
    }

    fn connect_and_copy(&self, ready: ReadyJob, handle: &Handle) -> Result<CopyOutcome, Error> {
        let ReadyJob { request, needs, side, terms } = ready;
        // An early request may have to be made again. A pipe cannot give its content twice, and a manifest
        // needs to know the far end's mode mask first.
        // Whether the far end can keep the request within directories only its reply says.
        let early = matches!(self.far, RemoteEnd::Daemon(_))
            && request.within.is_none()
            && !matches!(self.near, LocalEnd::SendPipe)
            && terms.log.is_none();
        let opening = request.opening(needs)?;
        let params = HelloParams { opening, features: request::own_features(), udp: true, early };
        let (outcome, again) = self.run_once(params.clone(), &request, side, &terms, handle);
        if !again.is_due() {
            return Ok(outcome);
        }
        let side = self.side()?;
        handle.begin_again();
        let params = HelloParams { early: false, ..params };
        Ok(self.run_once(params, &request, side, &terms, handle).0)
    }

    /// Connects and runs a session. The flag says whether the session has to be begun again.
    fn run_once(
        &self,
        params: HelloParams,
        request: &CopyRequest,
        side: CopySide,
        terms: &Terms,
        handle: &Handle,
    ) -> (CopyOutcome, RetryFlag) {
        let established = match &self.far {
            RemoteEnd::Ssh(target) => connect::ssh_connect(target, params, handle),
            RemoteEnd::Daemon(target) => connect::daemon_connect(target, params, handle),
            RemoteEnd::Here => {
                let outcome = run_here(request, side, terms, (self.confines.clone(), &self.means), handle);
                return (outcome, RetryFlag::default());
            }
        };
        let mut established = match established.and_then(|established| established.within(&self.means)) {
            Ok(established) => established,
            Err(error) => return (CopyOutcome::failed(error), RetryFlag::default()),
        };
        let terms = &Terms { keys: established.keys.take(), ..terms.clone() };
        if let (Some(log), CopySide::Send(_)) = (&terms.log, &side) {
            log.set_mask(request::mask_of(&established.terms));
        }
        let again = established.session.pending.as_ref().map(PendingReply::again).unwrap_or_default();
        (super::run(AgreedCopy::new(established, request.clone()), side, terms, handle), again)
    }

    fn side(&self) -> Result<CopySide, Error> {
        Ok(match &self.near {
            LocalEnd::Send(paths) => {
                let (options, names) = (&self.request.options, self.names.clone());
                CopySide::Send(super::local_origin(paths, options, names, self.confines.as_ref())?)
            }
            LocalEnd::SendPipe => {
                let name = RelPath::from_bytes(b"stdin").expect("a plain name");
                CopySide::Send(CopySource::Pipe { name })
            }
            LocalEnd::ReceivePipe => CopySide::Receive(Destination::Pipe),
            LocalEnd::Receive(path) if super::is_null(path) => CopySide::Receive(Destination::Null),
            LocalEnd::Receive(path) => {
                let sources = &self.request.paths;
                let is_directory = sources.len() > 1
                    || path.as_os_str().as_bytes().ends_with(b"/")
                    || sources.iter().any(|source| last_component(source).is_none());
                let request = &self.request;
                let wish = DestinationWish {
                    is_directory,
                    is_name: request.target_is_name,
                    dry_run: request.options.dry_run,
                };
                let directories = &request.options.spread.target;
                let confines = self.confines.as_ref();
                let mut target = super::local_target(path, wish, sources, directories, confines)?;
                let (written, confinement) = (path.as_os_str().as_bytes(), Confinement::of_local(confines));
                place_beside(&confinement, written, &mut target, &request.options)?;
                CopySide::Receive(Destination::Tree(Box::new(target)))
            }
        })
    }
}

impl PlannedEnds {
    fn of(
        sources: Vec<Location>,
        destination: Location,
        target_is_name: bool,
        options: TransferOptions,
        confines: Option<&Confines>,
    ) -> Result<PlannedEnds, Error> {
        let usage = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
        if sources.is_empty() {
            return usage("nothing to copy: name at least one source and a destination");
        }
        let far_sources = sources.iter().filter(|source| source.is_far()).count();
        if far_sources > 0 && destination.is_far() {
            let what = "both ends are remote, and at least one of them is over SSH";
            let hint = "log in to one of the two and run farhaul there, or run `farhaul serve` on both and name them as \
                        fh://HOST/PATH: then one sends to the other";
            return Err(Error::new(Code::BadOption, what).with_hint(hint));
        }
        if far_sources > 0 && far_sources < sources.len() {
            return usage("some sources are remote and some are local: copy them one after the other");
        }
        match far_sources > 0 {
            true => PlannedEnds::pull(sources, destination, target_is_name, options),
            false => PlannedEnds::push(sources, destination, target_is_name, options, confines),
        }
    }

    fn push(
        sources: Vec<Location>,
        destination: Location,
        target_is_name: bool,
        options: TransferOptions,
        confines: Option<&Confines>,
    ) -> Result<PlannedEnds, Error> {
        let is_pipe = sources.iter().any(|source| matches!(source, Location::Pipe));
        if is_pipe && sources.len() > 1 {
            return Err(Error::new(Code::NotOneFile, "standard input can only be copied by itself"));
        }
        let paths: Vec<PathBuf> = sources
            .into_iter()
            .filter_map(|source| if let Location::Local(path) = source { Some(path) } else { None })
            .collect();
        let is_contents = paths.iter().any(|path| last_component(path.as_os_str().as_bytes()).is_none());
        let (far, path) = match destination {
            Location::Ssh { target, path } => (RemoteEnd::Ssh(target), path),
            Location::Daemon { target, path } => (RemoteEnd::Daemon(target), path),
            Location::Local(path) => (RemoteEnd::Here, path.into_os_string().into_encoded_bytes()),
            Location::Pipe => return PlannedEnds::to_own_output(paths, is_pipe, options),
        };
        let target_is_directory = paths.len() > 1 || is_contents || path.ends_with(b"/");
        // A pipe or a device counts as a file, as it is read like one.
        let is_file = |path: &Path| confines::is_directory(confines, path) == Some(false);
        let is_file_in_any =
            |path: &PathBuf| match in_each(&options.spread.source, path.as_os_str().as_bytes()) {
                None => is_file(path),
                Some(spread) => spread.iter().any(|path| is_file(Path::new(OsStr::from_bytes(path)))),
            };
        let single_file = is_pipe || paths.len() == 1 && is_file_in_any(&paths[0]);
        let request = CopyRequest::new(CopyDirection::Push, vec![path], options);
        let request = CopyRequest { target_is_directory, single_file, target_is_name, ..request };
        let near = if is_pipe { LocalEnd::SendPipe } else { LocalEnd::Send(paths) };
        Ok(PlannedEnds { far, request, near })
    }

    /// `cp file -`: the far end, in this process too, is asked for the file.
    fn to_own_output(
        paths: Vec<PathBuf>,
        is_pipe: bool,
        options: TransferOptions,
    ) -> Result<PlannedEnds, Error> {
        if is_pipe {
            return Err(Error::new(
                Code::BadOption,
                "from standard input to standard output is what cat does",
            ));
        }
        let paths = paths.into_iter().map(|path| path.into_os_string().into_encoded_bytes()).collect();
        let request = CopyRequest::new(CopyDirection::Pull, paths, options);
        let request = CopyRequest { single_file: true, ..request };
        Ok(PlannedEnds { far: RemoteEnd::Here, request, near: LocalEnd::ReceivePipe })
    }

    fn pull(
        sources: Vec<Location>,
        destination: Location,
        target_is_name: bool,
        options: TransferOptions,
    ) -> Result<PlannedEnds, Error> {
        let mut far = None;
        let mut paths = Vec::new();
        for source in sources {
            let (next, path) = match source {
                Location::Ssh { target, path } => (RemoteEnd::Ssh(target), path),
                Location::Daemon { target, path } => (RemoteEnd::Daemon(target), path),
                Location::Local(_) | Location::Pipe => continue,
            };
            if far.as_ref().is_some_and(|far: &RemoteEnd| !far.is_same(&next)) {
                return Err(Error::new(
                    Code::BadOption,
                    "the sources are on different hosts: copy from one after the other",
                ));
            }
            far.get_or_insert(next);
            paths.push(path);
        }
        let near = match destination {
            Location::Local(path) => LocalEnd::Receive(path),
            Location::Pipe => LocalEnd::ReceivePipe,
            Location::Ssh { .. } | Location::Daemon { .. } => unreachable!("two remote ends were refused"),
        };
        request::are_not_too_many(&paths)?;
        super::are_written_distinct(&paths)?;
        let far = far.expect("a pull has a remote source");
        let single_file = matches!(near, LocalEnd::ReceivePipe);
        // Several flows would bring the chunks out of order, and a pipe needs them in order.
        let options = match single_file {
            true => {
                let paths = options.network.paths.iter().take(1).copied().collect();
                let network = NetworkOptions { flows: 1, auto_paths: false, paths, ..options.network };
                TransferOptions { network, ..options }
            }
            false => options,
        };
        let request = CopyRequest {
            single_file,
            target_is_name,
            ..CopyRequest::new(CopyDirection::Pull, paths, options)
        };
        Ok(PlannedEnds { far, request, near })
    }
}

/// The name of the transfer in its receipt, if one was asked for, or the reason why there can be none.
fn transfer_of(job: &CopyJob) -> Result<(Option<String>, Option<&'static str>), Error> {
    let Some(ReceiptOptions { file, is_required }) = &job.receipt else { return Ok((None, None)) };
    match why_no_receipt(&job.sources, &job.destination) {
        Some(why) if *is_required => Err(no_receipt(why)),
        Some(why) => Ok((None, Some(why))),
        None => {
            file.as_deref().map_or(Ok(()), receipt::is_writable)?;
            Ok((Some(receipt::new_transfer()?), None))
        }
    }
}

/// Finds the lists of directories that the job's sources and its destination lie in.
pub fn spread_of(job: &CopyJob) -> Result<SpreadOptions, Error> {
    let list_of = |location: &Location| {
        let (path, is_daemon) = match location {
            Location::Pipe => return None,
            Location::Local(path) => (path.as_os_str().as_bytes(), false),
            Location::Ssh { path, .. } => (&path[..], false),
            Location::Daemon { path, .. } => (&path[..], true),
        };
        let slashes =
            |path: &[u8]| if is_daemon { path.iter().take_while(|&&byte| byte == b'/').count() } else { 0 };
        let at = |list: &Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            list.iter().map(|directory| directory[slashes(directory)..].to_vec()).collect()
        };
        let lies = |list: &Vec<Vec<u8>>| in_each(&at(list), &path[slashes(path)..]).is_some();
        let number = job.spread.iter().position(lies)?;
        Some((number, at(&job.spread[number])))
    };
    let mut source: Option<(usize, Vec<Vec<u8>>)> = None;
    for list in job.sources.iter().filter_map(list_of) {
        if source.as_ref().is_some_and(|source| source.0 != list.0) {
            let what = "`spread`: the sources are in several of its lists: copy them one after the other";
            return Err(Error::new(Code::BadOption, what));
        }
        source = Some(list);
    }
    let target = list_of(&job.destination);
    let used = [&source, &target].map(|list| list.as_ref().map(|list| list.0));
    if let Some(unused) = (0..job.spread.len()).find(|&number| !used.contains(&Some(number))) {
        let list: Vec<_> =
            job.spread[unused].iter().map(|directory| farhaul_text::escape(directory)).collect();
        return Err(Error::new(
            Code::BadOption,
            format!(
                "`spread` {}: neither a source nor the destination is in one of these directories",
                list.join(",")
            ),
        ));
    }
    let directories = |list: Option<(usize, Vec<Vec<u8>>)>| list.map(|list| list.1).unwrap_or_default();
    Ok(SpreadOptions { source: directories(source), target: directories(target) })
}

/// Makes the source of a sync or of a list of names mean the content of that directory, with or without a
/// slash, and refuses other sources.
pub(crate) fn only_content(mut job: CopyJob, confines: Option<&Confines>) -> Result<CopyJob, Error> {
    job.options.select.by_name = job.names.is_some() || job.retry.is_some();
    if job.options.sync.is_none() && job.names.is_none() {
        return Ok(job);
    }
    let what = if job.options.sync.is_some() { "sync" } else { "`files-from`" };
    let usage = |text: &str| Err(Error::new(Code::BadOption, format!("{what} {text}")));
    let [source] = &mut job.sources[..] else { return usage("takes one source directory") };
    if matches!(job.destination, Location::Pipe) {
        return usage("writes a directory, not a pipe");
    }
    if let (true, Location::Local(from), Location::Local(to)) =
        (job.options.sync.is_some(), &*source, &job.destination)
        && let (Some(from), Some(to)) = (resolved(confines, from), resolved(confines, to))
        && (below(&from, &to).is_some() || below(&to, &from).is_some())
    {
        return usage("takes two directories of which neither is in the other");
    }
    let add_slash = |path: &mut Vec<u8>| {
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
    };
    match source {
        Location::Pipe => return usage("reads a directory, not a pipe"),
        Location::Ssh { path, .. } | Location::Daemon { path, .. }
            if GeneratedSource::parse(path).is_none() =>
        {
            add_slash(path)
        }
        Location::Local(path) if GeneratedSource::parse(path.as_os_str().as_bytes()).is_none() => {
            if confines::is_directory(confines, path) == Some(false) {
                let what = format!("{} is not a directory", path.display());
                return Err(Error::new(Code::NotADirectory, what).with_hint("copy a file with farhaul cp"));
            }
            let mut bytes = std::mem::take(path).into_os_string().into_encoded_bytes();
            add_slash(&mut bytes);
            *path = PathBuf::from(OsString::from_vec(bytes));
        }
        Location::Ssh { .. } | Location::Daemon { .. } | Location::Local(_) => {
            return usage("reads a directory, not made-up content");
        }
    }
    if let Some(names) = &job.names {
        let bytes: usize = names.iter().map(Vec::len).sum();
        if names.len() > super::NAMES_MAX || bytes > super::NAMES_BYTES_MAX {
            return usage("takes at most 1,048,576 names and 32 MiB of them");
        }
        // Checked here, so that the far end need not.
        farhaul_volume::Selection::new(names.clone())
            .map_err(|error| Error::new(Code::BadPattern, format!("{what}: {error}")))?;
    }
    Ok(job)
}

impl RemoteEnd {
    /// The host at the other end.
    fn host(&self) -> Option<String> {
        match self {
            RemoteEnd::Ssh(target) => Some(target.host.clone()),
            RemoteEnd::Daemon(target) => Some(format!("fh://{}:{}", target.host, target.port)),
            RemoteEnd::Here => None,
        }
    }

    pub(crate) fn is_same(&self, other: &RemoteEnd) -> bool {
        match (self, other) {
            (RemoteEnd::Ssh(a), RemoteEnd::Ssh(b)) => {
                (&a.host, &a.user, a.port) == (&b.host, &b.user, b.port)
            }
            (RemoteEnd::Daemon(a), RemoteEnd::Daemon(b)) => (&a.host, a.port) == (&b.host, b.port),
            (RemoteEnd::Here, RemoteEnd::Here) => true,
            (RemoteEnd::Ssh(_) | RemoteEnd::Daemon(_) | RemoteEnd::Here, _) => false,
        }
    }
}

/// Runs both ends in this process, joined by a pair of sockets.
fn run_here(
    request: &CopyRequest,
    side: CopySide,
    terms: &Terms,
    (confines, means): (Option<Confines>, &SessionLimits),
    handle: &Handle,
) -> CopyOutcome {
    handle.ask_to_begin();
    let (near, far) = match local_pair(request).and_then(|pair| both_within(pair, means)) {
        Ok(pair) => pair,
        Err(error) => return CopyOutcome::failed(error),
    };
    let check = terms.check.clone();
    let serve = move || super::serve_here(far, confines, check);
    let far = match std::thread::Builder::new().name("far-end".into()).spawn(serve) {
        Ok(thread) => thread,
        Err(source) => return CopyOutcome::failed(Error::no_thread(source)),
    };
    let mut outcome = super::run(AgreedCopy::new(near, request.clone()), side, terms, handle);
    let far = far.join().ok().and_then(|summary| summary.error);
    // If the far end lacks a resource, the near end only sees that the session is lost: report the far end's
    // error.
    if let (Some(near), Some(error)) = (&outcome.error, far)
        && near.exit_code() == ExitCode::Lost
        && error.exit_code() == ExitCode::Internal
    {
        outcome.report = outcome.report.ended_by(Some(&error));
        outcome.error = Some(error);
    }
    outcome
}

/// Counts both ends in the limits of this process. Only the near end comes under its caps, since both ends
/// move the same content.
pub(crate) fn both_within(
    (near, mut far): (EstablishedSession, EstablishedSession),
    within: &SessionLimits,
) -> Result<(EstablishedSession, EstablishedSession), Error> {
    far.session = far.session.counted_in(within);
    Ok((near.within(within)?, far))
}

/// Two ends of a session within this process.
pub(crate) fn local_pair(request: &CopyRequest) -> Result<(EstablishedSession, EstablishedSession), Error> {
    connect::local_pair(&request.opening(Features::default())?, &request::own_features())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::options::TransferOptions;

    /// Checks a copy within this host; `words` are its locations below `folder`.
    fn check_local(folder: &Path, words: &str) -> Result<(), Error> {
        let mut locations: Vec<_> = words
            .split(' ')
            .map(|word| Location::Local(PathBuf::from(format!("{}/{word}", folder.display()))))
            .collect();
        let destination = locations.pop().unwrap();
        check(&job(locations, destination))
    }

    fn job(sources: Vec<Location>, destination: Location) -> CopyJob {
        CopyJob::new(sources, destination)
    }

    /// A job with a manifest and a receipt that is not required.
    fn noted_job(source: &Path, destination: &Path, manifest: &Path) -> CopyJob {
        let [source, destination] = [source, destination].map(|path| Location::Local(path.to_path_buf()));
        let mut noted = job(vec![source], destination);
        noted.options.integrity.manifest = Some(Default::default());
        noted.manifest = Some(manifest.to_path_buf());
        noted.receipt = Some(ReceiptOptions { file: None, is_required: false });
        noted
    }

    #[test]
    fn a_job_that_fails_before_there_is_a_session_ends_its_manifest_and_has_no_receipt() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "x").unwrap();
        let noted = noted_job(&at("a"), &at("b"), &at("manifest"));
        let plan = CopyPlan::new(noted.clone()).unwrap();
        let why = || Error::new(Code::Misuse, "the words cannot be written");
        let fail: [fn(Error) -> Result<CopyOutcome, Error>; 2] = [Err, |error| panic!("{error}")];
        for fail in fail {
            let outcome = plan.carry_out(&Handle::new(), |_| fail(why()));
            assert!(outcome.error.is_some() && outcome.report.no_receipt.is_some());
            let manifest = std::fs::read_to_string(at("manifest")).unwrap();
            let last = manifest.lines().last().unwrap_or_default();
            assert!(last.contains("\"end\""), "{manifest}");
        }

        let (report, error) = copy(noted_job(&at("a"), &at("a"), &at("manifest")), &Handle::new());
        assert_eq!(error.map(|error| error.code()), Some(Code::SameFile));
        assert!(report.no_receipt.is_some(), "the job could not even be planned");
    }

    #[test]
    fn a_copy_of_a_file_onto_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for directory in ["d", "e"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("a"), "x").unwrap();
        std::fs::write(at("b"), "x").unwrap();
        std::fs::hard_link(at("a"), at("hard")).unwrap();
        std::fs::hard_link(at("a"), at("d/a")).unwrap();
        symlink("a", at("soft")).unwrap();
        symlink("d", at("to_d")).unwrap();
        for words in ["a a", "a d/../a", "a hard", "a soft", "soft a", "a d", "d/a d/", "to_d/a d", "b a d"] {
            let error = check_local(folder.path(), words).unwrap_err();
            assert!(error.to_string().ends_with("are the same file"), "{words}: {error}");
            assert_eq!((error.code(), error.exit_code()), (Code::SameFile, ExitCode::Usage));
        }
        let both = ["d/a", "to_d/a"].map(at);
        let error =
            crate::local_origin(&both, &TransferOptions::default(), None, None).map(drop).unwrap_err();
        assert!(error.to_string().ends_with("are the same file: name it once"), "{error}");
        for words in ["a b", "a e", "a new", "a hard e", "hard d", "a d/new", "missing a"] {
            assert!(check_local(folder.path(), words).is_ok(), "{words}");
        }
    }
}
