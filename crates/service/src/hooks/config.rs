//! The hooks of the configuration: which programs run, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;
use serde::{Deserialize, Serialize};

use super::{BatchBounds, Program};

/// How long a program may run if the configuration does not say.
const LIMIT_S: u32 = 60;
/// The longest time that the configuration may allow: a day.
const LIMIT_S_MAX: u32 = 86_400;

/// When a hook or webhook is called.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum HookMoment {
    /// Before a run begins. If the program fails, the run does not begin.
    Pre,
    /// Files have arrived or failed; several at a time.
    File,
    /// The deadline of a run will not be kept, as things stand; once for each run.
    Late,
    /// A run has ended, and everything or a part of it has arrived.
    Post,
    /// A run has failed, and no further attempt follows.
    Fail,
    /// Files of a watched folder begin to fail.
    Failing,
    /// No file of a watched folder fails any more.
    Recovered,
}

impl HookMoment {
    /// All moments.
    pub const ALL: [HookMoment; 7] = [
        HookMoment::Pre,
        HookMoment::File,
        HookMoment::Late,
        HookMoment::Post,
        HookMoment::Fail,
        HookMoment::Failing,
        HookMoment::Recovered,
    ];

    /// The word for it in the configuration and in messages.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for HookMoment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A program, when it runs, and for which jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// When it runs.
    pub on: HookMoment,
    /// The program, as an absolute path. No shell runs it, and nothing searches for it.
    pub program: std::path::PathBuf,
    /// Its arguments, passed on unchanged.
    #[serde(default)]
    pub args: Vec<String>,
    /// How many seconds it may run before it is killed, 1 to 86,400.
    #[serde(default = "limit_s")]
    pub limit_s: u32,
    /// It runs only for jobs that have all these labels with these values; `*` stands for any value. Empty:
    /// for every job.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// It runs for dry runs, too.
    #[serde(default)]
    pub dry_run: bool,
    /// For `file`: how many files go into one message.
    #[serde(default)]
    pub batch: BatchBounds,
}

fn limit_s() -> u32 {
    LIMIT_S
}

/// True if the labels of a job fit those that a hook asks for.
pub(super) fn chooses(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, wanted)| labels.get(name).is_some_and(|value| wanted == "*" || wanted == value))
}

impl Hook {
    /// The program to run.
    pub fn program(&self) -> Program {
        Program { program: self.program.clone(), args: self.args.clone() }
    }

    /// How long the program may run.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_s.into())
    }

    /// True if the hook is for a job with these labels. A dry run brings nothing, so a hook hears of it only if
    /// it asks for that.
    pub fn is_for(&self, labels: &BTreeMap<String, String>, is_dry_run: bool) -> bool {
        chooses(&self.labels, labels) && (self.dry_run || !is_dry_run)
    }

    /// Judges the hook. No other function does.
    pub fn checked(self) -> Result<Hook, Error> {
        self.program().check()?;
        if !(1..=LIMIT_S_MAX).contains(&self.limit_s) {
            let what =
                format!("the {} hook's limit_s is {}, but must be 1 to {LIMIT_S_MAX}", self.on, self.limit_s);
            return Err(Error::new(Code::BadOption, what));
        }
        self.batch
            .check()
            .map_err(|what| Error::new(Code::BadOption, format!("the {} hook's {what}", self.on)))?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_moments_do_not_change() {
        let words = ["pre", "file", "late", "post", "fail", "failing", "recovered"];
        assert_eq!(HookMoment::ALL.map(HookMoment::name), words);
    }

    #[derive(Deserialize)]
    struct File {
        hook: Vec<Hook>,
    }

    fn hooks(text: &str) -> Result<Vec<Hook>, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        file.hook.into_iter().map(|hook| hook.checked().map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn a_hook_is_read() {
        let text =
            "[[hook]]\non = 'file'\nprogram = '/x'\nargs = ['-']\nbatch = { count = 200, wait_s = 10 }";
        let hooks = hooks(text).expect("it is right");
        assert_eq!((hooks[0].on, hooks[0].batch.count, hooks[0].limit_s), (HookMoment::File, 200, 60));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = [
            ("on = 'pre'\nprogram = 'check.sh'", "absolute path"),
            ("on = 'pre'\nprogram = '/x'\nlimit_s = 0", "limit_s"),
            ("on = 'pre'\nprogram = '/x'\nlimit_s = 86401", "limit_s"),
            ("on = 'file'\nprogram = '/x'\nbatch = { count = 0 }", "count"),
            ("on = 'before'\nprogram = '/x'", "unknown variant"),
            ("on = 'pre'\nprogram = '/x'\nshell = true", "unknown field"),
        ];
        for (text, expected) in refused {
            let error = hooks(&format!("[[hook]]\n{text}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn labels_choose_jobs() {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let hook = |labels: &[(&str, &str)]| Hook {
            labels: map(labels),
            ..hooks("[[hook]]\non='pre'\nprogram='/x'").unwrap().remove(0)
        };
        let job: BTreeMap<String, String> = map(&[("run", "7"), ("team", "xray")]);
        for (labels, expected) in [
            (&[][..], true),
            (&[("run", "7")], true),
            (&[("run", "8")], false),
            (&[("run", "*"), ("team", "xray")], true),
            (&[("run", "7"), ("site", "*")], false),
        ] {
            assert_eq!(hook(labels).is_for(&job, false), expected, "{labels:?}");
            assert!(!hook(labels).is_for(&job, true), "a dry run, which the hook has not asked for");
            let asks = Hook { dry_run: true, ..hook(labels) };
            assert_eq!([asks.is_for(&job, true), asks.is_for(&job, false)], [expected; 2]);
        }
        assert!(!hook(&[("run", "*")]).is_for(&BTreeMap::new(), false));
    }
}
