//! The explanations, for the terminal and for the page docs/reference/doctor.md.

use crate::check::{self, Check, Effect};
use crate::limit::{LIMITS, Limit, Remedy};
use crate::path::{PATH_SIGNS, PathSign};
use crate::{Error, limit, path};

/// Returns the explanation of a check, of a row or of a limit.
pub fn explain(id: &str) -> Result<String, Error> {
    if let Some(check) = check::find(id) {
        return Ok(of_check(check));
    }
    if let Some(sign) = path::find(id) {
        return Ok(of_sign(sign));
    }
    limit::find(id).map(of_limit).ok_or_else(|| Error::UnknownCheck(id.to_owned()))
}

/// Every ID with what it is about, limits first, then what is found on paths.
pub fn ids() -> Vec<(&'static str, &'static str)> {
    let limits = LIMITS.iter().map(|limit| (limit.id, limit.title));
    let signs = PATH_SIGNS.iter().map(|sign| (sign.id, sign.title));
    limits.chain(signs).chain(check::all().map(|check| (check.id, check.title))).collect()
}

fn effect(check: &Check) -> String {
    match check.effect {
        Effect::Here(what) => format!("can be seen on this host alone: {}", what.words()),
        Effect::WithPeer => "can be seen only with another host".into(),
        Effect::NotByRate => "cannot be judged by a rate here".into(),
    }
}

fn of_check(check: &Check) -> String {
    let mut out = format!("{}  [{}]\n\n", check.title, check.id);
    let mut line = |name: &str, text: &str| out.push_str(&format!("{name:<10}{text}\n"));
    line("reads", check.reads);
    line("advice", check.advice);
    line("why", check.why);
    for source in check.sources {
        line("source", &format!("{}: {}", source.title, source.address));
    }
    line("sure", check.certainty.words());
    line("set", check.set);
    line("undo", check.undo);
    line("measure", check.measure);
    line("effect", &effect(check));
    if let Some(group) = check.group {
        line(
            "group",
            &format!("{}: these remedies are applied, judged and taken back together", group.name()),
        );
    }
    out
}

fn of_limit(limit: &Limit) -> String {
    let meaning = limit.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = format!("{}  [{}]\n\n{meaning}\n\nWhat to do:\n", limit.title, limit.id);
    for Remedy { what, gain } in limit.remedies {
        out.push_str(&format!("- {what}\n  expected: {gain}\n"));
    }
    if !limit.checks.is_empty() {
        out.push_str(&format!("\nChecks that look for causes: {}\n", limit.checks.join(", ")));
    }
    out
}

fn of_sign(sign: &PathSign) -> String {
    let meaning = sign.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let (title, address) = sign.source;
    format!(
        "{}  [{}]\n\n{meaning}\n\nfound     by farhaul doctor --peer HOST\nadvice    {}\nexpected  {}\nsource    {title}: {address}\n",
        sign.title, sign.id, sign.advice, sign.gain
    )
}

/// The remedies of a limit, one behind the other.
fn remedies(limit: &Limit) -> String {
    let one = |remedy: &Remedy| format!("{} ({})", remedy.what, remedy.gain);
    limit.remedies.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The page of all checks and limits.
pub fn whole() -> String {
    let mut out = String::from(
        "# Checks of `farhaul doctor`

Every check with what it reads, what it advises and on whose word; `farhaul doctor explain ID` prints the same. NIC, DISK and CPU stand for any. Places
below `asked/` are answers of the kernel to ioctls, netlink and other calls. [The guide](../guide/fast-node.md) shows how to work with it.

A test makes this page: `GOLDEN=write cargo test -p farhaul-doctor the_page`.

## Limits of transfers

What `limit_id` of [the JSON report](report.md) can be; `bottleneck` there says the same in words, with figures.

| ID | what it means | what to do, and what is expected of it | checks |
| --- | --- | --- | --- |
",
    );
    for limit in LIMITS {
        let checks: Vec<String> = limit.checks.iter().map(|id| format!("[{id}](#{id})")).collect();
        let meaning = limit.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        out.push_str(&format!(
            "| `{}` | {}. {} | {} | {} |\n",
            limit.id,
            limit.title,
            cell(&meaning),
            cell(&remedies(limit)),
            checks.join(", ")
        ));
    }
    out.push_str(
        "\n## Findings on paths\n\nWhat `farhaul doctor --peer HOST` can find between two hosts.\n\n",
    );
    out.push_str(
        "| ID | what it means | what to do | expected | source |\n| --- | --- | --- | --- | --- |\n",
    );
    for PathSign { id, title, meaning, advice, gain, source, .. } in PATH_SIGNS {
        let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        out.push_str(&format!(
            "| `{id}` | {title}. {} | {} | {} | [{}]({}) |\n",
            cell(&meaning),
            cell(advice),
            cell(gain),
            source.0,
            source.1
        ));
    }
    out.push_str("\n## Checks\n");
    for check in check::all() {
        out.push_str(&format!("\n### {}\n\n{}. {}\n\n", check.id, check.title, check.why));
        out.push_str("| | |\n| --- | --- |\n");
        let mut row = |name: &str, text: &str| out.push_str(&format!("| {name} | {} |\n", cell(text)));
        row("reads", &format!("`{}`", check.reads));
        row("advice", check.advice);
        let sources: Vec<String> =
            check.sources.iter().map(|source| format!("[{}]({})", source.title, source.address)).collect();
        row("sources", &sources.join("; "));
        row("how sure", check.certainty.words());
        row("set", check.set);
        row("undo", check.undo);
        row("measure", check.measure);
        row("effect", &effect(check));
        if let Some(group) = check.group {
            row("group", group.name());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_page_is_in_the_documentation() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/doctor.md");
        farhaul_vectors::compare_text(&path, &whole());
    }

    #[test]
    fn every_piece_of_advice_has_a_source_and_every_text_is_there() {
        let mut names = BTreeSet::new();
        for check in check::all() {
            assert!(!check.sources.is_empty(), "{} has no source", check.id);
            for source in check.sources {
                assert!(source.address.starts_with("http"), "{}: {}", check.id, source.address);
            }
            for text in
                [check.title, check.reads, check.advice, check.why, check.set, check.undo, check.measure]
            {
                assert!(!text.is_empty(), "{} has an empty text", check.id);
            }
            assert!(
                names.insert(check.id) && names.insert(check.row),
                "{} or {} stands twice",
                check.id,
                check.row
            );
        }
    }

    #[test]
    fn a_check_is_explained_by_its_id_and_by_its_row() {
        assert_eq!(explain("N1").unwrap(), explain("socket-buffers").unwrap());
        assert!(explain("slow-receiver-disk").unwrap().contains("bench disk --write"));
        assert!(matches!(explain("nonsense"), Err(Error::UnknownCheck(_))));
    }
}
