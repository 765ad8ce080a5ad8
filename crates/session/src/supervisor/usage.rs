//! Decides which of its paths a running session uses, and watches whether the socket buffers of this host are
//! large enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_words::Error;

use super::super::messages::SessionMessage;
use super::super::supervisor::Supervisor;
use crate::flows::flow_shared::FlowShared;

impl Supervisor {
    pub(super) fn is_used(&self, path: usize) -> bool {
        self.paths.is_used(path, self.absent_paths())
    }

    /// Returns whether a path's flows get new blocks: not while streams bring so much more that UDP is not
    /// used.
    pub(super) fn is_carrying(&self, path: usize) -> bool {
        self.is_used(path) && !self.streams.is_udp_idle()
    }

    pub(super) fn obey_path_wishes(&mut self) -> Result<(), Error> {
        let requests = self.shared.requests.all();
        let wishes = requests.iter().flat_map(|one| one.handle.take_path_wishes());
        let unused = self.paths.obey(wishes, self.absent_paths());
        if unused != self.paths.unused() {
            self.apply_paths(unused)?;
            self.shared.say(&[SessionMessage::PathsUnused(unused)]);
        }
        Ok(())
    }

    pub(super) fn absent_paths(&self) -> u64 {
        self.shared.absent_paths.load(Ordering::Acquire)
    }

    /// Gives these paths nothing new from now on. Blocks under way there stays with the flows that carry it.
    pub(super) fn apply_paths(&mut self, unused: u64) -> Result<(), Error> {
        self.paths.set_unused(unused, self.absent_paths())?;
        for flow in self.shared.flow_list().iter().filter(|flow| !flow.is_stream) {
            flow.active.store(self.is_carrying(flow.path), Ordering::Release);
        }
        self.apply_rate(self.rates.rate());
        Ok(())
    }

    /// Warns once that the kernel's socket buffers at this end are too small, and says what would change
    /// that.
    pub(super) fn say_short_buffer(&mut self, flows: &[Arc<FlowShared>]) {
        let granted = flows.iter().map(|flow| flow.short_buffer.load(Ordering::Relaxed)).max().unwrap_or(0);
        if granted == 0 || self.short_buffer_said {
            return;
        }
        self.short_buffer_said = true;
        let (end, verb, name) = match self.is_sender {
            true => ("sender", "hold back", "wmem_max"),
            false => ("receiver", "lose", "rmem_max"),
        };
        self.warn(format!(
            "the {end}'s socket buffers of {} KiB are small for this rate and may {verb} packets: there, sysctl -w net.core.{name}={}",
            granted >> 10,
            farhaul_net::SOCKET_BUFFER_BYTES
        ));
    }
}

#[cfg(test)]
mod tests {
    use farhaul_words::Misbehaviour;

    use super::super::tests::start;
    use crate::content_role::ContentRole;
    use crate::setup::local_pair;

    #[test]
    fn a_peer_leaves_one_path_in_use() {
        let (near, _far) = local_pair().unwrap();
        let mut supervisor = start(near, ContentRole::Sender);
        for unused in [1, 2, u64::MAX] {
            let applied = supervisor.apply_paths(unused);
            assert_eq!(Misbehaviour::of(&applied), Some(Misbehaviour::NoPathUsed), "{unused}");
        }
        assert!(supervisor.apply_paths(0).is_ok());
        supervisor.close(None);
    }
}
