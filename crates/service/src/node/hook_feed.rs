//! Feeds hooks with the files of a run: reads the run's manifest while it grows, and makes batches of its
//! entries.
//!
//! Always true: the end of a batch is stored before the batch is delivered, so that it has the same files if
//! it is delivered again; of the entries that wait, only one or two batches are in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use farhaul::sisters::escape;
use farhaul_text::plain;

use super::manifests::{ContentProof, LINE_MAX, ManifestPageLine};
use crate::hooks::{ErrorWords, FileResult, FileWords, HookBatch, HookBatcher};
use crate::store::feeds::FeedRow;

/// How many bytes of a manifest are read at a time.
const READ_MAX: u64 = 256 << 10;

/// How long to wait before a manifest that cannot be read is tried again, as for want of descriptors.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The name of the digests in manifests. Up to 1 MiB they are plain BLAKE3.
const DIGEST: &str = "blake3-tree-1MiB";

/// A file, and the offset at which its line ends.
type Item = (FileWords, u64);

/// The feed of one hook for one run.
pub(super) struct HookFeed {
    pub(super) row: FeedRow,
    batcher: HookBatcher<Item>,
    read_to: u64,
    ready: VecDeque<HookBatch<Item>>,
    /// True if a batch is being stored, delivered, or noted as delivered.
    pub(super) is_busy: bool,
    /// True if that batch was stored by an earlier process.
    pub(super) is_recovering: bool,
}

/// A batch to deliver.
pub(super) struct HookBatchPart {
    pub(super) number: u64,
    pub(super) files: Vec<FileWords>,
    /// The offset of its end, to be stored; `None` if the store has it already.
    pub(super) to_fix: Option<u64>,
}

/// The next step of a feed.
pub(super) enum FeedStep {
    Tell(HookBatchPart),
    /// Everything was delivered.
    Over,
    /// There is nothing to deliver before this time.
    Wait(Option<Duration>),
}

impl HookFeed {
    pub(super) fn new(row: FeedRow) -> HookFeed {
        let batcher = HookBatcher::new(row.hook.batch, row.told);
        HookFeed {
            read_to: row.from_at,
            batcher,
            ready: VecDeque::new(),
            is_busy: false,
            is_recovering: false,
            row,
        }
    }

    /// Takes over the row that the store has now. With another serial number the run's manifest was begun
    /// anew, and so is the feed.
    pub(super) fn follow(&mut self, row: FeedRow) {
        if self.row.serial == row.serial {
            self.row = row;
        } else {
            *self = HookFeed::new(row);
        }
    }

    /// Says what to do now. `manifest` is the path of the run's manifest, which may not exist yet.
    pub(super) fn next(&mut self, manifest: &Path, now: Duration) -> FeedStep {
        self.try_next(manifest, now).unwrap_or_else(|error| {
            tracing::warn!("cannot read {} for a hook, trying again: {}", manifest.display(), plain(&error));
            FeedStep::Wait(Some(now + READ_AGAIN))
        })
    }

    fn try_next(&mut self, manifest: &Path, now: Duration) -> io::Result<FeedStep> {
        if let Some(to_at) = self.row.to_at {
            // An earlier process has stored the end of this batch, and may have delivered it.
            let (files, _) = read(manifest, self.row.from_at, Some(to_at))?;
            let files = files.into_iter().map(|(words, _)| words).collect();
            return Ok(FeedStep::Tell(HookBatchPart { number: self.row.told + 1, files, to_fix: None }));
        }
        if self.ready.is_empty() {
            while self.ready.is_empty() && !self.read_more(manifest, now)? {}
            if self.ready.is_empty() && self.row.is_over {
                match self.batcher.finish() {
                    Some(batch) => self.ready.push_back(batch),
                    None => return Ok(FeedStep::Over),
                }
            }
            self.ready.extend(self.batcher.handle_timeout(now));
        }
        Ok(match self.ready.pop_front() {
            Some(HookBatch { number, items }) => {
                let to_fix = items.last().map(|(_, at)| *at);
                let files = items.into_iter().map(|(words, _)| words).collect();
                FeedStep::Tell(HookBatchPart { number, files, to_fix })
            }
            None => FeedStep::Wait(self.batcher.poll_timeout()),
        })
    }

