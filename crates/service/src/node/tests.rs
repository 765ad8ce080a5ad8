use farhaul_api::{EventKind, JobChange, JobView, Word};
use std::time::{Duration, Instant};

use farhaul_words::Code;

use super::*;
use crate::access::Caller;
use crate::job::JobSpec;
use crate::store::history;
use farhaul_api::{CallerReach, Scope};
use farhaul_api::{JobKind, JobSpan, JobState, Labels, RepeatRule, RetryOptions};

/// A node in a folder of its own, which is deleted at the end.
pub(super) struct Fixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) settings: NodeSettings,
    running: Option<(Arc<Node>, Conductor)>,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        Fixture::with(NodeSettings::default())
    }

    pub(super) fn with(settings: NodeSettings) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let mut fixture = Fixture { folder, settings, running: None };
        fixture.start();
        fixture.add_token("x");
        fixture
    }

    /// Adds a token with this id, so that it can own jobs.
    fn add_token(&self, id: &str) {
        let row = crate::store::tokens::TokenRow {
            id: id.into(),
            hash: *blake3::hash(id.as_bytes()).as_bytes(),
            name: String::new(),
            scopes: vec![Scope::Submit],
            reach: CallerReach::everything(),
            is_whole_by_default: false,
            created_by: "local".into(),
            created_ms: 0,
            expires_ms: None,
            expires_node_ms: None,
            revoked_ms: None,
        };
        self.node().store.write(move |transaction| crate::store::tokens::insert(transaction, &row)).unwrap();
    }

    /// Sets the node's clock ahead by this many seconds.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.set_clock_file(seconds);
        self.clock_is_seen();
        self.node().bell.ring();
    }

    /// Waits until the node has noticed what the clock shows.
    pub(super) fn clock_is_seen(&self) {
        self.node().look();
        self.wait_until(|fixture| fixture.node().has_seen_clock());
    }

    /// Lets this much time go by, counted from when the fixture was made.
    pub(super) fn pass(&self, seconds: i64) {
        self.set_clock_files(seconds, seconds);
        self.clock_is_seen();
    }

    pub(super) fn set_clock_file(&self, seconds: i64) {
        self.set_clock_files(seconds, 0);
    }

    /// Sets the wall clock ahead, and lets time go by since the host was started.
    pub(super) fn set_clock_files(&self, wall: i64, boot: i64) {
        // The file is replaced at once: a reader of half the text would see the clock jump.
        let whole = self.folder.path().join("clock.new");
        std::fs::write(&whole, format!("{wall} {boot}")).unwrap();
        std::fs::rename(whole, self.folder.path().join("clock")).unwrap();
    }

    pub(super) fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// Starts the service. `meanwhile` happens when its state is open and nothing has looked at the clock since.
    pub(super) fn start_with(&mut self, meanwhile: impl FnOnce(&Fixture)) {
        let clock = Clock::shifted_by(self.folder.path().join("clock"));
        let identity_file = self.folder.path().join("key");
        if !identity_file.exists() {
            farhaul::target::keygen(&identity_file, "node").unwrap();
        }
        let settings = NodeSettings { identity_file, ..self.settings.clone() };
        let (node, signals) = Node::open(self.folder.path(), clock, settings).unwrap();
        meanwhile(self);
        let conductor = Conductor::start(&node, signals).unwrap();
        self.running = Some((node, conductor));
    }

    pub(super) fn stop(&mut self) {
        let (node, conductor) = self.running.take().unwrap();
        node.stop();
        conductor.wait();
    }

    pub(super) fn node(&self) -> &Node {
        &self.running.as_ref().unwrap().0
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join("data").join(name).display().to_string()
    }

    pub(super) fn file(&self, name: &str, bytes: usize) -> String {
        std::fs::write(self.path(name), vec![7; bytes]).unwrap();
        self.path(name)
    }

    pub(super) fn submit(&self, spec: JobSpec) -> JobId {
        self.node().submit(&Caller::local(), Submission { spec, idempotency: None }).unwrap().id
    }

    pub(super) fn view(&self, id: JobId) -> JobView {
        self.node().job(&Caller::local(), id).unwrap()
    }

    pub(super) fn wait(&self, id: JobId, is_so: impl Fn(&JobView) -> bool) -> JobView {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let view = self.view(id);
            if is_so(&view) {
                return view;
            }
            assert!(Instant::now() < until, "the job stays {view:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn wait_until(&self, is_so: impl Fn(&Fixture) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(Instant::now() < until, "waiting took too long");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn wait_for(&self, id: JobId, state: JobState) -> JobView {
        self.wait(id, |view| view.state == state)
    }

    pub(super) fn records(&self) -> Vec<farhaul_api::HistoryRecord> {
        self.node().store.write(|_| Ok(())).unwrap();
        let all = history::RecordFilter::default();
        self.node()
            .store
            .read(|connection| history::list(connection, &all, (100, 100), |_| true))
            .unwrap()
            .records
    }

    pub(super) fn lines(&self, id: JobId) -> Vec<String> {
        self.node().store.write(|_| Ok(())).unwrap();
        let lines = self.node().store.read(|connection| log::list(connection, id, 0, 100)).unwrap();
        lines.into_iter().map(|line| line.text).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.stop();
        }
    }
}

