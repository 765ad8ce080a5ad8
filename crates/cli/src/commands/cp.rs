//! `farhaul cp`, and what `farhaul sync` has in common with it: makes a job of the command line, runs the copy,
//! and turns the report into lines and an exit code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farhaul::copy::{CopyJob, FailedRun, HostSpec, Location, LocationSpec, ReceiptOptions, Report};
use farhaul::errors::{Code, ExitCode};
use farhaul::options::{OverwriteMode, SyncOptions, TransferOptions};
use farhaul::sisters::REPORT_SCHEMA;
use farhaul::target::DEFAULT_PORT;
use farhaul::target::{Bring, Bringing, DaemonTarget, Prompts, SshMessages, SshTarget, ThisHost};
use farhaul::{Error, Handle};

use super::going_on::GoingOn;
use crate::args::select::SelectArgs;
use crate::args::{self, ConnectionArgs, CpArgs, OutputArgs};
use crate::descriptors;
use crate::exit;
use crate::selection;
use crate::signals;
use crate::ui::progress::{Display, ProgressLines};
use crate::ui::{log, printer, summary};

/// The command line of a verb that moves files.
pub(super) struct TransferCommand<'a> {
    pub(super) locations: &'a [OsString],
    pub(super) connection: &'a ConnectionArgs,
    pub(super) transfer: &'a args::TransferArgs,
    pub(super) select: &'a SelectArgs,
    pub(super) output: &'a OutputArgs,
    pub(super) preserve: bool,
    /// Whether files are compared by their content.
    pub(super) checksum: bool,
    /// `None` for a copy; an error if the options of the sync contradict each other.
    pub(super) sync: Result<Option<SyncOptions>, Error>,
}

pub fn run(args: &CpArgs) -> ExitCode {
    transfer(TransferCommand {
        locations: &args.locations,
        connection: &args.connection,
        transfer: &args.transfer,
        select: &args.select,
        output: &args.output,
        preserve: args.preserve,
        checksum: args.checksum,
        sync: Ok(None),
    })
}

pub(super) fn transfer(args: TransferCommand<'_>) -> ExitCode {
    log::to_stderr("off");
    let (mut outcome, seen) = match job(&args) {
        Ok(Some((job, going_on))) => watch(&job, going_on, args.output),
        Ok(None) => (nothing_to_do(args.output), Vec::new()),
        Err(error) => (refused(error), Vec::new()),
    };
    outcome.0.error_detail = exit::corrected(outcome.0.error_detail.take());
    finish(&outcome, &seen, &args)
}

/// How soon a signal ends a pause.
const SIGNAL_TICK: Duration = Duration::from_millis(50);

/// The report of the copy, and the error that has ended the copy, if any.
type CopyAnswer = (Report, Option<Error>);

/// Runs the job with a display beside it, and goes on by itself when a daemon has ended the session. Also returns the
/// warnings that the display has shown.
fn watch(job: &CopyJob, mut going_on: GoingOn, output: &OutputArgs) -> (CopyAnswer, Vec<String>) {
    let current = Arc::new(Mutex::new(Handle::new()));
    let handle = || current.lock().unwrap_or_else(PoisonError::into_inner);
    let watched = current.clone();
    let cancel = move || watched.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    if let Err(source) = signals::end_on_signal(cancel) {
        return (refused(Error::of_host("cannot listen for signals", source)), Vec::new());
    }
    let mut last_session = None;
    loop {
        let running = handle().clone();
        let display = Display::start(&running, output, job.options.dry_run);
        let outcome = farhaul::sisters::run_copy(job.clone(), &running);
        let seen = display.stop();
        let pause = going_on.next_pause(&outcome.0, outcome.1.as_ref(), Instant::now());
        let has_begun = outcome.1.as_ref().is_none_or(|error| error.exit_code() != ExitCode::Connect);
        let Some(pause) = pause else {
            // A daemon that has not come back says nothing that matters more than how its last session ended.
            return last_session.filter(|_| !has_begun).unwrap_or((outcome, seen));
        };
        if has_begun {
            if !output.quiet {
                printer::line(
                    "note: the daemon has ended the session; this copy goes on when the daemon is back",
                );
            }
            last_session = Some((outcome, seen));
        }
        let end = Instant::now() + pause;
        while !signals::has_ended_work() && Instant::now() < end {
            std::thread::sleep(SIGNAL_TICK);
        }
        *handle() = Handle::new();
        if signals::has_ended_work() {
            handle().cancel();
        }
    }
}

