//! Finds the process that has locked the store, by the kernel's list of locks.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A process that has locked a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockHolder {
    pid: u32,
    /// The name of its program; empty if it cannot be read.
    program: String,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program.is_empty() {
            true => write!(f, "process {}", self.pid),
            false => write!(f, "{} (process {})", self.program, self.pid),
        }
    }
}

/// The other process that may write to the store at this path, and lets nobody else.
pub(super) fn holder(path: &Path) -> Option<LockHolder> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let files = ["-shm", ""].map(|end| {
        let mut name = path.as_os_str().to_os_string();
        name.push(end);
        std::fs::metadata(name).ok()
    });
    let of = |inode: u64| pids(&locks, inode).find(|pid| *pid != std::process::id());
    let pid = files.into_iter().flatten().find_map(|file| of(file.ino()))?;
    let program = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(LockHolder { pid, program: farhaul_text::printable(program.trim_ascii(), 30) })
}

/// The processes that have locked the file with this inode for writing. The lines are such as
/// `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`.
fn pids(locks: &str, inode: u64) -> impl Iterator<Item = u32> {
    locks.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_of_file = words.get(5)?.rsplit(':').next()?.parse() == Ok(inode);
        (is_of_file && words.get(3) == Some(&"WRITE")).then(|| words.get(4)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  READ  11 08:01:5678 123 123\n2: FLOCK  ADVISORY  WRITE 12 08:01:99 0 EOF\n\
                     3: -> POSIX  ADVISORY  WRITE 10 08:01:5678 120 120\n4: POSIX  ADVISORY  WRITE 13 08:01:5678 120 120\n\
                     nonsense\n5: POSIX ADVISORY WRITE -1 08:01:5678 0 0\n";
        assert_eq!(pids(locks, 5678).collect::<Vec<_>>(), [13]);
        assert_eq!(pids(locks, 1).count(), 0);
        let holder = LockHolder { pid: 13, program: "sqlite3".into() };
        assert_eq!(holder.to_string(), "sqlite3 (process 13)");
        assert_eq!(LockHolder { program: String::new(), ..holder }.to_string(), "process 13");
    }
}
