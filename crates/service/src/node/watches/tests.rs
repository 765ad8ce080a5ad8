use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::node::tests::Fixture;
use crate::store::jobs;
use crate::watch::AfterAction;
use farhaul_api::CallerReach;
use farhaul_api::{JobSpan, JobState, Labels};

fn spec(folder: &str, destination: &str, after: AfterAction) -> WatchSpec {
    let text = json!({ "folder": folder, "destination": destination, "settle": "1s" }).to_string();
    WatchSpec { after, ..serde_json::from_str(&text).unwrap() }
}

fn add(fixture: &Fixture, after: AfterAction) -> String {
    for name in ["in", "out"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let spec = spec(&fixture.path("in"), &fixture.path("out"), after);
    fixture.node().add_watch(&Caller::local(), spec).unwrap().id
}

fn files(fixture: &Fixture, watch: &str) -> BTreeMap<String, WatchedFileView> {
    let files = fixture.node().watch_files(&Caller::local(), watch, None, "", 10_000).unwrap();
    files.into_iter().map(|file| (file.path.clone(), file)).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for(fixture: &Fixture, watch: &str, path: &str, state: &str) -> WatchedFileView {
    wait_until(&format!("{path} is not {state}: {:?}", files(fixture, watch)), || {
        files(fixture, watch).get(path).is_some_and(|file| file.state == state)
    });
    files(fixture, watch).remove(path).unwrap()
}

#[test]
fn a_file_arrives_under_its_name_by_a_job_of_the_watch_s_owner() {
    let fixture = Fixture::new();
    for name in ["in", "out"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let mut asked = spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Mark);
    asked.labels = Labels([("team".to_string(), "xray".to_string())].into());
    asked.include = vec!["*.h5".into()];
    let caller = Caller { subject: "token:x".into(), ..Caller::local() };
    let watch = fixture.node().add_watch(&caller, asked.clone()).unwrap().id;
    assert_eq!(fixture.node().add_watch(&caller, asked).unwrap_err().code(), Code::AlreadyExists);
    std::fs::create_dir(fixture.path("in/run7")).unwrap();
    fixture.file("in/run7/a.h5", 1000);
    fixture.file("in/notes.txt", 10);
    let file = wait_for(&fixture, &watch, "run7/a.h5", "done");
    assert_eq!(std::fs::read(fixture.path("out/run7/a.h5")).unwrap(), [7; 1000]);
    assert!(!Path::new(&fixture.path("out/notes.txt")).exists());
    let marker = std::fs::read_to_string(fixture.path("in/run7/a.h5.farhaul-done")).unwrap();
    assert!(marker.contains(file.job.as_deref().unwrap()), "{marker}");
    let id: JobId = file.job.unwrap().parse().unwrap();
    let row = fixture.node().store.read(|connection| jobs::get(connection, id)).unwrap().unwrap();
    assert_eq!((row.owner.as_str(), row.state), ("token:x", JobState::Done));
    let labels = fixture.node().document(&Caller::local(), id).unwrap().labels.0;
    assert_eq!((&labels["watch"], &labels["team"]), (&watch, &"xray".to_string()));
    let view = fixture.node().watch_view(&caller, &watch).unwrap();
    assert_eq!(view.files, BTreeMap::from([("done".to_string(), 1)]));
    // The file is not taken again, and nothing is left when the watch is removed.
    fixture.node().remove_watch(&caller, &watch).unwrap();
    assert_eq!(fixture.node().watch_view(&caller, &watch).unwrap_err().code(), Code::NoSuchThing);
    assert_eq!(fixture.records().len(), 1);
}

#[test]
fn a_hundred_files_and_three_starts_bring_each_file_once() {
    let mut fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Keep);
    let name = |number: usize| format!("in/{}/{number}", number % 7);
    let content = |number: usize| format!("{number} ").repeat(1 + number * 37).into_bytes();
    let write = |fixture: &Fixture, from: usize, to: usize| {
        for number in from..to {
            let path = fixture.path(&name(number));
            std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(path, content(number)).unwrap();
        }
    };
    for round in 0..4 {
        write(&fixture, round * 25, round * 25 + 12);
        // At each end of the service some files are taken, some have arrived, and some are on their way.
        let wanted = round * 25 + 5;
        wait_until("no file is taken", || {
            let all = files(&fixture, &watch);
            all.values().filter(|file| file.job.is_some()).count() >= wanted.min(round * 25 + 1)
        });
        if round < 3 {
            fixture.stop();
            write(&fixture, round * 25 + 12, round * 25 + 25);
            fixture.start();
        } else {
            write(&fixture, round * 25 + 12, round * 25 + 25);
        }
    }
    wait_until("not all are done", || {
        let all = files(&fixture, &watch);
        all.len() == 100 && all.values().all(|file| file.state == "done")
    });
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let wanted =
        jobs::JobFilter { labels: vec![("watch".into(), watch.clone())], ..jobs::JobFilter::default() };
    let all = fixture
        .node()
        .store
        .read(|connection| jobs::list(connection, &wanted, (1000, 1000), |_| true))
        .unwrap()
        .jobs;
    for job in &all {
        assert_eq!(job.row.state, JobState::Done);
        let spec = fixture.node().document(&Caller::local(), job.row.id).unwrap();
        spec.options
            .select
            .names
            .iter()
            .flatten()
            .for_each(|name| *taken.entry(name.clone()).or_default() += 1);
    }
    // Each file was in one job, and each job has one result.
    assert!(taken.len() == 100 && taken.values().all(|count| *count == 1), "{taken:?}");
    assert_eq!(fixture.records().len(), all.len());
    for number in 0..100 {
        let there = std::fs::read(fixture.path(&name(number).replacen("in", "out", 1))).unwrap();
        assert!(there == content(number), "{number}");
    }
}

/// Puts a version of `in/a` in its place, with always the same size and time.
fn put_version(fixture: &Fixture, content: &str, in_place: bool) {
    let path = fixture.path("in/a");
    let new = if in_place { path.clone() } else { fixture.path("new") };
    std::fs::write(&new, content).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(&new).unwrap().set_modified(time).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[test]
fn a_second_version_of_the_same_size_and_time_arrives_whatever_follows() {
    let actions =
        [AfterAction::Keep, AfterAction::Mark, AfterAction::Move("sent".into()), AfterAction::Delete];
    for (after, in_place) in actions.into_iter().flat_map(|after| [(after.clone(), false), (after, true)]) {
        let fixture = Fixture::new();
        let _watch = add(&fixture, after.clone());
        let there = |content: &str| {
            std::fs::read_to_string(fixture.path("out/a")).is_ok_and(|there| there == content)
        };
        let is_left = || Path::new(&fixture.path("in/a")).exists();
        let stays = matches!(after, AfterAction::Keep | AfterAction::Mark);
        put_version(&fixture, "the first version", false);
        wait_until(&format!("{after:?}: it arrives"), || there("the first version") && is_left() == stays);
        put_version(&fixture, "a second  version", in_place);
        wait_until(&format!("{after:?}, {in_place}: it is taken"), || fixture.records().len() >= 2);
        wait_until(&format!("{after:?}, {in_place}: it goes"), || is_left() == stays);
        assert!(there("a second  version"), "{after:?}, {in_place}");
        // A version that is at the destination already goes, too, once both ends have compared it.
        put_version(&fixture, "a second  version", in_place);
        wait_until(&format!("{after:?}, {in_place}: it is taken"), || fixture.records().len() >= 3);
        wait_until(&format!("{after:?}, {in_place}: it goes"), || is_left() == stays);
        assert!(there("a second  version"), "{after:?}, {in_place}");
    }
}

#[test]
fn options_do_not_make_less_count_as_arrived() {
    let text = |options: &str, after: &str, to: &str| {
        format!(r#"{{"folder": "/f", "destination": "{to}", "after": "{after}", "options": {options}}}"#)
    };
    let read = |text: String| serde_json::from_str::<WatchSpec>(&text).unwrap();
    let weak =
        r#"{"integrity": {"verify": "transit", "durable": "no"}, "files": {"overwrite": "different"}}"#;
    let options = read(text(weak, "delete", "/to")).job("w", vec!["a".into()]).options;
    assert_eq!(options.integrity.verify, farhaul::options::VerifyMode::Digest);
    assert_eq!(options.integrity.durable, farhaul::options::Durability::End);
    assert_eq!(options.files.overwrite, farhaul::options::OverwriteMode::Content);
    for after in ["mark", "delete", "move:sent"] {
        let error = read(text("{}", after, "fh://far/null:")).checked().unwrap_err();
        assert!(error.to_string().contains("keeps nothing"), "{error}");
    }
    read(text("{}", "keep", "fh://far/null:")).checked().unwrap();
}

#[test]
fn a_file_whose_place_is_kept_for_another_has_not_arrived() {
    let fixture = Fixture::new();
    for name in ["in", "out"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    std::fs::write(fixture.path("out/a"), "another file").unwrap();
    let mut asked = spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Delete);
    asked.options.files.overwrite = farhaul::options::OverwriteMode::Never;
    let watch = fixture.node().add_watch(&Caller::local(), asked).unwrap().id;
    fixture.file("in/a", 12);
    let file = wait_for(&fixture, &watch, "a", "failed");
    assert!(file.why.is_some_and(|why| why.contains("may not be replaced")));
    assert_eq!(std::fs::read(fixture.path("in/a")).unwrap(), [7; 12]);
}

#[test]
fn nothing_is_deleted_before_it_is_confirmed() {
    let mut fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Delete);
    fixture.file("in/a", 1000);
    wait_for(&fixture, &watch, "a", "gone");
    assert_eq!(std::fs::read(fixture.path("out/a")).unwrap(), [7; 1000]);
    assert!(!Path::new(&fixture.path("in/a")).exists());
    // A destination that cannot take files: the file stays, and has failed.
    std::fs::remove_dir_all(fixture.path("out")).unwrap();
    std::fs::write(fixture.path("out"), b"in the way").unwrap();
    fixture.file("in/b", 1000);
    let file = wait_for(&fixture, &watch, "b", "failed");
    assert!(file.why.is_some());
    assert_eq!(std::fs::read(fixture.path("in/b")).unwrap(), [7; 1000]);
    // A restart does not delete the file either. It goes once somebody has retried the job and that has
    // worked.
    fixture.stop();
    fixture.start();
    std::fs::remove_file(fixture.path("out")).unwrap();
    std::fs::create_dir(fixture.path("out")).unwrap();
    assert_eq!(wait_for(&fixture, &watch, "b", "failed").why, file.why);
    let id: JobId = file.job.unwrap().parse().unwrap();
    fixture.node().retry(&Caller::local(), id, Default::default()).unwrap();
    wait_for(&fixture, &watch, "b", "gone");
    assert_eq!(std::fs::read(fixture.path("out/b")).unwrap(), [7; 1000]);
    assert!(!Path::new(&fixture.path("in/b")).exists());
}

#[test]
fn a_job_that_ended_when_nobody_listened_is_heard_of_later() {
    let mut fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Delete);
    fixture.file("in/a", 1000);
    wait_until("the file is not taken", || {
        files(&fixture, &watch).get("a").is_some_and(|file| file.job.is_some())
    });
    let id: JobId = files(&fixture, &watch)["a"].job.clone().unwrap().parse().unwrap();
    // The thread of the folder has ended, the job goes on.
    fixture.node().watches.end();
    fixture.wait_for(id, JobState::Done);
    fixture.stop();
    fixture.start();
    wait_for(&fixture, &watch, "a", "gone");
    assert_eq!(std::fs::read(fixture.path("out/a")).unwrap(), [7; 1000]);
}

#[test]
fn one_bad_file_of_many_keeps_no_other() {
    let fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Delete);
    // A directory lies where a file must go.
    std::fs::create_dir_all(fixture.path("out/b/full")).unwrap();
    ["a", "b", "c"].iter().for_each(|name| drop(fixture.file(&format!("in/{name}"), 100)));
    let file = wait_for(&fixture, &watch, "b", "failed");
    assert!(file.why.is_some(), "{file:?}");
    for name in ["a", "c"] {
        wait_for(&fixture, &watch, name, "gone");
        assert_eq!(std::fs::read(fixture.path(&format!("out/{name}"))).unwrap(), [7; 100]);
    }
    assert!(Path::new(&fixture.path("in/b")).exists());
    // Once somebody has removed that, the file is taken again.
    std::fs::remove_dir_all(fixture.path("out/b")).unwrap();
    fixture.node().retry_watch(&Caller::local(), &watch).unwrap();
    wait_for(&fixture, &watch, "b", "gone");
    assert_eq!(std::fs::read(fixture.path("out/b")).unwrap(), [7; 100]);
}

