use super::*;

#[test]
fn a_refusal_comes_as_an_error_of_its_kind() {
    let fixture = Fixture::start();
    for udp in [true, false] {
        let mut params = params(udp, 1);
        params.opening.request = b"/forbidden/x".to_vec();
        let error = connect_asking(&fixture.target(), params, &nobody, &Handle::new()).unwrap_err();
        assert!(error.code() == Code::Forbidden && error.what() == "not for you", "{error:?}");
    }
}

#[test]
fn silent_connections_of_a_neighbour_do_not_lock_out_a_client() {
    let fixture = Fixture::start();
    let open = || {
        let stream = TcpStream::connect(fixture.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let mut held: Vec<TcpStream> = (0..PER_ADDRESS_MAX).map(|_| open()).collect();
    let mut alert = Vec::new();
    open().read_to_end(&mut alert).unwrap();
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 80], "a client without a place is told so");
    let first = held.first_mut().unwrap();
    first.set_nonblocking(true).unwrap();
    assert!(first.read(&mut [0]).is_err(), "a client that has just come must not be evicted");
    for datagrams in [false, true] {
        let (near, far) = fixture.connect(datagrams);
        assert_eq!(near.session.master, far.session.master);
    }
    held[0].set_nonblocking(false).unwrap();
    assert_eq!(held[0].read(&mut [0]).unwrap(), 0, "the oldest makes room");
    let newest = held.last_mut().unwrap();
    newest.set_nonblocking(true).unwrap();
    assert!(newest.read(&mut [0]).is_err(), "a few clients take a few places");
}

#[test]
fn a_client_that_is_turned_away_comes_again_and_says_so_in_the_end() {
    let fixture = Fixture::start();
    let _held: Vec<TcpStream> =
        (0..PER_ADDRESS_MAX).map(|_| TcpStream::connect(fixture.address).unwrap()).collect();
    for datagrams in [false, true] {
        let hasty = DaemonTarget { busy_wait: Duration::ZERO, ..fixture.target() };
        let error = connect_asking(&hasty, params(datagrams, 1), &nobody, &Handle::new()).unwrap_err();
        assert!(error.code() == Code::Busy, "{error:?}");
        assert!(error.to_string().contains("is busy: too many clients"), "{error}");
    }
    // Over UDP, too, although TCP would do.
    let (near, _far) = fixture.connect(true);
    assert_eq!(near.session.transport, Transport::Udp);
}

#[test]
fn a_daemon_that_is_ending_lets_no_session_in_and_those_that_run_get_further_carriers() {
    let fixture = Fixture::start();
    let (mut near, far) = fixture.connect(true);
    fixture.stop.shut();
    let hasty = DaemonTarget { busy_wait: Duration::ZERO, ..fixture.target() };
    for datagrams in [false, true] {
        let error = connect_asking(&hasty, params(datagrams, 1), &nobody, &Handle::new()).unwrap_err();
        assert!(error.code() == Code::Busy, "{error:?}");
        assert!(error.to_string().contains("is busy: the daemon is ending"), "{error}");
    }
    let flow = near.session.fallback.open().unwrap().expect("a dialled carrier");
    let CarrierFallback::Await(arrived) = &far.session.fallback else { panic!("the daemon awaits carriers") };
    assert_eq!(arrived.recv_timeout(Duration::from_secs(5)).unwrap().index, flow.index);
}

#[test]
fn a_crowd_behind_one_address_gets_in() {
    let fixture = Fixture::start();
    let known = format!("127.0.0.1:{} {}\n", fixture.address.port(), fixture.key());
    std::fs::write(fixture.path("known_hosts"), known).unwrap();
    let clients: Vec<_> = (0..3 * PER_ADDRESS_MAX)
        .map(|number| {
            let target = fixture.target();
            let connect =
                move || connect_asking(&target, params(number % 2 == 0, 1), &nobody, &Handle::new());
            std::thread::spawn(move || connect().map(|near| *near.session.master))
        })
        .collect();
    let mut near = std::collections::HashSet::new();
    for client in clients {
        assert!(near.insert(client.join().unwrap().expect("it is let in")), "a secret of its own");
    }
    while !near.is_empty() {
        let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).expect("each client has a session");
        near.remove(&*far.session.master);
    }
}

