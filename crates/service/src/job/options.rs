//! The rules on who may use which option in a job: one for each option of `farhaul cp` and `farhaul sync`,
//! and for each field of a job's document.
//!
//! How to read it: [`JOB_OPTIONS`] is the table. `farhaul submit` refuses options that are not for jobs by
//! it, [`JobSpec::checked`] judges fields by it, and `access` finds in it what a caller needs for a field.
//!
//! Always true: a field without a rule is refused.

use farhaul_words::{Code, Error, OptionName};
use serde_json::Value;

use super::JobSpec;

/// The rule on who may use an option in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionRule {
    /// Everybody who may submit jobs.
    Anyone,
    /// The option names files of this host or of a peer: only callers that reach these files.
    Reach,
    /// Only callers with the scope `admin`: the option sets more than content.
    Admin,
    /// The option names a file that `farhaul submit` reads, with the rights of its user. The document holds
    /// the file's content.
    Submitter,
    /// The option starts programs, or names keys or whom to trust: only the service's configuration may set
    /// it.
    Configuration,
    /// The option makes no sense in a job, or has another form there.
    Terminal,
}

/// An option and its rule.
#[derive(Debug, PartialEq, Eq)]
pub struct JobOption {
    /// Its names on the command line, in the long form if there is one.
    pub flags: &'static [&'static str],
    /// Its fields in the document, with names joined by dots.
    pub fields: &'static [&'static str],
    /// The rule on who may use it.
    pub rule: OptionRule,
    /// A hint on what to do instead, if it is not for a job.
    pub instead: &'static str,
}

const fn row(flags: &'static [&'static str], fields: &'static [&'static str], rule: OptionRule) -> JobOption {
    JobOption { flags, fields, rule, instead: "" }
}

const fn not(flags: &'static [&'static str], rule: OptionRule, instead: &'static str) -> JobOption {
    JobOption { flags, fields: &[], rule, instead }
}

const SSH: &str = "set it in the service's configuration: [identities] and [peers]";

