use super::*;

/// Both sockets of a port of the loopback interface, as a service manager makes them.
fn bound_by_another() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
}

#[test]
fn a_daemon_listens_on_sockets_that_it_is_handed() {
    let (udp, tcp) = bound_by_another();
    let kept = (udp.try_clone().unwrap(), tcp.try_clone().unwrap());
    let address = tcp.local_addr().unwrap();
    let held = HeldSockets { udp: vec![udp], tcp: vec![tcp] };
    let fixture = Fixture::start_as(FixtureSetup { held, ..FixtureSetup::default() });
    assert_eq!(fixture.address, address);
    for datagrams in [true, false] {
        let (near, far) = fixture.connect(datagrams);
        assert_eq!(near.session.transport, if datagrams { Transport::Udp } else { Transport::Tcp });
        assert_eq!(near.session.master, far.session.master);
    }
    drop(fixture);
    // Their maker keeps them for the next daemon.
    let held = HeldSockets { udp: vec![kept.0], tcp: vec![kept.1] };
    assert_eq!(Fixture::start_as(FixtureSetup { held, ..FixtureSetup::default() }).address, address);
}

#[test]
fn sockets_that_are_handed_over_are_two_for_each_address() {
    let ((udp, tcp), (other, _)) = (bound_by_another(), bound_by_another());
    let named = other.local_addr().unwrap();
    let error = HeldSockets { udp: vec![udp.try_clone().unwrap(), other], tcp: vec![tcp] }.paired();
    let error = error.expect_err("one has no TCP beside it");
    assert!(
        error.code() == Code::BadConfig && error.to_string().contains(&format!("UDP {named}")),
        "{error}"
    );
    let (_, tcp) = bound_by_another();
    let error = HeldSockets { udp: vec![], tcp: vec![tcp] }.paired().expect_err("there is no UDP beside it");
    assert!(error.to_string().contains("without UDP"), "{error}");
}

#[test]
fn a_second_daemon_on_the_same_port_is_refused() {
    let fixture = Fixture::start();
    let result = Daemon::bind(ListenConfig {
        held: HeldSockets::default(),
        memory: MemoryLimits::default(),
        within: Budget::of_process(),
        rate_max_bps: None,
        caps: None,
        listen: vec![fixture.address],
        identity: Identity::load(&fixture.path("host")).unwrap(),
        authenticator: Arc::new(
            AuthorizedKeys::load(&fixture.path("authorized"), KeyBounds::default()).unwrap(),
        ),
        admit: Arc::new(|_, client| all_of(client)),
    });
    assert!(matches!(result, Err(error) if error.code() == Code::CannotListen && error.hint().is_some()));
}
