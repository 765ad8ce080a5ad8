//! TCP connections that a session has left, and whose far end still reads.
//!
//! If a socket is closed while received bytes in it are unread, or when more of them come, the system resets
//! the connection, and what was sent but not read yet can be lost. So a connection that was left stays here
//! until the far end has closed it, too.
//!
//! Always true: no more than [`PLACES`] connections stay, and none of them longer than [`TIME_MAX`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a connection may be silent ...
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// ... and how long it may stay at all.
const TIME_MAX: Duration = Duration::from_secs(60);
const PLACES: usize = 64;

/// The places of one daemon.
#[derive(Debug, Clone)]
pub(crate) struct LingeringConnections {
    runtime: Handle,
    places: Arc<Semaphore>,
}

impl LingeringConnections {
    pub(crate) fn on(runtime: Handle) -> LingeringConnections {
        LingeringConnections { runtime, places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Takes a non-blocking connection over, on which `rest` is to be written. It is closed at once if there
    /// is no place.
    pub(crate) fn take(&self, stream: std::net::TcpStream, rest: Vec<u8>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let _context = self.runtime.enter();
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        self.runtime.spawn(async move {
            // However it ends, nobody waits for it.
            let _ = timeout(TIME_MAX, linger(stream, &rest)).await;
            drop(place);
        });
    }
}

/// Writes the rest, says that nothing follows, and reads on until the far end says so, too.
async fn linger(mut stream: TcpStream, rest: &[u8]) -> io::Result<()> {
    timeout(SILENCE_MAX, stream.write_all(rest)).await??;
    stream.shutdown().await?;
    let mut ignored = vec![0; 16 << 10];
    loop {
        timeout(SILENCE_MAX, stream.readable()).await??;
        match stream.try_read(&mut ignored) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    /// A connection: the end that will be left, and the far one.
    fn pair() -> (std::net::TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Fills the socket until it takes no more; returns how many bytes it took.
    fn fill(stream: &mut std::net::TcpStream) -> usize {
        let mut sent = 0;
        while let Ok(taken) = stream.write(&[7; 64 << 10]) {
            sent += taken;
        }
        sent
    }

    #[test]
    fn a_slow_reader_gets_all_though_it_still_speaks() {
        let runtime = runtime();
        let lingering = LingeringConnections::on(runtime.handle().clone());
        let (mut near, mut far) = pair();
        let sent = fill(&mut near);
        // It was sent before the connection is left, and is never read.
        far.write_all(b"an acknowledgement").unwrap();
        lingering.take(near, b"the end".to_vec());
        let mut got = vec![0; sent / 2];
        far.read_exact(&mut got).unwrap();
        far.write_all(b"and one more").unwrap();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), sent + b"the end".len());
        assert!(got.ends_with(b"the end"));
        drop(far);
        while lingering.places.available_permits() < PLACES {
            std::thread::yield_now();
        }
    }

    #[test]
    fn there_are_only_so_many_places() {
        let runtime = runtime();
        let lingering = LingeringConnections::on(runtime.handle().clone());
        let mut staying = Vec::new();
        for _ in 0..PLACES {
            let (near, far) = pair();
            lingering.take(near, Vec::new());
            staying.push(far);
        }
        assert_eq!(lingering.places.available_permits(), 0);
        let (near, mut far) = pair();
        lingering.take(near, b"lost".to_vec());
        assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn nothing_stays_once_the_daemon_has_ended() {
        let runtime = runtime();
        let lingering = LingeringConnections::on(runtime.handle().clone());
        runtime.shutdown_timeout(Duration::from_millis(200));
        let (near, mut far) = pair();
        lingering.take(near, b"lost".to_vec());
        assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert_eq!(lingering.places.available_permits(), PLACES);
    }
}
