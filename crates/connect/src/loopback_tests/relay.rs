//! A way between client and daemon on which the test decides what gets through.

use super::*;

/// A port whose TCP leads to the daemon, and whose UDP is the test's.
pub(super) fn port_beside(daemon: SocketAddr) -> (u16, UdpSocket) {
    port_leading_to(Arc::new(std::sync::Mutex::new(daemon)))
}

/// The same; connections go to the daemon that `daemon` names at that time.
pub(super) fn port_leading_to(daemon: Arc<std::sync::Mutex<SocketAddr>>) -> (u16, UdpSocket) {
    let outer = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outer.local_addr().unwrap().port();
    let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for client in outer.incoming() {
            let daemon = *daemon.lock().unwrap();
            let (client, server) = (client.unwrap(), TcpStream::connect(daemon).unwrap());
            for (mut from, mut to) in
                [(server.try_clone().unwrap(), client.try_clone().unwrap()), (client, server)]
            {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (port, udp)
}

/// A datagram on its way through a relay, the `count`th from its end.
pub(super) struct RelayedDatagram<'a> {
    pub(super) is_from_client: bool,
    pub(super) count: u32,
    pub(super) bytes: &'a [u8],
}

/// Relays datagrams between the client at `outer` and the daemon, if `passes` lets them. The client gets
/// rubbish in place of datagrams that do not pass.
pub(super) fn relay(
    outer: UdpSocket,
    daemon: SocketAddr,
    passes: impl Fn(RelayedDatagram) -> bool + Send + Sync + 'static,
) {
    let passes = Arc::new(passes);
    let inner = UdpSocket::bind("127.0.0.1:0").unwrap();
    inner.connect(daemon).unwrap();
    let (back, to_client) = (inner.try_clone().unwrap(), outer.try_clone().unwrap());
    let client = Arc::new(std::sync::Mutex::new(None));
    let (known, let_back) = (Arc::clone(&client), Arc::clone(&passes));
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        for count in 0.. {
            let Ok(len) = back.recv(&mut bytes) else { return };
            let client = known.lock().unwrap().expect("the client speaks first");
            let bytes = &bytes[..len];
            let told =
                if let_back(RelayedDatagram { is_from_client: false, count, bytes }) { bytes } else { &[0] };
            let _ = to_client.send_to(told, client);
        }
    });
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        for count in 0.. {
            let Ok((len, from)) = outer.recv_from(&mut bytes) else { return };
            *client.lock().unwrap() = Some(from);
            let bytes = &bytes[..len];
            if passes(RelayedDatagram { is_from_client: true, count, bytes }) {
                let _ = inner.send(bytes);
            }
        }
    });
}