    /// Reads on. Yields whether it has reached the present end of the manifest.
    fn read_more(&mut self, manifest: &Path, now: Duration) -> io::Result<bool> {
        let from = self.read_to;
        let (items, read_to) = read(manifest, from, None)?;
        self.read_to = read_to;
        for (words, at) in items {
            let bytes = serde_json::to_vec(&words).map_or(0, |text| text.len());
            self.ready.extend(self.batcher.push(now, (words, at), bytes));
        }
        Ok(read_to == from)
    }
}

/// The files between two offsets of a manifest, and the offset up to which it was read. A manifest that does
/// not exist has none.
fn read(manifest: &Path, from: u64, to: Option<u64>) -> io::Result<(Vec<Item>, u64)> {
    let (mut items, mut at) = (Vec::new(), from);
    let file = match File::open(manifest) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((items, at)),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::with_capacity(256 << 10, file);
    lines.seek(SeekFrom::Start(from))?;
    let end = to.unwrap_or(from.saturating_add(READ_MAX));
    while at < end {
        let mut line = Vec::new();
        let len = lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? as u64;
        // The last line may be incomplete while the run goes on.
        if line.last() != Some(&b'\n') && len < LINE_MAX {
            break;
        }
        at += len;
        items.extend(words(&line).map(|words| (words, at)));
    }
    Ok((items, at))
}

