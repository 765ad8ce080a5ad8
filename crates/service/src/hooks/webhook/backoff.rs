//! When a message is tried again: later each time, up to a day, and not at the same moment as other messages.

use std::time::Duration;

/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(10);
/// The longest pause, also if the receiver asks for a longer one.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// After how many attempts the message is given up. The pauses between them add up to two to three days.
pub const ATTEMPTS_MAX: u32 = 16;

/// How long to wait after `attempt` attempts have failed. `seed` differs from message to message and makes
/// the pause up to a quarter shorter. `asked` is the receiver's `Retry-After`.
pub fn pause(attempt: u32, seed: u64, asked: Option<Duration>) -> Duration {
    let doublings = attempt.saturating_sub(1).min(30);
    let whole = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let share = mix(seed ^ u64::from(attempt)) >> 32;
    let shorter = whole / 4 * u32::try_from(share >> 16).unwrap_or(0) / (1 << 16);
    (whole - shorter).max(asked.unwrap_or_default()).min(LONGEST)
}

/// The last step of SplitMix64: similar numbers become very different ones.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_day() {
        for seed in 0..1000 {
            for attempt in 1..=40 {
                let whole = (10_u64 << (attempt - 1).min(30)).min(86_400);
                let pause = pause(attempt, seed, None).as_secs_f64();
                assert!(pause <= whole as f64 && pause >= 0.75 * whole as f64, "{attempt} {seed} {pause}");
            }
        }
        assert_eq!(pause(u32::MAX, 7, None), pause(u32::MAX, 7, None));
        assert_ne!(pause(3, 7, None), pause(3, 8, None));
        let all: Duration = (1..ATTEMPTS_MAX).map(|attempt| pause(attempt, 1, None)).sum();
        let days = all.as_secs_f64() / 86_400.0;
        assert!((2.0..3.0).contains(&days), "{days}");
    }

    #[test]
    fn the_other_end_may_ask_for_more_but_not_for_less_or_forever() {
        let second = Duration::from_secs;
        assert_eq!(pause(1, 0, Some(second(3600))), second(3600));
        assert!(pause(5, 0, Some(second(1))) > second(100));
        assert_eq!(pause(1, 0, Some(Duration::MAX)), LONGEST);
    }
}
