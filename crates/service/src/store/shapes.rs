//! Tests that this program can use stores of every version of the schema from the base on. They are kept as text
//! in `vectors/`.
//!
//! A commit that adds a migration also adds the file of the new version, which is made by
//! `GOLDEN=write cargo test -p farhaul-service --lib store::shapes`. The command changes no file of
//! an older version.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farhaul::copy::LocationSpec;
use rusqlite::Connection;

use super::jobs::{JobDocument, JobFacts, JobRow, JobSteering, RunFigures, StoredDocument};
use super::schema::{BASE, MIGRATIONS};
use super::tokens::TokenRow;
use super::watches::WatchRow;
use super::*;
use crate::access::{Caller, JobPlaces};
use crate::caps::spec::CapRule;
use crate::clock::Clock;
use crate::hooks::{BatchBounds, Hook, HookMoment};
use crate::job::{JobHead, JobSpec};
use crate::node::{Conductor, Node, NodeSettings, RetentionRules, WatchSpec};
use crate::watch::{FileStatus, FileVersion, StoreChange, WatchedFile, WatchedName};
use farhaul_api::{CallerReach, Scope};
use farhaul_api::{JobId, JobKind, JobSpan, JobState, RepeatRule};

/// The time at which the content of the files was written: 2026-01-01T00:00:00Z.
const THEN_MS: i64 = 1_767_225_600_000;
const LOGIN_HASH: [u8; 32] = [9; 32];
const TOKEN_HASH: [u8; 32] = [7; 32];

/// The newest version of the schema.
const NEWEST: usize = BASE + MIGRATIONS.len() - 1;

fn file_of(version: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/store/vectors/{version}.sql"))
}

/// The states of which the files have a job. A job that is pausing is soon paused, and old files have none.
fn stored_states() -> impl Iterator<Item = JobState> {
    JobState::ALL.into_iter().filter(|state| *state != JobState::Pausing)
}

fn id(number: usize) -> JobId {
    format!("{number:016}").parse().unwrap()
}

/// A job of a file. There is one in each state, and none needs a file or another host.
fn job(number: usize, state: JobState) -> (JobRow, StoredDocument) {
    let mut spec = JobSpec::new(JobKind::Copy, vec!["zero:1000".into()], "null:".into());
    spec.labels.0.insert("run".into(), number.to_string());
    if state == JobState::Paused {
        spec.repeat = Some(RepeatRule { every: Some(JobSpan(3600)), ..RepeatRule::default() });
    }
    let is_over = state.is_final();
    let has_run = is_over || matches!(state, JobState::Running | JobState::Paused | JobState::Retrying);
    let error = Error::new(Code::NoSpace, "no space left").with_hint("make some");
    let row = JobRow {
        id: id(number),
        owner: if number.is_multiple_of(2) { "local".into() } else { "token:0707070707".into() },
        state,
        priority: 5,
        position: THEN_MS,
        peer: None,
        steering: JobSteering { rate_bps: (number == 2).then_some(None), ..JobSteering::default() },
        figures: if has_run {
            RunFigures { bytes: 1000, files: 1, ..RunFigures::default() }
        } else {
            RunFigures::default()
        },
        submitted_ms: THEN_MS,
        due_ms: matches!(state, JobState::Waiting | JobState::Retrying).then_some(THEN_MS + 60_000),
        finish_by_ms: None,
        run: 1,
        attempt: u32::from(has_run),
        began_ms: has_run.then_some(THEN_MS + 1),
        ended_ms: is_over.then_some(THEN_MS + 2),
        error: matches!(state, JobState::Failed | JobState::Retrying).then(|| (&error).into()),
        changed_ms: THEN_MS,
        kept_bytes: 0,
    };
    let places =
        JobPlaces(["zero:1000", "null:"].map(|name| LocationSpec::parse(name.as_ref()).unwrap()).into());
    let facts = JobFacts { head: JobHead::of(&spec), places: places.into() };
    let local = CallerReach { local: vec!["/projects/a".into()], ..CallerReach::default() };
    let reach = if number.is_multiple_of(2) { CallerReach::everything() } else { local };
    let document = JobDocument { spec, reach };
    (row, StoredDocument::of(&document, &facts).unwrap())
}

