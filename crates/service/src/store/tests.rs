use std::sync::atomic::AtomicUsize;

use super::jobs::{JobDocument, JobFacts, JobFilter, JobRow, JobSteering, RunFigures, StoredDocument};
use super::*;
use crate::access::JobPlaces;
use crate::job::{JobHead, JobSpec};
use farhaul_api::CallerReach;
use farhaul_api::{JobId, JobKind, JobState, Labels};

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    (folder, store)
}

fn job(number: i64, state: JobState, labels: &[(&str, &str)]) -> (JobRow, StoredDocument) {
    let mut spec = JobSpec::new(JobKind::Copy, vec![format!("/data/run{number}")], "fh://hpc/in".into());
    spec.labels = Labels(labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect());
    let row = JobRow {
        id: JobId::new(1_795_820_000_000 + number).unwrap(),
        owner: "local".into(),
        state,
        priority: 5,
        position: number,
        peer: Some("fh://hpc:33001".into()),
        steering: JobSteering { rate_bps: Some(None), ..JobSteering::default() },
        figures: RunFigures { bytes: 5, ..RunFigures::default() },
        submitted_ms: number,
        due_ms: Some(7),
        finish_by_ms: None,
        run: 1,
        attempt: 2,
        began_ms: Some(3),
        ended_ms: state.is_final().then_some(number),
        error: Some((&Error::new(Code::NoSpace, "x")).into()),
        changed_ms: number,
        kept_bytes: 0,
    };
    let (mut places, to) = spec.places().unwrap();
    places.push(to);
    let facts = JobFacts { head: JobHead::of(&spec), places: JobPlaces(places).into() };
    let local = if number == 1 { vec!["/data".into()] } else { Vec::new() };
    let reach = CallerReach { local, ..CallerReach::default() };
    let document = JobDocument { spec, reach };
    let stored = StoredDocument::of(&document, &facts).unwrap();
    (JobRow { kept_bytes: stored.bytes(), ..row }, stored)
}

fn add(transaction: &Transaction<'_>, (row, document): &(JobRow, StoredDocument)) -> rusqlite::Result<()> {
    jobs::insert(transaction, row, document)
}

/// The rows of all jobs that are not over.
fn unfinished(store: &Store) -> Vec<Result<JobRow, String>> {
    let mut all = Vec::new();
    store.read(|connection| jobs::unfinished(connection, |_, row| all.push(row))).unwrap();
    all
}

#[test]
fn a_job_reads_back_as_it_was_written() {
    let (_folder, store) = store();
    let (mut row, document) = job(1, JobState::Queued, &[("run", "7")]);
    let written = row.clone();
    store.write(move |transaction| jobs::insert(transaction, &written, &document)).unwrap();
    let document = store.read(|connection| jobs::document(connection, row.id)).unwrap().unwrap().unwrap();
    assert_eq!((&document.spec.sources[0][..], document.reach.local.len()), ("/data/run1", 1));
    let facts = store.read(|connection| jobs::facts(connection, row.id)).unwrap().unwrap().unwrap();
    assert_eq!((&facts.head.labels.0["run"][..], facts.places.0.len()), ("7", 2));
    assert_eq!(store.read(|connection| jobs::get(connection, row.id)).unwrap().as_ref(), Some(&row));
    (row.state, row.priority, row.run, row.error) = (JobState::Done, 9, 2, None);
    row.steering = JobSteering { rate_bps: Some(Some(5)), ..JobSteering::default() };
    let changed = row.clone();
    store.later(move |transaction| jobs::update(transaction, &changed, 1));
    // This change is made after those that wait.
    store.write(|_| Ok(())).unwrap();
    assert_eq!(store.read(|connection| jobs::get(connection, row.id)).unwrap(), Some(row));
}

