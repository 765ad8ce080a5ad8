//! Figures of this process, read from /proc. A value that it does not provide is left out.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Figures of the process.
#[derive(Debug, Default)]
pub(super) struct ProcessFigures {
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    pub(super) start_s: Option<f64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
}

/// Reads the figures now.
pub(super) fn process() -> ProcessFigures {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut process = of_stat(&stat, &boot).unwrap_or_default();
    // Reading the directory needs a descriptor, too, which is not counted.
    let listed = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u64);
    process.open_descriptors = listed;
    process.descriptors_max = getrlimit(Resource::Nofile).current;
    process
}

/// From: proc_pid_stat(5). The name, in brackets, may contain any characters.
fn of_stat(stat: &str, boot: &str) -> Option<ProcessFigures> {
    let (_, behind) = stat.rsplit_once(") ")?;
    // Field 3 of the manual page comes first here.
    let field = |number: usize| behind.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ticks = clock_ticks_per_second() as f64;
    let booted = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<f64>().ok();
    Some(ProcessFigures {
        cpu_s: field(14).zip(field(15)).map(|(user, system)| (user + system) as f64 / ticks),
        threads: field(20),
        start_s: booted.zip(field(22)).map(|(boot, start)| boot + start as f64 / ticks),
        virtual_bytes: field(23),
        resident_bytes: field(24).map(|pages| pages * page_size() as u64),
        ..ProcessFigures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_kernel_is_read_whatever_the_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 12 0 1000 8192000 512 18446744073709551615";
        let process = of_stat(stat, "cpu 1 2\nbtime 1700000000\n").unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_s, Some(300.0 / ticks));
        assert_eq!((process.threads, process.virtual_bytes), (Some(12), Some(8_192_000)));
        assert_eq!(process.start_s, Some(1_700_000_000.0 + 1000.0 / ticks));
        assert_eq!(process.resident_bytes, Some(512 * page_size() as u64));
        assert!(of_stat("", "").is_none());
    }

    #[test]
    fn this_process_is_seen() {
        let process = super::process();
        assert!(process.resident_bytes > Some(1 << 20) && process.open_descriptors >= Some(3));
        assert!(process.start_s > Some(1e9));
    }
}
