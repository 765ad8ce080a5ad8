//! Decides how long jobs, records and manifests are kept, and deletes the rest.
//!
//! Always true: the newest are kept longest; the manifest of a run is deleted with its record. One token's jobs
//! that are over take at most half of the room, so that it pushes out its own before those of others.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Node;
use super::manifests::manifest_path;
use crate::store::history::{self, RecordSize, RunId};
use crate::store::jobs::EndedSize;
use crate::store::{deliveries, jobs};

/// How many rows are deleted in one step of the store.
const STEP_ROWS: usize = 500;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    /// For how many seconds jobs, records and manifests are kept.
    pub seconds: u64,
    /// The most bytes of all records with their manifests, and of the documents and logs of all jobs that are
    /// over.
    pub bytes: u64,
}

impl Default for RetentionRules {
    fn default() -> RetentionRules {
        RetentionRules { seconds: 90 * 86_400, bytes: 1 << 30 }
    }
}

impl Node {
    /// Deletes what is too old, and the oldest records beyond the limit of size.
    pub(super) fn forget(&self, kept: RetentionRules) {
        self.forget_old(kept.seconds);
        match self.store.read(history::weights) {
            Ok(records) => {
                let sizes = manifest_sizes(&self.folder.join("manifests"));
                self.forget_records(surplus(&records, &sizes, kept.bytes));
            }
            Err(error) => tracing::warn!(%error, "cannot find out how large the history is"),
        }
        match self.store.read(jobs::ended_sizes) {
            Ok(ended) => self.forget_jobs(&surplus_jobs(&ended, kept.bytes)),
            Err(error) => tracing::warn!(%error, "cannot find out how large the jobs that are over are"),
        }
    }

    /// True if so much has ended since the last time that the room may be used up.
    pub(super) fn should_forget(&self, kept: RetentionRules) -> bool {
        let ended = self.ended_bytes.load(Relaxed);
        let is_much = ended >= (kept.bytes / 8).max(1);
        if is_much {
            self.ended_bytes.fetch_sub(ended, Relaxed);
        }
        is_much
    }

    /// Goes on with deleting what is too old, if that was more than one step.
    pub(super) fn forget_more(&self, kept: RetentionRules) {
        if self.ended_much.swap(false, Relaxed) {
            self.forget_old(kept.seconds);
        }
    }

    fn forget_jobs(&self, gone: &[&EndedSize]) {
        if !gone.is_empty() {
            tracing::info!(jobs = gone.len(), "jobs that are over take too much room: deleting the oldest");
        }
        for step in gone.chunks(STEP_ROWS) {
            let folder = self.folder.clone();
            let step: Vec<(String, u32)> = step.iter().map(|job| (job.id.clone(), job.runs)).collect();
            let ids: Vec<String> = step.iter().map(|(id, _)| id.clone()).collect();
            self.store.later(move |transaction| {
                jobs::remove(transaction, &ids)?;
                for (id, runs) in &step {
                    (1..=*runs).for_each(|run| remove_manifest(&folder, &(id.clone(), run)));
                }
                Ok(())
            });
        }
    }

    fn forget_old(&self, kept_s: u64) {
        let kept_s = i64::try_from(kept_s).unwrap_or(i64::MAX);
        let before_ms = self.node_ms().saturating_sub(kept_s.saturating_mul(1000));
        let (folder, is_full) = (self.folder.clone(), Arc::new(AtomicBool::new(false)));
        let noted = is_full.clone();
        self.store.later(move |transaction| {
            let deliveries = deliveries::forget(transaction, before_ms, STEP_ROWS)?;
            let records = history::forget(transaction, before_ms, STEP_ROWS)?;
            records.iter().flatten().for_each(|run| remove_manifest(&folder, run));
            let ended = jobs::forget(transaction, before_ms, STEP_ROWS)?;
            for (id, runs) in &ended {
                (1..=*runs).for_each(|run| remove_manifest(&folder, &(id.clone(), run)));
            }
            let is_full = [deliveries, records.len(), ended.len()].contains(&STEP_ROWS);
            noted.store(is_full, Relaxed);
            Ok(())
        });
        let node = self.me.clone();
        self.store.then(move || {
            if is_full.load(Relaxed)
                && let Some(node) = node.upgrade()
            {
                node.ended_much.store(true, Relaxed);
                node.look();
            }
        });
    }

    fn forget_records(&self, records: &[RecordSize]) {
        if !records.is_empty() {
            tracing::info!(records = records.len(), "the history is too large: deleting its oldest records");
        }
        for step in records.chunks(STEP_ROWS) {
            let (folder, step) = (self.folder.clone(), step.to_vec());
            let ids: Vec<i64> = step.iter().map(|record| record.id).collect();
            self.store.later(move |transaction| {
                history::remove(transaction, &ids)?;
                step.iter()
                    .filter_map(|record| record.run.as_ref())
                    .for_each(|run| remove_manifest(&folder, run));
                Ok(())
            });
        }
    }
}

fn remove_manifest(folder: &Path, (job, run): &RunId) {
    // Many runs have no manifest, or it was deleted before.
    let _ = std::fs::remove_file(manifest_path(folder, job, *run));
}

/// The sizes of all manifests, by file name.
fn manifest_sizes(folder: &Path) -> HashMap<String, u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sized = |entry: std::fs::DirEntry| {
        Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
    };
    entries.filter_map(sized).collect()
}

