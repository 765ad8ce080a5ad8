//! A process that forks while it sends: its children use nothing of its sessions, and its transfer arrives whole.

use std::time::Duration;

use farhaul::copy::Location;
use farhaul::errors::Code;
use farhaul::read::Remote;
use farhaul::stream::{StreamOptions, StreamReceiver, StreamSender, pair};

const BLOCKS: u64 = 200;
const CHILDREN: u64 = 20;

/// Runs `look` in a forked child, which exits without what a program does at its end; returns whether it said true.
fn in_child(look: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses only what a forked child may: memory, which the C library makes usable, and this
    // crate, whose promise is what is tested.
    match unsafe { libc::fork() } {
        0 => {
            let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).unwrap_or(false);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if seen { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

fn is_forked<T>(result: Result<T, farhaul::Error>) -> bool {
    result.is_err_and(|error| error.code() == Code::Forked)
}

/// Sends a block and gets it back, all in this process.
fn a_new_stream_works() -> bool {
    let Ok((sender, receiver)) = pair(StreamOptions::new("of the child")) else { return false };
    let sent = send(&sender, 7, 7);
    let ended = std::thread::spawn(move || sender.finish().is_ok());
    let received = matches!(receiver.next(), Ok(Some(block)) if block.iter().all(|&byte| byte == 7));
    sent && received && receiver.finish().is_ok() && ended.join().unwrap_or(false)
}

fn send(sender: &StreamSender, number: u64, fill: u8) -> bool {
    let Ok(mut block) = sender.claim() else { return false };
    block.as_mut_slice().fill(fill);
    sender.put(block, &number.to_le_bytes()).is_ok()
}

fn receive(receiver: &StreamReceiver) -> u64 {
    let mut seen = 0;
    while let Some(block) = receiver.next().unwrap() {
        let number = u64::from_le_bytes(block.metadata().try_into().unwrap());
        assert!(block.len() == 1 << 20 && block.iter().all(|&byte| byte == number as u8), "block {number}");
        seen += 1;
    }
    seen
}

#[test]
fn children_of_a_sender_use_nothing_of_it_and_its_blocks_arrive() {
    let (sender, receiver) = pair(StreamOptions::new("of the parent")).unwrap();
    let reading = std::thread::spawn(move || {
        let seen = receive(&receiver);
        receiver.finish().unwrap();
        seen
    });
    for number in 0..BLOCKS {
        assert!(send(&sender, number, number as u8));
        if number % (BLOCKS / CHILDREN) == 0 {
            let claimed = sender.claim().unwrap();
            let seen = in_child(|| {
                let refused = is_forked(sender.claim())
                    && is_forked(sender.claim_timeout(Duration::ZERO))
                    && is_forked(sender.send_message(b"from the child"))
                    && is_forked(sender.wait());
                let is_first = number == 0;
                // SAFETY: the parent's values stay where they are; what is dropped here is the child's copy, which the
                // child does not use again.
                let (sender, claimed) = unsafe { (std::ptr::read(&sender), std::ptr::read(&claimed)) };
                let refused = refused && is_forked(sender.put(claimed, b""));
                drop(sender);
                refused && (!is_first || a_new_stream_works())
            });
            assert!(seen, "the child after block {number}");
        }
    }
    sender.finish().unwrap();
    assert_eq!(reading.join().unwrap(), BLOCKS);
}

#[test]
fn children_of_a_reader_and_of_a_copy_use_nothing_of_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), [3; 100_000]).unwrap();
    let here = Location::Local(folder.path().into());
    let remote = Remote::at(&here, Default::default()).unwrap();
    let file = remote.file(b"file").unwrap();
    let copy = farhaul::copy([folder.path().join("file")], folder.path().join("copy")).start().unwrap();
    let seen = in_child(|| {
        let refused = is_forked(file.read_at(0, 10))
            && is_forked(file.read_into(0, &mut [0; 10]))
            && is_forked(remote.stat(b"file"))
            && is_forked(remote.file(b"file"))
            && copy.is_finished();
        // SAFETY: as above.
        let (remote, file, copy) =
            unsafe { (std::ptr::read(&remote), std::ptr::read(&file), std::ptr::read(&copy)) };
        drop(file);
        let refused = refused && is_forked(remote.finish());
        refused && copy.wait().is_err()
    });
    assert!(seen);
    assert_eq!(file.read_at(99_990, 100).unwrap(), [3; 10]);
    assert_eq!(copy.wait().unwrap().files, 1);
    assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), [3; 100_000]);
    remote.finish().unwrap();
}
