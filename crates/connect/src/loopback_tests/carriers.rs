use farhaul_session::setup::FlowLink;

use super::relay::{port_leading_to, relay};
use super::*;

#[test]
fn over_udp_both_ends_have_the_same_secret_and_data_reach_the_session() {
    let fixture = Fixture::start();
    let (mut near, mut far) = fixture.connect(true);
    assert_eq!(near.session.transport, Transport::Udp);
    assert_eq!(near.session.master, far.session.master);
    assert_ne!(*near.session.master, [0; 32]);
    assert_eq!(far.opening, near.opening);
    assert!(near.features.has("juggling") && far.features == near.features);
    assert_eq!((&near.terms[..], &far.terms[..]), (&b"agreed"[..], &b"agreed"[..]));
    assert_eq!((near.session.flows.len(), far.session.flows.len()), (2, 2));
    assert!(near.session.warnings.is_empty());
    for (near, far) in near.session.flows.iter_mut().zip(&mut far.session.flows) {
        assert_eq!((near.index, near.send_id, near.recv_id), (far.index, far.recv_id, far.send_id));
        let FlowLink::Udp { socket, candidates } = &mut near.link else { panic!("UDP was expected") };
        let FlowLink::Accept { first, socket: accept, .. } = &far.link else {
            panic!("an accepted flow was expected")
        };

        // The first datagram comes through the listening socket.
        let packet =
            [&farhaul_proto::PacketHeader { flow_id: near.send_id, number: 1 }.encode()[..], &[1; 30]]
                .concat();
        let mut out = SendBatch::new(4096);
        out.to(Some(candidates[0]));
        out.datagram(packet.len()).unwrap().copy_from_slice(&packet);
        assert_eq!(socket.send(&mut out).unwrap(), SendStatus::All);
        let datagram = first.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(datagram.bytes, packet);
        assert_eq!(datagram.local, fixture.address);
        assert_eq!(datagram.from.port(), socket.local_addr().unwrap().port());

        // All others come through the session's own socket, both ways.
        let mut twin = accept.connect(datagram.local, datagram.from).unwrap();
        carry(socket, &mut *twin, near.send_id, Some(candidates[0]));
        carry(&mut *twin, socket, near.recv_id, None);
        assert!(first.is_empty());
    }

    // While they run, other clients can come, over UDP or TCP.
    let (second, _) = fixture.connect(true);
    assert_eq!(second.session.transport, Transport::Udp);
    assert_ne!(second.session.master, near.session.master);
}

#[test]
fn over_tcp_both_ends_have_the_same_secret_and_packets_pass() {
    let fixture = Fixture::start();
    let (mut near, mut far) = fixture.connect(false);
    assert_eq!((near.session.transport, far.session.transport), (Transport::Tcp, Transport::Tcp));
    assert_eq!(near.session.master, far.session.master);
    assert!(near.session.warnings.is_empty(), "nobody asked for UDP");
    let (near, far) = (&mut near.session.flows[0], &mut far.session.flows[0]);
    assert_eq!((near.send_id, near.recv_id), (far.recv_id, far.send_id));
    let (FlowLink::Stream(near), FlowLink::Stream(far)) = (&mut near.link, &mut far.link) else {
        panic!("streams were expected")
    };
    for _ in 0..3 {
        carry(near, far, 1, None);
        carry(far, near, 2, None);
    }
}

fn stream_of(established: EstablishedSession) -> farhaul_net::StreamLink {
    match established.session.flows.into_iter().next().unwrap().link {
        FlowLink::Stream(link) => link,
        _ => panic!("a stream was expected"),
    }
}

/// Fills a link until it takes no more; returns how many packets it took. Their first bytes count them.
fn fill(link: &mut dyn Link) -> u32 {
    let mut count = 0u32;
    loop {
        let mut out = SendBatch::new(4096);
        out.datagram(1000).unwrap()[..4].copy_from_slice(&count.to_be_bytes());
        if link.send(&mut out).unwrap() == SendStatus::Blocked {
            return count;
        }
        count += 1;
    }
}

#[test]
fn a_slow_client_gets_all_that_the_daemon_sent_before_it_left() {
    let fixture = Fixture::start();
    let (near, far) = fixture.connect(false);
    let (mut near, mut far) = (stream_of(near), stream_of(far));
    let sent = fill(&mut far);
    // The daemon leaves without reading this.
    fill(&mut near);
    drop(far);
    let mut batch = RecvBatch::new();
    let mut got = 0u32;
    let ended = loop {
        match near.recv(&mut batch) {
            Ok(_) => {}
            Err(error) => break error,
        }
        for datagram in batch.datagrams() {
            assert_eq!(datagram.bytes[..4], got.to_be_bytes());
            got += 1;
        }
    };
    assert_eq!((got, ended.kind()), (sent, std::io::ErrorKind::UnexpectedEof), "{ended}");
}

