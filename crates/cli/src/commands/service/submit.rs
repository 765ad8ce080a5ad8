//! `farhaul submit`: makes a job of the service from a command line or a document.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use farhaul::Error;
use farhaul::copy::LocationSpec;
use farhaul::document::{BackupRules, EarlierRules, SelectRules};
use farhaul::errors::{Code, ExitCode};
use farhaul::options::{BackupOptions, EarlierOptions, OverwriteMode, SyncOptions};
use farhaul::sisters::{escape, plain};
use farhaul_api::{FinishBy, JobKind, JobSpan, JobView, Labels, RepeatRule, RetryOptions};
use farhaul_service::{JobOption, JobSpec};
use serde_json::Value;

use super::{client, wait};
use crate::args::Cli;
use crate::args::service::{GivenOptions, SubmitArgs, flag_of};
use crate::selection;
use crate::ui::printer;

/// The most bytes of a document.
const SPEC_MAX: u64 = 8 << 20;

pub fn submit(args: &SubmitArgs) -> Result<ExitCode, Error> {
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
    let job: JobView = match &args.key {
        Some(key) => client.post_once("/jobs", &document, key)?,
        None => client.post("/jobs", &document)?,
    };
    let id = job.id.to_string();
    if args.json && !args.wait {
        printer::json(&job)?;
    } else if !args.json {
        printer::data(format!("{id}\n").as_bytes())?;
    }
    if args.wait { wait::wait_for(&client, &[id], args.json, args.quiet) } else { Ok(ExitCode::Ok) }
}

/// Reads the document of a job. The service judges its content.
fn document(file: &Path) -> Result<Value, Error> {
    let mut text = Vec::new();
    let read = if file.as_os_str() == "-" {
        crate::descriptors::input()?;
        std::io::stdin().lock().take(SPEC_MAX).read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(SPEC_MAX).read_to_end(&mut text))
    };
    let cannot = |why: String| Error::new(Code::BadOption, format!("--spec {}: {why}", file.display()));
    read.map_err(|error| cannot(plain(&error)))?;
    // It is parsed here, so that an error names the line and the column.
    serde_json::from_slice(&text).map_err(|error| cannot(error.to_string()))
}

/// Returns the job that the command line describes.
fn spec(args: &SubmitArgs) -> Result<JobSpec, Error> {
    let bad = |what: &str| Err(Error::new(Code::BadOption, what));
    refuse_what_is_not_for_a_job(&args.given)?;
    let Some((destination, sources)) = args.locations.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return bad("name a source and a destination");
    };
    let sources = sources.iter().map(|text| absolute(text)).collect::<Result<_, _>>()?;
    let kind = if args.sync { JobKind::Sync } else { JobKind::Copy };
    let mut spec = JobSpec::new(kind, sources, absolute(destination)?);
    let (select, names) = selection::read(&args.select, |note| printer::line(&format!("note: {note}")))?;
    let text = |bytes: &Vec<u8>| escape(bytes);
    spec.options.select = SelectRules {
        rules: select.rules.iter().map(text).collect(),
        names: names.map(|names| names.iter().map(text).collect()),
        size_min: select.size_min,
        size_max: select.size_max,
        age_min: args.select.min_age.map(JobSpan),
        age_max: args.select.max_age.map(JobSpan),
        one_file_system: select.one_file_system,
        require: select.require.iter().map(text).collect(),
    };
    let options = args.transfer.options()?;
    spec.options.network = options.network;
    spec.options.files = options.files;
    spec.options.files.keep_setuid = args.preserve;
    spec.options.integrity = options.integrity;
    spec.options.dry_run = options.dry_run;
    let EarlierOptions { link, compare } = &options.earlier;
    spec.options.earlier =
        EarlierRules { link: link.iter().map(text).collect(), compare: compare.iter().map(text).collect() };
    spec.options.owners = options.owners;
    spec.options.backup = options.backup.map(backup_rules);
    spec.options.spread = args.transfer.spread.iter().map(|list| list.0.iter().map(text).collect()).collect();
    let likeness = args.likeness.options()?;
    if args.sync {
        spec.options.sync = Some(likeness);
    } else if (SyncOptions { checksum: false, ..likeness }) != SyncOptions::default() {
        return bad("--delete and --detect-renames need --sync");
    } else if likeness.checksum {
        spec.options.files.overwrite = OverwriteMode::Content;
    }
    spec.priority = args.priority.unwrap_or(spec.priority);
    spec.not_before = args.not_before.map(|time| match time {
        FinishBy::At(moment) => moment,
        daily @ FinishBy::Daily(_) => daily.from_now(),
    });
    spec.finish_by = args.finish_by;
    (spec.smooth, spec.anyway) = (args.smooth, args.anyway);
    spec.retry =
        args.retry.map(|attempts| RetryOptions { attempts: Some(attempts), ..RetryOptions::default() });
    spec.labels = Labels::parse(&args.labels)?;
    (spec.webhook, spec.webhook_dry_run) = (args.webhook.clone(), args.webhook_dry_run);
    if args.every.is_some() || args.cron.is_some() {
        let (every, cron, time_zone) = (args.every, args.cron.clone(), args.time_zone.clone());
        spec.repeat = Some(RepeatRule { every, cron, time_zone });
    }
    spec.receipt = args.with_receipt;
    spec.identity = args.as_identity.clone();
    spec.fingerprint = args.connection.fingerprint.clone();
    spec.checked()
}