#[test]
fn a_copy_can_take_the_place_of_a_store_that_has_ended() {
    let (folder, store) = store();
    let (path, copy) = (folder.path().join("jobs.sqlite"), folder.path().join("copy"));
    let count = |store: &Store| {
        let jobs = "SELECT count(*) FROM jobs";
        store.read(|connection| connection.query_row(jobs, [], |row| row.get::<_, i64>(0))).unwrap()
    };
    store.write(|transaction| add(transaction, &job(1, JobState::Queued, &[]))).unwrap();
    store.backup(&copy).unwrap();
    store.write(|transaction| add(transaction, &job(2, JobState::Queued, &[]))).unwrap();
    assert_eq!(count(&store), 2);
    store.end();
    std::fs::copy(&copy, &path).unwrap();
    assert_eq!(count(&Store::open(&path).unwrap()), 1);
}

#[test]
fn lists_are_filtered_and_paged_newest_first() {
    let (_folder, store) = store();
    let rows: Vec<_> = (0..10)
        .map(|n| {
            let state = if n % 2 == 0 { JobState::Done } else { JobState::Queued };
            job(n, state, &[("run", if n < 5 { "7" } else { "8" })])
        })
        .collect();
    let written = rows.clone();
    store.write(move |transaction| written.iter().try_for_each(|row| add(transaction, row))).unwrap();
    let ask = |wanted: JobFilter, count| {
        let found = store.read(|connection| jobs::list(connection, &wanted, (count, 99), |_| true)).unwrap();
        found.jobs.iter().map(|job| job.row.submitted_ms).collect::<Vec<_>>()
    };
    assert_eq!(ask(JobFilter::default(), 3), [9, 8, 7]);
    assert_eq!(ask(JobFilter { before: Some(rows[7].0.id), ..JobFilter::default() }, 2), [6, 5]);
    assert_eq!(ask(JobFilter { states: vec![JobState::Done], ..JobFilter::default() }, 9), [8, 6, 4, 2, 0]);
    let label = vec![("run".to_string(), "8".to_string())];
    assert_eq!(
        ask(JobFilter { labels: label.clone(), states: vec![JobState::Queued], ..JobFilter::default() }, 9),
        [9, 7, 5]
    );
    assert_eq!(
        ask(
            JobFilter { labels: [label, vec![("a".into(), "b".into())]].concat(), ..JobFilter::default() },
            9
        ),
        [0; 0]
    );
    assert_eq!(ask(JobFilter { text: Some("RUN3".into()), ..JobFilter::default() }, 9), [3]);
    assert_eq!(ask(JobFilter { text: Some("Run=8".into()), ..JobFilter::default() }, 9), [9, 8, 7, 6, 5]);
    // The names of fields are for nobody's eyes, and neither are the signs of JSON.
    for unseen in ["destination", "source_count", "smooth", "[\"", "\",\"", "{"] {
        assert_eq!(
            ask(JobFilter { text: Some(unseen.into()), ..JobFilter::default() }, 9),
            [0; 0],
            "{unseen}"
        );
    }
    assert_eq!(ask(JobFilter { peer: Some("other".into()), ..JobFilter::default() }, 9), [0; 0]);
    assert_eq!(unfinished(&store).len(), 5);
    let old = |key: &jobs::JobKey<'_>| key.id < rows[4].0.id;
    let seen = |before, looks| {
        let wanted = JobFilter { before, ..JobFilter::default() };
        let page = store.read(|connection| jobs::list(connection, &wanted, (2, looks), old)).unwrap();
        (page.jobs.iter().map(|job| job.row.submitted_ms).collect::<Vec<_>>(), page.last)
    };
    assert_eq!(seen(None, 99), (vec![3, 2], Some(rows[2].0.id)));
    // A page ends where enough was looked at, and the list goes on from there.
    assert_eq!(seen(None, 7), (vec![3], Some(rows[3].0.id)));
    assert_eq!(seen(Some(rows[3].0.id), 7), (vec![2, 1], Some(rows[1].0.id)));
    assert_eq!(seen(Some(rows[1].0.id), 7), (vec![0], None));
    // To count looks at so many, and says whether there are more.
    let keys = |wanted: &JobFilter, looks| {
        let mut found = Vec::new();
        let is_cut =
            store.read(|connection| jobs::keys(connection, wanted, looks, |key| found.push(key.id))).unwrap();
        (
            found.iter().map(|id| rows.iter().position(|row| row.0.id == *id).unwrap()).collect::<Vec<_>>(),
            is_cut,
        )
    };
    let done = JobFilter { states: vec![JobState::Done], ..JobFilter::default() };
    assert_eq!(keys(&done, 3), (vec![8, 6, 4], true));
    assert_eq!(keys(&done, 5), (vec![8, 6, 4, 2, 0], false));
    assert_eq!(keys(&done, 99), (vec![8, 6, 4, 2, 0], false));
    let gone = store.write(|transaction| jobs::forget(transaction, 5, 2)).unwrap();
    assert_eq!(gone.len(), 2);
    assert_eq!(ask(JobFilter { states: vec![JobState::Done], ..JobFilter::default() }, 9), [8, 6, 4]);
}

