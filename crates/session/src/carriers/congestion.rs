//! TCP under a carrier: which congestion control it uses, and how the user gets a better one.
//!
//! Always true: a setting that the kernel refuses is no error; the transfer goes on without it.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use farhaul_net::StreamLink;
use socket2::SockRef;

/// BBR holds its rate where packets are lost at random; Cubic does not.
const WANTED: &str = "bbr";
/// The most unsent bytes in a socket. They are enough for what the link carries while its thread sleeps (2 ms
/// at 1 Gbit/s), and few enough that a slow connection does not hold back what a fast one could carry.
const UNSENT_BYTES: u32 = 256 << 10;
/// The most bytes that wait in front of the socket, for the same reason.
pub const WAITING_BYTES: usize = 128 << 10;
const SETTINGS: &str = "/proc/sys/net/ipv4/tcp_";

/// Makes a connection ready to carry packets. The congestion control is set only once the connection is
/// established, because a route may name one that replaces what was set before.
pub fn prepare(stream: &TcpStream) -> io::Result<PreparedSocket> {
    let socket = SockRef::from(stream);
    // Without these the connection is slower, and that is all.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
    let in_use = || {
        let name = socket.tcp_congestion().unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_string()
    };
    if !is_good(&in_use()) {
        let _ = socket.set_tcp_congestion(WANTED.as_bytes());
    }
    Ok(PreparedSocket { congestion: in_use(), socket: stream.try_clone()?.into() })
}

/// A TCP connection's congestion control, and a second descriptor of its socket.
pub struct PreparedSocket {
    congestion: String,
    socket: OwnedFd,
}

impl PreparedSocket {
    /// A carrier over this connection.
    pub fn carrier(self, link: StreamLink) -> StreamLink {
        link.with_room(WAITING_BYTES).over_tcp(self.congestion, self.socket)
    }
}

/// Returns whether this congestion control holds its rate in spite of random loss.
pub(crate) fn is_good(name: &str) -> bool {
    name.starts_with(WANTED)
}

/// Advice for the user of the sending host, if its TCP uses a congestion control that slows down with loss.
pub(crate) fn advice(in_use: &str) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(format!("{SETTINGS}{name}")).unwrap_or_default();
    (!is_good(in_use)).then(|| {
        advice_for(in_use, &read("available_congestion_control"), &read("allowed_congestion_control"))
    })
}

fn advice_for(in_use: &str, available: &str, allowed: &str) -> String {
    let has = |list: &str| list.split_whitespace().any(|name| name == WANTED);
    let allow = format!(
        "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} {WANTED}\"",
        allowed.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let what = match (has(available), has(allowed)) {
        (true, true) => format!("let its route have {WANTED} (ip route ... congctl {WANTED})"),
        (true, false) => allow,
        (false, _) => format!("modprobe tcp_{WANTED}; {allow}"),
    };
    format!("the sender's TCP uses {in_use}, which slows down where packets get lost; there, as root: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_says_what_is_missing() {
        let text = advice_for("cubic", "reno cubic\n", "reno cubic\n");
        assert!(text.contains("modprobe tcp_bbr; sysctl -w"), "{text}");
        assert!(text.ends_with("tcp_allowed_congestion_control=\"reno cubic bbr\""), "{text}");
        let text = advice_for("cubic", "reno bbr cubic", "reno cubic");
        assert!(text.contains("as root: sysctl -w") && !text.contains("modprobe"), "{text}");
        assert!(advice_for("cubic", "reno bbr cubic", "reno bbr").contains("congctl bbr"));
        assert_eq!(advice("bbr2"), None);
    }

    #[test]
    fn a_connection_says_which_control_it_has() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let name = prepare(&stream).unwrap().congestion;
        assert!(!name.is_empty() && !name.contains('\0'), "{name:?}");
        assert!(stream.nodelay().unwrap());
    }
}
