//! Runs a scenario (with summary, trace and plot), the table of what must be true, or paths drawn at random.
#![forbid(unsafe_code)]

use farhaul_sim::{DrawRange, Scenario, TableSize, json, run_draws, svg, table};
use std::io::Write;
use std::process::ExitCode;

fn usage() -> String {
    format!(
        "usage: farhaul-sim run [--csv=FILE] [--svg=FILE] [OPTIONS]\n       farhaul-sim table [--size=small|normal|full] [--only=TEXT] [--jobs=N] [--json=FILE]\n       farhaul-sim random [--count=10000] [--first=1] [--jobs=N] [--rate-max=1G]\n\noptions and their defaults:\n  --bdps=N   the queue in bandwidth-delay products, instead of --queue-bytes\n{}",
        Scenario::help()
    )
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((verb, options)) if verb == "run" => run(options),
        Some((verb, options)) if verb == "table" => run_table(options),
        Some((verb, options)) if verb == "random" => run_random(options),
        _ => Err(usage()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. If the reader has closed the pipe, the program ends without an error.
fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

fn split(option: &str) -> Result<(&str, &str), String> {
    let pair = option.strip_prefix("--").and_then(|option| option.split_once('='));
    pair.ok_or_else(|| format!("not of the form --name=value: {option}"))
}

fn run_table(options: &[String]) -> Result<(), String> {
    let (mut size, mut only, mut jobs, mut file) = (TableSize::Normal, String::new(), 1, None);
    for option in options {
        match split(option)? {
            ("size", "small") => size = TableSize::Small,
            ("size", "normal") => size = TableSize::Normal,
            ("size", "full") => size = TableSize::Full,
            ("only", text) => only = text.to_owned(),
            ("jobs", count) => jobs = count.parse().map_err(|_| format!("not a number: {count}"))?,
            ("json", path) => file = Some(path.to_owned()),
            _ => return Err(format!("no such option or value: {option}\n{}", usage())),
        }
    }
    let mut saved = Ok(());
    let lines = table(size, &only, jobs, |lines| {
        let Some(line) = lines.last() else { return };
        say(&line.to_string());
        if !line.pass {
            say(&format!("      replay: {}", line.worst));
        }
        // Saved line by line: the whole table takes most of an hour, and a run that is interrupted keeps what
        // it has.
        if let Some(path) = &file {
            saved = std::fs::write(path, json(lines));
        }
    });
    say(&format!("{} of {} rows pass", lines.iter().filter(|line| line.pass).count(), lines.len()));
    saved.map_err(|error| format!("cannot write {}: {error}", file.unwrap_or_default()))
}

/// The least share of its capacity that a path must carry.
const SHARE_MIN: f64 = 0.9;

fn run_random(options: &[String]) -> Result<(), String> {
    let (mut count, mut first, mut jobs, mut range) = (10_000, 1, 1, DrawRange::default());
    for option in options {
        let (name, value) = split(option)?;
        let number = || value.parse::<u64>().map_err(|_| format!("not a number: {value}"));
        match name {
            "count" => count = number()?,
            "first" => first = number()?,
            "jobs" => jobs = number()? as usize,
            "rate-max" => {
                // Parsed as a scenario's rate is.
                let mut scenario = Scenario::default();
                scenario.set("rate", value).ok_or_else(|| format!("not a rate: {value}"))?;
                range.rate_bps.1 = scenario.rate_bps.max(range.rate_bps.0);
            }
            _ => return Err(format!("no such option: {option}\n{}", usage())),
        }
    }
    let drawn = run_draws(&range, first, count, jobs, |drawn| {
        if drawn.goodput_share < SHARE_MIN {
            say(&format!("MISS  {:.3}  replay: {}", drawn.goodput_share, drawn.command));
        }
    });
    let Some(worst) = drawn.first() else { return Ok(()) };
    let low = drawn.iter().filter(|drawn| drawn.goodput_share < SHARE_MIN).count();
    let percentile = |percent: usize| drawn[(drawn.len() - 1) * percent / 100].goodput_share;
    let verdict = if low == 0 { "PASS" } else { "MISS" };
    say(&format!(
        "{verdict}  {} of {} paths at {SHARE_MIN} or more; least {:.3}, 1st percentile {:.3}, median {:.3}",
        drawn.len() - low,
        drawn.len(),
        worst.goodput_share,
        percentile(1),
        percentile(50),
    ));
    Ok(())
}

fn run(options: &[String]) -> Result<(), String> {
    let (mut scenario, mut csv, mut picture, mut bdps) =
        (Scenario { seeds: 1, ..Scenario::default() }, None, None, None);
    for option in options {
        let (name, value) = split(option)?;
        match name {
            "csv" => csv = Some(value.to_owned()),
            "svg" => picture = Some(value.to_owned()),
            "bdps" => bdps = Some(value.parse::<f64>().map_err(|_| format!("not a number: {value}"))?),
            _ => scenario
                .set(name, value)
                .ok_or_else(|| format!("no such option or value: {option}\n{}", usage()))?,
        }
    }
    if let Some(bdps) = bdps {
        scenario = scenario.with_queue(bdps);
    }
    if (csv.is_some() || picture.is_some()) && scenario.trace_ms == 0 {
        scenario.trace_ms = (scenario.rtt_ms / 4.0).max(1.0) as u64;
    }
    for seed in scenario.seed..scenario.seed + scenario.seeds {
        let end = scenario.run(seed);
        say(&end.to_string());
        let write = |path: &Option<String>, text: &dyn Fn() -> String| match path {
            Some(path) => {
                std::fs::write(path, text()).map_err(|error| format!("cannot write {path}: {error}"))
            }
            None => Ok(()),
        };
        write(&csv, &|| end.trace.csv())?;
        let names: Vec<String> = end.senders.iter().map(|share| share.name.clone()).collect();
        write(&picture, &|| svg(&end.trace, &names))?;
    }
    Ok(())
}
