//! How busy each core is just now, from two looks at /proc/stat.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The time between the looks: many ticks of the kernel's clock, and little of a user's.
const BETWEEN: Duration = Duration::from_millis(200);

/// Returns `cpuN BUSY` for each core, in percent.
pub(super) fn cores() -> String {
    let before = times();
    std::thread::sleep(BETWEEN);
    lines(&before, &times())
}

/// Busy ticks and all ticks of each core.
type Times = BTreeMap<u32, (u64, u64)>;

fn times() -> Times {
    read(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn read(text: &str) -> Times {
    let core = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let all = ticks.iter().copied().fold(0, u64::saturating_add);
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
        Some((number, (all.saturating_sub(idle), all)))
    };
    text.lines().filter_map(core).collect()
}

fn lines(before: &Times, after: &Times) -> String {
    let mut out = String::new();
    for (core, (busy, all)) in after {
        let Some((busy_before, all_before)) = before.get(core) else { continue };
        let all = all.saturating_sub(*all_before);
        if let Some(share) = (busy.saturating_sub(*busy_before) * 100).checked_div(all) {
            out.push_str(&format!("cpu{core} {share}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_time_between() {
        let before =
            read("cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 5 0 0 5 0 0 0 0\nintr 7\n");
        let after = read("cpu0 110 0 5 905 0 0 0 0 0 0\ncpu1 5 0 0 15 10 0 0 0\n");
        assert_eq!(lines(&before, &after), "cpu0 75\ncpu1 0\n");
        assert_eq!(lines(&before, &before), "");
    }
}
