//! The signals that end a daemon, and the one that asks what it does.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `end` with the name of the first SIGTERM or SIGINT, `show` on each SIGUSR1 and `reload` on each SIGHUP, from a thread of its own. The second
/// signal that ends ends the process at once.
pub(crate) fn watch(
    end: impl FnOnce(&'static str) + Send + 'static,
    show: impl Fn() + Send + 'static,
    reload: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut term, mut int, mut usr1, mut hup) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::user_defined1())?,
            signal(SignalKind::hangup())?,
        )
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            let mut next = async || {
                loop {
                    tokio::select! {
                        _ = term.recv() => return ("SIGTERM", 143),
                        _ = int.recv() => return ("SIGINT", 130),
                        _ = usr1.recv() => show(),
                        _ = hup.recv() => reload(),
                    }
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
