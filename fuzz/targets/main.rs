//! What reads bytes of a peer, a disk or a user, one test each; docs/design/fuzzing.md says how they are run.
//!
//! A target takes any bytes, and neither panics nor hangs nor lets something come true that must not be. Under `cargo test` each
//! replays its seeds (`__fuzz__/TARGET/corpus`, kept from real sessions and from what was found) and a few random inputs;
//! under `./x fuzz` libFuzzer leads it by the code that it reaches.

mod cli;
mod flow;
mod proto;
mod reading;
mod scratch;
mod seeds;
mod session;
mod volume;
mod wanem;

// The command line is a program and no library; its readers are taken as they stand, with their tests.
#[allow(dead_code, reason = "the targets need part of it")]
#[path = "../../crates/cli/src/values.rs"]
mod values;

/// A target: its name, how many random inputs `cargo test` tries, and what is done with the bytes.
macro_rules! target {
    ($name:ident, $iterations:expr, $work:expr) => {
        #[test]
        fn $name() {
            #[allow(unused_mut, reason = "some have a state")]
            let mut work = $work;
            bolero::check!()
                .with_iterations($iterations)
                .with_shrink_time(std::time::Duration::ZERO)
                .for_each(move |bytes: &[u8]| {
                    work(bytes);
                });
        }
    };
}
use target;
