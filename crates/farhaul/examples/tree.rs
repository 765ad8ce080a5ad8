//! Copies a tree and prints its progress: `tree SOURCE DESTINATION`, both written as for `farhaul cp`.

use std::time::Duration;

use farhaul::copy::{Report, TransferFailure};
use farhaul::events::Event;

fn main() -> Result<(), TransferFailure<Report>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [source, destination] = &arguments[..] else {
        eprintln!("usage: tree SOURCE DESTINATION");
        std::process::exit(2);
    };
    let report = farhaul::copy([source], destination)
        .on_progress(Duration::from_secs(1), |seen| {
            let (done, total) = (seen.bytes_done >> 20, seen.bytes_total >> 20);
            println!("{done} of {total} MiB, {:.0} Mbit/s", seen.goodput_bps / 1e6);
        })
        .on_event(|stamped| match &stamped.event {
            Event::EntryDone { path, .. } => println!("{path}"),
            Event::Warning { text } => eprintln!("warning: {text}"),
            _ => {}
        })
        .run()?;
    println!("{} files, limited by {}", report.files, report.session.bottleneck);
    Ok(())
}
