//! Verify hooks: programs that look at each whole file that arrives at this host, before it gets its name.
//!
//! How to read it: a [`VerifyHook`] is a table of the configuration; [`VerifyHooks`] has those of now, and is what
//! receivers ask ([`ContentCheck`]). `answers.rs` reads what a program says of files, `quarantine.rs` keeps what
//! was refused.
//!
//! Always true: a file is accepted only by programs that have run to their end and said so. Whatever else
//! happens, the file is not accepted. A program cannot write through the descriptor that it gets.

mod answers;
mod quarantine;

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul::sisters::{CheckLimits, CheckVerdict, ContentCheck, UncheckedFile, escape};
use farhaul_handover::Held as _;
use serde::Serialize;

use super::program::{PassedFiles, Program, ProgramEnd, RunWatch, run_with};
use super::{MESSAGE_SCHEMA, OUTPUT_MAX};

/// How often a file that waits for a program asks if it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The name of the digests. Up to 1 MiB they are plain BLAKE3.
const DIGEST: &str = "blake3-tree-1MiB";

/// A program that looks at files, as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyHook {
    /// The name of its table.
    pub name: String,
    /// The program.
    pub program: Program,
    /// How long one run of the program may take.
    pub limit: Duration,
    /// How many of it run at a time, for all transfers together.
    pub at_once: usize,
    /// The most files of one run. With more than one, the program answers in lines of JSON.
    pub files: usize,
    /// The directory that takes what is refused; without it, that is removed.
    pub quarantine: Option<PathBuf>,
}

/// The verify hooks of a node.
#[derive(Debug, Default)]
pub struct VerifyHooks {
    now: RwLock<Arc<[RunnableHook]>>,
}

/// A hook, and the places of its programs.
#[derive(Debug, Clone)]
struct RunnableHook {
    hook: Arc<VerifyHook>,
    places: Arc<ProgramSlots>,
}

/// A number of places, each for a program that runs.
#[derive(Debug)]
struct ProgramSlots {
    free: Mutex<usize>,
    given_back: Condvar,
}

struct ProgramSlot<'a>(&'a ProgramSlots);

impl Drop for ProgramSlot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().in_any_case() += 1;
        self.0.given_back.notify_one();
    }
}

impl ProgramSlots {
    /// Waits for a place; `None` if nobody wants one any more.
    fn take(&self, is_wanted: &dyn Fn() -> bool) -> Option<ProgramSlot<'_>> {
        let mut free = self.free.lock().in_any_case();
        while *free == 0 {
            if !is_wanted() {
                return None;
            }
            free = self.given_back.wait_timeout(free, LOOK_EVERY).in_any_case().0;
        }
        *free -= 1;
        Some(ProgramSlot(self))
    }
}

impl VerifyHooks {
    /// Takes over the hooks of the configuration. A hook that has not changed keeps its places.
    pub fn set(&self, hooks: &[VerifyHook]) {
        let mut now = self.now.write().in_any_case();
        let runnable = |hook: &VerifyHook| match now.iter().find(|known| *known.hook == *hook) {
            Some(known) => known.clone(),
            None => RunnableHook {
                hook: Arc::new(hook.clone()),
                places: Arc::new(ProgramSlots {
                    free: Mutex::new(hook.at_once.max(1)),
                    given_back: Condvar::new(),
                }),
            },
        };
        *now = hooks.iter().map(runnable).collect();
    }

    fn now(&self) -> Arc<[RunnableHook]> {
        self.now.read().in_any_case().clone()
    }