fn finish((report, error): &CopyAnswer, seen: &[String], args: &TransferCommand<'_>) -> ExitCode {
    let code = exit::code_of_copy(report, error.as_ref());
    if !args.output.quiet {
        report
            .session
            .warnings
            .iter()
            .filter(|warning| !seen.contains(warning))
            .for_each(|text| printer::warning(text));
    }
    if !is_told(report, error.as_ref()) {
        printer::failures(&report.failed, report.failed_count);
    }
    printer::not_set(&report.not_set, report.not_set_count);
    if code == ExitCode::Metadata
        && !args.output.quiet
        && let Some(hint) = report.not_set_hint()
    {
        printer::line(&format!("hint: {hint}"));
    }
    if !args.output.quiet && summary::is_worth_telling(report, error.as_ref()) {
        printer::line(&summary::line(report, args.transfer.dry_run));
    }
    if let (Some(file), Some(receipt), false) =
        (&args.transfer.receipt, &report.receipt, args.output.quiet || error.is_some())
    {
        printer::line(&format!(
            "receipt {}, tree root {}",
            file.display(),
            receipt.received.statement.tree_root
        ));
    }
    if let Some(error) = error {
        printer::error(error, summary::go_on_hint(report, error).as_deref());
        if args.output.verbose {
            printer::code(error);
        }
    }
    let written = match args.output {
        OutputArgs { json: true, .. } => printer::json(report),
        OutputArgs { events: true, .. } => printer::json(&ProgressLines { event: "report", what: report }),
        OutputArgs { .. } => Ok(()),
    };
    if let Err(error) = written {
        printer::error(&error, None);
        let is_worse = code == ExitCode::Ok || error.code() == Code::Interrupted;
        return if is_worse { error.exit_code() } else { code };
    }
    code
}

/// Returns whether the error names the only entry that failed, so that the list would repeat it.
fn is_told(report: &Report, error: Option<&Error>) -> bool {
    match (error, &report.failed[..]) {
        (Some(error), [one]) if report.failed_count == 1 => {
            error.to_string() == format!("{}: {}", one.path, one.reason)
        }
        _ => false,
    }
}

/// The outcome of `--retry-failed` when nothing failed in the earlier run.
fn nothing_to_do(output: &OutputArgs) -> CopyAnswer {
    if !output.quiet {
        printer::line("nothing failed in that run that could be copied again");
    }
    (Report { schema: REPORT_SCHEMA, ok: true, complete: true, ..Report::default() }, None)
}

/// The outcome of a job that was refused before it began.
fn refused(error: Error) -> CopyAnswer {
    let report = Report { schema: REPORT_SCHEMA, ..Report::default() }.ended_by(Some(&error));
    (report, Some(error))
}

/// Returns `None` if there is nothing to do.
fn job(args: &TransferCommand<'_>) -> Result<Option<(CopyJob, GoingOn)>, Error> {
    if args.checksum {
        args.locations.iter().take(1).try_for_each(|first| is_no_cipher(first))?;
    }
    let places =
        args.locations.iter().map(|text| LocationSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let Some((destination, sources)) = places.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return Err(Error::new(Code::BadOption, "name a source and a destination"));
    };
    check(sources, destination, args.output)?;
    check_digests(args.transfer)?;
    let locate = |place: &LocationSpec| location(place, args.connection, args.output.quiet);
    let note = |text: &str| {
        if !args.output.quiet {
            printer::line(&format!("note: {text}"));
        }
    };
    let (select, names) = selection::read(args.select, note)?;
    let mut sync = args.sync.clone()?;
    let retry = match args.select.retry_failed.as_deref().map(FailedRun::read).transpose()? {
        None => None,
        Some(run) => {
            if let Some(sync) = &mut sync {
                // Deleting compares with the whole source, and a list of names is only a part of it.
                sync.delete = None;
            }
            if run.not_deleted > 0 && !args.output.quiet {
                let left = run.not_deleted;
                printer::warning(&format!(
                    "{left} entries could not be deleted in that run; to delete them, run the whole sync again"
                ));
            }
            let Some(retry) = run.retry else { return Ok(None) };
            Some(retry)
        }
    };
    let mut options = TransferOptions { select, sync, ..args.transfer.options()? };
    options.files.keep_setuid = args.preserve;
    if args.checksum && options.sync.is_none() {
        options.files.overwrite = OverwriteMode::Content;
    }
    if args.connection.fingerprint.is_some()
        && !sources.iter().chain([destination]).any(|place| place.host().is_none())
    {
        let what =
            "--fingerprint is for one daemon, and this copy has two: first connect with each of them once";
        return Err(Error::new(Code::BadOption, what));
    }
    let job = CopyJob {
        names,
        retry,
        manifest: args.transfer.manifest.clone(),
        receipt: args
            .transfer
            .receipt
            .clone()
            .map(|file| ReceiptOptions { file: Some(file), is_required: true }),
        options: options.checked()?,
        spread: args.transfer.spread.iter().map(|list| list.0.clone()).collect(),
        ..CopyJob::new(sources.iter().map(locate).collect::<Result<Vec<_>, _>>()?, locate(destination)?)
    };
    Ok(Some((job, GoingOn::new(&places, args.transfer, busy_wait(args.connection)))))
}

