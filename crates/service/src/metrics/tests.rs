//! Tests that the metrics follow the rules of OpenMetrics, that their labels are bounded, and that dashboard,
//! alerts and documentation name only metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use farhaul_session::Handle;

use super::*;
use crate::clock::Clock;
use crate::node::NodeSettings;

/// One series: its name, its labels, its value.
type Series = (String, BTreeMap<String, String>, f64);

/// A text that was parsed by the specification.
#[derive(Debug, Default)]
struct Exposition {
    /// By the name of the family: its type and unit.
    families: BTreeMap<String, (String, Option<String>)>,
    series: Vec<Series>,
}

impl Exposition {
    /// From: OpenMetrics 1.0.0, "Text format" and "Suffixes". A broken rule fails the test.
    fn read(text: &str) -> Exposition {
        let mut read = Exposition::default();
        let mut family = String::new();
        let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let (kind, rest) = rest.split_once(' ').unwrap();
                let (name, rest) = rest.split_once(' ').unwrap();
                match kind {
                    "HELP" => {
                        assert!(!read.families.contains_key(name), "{name} is described twice");
                        assert!(rest.ends_with('.') && rest.len() > 10, "{line}");
                        family = name.to_string();
                        read.families.insert(name.into(), (String::new(), None));
                    }
                    "TYPE" => read.families.get_mut(name).unwrap().0 = rest.into(),
                    "UNIT" => {
                        assert!(
                            name.ends_with(&format!("_{rest}")),
                            "{name} does not end with its unit {rest}"
                        );
                        read.families.get_mut(name).unwrap().1 = Some(rest.into());
                    }
                    other => panic!("{other}"),
                }
                assert_eq!(name, family, "families are not mixed");
                continue;
            }
            let (name, labels, value) = series(line);
            let suffixes: &[&str] = match read.families[&family].0.as_str() {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                "gauge" => &[""],
                other => panic!("{family} has the type '{other}'"),
            };
            assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line}");
            let twice = read.series.iter().any(|(other, others, _)| *other == name && *others == labels);
            assert!(!twice, "{line} is there twice");
            read.series.push((name, labels, value));
        }
        for (name, (kind, _)) in &read.families {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(letters) && !kind.is_empty(), "{name}");
            assert!(name.starts_with("farhaul") || name.starts_with("process_"), "{name}");
        }
        read
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |(one, has, _): &&Series| {
            one == name && labels.iter().all(|(key, value)| has.get(*key).is_some_and(|there| there == value))
        };
        let found: Vec<_> = self.series.iter().filter(fits).collect();
        assert!(!found.is_empty(), "there is no {name} {labels:?}");
        found.iter().map(|(_, _, value)| value).sum()
    }

    fn names(&self) -> BTreeSet<&str> {
        self.series.iter().map(|(name, _, _)| name.as_str()).collect()
    }
}

fn series(line: &str) -> Series {
    let (head, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) =
        head.split_once('{').map_or((head, ""), |(name, rest)| (name, rest.strip_suffix('}').unwrap()));
    let pairs = labels.split("\",").filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once("=\"").unwrap();
        (key.to_string(), value.trim_end_matches('"').to_string())
    });
    (name.into(), pairs.collect(), value.parse().unwrap())
}

struct Fixture {
    folder: tempfile::TempDir,
    node: Arc<Node>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::shifted_by(folder.path().join("clock"));
        let (node, _) = Node::open(folder.path(), clock, NodeSettings::default()).unwrap();
        Fixture { folder, node }
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.node.metrics
    }

    /// Makes everything happen this many times.
    fn fill(&self, count: u64) -> Vec<WatchGuard> {
        let metrics = self.metrics();
        let error = Error::new(Code::NoSpace, "there is no room in /secret/path for token fhp_abc");
        let mut running = Vec::new();
        for number in 0..count {
            for direction in DirectionLabel::ALL {
                let handle = Handle::new();
                let counts = handle.counts();
                counts.bytes_done.store(1000, std::sync::atomic::Ordering::Relaxed);
                counts.files_done.store(1, std::sync::atomic::Ordering::Relaxed);
                let session = Arc::default();
                let origin = if number % 2 == 0 { OriginLabel::Job } else { OriginLabel::Client };
                let watched = WatchedTransfer { handle, origin, direction: Some(direction), session };
                running.push(metrics.watch(watched));
                metrics.transfer_ended(origin, direction, JobState::Failed, number as f64);
            }
            metrics.attempt_ended(None, Some(&error));
            metrics.answered("GET", "/api/v1/jobs/{id}", 200);
        }
        running
    }

    fn read(&self) -> Exposition {
        Exposition::read(&self.metrics().text(&self.node, Format::OpenMetrics).unwrap())
    }
}

