//! The signals that end a daemon, the one that asks what it does, and the one that makes it read its settings
//! again.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::shutdown::SignalOutcome;

/// Calls `end` with the name of each SIGTERM and SIGINT, `show` on each SIGUSR1 and `reload` on each SIGHUP,
/// on a thread of its own. Ends the process if `end` returns [`SignalOutcome::Again`].
pub(crate) fn watch(
    end: impl Fn(&'static str) -> SignalOutcome + Send + 'static,
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
            loop {
                let (name, code) = tokio::select! {
                    _ = term.recv() => ("SIGTERM", 143),
                    _ = int.recv() => ("SIGINT", 130),
                    _ = usr1.recv() => {
                        show();
                        continue;
                    }
                    _ = hup.recv() => {
                        reload();
                        continue;
                    }
                };
                if end(name) == SignalOutcome::Again {
                    std::process::exit(code);
                }
            }
        });
    })?;
    Ok(())
}