/// All options and fields.
pub const JOB_OPTIONS: &[JobOption] = &[
    row(&["LOCATION"], &["sources", "destination"], OptionRule::Reach),
    row(&["--spread"], &["options.spread"], OptionRule::Reach),
    row(&["--link-dest"], &["options.earlier.link"], OptionRule::Reach),
    row(&["--compare-dest"], &["options.earlier.compare"], OptionRule::Reach),
    row(&["--backup-dir"], &["options.backup.dir"], OptionRule::Reach),
    row(&["--backup", "--suffix"], &["options.backup.suffix"], OptionRule::Anyone),
    row(&["-p"], &["options.files.keep_setuid"], OptionRule::Admin),
    row(&["--owner"], &["options.owners.user"], OptionRule::Admin),
    row(&["--group"], &["options.owners.group"], OptionRule::Admin),
    row(&["--numeric-ids"], &["options.owners.numeric"], OptionRule::Admin),
    row(&["--chown", "--usermap"], &["options.owners.user_map"], OptionRule::Admin),
    row(&["--groupmap"], &["options.owners.group_map"], OptionRule::Admin),
    row(&["--devices"], &["options.files.devices"], OptionRule::Admin),
    // Fields of the job itself.
    row(
        &[],
        &["schema", "kind", "priority", "not_before", "finish_by", "smooth", "anyway", "labels", "receipt"],
        OptionRule::Anyone,
    ),
    row(&[], &["retry.attempts", "retry.first_delay", "retry.longest_delay"], OptionRule::Anyone),
    row(&[], &["repeat.every", "repeat.cron", "repeat.time_zone"], OptionRule::Anyone),
    // Where a webhook leads is judged when it is delivered (`hooks/webhook`).
    row(&[], &["webhook", "webhook_dry_run"], OptionRule::Anyone),
    // This is a name in the configuration, not a key.
    row(&[], &["identity"], OptionRule::Anyone),
    // It can only restrict whom a job talks to: the configuration's key of a peer, and its known key, must
    // match, too.
    row(&["--fingerprint"], &["fingerprint"], OptionRule::Anyone),
    row(&["--dry-run"], &["options.dry_run"], OptionRule::Anyone),
    // How content travels.
    row(&["--cipher"], &["options.network.cipher"], OptionRule::Anyone),
    row(&["--policy"], &["options.network.policy"], OptionRule::Anyone),
    row(&["--rate", "-l"], &["options.network.rate_bps"], OptionRule::Anyone),
    row(&["--min-rate"], &["options.network.rate_min_bps"], OptionRule::Anyone),
    row(&["--flows"], &["options.network.flows"], OptionRule::Anyone),
    row(&["--path"], &["options.network.paths", "options.network.auto_paths"], OptionRule::Anyone),
    row(&[], &["options.network.further_paths"], OptionRule::Anyone),
    row(&["--mtu"], &["options.network.mtu"], OptionRule::Anyone),
    row(&["--memory"], &["options.network.memory_bytes"], OptionRule::Anyone),
    row(&["--udp-only"], &["options.network.udp_only"], OptionRule::Anyone),
    row(&["--udp-ports"], &["options.network.udp_ports"], OptionRule::Anyone),
    // How files are written.
    row(&["--overwrite"], &["options.files.overwrite"], OptionRule::Anyone),
    row(&["--whole-file", "--no-whole-file"], &["options.files.delta"], OptionRule::Anyone),
    row(&["--inplace"], &["options.files.in_place"], OptionRule::Anyone),
    row(&["--hard-links", "--no-hard-links"], &["options.files.hard_links"], OptionRule::Anyone),
    row(&["--follow-growth"], &["options.files.follow_growth_secs"], OptionRule::Anyone),
    row(&["--announce"], &["options.files.announce"], OptionRule::Anyone),
    row(&["--modify-window"], &["options.files.modify_window_secs"], OptionRule::Anyone),
    row(&["--no-perms"], &["options.files.no_perms"], OptionRule::Anyone),
    row(&["--no-times"], &["options.files.no_times"], OptionRule::Anyone),
    row(&["--omit-dir-times"], &["options.files.omit_dir_times"], OptionRule::Anyone),
    row(&["--xattrs"], &["options.files.xattrs"], OptionRule::Anyone),
    row(&["--acls"], &["options.files.acls"], OptionRule::Anyone),
    row(&["--specials"], &["options.files.specials"], OptionRule::Anyone),
    row(&["--follow"], &["options.files.follow"], OptionRule::Anyone),
    row(&["--safe-links"], &["options.files.safe_links"], OptionRule::Anyone),
    row(&["--no-links"], &["options.files.no_links"], OptionRule::Anyone),
    row(&["--keep-dirlinks"], &["options.files.keep_dirlinks"], OptionRule::Anyone),
    // Which entries are taken.
    row(&["--include", "--exclude"], &["options.select.rules"], OptionRule::Anyone),
    row(&[], &["options.select.names"], OptionRule::Anyone),
    row(&["--min-size"], &["options.select.size_min"], OptionRule::Anyone),
    row(&["--max-size"], &["options.select.size_max"], OptionRule::Anyone),
    row(&["--min-age"], &["options.select.age_min"], OptionRule::Anyone),
    row(&["--max-age"], &["options.select.age_max"], OptionRule::Anyone),
    row(&["--one-file-system"], &["options.select.one_file_system"], OptionRule::Anyone),
    row(&["--require"], &["options.select.require"], OptionRule::Anyone),
    row(&["--files-from", "--from0", "--include-from", "--exclude-from"], &[], OptionRule::Submitter),
    // `merge FILE` is a filter rule, too; documents cannot have that.
    row(&["--filter"], &[], OptionRule::Submitter),
    // How integrity is ensured.
    row(&["--verify"], &["options.integrity.verify"], OptionRule::Anyone),
    row(&["--durable"], &["options.integrity.durable"], OptionRule::Anyone),
    row(&["--checksum-extra"], &["options.integrity.manifest.extra"], OptionRule::Anyone),
    row(&["--checksum-unchanged"], &["options.integrity.manifest.unchanged"], OptionRule::Anyone),
    JobOption {
        flags: &[],
        fields: &["options.integrity.receipt"],
        rule: OptionRule::Terminal,
        instead: "set the field receipt of the job",
    },
    // Options that a sync has beyond those of a copy.
    row(&["--checksum"], &["options.sync.checksum"], OptionRule::Anyone),
    row(&["--detect-renames"], &["options.sync.detect_renames"], OptionRule::Anyone),
    row(
        &["--delete", "--delete-before", "--delete-after"],
        &["options.sync.delete.when"],
        OptionRule::Anyone,
    ),
    row(&["--delete-excluded"], &["options.sync.delete.excluded"], OptionRule::Anyone),
    row(&["--max-delete"], &["options.sync.delete.max"], OptionRule::Anyone),
    row(&["--delete-guard", "--no-delete-guard"], &["options.sync.delete.guard"], OptionRule::Anyone),
    row(&["--delete-anyway"], &["options.sync.delete.anyway"], OptionRule::Anyone),
    JobOption {
        flags: &[],
        fields: &["options.sync.delete.last_root"],
        rule: OptionRule::Terminal,
        instead: "the service keeps it for each job",
    },
    row(&["--delete-across-mounts"], &["options.sync.delete.across_mounts"], OptionRule::Anyone),
    // These hold for every job anyway: directories are copied, nobody is asked, and the service decides how
    // to report.
    row(&["--recursive", "-B", "--json", "--quiet"], &[], OptionRule::Anyone),
    not(&["--identity", "-F", "-J", "-o", "-S", "--remote-program"], OptionRule::Configuration, SSH),
    not(&["-C", "-4", "-6"], OptionRule::Configuration, SSH),
    not(
        &["--bring"],
        OptionRule::Terminal,
        "nothing is brought for a job: bring it once by hand, or install farhaul there",
    ),
    not(
        &["--answer-wait"],
        OptionRule::Terminal,
        "the service retries a job whose far end does not answer: set `retry`",
    ),
    not(
        &["--accept-new", "--known-hosts"],
        OptionRule::Configuration,
        "the service trusts the keys in its user's known_hosts and those of [peers]",
    ),
    not(&["--cpus"], OptionRule::Configuration, "start the service with `cpus`"),
    not(
        &["-P"],
        OptionRule::Terminal,
        "write the port in the location: fh://host:4000/path, ssh://host:22/path",
    ),
    not(
        &["--busy-wait"],
        OptionRule::Terminal,
        "the service retries a job whose daemon is busy: set `retry`",
    ),
    not(
        &["--manifest"],
        OptionRule::Terminal,
        "the service keeps the manifest of each job: farhaul job ID `files`",
    ),
    not(&["--receipt"], OptionRule::Terminal, "with `with-receipt` the service keeps it: farhaul receipt ID"),
    not(&["--retry-failed"], OptionRule::Terminal, "farhaul retry ID tries a job again"),
    not(&["--events"], OptionRule::Terminal, "farhaul logs ID -f shows what happens"),
    not(&["--verbose"], OptionRule::Terminal, "farhaul job ID `files` shows what became of each file"),
];

