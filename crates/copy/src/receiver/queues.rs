//! The queues in which the receiver's threads find their work.

use std::sync::Arc;

use crossbeam_channel::{Receiver as Channel, Sender as ChannelEnd};

use super::super::incoming_file::IncomingFile;
use super::comparison::FileToRead;
use super::link_creation::LinkCopy;

/// One queue for each kind of work. What is left in them when a session fails is dropped with the receiver.
#[derive(Default)]
pub(crate) struct ReceiverQueues {
    /// Files of several pieces that are complete and get their names; to the writers.
    pub(crate) complete: TaskQueue<Arc<IncomingFile>>,
    /// Files of the destination whose digests are wanted; to the threads "compare".
    pub(super) digest: TaskQueue<FileToRead>,
    /// Large files of which there is old content; to the threads "patch".
    pub(super) patch: TaskQueue<Arc<IncomingFile>>,
    /// Hard links that cannot be made, so that the files are copied; to the threads "patch".
    pub(super) link_copies: TaskQueue<LinkCopy>,
}

/// Tasks of which each goes to one of several threads. It has no bound: what may be outstanding is bounded
/// where entries are admitted.
///
/// Always true: as both ends are in here, it is never closed.
pub(crate) struct TaskQueue<T> {
    end: ChannelEnd<T>,
    tasks: Channel<T>,
}

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        let (end, tasks) = crossbeam_channel::unbounded();
        TaskQueue { end, tasks }
    }
}

impl<T> TaskQueue<T> {
    pub(crate) fn put(&self, task: T) {
        // Sending fails only when the other end is gone.
        let _ = self.end.send(task);
    }

    /// The end that threads wait at.
    pub(crate) fn tasks(&self) -> &Channel<T> {
        &self.tasks
    }
}
