//! `farhaul submit`: from a command line, or a document, to a job of the service.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use farhaul::{Code, DeleteOptions, Error, ExitCode, Place, SyncOptions, escape};
use farhaul_service::{FinishBy, JobSpec, Kind, Labels, Repeat, RetryRule, SelectRules, Span};
use serde_json::Value;

use super::{client, jobs};
use crate::args::service::Submit;
use crate::selection;
use crate::ui::printer;

/// Bytes of a document.
const SPEC_MAX: u64 = 8 << 20;

pub fn submit(args: &Submit) -> Result<ExitCode, Error> {
    let document = match &args.spec {
        Some(file) => document(file)?,
        None => {
            serde_json::to_value(spec(args)?).map_err(|error| Error::new(Code::Misuse, error.to_string()))?
        }
    };
    if args.print {
        let spec = JobSpec::read(document.to_string().as_bytes())?;
        return printer::json(&spec).map(|()| ExitCode::Ok);
    }
    let client = client(&args.api)?;
    let job: Value = match &args.key {
        Some(key) => client.post_once("/jobs", &document, key)?,
        None => client.post("/jobs", &document)?,
    };
    let id = job["id"].as_str().unwrap_or_default().to_string();
    if args.json && !args.wait {
        printer::json(&job)?;
    } else if !args.json {
        printer::data(format!("{id}\n").as_bytes())?;
    }
    if args.wait { jobs::wait_for(&client, &[id], args.json, args.quiet) } else { Ok(ExitCode::Ok) }
}

/// What it says is judged by the service.
fn document(file: &Path) -> Result<Value, Error> {
    let mut text = Vec::new();
    let read = if file.as_os_str() == "-" {
        crate::descriptors::input()?;
        std::io::stdin().lock().take(SPEC_MAX).read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(SPEC_MAX).read_to_end(&mut text))
    };
    let cannot = |why: String| Error::new(Code::BadOption, format!("--spec {}: {why}", file.display()));
    read.map_err(|error| cannot(error.to_string()))?;
    // Here, so that a line and a column are told.
    serde_json::from_slice(&text).map_err(|error| cannot(error.to_string()))
}

/// The job as its document, which can be kept and sent again.
fn spec(args: &Submit) -> Result<JobSpec, Error> {
    let bad = |what: &str| Err(Error::new(Code::BadOption, what));
    refuse_what_is_the_services(args)?;
    let Some((destination, sources)) = args.locations.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return bad("a source and a destination are needed");
    };
    let sources = sources.iter().map(|text| absolute(text)).collect::<Result<_, _>>()?;
    let kind = if args.sync { Kind::Sync } else { Kind::Copy };
    let mut spec = JobSpec::new(kind, sources, absolute(destination)?);
    let (select, names) = selection::read(&args.select)?;
    let text = |bytes: &Vec<u8>| escape(bytes);
    spec.options.select = SelectRules {
        rules: select.rules.iter().map(text).collect(),
        names: names.map(|names| names.iter().map(text).collect()),
        size_min: select.size_min,
        size_max: select.size_max,
        age_min: args.select.min_age.map(Span),
        age_max: args.select.max_age.map(Span),
        one_file_system: select.one_file_system,
    };
    let options = args.transfer.options();
    spec.options.network = options.network;
    spec.options.files = options.files;
    spec.options.files.keep_setuid = args.preserve;
    spec.options.integrity = options.integrity;
    spec.options.dry_run = options.dry_run;
    spec.options.spread = args.transfer.spread.iter().map(|list| list.0.iter().map(text).collect()).collect();
    let delete = args.delete.then_some(DeleteOptions {
        excluded: args.delete_excluded,
        max: args.max_delete,
        ..DeleteOptions::default()
    });
    spec.options.sync = args.sync.then_some(SyncOptions {
        checksum: args.checksum,
        detect_renames: args.detect_renames,
        delete,
    });
    spec.priority = args.priority.unwrap_or(spec.priority);
    spec.not_before = args.not_before.map(|time| match time {
        FinishBy::At(moment) => moment,
        daily @ FinishBy::Daily(_) => daily.from_now(),
    });
    spec.finish_by = args.finish_by;
    spec.retry = args.retry.map(|attempts| RetryRule { attempts, ..RetryRule::default() });
    spec.labels = Labels(args.labels.iter().map(|text| Labels::parse_one(text)).collect::<Result<_, _>>()?);
    spec.webhook = args.webhook.clone();
    if args.every.is_some() || args.cron.is_some() {
        let (every, cron, time_zone) = (args.every, args.cron.clone(), args.time_zone.clone());
        spec.repeat = Some(Repeat { every, cron, time_zone });
    }
    spec.receipt = args.with_receipt;
    spec.identity = args.as_identity.clone();
    spec.fingerprint = args.connection.fingerprint.clone();
    spec.checked()
}

/// What starts programs, or names keys and files of a host, is set in the service's configuration.
fn refuse_what_is_the_services(args: &Submit) -> Result<(), Error> {
    let connection = &args.connection;
    let given = [
        (!connection.identity.is_empty(), "-i"),
        (connection.config.is_some(), "-F"),
        (connection.jump.is_some(), "-J"),
        (!connection.ssh_options.is_empty(), "-o"),
        (connection.program.is_some(), "-S"),
        (connection.port.is_some(), "-P"),
        (connection.compress, "-C"),
        (connection.ipv4, "-4"),
        (connection.ipv6, "-6"),
        (connection.remote_program.is_some(), "--remote-program"),
        (connection.accept_new, "--accept-new"),
        (connection.known_hosts.is_some(), "--known-hosts"),
        (connection.busy_wait.is_some(), "--busy-wait"),
        (args.transfer.manifest.is_some(), "--manifest"),
        (args.transfer.receipt.is_some(), "--receipt"),
        (args.transfer.cpus.is_some(), "--cpus"),
        (args.select.retry_failed.is_some(), "--retry-failed"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => {
            let hint = match *option {
                "--manifest" => "the service keeps the manifest of each job: farhaul job ID --files",
                "--receipt" => "with --with-receipt the service keeps it: farhaul receipt ID",
                "--retry-failed" => "farhaul retry ID tries a job again",
                "-P" => "write the port in the location: fh://host:4000/path, ssh://host:22/path",
                _ => "set it in the service's configuration: [identities] and [peers]",
            };
            Err(Error::new(Code::BadOption, format!("{option} is not for a job")).with_hint(hint))
        }
    }
}

/// The location as the service reads it, which has another current directory.
pub(super) fn absolute(text: &OsStr) -> Result<String, Error> {
    let place = Place::parse(text)?;
    let cannot =
        |error| Error::of_host(format!("{}: cannot find the current directory", text.display()), error);
    match &place {
        Place::Local(path) if !place.is_sink() && !place.is_made() => {
            let whole = std::path::absolute(path).map_err(cannot)?;
            let mut whole: PathBuf = whole;
            // `dir/` is what is in it.
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                whole.push("");
            }
            Ok(escape(whole.as_os_str().as_encoded_bytes()))
        }
        _ => Ok(escape(text.as_encoded_bytes())),
    }
}
