use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::*;
use crate::access::Caller;
use crate::config::values::{SecretPlace, TextValue as _};
use crate::hooks::FileResult;
use crate::hooks::webhook::{AddressRules, sign};
use crate::job::JobSpec;
use crate::node::tests::{Fixture, copy};
use crate::node::{NodeSettings, Submission};
use farhaul_api::Labels;

/// A request that a server has received.
struct ReceivedRequest {
    headers: BTreeMap<String, String>,
    body: String,
}

impl ReceivedRequest {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn id(&self) -> &str {
        &self.headers["farhaul-delivery"]
    }
}

/// A server that gives these answers one after the other, and 200 from then on.
fn server(answers: &[u16]) -> (SocketAddr, mpsc::Receiver<ReceivedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (got, gets) = mpsc::channel();
    let mut answers = Vec::from(answers).into_iter();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut headers = BTreeMap::new();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                match line.trim_end().split_once(": ") {
                    Some((name, value)) => drop(headers.insert(name.to_lowercase(), value.to_string())),
                    None if line.trim_end().is_empty() => break,
                    None => {}
                }
            }
            let mut body = vec![0; headers["content-length"].parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let status = answers.next().unwrap_or(200);
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            // The request is reported before it is answered, so that a test that waits for the outcome finds
            // it.
            let _ = got.send(ReceivedRequest { headers, body: String::from_utf8(body).unwrap() });
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    (address, gets)
}

fn next(gets: &mpsc::Receiver<ReceivedRequest>) -> ReceivedRequest {
    gets.recv_timeout(Duration::from_secs(60)).expect("a message must come")
}

fn local_webhooks() -> WebhookSettings {
    let addresses = AddressRules { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: Vec::new() };
    WebhookSettings { addresses, ..WebhookSettings::default() }
}

/// A script in a file of its own, which the test can run as a hook.
fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn hook(on: HookMoment, program: &Path) -> Hook {
    let text = serde_json::json!({ "on": on, "program": program }).to_string();
    serde_json::from_str::<Hook>(&text).unwrap().checked().unwrap()
}

