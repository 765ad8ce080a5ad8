//! Runs a scenario: prints its summary, writes its trace and plot.

use farhaul_sim::{Scenario, svg};
use std::process::ExitCode;

fn usage() -> String {
    format!(
        "usage: farhaul-sim run [--csv=FILE] [--svg=FILE] [OPTIONS]\n\noptions, and what they are by default:\n  --bdps=BDP   the queue, instead of --queue-bytes\n{}",
        Scenario::help()
    )
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((verb, options)) if verb == "run" => match run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("error: {what}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("{}", usage());
            ExitCode::FAILURE
        }
    }
}

fn run(options: &[String]) -> Result<(), String> {
    let (mut scenario, mut csv, mut picture, mut bdps) =
        (Scenario { seeds: 1, ..Scenario::default() }, None, None, None);
    for option in options {
        let (name, value) = option
            .strip_prefix("--")
            .and_then(|option| option.split_once('='))
            .ok_or_else(|| format!("not of the form --name=value: {option}"))?;
        match name {
            "csv" => csv = Some(value.to_owned()),
            "svg" => picture = Some(value.to_owned()),
            "bdps" => bdps = Some(value.parse::<f64>().map_err(|_| format!("no number: {value}"))?),
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
        println!("{end}");
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
