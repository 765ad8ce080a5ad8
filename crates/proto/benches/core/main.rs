//! The time that the core spends on one segment at 10 Gbit/s, 100 ms and 1 % loss: `cargo bench -p
//! farhaul-proto`.
//!
//! With `--count N` it sends N segments and exits, for a profiler that counts instructions. `./x bench core`
//! runs both.

#![allow(missing_docs, clippy::disallowed_methods)]

mod path;

use criterion::{Criterion, criterion_group};
use path::{Cost, TestPath};
use std::time::Duration;

fn cost(c: &mut Criterion) {
    let mut path = TestPath::warm();
    let mut group = c.benchmark_group("a segment");
    let mut measure = |name: &str, end: fn(&Cost) -> Duration| {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|segments| {
                let before = path.cost();
                path.run(segments);
                let after = path.cost();
                // A turn sends several segments at once, so more are sent than were asked for.
                let part = segments as f64 / (after.segments - before.segments) as f64;
                (end(&after) - end(&before)).mul_f64(part)
            });
        });
    };
    measure("sender", |cost| cost.sender);
    measure("receiver", |cost| cost.receiver);
    group.finish();
}

criterion_group!(benches, cost);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, count, ..] = &arguments[..]
        && flag == "--count"
    {
        let mut path = TestPath::warm();
        path.run(count.parse().expect("a number of segments"));
        println!("{} segments, {:.2} Gbit/s", path.cost().segments, path.rate_bps() / 1e9);
        return;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
