//! Compares screens with golden texts in tests/golden/top. `GOLDEN=write cargo test -p farhaul-cli top`
//! writes them; then look at them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use farhaul::events::{PathFigures, SessionFacts, Snapshot, StageFigures};
use farhaul_api::{Cap, CapView, JobView, LogLine, NodeEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::model::{EventLink, JobInquiry, JobList, Mode};
use super::*;

const FINE: TerminalAbility = TerminalAbility { colours: true, unicode: true, keys: true };
const PLAIN: TerminalAbility = TerminalAbility { colours: false, unicode: false, keys: true };

fn id(number: u64) -> String {
    format!("01kgq{number:011}")
}

fn progress(number: u64, goodput_bps: f64) -> Value {
    let now = ["the network is the limit", "the sender's disk is the limit", "the allowed rate is the limit"];
    let now = now[number as usize % 3];
    json!({
        "job": id(number), "seconds": 12.5, "bytes_total": 4_u64 << 30, "bytes_done": (number % 4 + 1) << 30,
        "files_total": 345, "files_done": 12 * number, "totals_known": number != 2, "failed": number / 3,
        "goodput_bps": goodput_bps, "target_bps": 1e9, "rtt_ms": 20.1 * number as f64, "loss_fraction": 0.001,
        "wire_bytes_sent": 1, "transport": "udp", "limit": "network", "now": now,
        "seconds_left": 245 * number, "vanished": 0, "loss_now_fraction": 0, "retransmitted_fraction": 0,
        "in_flight_bytes": 0, "paths": [],
    })
}

fn job(number: u64, state: &str) -> Value {
    json!({
        "id": id(number), "kind": "copy", "owner": "local", "state": state, "is_stopping": false,
        "sources": [format!("/data/instrument/2026/run{number}")], "destination": "fh://hpc.example.org/incoming/a",
        "labels": {"run": number.to_string()}, "priority": 5, "position": number, "policy": "fair", "rate_bps": null,
        "due": null, "finish_by": null, "promise": null, "run": 1, "attempt": 1, "error": null, "progress": null,
        "is_over": false, "source_count": 1, "dry_run": false, "submitted": "2026-11-28T12:00:00Z", "moved_bytes": 0,
        "may": match state {
            "running" | "queued" => ["pause", "cancel", "change"].as_slice(),
            "paused" => &["resume", "cancel", "change"],
            "waiting" | "retrying" => &["pause", "cancel", "retry", "change"],
            _ => &["retry"],
        },
    })
}

/// The error of a job's last attempt.
fn error(code: &str, hint: Option<&str>) -> Value {
    json!({"code": code, "blame": "host", "exit_code": 1, "retryable": false, "hint": hint})
}

fn cap(name: &str, now_bps: Option<u64>, moved_bytes: u64) -> CapView {
    let name = name.into();
    CapView { name, cap: Cap::default(), now_bps, sessions: 0, moved_bytes, next_change: None, may: vec![] }
}

/// Jobs of all kinds.
fn jobs() -> Vec<Value> {
    let mut jobs: Vec<Value> = (1..=3).map(|number| job(number, "running")).collect();
    for (job, number) in jobs.iter_mut().zip(1..) {
        job["progress"] = progress(number, 941e6 / number as f64);
    }
    jobs[1]["promise"] = json!({
        "state": "late", "finish_by": "2026-11-29T06:00:00Z", "done_by": "2026-11-29T06:40:00Z",
        "words": "not done by 06:00, but by 06:40 as things stand",
    });
    jobs[1]["priority"] = json!(9);
    jobs.push(job(4, "paused"));
    jobs.push(job(5, "queued"));
    jobs.push(job(6, "waiting"));
    jobs[5]["due"] = json!("2026-11-28T22:00:00Z");
    jobs.push(job(7, "retrying"));
    jobs[6]["due"] = json!("2026-11-28T18:02:03Z");
    jobs[6]["error"] = error("FH-UNREACHABLE", Some("look whether the host is up"));
    jobs
}

fn loaded(jobs: Vec<Value>) -> Input {
    let counts =
        [("running", 3), ("paused", 1), ("queued", 1), ("waiting", 1), ("retrying", 1), ("done", 12_345)];
    let counts = counts.into_iter().map(|(state, count)| (state.to_string(), count)).collect();
    let caps = vec![cap("campus-uplink", Some(2_000_000_000), 0), cap("host", None, 0)];
    let jobs = jobs.into_iter().map(|job| serde_json::from_value::<JobView>(job).unwrap()).collect();
    Input::Loaded(JobList { jobs, counts, caps })
}

fn told(kind: &str, data: &Value) -> Input {
    Input::Told(NodeEvent::read(kind, &data.to_string()))
}

fn key(code: KeyCode) -> Input {
    Input::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn letter(letter: char) -> Input {
    key(KeyCode::Char(letter))
}

/// A screen in the middle of its life.
fn busy() -> TopModel {
    let mut model = TopModel::new("/run/user/1000/farhaul/api.sock");
    model.take(loaded(jobs()));
    model.take(Input::Up);
    for second in 0..10_u64 {
        let rate = |number: u64| 941e6 / number as f64 * (0.6 + 0.04 * second as f64);
        let all: Vec<Value> = (1..=3).map(|number| progress(number, rate(number))).collect();
        model.take(told("progress", &json!(all)));
        model.take(Input::Tick);
        let moved = 215_000_000 * (second + 1);
        model.take(Input::Capped(vec![cap("campus-uplink", Some(2_000_000_000), moved)]));
    }
    let mut failed = job(8, "failed");
    failed["error"] = error("FH-NO-SPACE", None);
    model.take(told("job", &failed));
    model.take(told("job", &job(9, "done")));
    let stage = |name: &str, busy: f64| StageFigures { name: name.into(), end: "sender".into(), busy };
    let stages = vec![
        stage("seal", 0.2),
        stage("read", 0.453),
        stage("digest", 0.31),
        stage("send", 0.2),
        stage("wait-network", 0.61),
        stage("wait-content", 0.02),
        stage("scan", 0.01),
    ];
    let (local, remote) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
    let paths = vec![PathFigures { local, remote, answered: true }];
    let facts = SessionFacts { stages, paths, ..SessionFacts::default() };
    let transfer = Some(Snapshot { facts, ..Snapshot::default() });
    let line = |seq: u64, level: &str, text: &str| LogLine {
        seq,
        at_ms: 1_795_900_000_000 + i64::try_from(seq).unwrap() * 1000,
        level: level.into(),
        text: text.into(),
        event: RawValue::NULL.to_owned(),
    };
    let lines = vec![
        line(1, "info", "connected to hpc.example.org"),
        line(2, "warning", "the socket buffers are small: 208 KiB"),
        line(3, "info", "what limits it is the rate that was set"),
    ];
    // The job of priority 9 is the first one, and so the selected one.
    model.take(Input::Looked(Box::new(JobInquiry { id: id(2), transfer, lines, is_anew: true })));
    model
}

fn drawn(model: &TopModel, look: TerminalAbility, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen::draw(model, look, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// The text, then which parts of each line are not plain.
fn golden_of(buffer: &Buffer) -> String {
    let mut out = paint::text(buffer);
    out.push_str("\n---- not plain: line, columns, how\n");
    let area = buffer.area;
    for y in 0..area.height {
        let style = |x: u16| (buffer[(x, y)].fg, buffer[(x, y)].modifier);
        let mut x = 0;
        while x < area.width {
            let from = x;
            let this = style(x);
            while x < area.width && style(x) == this {
                x += 1;
            }
            if this != (Color::Reset, Modifier::empty()) {
                let colour = if this.0 == Color::Reset { String::new() } else { format!("{:?} ", this.0) };
                let _ = writeln!(out, "{y:>2} {from:>3}..{x:<3} {colour}{:?}", this.1);
            }
        }
    }
    out
}

fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/top/{name}.txt"));
    farhaul_vectors::compare_text(&path, text);
}

const SIZES: [(u16, u16); 4] = [(40, 10), (40, 24), (80, 24), (160, 45)];

#[test]
fn screens_are_what_the_golden_files_say() {
    let model = busy();
    for (width, height) in SIZES {
        for (look, name) in [(FINE, "colour"), (PLAIN, "plain")] {
            check(&format!("{width}x{height}-{name}"), &golden_of(&drawn(&model, look, (width, height))));
        }
    }
    let mut model = busy();
    model.take(letter('?'));
    check("help-80x24", &golden_of(&drawn(&model, FINE, (80, 24))));
    let mut model = busy();
    model.take(Input::Down("no service listens on /run/user/1000/farhaul/api.sock".into()));
    for _ in 0..9 {
        model.take(Input::Tick);
    }
    check("no-answer-80x24", &golden_of(&drawn(&model, FINE, (80, 24))));
    let mut model = TopModel::new("https://node.example.org:8443");
    model.take(Input::Loaded(JobList::default()));
    check("empty-80x24", &golden_of(&drawn(&model, FINE, (80, 24))));
}

/// docs/guide/top.md shows the screen as users see it.
#[test]
fn the_page_has_the_screen_of_80_columns() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/top.md");
    let page = std::fs::read_to_string(page).unwrap();
    let screen = paint::text(&drawn(&busy(), FINE, (80, 24)));
    assert!(page.contains(&screen), "docs/guide/top.md must have this screen:\n{screen}");
}

#[test]
fn colours_say_nothing_that_words_do_not() {
    let model = busy();
    for size in SIZES {
        let fine = drawn(&model, FINE, size);
        let without = drawn(&model, TerminalAbility { colours: false, ..FINE }, size);
        assert_eq!(paint::text(&fine), paint::text(&without));
        assert!(without.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        let plain = paint::text(&drawn(&model, PLAIN, size));
        assert!(plain.is_ascii(), "{plain}");
        let times = ["11-28 22:00", "11-28 18:02"];
        assert!(size.1 < 24 || times.iter().all(|time| plain.contains(time)), "{plain}");
    }
}

#[test]
fn no_rate_of_nothing_is_shown() {
    let mut model = busy();
    let mut still = progress(2, 0.0);
    still["now"] = json!("scanning the source");
    model.take(told("progress", &json!([still])));
    let text = paint::text(&drawn(&model, PLAIN, (160, 45)));
    let line = text.lines().find(|line| line.contains(&id(2))).unwrap();
    assert!(line.contains("scanning the source") && !line.contains(" 0 bit/s"), "{line}");
}

/// The positions of the selected job's mark, and of the slash in the units of all rates.
fn frame_of(buffer: &Buffer) -> Vec<(u16, u16, String)> {
    let area = buffer.area;
    let cells = (0..area.height).flat_map(|y| (0..area.width).map(move |x| (x, y)));
    let fixed = cells.map(|(x, y)| (x, y, buffer[(x, y)].symbol().to_string()));
    fixed.filter(|(x, _, symbol)| *x == 0 && symbol == ">" || symbol == "/").collect()
}

#[test]
fn numbers_move_nothing_and_are_whole() {
    let mut model = busy();
    for size in [(80, 24), (160, 45), (40, 10)] {
        let mut frames = Vec::new();
        for (goodput, rtt, loss, left) in [
            (8.0, 0.0, 0.0, json!(null)),
            (999.4e9, 9999.0, 1.0, json!(86_399)),
            (1.0, 0.1, 1e-7, json!(u64::MAX)),
            (41.7e6, 99.94, 0.3, json!(3599)),
        ] {
            let mut one = progress(2, goodput);
            one["totals_known"] = json!(true);
            (one["rtt_ms"], one["loss_fraction"], one["seconds_left"]) = (json!(rtt), json!(loss), left);
            one["target_bps"] = json!(goodput);
            model.take(told("progress", &json!([one])));
            let buffer = drawn(&model, PLAIN, size);
            let text = paint::text(&buffer);
            let line = text.lines().find(|line| line.contains(&id(2))).unwrap();
            assert!(line.contains(&paint::rate(goodput)), "{line}");
            if size.0 >= 120 {
                assert!(line.contains(&paint::rtt(rtt)) && line.contains(&paint::loss(loss)), "{line}");
            }
            frames.push(frame_of(&buffer));
        }
        assert!(frames.windows(2).all(|pair| pair[0] == pair[1]), "something has moved at {size:?}");
    }
}

#[test]
fn no_size_and_no_text_ends_in_a_panic() {
    let mut model = busy();
    let mut strange = job(2, "running");
    strange["sources"] = json!(["\u{1b}]0;x\u{7}日本語\u{202e}".repeat(50), "b"]);
    strange["destination"] = json!("");
    strange["progress"] = progress(2, 1e300);
    (strange["progress"]["bytes_total"], strange["progress"]["bytes_done"]) =
        (json!(u64::MAX), json!(u64::MAX));
    model.take(told("job", &strange));
    for strange in
        [json!({}), json!([]), json!({"id": 7}), json!({"id": "x", "state": "odd"}), json!([{"job": "none"}])]
    {
        for kind in ["job", "progress", "gap", "cap", "x"] {
            model.take(told(kind, &strange));
        }
    }
    for keys in ["", "?", "/", "/abc", "c"] {
        let mut model = busy();
        keys.chars().for_each(|one| drop(model.take(letter(one))));
        for width in [1, 9, 10, 20, 39, 59, 60, 119, 120, 143, 300] {
            for height in [1, 2, 3, 4, 10, 15, 16, 19, 20, 60] {
                for look in [FINE, PLAIN] {
                    let text = paint::text(&drawn(&model, look, (width, height)));
                    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']));
                }
            }
        }
    }
    let text = paint::text(&drawn(&model, FINE, (160, 45)));
    assert!(text.contains("\\u{1b}]0;x") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn keys_steer_the_selected_job() {
    let mut model = busy();
    assert_eq!(model.selected().unwrap().id, id(2));
    model.take(key(KeyCode::Down));
    assert_eq!(model.selected().unwrap().id, id(1));
    let act = |deed| vec![Inquiry::Act { id: id(1), deed }];
    assert_eq!(model.take(letter('p')), act("pause"));
    assert_eq!(model.take(letter('r')), act("resume"));
    assert_eq!(model.take(letter('+')), [Inquiry::Prefer { id: id(1), priority: 6 }]);
    assert_eq!(model.take(letter('-')), [Inquiry::Prefer { id: id(1), priority: 4 }]);
    // Nothing is cancelled without a question.
    assert_eq!(model.take(letter('c')), []);
    assert_eq!(model.mode, Mode::Cancel(id(1)));
    assert_eq!(model.take(letter('q')), []);
    model.take(letter('c'));
    assert_eq!(model.take(letter('y')), act("cancel"));
    // What the service does not let its caller do is not offered.
    let mut other = job(1, "running");
    other["may"] = json!([]);
    model.take(told("job", &other));
    assert_eq!(model.take(letter('c')), []);
    assert_eq!(model.mode, Mode::List);
    let last = paint::text(&drawn(&model, FINE, (160, 45))).lines().last().unwrap_or_default().to_string();
    assert!(last.contains("you cannot cancel this job now"), "{last}");
    model.take(key(KeyCode::Up));
    assert_eq!(model.take(letter('+')), [], "9 is the highest priority");
    assert_eq!(model.take(letter('q')), [Inquiry::Quit]);
    let control = |letter| Input::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    assert_eq!(model.take(control('c')), [Inquiry::Interrupt]);
    assert_eq!(model.take(control('z')), [Inquiry::Suspend]);
    assert_eq!(model.take(Input::End), [Inquiry::Interrupt]);
    assert_eq!(model.take(Input::Stop), [Inquiry::Suspend]);
    for code in [KeyCode::PageDown, KeyCode::End, KeyCode::PageUp, KeyCode::Home] {
        model.take(key(code));
    }
    assert_eq!(model.selected().unwrap().id, id(2));
}

#[test]
fn what_is_selected_stays_so_wherever_it_moves() {
    let mut model = busy();
    model.take(key(KeyCode::Down));
    let mut first = job(1, "running");
    first["priority"] = json!(0);
    model.take(told("job", &first));
    assert_eq!(model.selected().unwrap().id, id(1));
    model.take(told("job", &job(1, "done")));
    assert_eq!(model.selected().unwrap().id, id(1));
    assert_eq!(model.visible().iter().filter(|job| job.state.is_final()).count(), 3);
}

#[test]
fn a_filter_shows_what_has_its_text() {
    let mut model = busy();
    let wishes: Vec<Inquiry> = "/RUN6".chars().flat_map(|one| model.take(letter(one))).collect();
    assert_eq!(model.visible().iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), [id(6)]);
    assert!(wishes.contains(&Inquiry::Look(id(6))), "{wishes:?}");
    model.take(key(KeyCode::Enter));
    assert_eq!(model.mode, Mode::List);
    model.take(key(KeyCode::Esc));
    assert_eq!(model.visible().len(), 9);
    "/nothing like it".chars().for_each(|one| drop(model.take(letter(one))));
    assert!(model.visible().is_empty() && model.selected().is_none());
    assert_eq!(model.take(key(KeyCode::Enter)), []);
    assert_eq!(model.take(letter('p')), []);
}

#[test]
fn a_gap_and_a_new_connection_are_reasons_to_ask_again() {
    let mut model = busy();
    assert_eq!(model.take(told("gap", &json!({}))), [Inquiry::Load]);
    assert_eq!(model.take(Input::Resized), []);
    let asked = model.take(Input::Tick);
    assert!(asked.contains(&Inquiry::Look(id(2))) && asked.contains(&Inquiry::Caps), "{asked:?}");
    model.take(Input::Down("it has hung up".into()));
    assert!(matches!(&model.link, EventLink::Down(_)) && model.rate() == 0.0);
    assert_eq!(model.take(Input::Tick), [], "a service that does not answer is not asked");
    assert_eq!(model.take(Input::Up), [Inquiry::Load]);
    assert_eq!(model.notice.as_ref().unwrap().0, "the service answers again");
    // A job that was not over and is no longer in the list is over.
    model.take(loaded(vec![job(5, "queued")]));
    let left: Vec<String> = model.visible().iter().map(|job| job.id.clone()).collect();
    assert_eq!(left, [id(5), id(9), id(8)]);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut model = TopModel::new("x");
    for number in 0..6000 {
        model.take(told("job", &job(number, if number % 2 == 0 { "done" } else { "queued" })));
    }
    assert!(model.visible().len() <= 5050);
    assert_eq!(model.visible().iter().filter(|job| job.state.is_final()).count(), 50);
    for _ in 0..1000 {
        model.take(Input::Tick);
    }
    assert!(model.curve.len() <= 120);
}
