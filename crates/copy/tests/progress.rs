//! The progress that a running transfer reports: client and daemon run in one process, over the loopback
//! interface.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_copy::{CopyJob, Location, copy};
use farhaul_session::Handle;

mod server;

use server::Server;

#[test]
fn links_are_no_files_whether_they_are_made_or_there_already() {
    let server = Server::start(farhaul_session::TestHooks::default());
    let source = server.folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for number in 0..3 {
        std::fs::write(source.join(format!("file{number}")), b"content").unwrap();
    }
    for number in 0..5 {
        std::os::unix::fs::symlink("file0", source.join(format!("symbolic{number}"))).unwrap();
        std::fs::hard_link(source.join("file1"), source.join(format!("hard{number}"))).unwrap();
    }
    for run in 0..2 {
        let job = CopyJob::new([Location::Local(source.clone())], server.at(b"/in/"));
        let handle = Handle::new();
        let (report, error) = copy(job, &handle);
        assert!(error.is_none() && report.ok, "{error:?}");
        assert_eq!(
            (handle.counts().files_done.load(Relaxed), handle.counts().files_total.load(Relaxed)),
            (3, 3),
            "run {run}"
        );
    }
}
