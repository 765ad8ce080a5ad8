use std::sync::atomic::{AtomicBool, Ordering};

use farhaul_net::UdpLink;
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_words::{Code, Event, ExitCode, Misbehaviour};

use super::super::features::Features;
use super::super::loopback::{BothEnds, both_ends_of, fake_ssh};
use super::super::test_opening;
use farhaul_session::setup::FlowSetup;

use super::*;

fn params(options: NetworkOptions) -> HelloParams {
    let opening = test_opening(options);
    HelloParams { opening, features: Features::default(), udp: true, early: false }
}

fn texts(args: Vec<OsString>) -> Vec<String> {
    args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
}

#[test]
fn fixed_arguments_come_before_those_of_the_user() {
    let plain = SshTarget { host: "dtn".into(), ..SshTarget::default() };
    let fixed = [
        "-x",
        "-oPermitLocalCommand=no",
        "-oClearAllForwardings=yes",
        "-oRemoteCommand=none",
        "-oRequestTTY=no",
        "-oForwardAgent=no",
    ];
    assert_eq!(
        texts(plain.start_args("endpoint")),
        [&fixed[..], &["-oBatchMode=yes", "--", "dtn", "farhaul endpoint"]].concat()
    );
    let full = SshTarget {
        user: Some("me".into()),
        host: "fd00::2".into(),
        port: Some(2222),
        identity: vec!["key".into()],
        config_file: Some("conf".into()),
        jump: Some("gate".into()),
        options: vec!["Compression=no".into(), "ControlPath=/x y".into()],
        remote_program: "~/bin/farhaul".into(),
        prompts: Prompts::OnTerminal,
        ..SshTarget::default()
    };
    let user_args = [
        "-F",
        "conf",
        "-p",
        "2222",
        "-i",
        "key",
        "-J",
        "gate",
        "-o",
        "Compression=no",
        "-o",
        "ControlPath=/x y",
    ];
    let end = ["-l", "me", "--", "fd00::2"];
    assert_eq!(
        texts(full.start_args("endpoint")),
        [&fixed[..], &user_args, &end, &["~/bin/farhaul endpoint"]].concat()
    );
    assert_eq!(texts(full.query_args()), [&["-G"], &fixed[..], &user_args, &end].concat());
}

#[test]
fn a_host_that_would_be_an_option_is_refused() {
    for (host, user) in
        [("-oProxyCommand=evil", None), ("", None), ("a b", None), ("ok", Some("-x")), ("ok", Some("a\n"))]
    {
        let target = SshTarget { host: host.into(), user: user.map(str::to_string), ..SshTarget::default() };
        assert!(
            matches!(target.checked(), Err(error) if error.code() == Code::BadLocation),
            "{host:?} {user:?}"
        );
    }
    assert!(SshTarget { host: "fe80::1%eth0".into(), ..SshTarget::default() }.checked().is_ok());
}

#[test]
fn both_halves_of_the_secret_are_needed() {
    let half = HelloSecret([1; 32]);
    for (client, server) in [(Some(&half), None), (None, Some(&half))] {
        let secret = session_secret(client, server);
        assert_eq!(Misbehaviour::of(&secret), Some(Misbehaviour::NoSecretHalf));
    }
    assert!(session_secret(Some(&half), Some(&half)).is_ok());
}

#[test]
fn addresses_come_from_ssh_itself() {
    assert_eq!(hostname_of(b"user me\nhostname dtn.example\nport 22\n").as_deref(), Some("dtn.example"));
    assert_eq!(hostname_of(b"user me\n"), None);
    let connection = "198.51.100.7 50000 192.0.2.1 22";
    let address = |text: &str| farhaul_net::scoped(text).unwrap();
    assert_eq!(server_address(connection), Some(address("192.0.2.1")));
    assert_eq!(client_address(connection), Some(address("198.51.100.7")));
    assert_eq!((server_address("a b"), client_address("")), (None, None));
    let found = move || ["::ffff:192.0.2.1", "fd00::2", "fe80::2%lo"].map(address).to_vec();
    let found = Some(ThreadTask::begin(&Handle::new(), found).unwrap());
    let addresses = candidate_addresses(found, Some(connection), &Handle::new()).unwrap();
    assert_eq!(addresses, ["192.0.2.1", "fd00::2", "fe80::2%1"].map(address));
}

/// The names of interfaces that sshd reports are those of sshd's own host.
#[test]
fn an_interface_name_of_the_far_host_is_not_used_on_this_one() {
    let connection = "fe80::7%lo 50000 fe80::1%eth7 22";
    assert_eq!(client_address(connection), farhaul_net::scoped("fe80::7%1"));
    assert_eq!(server_address(connection), farhaul_net::scoped("fe80::1"));
    assert!(candidate_addresses(None, Some(connection), &Handle::new()).unwrap().is_empty());
}

#[test]
fn swapped_halves_make_another_secret() {
    let (a, b) = (HelloSecret([1; 32]), HelloSecret([2; 32]));
    let secret = session_secret(Some(&a), Some(&b)).unwrap();
    assert_ne!(secret, session_secret(Some(&b), Some(&a)).unwrap());
}