impl JobOption {
    /// The entry of an option of the command line.
    pub fn of_flag(flag: &str) -> Option<&'static JobOption> {
        JOB_OPTIONS.iter().find(|option| option.flags.contains(&flag))
    }

    /// The fields of the document that these options of messages are.
    pub(crate) fn fields_of(options: &[OptionName]) -> Vec<String> {
        let entries = options.iter().filter_map(|option| JobOption::of_flag(&format!("--{option}")));
        entries.flat_map(|entry| entry.fields).map(ToString::to_string).collect()
    }

    /// The entry of a field of the document.
    pub fn of_field(field: &str) -> Option<&'static JobOption> {
        JOB_OPTIONS.iter().find(|option| option.fields.contains(&field))
    }

    /// An error if the option is not for a job; `name` is what the user typed.
    pub fn check(&self, name: &str) -> Result<(), Error> {
        match self.rule {
            OptionRule::Anyone | OptionRule::Reach | OptionRule::Admin | OptionRule::Submitter => Ok(()),
            OptionRule::Configuration | OptionRule::Terminal => {
                Err(Error::new(Code::BadOption, format!("{name} is not for a job")).with_hint(self.instead))
            }
        }
    }
}

/// A field that a document sets to another value than its default, and its rule.
pub(crate) type UsedOption = (String, &'static JobOption);

impl JobSpec {
    /// The fields that have another value than their default.
    pub(crate) fn used(&self) -> Result<Vec<UsedOption>, Error> {
        let value =
            |spec: &JobSpec| serde_json::to_value(spec).map_err(|error| Error::bug(error.to_string()));
        let usual = JobSpec::new(farhaul_api::JobKind::default(), Vec::new(), String::new());
        let mut used = Vec::new();
        compare(&value(self)?, &value(&usual)?, String::new(), &mut used)?;
        Ok(used)
    }
}

fn compare(value: &Value, usual: &Value, path: String, used: &mut Vec<UsedOption>) -> Result<(), Error> {
    if value == usual || value.is_null() {
        return Ok(());
    }
    if let Some(option) = JobOption::of_field(&path) {
        used.push((path, option));
        return Ok(());
    }
    let Value::Object(fields) = value else {
        let path = farhaul_text::printable(path.as_bytes(), 80);
        return Err(Error::bug(format!("nothing says who may ask for '{path}'")));
    };
    fields.iter().try_for_each(|(name, value)| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        compare(value, usual.get(name).unwrap_or(&Value::Null), path, used)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farhaul::document::{BackupRules, EarlierRules, JobOptions, SelectRules};
    use farhaul::options::{
        DeleteOptions, FileOptions, IntegrityOptions, ManifestOptions, NetworkOptions, OwnerOptions,
        SyncOptions,
    };
    use serde::de::{DeserializeOwned, Deserializer, Visitor};

    use super::*;
    use farhaul_api::{RepeatRule, RetryOptions};

    /// A deserializer that reports the names of a struct's fields, and reads nothing.
    struct FieldNames;

    /// The names as an error, which is how a deserializer can return something.
    #[derive(Debug)]
    struct FoundFields(Vec<&'static str>);

    impl std::fmt::Display for FoundFields {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("found")
        }
    }

    impl std::error::Error for FoundFields {}

    impl serde::de::Error for FoundFields {
        fn custom<T: std::fmt::Display>(_: T) -> FoundFields {
            FoundFields(Vec::new())
        }
    }

    impl<'de> Deserializer<'de> for FieldNames {
        type Error = FoundFields;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, FoundFields> {
            Err(FoundFields(fields.to_vec()))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, FoundFields> {
            Err(FoundFields(Vec::new()))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn names<T: DeserializeOwned>() -> Vec<&'static str> {
        match T::deserialize(FieldNames) {
            Err(FoundFields(names)) => names,
            Ok(_) => panic!("nothing was there to be read"),
        }
    }

    /// All fields of a document, taken from the types that read it.
    fn fields() -> BTreeSet<String> {
        let groups = [
            ("", names::<JobSpec>()),
            ("retry", names::<RetryOptions>()),
            ("repeat", names::<RepeatRule>()),
            ("options", names::<JobOptions>()),
            ("options.network", names::<NetworkOptions>()),
            ("options.files", names::<FileOptions>()),
            ("options.select", names::<SelectRules>()),
            ("options.earlier", names::<EarlierRules>()),
            ("options.backup", names::<BackupRules>()),
            ("options.owners", names::<OwnerOptions>()),
            ("options.integrity", names::<IntegrityOptions>()),
            ("options.integrity.manifest", names::<ManifestOptions>()),
            ("options.sync", names::<SyncOptions>()),
            ("options.sync.delete", names::<DeleteOptions>()),
        ];
        let joined = |group: &str, name: &str| [group, name].join(".").trim_start_matches('.').to_string();
        let all = groups.iter().flat_map(|(group, names)| names.iter().map(move |name| joined(group, name)));
        // A group is left out, as its own fields are listed.
        all.filter(|field| !groups.iter().any(|(group, _)| group == field)).collect()
    }

    /// Whoever adds a field must say who may use it.
    #[test]
    fn every_field_of_a_document_has_one_rule() {
        let in_table: Vec<String> =
            JOB_OPTIONS.iter().flat_map(|option| option.fields).map(|field| field.to_string()).collect();
        let unique: BTreeSet<String> = in_table.iter().cloned().collect();
        assert_eq!(unique.len(), in_table.len(), "some field has two rules");
        let fields = fields();
        assert!(fields.len() > 50, "{fields:?}");
        let without: Vec<_> = fields.difference(&unique).collect();
        assert!(
            without.is_empty(),
            "these fields of a job's document have no rule in JOB_OPTIONS: {without:?}"
        );
        let unknown: Vec<_> = unique.difference(&fields).collect();
        assert!(unknown.is_empty(), "a document has no such fields: {unknown:?}");
    }

    #[test]
    fn what_is_not_for_a_job_says_what_to_do_instead() {
        for option in JOB_OPTIONS {
            let is_refused = option.check("x").is_err();
            assert_eq!(is_refused, !option.instead.is_empty(), "{option:?}");
        }
    }

    #[test]
    fn what_is_usual_is_not_asked_for() {
        let spec = JobSpec::new(farhaul_api::JobKind::Copy, vec!["/a".into()], "/b".into());
        let used = |spec: &JobSpec| spec.used().unwrap().into_iter().map(|used| used.0).collect::<Vec<_>>();
        assert_eq!(used(&spec), ["destination", "sources"]);
        let mut other = spec.clone();
        other.options.files.keep_setuid = true;
        other.options.sync =
            Some(SyncOptions { delete: Some(DeleteOptions::default()), ..Default::default() });
        let used = used(&other);
        assert!(used.contains(&"options.files.keep_setuid".to_string()), "{used:?}");
        assert!(used.contains(&"options.sync.delete.when".to_string()), "{used:?}");
    }

    /// A map with the user's own names counts as one field.
    #[test]
    fn labels_are_one_field() {
        let mut spec = JobSpec::new(farhaul_api::JobKind::Copy, vec!["/a".into()], "/b".into());
        spec.labels.0.insert("run".into(), "7".into());
        assert!(
            spec.used()
                .unwrap()
                .iter()
                .any(|(field, option)| field == "labels" && option.rule == OptionRule::Anyone)
        );
    }
}
