//! The target delay: it falls as the sender's own rate rises, and that alone makes shares even.
//!
//! ```text
//! T(r) = T1 (r / 1 Gbit/s)^-A * max(1, B / 80 ms)^0.75,  at least four packet times at r, at most 50 ms
//! ```
//!
//! All senders at a bottleneck see the same queue, and a sender is at rest where the queue equals its target.
//! One strictly falling function for all makes them rest at equal rates: a sender that has too little aims at
//! a longer queue than one that has too much, so it grows while the other yields. The law needs to know
//! neither the link's rate nor the number of senders; N of them queue N^A times as long as one.
//! From: Swift's flow scaling (SIGCOMM 2020, section 3.5: target + 1/sqrt(cwnd)), with the rate instead of
//! the window, so that shares do not depend on the round trip time. A transfer of `weight` shares aims at T(r
//! / weight).

/// The target at 1 Gbit/s: with the exponent, 3.6 ms at 100 Mbit/s, below the 5 ms that a sender alone may
/// queue.
const AT_ONE_GBIT: f64 = 0.0016;
/// The exponent A: its product with the target is the force that makes shares even.
const EXPONENT: f64 = 0.35;
/// Beyond this round trip the target grows, so that the loop's gain (target over round trip) does not vanish.
const LONG: f64 = 0.08;
const LONG_EXPONENT: f64 = 0.75;
const MOST: f64 = 0.05;
const GBIT: f64 = 125e6;

/// The target in seconds for `rate` bytes a second in packets of `packet` bytes over `base` seconds.
pub(super) fn target(rate: f64, packet: f64, base: f64, weight: f64) -> f64 {
    let own = (rate / weight).max(10_000.0);
    let scaled = AT_ONE_GBIT * (own / GBIT).powf(-EXPONENT) * (base / LONG).max(1.0).powf(LONG_EXPONENT);
    scaled.max(4.0 * packet / own).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_with_the_rate_and_doubles_its_share_by_weight() {
        let rates = [1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
        let targets = rates.map(|rate| target(rate, 1500.0, 0.05, 1.0));
        assert!(targets.windows(2).all(|pair| pair[0] >= pair[1]), "{targets:?}");
        assert!((target(2e8, 1500.0, 0.05, 2.0) - target(1e8, 1500.0, 0.05, 1.0)).abs() < 1e-9);
    }

    #[test]
    fn alone_it_stays_below_what_is_allowed() {
        for rate in [12.5e6, 125e6, 1.25e9, 12.5e9] {
            for base in [0.0002, 0.01, 0.05, 0.1, 0.3, 1.0] {
                let (aim, allowed) = (target(rate, 1500.0, base, 1.0), f64::max(0.005, base / 16.0));
                assert!(aim < allowed, "{aim} {allowed} at {rate} {base}");
            }
        }
    }
}
