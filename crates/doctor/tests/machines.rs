//! Recordings of machines: what must be found on each and what must not; and for each check a case that fires and a near
//! miss that does not.
//!
//! The values that decide come from outputs that people have posted, whose addresses stand behind `# Posted:`; the rest of
//! such a machine is filled in as drivers and distributions have it. `this-vm` is a recording as it was made. A new
//! machine is a directory here with what `farhaul doctor --record DIR` has made, and its first lines filled in.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use farhaul_doctor::host::{Recorder, Recording};
use farhaul_doctor::{Diagnosis, check, read_everything};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn machine(name: &str) -> Recording {
    Recording::open(&folder().join(name)).unwrap()
}

fn machines() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What stands behind a word in the first lines.
fn field(host: &Recording, name: &str) -> String {
    let lines = host.comments().iter().filter_map(|line| line.strip_prefix(name));
    lines.map(|line| line.trim().to_owned()).next().unwrap_or_default()
}

fn rate(gbit: &str) -> Option<u64> {
    gbit.parse::<u64>().ok().map(|gbit| gbit * 1_000_000_000)
}

fn found(host: &Recording, rate_bps: Option<u64>) -> BTreeSet<&'static str> {
    Diagnosis::of(host, rate_bps, None).found.iter().map(|found| found.check.id).collect()
}

#[test]
fn on_each_machine_that_is_found_which_must_be_and_not_what_must_not() {
    let names = machines();
    assert!(names.len() >= 14, "{names:?}");
    for name in names {
        let host = machine(&name);
        assert!(!field(&host, "What:").is_empty(), "{name} does not say what it is");
        let found = found(&host, rate(&field(&host, "For:")));
        for id in field(&host, "Finds:").split_whitespace() {
            assert!(found.contains(id), "{name}: {id} is not found, but {found:?}");
        }
        for id in field(&host, "Not:").split_whitespace() {
            assert!(check::find(id).is_some(), "{name} names {id}, which is no check");
            assert!(!found.contains(id), "{name}: {id} is found");
        }
    }
}

#[test]
fn hosts_with_nothing_special_get_at_most_three_lines() {
    for name in ["laptop", "server-1g", "vm-virtio", "this-vm", "cloud-vf"] {
        let host = machine(name);
        let lines: Vec<String> =
            Diagnosis::of(&host, None, None).faults().map(|found| found.line()).collect();
        assert!(lines.len() <= 3, "{name}: {lines:#?}");
    }
    assert_eq!(
        Diagnosis::of(&machine("dtn-100g"), None, None).faults().count(),
        0,
        "it is as the sources advise"
    );
}

#[test]
fn the_values_that_decide_come_from_at_least_fifteen_posts() {
    let mut texts: Vec<String> = machines()
        .iter()
        .map(|name| fs::read_to_string(folder().join(name).join("host.txt")).unwrap())
        .collect();
    texts.push(fs::read_to_string(folder().join("cases.txt")).unwrap());
    let posted =
        texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("# Posted: "));
    let addresses: BTreeSet<&str> = posted.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(addresses.len() >= 15, "{addresses:#?}");
    assert!(addresses.iter().all(|address| address.starts_with("https://")), "{addresses:#?}");
}

struct Case {
    id: String,
    machine: String,
    rate_bps: Option<u64>,
    fires: String,
    misses: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in fs::read_to_string(folder().join("cases.txt")).unwrap().lines() {
        if let Some(head) = line.strip_prefix("## ") {
            let words: Vec<&str> = head.split(' ').collect();
            cases.push(Case {
                id: words[0].into(),
                machine: words[1].into(),
                rate_bps: words.get(2).and_then(|gbit| rate(gbit)),
                fires: String::new(),
                misses: String::new(),
            });
        } else if let Some(line) = line.strip_prefix("! ") {
            cases.last_mut().unwrap().fires += &format!("{line}\n");
        } else if let Some(line) = line.strip_prefix("~ ") {
            cases.last_mut().unwrap().misses += &format!("{line}\n");
        }
    }
    cases
}

#[test]
fn each_check_fires_where_it_must_and_not_at_a_near_miss() {
    let cases = cases();
    for case in &cases {
        let changed = |lines: &str| {
            let mut host = machine(&case.machine);
            host.add(lines).unwrap();
            found(&host, case.rate_bps)
        };
        let found = changed(&case.fires);
        assert!(found.contains(case.id.as_str()), "{} does not fire: {found:?}", case.id);
        assert!(!changed(&case.misses).contains(case.id.as_str()), "{} fires at its near miss", case.id);
    }
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    let all: BTreeSet<&str> = check::all().map(|check| check.id).collect();
    assert_eq!(covered, all, "each check has its case");
}

#[test]
fn a_recording_of_a_recording_finds_the_same() {
    for name in machines() {
        let host = machine(&name);
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::of(&host);
        read_everything(&recorder);
        recorder.save(folder.path()).unwrap();
        let again = Recording::open(folder.path()).unwrap();
        for rate_bps in [None, Some(100_000_000_000)] {
            let lines = |host: &Recording| -> Vec<String> {
                Diagnosis::of(host, rate_bps, None).found.iter().map(|found| found.line()).collect()
            };
            assert_eq!(lines(&again), lines(&host), "{name}");
        }
    }
}

#[test]
fn no_recording_however_damaged_stops_the_checks() {
    for name in machines() {
        let text = fs::read_to_string(folder().join(&name).join("host.txt")).unwrap();
        // Every number gone, then as large as numbers get, then every text cut in half.
        let none: String = text.chars().map(|c| if c.is_ascii_digit() { 'x' } else { c }).collect();
        let large = text.replace("| ", "| 18446744073709551615 ").replace(" = ", " = 18446744073709551615");
        let half: String = text
            .lines()
            .map(|line| format!("{} =\n", &line[..line.floor_char_boundary(line.len() / 2)]))
            .collect();
        for text in [none, large, half] {
            let mut host = Recording::default();
            if host.add(&text).is_ok() {
                for rate_bps in [None, Some(400_000_000_000)] {
                    Diagnosis::of(&host, rate_bps, None);
                }
            }
        }
    }
}
