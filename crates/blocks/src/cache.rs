//! The size of the cache that the cores of this process share: blocks that wait in it need not be fetched
//! from memory again.

use std::path::Path;

/// Where the kernel describes the caches of the first core.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// The bytes of the largest cache of a core; `None` if the kernel does not say.
pub fn last_level_cache_bytes() -> Option<u64> {
    largest(Path::new(CACHES))
}

fn largest(folder: &Path) -> Option<u64> {
    let caches = std::fs::read_dir(folder).ok()?.flatten();
    let size = |cache: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(cache.path().join(name)).ok();
        let holds_data = read("type")?.trim() != "Instruction";
        holds_data.then(|| bytes(read("size")?.trim())).flatten()
    };
    caches.filter_map(size).max()
}

/// Parses `32768K`, `2M`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("96M"), Some(96 << 20));
        assert_eq!(bytes("512"), Some(512));
        for odd in ["", "K", "x", "3T", "99999999999999999999K", "18014398509481984K"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_largest_cache_that_holds_data_counts() {
        let folder = tempfile::tempdir().unwrap();
        for (name, kind, size) in
            [("index0", "Data", "32K"), ("index1", "Instruction", "64M"), ("index3", "Unified", "16384K")]
        {
            let cache = folder.path().join(name);
            std::fs::create_dir(&cache).unwrap();
            std::fs::write(cache.join("type"), format!("{kind}\n")).unwrap();
            std::fs::write(cache.join("size"), format!("{size}\n")).unwrap();
        }
        std::fs::write(folder.path().join("uevent"), "").unwrap();
        assert_eq!(largest(folder.path()), Some(16 << 20));
        assert_eq!(largest(&folder.path().join("none")), None);
    }
}
