//! Client and daemon in one process, over real sockets of the loopback interface.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use farhaul_net::{Link, RecvBatch, SendBatch, SendStatus};
use farhaul_session::budget::{Budget, MemoryLimits};
use farhaul_session::error::{Code, ExitCode};
use farhaul_session::handle::Handle;
use farhaul_session::hello_reply::{ReplyAction, ReplyResult, SessionAgreement, SessionRefusal};
use farhaul_session::options::NetworkOptions;
use farhaul_session::rate_cap::CapMembership;
use farhaul_session::setup::{CarrierFallback, Transport};

use super::dial::connect_asking;
use super::half_open::{PER_ADDRESS_MAX, UNVALIDATED_MAX};
use super::hello::{Attach, GENERATIONS, Hello, HelloReply, Refusal};
use super::*;

/// Bounds that allow any files.
fn served() -> KeyBounds {
    KeyBounds { root: vec!["/srv".into()], ..KeyBounds::default() }
}

/// Allows whatever the client asks for.
fn all_of(client: &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    let admitted = AdmissionReply { features: Features::of(&["juggling"]), terms: b"agreed".to_vec() };
    Ok((
        admitted,
        client.rights.judge(RightsRequest {
            way: ContentDirection::Read,
            cipher: Cipher::default(),
            copy: None,
        })?,
    ))
}

