//! How worn an NVMe disk is, from its own log (SMART, log page 2).
//!
//! From: NVM Express base specification 2.0, figure 207.

use std::io::ErrorKind;

use super::Unseen;

const WARNING_AT: usize = 0;
const SPARE_AT: usize = 3;
const SPARE_LIMIT_AT: usize = 4;
const USED_AT: usize = 5;

/// Returns the wear of a disk such as `nvme0`: `percentage_used N`, `spare N`, `spare_limit N`, `warning N`.
pub(super) fn of(disk: &str) -> Result<String, Unseen> {
    // Names are those of /sys/class/nvme.
    if !disk.starts_with("nvme") || disk.contains('/') {
        return Err(Unseen::Absent);
    }
    match crate::sys::nvme_health(&format!("/dev/{disk}")) {
        Ok(log) => Ok(lines(&log)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Unseen::Denied),
        Err(_) => Err(Unseen::Absent),
    }
}

fn lines(log: &[u8; 512]) -> String {
    let [used, spare, limit, warning] = [USED_AT, SPARE_AT, SPARE_LIMIT_AT, WARNING_AT].map(|at| log[at]);
    format!("percentage_used {used}\nspare {spare}\nspare_limit {limit}\nwarning {warning}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_how_much_of_its_life_is_used() {
        let mut log = [0; 512];
        log[..6].copy_from_slice(&[0, 0x2f, 1, 100, 10, 87]);
        assert_eq!(lines(&log), "percentage_used 87\nspare 100\nspare_limit 10\nwarning 0\n");
        assert_eq!(of("../sda"), Err(Unseen::Absent));
    }
}