    /// As [`ContentCheck::judge`], for files of a job.
    pub fn judge_for(
        &self,
        files: &[UncheckedFile<'_>],
        (sender, job): (&str, Option<&str>),
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Vec<CheckVerdict>> {
        let mut verdicts = vec![CheckVerdict::Accepted; files.len()];
        for RunnableHook { hook, places } in self.now().iter() {
            // A later program does not get what an earlier one has refused.
            let open: Vec<usize> =
                (0..files.len()).filter(|&index| verdicts[index] == CheckVerdict::Accepted).collect();
            for part in open.chunks(hook.files.max(1)) {
                let part_files: Vec<_> = part.iter().map(|&index| &files[index]).collect();
                let told: Vec<_> = part_files.iter().map(|file| FileFacts::of(file, sender, job)).collect();
                let place = places.take(is_wanted)?;
                let judged = hook.judge(&part_files, &told, is_wanted)?;
                drop(place);
                for ((&index, verdict), told) in part.iter().zip(judged).zip(&told) {
                    verdicts[index] = hook.dispose(&files[index], told, verdict, is_wanted)?;
                }
            }
        }
        Some(verdicts)
    }
}

impl ContentCheck for VerifyHooks {
    fn limits(&self) -> Option<CheckLimits> {
        let now = self.now();
        let most = |number: fn(&VerifyHook) -> usize| now.iter().map(|one| number(&one.hook)).max();
        Some(CheckLimits { threads: most(|hook| hook.at_once)?, files: most(|hook| hook.files)? })
    }

    fn judge(
        &self,
        files: &[UncheckedFile<'_>],
        sender: &str,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Vec<CheckVerdict>> {
        self.judge_for(files, (sender, None), is_wanted)
    }
}

/// The check of one job's files.
pub struct JobCheck {
    /// The hooks of the node.
    pub hooks: Arc<VerifyHooks>,
    /// The id of the job.
    pub job: String,
}

impl ContentCheck for JobCheck {
    fn limits(&self) -> Option<CheckLimits> {
        self.hooks.limits()
    }

    fn judge(
        &self,
        files: &[UncheckedFile<'_>],
        sender: &str,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Vec<CheckVerdict>> {
        self.hooks.judge_for(files, (sender, Some(&self.job)), is_wanted)
    }
}

/// The line that a program gets for a file. docs/guide/hooks.md shows it to users.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FileFacts {
    schema: u32,
    event: &'static str,
    /// The number of the file in this run of the program, from 0.
    id: usize,
    at_ms: u64,
    /// Where the program reads the content.
    content: String,
    /// The path that the file gets, escaped as in reports.
    path: String,
    /// The last part of it.
    name: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    sender: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

impl FileFacts {
    fn of(file: &UncheckedFile<'_>, sender: &str, job: Option<&str>) -> FileFacts {
        let mut path = file.directory.to_vec();
        if !path.is_empty() && !file.path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(file.path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let digest = |digest: [u8; 32]| {
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{DIGEST}:{hex}")
        };
        FileFacts {
            schema: MESSAGE_SCHEMA,
            event: "verify",
            id: 0,
            at_ms: now_ms(),
            content: String::new(),
            name: escape(name),
            path: escape(&path),
            bytes: file.size,
            digest: file.digest.map(digest),
            sender: sender.to_owned(),
            job: job.map(str::to_owned),
        }
    }

    /// The same in the environment, for a program that gets one file.
    fn variables(&self, descriptor: i32) -> Vec<(String, String)> {
        let number = |name: &str, value: String| (format!("FARHAUL_{name}"), value);
        vec![
            number("EVENT", self.event.to_owned()),
            number("CONTENT", format!("/proc/self/fd/{descriptor}")),
            number("PATH", self.path.clone()),
            number("NAME", self.name.clone()),
            number("BYTES", self.bytes.to_string()),
            number("DIGEST", self.digest.clone().unwrap_or_default()),
            number("SENDER", self.sender.clone()),
            number("JOB", self.job.clone().unwrap_or_default()),
        ]
    }
}

impl VerifyHook {
    /// Runs the program for some files; one verdict for each, or `None` if nobody wants them any more.
    fn judge(
        &self,
        files: &[&UncheckedFile<'_>],
        told: &[FileFacts],
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Vec<CheckVerdict>> {
        let all = |verdict: CheckVerdict| Some(vec![verdict; files.len()]);
        let passed: std::io::Result<Vec<OwnedFd>> = files.iter().map(|file| at_its_beginning(file)).collect();
        let passed = match passed {
            Ok(passed) => passed,
            Err(error) => return all(CheckVerdict::Failed(farhaul::sisters::plain(&error))),
        };
        let numbers: Vec<i32> = passed.iter().map(|passed| passed.as_raw_fd()).collect();
        let is_single = self.files <= 1;
        let variables = match (is_single, told, &numbers[..]) {
            (true, [told], [number]) => told.variables(*number),
            _ => vec![("FARHAUL_EVENT".to_owned(), "verify".to_owned())],
        };
        let input = |process: u32| lines(told, &numbers, process);
        let passed = PassedFiles { files: passed, input: &input };
        let output_max = OUTPUT_MAX + files.len() * answers::LINE_MAX;
        let watch = RunWatch { stop: None, is_wanted, output_max };
        let end = match run_with(&self.program, passed, &variables, self.limit, watch) {
            Ok(end) => end,
            Err(error) => return all(CheckVerdict::Failed(error.what().to_owned())),
        };
        if end.stopped {
            return None;
        }
        tracing::debug!(hook = self.name, files = files.len(), "the verify hook {}", end.verdict());
        match failure_of(&end, self.limit) {
            Some(why) => all(CheckVerdict::Failed(why)),
            None if is_single => all(answers::of_status(&end)),
            None => Some(answers::of_lines(&end, files.len())),
        }
    }

    /// Logs a verdict, and puts what was refused into quarantine. `None` if nobody wants the file any more.
    fn dispose(
        &self,
        file: &UncheckedFile<'_>,
        told: &FileFacts,
        verdict: CheckVerdict,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<CheckVerdict> {
        let (hook, path, sender) = (&self.name, &told.path, &told.sender);
        let job = told.job.as_deref().unwrap_or_default();
        match &verdict {
            CheckVerdict::Refused(reason) => {
                tracing::warn!(hook, path, sender, job, reason, "the verify hook refuses a file");
                if let Some(folder) = &self.quarantine {
                    match quarantine::keep(folder, file, told, (hook, reason), is_wanted) {
                        Ok(Some(kept)) => tracing::info!(path, kept = %kept.display(), "it is in quarantine"),
                        Ok(None) => return None,
                        Err(error) => {
                            tracing::error!(path, %error, folder = %folder.display(), "it cannot be kept in quarantine, and is removed");
                        }
                    }
                }
            }
            CheckVerdict::Failed(reason) => {
                tracing::error!(
                    hook,
                    path,
                    sender,
                    job,
                    reason,
                    "the verify hook gives no verdict on a file"
                );
            }
            CheckVerdict::Accepted | CheckVerdict::Changed => {}
        }
        Some(verdict)
    }
}

/// Why a run of the program says nothing about its files.
fn failure_of(end: &ProgramEnd, limit: Duration) -> Option<String> {
    match (end.timed_out, end.status) {
        (true, _) => Some(format!("the program took longer than its limit of {} s", limit.as_secs())),
        (false, None) => Some(format!("the program {}", end.verdict())),
        // EX_TEMPFAIL, and what a shell says of a program that it cannot run or find.
        (false, Some(75 | 126 | 127)) => {
            let said = answers::last_line(&end.output);
            Some(said.unwrap_or_else(|| format!("the program {}", end.verdict())))
        }
        (false, Some(_)) => None,
    }
}

/// One line for each file. The content is named by the program's own process, so that its children can open it,
/// too.
fn lines(told: &[FileFacts], descriptors: &[i32], process: u32) -> Vec<u8> {
    let mut all = Vec::new();
    for (id, (told, descriptor)) in told.iter().zip(descriptors).enumerate() {
        let line = FileFacts { id, content: format!("/proc/{process}/fd/{descriptor}"), ..told.clone() };
        // This writes into memory, and all of it is text and numbers.
        if serde_json::to_writer(&mut all, &line).is_ok() {
            all.push(b'\n');
        }
    }
    all
}

/// A descriptor of the content for a program, which may read it without opening it again.
fn at_its_beginning(file: &UncheckedFile<'_>) -> std::io::Result<OwnedFd> {
    rustix::fs::seek(file.content, rustix::fs::SeekFrom::Start(0))?;
    file.content.try_clone()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
