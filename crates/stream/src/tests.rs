use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_connect::keygen;
use farhaul_session::content_role::{ContentRole, DeliveryOrder};
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::handle::Handle;
use farhaul_session::options::{PathAddresses, RateOptions};
use farhaul_session::session::{DialogueStep, Session};
use farhaul_words::{Carrier, Code, Error, ExitCode, Misbehaviour, Policy};

use super::messages::StreamMessage;
use super::*;

/// Much longer than anything takes: reached only if the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listening program in a folder of its own, and the files that its clients need.
struct Fixture {
    folder: tempfile::TempDir,
    listener: StreamListener,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        keygen(&path("client"), "client").unwrap();
        std::fs::copy(path("client.pub"), path("authorized")).unwrap();
        let listener = StreamListener::bind(ListenOptions {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            identity: path("host"),
            authorized_keys: path("authorized"),
            names: vec!["frames".into()],
            ..ListenOptions::default()
        })
        .unwrap();
        Fixture { folder, listener }
    }

    fn target(&self) -> StreamTarget {
        let path = |name: &str| Some(self.folder.path().join(name));
        StreamTarget::Daemon(DaemonTarget {
            host: "127.0.0.1".into(),
            port: self.listener.local_addrs()[0].port(),
            identity_file: path("client"),
            known_hosts_file: path("known_hosts"),
            fingerprint: Some(self.listener.fingerprint().to_string()),
            accept_new: false,
            ..DaemonTarget::default()
        })
    }

    fn to_here(&self, options: StreamOptions) -> (StreamSender, StreamReceiver) {
        let sender = connect_to_send(&self.target(), options).unwrap();
        match self.listener.accept_timeout(PATIENCE).unwrap() {
            Some(AcceptedStream::Receiver(receiver)) => (sender, receiver),
            other => panic!("{other:?}"),
        }
    }
}

fn frames() -> StreamOptions {
    StreamOptions::new("frames")
}

/// Puts a block whose bytes and metadata depend on its number.
fn put(sender: &StreamSender, number: u64, len: usize) {
    let mut block = sender.claim().unwrap();
    block.set_len(len);
    block.fill(number as u8);
    let said = number.to_le_bytes().repeat(1 + number as usize % 9);
    sender.put(block, &said).unwrap();
}

fn len_of(number: u64) -> usize {
    [BLOCK_LEN_MAX, 0, 1, 77_777, 500_000][number as usize % 5]
}

fn check(arrived: &ReceivedBlock) {
    let number = u64::from_le_bytes(arrived.metadata()[..8].try_into().unwrap());
    assert_eq!(arrived.metadata().len(), 8 * (1 + number as usize % 9));
    assert_eq!(arrived.len(), len_of(number));
    assert!(arrived.iter().all(|&byte| byte == number as u8));
    assert_eq!(arrived.number(), number);
}

/// Sends `count` blocks from one thread and takes them with `readers` threads; returns their numbers in the
/// order of arrival.
fn move_blocks((sender, receiver): (StreamSender, StreamReceiver), count: u64, readers: usize) -> Vec<u64> {
    let receiver = Arc::new(receiver);
    let come = Arc::new(std::sync::Mutex::new(Vec::new()));
    let reading: Vec<_> = (0..readers)
        .map(|_| {
            let (receiver, come) = (receiver.clone(), come.clone());
            std::thread::spawn(move || {
                while let Some(arrived) = receiver.next().unwrap() {
                    check(&arrived);
                    come.lock().unwrap().push(arrived.number());
                }
            })
        })
        .collect();
    (0..count).for_each(|number| put(&sender, number, len_of(number)));
    let ending = std::thread::spawn(move || sender.finish().unwrap());
    reading.into_iter().for_each(|thread| thread.join().unwrap());
    let report = Arc::into_inner(receiver).unwrap().finish().unwrap();
    let bytes: usize = (0..count).map(len_of).sum();
    assert_eq!((report.bytes, ending.join().unwrap().bytes), (bytes as u64, bytes as u64));
    let come = come.lock().unwrap().clone();
    assert_eq!(come.iter().copied().collect::<BTreeSet<_>>(), (0..count).collect());
    assert_eq!(come.len() as u64, count, "each once");
    come
}