#[test]
fn usage_is_summed_by_what_is_asked_for() {
    let (_folder, store) = store();
    let rows = [job(1, JobState::Done, &[("run", "7")]), job(2, JobState::Done, &[("run", "8")])];
    let ids = rows.each_ref().map(|row| row.0.id);
    store
        .write(move |transaction| {
            rows.iter().try_for_each(|row| add(transaction, row))?;
            for (job, run, bytes, peer, state) in
                [(0, 1, 100, "a", "done"), (0, 2, 50, "a", "failed"), (1, 1, 70, "b", "done")]
            {
                let record = farhaul_api::HistoryRecord {
                    job: Some(ids[job].to_string()),
                    run: Some(run),
                    peer: Some(peer.into()),
                    state: state.into(),
                    bytes,
                    files: 1,
                    began_ms: 0,
                    ended_ms: 86_400_000 * i64::from(run),
                    ..farhaul_api::HistoryRecord::default()
                };
                history::insert(transaction, &record, &history::RecordPapers::default(), 1)?;
                // A run ends only once.
                let again = farhaul_api::HistoryRecord { bytes: 1_000_000, ..record };
                history::insert(transaction, &again, &history::RecordPapers::default(), 1)?;
            }
            Ok(())
        })
        .unwrap();
    let ask = |by: history::UsageKey, wanted: history::RecordFilter| {
        let sums = store.read(|connection| history::usage(connection, &by, &wanted, 10)).unwrap();
        sums.into_iter().map(|sum| (sum.of, sum.transfers, sum.failed, sum.bytes)).collect::<Vec<_>>()
    };
    let all = history::RecordFilter::default;
    assert_eq!(
        ask(history::UsageKey::Peer, all()),
        [("a".to_string(), 2, 1, 150), ("b".to_string(), 1, 0, 70)]
    );
    assert_eq!(
        ask(history::UsageKey::Label("run".into()), all()),
        [("7".to_string(), 2, 1, 150), ("8".to_string(), 1, 0, 70)]
    );
    assert_eq!(
        ask(history::UsageKey::Day, all()),
        [("1970-01-02".to_string(), 2, 0, 170), ("1970-01-03".to_string(), 1, 1, 50)]
    );
    let late = history::RecordFilter { since_ms: Some(86_400_001), ..all() };
    assert_eq!(ask(history::UsageKey::Owner, late), [(String::new(), 1, 1, 50)]);
}

#[test]
fn a_change_that_is_at_fault_holds_up_no_other() {
    let (_folder, store) = store();
    let tried = Arc::new(AtomicUsize::new(0));
    for wrong in [false, true, false] {
        let tried = tried.clone();
        let row = job(tried.load(Relaxed) as i64, JobState::Queued, &[]);
        tried.fetch_add(1, Relaxed);
        store.later(move |transaction| {
            add(transaction, &row)?;
            if wrong { transaction.execute("INSERT INTO nowhere VALUES (1)", []).map(|_| ()) } else { Ok(()) }
        });
    }
    store.write(|_| Ok(())).unwrap();
    assert_eq!(unfinished(&store).len(), 2);
    assert!(!store.is_failing());
}

