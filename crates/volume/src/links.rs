//! Judges where a symbolic link leads, by its text alone.

/// Whether a link at `path`, below the top of what is copied, may lead out of that. A `..` behind a name
/// counts too, as the name may be another link. As rsync's `--safe-links`.
pub fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' {
        return true;
    }
    let mut depth = path.iter().filter(|&&byte| byte == b'/').count();
    let mut is_below = false;
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if is_below || depth == 0 => return true,
            b".." => depth -= 1,
            _ => is_below = true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_stay_and_links_that_leave() {
        for (path, target) in [
            ("l", "a"),
            ("l", "a/b"),
            ("a/l", "../b"),
            ("a/b/l", "../../c"),
            ("a/l", "./../b//c"),
            ("l", "..a"),
        ] {
            assert!(!leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [
            ("l", "/etc"),
            ("l", ""),
            ("l", ".."),
            ("a/l", "../../b"),
            ("a/l", "b/../../c"),
            ("a/l", "x/.."),
            ("l", "./.."),
        ] {
            assert!(leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }
}