pub(super) fn copy(from: String, to: String) -> JobSpec {
    JobSpec::new(JobKind::Copy, vec![from], to)
}

/// A job with endless content, at a rate that leaves time to look at it.
pub(super) fn endless() -> JobSpec {
    let mut spec = copy("zero:".into(), "null:".into());
    spec.options.network.rate_bps = Some(8_000_000);
    spec
}

#[test]
fn a_job_is_done_and_stays_in_the_history() {
    let fixture = Fixture::new();
    let mut spec = copy(fixture.file("a", 3_000_000), fixture.path("b"));
    spec.labels = Labels([("run".to_string(), "7".to_string())].into());
    let id = fixture.submit(spec);
    let view = fixture.wait_for(id, JobState::Done);
    assert_eq!((view.run, view.attempt), (1, 1));
    assert_eq!(std::fs::read(fixture.path("b")).unwrap(), vec![7; 3_000_000]);
    let records = fixture.records();
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!((record.files, record.bytes, record.state.as_str()), (1, 3_000_000, "done"));
    assert_eq!((record.direction.as_str(), record.job.as_deref()), ("local", Some(id.as_str())));
    let manifest =
        std::fs::read_to_string(fixture.folder.path().join(format!("manifests/{id}-1.jsonl"))).unwrap();
    assert!(manifest.lines().count() >= 3, "{manifest}");
    assert!(fixture.lines(id).iter().any(|line| line == "ended"));
}

#[test]
fn a_job_that_cannot_work_fails_once_and_says_why() {
    let fixture = Fixture::new();
    let id = fixture.submit(copy(fixture.path("none"), fixture.path("b")));
    let view = fixture.wait_for(id, JobState::Failed);
    assert_eq!((view.attempt, view.error.unwrap().code.as_str()), (1, "FH-NOT-FOUND"));
    // Another run works once there is a file.
    fixture.file("none", 10);
    fixture.node().retry(&Caller::local(), id, Default::default()).unwrap();
    assert_eq!(fixture.wait_for(id, JobState::Done).run, 2);
    let states: Vec<_> = fixture.records().into_iter().map(|record| (record.run, record.state)).collect();
    assert_eq!(states, [(Some(2), "done".to_string()), (Some(1), "failed".to_string())]);
    let refused = fixture.node().pause(&Caller::local(), id).unwrap_err();
    assert!(
        refused.code() == Code::NotNow && refused.to_string().contains("is over: it is done"),
        "{refused}"
    );
}

#[test]
fn what_may_mend_is_tried_again_with_pauses() {
    let fixture = Fixture::new();
    let mut spec = copy(fixture.file("a", 10), "fh://127.0.0.1:9/x".into());
    spec.retry = Some(RetryOptions {
        attempts: Some(1),
        first_delay: Some(JobSpan(1)),
        longest_delay: Some(JobSpan(1)),
    });
    let id = fixture.submit(spec);
    assert!(fixture.wait_for(id, JobState::Retrying).due.is_some());
    let view = fixture.wait_for(id, JobState::Failed);
    assert_eq!(view.attempt, 2);
    assert!(fixture.lines(id).iter().any(|line| line.starts_with("attempt 1 failed: ")));
    assert_eq!(fixture.records()[0].attempts, 2);
}

#[test]
fn a_job_that_waits_for_its_next_attempt_need_not_wait() {
    let fixture = Fixture::new();
    let mut spec = copy(fixture.file("a", 10), "fh://127.0.0.1:9/x".into());
    spec.retry = Some(RetryOptions {
        attempts: Some(1),
        first_delay: Some(JobSpan(3600)),
        longest_delay: Some(JobSpan(3600)),
    });
    let id = fixture.submit(spec);
    fixture.wait_for(id, JobState::Retrying);
    fixture.node().retry(&Caller::local(), id, Default::default()).unwrap();
    assert_eq!(fixture.wait_for(id, JobState::Failed).attempt, 2);
}