#[test]
fn every_block_comes_once_with_what_was_said_of_it() {
    move_blocks(pair(frames()).unwrap(), 100, 2);
    let network = NetworkOptions { cipher: farhaul_words::Cipher::Aes256Gcm, ..NetworkOptions::default() };
    move_blocks(pair(StreamOptions { digests: true, network, ..frames() }).unwrap(), 40, 1);
}

#[test]
fn over_lossy_udp_with_several_flows_blocks_come_as_they_complete() {
    let fixture = Fixture::new();
    let mut options = frames();
    options.network.flows = 3;
    options.network.testing.fault = Some("loss=0.05,seed=5".parse().unwrap());
    move_blocks(fixture.to_here(options), 120, 2);
}

#[test]
fn in_order_means_in_the_order_of_putting_whatever_is_lost() {
    let fixture = Fixture::new();
    let mut options = StreamOptions { in_order: true, ..frames() };
    options.network.flows = 4;
    options.network.memory_bytes = 16 << 20;
    options.network.testing.fault = Some("loss=0.1,seed=7".parse().unwrap());
    let come = move_blocks(fixture.to_here(options), 150, 1);
    assert!(come.is_sorted());
}

#[test]
fn this_end_can_receive_from_one_that_listens() {
    let fixture = Fixture::new();
    let receiver = connect_to_receive(&fixture.target(), frames()).unwrap();
    let Some(AcceptedStream::Sender(sender)) = fixture.listener.accept_timeout(PATIENCE).unwrap() else {
        panic!("the listening end sends")
    };
    assert_eq!((sender.name(), receiver.name()), ("frames", "frames"));
    assert!(sender.peer_key().is_some());
    move_blocks((sender, receiver), 20, 1);
}

#[test]
fn who_waits_knows_that_the_receiver_has_let_go() {
    let (sender, receiver) = pair(frames()).unwrap();
    sender.wait().unwrap();
    (0..3).for_each(|number| put(&sender, number, 1000));
    let arrived: Vec<_> = (0..3).map(|_| receiver.next().unwrap().unwrap()).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.wait());
        std::thread::sleep(Duration::from_millis(150));
        assert!(!waiting.is_finished(), "blocks are still held");
        drop(arrived);
        waiting.join().unwrap().unwrap();
    });
    put(&sender, 3, 1000);
    drop(receiver.next().unwrap());
    sender.wait().unwrap();
    // The flow's thread counts by its own acknowledgements, which may come a moment later.
    let until = std::time::Instant::now() + PATIENCE;
    while sender.handle().counts().bytes_done.load(Ordering::Relaxed) < 4000
        && std::time::Instant::now() < until
    {
        std::thread::yield_now();
    }
    assert_eq!(sender.handle().counts().bytes_done.load(Ordering::Relaxed), 4000);
}

/// Options under which blocks may have deadlines.
fn timed(in_order: bool) -> StreamOptions {
    StreamOptions { deadlines: true, in_order, ..frames() }
}

/// Takes everything; returns the numbers of the blocks that came and of those that were given up, in the order in which the
/// program heard of them.
fn take_all(receiver: &StreamReceiver) -> (Vec<u64>, Vec<u64>) {
    let (mut came, mut given_up) = (Vec::new(), Vec::new());
    loop {
        match receiver.next_timeout(PATIENCE).unwrap() {
            NextBlock::Block(block) => {
                check(&block);
                came.push(block.number());
            }
            NextBlock::GivenUp(number) => given_up.push(number),
            NextBlock::End => return (came, given_up),
            NextBlock::NotYet => panic!("nothing in {PATIENCE:?}"),
        }
    }
}

