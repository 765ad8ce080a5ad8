//! Both ends in one process, and a far end that breaks the protocol.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};

use farhaul_copy::Location;
use farhaul_session::options::NetworkOptions;
use farhaul_words::Code;

use crate::{Target, Tunnel};

fn tunnel() -> Tunnel {
    Tunnel::open(&Location::Local("/".into()), NetworkOptions::default()).unwrap()
}

/// A server that sends back what it gets, up to the end; its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut &stream, &mut &stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

#[test]
fn what_a_program_writes_comes_back_and_an_end_is_an_end() {
    let (tunnel, port) = (tunnel(), echo());
    let content: Vec<u8> = (0..3_000_000u32).map(|byte| (byte * 31 % 251) as u8).collect();
    let mut stream = tunnel.connect("127.0.0.1", port).unwrap();
    let writing = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&writing).write_all(&content).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == content);
    });
    tunnel.finish().unwrap();
}

#[test]
fn a_target_that_refuses_is_an_error_with_a_code() {
    let tunnel = tunnel();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let code = |host: &str, port| tunnel.connect(host, port).unwrap_err().code();
    assert_eq!(code("127.0.0.1", free), Code::TargetRefused);
    assert_eq!(code("no such host", 1), Code::BadRequest);
    assert_eq!(code("127.0.0.1", 0), Code::BadRequest);
}

#[test]
fn a_connection_that_is_reset_is_no_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tunnel = tunnel();
    let mut stream = tunnel.connect("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
    let (far, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    let error = stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn the_far_end_listens_and_connections_lead_to_this_one() {
    let (tunnel, port) = (tunnel(), echo());
    let far = tunnel.listen("", 0, Target { host: "127.0.0.1".into(), port }).unwrap();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", far)).unwrap();
    stream.write_all(b"from there").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).unwrap();
    assert_eq!(back, "from there");
    drop(tunnel);
}