#[test]
fn a_running_job_is_held_let_go_steered_and_ended() {
    let fixture = Fixture::new();
    let local = Caller::local();
    let id = fixture.submit(endless());
    fixture.wait(id, |view| view.progress.as_ref().is_some_and(|progress| progress.bytes_done > 0));
    fixture.node().pause(&local, id).unwrap();
    assert_eq!(fixture.node().pause(&local, id).unwrap_err().code(), Code::NotNow);
    let held = || fixture.view(id).progress.unwrap().bytes_done;
    std::thread::sleep(Duration::from_millis(2500));
    let before = held();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(held(), before);
    fixture.node().resume(&local, id).unwrap();
    fixture.wait(id, |view| view.progress.as_ref().is_some_and(|progress| progress.bytes_done > before));
    let change = JobChange { rate_bps: Some(80_000_000), priority: Some(9), ..JobChange::default() };
    let view = fixture.node().change(&local, id, &change).unwrap();
    assert_eq!((view.rate_bps, view.priority), (Some(80_000_000), 9));
    fixture.wait(id, |view| view.progress.as_ref().is_some_and(|progress| progress.goodput_bps > 30e6));
    let wrong = JobChange { rate_bps: Some(5), ..JobChange::default() };
    assert_eq!(fixture.node().change(&local, id, &wrong).unwrap_err().code(), Code::BadOption);
    fixture.node().cancel(&local, id).unwrap();
    fixture.wait_for(id, JobState::Cancelled);
    let records = fixture.records();
    assert_eq!((records.len(), records[0].state.as_str()), (1, "cancelled"));
    assert!(records[0].bytes > 0);
}

#[test]
fn what_became_of_a_job_is_written_before_the_service_ends() {
    let mut fixture = Fixture::new();
    let running = fixture.submit(endless());
    fixture.wait_for(running, JobState::Running);
    // A thread that answers a client holds the node to the end of the process.
    let held = fixture.running.as_ref().unwrap().0.clone();
    held.store.later(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    });
    fixture.stop();
    let row = held.store.read(|connection| jobs::get(connection, running)).unwrap().unwrap();
    assert_eq!((row.state, row.attempt), (JobState::Queued, 0));
}

#[test]
fn a_service_that_ends_goes_on_with_its_jobs() {
    let mut fixture = Fixture::new();
    let local = Caller::local();
    let running = fixture.submit(endless());
    let held = fixture.submit(endless());
    fixture.wait_for(running, JobState::Running);
    fixture.wait_for(held, JobState::Running);
    fixture.node().pause(&local, held).unwrap();
    let mut later = copy(fixture.file("a", 10), fixture.path("b"));
    later.not_before = Some("2200-01-01T00:00:00Z".parse().unwrap());
    let later = fixture.submit(later);
    fixture.stop();
    fixture.start();
    assert_eq!(fixture.wait_for(running, JobState::Running).attempt, 1);
    assert_eq!(fixture.view(held).state, JobState::Paused);
    assert_eq!(fixture.view(later).state, JobState::Waiting);
    fixture.node().resume(&local, held).unwrap();
    fixture.wait_for(held, JobState::Running);
    for id in [running, held, later] {
        fixture.node().cancel(&local, id).unwrap();
        fixture.wait_for(id, JobState::Cancelled);
    }
}

#[test]
fn a_job_repeats_and_follows_no_step_of_the_clock() {
    let fixture = Fixture::new();
    let set_clock = |seconds: i64| {
        fixture.set_clock_file(seconds);
        fixture.clock_is_seen();
    };
    let mut spec = copy(fixture.file("a", 10), fixture.path("b"));
    spec.repeat = Some(RepeatRule { every: Some(JobSpan(3600)), ..RepeatRule::default() });
    let every = fixture.submit(spec.clone());
    let hourly = fixture.wait(every, |view| view.run == 2 && view.state == JobState::Waiting).due.unwrap();
    // About half a day ahead, whatever the time is now.
    let hour = (fixture.node().clock.now().to_zoned(jiff::tz::TimeZone::UTC).hour() + 12) % 24;
    let cron = format!("0 {hour} * * *");
    spec.repeat = Some(RepeatRule { cron: Some(cron), time_zone: Some("UTC".into()), every: None });
    let cron = fixture.submit(spec);
    let due = fixture.wait_for(cron, JobState::Waiting).due.unwrap();
    // The clock is set forward by a week: an hourly job does not run for that, a job with a time of day runs
    // once.
    set_clock(7 * 86_400);
    let view = fixture.wait(cron, |view| view.run == 2 && view.state == JobState::Waiting);
    assert!(view.due.unwrap() > due);
    assert_eq!(fixture.view(every).run, 2);
    // The clock is set back: nothing runs twice.
    set_clock(0);
    let later = hourly + Duration::from_secs(86_400);
    fixture.wait(every, |view| view.due.unwrap() < later);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((fixture.view(cron).run, fixture.view(every).run), (2, 2));
    assert_eq!(fixture.records().len(), 2);
}

