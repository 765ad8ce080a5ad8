//! Tests of what holds for every key and every text.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize as _;

use super::super::deserializer::{ReadingNotes, ValueDeserializer};
use super::super::keys::{SCHEMA, find};
use super::super::values::RateValue;
use super::*;

/// The example file with every key taken out of its comment.
fn whole_example() -> String {
    let mut text = String::new();
    for line in example::file().lines() {
        let is_value = line.starts_with('#') && !line.starts_with("# ");
        text.push_str(if is_value { &line[1..] } else { line });
        text.push('\n');
    }
    format!("{text}\n[caps.host]\n")
}

#[test]
fn every_key_of_the_structs_is_in_the_table_with_an_example_that_fits() {
    let text = whole_example();
    let node = layer::parse(Path::new("/example"), &text).unwrap();
    let notes = ReadingNotes::default();
    let config = Config::deserialize(ValueDeserializer::new(&node, &notes)).unwrap();
    assert_eq!(notes.unknown.into_inner(), []);
    assert!(config.clone().checked().is_ok(), "{:?}", config.checked());
    let in_table: BTreeSet<(&str, &str)> =
        SCHEMA.iter().flat_map(|section| section.keys.iter().map(|key| (section.name, key.name))).collect();
    let mut in_structs = BTreeSet::new();
    let mut sections = BTreeSet::new();
    for (key, fields) in notes.fields.into_inner() {
        match key.first() {
            None => sections.extend(fields.iter().copied()),
            Some(section) => {
                let name = SCHEMA.iter().find(|known| known.name == section).unwrap().name;
                in_structs.extend(fields.iter().map(|field| (name, *field)));
            }
        }
    }
    assert_eq!(in_structs, in_table);
    assert_eq!(sections, SCHEMA.iter().map(|section| section.name).collect());
    // Each example gives its key a value, and that value is shown.
    let leaves = config.leaves();
    let shown: BTreeSet<(String, String)> =
        leaves.keys().map(|key| (key[0].clone(), key[key.len() - 1].clone())).collect();
    for (section, key) in in_table {
        assert!(shown.contains(&(section.to_string(), key.to_string())), "{section}.{key}");
    }
}

#[test]
fn every_key_has_one_line_of_help() {
    for section in SCHEMA {
        for key in section.keys {
            let help = key.help;
            let is_plain = help.starts_with(|first: char| first.is_uppercase() || first == '/')
                && !help.ends_with('.')
                && help.len() <= 120
                && !help.contains(['\n', '|']);
            assert!(is_plain, "{}.{}: {help}", section.name, key.name);
            let path = match section.is_named {
                true => vec![section.name.to_string(), "x".to_string(), key.name.to_string()],
                false => vec![section.name.to_string(), key.name.to_string()],
            };
            assert_eq!(find(&path).map(|(_, found)| found.name), Some(key.name));
        }
    }
}

#[test]
fn the_example_is_the_default() {
    let world = World::new();
    let without = world.sources().load().unwrap().config;
    world.write("etc/farhaul.toml", &example::file());
    let loaded = world.sources().load();
    assert_eq!(world.told(loaded.clone()), Vec::<String>::new());
    assert_eq!(loaded.unwrap().config, without);
}

/// Whoever takes the `#` away from a line of the example has a value that is accepted.
#[test]
fn the_values_of_the_example_are_accepted() {
    let world = World::new();
    let is_key = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" = ");
    let on: Vec<String> = example::file()
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| rest.starts_with('[') || is_key(rest))
                .unwrap_or(line)
                .to_string()
        })
        .collect();
    assert!(on.iter().filter(|line| is_key(line)).count() > 50, "{on:?}");
    world.write("etc/farhaul.toml", &on.join("\n"));
    assert_eq!(world.told(world.sources().load()), Vec::<String>::new());
}

/// With `GOLDEN=write` this updates deploy/farhaul.toml and the tables of
/// docs/reference/configuration.md.
#[test]
fn the_example_and_the_page_are_what_the_keys_make() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = top.join("docs/reference/configuration.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- keys -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of keys -->\n").unwrap();
    let made = format!("{before}<!-- keys -->\n{}<!-- end of keys -->\n{after}", example::tables());
    for (path, made) in [(page, made), (top.join("deploy/farhaul.toml"), example::file())] {
        farhaul_vectors::compare_text(&path, &made);
    }
}