fn outcome(fixture: &Fixture, id: &str) -> Option<String> {
    fixture.node().store.read(|connection| deliveries::outcome(connection, id)).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The messages that programs have written, one per line.
fn messages(path: &Path) -> Vec<HookMessage> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_webhook_is_tried_until_it_is_taken_and_keeps_its_id_over_a_restart() {
    let (address, gets) = server(&[503, 500]);
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = SecretPlace::read(secret.to_str().unwrap());
    let webhooks = WebhookSettings { secret, ..local_webhooks() };
    let mut fixture = Fixture::with(NodeSettings { webhooks, ..NodeSettings::default() });
    let mut spec = copy(fixture.file("a", 1000), fixture.path("b"));
    spec.webhook = Some(format!("http://{address}/in"));
    spec.labels = Labels([("run".to_string(), "7".to_string())].into());
    let job = fixture.submit(spec);
    fixture.wait_for(job, JobState::Done);
    let first = next(&gets);
    let told = first.json();
    assert_eq!((told["event"].as_str(), told["job"]["state"].as_str()), (Some("post"), Some("done")));
    assert_eq!((told["job"]["files"].as_u64(), told["job"]["labels"]["run"].as_str()), (Some(1), Some("7")));
    assert_eq!(told["delivery"], first.id());
    assert!(first.id().starts_with(&format!("{job}.1.post.")), "{}", first.id());
    let signature = &first.headers["farhaul-signature"];
    let unix_s: i64 = signature[2..].split(',').next().unwrap().parse().unwrap();
    let url = format!("http://{address}/in").parse().unwrap();
    let secret = WebhookSecret::new("0123456789abcdef0123").unwrap().for_url(&url);
    assert_eq!(*signature, sign(&secret, &url, unix_s, first.body.as_bytes()));
    let is_tried_again = |fixture: &Fixture, count: usize| {
        let lines = fixture.lines(job);
        lines.iter().filter(|line| line.contains("is tried again in")).count() == count
    };
    wait_until("the webhook is not tried again", || is_tried_again(&fixture, 1));
    fixture.stop();
    fixture.start();
    fixture.set_clock(60);
    let second = next(&gets);
    wait_until("the webhook is not tried a second time", || is_tried_again(&fixture, 2));
    fixture.stop();
    fixture.set_clock_file(120);
    fixture.start();
    let third = next(&gets);
    assert!([&second, &third].into_iter().all(|got| got.id() == first.id() && got.body == first.body));
    wait_until("the delivery is not over", || outcome(&fixture, first.id()) == Some("delivered: 200".into()));
    // Nothing more comes, not even after a restart.
    fixture.stop();
    fixture.set_clock_file(86_400);
    fixture.start();
    assert!(gets.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn a_webhook_goes_nowhere_that_is_not_allowed() {
    let (address, gets) = server(&[]);
    let fixture = Fixture::new();
    let mut spec = copy(fixture.file("a", 10), fixture.path("b"));
    spec.webhook = Some(format!("http://{address}/in"));
    let job = fixture.submit(spec);
    wait_until("the webhook is not refused", || {
        fixture.lines(job).iter().any(|line| line.contains("is given up") && line.contains("loopback"))
    });
    assert!(gets.try_recv().is_err());
    let mut spec = copy(fixture.path("a"), fixture.path("b"));
    spec.webhook = Some("http://user:secret@example.org/".into());
    let submission = Submission { spec, idempotency: None };
    let refused = fixture.node().submit(&Caller::local(), submission).unwrap_err();
    assert!(
        refused.to_string().contains("password") && !refused.to_string().contains("secret@"),
        "{refused}"
    );
}

#[test]
fn a_dry_run_is_told_to_those_who_ask_and_says_what_it_is() {
    let (address, gets) = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (heard, unasked) = (folder.path().join("heard"), folder.path().join("unasked"));
    let asks =
        program(folder.path(), "asks", &format!("cat >>{}; echo dry=$FARHAUL_DRY_RUN", heard.display()));
    let does_not = program(folder.path(), "does-not", &format!("cat >>{}", unasked.display()));
    let mut hooks = HookMoment::ALL.map(|when| hook(when, &does_not)).to_vec();
    hooks.extend(HookMoment::ALL.map(|when| Hook { dry_run: true, ..hook(when, &asks) }));
    let fixture =
        Fixture::with(NodeSettings { hooks, webhooks: local_webhooks(), ..NodeSettings::default() });
    let source = fixture.file("a", 1000);
    let dry = |webhook_dry_run| {
        let mut spec = copy(source.clone(), fixture.path("b"));
        spec.options.dry_run = true;
        (spec.webhook, spec.webhook_dry_run) = (Some(format!("http://{address}/in")), webhook_dry_run);
        fixture.submit(spec)
    };
    let silent = dry(false);
    fixture.wait_for(silent, JobState::Done);
    let told = dry(true);
    fixture.wait_for(told, JobState::Done);
    let posts = || messages(&heard).iter().filter(|message| message.event == HookMoment::Post).count();
    wait_until("the post hooks do not run", || posts() == 2);
    let all = messages(&heard);
    assert!(all.iter().all(|message| message.job.dry_run && message.job.files + message.job.bytes == 0));
    let files: Vec<_> = all.iter().flat_map(|message| &message.files).collect();
    assert!(files.len() == 2 && files.iter().all(|file| file.result == FileResult::WouldArrive), "{files:?}");
    assert!(fixture.lines(told).iter().any(|line| line.ends_with("dry=true")));
    // The first message that arrives is that of the second job.
    let first = next(&gets).json();
    assert_eq!(first["job"]["id"], told.to_string());
    assert_eq!((&first["job"]["dry_run"], &first["job"]["files"]), (&true.into(), &0.into()));
    assert_eq!(messages(&unasked), []);
    // Nothing counts as moved, and all who ask hear that it was a dry run.
    assert!(fixture.view(silent).dry_run && !std::path::Path::new(&fixture.path("b")).exists());
    let records = fixture.records();
    assert!(records.iter().all(|record| record.dry_run && record.files == 0 && record.bytes == 0));
    let moved = fixture.node().metrics.moved();
    assert_eq!((moved.sent_bytes, moved.received_bytes, moved.local_bytes), (0, 0, 0));
    let metrics = fixture.node().metrics.text(fixture.node(), crate::metrics::Format::OpenMetrics).unwrap();
    let counts = metrics.lines().filter(|line| line.starts_with("farhaul_files_total"));
    assert!(counts.clone().count() > 0 && counts.clone().all(|line| line.ends_with(" 0")), "{metrics}");
    let says = |job, words: &str| fixture.lines(job).iter().any(|line| line.contains(words));
    assert!(says(silent, "this was a dry run") && says(silent, "the webhook is not told"));
    assert!(says(told, "1 files of 1000 bytes would arrive") && !says(told, "the webhook is not told"));
    // The same job, not dry.
    let real = fixture.submit(copy(source.clone(), fixture.path("b")));
    fixture.wait_for(real, JobState::Done);
    wait_until("the hook does not run", || {
        messages(&unasked).last().is_some_and(|last| last.event == HookMoment::Post)
    });
    assert!(messages(&unasked).iter().all(|message| !message.job.dry_run));
    let record = fixture.records().into_iter().find(|record| !record.dry_run).unwrap();
    assert_eq!((record.files, record.bytes), (1, 1000));
}

#[test]
fn a_new_attempt_does_not_tell_what_an_earlier_one_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let (heard, goes) = (folder.path().join("heard"), folder.path().join("goes"));
    let listen = program(folder.path(), "listen", &format!("cat >>{}", heard.display()));
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", goes.display());
    let wait = program(folder.path(), "wait", &wait);
    let mut file = hook(HookMoment::File, &listen);
    file.batch.count = 1;
    let first = Hook { labels: [("first".into(), "*".into())].into(), ..hook(HookMoment::Pre, &wait) };
    let fixture = Fixture::with(NodeSettings { hooks: vec![file, first], ..NodeSettings::default() });
    let mut spec = copy(fixture.file("a", 100), fixture.path("b"));
    spec.labels = Labels([("first".to_string(), "1".to_string())].into());
    spec.not_before = Some(crate::clock::timestamp(fixture.node().clock.now_ms() + 3_600_000));
    let job = fixture.submit(spec);
    let old = r#"{"path":"old","kind":"file","size":1,"digest":"00","result":"sent"}"#;
    std::fs::write(fixture.node().manifest_of_run(job, 1), format!("{old}\n")).unwrap();
    fixture.set_clock(3_601);
    fixture.wait_for(job, JobState::Running);
    // The courier has looked at all feeds when it tells of the file of another job.
    let other = fixture.submit(copy(fixture.path("a"), fixture.path("c")));
    wait_until("nothing is told of the other job", || {
        messages(&heard).iter().any(|message| message.job.id == other.to_string())
    });
    std::fs::write(goes, "").unwrap();
    fixture.wait_for(job, JobState::Done);
    let told = || {
        let all = messages(&heard).into_iter().filter(|message| message.job.id == job.to_string());
        all.flat_map(|message| message.files).map(|file| file.path).collect::<Vec<_>>()
    };
    wait_until("the file is not told", || !told().is_empty());
    assert_eq!(told(), ["a"]);
}

#[test]
fn programs_hear_of_files_and_ends_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let listen =
        program(folder.path(), "listen", &format!("cat >>{}; echo heard $FARHAUL_EVENT", heard.display()));
    let mut hooks = HookMoment::ALL.map(|when| hook(when, &listen)).to_vec();
    hooks[1].batch.count = 4;
    // This hook is for other jobs.
    hooks.push(Hook { labels: [("team".into(), "*".into())].into(), ..hook(HookMoment::Post, &listen) });
    let fixture = Fixture::with(NodeSettings { hooks, ..NodeSettings::default() });
    let source = fixture.path("in");
    std::fs::create_dir(&source).unwrap();
    (0..10).for_each(|number| std::fs::write(format!("{source}/{number}"), [7; 100]).unwrap());
    let job = fixture.submit(copy(source, fixture.path("out")));
    fixture.wait_for(job, JobState::Done);
    wait_until("the post hook does not run", || {
        messages(&heard).last().is_some_and(|last| last.event == HookMoment::Post)
    });
    let all = messages(&heard);
    let events: Vec<_> = all.iter().map(|message| message.event).collect();
    assert_eq!(
        events,
        [HookMoment::Pre, HookMoment::File, HookMoment::File, HookMoment::File, HookMoment::Post]
    );
    let files: BTreeSet<String> =
        all.iter().flat_map(|message| &message.files).map(|file| file.path.clone()).collect();
    assert_eq!((files.len(), all[1].files.len(), all[3].files.len()), (10, 4, 2), "{files:?}");
    assert!(all[1].files[0].digest.as_deref().is_some_and(|digest| digest.starts_with("blake3-tree-1MiB:")));
    let ids: BTreeSet<&str> = all.iter().map(|message| message.delivery.as_str()).collect();
    assert_eq!(ids.len(), 5);
    assert_eq!((all[4].job.files, all[4].job.bytes), (10, 1000));
    wait_until("the hook's output is not in the log", || {
        fixture.lines(job).iter().any(|line| line.contains("post hook") && line.ends_with("heard post"))
    });
    // A job that fails.
    let job = fixture.submit(copy(fixture.path("none"), fixture.path("out")));
    fixture.wait_for(job, JobState::Failed);
    wait_until("the fail hook does not run", || {
        messages(&heard).last().is_some_and(|last| last.event == HookMoment::Fail)
    });
    let last = messages(&heard).pop().unwrap();
    assert_eq!((last.job.id, last.error.unwrap().code), (job.to_string(), "FH-NOT-FOUND".to_string()));
}

#[test]
fn a_program_that_fails_before_a_job_keeps_it_from_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let check = program(folder.path(), "check", "echo looking; echo the quota is used up; echo; exit 3");
    let hooks = vec![hook(HookMoment::Pre, &check)];
    let fixture = Fixture::with(NodeSettings { hooks, ..NodeSettings::default() });
    let job = fixture.submit(copy(fixture.file("a", 10), fixture.path("b")));
    let view = fixture.wait_for(job, JobState::Failed);
    assert_eq!((view.attempt, view.error.unwrap().code.as_str()), (1, "FH-HOOK-FAILED"));
    assert!(!Path::new(&fixture.path("b")).exists());
    assert!(fixture.records()[0].error.as_ref().unwrap().ends_with("the quota is used up"));
    assert!(fixture.lines(job).iter().any(|line| line.contains("exited with 3")));
}