#[test]
fn one_key_makes_one_job() {
    let fixture = Fixture::new();
    let submit = |body: &[u8]| {
        let spec = copy(fixture.file("a", 10), fixture.path("b"));
        let idempotency = Some(("key".to_string(), body.to_vec()));
        fixture.node().submit(&Caller::local(), Submission { spec, idempotency })
    };
    let id = submit(b"x").unwrap().id;
    assert_eq!(submit(b"x").unwrap().id, id);
    assert_eq!(submit(b"y").unwrap_err().code(), Code::KeyReused);
    // The same key of another caller is another key.
    let other = Caller { subject: "token:x".into(), ..Caller::local() };
    let spec = copy(fixture.path("a"), fixture.path("b"));
    let submission = Submission { spec, idempotency: Some(("key".to_string(), b"x".to_vec())) };
    assert_ne!(fixture.node().submit(&other, submission).unwrap().id, id);
    // A day later the key is forgotten.
    std::fs::write(fixture.folder.path().join("clock"), "86500 86500").unwrap();
    assert_ne!(submit(b"y").unwrap().id, id);
}

#[test]
fn who_does_not_reach_a_job_does_not_see_it() {
    let fixture = Fixture::new();
    let id = fixture.submit(endless());
    let out = fixture.submit(copy(fixture.file("a", 10), fixture.path("b")));
    let mut caller = Caller { subject: "token:x".into(), ..Caller::local() };
    caller.scopes = vec![Scope::Read];
    caller.reach = CallerReach { local: vec!["/projects".into()], ..CallerReach::default() };
    let node = fixture.node();
    assert_eq!(node.job(&caller, out).unwrap_err().code(), Code::OutOfScope);
    assert!(node.job(&caller, id).is_ok());
    let seen: Vec<_> =
        node.list(&caller, &jobs::JobFilter::default(), 10).unwrap().jobs.iter().map(|job| job.id).collect();
    assert_eq!(seen, [id]);
    assert_eq!(node.cancel(&caller, id).unwrap_err().code(), Code::OutOfScope);
    let spec = copy("zero:5".into(), "/projects/x".into());
    let submission = Submission { spec, idempotency: None };
    assert_eq!(node.submit(&caller, submission.clone()).unwrap_err().code(), Code::OutOfScope);
    caller.scopes = vec![Scope::Submit, Scope::Control];
    let submission = Submission { spec: copy("zero:5".into(), "/etc/x".into()), ..submission };
    assert_eq!(node.submit(&caller, submission).unwrap_err().code(), Code::OutOfScope);
    node.cancel(&caller, id).unwrap();
    fixture.wait_for(id, JobState::Cancelled);
}

fn is_late(view: &JobView) -> bool {
    view.promise.as_ref().is_some_and(|promise| promise.state == farhaul_api::PromiseState::Late)
}

/// A job that brings 8 MB and has much more time than it needs.
fn job_with_time(fixture: &Fixture, seconds: u64) -> JobSpec {
    let mut spec = copy("zero:8000000".into(), "null:".into());
    let by = fixture.node().clock.now().checked_add(Duration::from_secs(seconds)).unwrap();
    spec.finish_by = Some(farhaul_api::FinishBy::At(by));
    spec
}

#[test]
fn a_job_with_a_deadline_is_done_as_soon_as_it_can_be() {
    let fixture = Fixture::new();
    let id = fixture.submit(job_with_time(&fixture, 53_220));
    // Held to what the deadline needs, it would take most of a day.
    let view = fixture.wait_for(id, JobState::Done);
    assert!(view.ended.unwrap() < view.finish_by.unwrap());
    assert!(!fixture.lines(id).iter().any(|line| line.contains("not done by")));
}