fn words(line: &[u8]) -> Option<FileWords> {
    let (path, line) = ManifestPageLine::read(line)?;
    let proof = line.proof();
    if !matches!(line.kind.as_deref(), Some("file" | "hardlink") | None) {
        return None;
    }
    let result = match line.result?.as_str() {
        "sent" => FileResult::Arrived,
        "would-send" => FileResult::WouldArrive,
        "unchanged" | "renamed" if proof == ContentProof::Unread => FileResult::Unread,
        "unchanged" | "renamed" => FileResult::Present,
        "failed" => FileResult::Failed,
        "vanished" => FileResult::Vanished,
        _ => return None,
    };
    let error = line.code.map(|code| ErrorWords { code, what: line.error.unwrap_or_default() });
    let digest = line.digest.map(|hex| format!("{DIGEST}:{hex}"));
    Some(FileWords { path: escape(&path), bytes: line.size, result, digest, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{BatchBounds, Hook};
    use std::io::Write as _;

    fn row(count: usize) -> FeedRow {
        let hook: Hook = serde_json::from_str(r#"{"on": "file", "program": "/x"}"#).unwrap();
        let batch = BatchBounds { count, ..BatchBounds::default() };
        FeedRow {
            id: "j.1.file.x".into(),
            job: "j".into(),
            run: 1,
            hook: Hook { batch, ..hook },
            serial: 1,
            told: 0,
            from_at: 0,
            to_at: None,
            is_over: false,
        }
    }

    #[test]
    fn batches_follow_the_manifest_and_a_fixed_one_stays_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("m");
        let mut feed = HookFeed::new(row(2));
        let second = Duration::from_secs;
        assert!(matches!(feed.next(&path, second(0)), FeedStep::Wait(None)), "there is no manifest yet");
        let mut file = File::create(&path).unwrap();
        let line = |name: &str| {
            format!(
                "{{\"path\":\"{name}\",\"kind\":\"file\",\"size\":3,\"result\":\"sent\",\"digest\":\"00\"}}\n"
            )
        };
        write!(
            file,
            "{{\"manifest\":1}}\n{}{{\"path\":\".\",\"kind\":\"directory\",\"result\":\"sent\"}}\n",
            line("a")
        )
        .unwrap();
        assert!(matches!(feed.next(&path, second(1)), FeedStep::Wait(Some(due)) if due == second(6)));
        write!(file, "{}{}{{\"path\":\"half", line("b"), line("c")).unwrap();
        let FeedStep::Tell(told) = feed.next(&path, second(2)) else {
            panic!("two files are there to deliver")
        };
        let names =
            |told: &HookBatchPart| told.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        assert_eq!((told.number, names(&told)), (1, vec!["a".to_string(), "b".to_string()]));
        assert_eq!(told.files[0].digest.as_deref(), Some("blake3-tree-1MiB:00"));
        // The process is killed after it has stored the end of the batch.
        let fixed = FeedRow { to_at: told.to_fix, ..row(2) };
        let mut later = HookFeed::new(FeedRow { hook: row(9).hook, ..fixed });
        let FeedStep::Tell(again) = later.next(&path, second(0)) else {
            panic!("the batch must be delivered again")
        };
        assert_eq!((again.number, names(&again), again.to_fix), (1, names(&told), None));
        // The rest comes when it has waited long enough, or at the end of the run.
        let advanced = FeedRow { told: 1, from_at: told.to_fix.unwrap(), ..row(2) };
        feed.follow(advanced.clone());
        assert!(matches!(feed.next(&path, second(3)), FeedStep::Wait(Some(_))));
        let mut ended = HookFeed::new(FeedRow { is_over: true, ..advanced });
        writeln!(file, "\",\"kind\":\"file\",\"result\":\"failed\",\"code\":\"FH-X\",\"error\":\"why\"}}")
            .unwrap();
        let FeedStep::Tell(rest) = ended.next(&path, second(0)) else {
            panic!("the rest must come at the end")
        };
        assert_eq!((rest.number, names(&rest)), (2, vec!["c".to_string(), "half".to_string()]));
        assert_eq!(rest.files[1].error.as_ref().unwrap().code, "FH-X");
        ended.follow(FeedRow { told: 2, from_at: rest.to_fix.unwrap(), is_over: true, ..row(2) });
        assert!(matches!(ended.next(&path, second(0)), FeedStep::Over));
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_tried_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("m");
        let now = Duration::from_secs(7);
        // A directory in its place fails as a full table of descriptors does: by an error that is not that of
        // a missing file.
        std::fs::create_dir(&path).unwrap();
        let whole = FeedRow { is_over: true, ..row(2) };
        let fixed = FeedRow { to_at: Some(100), ..row(2) };
        for row in [whole.clone(), fixed] {
            let step = HookFeed::new(row).next(&path, now);
            assert!(matches!(step, FeedStep::Wait(Some(due)) if due == now + READ_AGAIN));
        }
        std::fs::remove_dir(&path).unwrap();
        assert!(matches!(HookFeed::new(whole).next(&path, now), FeedStep::Over));
    }

    #[test]
    fn what_became_of_a_file_is_told_and_what_is_none_is_not() {
        let result = |result: &str| {
            let line = format!("{{\"path\":\"a\",\"kind\":\"file\",\"size\":3,\"result\":\"{result}\"}}\n");
            words(line.as_bytes()).map(|words| words.result)
        };
        assert_eq!(result("sent"), Some(FileResult::Arrived));
        assert_eq!(result("unchanged"), Some(FileResult::Unread));
        let compared =
            r#"{"path":"a","kind":"file","size":3,"digest":"00","compared":true,"result":"unchanged"}"#;
        assert_eq!(words(compared.as_bytes()).map(|words| words.result), Some(FileResult::Present));
        assert_eq!(result("would-send"), Some(FileResult::WouldArrive));
        assert_eq!(result("failed"), Some(FileResult::Failed));
        assert_eq!(result("vanished"), Some(FileResult::Vanished));
        assert_eq!((result("deleted"), result("skipped")), (None, None));
    }
}