/// To SQLite a file that may have no more pages is like a full disk.
#[test]
fn a_full_disk_refuses_what_is_waited_for_and_keeps_the_rest() {
    let (_folder, store) = store();
    let limit = |pages| store.to_writer.send(Work::Pages(pages)).unwrap();
    limit(1);
    let rows: Vec<_> = (0..400).map(|n| job(n, JobState::Queued, &[("run", "7")])).collect();
    for row in rows {
        store.later(move |transaction| add(transaction, &row));
    }
    let error = store.write(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::NoSpace, "{error}");
    assert!(store.is_failing());
    // The store can still be read.
    unfinished(&store);
    limit(1_000_000);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while store.is_failing() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    store.write(|_| Ok(())).unwrap();
    assert_eq!(unfinished(&store).len(), 400);
}

#[test]
fn a_backup_is_a_store_and_a_sound_store_has_no_findings() {
    let (folder, store) = store();
    let row = job(1, JobState::Queued, &[]);
    store.write(move |transaction| add(transaction, &row)).unwrap();
    let copy = folder.path().join("copy.sqlite");
    store.backup(&copy).unwrap();
    assert_eq!(store.backup(&copy).unwrap_err().code(), Code::AlreadyExists);
    let copy = Store::open(&copy).unwrap();
    assert_eq!(unfinished(&copy).len(), 1);
    assert!(copy.check().unwrap().is_empty());
}

#[test]
fn a_row_that_cannot_be_read_is_one_fault_of_one_row() {
    let (_folder, store) = store();
    let rows: Vec<_> = (0..5).map(|number| job(number, JobState::Queued, &[])).collect();
    let ids: Vec<JobId> = rows.iter().map(|(row, _)| row.id).collect();
    store.write(move |transaction| rows.iter().try_for_each(|row| add(transaction, row))).unwrap();
    let spoil = |what: &'static str, id: JobId| {
        store.write(move |transaction| transaction.execute(what, [id.as_str()])).unwrap();
    };
    spoil("UPDATE jobs SET steering = 'x' WHERE id = ?1", ids[0]);
    spoil("UPDATE jobs SET head = '{' WHERE id = ?1", ids[1]);
    spoil("UPDATE jobs SET state = 'lost' WHERE id = ?1", ids[2]);
    spoil("UPDATE documents SET spec = '[]' WHERE job = ?1", ids[3]);
    let others = "INSERT INTO caps VALUES ('bad', 'x', 1), ('good', '{\"rate_bps\":8000}', 1);
        INSERT INTO watches VALUES ('w', 'local', '{', 1, '{}');
        INSERT INTO watch_entries VALUES ('w', 'a', 'new', '?');
        INSERT INTO tokens VALUES ('t', x'07', 'n', '[\"fly\"]', '{}', 'local', 1, NULL, NULL, 0, NULL);
        INSERT INTO feeds VALUES ('f', 'j', 1, '{}', 1, 0, 0, NULL, 0)";
    store.write(move |transaction| transaction.execute_batch(others)).unwrap();

    let read: Vec<bool> = unfinished(&store).iter().map(Result::is_ok).collect();
    assert_eq!(read, [false, true, true, true]);
    let page =
        store.read(|connection| jobs::list(connection, &JobFilter::default(), (9, 9), |_| true)).unwrap();
    let states: Vec<_> = page.jobs.iter().rev().map(|job| job.row.state).collect();
    let (failed, queued) = (JobState::Failed, JobState::Queued);
    assert_eq!(states, [failed, queued, failed, queued, queued]);
    let why = page.jobs[4].row.error.as_ref().unwrap();
    assert!(why.code == "FH-STORE-BROKEN" && why.text.contains(ids[0].as_str()), "{}", why.text);
    assert!(store.read(|connection| jobs::facts(connection, ids[1])).unwrap().unwrap().is_err());
    assert!(store.read(|connection| jobs::document(connection, ids[3])).unwrap().unwrap().is_err());
    assert_eq!(store.read(caps::all).unwrap().into_keys().collect::<Vec<_>>(), ["good"]);
    assert!(store.read(watches::all).unwrap().is_empty());
    assert!(store.read(|connection| watches::entries(connection, "w")).unwrap().is_empty());
    assert!(store.read(|connection| tokens::list(connection, "", 9)).unwrap().is_empty());
    assert!(store.read(|connection| feeds::list(connection, 9)).unwrap().is_empty());
    let found = store.check().unwrap();
    for row in ["job", "document of job", "cap bad", "watch w", "file of a watch w/a", "token t", "feed f"] {
        assert!(found.iter().any(|line| line.starts_with(row)), "{row}: {found:?}");
    }
    assert_eq!(found.len(), 9, "{found:?}");
}

