//! A question to somebody outside of this service, such as a far end, who may never answer.

use std::any::Any;
use std::sync::{Arc, Mutex};

use farhaul::Handle;
use farhaul::events::Event;
use farhaul::sisters::DialRequester;
use farhaul_handover::Held as _;

/// A question that is being asked. It can be given up at any time.
pub(crate) struct Question {
    /// Cancelled once nobody wants the answer.
    asking: Handle,
    /// The session with the far end, once there is one.
    session: Mutex<Option<Handle>>,
    /// Kept until everything has ended that was begun for the question.
    place: Arc<dyn Any + Send + Sync>,
}

impl Question {
    pub(crate) fn new(place: Arc<dyn Any + Send + Sync>) -> Question {
        Question { asking: Handle::new(), session: Mutex::default(), place }
    }

    /// Nobody wants the answer any more: what was begun for it ends soon.
    pub(crate) fn give_up(&self) {
        let session = self.session.lock().in_any_case();
        self.asking.cancel();
        if let Some(session) = &*session {
            session.cancel();
        }
    }

    /// The question goes on in this session, which ends when the question is given up.
    pub(crate) fn goes_on_in(&self, handle: &Handle) {
        let mut session = self.session.lock().in_any_case();
        if self.asking.is_cancelled() {
            handle.cancel();
        }
        *session = Some(handle.clone());
    }
}

impl DialRequester for Question {
    fn is_cancelled(&self) -> bool {
        self.asking.is_cancelled()
    }

    fn tell(&self, _event: Event) {}

    fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.place.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_ends_the_session_whether_it_has_begun_or_begins_later() {
        for is_late in [false, true] {
            let (question, session) = (Question::new(Arc::new(())), Handle::new());
            if is_late {
                question.give_up();
                question.goes_on_in(&session);
            } else {
                question.goes_on_in(&session);
                assert!(!session.is_cancelled());
                question.give_up();
            }
            assert!(question.is_cancelled() && session.is_cancelled());
        }
    }
}
