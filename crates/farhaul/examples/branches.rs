//! Sums up the 32-bit numbers in every thousandth kilobyte of a file, local or remote, without copying the
//! file. Programs that read some branches of a tree or some tiles of an image do much the same.
//!
//! cargo run --release -p farhaul --example branches -- LOCATION
//!
//! A location is written as for `farhaul cat`: a local path, `[user@]host:path` over SSH, or
//! `fh://host[:port]/path` at a daemon.

use std::process::ExitCode;

use farhaul::Error;
use farhaul::read::{FileRange, Remote};

fn main() -> ExitCode {
    let Some(location) = std::env::args_os().nth(1) else {
        eprintln!("usage: branches LOCATION");
        return ExitCode::from(2);
    };
    let summed = Remote::open(location).and_then(|remote| sum(&remote));
    match summed {
        Ok((sum, count)) => println!("{count} numbers, sum {sum}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(error.exit_code() as u8);
        }
    }
    ExitCode::SUCCESS
}

pub fn sum(remote: &Remote) -> Result<(u64, usize), Error> {
    let file = remote.file(b"")?;
    let wanted: Vec<_> =
        (0..file.size()).step_by(1000 << 10).map(|offset| FileRange { offset, len: 1 << 10 }).collect();
    let (mut sum, mut count) = (0u64, 0);
    // All ranges are asked for at once; the answers come as they are ready.
    let mut answers = file.read_vectored(&wanted)?;
    while let Some((_, bytes)) = answers.next() {
        for number in bytes?.chunks_exact(4) {
            sum += u64::from(u32::from_le_bytes([number[0], number[1], number[2], number[3]]));
            count += 1;
        }
    }
    Ok((sum, count))
}
