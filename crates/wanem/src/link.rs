//! A link: two workers, their settings and their figures.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use farhaul_motion::LinkDirection;
use serde::Serialize;

use crate::io::{
    DirectionReport, DirectionTotals, LinkWorker, SideDevices, WorkerCommand, WorkerMailbox, now,
};
use crate::model::LinkModel;
use crate::packet::Router;
use crate::{DirectionProfile, Error, LinkSettings};

/// The most memory for packets under way, per direction: 10 Gbit/s for 400 ms.
const MEMORY_BYTES: usize = 512 << 20;

/// Both directions of a link, in an interval or since the start.
#[derive(Debug, Clone, Serialize)]
pub struct LinkReport {
    /// From A to B.
    pub forward: DirectionReport,
    /// From B to A.
    pub backward: DirectionReport,
}

impl LinkReport {
    /// Whether the emulator was itself the bottleneck in either direction.
    pub fn is_overloaded(&self) -> bool {
        !(self.forward.overloaded.is_empty() && self.backward.overloaded.is_empty())
    }
}

/// The devices of one side of a link.
pub(crate) struct LinkEnd {
    pub side: SideDevices,
    /// Each host's own `/proc/net/dev`.
    pub counters: Vec<File>,
}

pub(crate) struct LabLink {
    settings: Mutex<LinkSettings>,
    mailboxes: [Arc<WorkerMailbox>; 2],
    /// For each direction, the counters of the sending hosts, which show what their devices (named `device`)
    /// have dropped.
    senders: Mutex<[Vec<File>; 2]>,
    device: String,
    begin: [DirectionTotals; 2],
    threads: Vec<JoinHandle<()>>,
}

impl LabLink {
    pub(crate) fn start(
        settings: LinkSettings,
        seed: u64,
        device: String,
        ends: [LinkEnd; 2],
        router: Router,
    ) -> Result<LabLink, Error> {
        let failed = || Error::io("cannot start a link");
        let rtt_ns = settings.rtt_ns();
        let [a, b] = ends;
        let mut mailboxes = Vec::new();
        let mut threads = Vec::new();
        let directions = [
            ("a-to-b", LinkDirection::Forward, &settings.forward, (a.side.clone(), b.side.clone())),
            ("b-to-a", LinkDirection::Back, &settings.backward, (b.side, a.side)),
        ];
        for (name, way, profile, sides) in directions {
            let mailbox = Arc::new(WorkerMailbox::new().map_err(failed())?);
            let model = LinkModel::new(profile, rtt_ns, seed, way);
            let worker = LinkWorker::new(sides, router, model, MEMORY_BYTES, mailbox.clone());
            let thread = std::thread::Builder::new().name(format!("{device} {name}"));
            threads.push(thread.spawn(move || worker.run()).map_err(failed())?);
            mailboxes.push(mailbox);
        }
        let mailboxes: [Arc<WorkerMailbox>; 2] = mailboxes.try_into().expect("a link has two directions");
        let begin = [mailboxes[0].sums(), mailboxes[1].sums()];
        let senders = Mutex::new([a.counters, b.counters]);
        Ok(LabLink { settings: Mutex::new(settings), mailboxes, senders, device, begin, threads })
    }

    pub(crate) fn settings(&self) -> LinkSettings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change(&self, settings: LinkSettings) {
        let rtt_ns = settings.rtt_ns();
        let tell = |mailbox: &WorkerMailbox, profile: &DirectionProfile| {
            mailbox.send(WorkerCommand::Change { profile: Box::new(profile.clone()), rtt_ns });
        };
        tell(&self.mailboxes[0], &settings.forward);
        tell(&self.mailboxes[1], &settings.backward);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub(crate) fn cut(&self, ns: u64) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerCommand::Cut { ns }));
    }

    pub(crate) fn begin(&self) -> [DirectionTotals; 2] {
        self.begin
    }

    pub(crate) fn sums(&self) -> [DirectionTotals; 2] {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        [0, 1].map(|index| {
            let mut sums = self.mailboxes[index].sums();
            // An idle worker publishes nothing, but its time goes on.
            sums.at_ns = now();
            sums.faults.device_full =
                senders[index].iter_mut().filter_map(|file| dropped_by(file, &self.device)).sum();
            sums
        })
    }

    pub(crate) fn report(before: &[DirectionTotals; 2], now: &[DirectionTotals; 2]) -> LinkReport {
        LinkReport {
            forward: DirectionReport::between(&before[0], &now[0]),
            backward: DirectionReport::between(&before[1], &now[1]),
        }
    }
}

impl Drop for LabLink {
    fn drop(&mut self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerCommand::Stop));
        for thread in self.threads.drain(..) {
            // A worker that panicked has reported that on stderr.
            let _ = thread.join();
        }
    }
}

/// Packets that a device dropped on transmission.
fn dropped_by(file: &mut File, device: &str) -> Option<u64> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    dropped_in(&text, device)
}

fn dropped_in(text: &str, device: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_dropped_is_read() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13\n\
                    \x20 fh0: 1 2 3 4 5 6 7 8 9 10 11 77 13 14 15 16\n";
        assert_eq!(dropped_in(text, "fh0"), Some(77));
        assert_eq!(dropped_in(text, "fh1"), None);
    }
}
