use super::relay::{port_beside, relay};
use super::*;

#[test]
fn udp_that_answers_is_waited_for_however_much_it_loses() {
    let fixture = Fixture::start();
    let (port, udp) = port_beside(fixture.address);
    let begin = std::time::Instant::now();
    // Something comes, but no answer before TCP would have been used.
    let late = move || begin.elapsed() > crate::dial::UDP_PATIENCE + Duration::from_millis(200);
    relay(udp, fixture.address, move |datagram| datagram.is_from_client || late());
    let target = DaemonTarget { port, ..fixture.target() };
    let near = connect_asking(&target, params(true, 1), &nobody, &Handle::new()).unwrap();
    assert_eq!(near.session.transport, Transport::Udp);
    assert!(near.session.warnings.is_empty(), "{:?}", near.session.warnings);
}

#[test]
fn a_client_says_everything_twice_and_may_lose_every_second_datagram() {
    let fixture = Fixture::start();
    let (port, udp) = port_beside(fixture.address);
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let said = Arc::clone(&heard);
    relay(udp, fixture.address, move |datagram| {
        if datagram.is_from_client {
            said.lock().unwrap().push(datagram.bytes.to_vec());
        }
        !datagram.is_from_client || datagram.count % 2 == 1
    });
    let target = DaemonTarget { port, ..fixture.target() };
    let near = connect_asking(&target, params(true, 1), &nobody, &Handle::new()).unwrap();
    assert_eq!(near.session.transport, Transport::Udp);
    // Their number depends on the machine: a slow one repeats what it believes to be lost.
    let heard = heard.lock().unwrap();
    let (pairs, _) = heard.as_chunks::<2>();
    assert!(pairs.len() >= 3, "{} datagrams", heard.len());
    assert!(pairs.iter().all(|[first, second]| first == second));
}

#[test]
fn silent_udp_gives_way_to_tcp_with_a_warning() {
    let fixture = Fixture::start();
    // Nothing comes back over UDP.
    let (port, _silence) = port_beside(fixture.address);
    let target = DaemonTarget { port, ..fixture.target() };
    let near = connect_asking(&target, params(true, 4), &nobody, &Handle::new()).unwrap();
    assert_eq!(near.session.transport, Transport::Tcp);
    assert_eq!(near.session.flows.len(), 1);
    assert!(near.session.warnings[0].contains(&format!("UDP port {port}")), "{:?}", near.session.warnings);
    let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(near.session.master, far.session.master);
}

#[test]
fn nothing_listening_is_told_at_once() {
    let fixture = Fixture::start();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = DaemonTarget { port: free, ..fixture.target() };
    let error = connect_asking(&target, params(false, 1), &nobody, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains(&format!("nothing listens on port {free}")), "{error}");
    let target = DaemonTarget { host: "no.such.host.invalid".into(), ..fixture.target() };
    let error = connect_asking(&target, params(false, 1), &nobody, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains("cannot find the host"), "{error}");
}