#[test]
fn a_session_gets_further_carriers_by_its_ticket() {
    let fixture = Fixture::start();
    let (mut near, mut far) = fixture.connect(true);
    // The indices behind the two flows and all that may replace them.
    let first = 2 * GENERATIONS as u16;
    for expected in [first, first + 1] {
        let mut near_flow = near.session.fallback.open().unwrap().expect("a dialled carrier");
        let CarrierFallback::Await(arrived) = &far.session.fallback else {
            panic!("the daemon awaits carriers")
        };
        let mut far_flow = arrived.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!((near_flow.index, far_flow.index), (expected, expected));
        assert_eq!((near_flow.send_id, near_flow.recv_id), (far_flow.recv_id, far_flow.send_id));
        let (FlowLink::Stream(near_link), FlowLink::Stream(far_link)) =
            (&mut near_flow.link, &mut far_flow.link)
        else {
            panic!("streams were expected")
        };
        carry(near_link, far_link, 1, None);
        carry(far_link, near_link, 1, None);
    }
    assert!(far.session.fallback.open().unwrap().is_none());
    drop(far);
    let error = near.session.fallback.open().err().expect("the session has ended");
    assert!(error.code() == Code::PeerEnded && error.what().contains("has ended"), "{error}");
}

#[test]
fn a_further_carrier_shows_the_key_of_its_session() {
    let fixture = Fixture::start();
    let other = another_for(&fixture);
    let tcp = Arc::new(std::sync::Mutex::new(fixture.address));
    let (port, udp) = port_leading_to(Arc::clone(&tcp));
    relay(udp, fixture.address, |_| true);
    // At first use the client accepts any key, but from then on only that one.
    let target = DaemonTarget { port, ..fixture.target() };
    let mut near = connect_asking(&target, params(true, 1), &nobody, &Handle::new()).unwrap();
    assert_eq!((near.session.transport, near.peer_key.as_deref()), (Transport::Udp, Some(&*fixture.key())));
    near.session.fallback.open().unwrap().expect("a carrier of the session");
    *tcp.lock().unwrap() = other.address;
    let error = near.session.fallback.open().err().expect("another server's carrier");
    assert!(error.exit_code() == ExitCode::Auth, "{error:?}");
    assert!(error.to_string().contains(&other.key()), "{error}");
}

/// Sends one frame over TCP, and reads the other end's.
fn say(fixture: &Fixture, frame: &impl serde::Serialize) -> HelloReply {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let identity = Identity::load(&fixture.path("client")).unwrap();
    let (config, _) = tls::client_config(&identity, tls::KeyPin::OneOf(vec![fixture.key()])).unwrap();
    let body = runtime.block_on(async {
        let mut tls = tcp::connect(Arc::new(config), fixture.address).await.unwrap();
        tls.write_frame(frame).await.unwrap();
        tls.read_frame().await.unwrap()
    });
    crate::hello::decode_reply(&body).unwrap()
}

#[test]
fn a_flow_index_is_taken_once_and_only_behind_those_of_the_hello() {
    let fixture = Fixture::start();
    let reply = say(&fixture, &Hello::new(params(false, 1).opening, Features::default(), vec![7], false));
    let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).unwrap();
    let CarrierFallback::Await(arrived) = &far.session.fallback else { panic!("the daemon awaits carriers") };
    let mut taken = Vec::new();
    for index in [0, 1, 5, 1, 5, 2, u16::MAX, 2] {
        let attach = Attach::new(reply.ticket.clone().unwrap(), 9, index);
        match say(&fixture, &attach).refusal {
            None => taken.push(arrived.recv_timeout(Duration::from_secs(5)).unwrap().index),
            Some(refusal) => assert!(refusal.text.contains(&format!("index {index}")), "{refusal:?}"),
        }
    }
    assert_eq!(taken, [1, 5, 2]);
}

#[test]
fn the_answer_to_an_attach_does_not_choose_the_flow_index() {
    let fixture = Fixture::start();
    // A server that has the right key, and sends what it likes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, identity) =
        (listener.local_addr().unwrap().port(), Identity::load(&fixture.path("host")).unwrap());
    let authenticator =
        Arc::new(AuthorizedKeys::load(&fixture.path("authorized"), KeyBounds::default()).unwrap());
    let tables = client_tables::ClientTables {
        authenticator,
        grants: Default::default(),
        registry: Default::default(),
    };
    let (config, _) = tls::server_config(&identity, tables).unwrap();
    relay(UdpSocket::bind(("127.0.0.1", port)).unwrap(), fixture.address, |_| true);
    listener.set_nonblocking(true).unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut tls) = tcp::accept(Arc::clone(&config), stream).await else { continue };
                if tls.read_frame().await.is_ok() {
                    let mut reply = serde_json::to_value(HelloReply::accept(vec![3])).unwrap();
                    reply["flow_index"] = 0.into();
                    tls.write_frame(&reply).await.unwrap();
                }
            }
        });
    });
    let target = DaemonTarget { port, ..fixture.target() };
    let mut near = connect_asking(&target, params(true, 1), &nobody, &Handle::new()).unwrap();
    let first = GENERATIONS as u16;
    for expected in [first, first + 1] {
        assert_eq!(near.session.fallback.open().unwrap().unwrap().index, expected);
    }
}