/// The names of ssh's ciphers begin with one of these.
const CIPHERS: [&str; 10] = [
    "3des",
    "aes128-",
    "aes192-",
    "aes256-",
    "arcfour",
    "blowfish",
    "cast128-",
    "chacha20-poly1305",
    "des",
    "rijndael-",
];

/// Refuses a first location that is the name of a cipher: a user of scp may have meant its `-c`, which takes
/// one.
fn is_no_cipher(first: &OsStr) -> Result<(), Error> {
    let Some(text) = first.to_str() else { return Ok(()) };
    // "des" and "3des" are whole names.
    let is_cipher = CIPHERS.iter().any(|name| match text.strip_prefix(name) {
        Some(rest) => rest.is_empty() || name.ends_with('-') || rest.starts_with(['-', '@', ',', '1', '2']),
        None => false,
    });
    if !is_cipher || Path::new(first).exists() {
        return Ok(());
    }
    let what = format!("here -c is --checksum, as in rsync, and there is no file {text}");
    let hint = format!(
        "instead of scp's -c write --cipher with aes-128-gcm, aes-256-gcm or chacha20-poly1305 for what farhaul sends itself, and -o Ciphers={text} for ssh"
    );
    Err(Error::new(Code::BadOption, what).with_hint(hint))
}

/// Refuses options for digests that would be computed but go nowhere.
fn check_digests(transfer: &args::TransferArgs) -> Result<(), Error> {
    let (has_manifest, has_receipt) = (transfer.manifest.is_some(), transfer.receipt.is_some());
    let bad = |what: &str| Err(Error::new(Code::BadOption, what));
    if !transfer.checksum_extra.is_empty() && !has_manifest {
        return bad("--checksum-extra needs --manifest");
    }
    if transfer.checksum_unchanged && !has_manifest && !has_receipt {
        return bad("--checksum-unchanged needs --manifest or --receipt");
    }
    Ok(())
}

/// What to write instead if a location names a host, and a file here is called so: `10:00.log`.
fn file_called_so(place: &LocationSpec) -> Option<String> {
    let LocationSpec::Ssh(host, path) = place else { return None };
    let user = host.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
    let mut name = format!("{user}{}:", host.name).into_bytes();
    name.extend_from_slice(path);
    let name = Path::new(OsStr::from_bytes(&name));
    let text = printer::harmless(&name.to_string_lossy());
    name.symlink_metadata().is_ok().then(|| {
        format!("{text} is a file here; with a colon in its name it counts as HOST:PATH, so write ./{text}")
    })
}

/// Refuses combinations of locations and options that cannot work, before it connects to anything.
fn check(sources: &[LocationSpec], destination: &LocationSpec, output: &OutputArgs) -> Result<(), Error> {
    let usage = |text: &str| Err(Error::new(Code::BadOption, text.to_string()));
    let first = &sources[0];
    if let ([_], Some(hint)) = (sources, file_called_so(first)) {
        printer::line(&format!("hint: {hint}"));
    }
    if sources.len() > 1 && (sources.contains(&LocationSpec::Pipe) || *destination == LocationSpec::Pipe) {
        return usage("with - as a source or destination there can be only one source");
    }
    if sources.iter().any(LocationSpec::is_sink) || destination.is_made() {
        return usage("null: can only be a destination, zero: and random: only sources");
    }
    if sources.len() > 1 && sources.iter().any(|source| !source.is_beside(first)) {
        let what = "all sources must be on the same host; run the command once for each host";
        let hint = sources.iter().find_map(file_called_so);
        return Err(Error::new(Code::BadOption, what).with_hint_if(hint));
    }
    let are_daemons = [first, destination].iter().all(|place| matches!(place, LocationSpec::Daemon(..)));
    if first.host().is_some() && destination.host().is_some() && !are_daemons {
        let what = "source and destination are both remote, and at least one of them is over SSH";
        let hint = "log in to one of the two hosts and run farhaul there, or run `farhaul serve` on both and name them as \
                    fh://HOST/PATH: then one sends to the other";
        return Err(Error::new(Code::BadOption, what).with_hint(hint));
    }
    for (is_set, option) in [(output.json, "--json"), (output.events, "--events")] {
        if *destination == LocationSpec::Pipe && is_set {
            return usage(&format!(
                "{option} and - as the destination both need stdout; leave one of them out"
            ));
        }
    }
    if sources.iter().any(LocationSpec::is_input) {
        descriptors::input()?;
    }
    if *destination == LocationSpec::Pipe {
        descriptors::output()?;
    }
    Ok(())
}