#[test]
fn a_job_that_is_sure_of_its_rate_yields_beyond_it() {
    let fixture = Fixture::new();
    let mut spec = job_with_time(&fixture, 3600);
    spec.sources = vec!["zero:4000000000".into()];
    spec.options.network.rate_bps = Some(80_000_000);
    let id = fixture.submit(spec);
    let rates = |fixture: &Fixture| -> Vec<String> {
        fixture.lines(id).into_iter().filter(|line| line.contains("bit/s at least")).collect()
    };
    fixture.wait_until(|fixture| !rates(fixture).is_empty());
    assert!(rates(&fixture)[0].contains("Low"), "{:?}", rates(&fixture));
    fixture.node().cancel(&Caller::local(), id).unwrap();
    fixture.wait_for(id, JobState::Cancelled);
}

#[test]
fn a_smooth_job_is_held_to_its_rate_and_one_that_cannot_make_it_says_so() {
    let fixture = Fixture::new();
    let now = fixture.node().clock.now();
    let mut spec = copy("zero:200000000".into(), "null:".into());
    spec.finish_by = Some(farhaul_api::FinishBy::At(now.checked_add(Duration::from_secs(12)).unwrap()));
    (spec.smooth, spec.anyway) = (true, true);
    let made = fixture.submit(spec.clone());
    spec.options.network.rate_bps = Some(2_000_000);
    let missed: Vec<JobId> =
        [true, false].into_iter().map(|smooth| fixture.submit(JobSpec { smooth, ..spec.clone() })).collect();
    for missed in missed {
        let view = fixture.wait(missed, |view| is_late(view) && view.state == JobState::Running);
        assert_eq!(view.state, JobState::Running);
        fixture.node().cancel(&Caller::local(), missed).unwrap();
        assert!(fixture.lines(missed).iter().any(|line| line.starts_with("not done by")));
    }
    // Which rate it is held to, and that it uses its time by that, is a pure function of the deadline's module.
    fixture.wait_for(made, JobState::Done);
    let is_held = |line: &String| line.contains("the policy is Fair") && line.contains("bit/s at most");
    assert!(fixture.lines(made).iter().any(is_held), "{:?}", fixture.lines(made));
}

fn capped(fixture: &Fixture, rate_bps: u64) {
    let cap = crate::caps::spec::CapRule { rate_bps: Some(rate_bps), ..Default::default() };
    fixture.node().set_cap(&Caller::local(), "host", cap).unwrap();
}

#[test]
fn a_deadline_is_promised_only_as_far_as_the_caps_allow() {
    let fixture = Fixture::new();
    capped(&fixture, 1_000_000);
    let now = fixture.node().clock.now();
    let at =
        |minutes: u64| farhaul_api::FinishBy::At(now.checked_add(Duration::from_secs(60 * minutes)).unwrap());
    let submit =
        |spec: JobSpec| fixture.node().submit(&Caller::local(), Submission { spec, idempotency: None });
    // 150 MB at 1 Mbit/s: twenty-one minutes.
    let mut spec = copy("zero:150000000".into(), "null:".into());
    spec.finish_by = Some(at(10));
    let refused = submit(spec.clone()).unwrap_err();
    assert_eq!(refused.code(), Code::NotInTime);
    assert!(refused.to_string().starts_with("cannot be done by "), "{refused}");
    assert!(refused.to_string().ends_with(" can be kept"), "{refused}");
    // The time that is offered is taken.
    let hint = refused.hint().unwrap();
    let offered = hint.strip_prefix("use `finish-by` ").and_then(|rest| rest.split_once(',')).unwrap().0;
    spec.finish_by = Some(offered.parse().unwrap());
    let first = submit(spec.clone()).unwrap();
    assert_eq!(
        first.promise.as_ref().map(|promise| promise.state.clone()),
        Some(Word::Known(farhaul_api::PromiseState::Kept)),
        "{first:?}"
    );
    // There is no room for another one by then: it would break the promise.
    let second = submit(spec.clone()).unwrap_err();
    assert_eq!(second.code(), Code::NotInTime);
    spec.anyway = true;
    let anyway = submit(spec).unwrap();
    assert_eq!(
        anyway.promise.map(|promise| promise.state),
        Some(Word::Known(farhaul_api::PromiseState::Late))
    );
    let passed = copy("zero:5".into(), "null:".into());
    let passed = JobSpec { finish_by: Some(farhaul_api::FinishBy::At(now)), ..passed };
    assert!(submit(passed).unwrap_err().to_string().ends_with("which has passed"));
    let view = fixture.wait(first.id, |view| view.state == JobState::Running);
    assert!(!is_late(&view), "{view:?}");
}