#[test]
fn a_change_says_whether_a_reload_is_enough() {
    let old = Config::default();
    let change = |change: &dyn Fn(&mut Config)| {
        let mut new = old.clone();
        change(&mut new);
        old.changes(&new)
    };
    let told = |list: &[(&str, Reload)]| -> Vec<(String, Reload)> {
        list.iter().map(|(key, reload)| ((*key).to_string(), *reload)).collect()
    };
    assert_eq!(change(&|_| ()), []);
    assert_eq!(change(&|new| new.serve.read_only = true), told(&[("serve.read_only", Reload::Restart)]));
    assert_eq!(
        change(&|new| new.serve.max_rate = Some(RateValue(9000))),
        told(&[("serve.max_rate", Reload::Live)])
    );
    let added = change(&|new| {
        new.caps.insert("a.b".into(), CapSection { rate: Some(RateValue(9000)), ..CapSection::default() });
        new.log.json = true;
    });
    assert_eq!(added.first(), Some(&("caps.\"a.b\".networks".to_string(), Reload::Live)));
    assert!(added.contains(&("caps.\"a.b\".rate".to_string(), Reload::Live)), "{added:?}");
    assert_eq!(added.last(), Some(&("log.json".to_string(), Reload::Restart)));
    // A changed key is reported by its own name, for every key that has a value.
    let node = layer::parse(Path::new("/example"), &whole_example()).unwrap();
    let example = Config::deserialize(ValueDeserializer::new(&node, &ReadingNotes::default())).unwrap();
    let (removed, set) = (example.changes(&old), old.changes(&example));
    assert_eq!(removed, set);
    let known = |key: &str| find(&key.split('.').map(str::to_string).collect::<Vec<_>>()).is_some();
    assert!(set.iter().all(|(key, _)| known(key)), "{set:?}");
}

fn any_value() -> impl Strategy<Value = toml::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(toml::Value::from),
        any::<i64>().prop_map(toml::Value::from),
        any::<f64>().prop_map(toml::Value::from),
        "\\PC{0,12}".prop_map(toml::Value::from),
        prop::sample::select(vec![
            "2G",
            "/a",
            "30s",
            "post",
            "mon 09:00-10:00 1G",
            "h:x",
            "[::]:1",
            "10.0.0.0/8"
        ])
        .prop_map(toml::Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(toml::Value::Array),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|table| toml::Value::Table(table.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = Vec<String>> {
    let all: Vec<Vec<String>> = SCHEMA
        .iter()
        .flat_map(|section| {
            section.keys.iter().map(|key| {
                let mut path = vec![section.name.to_string()];
                path.extend(section.is_named.then(|| "n".to_string()));
                path.push(key.name.to_string());
                path
            })
        })
        .collect();
    (prop::sample::select(all), 1..4usize).prop_map(|(key, len)| key[..len.min(key.len())].to_vec())
}

/// Any text is either a configuration, or gives lines that each say where and what is wrong.
fn holds(text: &str) -> Result<(), TestCaseError> {
    let world = World::new();
    match world.load_text(text) {
        Ok(loaded) => {
            prop_assert!(loaded.config.clone().checked().is_ok());
            let again = World::new();
            let shown = loaded.shown(Origins::Shown);
            let same = again.load_text(&shown).map(|again| again.config == loaded.config);
            prop_assert_eq!(same, Ok(true), "{}", shown);
        }
        Err(faults) => {
            prop_assert!(!faults.list().is_empty() && faults.list().len() <= 100);
            for fault in faults.list() {
                let line = fault.to_string();
                prop_assert!(!line.contains(farhaul::sisters::is_unprintable), "{line:?}");
                prop_assert!(line.contains("farhaul.toml") || line.starts_with("default: "), "{line}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_gives_lines_and_no_panic(text in "\\PC{0,200}") {
        holds(&text)?;
    }

    #[test]
    fn anything_like_toml_gives_lines_and_no_panic(
        text in "(\\[(serve|api|caps\\.a|hooks\\.\"h x\"|\\[x\\])\\]\n|(listen|root|rate|on|state|a\\.b) = (\"[^\"\n]{0,8}\"|[0-9]{1,20}|true|\\[\\]|\\{\\}|'x')\n){0,8}"
    ) {
        holds(&text)?;
    }

    #[test]
    fn any_value_at_any_key_gives_lines_and_no_panic(entries in prop::collection::vec((any_key(), any_value()), 1..6)) {
        let mut tree = toml::Table::new();
        for (key, value) in entries {
            let mut at = &mut tree;
            let (last, way) = key.split_last().unwrap();
            for part in way {
                let below = at.entry(part.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                if !below.is_table() {
                    *below = toml::Value::Table(toml::Table::new());
                }
                at = below.as_table_mut().unwrap();
            }
            at.insert(last.clone(), value);
        }
        holds(&toml::to_string(&tree).unwrap())?;
    }

    #[test]
    fn any_environment_gives_lines_and_no_panic(text in "\\PC{0,20}", at in any_key()) {
        let mut world = World::new();
        if at.len() == 2 {
            world.set(&sources::variable_of(&at[0], &at[1]), &text);
        }
        if let Err(faults) = world.sources().load() {
            for fault in faults.list() {
                prop_assert!(!fault.to_string().contains(farhaul::sisters::is_unprintable));
            }
        }
    }
}