pub(super) fn location(
    place: &LocationSpec,
    connection: &ConnectionArgs,
    quiet: bool,
) -> Result<Location, Error> {
    Ok(match place {
        LocationSpec::Pipe => Location::Pipe,
        LocationSpec::Local(path) => Location::Local(path.clone()),
        LocationSpec::Ssh(..) if connection.fingerprint.is_some() => {
            let text = "--fingerprint is for daemons (fh://); over SSH, ssh judges the host's key by its known_hosts";
            return Err(Error::new(Code::BadOption, text));
        }
        LocationSpec::Ssh(host, path) => {
            Location::Ssh { target: ssh_target(host, connection, quiet)?, path: path.clone() }
        }
        LocationSpec::Daemon(host, path) => {
            no_ssh_options(connection)?;
            Location::Daemon { target: daemon_target(host, connection), path: path.clone() }
        }
    })
}

/// Refuses options that only ssh follows: to go to a daemon without them is not what was asked for.
pub(super) fn no_ssh_options(connection: &ConnectionArgs) -> Result<(), Error> {
    let refuse = |text: &str| Err(Error::new(Code::BadOption, text));
    if connection.ipv4 || connection.ipv6 {
        return refuse("-4 and -6 are for SSH; with fh:// write the address, such as fh://[fd00::2]/path");
    }
    if connection.jump.is_some() {
        return refuse("-J is for SSH; a daemon (fh://) is reached directly");
    }
    let given = [
        ("-F", connection.config.is_some()),
        ("-o", !connection.ssh_options.is_empty()),
        ("-S", connection.program.is_some()),
        ("--remote-program", connection.remote_program.is_some()),
        ("--bring", connection.bring),
    ];
    match given.iter().find(|option| option.1) {
        Some((option, _)) => refuse(&format!("{option} is for SSH; no ssh runs for a daemon (fh://)")),
        None => Ok(()),
    }
}

pub(super) fn ssh_target(
    host: &HostSpec,
    connection: &ConnectionArgs,
    quiet: bool,
) -> Result<SshTarget, Error> {
    let bring = match connection.bring {
        true => Bringing::Unasked(Arc::new(Bring::of_this_host()?)),
        false if quiet => Bringing::Never,
        false => Bringing::Offered,
    };
    Ok(SshTarget {
        user: host.user.clone(),
        host: host.name.clone(),
        port: host.port.or(connection.port),
        identity: connection.identity.clone(),
        config_file: connection.config.clone(),
        jump: connection.jump.clone(),
        options: connection.ssh_options(quiet),
        program: connection.program.clone().unwrap_or_else(|| "ssh".into()),
        remote_program: connection.remote_program.clone().unwrap_or_else(|| "farhaul".into()),
        answer_wait: connection.answer_wait.map_or(SshTarget::default().answer_wait, Duration::from_secs),
        messages: SshMessages::Shown,
        prompts: prompts(connection),
        bring,
        this_host: ThisHost::Allowed,
    })
}

/// Asks on the terminal like scp, unless `-B` forbids it.
fn prompts(connection: &ConnectionArgs) -> Prompts {
    if connection.batch { Prompts::Forbidden } else { Prompts::OnTerminal }
}

/// A daemon knows the client by its key, so a user name in the location is ignored.
pub(super) fn daemon_target(host: &HostSpec, connection: &ConnectionArgs) -> DaemonTarget {
    DaemonTarget {
        host: host.name.clone(),
        port: host.port.or(connection.port).unwrap_or(DEFAULT_PORT),
        identity_file: connection.identity.last().cloned(),
        known_hosts_file: connection.known_hosts.clone(),
        fingerprint: connection.fingerprint.clone(),
        accept_new: connection.accept_new,
        prompts: prompts(connection),
        busy_wait: busy_wait(connection),
        this_host: ThisHost::Allowed,
    }
}