#[test]
fn a_promise_that_breaks_is_told_at_that_moment_and_once() {
    let mut fixture = Fixture::new();
    let heard = fixture.path("heard");
    let program = fixture.path("hook");
    std::fs::write(&program, format!("#!/bin/sh\ncat >> {heard}\n")).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    fixture.stop();
    let hook = format!(r#"{{"on": "late", "program": "{program}"}}"#);
    fixture.settings.hooks = vec![serde_json::from_str(&hook).unwrap()];
    fixture.start();
    capped(&fixture, 8_000_000);
    let now = fixture.node().clock.now();
    let mut spec = copy("zero:100000000".into(), "null:".into());
    spec.finish_by = Some(farhaul_api::FinishBy::At(now.checked_add(Duration::from_secs(600)).unwrap()));
    let id = fixture.submit(spec);
    fixture.wait(id, |view| view.state == JobState::Running && view.promise.is_some() && !is_late(view));
    let told = || std::fs::read_to_string(&heard).unwrap_or_default().lines().count();
    assert_eq!(told(), 0);
    capped(&fixture, 50_000);
    let view = fixture.wait(id, is_late);
    assert!(view.promise.unwrap().words.contains("not done by"));
    fixture.wait_until(|_| told() == 1);
    let message: crate::hooks::HookMessage =
        serde_json::from_str(std::fs::read_to_string(&heard).unwrap().trim()).unwrap();
    assert_eq!((message.event, message.job.state.as_str()), (crate::hooks::HookMoment::Late, "running"));
    assert_eq!(message.error.unwrap().code, "FH-NOT-IN-TIME");
    assert!(fixture.lines(id).iter().any(|line| line.starts_with("not done by")));
    // The cap is raised: the promise is kept again, and the next break is only logged.
    capped(&fixture, 8_000_000);
    fixture.wait(id, |view| !is_late(view));
    capped(&fixture, 50_000);
    fixture.wait(id, is_late);
    fixture.node().cancel(&Caller::local(), id).unwrap();
    fixture.wait_for(id, JobState::Cancelled);
    assert_eq!(told(), 1);
}

#[test]
fn readers_of_events_hear_what_each_of_them_may_do_with_a_job() {
    let fixture = Fixture::new();
    let node = fixture.node();
    let from = *node.hub.reader().borrow();
    let mut spec = copy("zero:5".into(), "null:".into());
    spec.not_before = Some(crate::clock::timestamp(node.clock.now_ms() + 3_600_000));
    let id = fixture.submit(spec);
    let news = node.hub.after(from).news.unwrap();
    let reader = Caller { scopes: vec![Scope::Read], ..Caller::local() };
    for (caller, may) in [(Caller::local(), r#"["pause","cancel","retry","change"]"#), (reader, "[]")] {
        let (kind, text) = news.body.for_caller(&caller, None).unwrap();
        let view = serde_json::to_string(&node.job(&caller, id).unwrap()).unwrap();
        assert_eq!((kind, &text), (EventKind::Job, &view));
        assert!(text.ends_with(&format!("\"may\":{may}}}")), "{text}");
    }
}

#[test]
fn a_waiting_job_has_its_document_in_the_store_and_not_in_memory() {
    let mut fixture = Fixture::new();
    let mut spec = copy(fixture.path(""), fixture.path("b"));
    spec.sources = vec![fixture.path("in/")];
    std::fs::create_dir(fixture.path("in")).unwrap();
    let names: Vec<String> = (0..20_000).map(|number| format!("file-{number:060}")).collect();
    spec.options.select.names = Some(names.clone());
    spec.options.select.rules = vec!["- *.tmp".into(); 1000];
    spec.not_before = Some(fixture.node().clock.now().checked_add(Duration::from_secs(3600)).unwrap());
    let id = fixture.submit(spec.clone());
    let check = |fixture: &Fixture| {
        let jobs = fixture.node().jobs();
        let active = &jobs[&id];
        assert!(active.facts.is_none() && active.transfer.is_none());
        assert!(active.row.kept_bytes > 1_000_000, "{}", active.row.kept_bytes);
        // A row in memory is a few hundred bytes, whatever the document says.
        assert!(std::mem::size_of::<Active>() + active.row.owner.len() < 1024);
        drop(jobs);
        assert_eq!(fixture.node().document(&Caller::local(), id).unwrap(), spec.clone().checked().unwrap());
    };
    check(&fixture);
    assert_eq!(fixture.node().list(&Caller::local(), &jobs::JobFilter::default(), 9).unwrap().jobs.len(), 1);
    // What a filter looks at is what a list shows, and not what is taken.
    let with_text = |text: &str| jobs::JobFilter { text: Some(text.into()), ..jobs::JobFilter::default() };
    let found = |text: &str| fixture.node().list(&Caller::local(), &with_text(text), 9).unwrap().jobs.len();
    assert_eq!((found("data/IN"), found("file-00")), (1, 0));
    fixture.stop();
    fixture.start();
    check(&fixture);
    std::fs::write(fixture.path("in").to_string() + "/" + &names[7], b"x").unwrap();
    fixture.set_clock(3700);
    fixture.wait(id, |view| view.is_over);
    assert!(std::fs::exists(fixture.path("b") + "/" + &names[7]).unwrap());
}

#[test]
fn a_list_shows_a_bounded_part_of_many_sources() {
    let fixture = Fixture::new();
    let mut spec = copy(fixture.path("x"), fixture.path("b"));
    spec.sources = (0..1024).map(|number| fixture.path(&format!("{number:0>200}"))).collect();
    spec.not_before = Some(fixture.node().clock.now().checked_add(Duration::from_secs(3600)).unwrap());
    let view = fixture.view(fixture.submit(spec));
    assert!(view.source_count == 1024 && view.sources.len() < 400, "{}", view.sources.len());
    assert_eq!(fixture.node().document(&Caller::local(), view.id).unwrap().sources.len(), 1024);
    // Whether a caller sees the job is judged by all of them.
    let mut caller = Caller { subject: "token:x".into(), scopes: vec![Scope::Read], ..Caller::local() };
    let reach = |caller: &mut Caller, prefixes: &[String]| {
        let local = prefixes.iter().map(Into::into).collect();
        caller.reach = CallerReach { local, ..CallerReach::default() };
        fixture.node().list(caller, &jobs::JobFilter::default(), 9).unwrap().jobs.len()
    };
    assert_eq!(reach(&mut caller, &[fixture.path("")]), 1);
    let but_last: Vec<String> =
        (0..1023).map(|number| fixture.path(&format!("{number:0>200}"))).chain([fixture.path("b")]).collect();
    assert_eq!(reach(&mut caller, &but_last), 0);
}

#[test]
fn a_job_that_cannot_be_read_has_failed_and_keeps_no_other_from_starting() {
    let mut fixture = Fixture::new();
    let later = fixture.node().clock.now().checked_add(Duration::from_secs(3600)).unwrap();
    let mut ids = Vec::new();
    for number in 0..4 {
        let mut spec = copy("zero:5".into(), "null:".into());
        spec.not_before = Some(later);
        spec.labels = Labels([("number".to_string(), number.to_string())].into());
        ids.push(fixture.submit(spec));
    }
    fixture.stop();
    let store = rusqlite::Connection::open(fixture.folder.path().join("jobs.sqlite")).unwrap();
    let spoil = |what: &str, id: JobId| assert_eq!(store.execute(what, [id.as_str()]), Ok(1));
    spoil("UPDATE jobs SET figures = 'nonsense' WHERE id = ?1", ids[0]);
    spoil("UPDATE jobs SET head = NULL, places = NULL WHERE id = ?1", ids[1]);
    spoil("UPDATE documents SET spec = '{\"schema\": 1' WHERE job = ?1", ids[1]);
    spoil("UPDATE documents SET spec = '7' WHERE job = ?1", ids[2]);
    drop(store);
    fixture.start();
    for id in [ids[0], ids[1]] {
        let view = fixture.view(id);
        let error = view.error.unwrap();
        assert_eq!(
            (view.state, error.code.as_str()),
            (JobState::Failed.into(), "FH-STORE-BROKEN"),
            "{}",
            error.text
        );
    }
    let found = fixture.node().store.check().unwrap();
    assert!(found.iter().any(|line| line.contains(ids[1].as_str())), "{found:?}");
    assert_eq!(
        fixture.node().retry(&Caller::local(), ids[1], Default::default()).unwrap_err().code(),
        Code::StoreBroken
    );
    assert_eq!(fixture.node().list(&Caller::local(), &jobs::JobFilter::default(), 9).unwrap().jobs.len(), 4);
    // The others go on, and one whose document alone cannot be read fails when its time comes.
    fixture.set_clock(3700);
    fixture.wait_for(ids[3], JobState::Done);
    assert_eq!(fixture.wait_for(ids[2], JobState::Failed).error.unwrap().code, "FH-STORE-BROKEN");
}

#[test]
fn more_memory_than_there_is_is_refused_and_the_usual_amount_is_cut_to_it() {
    let memory = farhaul_session::MemoryLimits { process: 800 << 20, key: 100 << 20 };
    let fixture = Fixture::with(NodeSettings { memory, ..NodeSettings::default() });
    let ask = |subject: &str, bytes: u64| {
        let mut spec = copy("zero:1000".into(), "null:".into());
        spec.options.network.memory_bytes = bytes;
        let caller = Caller { subject: subject.into(), ..Caller::local() };
        fixture.node().submit(&caller, Submission { spec, idempotency: None }).map(|view| view.id)
    };
    for (subject, bytes, words) in [
        ("local", 4 << 40, "`memory` 4194304M is more than there is: this node has 800M"),
        ("local", 801 << 20, "`memory` 801M is more than there is: this node has 800M"),
        ("token:x", 400 << 20, "`memory` 400M is more than there is: token:x has 100M"),
    ] {
        let refused = ask(subject, bytes).unwrap_err();
        assert_eq!((refused.code(), refused.to_string().as_str()), (Code::BadOption, words));
    }
    for job in [ask("local", 800 << 20), ask("token:x", 256 << 20)] {
        fixture.wait_for(job.unwrap(), JobState::Done);
    }
}

#[test]
fn a_job_without_memory_waits_and_says_so_and_holds_up_no_other_owner() {
    let memory = farhaul_session::MemoryLimits { process: 800 << 20, key: 100 << 20 };
    let fixture = Fixture::with(NodeSettings { memory, ..NodeSettings::default() });
    fixture.add_token("y");
    // As if other transfers of this token had it.
    let taken = fixture.node().memory_of("token:x").charge(95 << 20).unwrap();
    let submit = |subject: &str| {
        let caller = Caller { subject: subject.into(), ..Caller::local() };
        let spec = copy("zero:1000".into(), "null:".into());
        fixture.node().submit(&caller, Submission { spec, idempotency: None }).unwrap().id
    };
    let waiting = [submit("token:x"), submit("token:x")];
    fixture.wait_for(submit("token:y"), JobState::Done);
    let view = fixture.wait(waiting[0], |view| view.waits_for.is_some());
    let why = "memory: the memory of token:x is used up (100 MiB)";
    assert_eq!(
        (view.state, view.attempt, view.waits_for.as_deref()),
        (JobState::Queued.into(), 0, Some(why))
    );
    drop(taken);
    for id in waiting {
        let view = fixture.wait_for(id, JobState::Done);
        assert_eq!((view.attempt, view.waits_for), (1, None));
    }
}

#[test]
fn a_token_makes_the_node_keep_no_more_than_its_share() {
    let queue = QueueLimits { jobs: 100, jobs_each: 3, bytes: 10 << 20, bytes_each: 100_000 };
    let mut fixture = Fixture::with(NodeSettings { queue, ..NodeSettings::default() });
    let later = fixture.node().clock.now().checked_add(Duration::from_secs(3600)).unwrap();
    let submit = |fixture: &Fixture, subject: &str, names: usize| {
        let mut spec = copy(fixture.path("in/"), fixture.path("out"));
        spec.options.select.names = Some((0..names).map(|name| format!("{name:0>100}")).collect());
        spec.not_before = Some(later);
        let caller = Caller { subject: subject.into(), ..Caller::local() };
        fixture.node().submit(&caller, Submission { spec, idempotency: None }).map(|view| view.id)
    };
    std::fs::create_dir(fixture.path("in")).unwrap();
    let first = submit(&fixture, "token:x", 700).unwrap();
    let refused = submit(&fixture, "token:x", 700).unwrap_err();
    assert_eq!(refused.code(), Code::TooMany);
    assert!(refused.to_string().starts_with("the jobs of token:x that are not over take"), "{refused}");
    // Others have their own share, and the service's own user has that of the node.
    submit(&fixture, "token:y", 700).unwrap();
    submit(&fixture, "local", 2000).unwrap();
    for _ in 0..2 {
        submit(&fixture, "token:x", 1).unwrap();
    }
    let refused = submit(&fixture, "token:x", 1).unwrap_err().to_string();
    assert_eq!(refused, "3 jobs of token:x are not over yet; no further one is accepted");
    // A restart forgets nothing, and a job that is over makes room.
    fixture.stop();
    fixture.start();
    assert!(submit(&fixture, "token:x", 1).is_err());
    fixture.node().cancel(&Caller::local(), first).unwrap();
    fixture.wait_until(|fixture| submit(fixture, "token:x", 700).is_ok());
}
