//! A lab's statistics file: one JSON object for each second, and at the end one for the whole time.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use farhaul_wanem::{Error, Lab, LinkStatus};
use serde::Serialize;

use super::failed;

/// The statistics file of a lab.
pub struct Statistics {
    file: Mutex<File>,
    begin: Instant,
}

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    kind: &'a str,
    /// Seconds since the lab began.
    at: f64,
    /// Whether the emulator itself was the bottleneck; then the figures of this time are not valid.
    overloaded: bool,
    links: &'a [LinkStatus],
}

impl Statistics {
    pub fn create(path: &Path) -> Result<Statistics, Error> {
        let file = File::create(path).map_err(failed(&format!("cannot write {}", path.display())))?;
        Ok(Statistics { file: Mutex::new(file), begin: Instant::now() })
    }

    pub fn interval(&self, lab: &Lab) {
        self.write("interval", &lab.interval());
    }

    pub fn total(&self, lab: &Lab) {
        self.write("total", &lab.total());
    }

    fn write(&self, kind: &str, links: &[LinkStatus]) {
        let at = self.begin.elapsed().as_secs_f64();
        let overloaded = links.iter().any(|link| link.report.is_overloaded());
        let record = Record { schema: 1, kind, at, overloaded, links };
        let Ok(mut line) = serde_json::to_vec(&record) else { return };
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // When the disk is full, only the statistics are lost; the run goes on.
        let _ = file.write_all(&line);
    }
}