#[test]
fn a_block_that_is_too_late_is_given_up_and_holds_up_no_other() {
    const BLOCKS: u64 = 200;
    for in_order in [false, true] {
        let (sender, receiver) = pair(timed(in_order)).unwrap();
        let taking = std::thread::spawn(move || {
            let taken = take_all(&receiver);
            (taken, receiver.finish().unwrap())
        });
        let begun = Instant::now();
        // Every third one is late before it is put.
        let deadline = |number: u64| if number.is_multiple_of(3) { begun } else { begun + PATIENCE };
        for number in 0..BLOCKS {
            let mut block = sender.claim().unwrap();
            block.set_len(len_of(number));
            block.fill(number as u8);
            let said = number.to_le_bytes().repeat(1 + number as usize % 9);
            assert_eq!(sender.put_until(block, &said, deadline(number)).unwrap(), number);
        }
        sender.wait().unwrap();
        let told: BTreeSet<u64> = std::iter::from_fn(|| sender.next_given_up()).collect();
        sender.finish().unwrap();
        let ((came, given_up), _) = taking.join().unwrap();
        let whole: BTreeSet<u64> = came.iter().chain(&given_up).copied().collect();
        assert_eq!((whole.len() as u64, came.len() + given_up.len()), (BLOCKS, BLOCKS as usize), "each once");
        assert!(
            given_up.iter().all(|number| number.is_multiple_of(3) && told.contains(number)),
            "{given_up:?} {told:?}"
        );
        assert!(
            !given_up.is_empty() && told.iter().all(|number| number.is_multiple_of(3)),
            "{given_up:?} {told:?}"
        );
        assert!(!in_order || came.is_sorted() && given_up.is_sorted());
    }
}

#[test]
fn a_stream_without_deadlines_takes_none() {
    let (sender, _receiver) = pair(frames()).unwrap();
    let refused = sender.put_until(sender.claim().unwrap(), b"", Instant::now()).unwrap_err();
    assert_eq!(refused.code(), Code::Misuse);
}

#[test]
fn messages_go_both_ways_in_their_order() {
    let (sender, receiver) = pair(frames()).unwrap();
    for number in 0..200_u32 {
        sender.send_message(&number.to_le_bytes().repeat(5000)).unwrap();
    }
    for number in 0..200_u32 {
        let message = receiver.message(PATIENCE).unwrap().unwrap();
        assert_eq!(message, number.to_le_bytes().repeat(5000));
    }
    receiver.send_message(b"stop").unwrap();
    assert_eq!(sender.message(PATIENCE).unwrap().unwrap(), b"stop");
    assert_eq!(sender.message(Duration::ZERO).unwrap(), None);
    assert!(sender.send_message(&vec![0; MESSAGE_LEN_MAX + 1]).is_err());
}

#[test]
fn messages_that_nobody_reads_end_the_stream() {
    let (sender, receiver) = pair(frames()).unwrap();
    let message = vec![0; MESSAGE_LEN_MAX];
    let refused = (0..1000).find_map(|_| sender.send_message(&message).err()).expect("it ends");
    assert!(refused.exit_code() == ExitCode::Lost, "{refused:?}");
    assert!(receiver.next().is_err());
}

#[test]
fn a_stream_that_is_not_finished_is_no_whole_one() {
    let (sender, receiver) = pair(frames()).unwrap();
    put(&sender, 0, 10);
    drop(receiver.next().unwrap().unwrap());
    drop(sender);
    assert!(receiver.next().is_err(), "the sender has gone without finishing");

    let (sender, receiver) = pair(frames()).unwrap();
    drop(receiver);
    let failed = (0..10_000).find_map(|_| sender.claim().and_then(|block| sender.put(block, &[])).err());
    assert!(matches!(&failed, Some(error) if error.exit_code() == ExitCode::Lost), "{failed:?}");
    assert!(sender.finish().is_err());

    let (sender, receiver) = pair(frames()).unwrap();
    put(&sender, 0, 10);
    let early = receiver.finish();
    assert!(matches!(early, Err(error) if error.code() == Code::Misuse), "there was a block left");
    assert!(sender.finish().is_err());
}