#[test]
fn a_job_is_cancelled_while_a_program_runs_before_it_and_the_service_ends_while_one_runs_after() {
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let slow =
        program(folder.path(), "slow", &format!("echo x >>{}.began; sleep 60; cat >>{0}", heard.display()));
    let hooks = vec![hook(HookMoment::Pre, &slow)];
    let mut fixture = Fixture::with(NodeSettings { hooks, ..NodeSettings::default() });
    let began = folder.path().join("heard.began");
    let job = fixture.submit(copy(fixture.file("a", 10), fixture.path("b")));
    wait_until("the hook does not begin", || began.exists());
    // Other requests are answered in the meantime.
    assert_eq!(fixture.view(job).state, JobState::Running);
    fixture.node().cancel(&Caller::local(), job).unwrap();
    fixture.wait_for(job, JobState::Cancelled);
    std::fs::remove_file(&began).unwrap();
    fixture.stop();
    fixture.settings.hooks = vec![hook(HookMoment::Post, &slow)];
    fixture.start();
    let job = fixture.submit(copy(fixture.path("a"), fixture.path("b")));
    fixture.wait_for(job, JobState::Done);
    wait_until("the hook does not begin", || began.exists());
    fixture.stop();
    // The next process delivers the same message.
    program(folder.path(), "slow", &format!("cat >>{}", heard.display()));
    fixture.start();
    wait_until("the message is not delivered", || !messages(&heard).is_empty());
    assert_eq!(messages(&heard)[0].job.id, job.to_string());
}