/// A daemon that hands its sessions to the test.
struct Fixture {
    folder: tempfile::TempDir,
    address: SocketAddr,
    sessions: Receiver<EstablishedSession>,
    stop: DaemonStop,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fixture {
    fn start() -> Fixture {
        Fixture::start_within(None)
    }

    fn start_within(caps: Option<Arc<CapAssigner>>) -> Fixture {
        Fixture::start_of(caps, |opening, client| match opening.request.starts_with(b"/forbidden") {
            true => Err(Refusal::new(Code::Forbidden, "not for you")),
            false => all_of(client),
        })
    }

    fn start_with(
        admit: impl Fn(&SessionOpening, &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal>
        + Send
        + Sync
        + 'static,
    ) -> Fixture {
        Fixture::start_of(None, admit)
    }

    fn start_of(
        caps: Option<Arc<CapAssigner>>,
        admit: impl Fn(&SessionOpening, &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal>
        + Send
        + Sync
        + 'static,
    ) -> Fixture {
        Fixture::start_on(HeldSockets::default(), caps, admit)
    }

    fn start_on(
        held: HeldSockets,
        caps: Option<Arc<CapAssigner>>,
        admit: impl Fn(&SessionOpening, &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal>
        + Send
        + Sync
        + 'static,
    ) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        keygen(&path("client"), "client").unwrap();
        std::fs::copy(path("client.pub"), path("authorized")).unwrap();
        let daemon = Daemon::bind(ListenConfig {
            held,
            memory: MemoryLimits::default(),
            rate_max_bps: None,
            caps,
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            identity: Identity::load_or_generate(&path("host"), "").unwrap(),
            authenticator: Arc::new(AuthorizedKeys::load(&path("authorized"), served()).unwrap()),
            admit: Arc::new(admit),
        })
        .unwrap();
        let address = daemon.local_addrs()[0];
        let stop = daemon.stop_handle();
        let (sender, sessions) = crossbeam_channel::unbounded();
        let run = move || daemon.run(Arc::new(move |established| sender.send(established).unwrap())).unwrap();
        let thread = Some(std::thread::spawn(run));
        Fixture { folder, address, sessions, stop, thread }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self) -> String {
        Identity::load(&self.path("host")).unwrap().fingerprint()
    }

    fn target(&self) -> DaemonTarget {
        DaemonTarget {
            host: "127.0.0.1".into(),
            port: self.address.port(),
            identity_file: Some(self.path("client")),
            known_hosts_file: Some(self.path("known_hosts")),
            fingerprint: None,
            accept_new: true,
            ..DaemonTarget::default()
        }
    }

    fn connect(&self, udp: bool) -> (EstablishedSession, EstablishedSession) {
        let near = connect_asking(&self.target(), params(udp, 2), &|_| None, &Handle::new()).unwrap();
        let far = self.sessions.recv_timeout(Duration::from_secs(10)).unwrap();
        (near, far)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn params(udp: bool, flows: u16) -> HelloParams {
    let opening = test_opening(NetworkOptions { flows, ..NetworkOptions::default() });
    HelloParams { opening, features: Features::of(&["juggling"]), udp, early: false }
}

/// Sends one packet for flow `id`, and waits until it has arrived at the other link.
fn carry(from: &mut dyn Link, to: &mut dyn Link, id: u16, destination: Option<SocketAddr>) {
    let header = farhaul_proto::PacketHeader { flow_id: id, number: 77 }.encode();
    let packet = [&header[..], &[9; 40]].concat();
    let mut out = SendBatch::new(4096);
    out.to(destination);
    out.datagram(packet.len()).unwrap().copy_from_slice(&packet);
    assert_eq!(from.send(&mut out).unwrap(), SendStatus::All);
    let mut batch = RecvBatch::new();
    for _ in 0..1000 {
        if to.recv(&mut batch).unwrap() > 0 {
            assert_eq!(batch.datagrams().next().unwrap().bytes, packet);
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing arrived");
}

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

/// Another daemon, which lets the client of `fixture` in.
fn another_for(fixture: &Fixture) -> Fixture {
    let other = Fixture::start();
    std::fs::copy(fixture.path("client.pub"), other.path("authorized")).unwrap();
    other
}

#[test]
fn who_passes_tcp_on_and_answers_quic_with_a_key_of_his_own_is_neither_trusted_nor_kept() {
    let fixture = Fixture::start();
    let key = fixture.key();
    let mallory = another_for(&fixture);
    let between = || {
        let (port, udp) = port_beside(fixture.address);
        relay(udp, mallory.address, |datagram| {
            if datagram.is_from_client && datagram.count == 0 {
                std::thread::sleep(Duration::from_millis(150));
            }
            true
        });
        port
    };
    for (target, succeeds) in [
        (fixture.target(), false),
        (DaemonTarget { accept_new: false, ..fixture.target() }, false),
        (DaemonTarget { fingerprint: Some(key.clone()), ..fixture.target() }, true),
    ] {
        let _ = std::fs::remove_file(fixture.path("known_hosts"));
        let target = DaemonTarget { port: between(), ..target };
        let result =
            connect_asking(&target, params(true, 1), &|question| panic!("{question}"), &Handle::new());
        assert!(mallory.sessions.is_empty(), "nothing was asked of him");
        if succeeds {
            let near = result.unwrap();
            assert_eq!((near.session.transport, near.peer_key.as_deref()), (Transport::Tcp, Some(&*key)));
            let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).unwrap();
            assert_eq!(near.session.master, far.session.master);
            let kept = std::fs::read_to_string(fixture.path("known_hosts")).unwrap();
            assert_eq!(kept, format!("127.0.0.1:{} {key}\n", target.port));
            // Even when his key is known, he gets nothing.
            connect_asking(&target, params(true, 1), &|_| None, &Handle::new()).unwrap();
            assert_eq!(std::fs::read_to_string(fixture.path("known_hosts")).unwrap(), kept);
        } else {
            let error = result.unwrap_err();
            assert!(error.exit_code() == ExitCode::Auth, "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&key) && text.contains(&mallory.key()), "{text}");
            assert!(!fixture.path("known_hosts").exists());
        }
    }
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
    let mut near = connect_asking(&target, params(true, 1), &|_| None, &Handle::new()).unwrap();
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
    super::hello::decode_reply(&body).unwrap()
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
    let mut near = connect_asking(&target, params(true, 1), &|_| None, &Handle::new()).unwrap();
    let first = GENERATIONS as u16;
    for expected in [first, first + 1] {
        assert_eq!(near.session.fallback.open().unwrap().unwrap().index, expected);
    }
}

#[test]
fn an_unknown_client_is_refused_on_both_roads_and_told_what_to_do() {
    let fixture = Fixture::start();
    keygen(&fixture.path("stranger"), "").unwrap();
    let target = DaemonTarget { identity_file: Some(fixture.path("stranger")), ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&target, params(udp, 1), &|_| None, &Handle::new()).unwrap_err();
        assert!(error.exit_code() == ExitCode::Auth, "{error:?}");
        assert!(error.to_string().contains("does not know this key"), "{error}");
        assert!(error.hint().unwrap().contains("farhaul-ed25519 MCow"), "{error:?}");
    }
    assert!(fixture.sessions.is_empty());
}

#[test]
fn a_server_is_trusted_on_first_use_and_refused_when_its_key_changed() {
    let fixture = Fixture::start();
    let careful = DaemonTarget { accept_new: false, ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&careful, params(udp, 1), &|_| None, &Handle::new()).unwrap_err();
        assert!(error.to_string().contains("never seen before"), "{error}");
    }
    let error = connect_asking(&careful, params(true, 1), &|_| Some(false), &Handle::new()).unwrap_err();
    assert!(error.exit_code() == ExitCode::Auth);
    assert!(!fixture.path("known_hosts").exists());

    let key = Identity::load(&fixture.path("host")).unwrap().fingerprint();
    let asked = std::cell::Cell::new(0);
    let answer = |question: &str| {
        assert!(question.contains(&key), "{question}");
        asked.set(asked.get() + 1);
        Some(true)
    };
    let established = connect_asking(&careful, params(true, 1), &answer, &Handle::new()).unwrap();
    assert_eq!(established.peer_key.as_deref(), Some(key.as_str()));
    connect_asking(&careful, params(true, 1), &answer, &Handle::new()).unwrap();
    assert_eq!(asked.get(), 1, "the second time it is known");

    let line = format!("127.0.0.1:{} SHA256:other\n", fixture.address.port());
    std::fs::write(fixture.path("known_hosts"), line).unwrap();
    let eager = DaemonTarget { fingerprint: Some(key), ..fixture.target() };
    for udp in [true, false] {
        let error = connect_asking(&eager, params(udp, 1), &|_| Some(true), &Handle::new()).unwrap_err();
        assert!(error.to_string().contains("has changed"), "{error}");
    }
}

#[test]
fn a_refusal_comes_as_an_error_of_its_kind() {
    let fixture = Fixture::start();
    for udp in [true, false] {
        let mut params = params(udp, 1);
        params.opening.request = b"/forbidden/x".to_vec();
        let error = connect_asking(&fixture.target(), params, &|_| None, &Handle::new()).unwrap_err();
        assert!(error.code() == Code::Forbidden && error.what() == "not for you", "{error:?}");
    }
}

/// A port whose TCP leads to the daemon, and whose UDP is the test's.
fn port_beside(daemon: SocketAddr) -> (u16, UdpSocket) {
    port_leading_to(Arc::new(std::sync::Mutex::new(daemon)))
}

/// The same; connections go to the daemon that `daemon` names at that time.
fn port_leading_to(daemon: Arc<std::sync::Mutex<SocketAddr>>) -> (u16, UdpSocket) {
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
struct RelayedDatagram<'a> {
    is_from_client: bool,
    count: u32,
    bytes: &'a [u8],
}

/// Relays datagrams between the client at `outer` and the daemon, if `passes` lets them. The client gets
/// rubbish in place of datagrams that do not pass.
fn relay(
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

#[test]
fn udp_that_answers_is_waited_for_however_much_it_loses() {
    let fixture = Fixture::start();
    let (port, udp) = port_beside(fixture.address);
    let begin = std::time::Instant::now();
    // Something comes, but no answer before TCP would have been used.
    let late = move || begin.elapsed() > super::dial::UDP_PATIENCE + Duration::from_millis(200);
    relay(udp, fixture.address, move |datagram| datagram.is_from_client || late());
    let target = DaemonTarget { port, ..fixture.target() };
    let near = connect_asking(&target, params(true, 1), &|_| None, &Handle::new()).unwrap();
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
    let near = connect_asking(&target, params(true, 1), &|_| None, &Handle::new()).unwrap();
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
    let near = connect_asking(&target, params(true, 4), &|_| None, &Handle::new()).unwrap();
    assert_eq!(near.session.transport, Transport::Tcp);
    assert_eq!(near.session.flows.len(), 1);
    assert!(near.session.warnings[0].contains(&format!("UDP port {port}")), "{:?}", near.session.warnings);
    let far = fixture.sessions.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(near.session.master, far.session.master);
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
        let error = connect_asking(&hasty, params(datagrams, 1), &|_| None, &Handle::new()).unwrap_err();
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
        let error = connect_asking(&hasty, params(datagrams, 1), &|_| None, &Handle::new()).unwrap_err();
        assert!(error.code() == Code::Busy, "{error:?}");
        assert!(error.to_string().contains("is busy: the daemon is ending"), "{error}");
    }
    let flow = near.session.fallback.open().unwrap().expect("a dialled carrier");
    let CarrierFallback::Await(arrived) = &far.session.fallback else { panic!("the daemon awaits carriers") };
    assert_eq!(arrived.recv_timeout(Duration::from_secs(5)).unwrap().index, flow.index);
}

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
    let fixture = Fixture::start_on(held, None, |_, client| all_of(client));
    assert_eq!(fixture.address, address);
    for datagrams in [true, false] {
        let (near, far) = fixture.connect(datagrams);
        assert_eq!(near.session.transport, if datagrams { Transport::Udp } else { Transport::Tcp });
        assert_eq!(near.session.master, far.session.master);
    }
    drop(fixture);
    // Their maker keeps them for the next daemon.
    let held = HeldSockets { udp: vec![kept.0], tcp: vec![kept.1] };
    assert_eq!(Fixture::start_on(held, None, |_, client| all_of(client)).address, address);
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
fn a_crowd_behind_one_address_gets_in() {
    let fixture = Fixture::start();
    let known = format!("127.0.0.1:{} {}\n", fixture.address.port(), fixture.key());
    std::fs::write(fixture.path("known_hosts"), known).unwrap();
    let clients: Vec<_> = (0..3 * PER_ADDRESS_MAX)
        .map(|number| {
            let target = fixture.target();
            let connect =
                move || connect_asking(&target, params(number % 2 == 0, 1), &|_| None, &Handle::new());
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
fn nothing_listening_is_told_at_once() {
    let fixture = Fixture::start();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = DaemonTarget { port: free, ..fixture.target() };
    let error = connect_asking(&target, params(false, 1), &|_| None, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains(&format!("nothing listens on port {free}")), "{error}");
    let target = DaemonTarget { host: "no.such.host.invalid".into(), ..fixture.target() };
    let error = connect_asking(&target, params(false, 1), &|_| None, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains("cannot find the host"), "{error}");
}

#[test]
fn a_session_is_in_the_named_caps_of_its_principal_and_address() {
    let now = std::time::Instant::now();
    let host = Budget::of_process().rate_cap().beside("host", Some(900_000), now);
    let uplink = host.within("campus-uplink", Some(600_000), now);
    let known = uplink.clone();
    let fixture = Fixture::start_within(Some(Arc::new(move |principal, far| {
        assert!(far.address.is_loopback() && far.called.is_none() && principal.comment == "client");
        vec![CapMembership { cap: known.clone(), weight: 2.0 }].into()
    })));
    let [(_, first), (_, second)] = [true, false].map(|udp| fixture.connect(udp));
    let bps = |session: &EstablishedSession| session.session.rate_shares.bps();
    assert_eq!([bps(&first), bps(&second)], [Some(300_000); 2]);
    assert_eq!((uplink.usage().sessions, host.usage().given_bps), (2, 600_000));
    drop(first);
    assert_eq!(bps(&second), Some(600_000));
    // A client that comes when nothing is left is told whose rate is used up.
    uplink.set_most(Some(8_000), now);
    let refused = connect_asking(&fixture.target(), params(true, 2), &|_| None, &Handle::new()).unwrap_err();
    assert_eq!(refused.code(), Code::Busy);
    assert!(refused.to_string().contains("the rate of campus-uplink is used up (8000 bit/s)"), "{refused}");
}

#[test]
fn a_second_daemon_on_the_same_port_is_refused() {
    let fixture = Fixture::start();
    let result = Daemon::bind(ListenConfig {
        held: HeldSockets::default(),
        memory: MemoryLimits::default(),
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

/// Connects without waiting for the reply, and then waits for it.
fn connect_early(fixture: &Fixture, path: &str) -> (EstablishedSession, Option<ReplyResult>) {
    let mut params = HelloParams { early: true, ..params(true, 2) };
    params.opening.request = path.into();
    let near = connect_asking(&fixture.target(), params, &|_| None, &Handle::new()).unwrap();
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

#[test]
fn who_came_and_what_it_may_do_is_what_its_connection_proved() {
    let fixture = Fixture::start();
    let line = std::fs::read_to_string(fixture.path("authorized")).unwrap();
    let key = Identity::load(&fixture.path("client")).unwrap().fingerprint();
    for (udp, options, root) in
        [(true, "root=/srv/a ", "a"), (false, "read-only,root=/srv ", ""), (true, "", "")]
    {
        std::fs::write(fixture.path("authorized"), format!("{options}{line}")).unwrap();
        let (_near, far) = fixture.connect(udp);
        let guest = far.guest.unwrap();
        assert_eq!((guest.principal.id.name(), guest.principal.comment), (key.clone(), "client".into()));
        assert_eq!((guest.allowed.root().to_str(), far.peer_key.as_ref()), (Some(root), Some(&key)));
    }
    std::fs::write(fixture.path("authorized"), format!("read-olny {line}")).unwrap();
    let error = connect_asking(&fixture.target(), params(true, 1), &|_| None, &Handle::new()).unwrap_err();
    assert!(error.to_string().contains("does not know this key"), "{error}");
}

mod by_grant {
    use super::super::grants::GrantWish;
    use super::*;

    /// A daemon that knows alice's key, and bob's key, which it does not know.
    struct TwoKeyFixture {
        fixture: Fixture,
        bob: Identity,
        /// Alice's session, through which she gives grants.
        alice: EstablishedSession,
        _near: EstablishedSession,
    }

    const PATHS: fn() -> Vec<Vec<u8>> = || vec![b"in/x".to_vec()];

    impl TwoKeyFixture {
        fn start() -> TwoKeyFixture {
            let fixture = Fixture::start_with(|opening, client| {
                let paths = vec![opening.request.clone()];
                let copy = CopyReach {
                    paths: &paths,
                    has_more: false,
                    is_spread: false,
                    deletes: false,
                    follows: false,
                };
                let asked = RightsRequest {
                    way: ContentDirection::Write,
                    cipher: Cipher::default(),
                    copy: Some(copy),
                };
                Ok((AdmissionReply::default(), client.rights.judge(asked)?))
            });
            keygen(&fixture.path("bob"), "bob").unwrap();
            let bob = Identity::load(&fixture.path("bob")).unwrap();
            let near =
                connect_asking(&fixture.target(), asking(false, b"x"), &|_| None, &Handle::new()).unwrap();
            let alice = fixture.sessions.recv_timeout(Duration::from_secs(10)).unwrap();
            TwoKeyFixture { fixture, bob, alice, _near: near }
        }

        fn give(&self, key: &Identity, lifetime: Duration) -> Result<hello::HelloSecret, Error> {
            let errand = Errand {
                way: ContentDirection::Write,
                path: PATHS()[0].clone(),
                deletes: false,
                follows: false,
            };
            let copy = CopyReach {
                paths: &PATHS(),
                has_more: false,
                is_spread: false,
                deletes: false,
                follows: false,
            };
            let asked =
                RightsRequest { way: ContentDirection::Write, cipher: Cipher::default(), copy: Some(copy) };
            let guest = self.alice.guest.as_ref().unwrap();
            guest.grant(GrantWish { key: key.fingerprint(), errand, lifetime }, asked)
        }

        fn come(
            &self,
            key: &Identity,
            token: &hello::HelloSecret,
            udp: bool,
            path: &[u8],
        ) -> Result<EstablishedSession, Error> {
            let (host, port) = ("127.0.0.1".to_string(), self.fixture.address.port());
            let (addresses, grant) = (Vec::new(), token.clone());
            let target = PinnedTarget { host, addresses, port, key: self.fixture.key(), grant };
            pinned_connect(key, &target, asking(udp, path), &Handle::new())
        }

        fn refused(&self, key: &Identity, token: &hello::HelloSecret) -> Code {
            let refused = self.come(key, token, false, b"in/x").map(drop);
            refused.expect_err("it is refused").code()
        }

        fn arrived(&self) -> EstablishedSession {
            self.fixture.sessions.recv_timeout(Duration::from_secs(10)).unwrap()
        }
    }

    fn asking(udp: bool, path: &[u8]) -> HelloParams {
        let params = params(udp, 1);
        let opening = SessionOpening { request: path.to_vec(), ..params.opening };
        HelloParams { opening, features: Features::default(), ..params }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn who_comes_with_a_grant_does_so_for_who_gave_it_once_over_either_road() {
        let three = TwoKeyFixture::start();
        for udp in [true, false] {
            let token = three.give(&three.bob, LONG).unwrap();
            let mut near = three.come(&three.bob, &token, udp, b"in/x").unwrap();
            let far = three.arrived();
            assert_eq!(far.session.transport, if udp { Transport::Udp } else { Transport::Tcp });
            assert_eq!(near.session.master, far.session.master);
            let guest = far.guest.as_ref().unwrap();
            assert_eq!(guest.principal, three.alice.guest.as_ref().unwrap().principal);
            assert_eq!(guest.bearer.as_ref().map(PrincipalId::name), Some(three.bob.fingerprint()));
            // The grant is for this one request, and cannot give further grants.
            let asked = RightsRequest { way: ContentDirection::Write, cipher: Cipher::default(), copy: None };
            assert_eq!(guest.judge(asked).unwrap_err().code(), Code::GrantRefused);
            // Further connections have to use the key that has come.
            let flow = near.session.fallback.open().unwrap().expect("a dialled carrier");
            let CarrierFallback::Await(arrived) = &far.session.fallback else {
                panic!("the daemon awaits carriers")
            };
            assert_eq!(arrived.recv_timeout(Duration::from_secs(5)).unwrap().index, flow.index);
            assert_eq!(three.refused(&three.bob, &token), Code::GrantUsed);
        }
    }

    #[test]
    fn a_grant_is_refused_to_other_keys_late_and_for_other_paths() {
        let three = TwoKeyFixture::start();
        let stranger = three.come(&three.bob, &hello::HelloSecret([1; 32]), false, b"in/x").map(drop);
        let stranger = stranger.unwrap_err();
        assert_eq!(stranger.code(), Code::GrantRefused);
        assert!(stranger.what().contains("knows of no grant for"), "{stranger}");
        let late = three.give(&three.bob, Duration::from_millis(1)).unwrap();
        let token = three.give(&three.bob, LONG).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(three.refused(&three.bob, &late), Code::GrantExpired);
        assert_eq!(three.refused(&three.bob, &hello::HelloSecret([1; 32])), Code::GrantRefused);
        // Alice's own key is let in, but the grant is bob's.
        let alice = Identity::load(&three.fixture.path("client")).unwrap();
        assert_eq!(three.refused(&alice, &token), Code::GrantRefused);
        let other = three.come(&three.bob, &token, false, b"in/y").map(drop).unwrap_err();
        assert!(other.code() == Code::GrantRefused && other.what().contains("another path"), "{other}");
        // Attempts that failed have not used the grant up.
        three.come(&three.bob, &token, true, b"in/x").unwrap();
        three.arrived();
        // Without a grant, bob is not let in.
        let target =
            DaemonTarget { identity_file: Some(three.fixture.path("bob")), ..three.fixture.target() };
        let refused = connect_asking(&target, asking(false, b"in/x"), &|_| None, &Handle::new()).map(drop);
        assert_eq!(refused.unwrap_err().code(), Code::KeyNotAuthorized);
    }

    #[test]
    fn a_grant_goes_with_who_gave_it() {
        let three = TwoKeyFixture::start();
        let line = std::fs::read_to_string(three.fixture.path("authorized")).unwrap();
        let rewrite = |content: &str| std::fs::write(three.fixture.path("authorized"), content).unwrap();
        let token = three.give(&three.bob, LONG).unwrap();
        for (content, words) in [
            (format!("read-only {line}"), "may do less here now"),
            (format!("max-rate=1G {line}"), "its rate is limited further"),
            (String::new(), "no longer let in here"),
        ] {
            rewrite(&content);
            let refused = three.come(&three.bob, &token, false, b"in/x").map(drop).unwrap_err();
            assert!(refused.code() == Code::GrantRefused && refused.what().contains(words), "{refused}");
        }
        rewrite(&line);
        three.come(&three.bob, &token, true, b"in/x").unwrap();
        let far = three.arrived();
        rewrite("");
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !far.session.stop.is_set() {
            assert!(
                std::time::Instant::now() < end,
                "a session by a grant must end when the giver loses its rights"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        // By then it can give no grants either.
        assert!(three.give(&three.bob, LONG).is_err());
    }

    /// Clients with a key that has only a grant, which send nothing.
    #[test]
    fn who_may_only_come_for_another_holds_a_strangers_place_until_it_has_said_for_whom() {
        let three = TwoKeyFixture::start();
        three.give(&three.bob, LONG).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = three.fixture.key();
        runtime.block_on(async {
            let mut silent = Vec::new();
            for _ in 0..PER_ADDRESS_MAX {
                let pin = tls::KeyPin::OneOf(vec![key.clone()]);
                let (config, _) = tls::client_config(&three.bob, pin).unwrap();
                silent.push(tcp::connect(Arc::new(config), three.fixture.address).await.unwrap());
            }
            // A further client finds no place until the silent ones are slow; then it gets the place of the
            // first of them.
            let come = std::thread::scope(|scope| {
                let come = || {
                    connect_asking(&three.fixture.target(), asking(false, b"x"), &|_| None, &Handle::new())
                };
                scope.spawn(come).join().unwrap()
            });
            come.unwrap();
            three.arrived();
            assert!(silent.remove(0).read_frame().await.is_err(), "it has lost its place");
        });
    }

    #[test]
    fn a_daemon_with_another_key_hears_nothing() {
        let three = TwoKeyFixture::start();
        let (host, port) = ("127.0.0.1".to_string(), three.fixture.address.port());
        let key = three.bob.fingerprint();
        let target =
            PinnedTarget { host, addresses: Vec::new(), port, key, grant: hello::HelloSecret([1; 32]) };
        let refused =
            pinned_connect(&three.bob, &target, asking(true, b"in/x"), &Handle::new()).map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::HostKeyWrong, "{refused}");
    }
}