fn busy_wait(connection: &ConnectionArgs) -> Duration {
    connection.busy_wait.map_or(DaemonTarget::default().busy_wait, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use farhaul::copy::{FailedAction, FailedEntry};

    use super::*;

    fn judge(words: &str, output: &OutputArgs) -> Result<(), Error> {
        let places: Vec<_> =
            words.split(' ').map(|word| LocationSpec::parse(OsStr::new(word)).unwrap()).collect();
        let (destination, sources) = places.split_last().unwrap();
        check(sources, destination, output)
    }

    #[test]
    fn jobs_that_cannot_work_are_refused() {
        let plain = OutputArgs::default();
        let works = "a h:|h:a .|a b h:d|- h:x|h:x -|fh://h/a fh://g/b|fh://h/a fh://h/b .|a b /|a b|- x";
        for words in works.split('|') {
            assert!(judge(words, &plain).is_ok(), "{words}");
        }
        let fails = "null: b|a zero:1|a h:random:|fh://h/null: b|h:a h:b|h:a fh://h/b|fh://h/a h:b|h:a g:a .|a h:b .|a - h:x|h:a h:b -|- - h:x";
        for words in fails.split('|') {
            assert_eq!(judge(words, &plain).unwrap_err().exit_code(), ExitCode::Usage, "{words}");
        }
        let json = OutputArgs { json: true, ..OutputArgs::default() };
        assert!(judge("h:x -", &json).is_err());
        assert!(judge("h:x -", &OutputArgs { events: true, ..OutputArgs::default() }).is_err());
        assert!(judge("- h:x", &json).is_ok());
    }

    #[test]
    fn a_cipher_behind_c_is_explained() {
        for text in [
            "aes128-ctr",
            "chacha20-poly1305@openssh.com",
            "3des-cbc",
            "arcfour256",
            "blowfish",
            "aes128-ctr,aes256-ctr",
        ] {
            let error = is_no_cipher(OsStr::new(text)).unwrap_err();
            assert!(
                error.hint().is_some_and(|hint| hint.contains("--cipher") && hint.contains(text)),
                "{error}"
            );
        }
        for text in ["a.bin", "design.pdf", "host:aes128-ctr", "aes", "descent", "/aes128-ctr"] {
            assert!(is_no_cipher(OsStr::new(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_port_of_a_name_goes_before_the_option() {
        let connection = ConnectionArgs { port: Some(7), ..ConnectionArgs::default() };
        let none = ConnectionArgs::default();
        let host = |port| HostSpec { user: None, name: "h".into(), port };
        assert_eq!(daemon_target(&host(Some(5)), &connection).port, 5);
        assert_eq!(daemon_target(&host(None), &connection).port, 7);
        assert_eq!(daemon_target(&host(None), &none).port, DEFAULT_PORT);
        assert_eq!(ssh_target(&host(Some(5)), &connection, false).unwrap().port, Some(5));
        assert_eq!(ssh_target(&host(None), &none, false).unwrap().port, None);
    }

    #[test]
    fn an_address_family_is_only_for_ssh() {
        let connection = ConnectionArgs { ipv6: true, ..ConnectionArgs::default() };
        let locate =
            |word: &str| location(&LocationSpec::parse(OsStr::new(word)).unwrap(), &connection, false);
        assert!(locate("h:x").is_ok());
        assert!(locate("fh://h/x").is_err());
    }

    #[test]
    fn an_entry_that_the_error_names_is_not_listed_again() {
        let one = FailedEntry {
            path: "a".into(),
            code: Code::FilesFailed,
            reason: "gone".into(),
            action: FailedAction::Copy,
        };
        let report = Report { failed: vec![one], failed_count: 1, ..Report::default() };
        let about = |what: &str| Error::new(Code::FilesFailed, what);
        assert!(is_told(&report, Some(&about("a: gone"))));
        assert!(!is_told(&report, Some(&about("no space"))));
        assert!(!is_told(&report, None));
        assert!(!is_told(&Report { failed_count: 2, ..report }, Some(&about("a: gone"))));
    }

    #[test]
    fn a_refused_job_still_has_a_report() {
        let (report, error) = refused(Error::new(Code::BadOption, "no"));
        assert!(!report.ok && report.schema == REPORT_SCHEMA && report.error.as_deref() == Some("no"));
        assert!(error.is_some());
    }
}
