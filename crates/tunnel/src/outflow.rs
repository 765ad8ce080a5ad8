//! The bytes of a channel that a local socket brings: whether it may be read, and how far the far end has room.
//!
//! Always true: nothing is sent beyond the room, and nothing behind the end.

#[derive(Debug, Default)]
pub(crate) struct Outflow {
    sent: u64,
    room: u64,
    /// True if the socket may have bytes, or its end.
    is_readable: bool,
    /// True while the channel waits for its turn.
    is_queued: bool,
    is_ended: bool,
}

impl Outflow {
    /// The far end has room up to this offset; false if it had more before, or gives more than there are offsets.
    pub(crate) fn widen(&mut self, until: u64) -> bool {
        let is_right = until >= self.room && until <= u64::MAX >> 1;
        if is_right {
            self.room = until;
        }
        is_right
    }

    pub(crate) fn may_read(&mut self) {
        self.is_readable = true;
    }

    /// Returns whether the channel is to be put in the queue of those that are read.
    pub(crate) fn queue(&mut self) -> bool {
        let is_due = self.is_readable && self.sent < self.room && !self.is_queued && !self.is_ended;
        self.is_queued |= is_due;
        is_due
    }

    /// It is the channel's turn: the offset of its next byte, and how many there is room for. `None` if the room was
    /// used up since the channel was queued: a read of no bytes would look like the end. Whatever the socket gets from
    /// here on makes it readable again.
    pub(crate) fn turn(&mut self) -> Option<(u64, u64)> {
        self.is_queued = false;
        if self.sent >= self.room || self.is_ended {
            return None;
        }
        self.is_readable = false;
        Some((self.sent, self.room - self.sent))
    }

    /// These bytes were read; 0 is the end.
    pub(crate) fn read(&mut self, count: u64) {
        if count == 0 {
            self.is_ended = true;
        } else {
            self.sent += count;
            self.is_readable = true;
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_queued_once_and_only_with_room() {
        let mut outflow = Outflow::default();
        outflow.may_read();
        assert!(!outflow.queue(), "no room");
        assert!(outflow.widen(10) && outflow.queue() && !outflow.queue());
        assert_eq!(outflow.turn(), Some((0, 10)));
        assert!(!outflow.queue(), "nothing is known to be there");
        outflow.read(10);
        assert!(!outflow.queue(), "the room is used up");
        assert!(outflow.widen(20) && outflow.queue());
        assert_eq!(outflow.turn(), Some((10, 10)));
        outflow.read(0);
        outflow.may_read();
        assert!(outflow.is_ended() && !outflow.queue());
    }

    #[test]
    fn a_channel_that_becomes_readable_during_its_turn_reads_nothing_without_room() {
        let mut outflow = Outflow::default();
        outflow.may_read();
        assert!(outflow.widen(10) && outflow.queue() && outflow.turn().is_some());
        outflow.may_read();
        assert!(outflow.queue(), "more has come while it is read");
        outflow.read(10);
        assert_eq!(outflow.turn(), None);
        assert!(outflow.widen(20) && outflow.queue(), "it is still known to be readable");
    }

    #[test]
    fn room_is_never_taken_back() {
        let mut outflow = Outflow::default();
        assert!(outflow.widen(10) && outflow.widen(10) && !outflow.widen(9) && !outflow.widen(u64::MAX));
    }
}