#[test]
fn a_block_that_a_reader_fails_on_is_not_confirmed() {
    let (sender, receiver) = pair(frames()).unwrap();
    put(&sender, 0, 10);
    let failing = std::thread::spawn(move || {
        let _arrived = receiver.next().unwrap().unwrap();
        panic!("as a disk that is full");
    });
    assert!(failing.join().is_err());
    assert!(sender.wait().is_err() && sender.finish().is_err());
}

#[test]
fn claims_wait_for_memory_and_give_it_back() {
    let mut options = frames();
    options.network.memory_bytes = 16 << 20;
    let (sender, _receiver) = pair(options).unwrap();
    let mut held = Vec::new();
    while let Some(block) = sender.try_claim().unwrap() {
        assert_eq!(block.len(), BLOCK_LEN_MAX);
        held.push(block);
    }
    assert!((15..=32).contains(&held.len()), "{}", held.len());
    let first = held[0].as_ptr();
    held.remove(0);
    assert_eq!(sender.claim().unwrap().as_ptr(), first, "the one that was given back");
}

#[test]
fn rate_and_paths_change_while_it_runs() {
    let fixture = Fixture::new();
    let path = |ip: &str| {
        let ip: IpAddr = ip.parse().unwrap();
        PathAddresses::new(ip, "127.0.0.1".parse().unwrap())
    };
    let mut options = frames();
    options.network.paths = vec![path("127.0.0.1"), path("127.0.0.2")];
    options.network.rate_bps = Some(400_000_000);
    let (sender, receiver) = fixture.to_here(options);
    let send = |count: u64| {
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| (0..count).for_each(|_| drop(receiver.next().unwrap().unwrap())));
            (0..count).for_each(|_| assert!(sender.put(sender.claim().unwrap(), &[]).is_ok()));
            sender.wait().unwrap();
            taking.join().unwrap();
        });
    };
    let sent = |path: usize| sent_by(&sender.session, path);
    let settle = |done: &dyn Fn() -> bool| {
        let until = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < until, "it never takes effect");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The figures are updated ten times a second.
        std::thread::sleep(Duration::from_millis(250));
    };
    let is_active = |session: &stream_end::StreamEnd, path: usize| {
        let path = session.shared.path_use(path);
        path.flows_active == path.flows
    };
    send(40);
    settle(&|| sent(0) > 0 && sent(1) > 0);

    assert!(sender.use_path(2, false).is_err());
    receiver.use_path(1, false).unwrap();
    settle(&|| !is_active(&sender.session, 1) && !is_active(&receiver.session, 1));
    assert!(receiver.use_path(0, false).is_err(), "the last one");
    let before = (sent(0), sent(1));
    send(40);
    settle(&|| sent(0) > before.0);
    assert_eq!(sent(1), before.1, "nothing new goes by the path that is out");

    receiver.use_path(1, true).unwrap();
    settle(&|| is_active(&sender.session, 1));
    send(60);
    settle(&|| sent(1) > before.1);

    let rate = RateOptions { policy: Policy::Fixed, rate_bps: Some(50_000_000), rate_min_bps: None };
    receiver.set_rate(rate).unwrap();
    let pace =
        || sender.session.shared.handle().snapshot().facts.traffic[0].rate_target_bps.unwrap_or(f64::MAX);
    settle(&|| (24.0e6..26.4e6).contains(&pace()));
    assert!(sender.set_rate(RateOptions { policy: Policy::Fixed, ..RateOptions::default() }).is_err());
}

/// Sends `count` blocks and waits until they are confirmed.
fn send(sender: &StreamSender, receiver: &StreamReceiver, count: u64) {
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| (0..count).for_each(|_| drop(receiver.next().unwrap().unwrap())));
        (0..count).for_each(|_| assert!(sender.put(sender.claim().unwrap(), &[]).is_ok()));
        sender.wait().unwrap();
        taking.join().unwrap();
    });
}

fn sent_by(session: &stream_end::StreamEnd, path: usize) -> u64 {
    session.shared.path_use(path).segments_sent
}

/// Sends until `done`.
fn send_until(sender: &StreamSender, receiver: &StreamReceiver, done: &dyn Fn() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(std::time::Instant::now() < until, "it never takes effect");
        send(sender, receiver, 10);
    }
}

