//! Takes the kernel's requests one after another, and has each answered on a thread of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::file_system::FileSystem;
use super::tickets::{Ticket, Tickets};
use super::wire::{self, Operation, REQUEST_MAX, Request};
use super::workers::Workers;

/// How often it is looked whose time is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most requests that are worked on at once. Processes wait for the others, which still end in time.
const WORKERS: usize = 512;

/// How long requests may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) read: Duration,
    pub(crate) metadata: Duration,
}

/// Answers requests until the mount is over.
pub(crate) fn serve(device: &Arc<OwnedFd>, files: &Arc<FileSystem>, waits: Waits) -> Result<(), Errno> {
    let tickets = Tickets::new(device);
    let workers = Workers::new("mount", WORKERS);
    let is_over = Arc::new(AtomicBool::new(false));
    let (looking, over) = (tickets.clone(), is_over.clone());
    let look = move || {
        while !over.load(SeqCst) {
            std::thread::sleep(LOOK_EVERY);
            looking.expire(Instant::now());
        }
    };
    let looker = std::thread::Builder::new().name("mount-time".into()).spawn(look);
    looker.map_err(|_| Errno::AGAIN)?;
    let mut buffer = vec![0; REQUEST_MAX];
    let ended = loop {
        let len = match rustix::io::read(&**device, &mut buffer) {
            Ok(len) => len,
            // A request was taken back, or a signal has come.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            Err(Errno::NODEV) => break Ok(()),
            Err(error) => break Err(error),
        };
        let Some(request) = wire::decode(&buffer[..len]) else {
            if let Some(unique) = buffer.get(8..16).filter(|_| len >= wire::IN_HEADER) {
                let unique = u64::from_ne_bytes(unique.try_into().unwrap_or_default());
                tickets.write(unique, Errno::INVAL.raw_os_error(), &[]);
            }
            continue;
        };
        match request.what {
            Operation::Interrupt { unique } => tickets.interrupt(unique),
            Operation::Forget { forgotten } => files.forget(&forgotten),
            Operation::Init { major, minor, max_readahead, flags } => match major {
                7.. => tickets.write(request.unique, 0, &wire::init(minor, max_readahead, flags)),
                _ => tickets.write(request.unique, Errno::PROTO.raw_os_error(), &[]),
            },
            Operation::Destroy => {
                tickets.write(request.unique, 0, &[]);
                break Ok(());
            }
            Operation::Change => tickets.write(request.unique, Errno::ROFS.raw_os_error(), &[]),
            Operation::Unknown => tickets.write(request.unique, Errno::NOSYS.raw_os_error(), &[]),
            Operation::StatFs => tickets.write(request.unique, 0, &wire::room()),
            Operation::Release { handle } | Operation::ReleaseDir { handle } => {
                files.release(handle);
                tickets.write(request.unique, 0, &[]);
            }
            _ => {
                let is_read = matches!(request.what, Operation::Read { .. });
                let now = Instant::now();
                if is_read && tickets.is_in_vain(request.node, now) {
                    tickets.write(request.unique, Errno::IO.raw_os_error(), &[]);
                    continue;
                }
                let wait = if is_read { waits.read } else { waits.metadata };
                let ticket = tickets.issue((request.unique, request.node), now + wait);
                let files = files.clone();
                workers.run(move || answer(&files, &request, &ticket));
            }
        }
    };
    is_over.store(true, SeqCst);
    files.store.far.close();
    ended
}

fn answer(files: &FileSystem, request: &Request, ticket: &Ticket) {
    if ticket.is_answered() {
        return;
    }
    let node = request.node;
    let answer = match &request.what {
        Operation::Lookup { name } => files.lookup(node, name, ticket),
        Operation::GetAttr { .. } => files.attributes(node, ticket),
        Operation::ReadLink => files.read_link(node),
        Operation::Open { flags } => match flags & 0o3 {
            0 => files.open(node, ticket),
            _ => Err(Errno::ROFS),
        },
        Operation::Read { handle, offset, size } => {
            files.read(*handle, *offset, (*size).min(wire::READ_MAX), ticket)
        }
        Operation::OpenDir => files.open_directory(node, ticket),
        Operation::ReadDir { handle, offset, size, plus } => {
            files.read_directory((node, *handle), *offset, (*size).min(wire::READ_MAX), *plus)
        }
        _ => Err(Errno::NOSYS),
    };
    match answer {
        Ok(body) => ticket.answer(&body),
        Err(error) => ticket.fail(error),
    }
}