#[test]
fn what_is_served_keeps_to_the_rules_and_says_how_things_are() {
    let fixture = Fixture::new();
    let running = fixture.fill(2);
    let read = fixture.read();
    assert_eq!(read.value("farhaul_bytes_total", &[("direction", "sent")]), 2000.0);
    assert_eq!(read.value("farhaul_files_total", &[("outcome", "arrived")]), 8.0);
    assert_eq!(read.value("farhaul_transfers", &[]), 8.0);
    assert_eq!(read.value("farhaul_errors_total", &[("code", "FH-NO-SPACE")]), 2.0);
    assert_eq!(read.value("farhaul_api_requests_total", &[("route", "/api/v1/jobs/{id}")]), 2.0);
    assert_eq!(read.value("farhaul_jobs", &[]), 0.0);
    assert_eq!(read.value("farhaul_store_failing", &[]), 0.0);
    assert_eq!(read.value("farhaul_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert!(read.value("process_resident_memory_bytes", &[]) > 1e6);
    drop(running);
    let after = fixture.read();
    assert_eq!(after.value("farhaul_transfers", &[]), 0.0);
    for (name, labels, value) in &read.series {
        if name.ends_with("_total") {
            let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert!(after.value(name, &labels) >= *value, "the counter {name} went down");
        }
    }
}

#[test]
fn labels_stay_bounded_after_hundreds_of_jobs() {
    let fixture = Fixture::new();
    drop(fixture.fill(2));
    let few = fixture.read().series.len();
    let running = fixture.fill(300);
    let text = fixture.metrics().text(&fixture.node, Format::OpenMetrics).unwrap();
    assert_eq!(Exposition::read(&text).series.len(), few);
    for told in ["/secret", "fhp_", fixture.folder.path().to_str().unwrap()] {
        assert!(!text.contains(told), "a label contains {told}");
    }
    drop(running);
}

#[test]
fn the_older_format_has_the_same_series() {
    let fixture = Fixture::new();
    let running = fixture.fill(1);
    let text = fixture.metrics().text(&fixture.node, Format::Prometheus).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names: BTreeSet<String> = lines.map(|line| series(line).0).collect();
    assert_eq!(names, fixture.read().names().into_iter().map(ToString::to_string).collect());
    assert!(text.contains("# TYPE farhaul_bytes_total counter\n"), "{text}");
    assert!(!text.contains("# EOF"));
    drop(running);
}

// ---- what names metrics ------------------------------------------------------------------------------------------------

fn repository(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text that are names of metrics.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| {
        (word.starts_with("farhaul_") || word.starts_with("process_")) && !word.ends_with('_')
    });
    words.map(ToString::to_string).collect()
}

/// The names of all series, including those that exist only while something runs.
fn served() -> BTreeSet<String> {
    let fixture = Fixture::new();
    let metrics = fixture.metrics();
    let running = fixture.fill(1);
    let read = fixture.read();
    drop(running);
    let mut names: BTreeSet<String> = read.names().into_iter().map(ToString::to_string).collect();
    let shown = &metrics.shown;
    for family in [&shown.rtt, &shown.loss] {
        family.get_or_create(&StatisticLabels { statistic: "mean" }).set(0.0);
    }
    shown.stages.get_or_create(&StageLabels { end: "sender", stage: "read" }).set(0.0);
    let cap = CapLabels { cap: "campus".into() };
    shown.cap_limit.get_or_create(&cap).set(0.0);
    shown.cap_sessions.get_or_create(&cap).set(0);
    metrics.counted.cap_bytes.get_or_create(&cap).inc();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics.registry.lock().unwrap()).unwrap();
    names.extend(Exposition::read(&text).names().into_iter().map(ToString::to_string));
    names
}

#[test]
fn dashboard_and_alerts_name_what_is_served() {
    let served = served();
    let dashboard = repository("deploy/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 12);
    let mut expressions = String::new();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            expressions.push_str(target["expr"].as_str().unwrap());
            expressions.push('\n');
        }
    }
    let alerts = repository("deploy/alerts.yml");
    let rules = alerts.lines().filter(|line| !line.trim_start().starts_with('#'));
    for (what, text) in [("grafana.json", expressions), ("alerts.yml", rules.collect::<Vec<_>>().join("\n"))]
    {
        let names = named(&text);
        assert!(names.len() > 5, "{what}: {names:?}");
        for name in names {
            assert!(served.contains(&name), "{what} names {name}, which does not exist");
        }
    }
}

/// The table of the page lists each family once: name, type, labels, meaning.
#[test]
fn the_page_has_every_metric() {
    let fixture = Fixture::new();
    let running = fixture.fill(1);
    drop(running);
    served();
    let page = repository("docs/reference/metrics.md");
    let rows: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_string()))
        .collect();
    let is_part = |name: &String| {
        let whole = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        whole.map_or(name.clone(), ToString::to_string)
    };
    let names: BTreeSet<String> = served().iter().map(is_part).collect();
    assert_eq!(rows, names, "docs/reference/metrics.md");
}