#[test]
fn under_load_a_client_over_udp_returns_a_token_and_gets_in() {
    let fixture = Fixture::start();
    let held: Vec<TcpStream> =
        (0..UNVALIDATED_MAX).map(|_| TcpStream::connect(fixture.address).unwrap()).collect();
    let (near, far) = fixture.connect(true);
    assert_eq!((near.session.transport, far.session.transport), (Transport::Udp, Transport::Udp));
    assert_eq!(near.session.master, far.session.master);
    drop(held);
}

#[test]
fn a_session_is_in_the_named_caps_of_its_principal_and_address() {
    let now = std::time::Instant::now();
    let host = Budget::of_process().rate_cap().beside("host", Some(900_000), now);
    let uplink = host.within("campus-uplink", Some(600_000), now);
    let known = uplink.clone();
    let caps: Arc<CapAssigner> = Arc::new(move |principal, far| {
        assert!(far.address.is_loopback() && far.called.is_none() && principal.comment == "client");
        vec![CapMembership { cap: known.clone(), weight: 2.0 }].into()
    });
    let fixture = Fixture::start_as(FixtureSetup { caps: Some(caps), ..FixtureSetup::default() });
    let [(_, first), (_, second)] = [true, false].map(|udp| fixture.connect(udp));
    let bps = |session: &EstablishedSession| session.session.rate_shares.bps();
    assert_eq!([bps(&first), bps(&second)], [Some(300_000); 2]);
    assert_eq!((uplink.usage().sessions, host.usage().given_bps), (2, 600_000));
    drop(first);
    assert_eq!(bps(&second), Some(600_000));
    // A client that comes when nothing is left is told whose rate is used up.
    uplink.set_most(Some(8_000), now);
    let refused = connect_asking(&fixture.target(), params(true, 2), &nobody, &Handle::new()).unwrap_err();
    assert_eq!(refused.code(), Code::Busy);
    assert!(refused.to_string().contains("the rate of campus-uplink is used up (8000 bit/s)"), "{refused}");
}

/// Connects without waiting for the reply, and then waits for it.
fn connect_early(fixture: &Fixture, path: &str) -> (EstablishedSession, Option<ReplyResult>) {
    let mut params = HelloParams { early: true, ..params(true, 2) };
    params.opening.request = path.into();
    let near = connect_asking(&fixture.target(), params, &nobody, &Handle::new()).unwrap();
    let pending = near.session.pending.as_ref().expect("nobody has waited for the reply");
    let answer = (0..2000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        pending.take()
    });
    (near, answer)
}

#[test]
fn a_session_that_begins_before_the_reply_has_the_ids_that_the_daemon_agrees_to() {
    let fixture = Fixture::start();
    let (near, answer) = connect_early(&fixture, "/incoming");
    let far = fixture.sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let Some(Ok(SessionAgreement { flow_ids, fallback })) = answer else { panic!("the daemon agrees") };
    assert_eq!(near.session.master, far.session.master);
    assert!(matches!(fallback, CarrierFallback::Dial(_)));
    for (near, far) in near.session.flows.iter().zip(&far.session.flows) {
        assert_eq!((near.send_id, near.recv_id), (far.recv_id, far.send_id));
        assert_eq!(flow_ids[usize::from(near.index)], near.send_id);
    }
    let known = std::fs::read_to_string(fixture.path("known_hosts")).unwrap();
    assert!(known.contains(&fixture.key()), "{known}");
}

#[test]
fn a_session_that_begins_before_a_refusal_hears_of_it_and_keeps_no_key() {
    let fixture = Fixture::start();
    let (_near, answer) = connect_early(&fixture, "/forbidden");
    let Some(Err(SessionRefusal { error, then })) = answer else { panic!("the daemon refuses") };
    assert!(error.code() == Code::Forbidden && error.what() == "not for you", "{error}");
    assert!(then == ReplyAction::End && !fixture.path("known_hosts").exists());
}
