//! The signals that end a daemon.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `end` with the name of the first SIGTERM or SIGINT, from a thread of its own. The second one ends
/// the process at once.
pub(crate) fn on_end(end: impl FnOnce(&'static str) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut term, mut int) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            let mut next = async || {
                tokio::select! {
                    _ = term.recv() => ("SIGTERM", 143),
                    _ = int.recv() => ("SIGINT", 130),
                }
            };
            let (name, _) = next().await;
            end(name);
            let (_, code) = next().await;
            std::process::exit(code);
        });
    })?;
    Ok(())
}