#[test]
fn failures_say_what_to_do() {
    for (body, expected) in [
        ("exit 255", "ssh ended with code 255 before farhaul answered on alias"),
        ("exit 127", "farhaul cannot be started on alias"),
        ("exit 2", "ended with code 2 before it answered"),
        ("kill -9 $$", "ssh was ended by signal 9 before alias answered"),
        (
            "echo 'Welcome to dtn2'; cat >/dev/null",
            "printed text before farhaul could answer: \"Welcome to dtn2\"",
        ),
        // Text that is shorter than a frame's length, with a frame behind it and without.
        ("printf 'hi\\n\\0\\0\\2\\0{'; cat >/dev/null", "printed text before farhaul could answer: \"hi\""),
        ("printf '> '; cat >/dev/null", "printed text before farhaul could answer: \">\""),
        (
            "printf '\\033]0;dtn\\007'; cat >/dev/null",
            "printed text before farhaul could answer: \" ]0;dtn \"",
        ),
        ("echo; cat >/dev/null", "alias printed an empty line"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let target = fake_ssh(folder.path(), body);
        let error = ssh_connect(&target, params(NetworkOptions::default()), &Handle::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{body}: {error}");
        assert!(error.exit_code() == ExitCode::Connect && error.hint().is_some(), "{body}: {error:?}");
    }
    let target = SshTarget { host: "h".into(), program: "/nonexistent/ssh".into(), ..SshTarget::default() };
    let error = ssh_connect(&target, params(NetworkOptions::default()), &Handle::new()).unwrap_err();
    assert!(error.to_string().contains("cannot run /nonexistent/ssh"), "{error}");
}

#[test]
fn messages_that_nobody_sees_are_in_the_error() {
    for (body, expected) in [
        (
            "echo 'ssh: Could not resolve hostname alias: no' >&2; exit 255",
            "ssh ended with code 255 before farhaul answered on alias: ssh: Could not resolve hostname alias: no",
        ),
        // ssh has ended, but a connection that it shares has not.
        (
            "printf 'me@alias: Permission\\033 denied' >&2; sleep 3 & exit 255",
            "alias: me@alias: Permission  denied",
        ),
        ("exit 255", "alias: ssh could not connect, or the program on alias ended with this code"),
        ("echo 'sh: farhaul: not found' >&2; exit 127", "(as \"farhaul\"): sh: farhaul: not found"),
        ("echo cannot >&2; exit 3", "ended with code 3 before it answered: cannot"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let target = SshTarget { messages: SshMessages::Kept, ..fake_ssh(folder.path(), body) };
        let error = ssh_connect(&target, params(NetworkOptions::default()), &Handle::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{body}: {error}");
        assert!(error.hint().is_some_and(|hint| !hint.contains("above")), "{body}: {error:?}");
    }
}

/// A requester that cancels as soon as it is told that the answer takes long.
struct ImpatientRequester(AtomicBool);

impl DialRequester for ImpatientRequester {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn tell(&self, event: Event) {
        assert!(event.to_string().starts_with("waiting for alias to answer"), "{event}");
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_far_end_that_never_answers_is_reported_and_the_wait_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    // This far end reads nothing, however much is sent.
    let target = fake_ssh(folder.path(), "exec sleep 1000");
    let params_of = |bytes: usize| {
        let mut params = params(NetworkOptions::default());
        params.opening.request = vec![7; bytes];
        params
    };
    for bytes in [10, 200_000] {
        let error =
            ssh_connect(&target, params_of(bytes), &ImpatientRequester(AtomicBool::new(false))).unwrap_err();
        assert_eq!(error.code(), Code::Interrupted, "{error}");
    }
    let target = SshTarget { answer_wait: Duration::from_millis(100), ..target };
    let error = ssh_connect(&target, params_of(10), &Handle::new()).unwrap_err();
    assert!(
        error.code() == Code::PeerCannotStart && error.to_string().contains("has not answered"),
        "{error}"
    );
    assert!(error.hint().is_some_and(|hint| hint.contains("ssh alias true")), "{error:?}");
}

#[test]
fn a_request_that_does_not_fit_a_hello_is_refused_before_ssh_starts() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let target = fake_ssh(folder.path(), &format!("touch {}", started.display()));
    let mut params = params(NetworkOptions::default());
    params.opening.request = vec![7; hello::FRAME_MAX];
    let error = ssh_connect(&target, params, &Handle::new()).unwrap_err();
    assert!(error.exit_code() == ExitCode::Usage && error.hint().is_some(), "{error}");
    assert!(!started.exists());
}

#[test]
fn a_lack_of_resources_is_not_reported_as_a_missing_ssh() {
    let code_of = |errno: Errno| cannot_start(Path::new("ssh"), errno.into()).code();
    assert_eq!((code_of(Errno::NOENT), code_of(Errno::ACCESS)), (Code::NoSsh, Code::NoSsh));
    assert_eq!((code_of(Errno::MFILE), code_of(Errno::NFILE)), (Code::NoDescriptors, Code::NoDescriptors));
    assert_eq!((code_of(Errno::NOMEM), code_of(Errno::AGAIN)), (Code::NoMemory, Code::HostFailed));
}

fn both_ends(options: NetworkOptions) -> BothEnds {
    both_ends_of(params(options))
}

fn udp(flow: &FlowSetup) -> (&UdpLink, &[SocketAddr]) {
    match &flow.link {
        FlowLink::Udp { socket, candidates } => (socket, candidates),
        FlowLink::Accept { .. } | FlowLink::Stream(_) => panic!("a UDP flow was expected"),
    }
}

#[test]
fn both_ends_agree_on_secret_ids_and_addresses() {
    let options = NetworkOptions { flows: 3, udp_ports: (42000, 42400), ..NetworkOptions::default() };
    let (near, far, _folder) = both_ends(options);
    let (near, far) = (near.unwrap(), far.unwrap());
    assert_eq!(near.session.master, far.session.master);
    assert!(near.session.is_initiator && !far.session.is_initiator);
    assert_eq!((near.session.flows.len(), far.session.flows.len()), (3, 3));
    for (near, far) in near.session.flows.iter().zip(&far.session.flows) {
        assert_eq!((near.index, near.send_id, near.recv_id), (far.index, far.recv_id, far.send_id));
        let ((near_socket, near_candidates), (far_socket, far_candidates)) = (udp(near), udp(far));
        let address_of = |socket: &UdpLink| {
            SocketAddr::from(([127, 0, 0, 1], socket.local_addr().expect("it is bound").port()))
        };
        assert!(near_candidates.contains(&address_of(far_socket)), "{near_candidates:?}");
        assert!(far_candidates.contains(&address_of(near_socket)), "{far_candidates:?}");
        assert!((42000..=42400).contains(&address_of(far_socket).port()));
    }
    let (CarrierFallback::Ready(near_channel), CarrierFallback::Ready(far_channel)) =
        (&near.session.fallback, &far.session.fallback)
    else {
        panic!("the channel is the fallback")
    };
    assert_eq!(near_channel.index, 3 * GENERATIONS as u16, "behind all spares");
    let spare = |spare: &farhaul_session::setup::SpareFlow| (spare.index, spare.send_id, spare.recv_id);
    let mirrored = |(index, send_id, recv_id)| (index, recv_id, send_id);
    let near_spares: Vec<_> = near.session.spares.iter().map(spare).collect();
    assert_eq!(near_spares.len(), 3 * (GENERATIONS - 1));
    assert_eq!(near_spares, far.session.spares.iter().map(spare).map(mirrored).collect::<Vec<_>>());
    let ids = (near_channel.index, near_channel.send_id, near_channel.recv_id);
    assert_eq!(ids, (far_channel.index, far_channel.recv_id, far_channel.send_id));
    assert!(!far.session.stop.is_set());

    // The client goes away, and the far end notices without reading.
    drop(near);
    for _ in 0..500 {
        if far.session.stop.is_set() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the far end did not notice that its client is gone");
}

#[test]
fn without_a_free_port_the_channel_carries_everything() {
    let taken = std::net::UdpSocket::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = NetworkOptions { udp_ports: (port, port), ..NetworkOptions::default() };
    let (near, far, _folder) = both_ends(options.clone());
    let (near, far) = (near.unwrap(), far.unwrap());
    assert_eq!((near.session.transport, far.session.transport), (Transport::Channel, Transport::Channel));
    assert!(matches!(
        (&near.session.flows[0].link, &far.session.flows[0].link),
        (FlowLink::Stream(_), FlowLink::Stream(_))
    ));
    assert_eq!(near.session.flows[0].send_id, far.session.flows[0].recv_id);
    assert_eq!(near.session.warnings.len(), 1);
    let (near, far, _folder) = both_ends(NetworkOptions { udp_only: true, ..options });
    assert!(near.unwrap_err().to_string().contains("no free UDP port"));
    assert!(far.is_err());
}

#[test]
fn what_ssh_says_tells_whether_it_passes() {
    for (said, code) in [
        ("ssh: connect to host h port 22: Connection refused", Code::SshFailed),
        ("kex_exchange_identification: Connection closed by remote host", Code::SshFailed),
        ("ssh: connect to host h port 22: Network is unreachable", Code::SshFailed),
        ("", Code::SshFailed),
        ("ssh: Could not resolve hostname h: Temporary failure in name resolution", Code::NameServerAway),
        ("ssh: Could not resolve hostname h: Name or service not known", Code::HostUnknown),
        ("me@h: Permission denied (publickey,password).", Code::SshRefused),
        ("Host key verification failed.", Code::SshRefused),
        ("Received disconnect from h port 22:2: Too many authentication failures", Code::SshRefused),
    ] {
        assert_eq!(code_of_ssh(said), code, "{said}");
    }
}
