//! Handles the reply to the hello of a session that has begun before it: what the daemon agrees to, or why it
//! refuses.

use farhaul_words::Error;

use super::super::hello_reply::{PendingReply, ReplyAction, SessionAgreement, SessionRefusal};
use super::super::supervisor::Supervisor;
use crate::flows::flow_shared::FlowState;

impl Supervisor {
    /// Does what the reply says, once it has come.
    pub(super) fn poll_reply(&mut self) -> Result<(), Error> {
        let Some(answer) = self.pending.as_ref().and_then(PendingReply::take) else { return Ok(()) };
        let pending = self.pending.take();
        match answer {
            Ok(SessionAgreement { flow_ids, fallback }) => {
                self.carriers.set_fallback(fallback);
                self.rename(&flow_ids);
                Ok(())
            }
            // A daemon that answers on a flow has agreed, whatever happened to the reply.
            Err(SessionRefusal { error, then: ReplyAction::End | ReplyAction::Again }) if self.is_up() => {
                tracing::debug!(%error, "a session goes on without the reply to its hello");
                Ok(())
            }
            Err(SessionRefusal { error, then }) => {
                if let Some(pending) = pending.filter(|_| then != ReplyAction::End) {
                    pending.begin_again();
                }
                Err(error)
            }
        }
    }

    fn is_up(&self) -> bool {
        self.shared.flow_list().iter().any(|flow| flow.state() == FlowState::Up)
    }

    /// Sets the far end's ids, which are in the order of the flows' indices.
    fn rename(&mut self, flow_ids: &[u16]) {
        let id_of = |index: u16| flow_ids.get(usize::from(index)).copied();
        for flow in self.shared.flow_list() {
            if let Some(id) = id_of(flow.index) {
                flow.rename(id);
            }
        }
        self.paths.rename(id_of);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::super::tests::start;
    use super::*;
    use crate::content_role::ContentRole;
    use crate::setup::CarrierFallback;
    use crate::setup::{Setup, local_pair};
    use farhaul_words::Code;

    /// A session that waits for this reply, and its far end.
    fn waiting(answer: Result<SessionAgreement, SessionRefusal>) -> (Supervisor, Setup) {
        let (near, far) = local_pair().unwrap();
        let near = Setup { pending: Some(PendingReply::answered(answer)), ..near };
        (start(near, ContentRole::Receiver), far)
    }

    fn refused(then: ReplyAction) -> Result<SessionAgreement, SessionRefusal> {
        Err(SessionRefusal { error: Error::new(Code::Busy, "no place"), then })
    }

    #[test]
    fn a_late_refusal_ends_the_session_and_one_that_may_pass_has_it_begun_anew() {
        for then in [ReplyAction::End, ReplyAction::Again] {
            let (mut supervisor, _far) = waiting(refused(then));
            let again = supervisor.pending.as_ref().map(PendingReply::again).unwrap();
            let ended = supervisor.drive(Duration::ZERO);
            assert!(matches!(ended, Err(error) if error.code() == Code::Busy));
            assert_eq!(again.is_due(), then == ReplyAction::Again);
            supervisor.close(None);
        }
    }

    #[test]
    fn who_answers_on_a_flow_has_agreed() {
        let (mut supervisor, _far) = waiting(refused(ReplyAction::Again));
        supervisor.shared.flow_list()[0].set_state(FlowState::Up);
        assert!(supervisor.drive(Duration::ZERO).is_ok());
        supervisor.close(None);
    }

    #[test]
    fn who_has_agreed_to_less_is_asked_anew_even_if_it_has_answered_on_a_flow() {
        let (mut supervisor, _far) = waiting(refused(ReplyAction::AgainInAnyCase));
        let again = supervisor.pending.as_ref().map(PendingReply::again).unwrap();
        supervisor.shared.flow_list()[0].set_state(FlowState::Up);
        assert!(supervisor.drive(Duration::ZERO).is_err() && again.is_due());
        supervisor.close(None);
    }

    #[test]
    fn a_session_that_was_up_waits_for_its_reply_even_if_it_fails() {
        for was_up in [false, true] {
            let (near, _far) = local_pair().unwrap();
            let (tell, pending) = PendingReply::new(());
            let near = Setup { pending: Some(pending), ..near };
            let mut supervisor = start(near, ContentRole::Receiver);
            supervisor.was_up = was_up;
            let answers = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                let agreed = SessionAgreement { flow_ids: vec![], fallback: CarrierFallback::None };
                tell.send(Ok(agreed)).is_ok()
            });
            supervisor.close(Some(&Error::new(Code::NoSpace, "no space")));
            assert_eq!(answers.join().unwrap(), was_up, "the reply has been waited for");
        }
    }

    #[test]
    fn the_flows_go_on_under_the_ids_of_the_reply() {
        let agreed = SessionAgreement { flow_ids: vec![4711], fallback: CarrierFallback::None };
        let (mut supervisor, _far) = waiting(Ok(agreed));
        let flow = supervisor.shared.flow_list()[0].clone();
        flow.retire.store(true, Ordering::Release);
        flow.wake();
        while flow.state() != FlowState::Down {
            std::thread::yield_now();
        }
        // The flow's thread, which would take the id, has ended.
        supervisor.poll_reply().unwrap();
        assert_eq!(flow.take_other_send_id(), Some(4711));
        assert!(supervisor.pending.is_none());
    }
}
