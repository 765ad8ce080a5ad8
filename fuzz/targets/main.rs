//! Tests of all code that reads bytes of a peer, a disk or a user, one for each reader;
//! docs/design/fuzzing.md says how to run them.
//!
//! A target takes any bytes. It must not panic or hang, and must not let something happen that is forbidden.
//! Under `cargo test`, each replays its seeds (`__fuzz__/TARGET/corpus`, kept from real sessions and from
//! findings) and a few random inputs; under `./x fuzz`, libFuzzer guides it by the code that it reaches.

mod cli;
mod flow;
mod proto;
mod reading;
mod scratch;
mod seeds;
mod session;
mod volume;
mod wanem;

// The command line is a program and not a library, so its readers are included as source, with their tests.
#[allow(dead_code, reason = "the targets need only a part of it")]
#[path = "../../crates/cli/src/values.rs"]
mod values;

/// Defines a target: its name, the number of random inputs under `cargo test`, and what to do with the bytes.
macro_rules! target {
    ($name:ident, $iterations:expr, $work:expr) => {
        #[test]
        fn $name() {
            #[allow(unused_mut, reason = "some targets have a state")]
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