#[test]
fn tokens_that_an_earlier_version_made_whole_are_named() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    super::schema::MIGRATIONS.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
    for (id, is_whole) in [("whole", true), ("revoked", true), ("new", false)] {
        let hash = blake3::hash(id.as_bytes());
        let revoked_ms = (id == "revoked").then_some(1);
        connection
            .execute(
                "INSERT INTO tokens (id, hash, name, scopes, reach, created_by, created_ms, revoked_ms, is_whole_by_default)
                 VALUES (?1, ?2, '', '[\"submit\"]', '{\"everything\":true}', 'local', 0, ?3, ?4)",
                rusqlite::params![id, hash.as_bytes(), revoked_ms, is_whole],
            )
            .unwrap();
    }
    let all = super::tokens::list(&connection, "", 10).unwrap();
    let told: Vec<_> =
        all.iter().map(|row| (&row.id[..], row.is_whole_by_default, row.reach.everything)).collect();
    assert_eq!(told, [("new", false, true), ("revoked", true, true), ("whole", true, true)]);
    let warned = super::tokens::whole_by_default(&connection, 0, 10).unwrap();
    assert_eq!(warned.iter().map(|row| &row.id[..]).collect::<Vec<_>>(), ["whole"]);
}

#[test]
fn keys_and_messages_of_one_owner_have_a_limit() {
    let (_folder, store) = store();
    store.write(|transaction| add(transaction, &job(1, JobState::Done, &[]))).unwrap();
    let id = store
        .read(|connection| connection.query_row("SELECT id FROM jobs", [], |row| row.get::<_, String>(0)));
    let id = id.unwrap();
    let message = |number: usize| deliveries::DeliveryRow {
        id: number.to_string(),
        job: id.clone(),
        run: 1,
        kind: deliveries::DeliveryKind::Webhook,
        target: "{}".into(),
        body: "long".into(),
        attempt: 0,
        due_ms: 0,
    };
    let (messages, earlier) = (
        [message(1), message(2)],
        idempotency::EarlierRequest { body_hash: vec![], job: id.parse().unwrap() },
    );
    store
        .write(move |transaction| {
            messages.iter().try_for_each(|one| deliveries::insert(transaction, one))?;
            ["a", "b"]
                .iter()
                .try_for_each(|key| idempotency::insert(transaction, ("local", key), &earlier, 1))
        })
        .unwrap();
    let keys =
        |owner: &str, most| store.read(|connection| idempotency::has_room(connection, owner, most)).unwrap();
    assert_eq!([keys("local", 2), keys("local", 3), keys("token:x", 1)], [false, true, true]);
    let waiting =
        |owner: &str, most| store.read(|connection| deliveries::has_room(connection, owner, most)).unwrap();
    assert_eq!([waiting("local", 2), waiting("local", 3), waiting("token:x", 1)], [false, true, true]);
    // A message that is over waits no more, and its text is gone.
    store.write(|transaction| deliveries::end(transaction, "1", 1, "200")).unwrap();
    assert!(waiting("local", 2));
    let body = "SELECT body FROM deliveries WHERE id = '1'";
    assert_eq!(
        store.read(|connection| connection.query_row(body, [], |row| row.get::<_, String>(0))).unwrap(),
        ""
    );
}