/// Fills a store with rows for every table of the newest version.
fn fill(store: &Store) {
    let jobs: Vec<(JobRow, StoredDocument)> =
        stored_states().enumerate().map(|(number, state)| job(number, state)).collect();
    let record = |job: &JobRow| farhaul_api::HistoryRecord {
        job: Some(job.id.to_string()),
        run: Some(1),
        owner: job.owner.clone(),
        direction: "local".into(),
        source: "zero:1000".into(),
        destination: "null:".into(),
        state: job.state.name().into(),
        began_ms: THEN_MS + 1,
        ended_ms: THEN_MS + 2,
        attempts: 1,
        files: 1,
        deleted: 2,
        bytes: 1000,
        tree_root: Some("00".repeat(32)),
        ..farhaul_api::HistoryRecord::default()
    };
    let papers = || history::RecordPapers {
        report: Some(r#"{"schema":1,"files":1}"#.into()),
        curve: Some("[]".into()),
        receipt: Some(r#"{"receipt":1}"#.into()),
    };
    let client = farhaul_api::HistoryRecord {
        owner: "SHA256:x".into(),
        direction: "push".into(),
        peer: Some("192.0.2.7".into()),
        state: "done".into(),
        ended_ms: THEN_MS,
        ..farhaul_api::HistoryRecord::default()
    };
    let login = logins::LoginRow {
        hash: LOGIN_HASH,
        token: None,
        scopes: vec![Scope::Read],
        created_ms: THEN_MS,
        expires_ms: i64::MAX,
        expires_node_ms: None,
    };
    let token = TokenRow {
        id: "0707070707".into(),
        hash: TOKEN_HASH,
        name: "ci".into(),
        scopes: vec![Scope::Submit, Scope::Read],
        reach: CallerReach { local: vec!["/projects/a".into()], ..CallerReach::default() },
        is_whole_by_default: false,
        created_by: "local".into(),
        created_ms: THEN_MS,
        expires_ms: None,
        expires_node_ms: None,
        revoked_ms: None,
    };
    let watch = WatchRow {
        id: "watch".into(),
        owner: "local".into(),
        spec: WatchSpec::new("/nowhere/in".into(), "fh://hpc/incoming".into()),
        reach: CallerReach { local: vec!["/nowhere".into()], ..CallerReach::default() },
        created_ms: THEN_MS,
    };
    let version = FileVersion { inode: 1, size: 2, mtime_ns: 3, ctime_ns: 4 };
    let entry = |name: &str, status: FileStatus| {
        let name = WatchedName::new(name);
        StoreChange::Put(WatchedFile { name, version, status, since_ms: THEN_MS, failing: None })
    };
    let entries = [entry("a", FileStatus::New), entry("b", FileStatus::Done { job: id(5).to_string() })];
    let delivery = |number: u32, kind| deliveries::DeliveryRow {
        id: format!("delivery{number}"),
        job: id(5).to_string(),
        run: 1,
        kind,
        target: "{}".into(),
        body: "{}".into(),
        attempt: 1,
        due_ms: THEN_MS,
    };
    let hook = Hook {
        on: HookMoment::File,
        program: "/bin/true".into(),
        args: vec!["a".into()],
        limit_s: 60,
        labels: Default::default(),
        dry_run: false,
        batch: BatchBounds::default(),
    };
    let cap = CapRule { rate_bps: Some(8_000_000_000), ..CapRule::default() };
    store
        .write(move |transaction| {
            for (job, document) in &jobs {
                jobs::insert(transaction, job, document)?;
                log::append(
                    transaction,
                    job.id,
                    (1, THEN_MS),
                    ("info", "it was accepted", r#"{"event":"job"}"#),
                )?;
            }
            for (job, _) in jobs.iter().filter(|(job, _)| job.state.is_final()) {
                history::insert(transaction, &record(job), &papers(), THEN_MS)?;
            }
            history::insert(transaction, &client, &history::RecordPapers::default(), THEN_MS)?;
            tokens::insert(transaction, &token)?;
            logins::insert(transaction, &login)?;
            super::caps::set(transaction, "campus", &cap, THEN_MS)?;
            super::watches::insert(transaction, &watch)?;
            super::watches::change(transaction, "watch", &entries)?;
            deliveries::insert(transaction, &delivery(1, deliveries::DeliveryKind::Webhook))?;
            deliveries::insert(transaction, &delivery(2, deliveries::DeliveryKind::Webhook))?;
            deliveries::insert(transaction, &delivery(3, deliveries::DeliveryKind::Program))?;
            deliveries::end(transaction, "delivery2", THEN_MS, "200")?;
            feeds::begin(transaction, ("feed", &id(6).to_string(), 1), &hook)?;
            let mark = crate::clock::ClockMark {
                boot: "boot".into(),
                boot_ms: 1000,
                wall_ms: THEN_MS,
                node_ms: THEN_MS,
                jumped_ms: None,
            };
            super::clock::set_mark(transaction, &mark)?;
            let earlier = idempotency::EarlierRequest { body_hash: vec![1; 32], job: id(0) };
            idempotency::insert(transaction, ("local", "key"), &earlier, THEN_MS)
        })
        .unwrap();
}

/// The store as SQL that makes it again.
fn dump(connection: &Connection) -> String {
    let list = |question: &str| -> Vec<String> {
        let mut statement = connection.prepare(question).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    let mut text = String::from("PRAGMA foreign_keys = OFF;\n");
    text += &format!("PRAGMA application_id = {};\n", number("application_id"));
    text += &format!("PRAGMA user_version = {};\n", number("user_version"));
    for sql in schema_of(connection) {
        text += &format!("{sql};\n");
    }
    for table in list(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    ) {
        let columns = list(&format!("SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}')"));
        for values in list(&format!("SELECT concat_ws(', ', {}) FROM {table} ORDER BY 1", columns.join(", ")))
        {
            text += &format!("INSERT INTO {table} VALUES ({values});\n");
        }
    }
    text
}

/// The SQL of all tables and indexes, in the order in which they were made.
fn schema_of(connection: &Connection) -> Vec<String> {
    let question =
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid";
    let mut statement = connection.prepare(question).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// SQL without the line ends and spaces that mean nothing.
fn without_layout(sql: &str) -> String {
    let words = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let tight =
        |text: String, sign: &str| text.replace(&format!(" {sign}"), sign).replace(&format!("{sign} "), sign);
    ["(", ")", ","].into_iter().fold(words, tight)
}

/// Writes the file of the newest version if `GOLDEN=write` says so and the file does not exist. Both tests
/// call this, but it is done once.
fn make_newest() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(write_newest);
}

fn write_newest() {
    let newest = file_of(NEWEST);
    if !farhaul_vectors::is_writing() || newest.exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sqlite");
    let store = Store::open(&path).unwrap();
    fill(&store);
    drop(store);
    std::fs::create_dir_all(newest.parent().unwrap()).unwrap();
    std::fs::write(newest, dump(&Connection::open(&path).unwrap())).unwrap();
}

#[test]
fn every_schema_version_has_a_file_and_does_not_change() {
    make_newest();
    for version in BASE..=NEWEST {
        let file = file_of(version);
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}; GOLDEN=write makes the newest one", file.display()));
        let (from_file, from_migrations) =
            (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
        from_file.execute_batch(&text).unwrap();
        MIGRATIONS[..=version - BASE].iter().for_each(|sql| from_migrations.execute_batch(sql).unwrap());
        let plain =
            |connection| schema_of(connection).iter().map(|sql| without_layout(sql)).collect::<Vec<_>>();
        let (of_file, of_migrations) = (plain(&from_file), plain(&from_migrations));
        let only_in = |one: &[String], other: &[String]| -> Vec<String> {
            one.iter().filter(|sql| !other.contains(sql)).cloned().collect()
        };
        let differences = [only_in(&of_file, &of_migrations), only_in(&of_migrations, &of_file)];
        assert!(
            differences.iter().all(Vec::is_empty),
            "schema version {version} differs from {}; a change needs a migration of its own: {differences:?}",
            file.display()
        );
        // Every table must have rows in its file, so that later migrations meet some.
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let mut tables = from_file.prepare(tables).unwrap();
        for table in tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap) {
            let rows: i64 =
                from_file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
            assert!(rows > 0, "{}: the table {table} is empty", file.display());
        }
    }
}

#[test]
fn a_store_of_every_schema_version_can_be_used() {
    make_newest();
    for version in BASE..=NEWEST {
        check_store(&std::fs::read_to_string(file_of(version)).unwrap(), version);
    }
}

/// Checks that a node can use the store of this version, and that it has kept all content.
fn check_store(text: &str, version: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sqlite");
    Connection::open(&path).unwrap().execute_batch(text).unwrap();
    // These tables are checked before other threads change them.
    let store = Store::open(&path).unwrap();
    store.read(check_other_tables).unwrap();
    drop(store);
    assert_eq!(path.with_extension(format!("sqlite.shape{version}")).exists(), version < NEWEST);
    let clock = Clock::shifted_by(folder.path().join("clock"));
    // The node keeps all records, however old they are.
    let settings = NodeSettings {
        kept: RetentionRules { seconds: 100 * 366 * 86_400, bytes: u64::MAX },
        ..NodeSettings::default()
    };
    let (node, signals) = Node::open(folder.path(), clock, settings).unwrap();
    let conductor = Conductor::start(&node, signals).unwrap();
    let local = Caller::local();
    let of_state = |state: JobState| {
        let number = stored_states().position(|other| other == state).unwrap();
        id(number)
    };
    let wait_for = |job: JobId, is_reached: &dyn Fn(&farhaul_api::JobView) -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let view = node.job(&local, job).unwrap();
            if is_reached(&view) {
                return;
            }
            assert!(Instant::now() < until, "the job stays {view:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for state in [JobState::Queued, JobState::Waiting, JobState::Running, JobState::Retrying] {
        wait_for(of_state(state), &|view| view.state == JobState::Done);
    }
    let paused = of_state(JobState::Paused);
    assert_eq!(node.job(&local, paused).unwrap().state, JobState::Paused);
    node.resume(&local, paused).unwrap();
    // The job repeats: its second run is late and begins at once, the third one waits for its time.
    wait_for(paused, &|view| view.run == 3 && view.state == JobState::Waiting);
    for state in [JobState::Done, JobState::PartlyFailed, JobState::Failed, JobState::Cancelled] {
        let view = node.job(&local, of_state(state)).unwrap();
        assert_eq!((view.state, view.labels.0.len()), (state.into(), 1));
    }
    let failed = node.job(&local, of_state(JobState::Failed)).unwrap().error.unwrap();
    assert_eq!((&failed.code[..], failed.hint.as_deref()), ("FH-NO-SPACE", Some("make some")));
    node.store.write(|_| Ok(())).unwrap();
    let check_history = |connection: &Connection| {
        let records =
            history::list(connection, &history::RecordFilter::default(), (100, 100), |_| true)?.records;
        // Five records of ended jobs, one of a client, and six of the runs that this test has made.
        assert_eq!(records.len(), 12);
        let label = vec![("run".to_string(), id_number(of_state(JobState::Done)))];
        let wanted = history::RecordFilter { labels: label, ..history::RecordFilter::default() };
        let done = &history::list(connection, &wanted, (100, 100), |_| true)?.records[0];
        assert_eq!(done.deleted, 2);
        assert_eq!((done.bytes, done.tree_root.as_ref().map(String::len)), (1000, Some(64)));
        let papers = history::papers(connection, done.id)?.unwrap();
        assert!(papers.report.is_some() && papers.curve.is_some() && papers.receipt.is_some());
        assert_eq!(
            history::usage(connection, &history::UsageKey::Owner, &history::RecordFilter::default(), 9)?
                .len(),
            3
        );
        assert_eq!(log::list(connection, of_state(JobState::Failed), 0, 9)?[0].text, "it was accepted");
        assert!(log::list(connection, of_state(JobState::Running), 0, 9)?.len() > 1);
        Ok(())
    };
    node.store.read(check_history).unwrap();
    assert!(node.store.check().unwrap().is_empty());
    node.stop();
    conductor.wait();
}

/// Checks what is in the store besides jobs and their history.
fn check_other_tables(connection: &Connection) -> rusqlite::Result<()> {
    let login = logins::all(connection)?.into_iter().find(|login| login.hash == LOGIN_HASH);
    assert_eq!(login.unwrap().scopes, [Scope::Read]);
    let tokens = tokens::list(connection, "", usize::MAX)?;
    let token = tokens.into_iter().find(|token| token.hash == TOKEN_HASH).unwrap();
    assert_eq!((&token.scopes, token.reach.local.len()), (&vec![Scope::Submit, Scope::Read], 1));
    assert_eq!(super::caps::all(connection)?["campus"].rate_bps, Some(8_000_000_000));
    let reach_of = |number| jobs::document(connection, id(number)).map(|found| found.unwrap().unwrap().reach);
    assert_eq!((reach_of(1)?, reach_of(2)?), (token.reach, CallerReach::everything()));
    let watches = super::watches::all(connection)?;
    assert_eq!((watches.len(), watches[0].reach.local.len()), (1, 1));
    assert_eq!(super::watches::entries(connection, "watch")?.len(), 2);
    let open = deliveries::due_webhooks(connection, THEN_MS + 1, i64::MAX, 9, |_, _| true)?;
    assert_eq!(open.iter().map(|delivery| &delivery.id[..]).collect::<Vec<_>>(), ["delivery1"]);
    assert_eq!(deliveries::outcome(connection, "delivery2")?.as_deref(), Some("200"));
    assert_eq!(deliveries::open_programs(connection, 9)?.len(), 1);
    assert_eq!(feeds::list(connection, 9)?.iter().filter(|feed| feed.id == "feed").count(), 1);
    let earlier = idempotency::find(connection, "local", "key", THEN_MS + 1)?;
    assert_eq!(earlier.unwrap().job, id(0));
    Ok(())
}

fn id_number(id: JobId) -> String {
    id.as_str().trim_start_matches('0').to_string()
}
