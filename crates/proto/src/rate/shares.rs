//! Splits the one window of a transfer among its flows, by what each delivers.
//!
//! ```text
//! ds_i/dt = ((1 - E) r_i / r + E / n - s_i) / RTT
//! ```
//!
//! s_i is the part of flow i, r_i its delivery rate, r their sum, n the number of flows. Where all flows meet
//! the same bottleneck, r_i / r is s_i, so E alone acts and the parts become even. A flow with a narrower
//! path of its own (a member of a bundle, another route) falls to what it delivers, and its sisters get the
//! rest. About E of the mean part remains too much for it, and stands in its own queue.
//! Always true: the parts of all active flows add up to one, and each is at least E / n, so that a flow that
//! recovers is noticed.

/// E: the part that is split evenly, whatever the flows deliver.
const EVEN: f64 = 0.1;

/// A flow's part of the window, and the bytes a second that it delivers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowShare {
    pub share: f64,
    pub rate: f64,
}

/// Moves the parts of all active flows on by `rounds` round trips.
pub(super) fn step(parts: &mut [WindowShare], rounds: f64) {
    let even = 1.0 / parts.len().max(1) as f64;
    let rate: f64 = parts.iter().map(|part| part.rate).sum();
    // The sum is one unless flows have come or gone.
    let sum: f64 = parts.iter().map(|part| part.share).sum();
    for part in parts {
        let before = if sum > 0.0 { part.share / sum } else { even };
        let earned = if rate > 0.0 { part.rate / rate } else { even };
        let aim = (1.0 - EVEN) * earned + EVEN * even;
        part.share = before + rounds.clamp(0.0, 1.0) * (aim - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where flows settle, each with the capacity that `ways` gives, if `window` bytes a second are offered
    /// in all.
    fn settled(ways: &[f64], shares: &[f64], window: f64) -> Vec<WindowShare> {
        let mut parts: Vec<WindowShare> =
            shares.iter().map(|&share| WindowShare { share, rate: 0.0 }).collect();
        for _ in 0..400 {
            for (part, way) in parts.iter_mut().zip(ways) {
                part.rate = (part.share * window).min(*way);
            }
            step(&mut parts, 0.25);
            let sum: f64 = parts.iter().map(|part| part.share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
        parts
    }

    #[test]
    fn flows_of_one_bottleneck_become_even() {
        for part in settled(&[f64::INFINITY; 4], &[0.7, 0.1, 0.1, 0.1], 1e6) {
            assert!((part.share - 0.25).abs() < 0.001, "{part:?}");
        }
    }

    #[test]
    fn a_narrow_way_gets_about_what_it_carries_and_the_others_the_rest() {
        let wide = f64::INFINITY;
        let parts = settled(&[0.1e6, wide, wide, wide], &[0.25; 4], 1e6);
        assert!((0.1..0.14).contains(&parts[0].share), "{parts:?}");
        assert!(parts.iter().map(|part| part.rate).sum::<f64>() > 0.97e6, "{parts:?}");
    }

    #[test]
    fn a_dead_way_keeps_a_little_and_recovers() {
        let parts = settled(&[0.0, f64::INFINITY], &[0.5, 0.5], 1e6);
        assert!((parts[0].share - 0.05).abs() < 0.001, "{parts:?}");
        let shares: Vec<f64> = parts.iter().map(|part| part.share).collect();
        assert!(settled(&[f64::INFINITY; 2], &shares, 1e6)[0].share > 0.49);
    }

    #[test]
    fn flows_come_and_go() {
        let mut parts = [WindowShare { share: 0.25, rate: 1.0 }; 2];
        step(&mut parts, 0.0);
        assert_eq!(parts.map(|part| part.share), [0.5; 2]);
    }
}
