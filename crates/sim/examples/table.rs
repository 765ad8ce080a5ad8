//! Prints one line per scenario: `cargo run --release -p farhaul-sim --example table`.

use farhaul_sim::Scenario;

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let trace_ms = std::env::args().nth(2).and_then(|ms| ms.parse().ok()).unwrap_or(0);
    if only == "short" {
        let short = Scenario {
            rate_bps: 200_000_000,
            queue_bytes: 50_000,
            blocks: 200,
            trace_ms,
            ..Scenario::default()
        };
        println!("{}", short.run(1));
        return;
    }
    if only == "near" {
        for (loss, noise_ms) in [(0.0, 0.0), (0.0, 5.0), (0.1, 0.0), (0.1, 2.0), (0.1, 5.0), (0.3, 2.0)] {
            let near = Scenario {
                rate_bps: 20_000_000_000,
                rtt_ms: 0.05,
                loss,
                noise_ms,
                socket_bytes: Some(8 << 20),
                ..Scenario::default()
            };
            println!(
                "loss {loss} noise {noise_ms}: {}",
                Scenario { queue_bytes: 64 << 20, blocks: 1000, trace_ms, pool: 256, ..near }.run(1)
            );
        }
        return;
    }
    for (rate, blocks) in [(100_000_000u64, 60u64), (1_000_000_000, 600)] {
        for rtt_ms in [0.1, 2.0, 20.0, 100.0, 500.0] {
            for loss in [0.0, 0.01, 0.1, 0.3] {
                let blocks = if rtt_ms > 50.0 { blocks * 4 } else { blocks };
                let scenario =
                    Scenario { rate_bps: rate, rtt_ms, loss, blocks, trace_ms, ..Scenario::default() };
                let name = format!("{:>5} Mbit/s rtt {rtt_ms:>5} ms loss {loss:>4}", rate / 1_000_000);
                if name.contains(&only) {
                    println!("{name}: {}", scenario.run(1));
                }
            }
        }
    }
}