fn loopback(local: &str, remote: &str) -> PathAddresses {
    PathAddresses::new(local.parse().unwrap(), remote.parse().unwrap())
}

/// With a daemon the listening end receives, over ssh the far end sends: so the tests cover what both ends do
/// when a path is added.
#[test]
fn a_path_is_added_while_it_runs() {
    let fixture = Fixture::new();
    let mut options = frames();
    options.network.further_paths = 2;
    options.network.flows = 2;
    let (sender, receiver) = fixture.to_here(options);
    send(&sender, &receiver, 20);
    assert!(sender.use_path(1, false).is_err(), "there is only one yet");
    assert!(receiver.add_path(loopback("127.0.0.1", "127.0.0.1")).is_err(), "it has not connected");
    assert!(sender.add_path(loopback("192.0.2.1", "127.0.0.1")).is_err(), "no address of this host");
    assert!(sender.add_path(loopback("127.0.0.2", "::1")).is_err(), "two families");
    assert_eq!(sender.add_path(loopback("127.0.0.2", "127.0.0.1")).unwrap(), 1);
    send_until(&sender, &receiver, &|| sent_by(&sender.session, 1) > 0);
    // Nobody answers at this address: the path carries nothing, and takes nothing from the others.
    assert_eq!(sender.add_path(loopback("127.0.0.3", "127.255.1.9")).unwrap(), 2);
    assert!(sender.add_path(loopback("127.0.0.4", "127.0.0.1")).is_err(), "two were agreed on");
    send(&sender, &receiver, 60);

    sender.use_path(0, false).unwrap();
    let is_out = |path: usize| sender.session.shared.path_use(path).flows_active == 0;
    send_until(&sender, &receiver, &|| is_out(0));
    // The figures are updated ten times a second.
    std::thread::sleep(Duration::from_millis(250));
    let before = (sent_by(&sender.session, 0), sent_by(&sender.session, 1));
    send(&sender, &receiver, 40);
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(sent_by(&sender.session, 0), before.0, "nothing new goes by the path that is out");
    assert!(sent_by(&sender.session, 1) > before.1);
    let ending = std::thread::spawn(move || sender.finish().unwrap());
    assert!(receiver.next().unwrap().is_none());
    receiver.finish().unwrap();
    let paths = ending.join().unwrap().paths;
    let answered: Vec<_> = paths.iter().map(|path| (path.local.to_string(), path.answered)).collect();
    assert_eq!(answered, [("127.0.0.2".to_string(), true), ("127.0.0.3".to_string(), false)]);
}

#[test]
fn a_path_is_added_over_ssh_where_the_far_end_sends() {
    let mut options = frames();
    options.network.further_paths = 1;
    options.network.udp_ports = (42500, 42900);
    let opening = options.opening(false).unwrap();
    let params = HelloParams { opening, features: request::own_features(), udp: true, early: false };
    let (near, far, _folder) = farhaul_connect::loopback::both_ends_of(params);
    let far = std::thread::spawn(|| StreamSender::new(stream_end::begin(far.unwrap()).unwrap()));
    let receiver = StreamReceiver::new(stream_end::begin(near.unwrap()).unwrap());
    let sender = far.join().unwrap();
    send(&sender, &receiver, 10);
    assert_eq!(receiver.add_path(loopback("127.0.0.2", "127.0.0.1")).unwrap(), 1);
    send_until(&sender, &receiver, &|| sent_by(&sender.session, 1) > 0);
    let ending = std::thread::spawn(move || sender.finish().unwrap());
    assert!(receiver.next().unwrap().is_none());
    let report = receiver.finish().unwrap();
    ending.join().unwrap();
    assert_eq!(report.transport, Some(Carrier::Udp));
    assert!(report.paths.len() == 1 && report.paths[0].answered, "{:?}", report.paths);
}

