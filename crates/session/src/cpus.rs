//! The cores that this process may use: the user's list of them, and the numbers of threads that follow from
//! it.
//!
//! Threads are not pinned one by one: the kernel places them among the cores of the list.

use std::io;
use std::str::FromStr;
use std::sync::OnceLock;

use farhaul_words::{Code, Error};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::options::FLOWS_MAX;

/// Numbers of cores, from text such as `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuList, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(cpu) if cpu < CpuSet::MAX_CPU => Ok(cpu),
            _ => Err(format!("{text:?} is no CPU: give a list such as 0-3,8")),
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => cpus.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(format!("{part:?} counts down: give a list such as 0-3,8"));
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        Ok(CpuList::of(cpus.into_iter()))
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.0.chunk_by(|one, next| one + 1 == *next);
        let shown = runs.map(|run| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        });
        formatter.write_str(&shown.collect::<Vec<_>>().join(","))
    }
}

/// The user's list for this process.
static CHOSEN: OnceLock<CpuList> = OnceLock::new();

/// The list of `--cpus`, if the user gave one.
pub(crate) fn chosen() -> Option<&'static CpuList> {
    CHOSEN.get()
}

impl CpuList {
    pub(crate) fn of(numbers: impl Iterator<Item = usize>) -> CpuList {
        let mut cpus: Vec<usize> = numbers.collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuList(cpus)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// The cores that this thread may use.
    pub(crate) fn allowed() -> io::Result<CpuList> {
        let allowed = sched_getaffinity(None)?;
        Ok(CpuList((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()))
    }

    /// Lets this thread, and all that it starts later, run only on these cores. Call it before any thread is
    /// started.
    pub fn apply(&self) -> Result<(), Error> {
        let cannot = || Error::io("cannot choose the CPUs");
        let allowed = CpuList::allowed().map_err(cannot())?;
        if let Some(missing) = self.0.iter().find(|cpu| !allowed.0.contains(cpu)) {
            return Err(Error::new(
                Code::NoSuchAddress,
                format!("`cpus`: this process cannot have CPU {missing}, only {allowed}"),
            ));
        }
        self.set().map_err(cannot())?;
        let _ = CHOSEN.set(self.clone());
        Ok(())
    }

    fn set(&self) -> io::Result<()> {
        let mut wanted = CpuSet::new();
        self.0.iter().for_each(|&cpu| wanted.set(cpu));
        Ok(sched_setaffinity(None, &wanted)?)
    }
}

/// Confines the thread that made it, and the threads that this one starts, to some cores until it is dropped.
pub(crate) struct Affinity(CpuList);

impl Affinity {
    pub(crate) fn to(cpus: &CpuList) -> io::Result<Affinity> {
        let before = CpuList::allowed()?;
        cpus.set()?;
        Ok(Affinity(before))
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // The cores that were allowed before are still allowed, unless the system has decided otherwise
        // meanwhile.
        let _ = self.0.set();
    }
}

/// A flow takes four cores: its own, one that reads or writes for it, one for digests, and one for the
/// kernel.
const CORES_PER_FLOW: usize = 4;
/// The most flows that are chosen automatically; more do not help.
const FLOWS_AUTO_MAX: usize = FLOWS_MAX / 2;

/// How many flows each of `paths` paths gets, so that this host's cores can feed all of them.
pub fn flows_for_cores(paths: usize) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    flows_for(cores, paths) as u16
}

/// The number of readers, or of writers, of a transfer. Each works on one chunk, in the disk or in the
/// digest; so there is one more than there are cores, and the disk stays busy while all cores digest. Eight
/// are enough for several disks together, or for a remote one.
pub fn disk_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores + 1).clamp(3, 8)
}

fn flows_for(cores: usize, paths: usize) -> usize {
    let all = (cores / CORES_PER_FLOW).clamp(1, FLOWS_AUTO_MAX);
    (all / paths.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        for (text, shown) in [("0", "0"), ("0-3,8", "0-3,8"), ("3,1,2,1", "1-3"), (" 1 - 2 ", "1-2")] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), shown);
        }
        for text in ["", "x", "1-", "-1", "3-1", "1,,2", "99999999999", "0-99999"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_holds_for_threads_that_are_started_later() {
        let chosen = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
            CpuList(vec![first]).apply().unwrap();
            assert!(CpuList(vec![CpuSet::MAX_CPU - 1]).apply().is_err());
            std::thread::spawn(|| (std::thread::available_parallelism(), flows_for_cores(1))).join().unwrap()
        });
        let (cores, flows) = chosen.join().unwrap();
        assert_eq!((cores.unwrap().get(), flows), (1, 1));
    }

    #[test]
    fn cores_are_given_back() {
        let before = CpuList::allowed().unwrap();
        let one = CpuList::of(before.numbers().take(1));
        let kept = Affinity::to(&one).unwrap();
        assert_eq!(CpuList::allowed().unwrap(), one);
        drop(kept);
        assert_eq!(CpuList::allowed().unwrap(), before);
    }

    #[test]
    fn flows_grow_with_cores_and_are_shared_among_paths() {
        let table =
            [(1, 1, 1), (2, 1, 1), (8, 1, 2), (16, 1, 4), (16, 2, 2), (128, 1, 8), (128, 3, 2), (2, 2, 1)];
        for (cores, paths, flows) in table {
            assert_eq!(flows_for(cores, paths), flows, "{cores} cores, {paths} paths");
        }
    }
}