#[test]
fn a_second_end_of_the_same_run_tells_nothing_anew() {
    let (address, gets) = server(&[]);
    let fixture = Fixture::with(NodeSettings { webhooks: local_webhooks(), ..NodeSettings::default() });
    let mut spec: JobSpec = copy(fixture.file("a", 10), fixture.path("b"));
    spec.webhook = Some(format!("http://{address}/in"));
    let job = fixture.submit(spec);
    fixture.wait_for(job, JobState::Done);
    let got = next(&gets);
    wait_until("the delivery is not over", || outcome(&fixture, got.id()).is_some());
    // As after a crash that lost the end of the run: the end is made again.
    let row = fixture.node().store.read(|connection| jobs::get(connection, job)).unwrap().unwrap();
    let record = fixture.records().remove(0);
    let again = {
        let head = fixture.node().stored_facts(job).unwrap().head;
        outbox::of_end(&fixture.node().settings(), (&row, &head), &record, JobState::Done, false)
    };
    assert_eq!((again.len(), again[0].id.as_str()), (1, got.id()));
    let insert = move |transaction: &rusqlite::Transaction<'_>| deliveries::insert(transaction, &again[0]);
    fixture.node().store.write(insert).unwrap();
    fixture.node().bell.ring();
    assert!(gets.recv_timeout(Duration::from_millis(300)).is_err());
    // Another run has another message.
    fixture.node().retry(&Caller::local(), job, Default::default()).unwrap();
    assert!(next(&gets).id().starts_with(&format!("{job}.2.post.")));
}