#[test]
fn what_a_job_leaves_out_has_not_arrived() {
    let fixture = Fixture::new();
    for name in ["in", "out"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let mut asked = spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Delete);
    asked.options.files.overwrite = farhaul::options::OverwriteMode::Never;
    let watch = fixture.node().add_watch(&Caller::local(), asked).unwrap().id;
    fixture.file("out/a", 3);
    fixture.file("in/a", 1000);
    fixture.file("in/b\\ü\n", 1000);
    assert!(wait_for(&fixture, &watch, "a", "failed").why.is_some());
    assert!(Path::new(&fixture.path("in/a")).exists());
    let other = farhaul::sisters::escape("b\\ü\n".as_bytes());
    wait_for(&fixture, &watch, &other, "gone");
    assert!(Path::new(&fixture.path("out/b\\ü\n")).exists());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let plain = || spec("/instrument/out", "fh://hpc/in", AfterAction::Keep);
    assert!(plain().checked().is_ok());
    let label = Labels([("watch".to_string(), "x".to_string())].into());
    let mut synced = plain();
    synced.options.select.rules = vec!["- *.tmp".into()];
    for (wrong, part) in [
        (WatchSpec { folder: "out".into(), ..plain() }, "absolute"),
        (WatchSpec { folder: "/".into(), ..plain() }, "not the root"),
        (WatchSpec { folder: "/instrument/../..".into(), ..plain() }, "without .."),
        (WatchSpec { destination: "/instrument/out/sent".into(), ..plain() }, "taken again"),
        (WatchSpec { destination: "in".into(), ..plain() }, "absolute"),
        (WatchSpec { settle: JobSpan(0), ..plain() }, "settle"),
        (WatchSpec { labels: label, ..plain() }, "label watch"),
        (WatchSpec { after: AfterAction::Move("..".into()), ..plain() }, "moved"),
        (synced, "include and exclude"),
    ] {
        let error = wrong.checked().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_watch_of_the_configuration_does_not_take_the_id_of_another_one() {
    let mut fixture = Fixture::new();
    let id = add(&fixture, AfterAction::Mark);
    let (folder, destination) = (fixture.path("other"), fixture.path("else"));
    for name in [&folder, &destination] {
        std::fs::create_dir_all(name).unwrap();
    }
    let configured = spec(&folder, &destination, AfterAction::Keep);
    fixture.settings.watches = [(id.clone(), configured.clone())].into();
    fixture.node().set_settings(fixture.settings.clone());
    let error = fixture.node().follow_one(&id, configured).unwrap_err();
    assert!(error.code() == Code::AlreadyExists && error.hint().is_some(), "{error}");
    let view = fixture.node().watch_view(&Caller::local(), &id).unwrap();
    assert_eq!((view.owner, view.spec.folder), (Caller::local().subject, fixture.path("in")));
    // It is the same after a restart.
    fixture.stop();
    fixture.start();
    let view = fixture.node().watch_view(&Caller::local(), &id).unwrap();
    assert_eq!((view.owner, view.spec.folder), (Caller::local().subject, fixture.path("in")));
}

#[test]
fn a_watch_that_is_set_again_has_the_confines_of_the_new_one() {
    let fixture = Fixture::new();
    let row = |owner: &str, confined: Option<&str>| WatchRow {
        id: "w".into(),
        owner: owner.into(),
        spec: spec("/in", "/out", AfterAction::Keep),
        reach: confined.map_or_else(CallerReach::everything, |prefix| CallerReach {
            local: vec![prefix.into()],
            ..CallerReach::default()
        }),
        created_ms: 1,
    };
    for (owner, confined, is_set, now) in [
        (CONFIGURATION, Some("/a"), true, Some("/a")),
        (CONFIGURATION, Some("/b"), true, Some("/b")),
        ("token:x", Some("/c"), false, Some("/b")),
        (CONFIGURATION, None, true, None),
    ] {
        let written = row(owner, confined);
        let set = fixture.node().store.write(move |transaction| watches::put(transaction, &written));
        assert_eq!(set.unwrap(), is_set);
        assert_eq!(fixture.node().store.read(watches::all).unwrap(), [row(CONFIGURATION, now)]);
    }
}

#[test]
fn folders_of_the_configuration_are_watched_as_long_as_they_stand_there() {
    let mut fixture = Fixture::new();
    for name in ["in", "out", "other"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let local = Caller::local();
    let of = |destination: &str| spec(&fixture.path("in"), &fixture.path(destination), AfterAction::Keep);
    let (first, second) = (of("out"), of("other"));
    fixture.settings.watches = [("camera".to_string(), first)].into();
    fixture.stop();
    fixture.start();
    fixture.file("in/a", 100);
    wait_for(&fixture, "camera", "a", "done");
    assert_eq!(fixture.node().watch_view(&local, "camera").unwrap().owner, "configuration");
    assert_eq!(fixture.node().remove_watch(&local, "camera").unwrap_err().code(), Code::NotNow);
    // Configured anew, files go to the other destination; files that were sent before are not sent again.
    fixture.settings.watches = [("camera".to_string(), second)].into();
    fixture.node().set_settings(fixture.settings.clone());
    fixture.file("in/b", 100);
    wait_for(&fixture, "camera", "b", "done");
    assert!(Path::new(&fixture.path("other/b")).exists() && !Path::new(&fixture.path("other/a")).exists());
    fixture.settings.watches.clear();
    fixture.node().set_settings(fixture.settings.clone());
    assert_eq!(fixture.node().watch_view(&local, "camera").unwrap_err().code(), Code::NoSuchThing);
    fixture.stop();
    fixture.start();
    assert!(fixture.node().list_watches(&local).unwrap().is_empty());
}

#[test]
fn who_does_not_reach_a_folder_does_not_see_or_watch_it() {
    let fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Keep);
    let mut caller = Caller { subject: "token:x".into(), ..Caller::local() };
    caller.scopes = vec![Scope::Read, Scope::Submit, Scope::Control];
    caller.reach = CallerReach { local: vec!["/projects".into()], ..CallerReach::default() };
    let node = fixture.node();
    assert!(node.list_watches(&caller).unwrap().is_empty());
    assert_eq!(node.watch_view(&caller, &watch).unwrap_err().code(), Code::OutOfScope);
    assert_eq!(node.remove_watch(&caller, &watch).unwrap_err().code(), Code::OutOfScope);
    let ask =
        |folder: &str, to: &str, after| node.add_watch(&caller, spec(folder, to, after)).map(|view| view.id);
    assert_eq!(ask("/etc", "/projects/x", AfterAction::Keep).unwrap_err().code(), Code::OutOfScope);
    assert_eq!(ask("/projects/in", "/tmp", AfterAction::Keep).unwrap_err().code(), Code::OutOfScope);
    let outside = AfterAction::Move("/tmp/x".into());
    assert_eq!(ask("/projects/in", "/projects/out", outside).unwrap_err().code(), Code::OutOfScope);
    // The folder need not exist yet.
    let id = ask("/projects/in", "/projects/out", AfterAction::Keep).unwrap();
    assert_eq!(node.list_watches(&caller).unwrap().len(), 1);
    let row = node.store.read(watches::all).unwrap().into_iter().find(|row| row.id == id).unwrap();
    assert_eq!(row.reach, caller.reach);
}

#[test]
fn a_link_leads_no_watch_out_of_its_owner_s_reach() {
    let fixture = Fixture::new();
    for name in ["mine/out", "secret"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    fixture.file("secret/a", 100);
    std::fs::create_dir(fixture.path("mine/in")).unwrap();
    let mut caller = Caller { subject: "token:x".into(), ..Caller::local() };
    caller.scopes = vec![Scope::Submit, Scope::Control, Scope::Read];
    caller.reach = CallerReach { local: vec![fixture.path("mine").into()], ..CallerReach::default() };
    let asked = spec(&fixture.path("mine/in"), &fixture.path("mine/out"), AfterAction::Delete);
    let watch = fixture.node().add_watch(&caller, asked.clone()).unwrap().id;
    std::fs::remove_dir(fixture.path("mine/in")).unwrap();
    std::os::unix::fs::symlink(fixture.path("secret"), fixture.path("mine/in")).unwrap();
    wait_until("there is no notice", || {
        let view = fixture.node().watch_view(&caller, &watch).unwrap();
        view.notices.iter().any(|notice| notice.contains("may reach"))
    });
    assert!(fixture.records().is_empty() && Path::new(&fixture.path("secret/a")).exists());
    // Who asks for such a watch hears the same whatever the link leads to.
    let told = ["secret", "secret/a", "nothing"].map(|name| {
        std::fs::remove_file(fixture.path("mine/in")).unwrap();
        std::os::unix::fs::symlink(fixture.path(name), fixture.path("mine/in")).unwrap();
        let error = fixture.node().add_watch(&caller, asked.clone()).unwrap_err();
        (error.code(), error.to_string())
    });
    assert_eq!(told[0].0, Code::OutOfScope, "{told:?}");
    assert!(
        told[0].1.contains("a link leads it out") && told[1] == told[0] && told[2] == told[0],
        "{told:?}"
    );
}

fn token(fixture: &Fixture, scopes: &[Scope], reach: CallerReach) -> Caller {
    let wish =
        farhaul_api::TokenWish { name: String::new(), scopes: scopes.to_vec(), reach, expires_in: None };
    let (row, _) = fixture.node().make_token(&Caller::local(), wish).unwrap();
    Caller { subject: format!("token:{}", row.id), scopes: row.scopes, reach: row.reach, address: None }
}

#[test]
fn a_watch_of_a_revoked_token_takes_nothing_until_an_admin_takes_it_over() {
    let fixture = Fixture::new();
    for name in ["in", "out"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let owner = token(&fixture, &[Scope::Submit, Scope::Control, Scope::Read], CallerReach::everything());
    let asked = spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Keep);
    let watch = fixture.node().add_watch(&owner, asked).unwrap().id;
    let node = fixture.node();
    assert_eq!(node.take_watch(&Caller::local(), &watch).unwrap_err().code(), Code::NotNow);
    node.revoke_token(owner.subject.strip_prefix("token:").unwrap()).unwrap();
    fixture.file("in/a", 10);
    wait_until("there is no notice", || {
        let view = node.watch_view(&Caller::local(), &watch).unwrap();
        view.notices.iter().any(|notice| notice.contains("was revoked"))
    });
    assert_eq!(node.retry_watch(&Caller::local(), &watch).unwrap_err().code(), Code::NoToken);
    assert!(node.list(&Caller::local(), &jobs::JobFilter::default(), 9).unwrap().jobs.is_empty());
    let control = token(&fixture, &[Scope::Control], CallerReach::everything());
    assert_eq!(node.take_watch(&control, &watch).unwrap_err().code(), Code::OutOfScope);
    assert_eq!(node.take_watch(&Caller::local(), &watch).unwrap().owner, "local");
    wait_until("the file was not sent", || Path::new(&fixture.path("out/a")).exists());
    let row = node.store.read(watches::all).unwrap().into_iter().find(|row| row.id == watch).unwrap();
    assert_eq!(row.owner, "local");
}

#[test]
fn somebody_else_s_watch_is_retried_only_by_who_reaches_as_far() {
    let fixture = Fixture::new();
    let watch = add(&fixture, AfterAction::Keep);
    let node = fixture.node();
    let near = CallerReach { local: vec![fixture.path("").into()], ..CallerReach::default() };
    let near = token(&fixture, &[Scope::Submit, Scope::Control], near);
    assert_eq!(node.retry_watch(&near, &watch).unwrap_err().code(), Code::OutOfScope);
    node.retry_watch(&token(&fixture, &[Scope::Control], CallerReach::everything()), &watch).unwrap();
    let own = spec(&fixture.path("in"), &fixture.path("out2"), AfterAction::Keep);
    std::fs::create_dir_all(fixture.path("out2")).unwrap();
    let watch = node.add_watch(&near, own).unwrap().id;
    node.retry_watch(&near, &watch).unwrap();
    node.retry_watch(&Caller::local(), &watch).unwrap();
    let other = CallerReach {
        local: vec![fixture.path("in").into(), fixture.path("out2").into()],
        ..CallerReach::default()
    };
    assert_eq!(
        node.retry_watch(&token(&fixture, &[Scope::Control], other), &watch).unwrap_err().code(),
        Code::OutOfScope
    );
}

#[test]
fn a_watch_needs_the_scope_to_submit_and_the_scope_to_steer() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("in")).unwrap();
    let node = fixture.node();
    let asked = || spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Keep);
    for (scopes, lacks) in
        [(&[Scope::Control, Scope::Read][..], "submit"), (&[Scope::Submit, Scope::Read], "control")]
    {
        let error = node.add_watch(&token(&fixture, scopes, CallerReach::everything()), asked()).unwrap_err();
        assert_eq!(error.code(), Code::OutOfScope);
        assert!(error.to_string().contains(&format!("the scope {lacks}")), "{error}");
    }
    let owner = token(&fixture, &[Scope::Submit, Scope::Control], CallerReach::everything());
    let watch = node.add_watch(&owner, asked()).unwrap().id;
    // Who steers may end it.
    node.remove_watch(&token(&fixture, &[Scope::Control], CallerReach::everything()), &watch).unwrap();
}

#[test]
fn who_may_not_use_an_option_may_not_make_a_watch_go_on_that_has_it() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("in")).unwrap();
    let mut asked = spec(&fixture.path("in"), &fixture.path("out"), AfterAction::Keep);
    asked.options.files.keep_setuid = true;
    let node = fixture.node();
    let watch = node.add_watch(&Caller::local(), asked).unwrap().id;
    let control = token(&fixture, &[Scope::Control], CallerReach::everything());
    let error = node.retry_watch(&control, &watch).unwrap_err();
    assert!(error.code() == Code::OutOfScope && error.to_string().contains("keep_setuid"), "{error}");
    node.retry_watch(&token(&fixture, &[Scope::Admin], CallerReach::everything()), &watch).unwrap();
}