#[test]
fn where_udp_does_not_get_through_a_stream_goes_on_over_tcp() {
    let fixture = Fixture::new();
    let mut options = frames();
    // The handshake passes, but nothing after it.
    options.network.testing.fault = Some("loss=1,seed=3".parse().unwrap());
    options.network.memory_bytes = 16 << 20;
    let (sender, receiver) = fixture.to_here(options);
    let taking = std::thread::spawn(move || {
        let mut numbers = BTreeSet::new();
        while let Some(arrived) = receiver.next().unwrap() {
            check(&arrived);
            assert!(numbers.insert(arrived.number()), "each once");
        }
        (numbers, receiver.finish().unwrap())
    });
    (0..60).for_each(|number| put(&sender, number, len_of(number)));
    sender.send_message(b"words too").unwrap();
    let report = sender.finish().unwrap();
    let (numbers, received) = taking.join().unwrap();
    assert_eq!(numbers, (0..60).collect());
    assert_eq!((report.transport, received.transport), (Some(Carrier::Tcp), Some(Carrier::Tcp)));
    assert_eq!(report.bytes, (0..60).map(|number| len_of(number) as u64).sum::<u64>());
    assert!(
        report.warnings.iter().any(|warning| warning.contains("going on over tcp")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn without_further_paths_none_is_added() {
    let fixture = Fixture::new();
    let (sender, _receiver) = fixture.to_here(frames());
    let refused = sender.add_path(loopback("127.0.0.2", "127.0.0.1"));
    assert!(matches!(&refused, Err(error) if error.exit_code() == ExitCode::Usage), "{refused:?}");
    let mut options = frames();
    options.network.further_paths = 16;
    assert!(connect_to_send(&fixture.target(), options).is_err(), "more than 16 flows");
}

#[test]
fn only_what_is_allowed_is_begun() {
    let fixture = Fixture::new();
    let refused = |options: StreamOptions| connect_to_send(&fixture.target(), options).unwrap_err();
    assert!(refused(StreamOptions::new("other")).code() == Code::Forbidden);
    assert!(refused(StreamOptions::new("")).exit_code() == ExitCode::Usage);
    let mut clear = frames();
    clear.network.cipher = farhaul_words::Cipher::None;
    assert!(refused(clear).code() == Code::Forbidden);
    let path = fixture.folder.path().join("authorized");
    let line = std::fs::read_to_string(&path).unwrap();
    let allow = |options: &str| std::fs::write(&path, format!("{options} {line}")).unwrap();
    allow("read-only");
    assert!(refused(frames()).to_string().contains("only read"));
    drop(connect_to_receive(&fixture.target(), frames()).unwrap());
    // A key that is for a directory does not allow streams.
    allow("root=/srv");
    assert!(refused(frames()).to_string().contains("does not know this key"));
}

/// A sender that leaves once it has heard that the receiver has finished, silently or with a complaint.
fn left_by(complaint: Option<Error>) -> Result<farhaul_words::SessionReport, Error> {
    let (near, far) =
        connect::local_pair(&frames().opening(true).unwrap(), &request::own_features()).unwrap();
    let receiver = StreamReceiver::new(stream_end::begin(far).unwrap());
    let options = near.opening.network.clone();
    let begun =
        Session::start(near.session, options, ContentRole::Sender, DeliveryOrder::Kept, &Handle::new());
    let (_, mut sender) = begun.unwrap();
    sender.request.send_encoded(|out| StreamMessage::BlocksPut { count: 0, is_last: true }.encode(out));
    let finishing = std::thread::spawn(move || receiver.finish());
    while !matches!(sender.step().unwrap(), DialogueStep::Finish(_)) {}
    sender.close(complaint.as_ref());
    finishing.join().unwrap()
}

#[test]
fn a_receiver_that_has_finished_need_not_hear_it_from_the_sender() {
    assert!(left_by(None).is_ok());
    let complained = left_by(Some(Error::misbehaved(Misbehaviour::FinishedTooEarly, "something is missing")));
    assert!(
        matches!(&complained, Err(error) if error.exit_code() == ExitCode::Lost && error.what().contains("something is missing")),
        "{complained:?}"
    );
}

/// The misbehaviour that a sender reports if its peer sends this message.
fn sender_told(message: &StreamMessage) -> Option<Misbehaviour> {
    let (near, far) =
        connect::local_pair(&frames().opening(true).unwrap(), &request::own_features()).unwrap();
    let options = far.opening.network.clone();
    let begun =
        Session::start(far.session, options, ContentRole::Receiver, DeliveryOrder::Kept, &Arc::default());
    let (_, mut receiver) = begun.unwrap();
    let sender = StreamSender::new(stream_end::begin(near).unwrap());
    receiver.request.send_encoded(|out| message.encode(out));
    while receiver.step().is_ok() {}
    receiver.close(None);
    Misbehaviour::of(&sender.finish())
}

/// The misbehaviour that a receiver reports if its peer sends these messages, and a block with this end.
fn receiver_told(messages: &[StreamMessage], end: &[u8]) -> Option<Misbehaviour> {
    receiver_of(frames(), messages, end)
}

fn receiver_of(options: StreamOptions, messages: &[StreamMessage], end: &[u8]) -> Option<Misbehaviour> {
    let (near, far) = connect::local_pair(&options.opening(true).unwrap(), &request::own_features()).unwrap();
    let receiver = StreamReceiver::new(stream_end::begin(far).unwrap());
    let options = near.opening.network.clone();
    let begun =
        Session::start(near.session, options, ContentRole::Sender, DeliveryOrder::Kept, &Arc::default());
    let (_, mut sender) = begun.unwrap();
    sender.request.send_encoded(|out| messages.iter().for_each(|message| message.encode(out)));
    if !end.is_empty() {
        let outlet = Outlet::new(sender.request.clone());
        let mut block = outlet.claim(|| false).unwrap();
        block.set_len(end.len());
        block.copy_from_slice(end);
        assert!(outlet.put(LoadedBlock::new(block, end.len(), end.len()), || false));
    }
    let taking = std::thread::spawn(move || Misbehaviour::of(&receiver.next()));
    while sender.step().is_ok() {}
    sender.close(None);
    taking.join().unwrap()
}

#[test]
fn a_peer_that_breaks_the_protocol_is_told_how() {
    assert_eq!(sender_told(&StreamMessage::Confirmed { count: 5 }), Some(Misbehaviour::ConfirmedUnput));
    let put = |count| StreamMessage::BlocksPut { count, is_last: false };
    assert_eq!(receiver_told(&[put(5), put(3)], &[]), Some(Misbehaviour::MoreThanPut));
    assert_eq!(receiver_told(&[], &[0xff; 60]), Some(Misbehaviour::SenselessLabel));
    let mut beyond = [0; 48];
    beyond[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(receiver_told(&[], &beyond), Some(Misbehaviour::ImpossibleNumber));
    let given_up = |number| StreamMessage::GivenUp(vec![3, number]);
    assert_eq!(receiver_told(&[given_up(4)], &[]), Some(Misbehaviour::UnexpectedMessage));
    let late = |messages: &[StreamMessage]| receiver_of(timed(false), messages, &[]);
    assert_eq!(late(&[given_up(1 << 40)]), Some(Misbehaviour::ImpossibleNumber));
    let last = StreamMessage::BlocksPut { count: 5, is_last: true };
    assert_eq!(late(&[last, given_up(5)]), Some(Misbehaviour::ImpossibleNumber));
}

/// A call that waits for ever.
type Wait = fn(&StreamSender, &StreamReceiver) -> Result<(), Error>;

#[test]
fn a_program_that_wants_to_wait_no_more_gets_its_thread_back() {
    let waits: [Wait; 3] = [
        |_, receiver| receiver.next().map(drop),
        |sender, _| loop {
            let block = sender.claim()?;
            sender.put(block, b"")?;
        },
        |sender, _| {
            let block = sender.claim()?;
            sender.put(block, b"")?;
            sender.wait()
        },
    ];
    for wait in waits {
        let (sender, receiver) = pair(frames()).unwrap();
        sender.on_wait(|| false);
        receiver.on_wait(|| false);
        assert_eq!(wait(&sender, &receiver).unwrap_err().code(), Code::Interrupted);
    }
}