/// How a job keeps what it replaces.
pub fn backup_rules(options: BackupOptions) -> BackupRules {
    let BackupOptions { dir, suffix } = options;
    BackupRules { dir: (!dir.is_empty()).then(|| escape(&dir)), suffix: Some(escape(&suffix)) }
}

/// Refuses options that a job cannot have, by the service's table of all options.
fn refuse_what_is_not_for_a_job(given: &GivenOptions) -> Result<(), Error> {
    let command = Cli::command();
    let options = command.find_subcommand("submit").into_iter().flat_map(clap::Command::get_arguments);
    for option in options.filter(|option| given.0.iter().any(|id| option.get_id() == id)) {
        let flag = flag_of(option);
        // The table has no options of submit itself.
        JobOption::of_flag(&flag).map_or(Ok(()), |rule| rule.check(&flag))?;
    }
    Ok(())
}

/// Makes a local path absolute, as the service has another current directory.
pub(super) fn absolute(text: &OsStr) -> Result<String, Error> {
    let place = LocationSpec::parse(text)?;
    let cannot =
        |error| Error::of_host(format!("{}: cannot find the current directory", text.display()), error);
    match &place {
        LocationSpec::Local(path) if !place.is_sink() && !place.is_made() => {
            let whole = std::path::absolute(path).map_err(cannot)?;
            let mut whole: PathBuf = whole;
            // `dir/` means the contents of `dir`, and `absolute` removes the slash.
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                whole.push("");
            }
            Ok(escape(whole.as_os_str().as_encoded_bytes()))
        }
        _ => Ok(escape(text.as_encoded_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;
    use farhaul_service::{JOB_OPTIONS, OptionRule};

    use super::*;
    use crate::args::Verb;

    fn flags(verb: &str) -> BTreeSet<String> {
        let command = Cli::command();
        let options = command.find_subcommand(verb).unwrap().get_arguments();
        options.filter(|option| option.get_id() != "help").map(flag_of).collect()
    }

    fn submit(words: &[&str]) -> Result<JobSpec, String> {
        let all = ["farhaul", "submit"].iter().chain(words);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.verb {
            Verb::Submit(args) => spec(&args).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_time_zone_without_a_repetition_is_refused() {
        let job = ["zero:1", "null:", "--time-zone", "UTC"];
        assert!(submit(&job).unwrap_err().contains("--every"), "{:?}", submit(&job));
        for repetition in [["--every", "1h"], ["--cron", "30 22 * * *"]] {
            let spec = submit(&[job.as_slice(), &repetition].concat()).unwrap();
            assert_eq!(spec.repeat.unwrap().time_zone.as_deref(), Some("UTC"));
        }
    }

    /// An option that is added to cp or sync needs a rule in the service's table that says who may ask for it
    /// in a job.
    #[test]
    fn every_option_of_cp_and_sync_has_a_rule_for_jobs() {
        let ours = flags("submit");
        let all: BTreeSet<String> = ["cp", "sync"].into_iter().flat_map(flags).collect();
        assert!(all.len() > 60, "{all:?}");
        for flag in &all {
            let option = JobOption::of_flag(flag);
            let option = option
                .unwrap_or_else(|| panic!("{flag}: JOB_OPTIONS does not say who may ask for it in a job"));
            let is_for_jobs = matches!(
                option.rule,
                OptionRule::Anyone | OptionRule::Reach | OptionRule::Admin | OptionRule::Submitter
            );
            assert!(
                !is_for_jobs || ours.contains(flag),
                "a job can have {flag}, but submit does not take it"
            );
        }
        let in_table = JOB_OPTIONS.iter().flat_map(|option| option.flags).copied().collect::<Vec<_>>();
        let unknown: Vec<_> =
            in_table.iter().filter(|flag| !all.contains(**flag) && **flag != "-l").collect();
        assert!(unknown.is_empty(), "cp and sync have no {unknown:?}");
        let unique: BTreeSet<_> = in_table.iter().collect();
        assert_eq!(unique.len(), in_table.len(), "an option has two rules");
    }

    #[test]
    fn what_is_not_for_a_job_is_refused_by_name() {
        let command = Cli::command();
        let options = command.find_subcommand("submit").unwrap().get_arguments();
        let mut refused = 0;
        for option in options {
            let flag = flag_of(option);
            let Some(rule) = JobOption::of_flag(&flag).filter(|rule| rule.check(&flag).is_err()) else {
                continue;
            };
            let value = match flag.as_str() {
                "--cpus" | "-P" => "1",
                "--answer-wait" | "--busy-wait" => "5s",
                _ => "x",
            };
            let takes_value = option.get_action().takes_values();
            let words = [Some(flag.as_str()), takes_value.then_some(value), Some("/a"), Some("/b")];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            let line = submit(&words).expect_err(&flag);
            assert_eq!(line, format!("{flag} is not for a job"), "{rule:?}");
            refused += 1;
        }
        assert!(refused > 15);
    }

    #[test]
    fn what_is_for_a_job_arrives_in_its_document() {
        let spec = submit(&[
            "-rpB",
            "--sync",
            "--delete-before",
            "--delete-across-mounts",
            "--max-delete",
            "3",
            "--checksum-extra",
            "md5",
            "--fingerprint",
            "SHA256:x",
            "--rate",
            "1G",
            "/a",
            "fh://h/b",
        ])
        .unwrap();
        let delete = spec.options.sync.unwrap().delete.unwrap();
        assert_eq!(
            (delete.when, delete.max, delete.across_mounts),
            (farhaul::options::DeleteWhen::Before, "3".parse().ok(), true)
        );
        assert!(spec.options.files.keep_setuid && spec.options.network.rate_bps == Some(1_000_000_000));
        assert_eq!(spec.options.integrity.manifest.unwrap().extra, [farhaul::options::Algorithm::Md5]);
        assert_eq!(spec.fingerprint.as_deref(), Some("SHA256:x"));
        assert_eq!(
            submit(&["-c", "/a", "/b"]).unwrap().options.files.overwrite,
            farhaul::options::OverwriteMode::Content
        );
        assert!(submit(&["--delete", "/a", "/b"]).unwrap_err().contains("--sync"));
    }
}