/// The records to delete: those after the last one that still fits. Records are sorted from the newest.
fn surplus<'a>(
    records: &'a [RecordSize],
    manifests: &HashMap<String, u64>,
    bytes_max: u64,
) -> &'a [RecordSize] {
    let mut bytes = 0_u64;
    let is_kept = |record: &RecordSize| {
        let name = record.run.as_ref().map(|(job, run)| format!("{job}-{run}.jsonl"));
        let manifest = name.and_then(|name| manifests.get(&name)).copied().unwrap_or(0);
        bytes = bytes.saturating_add(record.bytes).saturating_add(manifest);
        bytes <= bytes_max
    };
    let kept = records.iter().map(is_kept).take_while(|is_kept| *is_kept).count();
    &records[kept..]
}

/// The jobs to delete, which are sorted from the one that ended last: of each token those beyond half of the
/// room, and of the others those beyond all of it.
fn surplus_jobs(ended: &[EndedSize], bytes_max: u64) -> Vec<&EndedSize> {
    let (mut of, mut all, mut gone) = (HashMap::<&str, u64>::new(), 0_u64, Vec::new());
    for job in ended {
        let own = of.entry(&job.owner).or_default();
        let sum = own.saturating_add(job.bytes);
        let is_beyond_share = super::accounts::is_limited(&job.owner) && sum > bytes_max / 2;
        if is_beyond_share || all.saturating_add(job.bytes) > bytes_max {
            gone.push(job);
        } else {
            *own = sum;
            all += job.bytes;
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fixture, copy};
    use super::*;
    use farhaul_api::JobState;

    fn record(id: i64, run: Option<&str>, bytes: u64) -> RecordSize {
        RecordSize { id, run: run.map(|job| (job.to_string(), 1)), bytes }
    }

    #[test]
    fn a_token_pushes_out_its_own_jobs_before_those_of_others() {
        let job =
            |id: &str, owner: &str, bytes| EndedSize { id: id.into(), owner: owner.into(), runs: 1, bytes };
        let ended = [
            job("7", "token:a", 40),
            job("6", "token:b", 10),
            job("5", "token:a", 10),
            job("4", "token:a", 1),
            job("3", "local", 30),
            job("2", "local", 20),
            job("1", "token:b", 10),
        ];
        let gone =
            |bytes_max| surplus_jobs(&ended, bytes_max).iter().map(|job| &job.id[..]).collect::<String>();
        assert_eq!(gone(1000), "");
        // Half of the room is for one token, and what fits is kept.
        assert_eq!(gone(100), "42");
        assert_eq!(gone(20), "74321");
        assert_eq!(gone(0), "7654321");
    }

    #[test]
    fn documents_of_jobs_that_are_over_are_not_kept_without_end() {
        let mut fixture = Fixture::new();
        fixture.stop();
        fixture.settings.kept.bytes = 1 << 20;
        fixture.start();
        std::fs::create_dir(fixture.path("in")).unwrap();
        for _ in 0..8 {
            let mut spec = copy(fixture.path("in/"), fixture.path("out"));
            spec.options.select.names = Some((0..2000).map(|name| format!("{name:0>100}")).collect());
            let id = fixture.submit(spec);
            fixture.wait(id, |view| view.is_over);
        }
        let kept = |fixture: &Fixture| {
            let sizes = fixture.node().store.read(jobs::ended_sizes).unwrap();
            sizes.iter().map(|job| job.bytes).sum::<u64>()
        };
        // It does not wait for the hour.
        fixture.wait_until(|fixture| (1..1 << 20).contains(&kept(fixture)));
    }

    #[test]
    fn the_newest_records_that_fit_are_kept_with_their_manifests() {
        let records =
            [record(4, None, 10), record(3, Some("a"), 10), record(2, Some("b"), 10), record(1, None, 1)];
        let manifests = [("a-1.jsonl".to_string(), 70), ("b-2.jsonl".to_string(), 999)].into();
        let kept = |bytes_max| records.len() - surplus(&records, &manifests, bytes_max).len();
        assert_eq!([1000, 101, 100, 90, 89, 10, 9].map(kept), [4, 4, 3, 2, 1, 1, 0]);
    }

    #[test]
    fn a_history_that_is_too_large_loses_its_oldest_records_and_their_manifests() {
        let mut fixture = Fixture::new();
        let manifest = |fixture: &Fixture, job: &str| manifest_path(fixture.folder.path(), job, 1);
        let jobs: Vec<_> = ["a", "b", "c"]
            .map(|name| {
                let job = fixture.submit(copy(fixture.file(name, 10), fixture.path(&format!("{name}.copy"))));
                fixture.wait_for(job, JobState::Done);
                job
            })
            .into();
        assert_eq!(fixture.records().len(), 3);
        assert!(manifest(&fixture, jobs[0].as_str()).exists());
        // The manifest of the oldest record is larger than the limit.
        std::fs::write(manifest(&fixture, jobs[0].as_str()), vec![b'\n'; 2 << 20]).unwrap();
        fixture.stop();
        fixture.settings.kept.bytes = 1 << 20;
        fixture.start();
        fixture.wait_until(|fixture| fixture.records().len() == 2);
        let left: Vec<_> = fixture.records().into_iter().filter_map(|record| record.job).collect();
        assert_eq!(left, [jobs[2].to_string(), jobs[1].to_string()]);
        let there: Vec<_> = jobs.iter().map(|job| manifest(&fixture, job.as_str()).exists()).collect();
        assert_eq!(there, [false, true, true]);
    }
}
