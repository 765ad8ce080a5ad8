//! Questions to far ends, and whatever else may wait as long as somebody outside of this service likes: few at
//! a time, on threads of their own, so that nothing else waits behind them.
//!
//! Always true: a caller gets an answer within [`TIME`]. A question that is given up, or whose caller has gone,
//! counts until the last thread has ended that was begun for it. Over the Unix socket there is always room, as
//! far as its own share goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use tokio::sync::oneshot;

use super::problem::HandlerFailure;
use crate::node::Question;
use crate::node::logins::SOCKET;

/// The most questions of all callers but the Unix socket. One takes 16 MiB at the very most.
const ALL_MAX: usize = 16;
/// The most questions of one caller.
const EACH_MAX: usize = 4;
/// How long an answer may take.
const TIME: Duration = Duration::from_secs(20);
/// When to come again if there is no room.
const RETRY_AFTER_S: u64 = 5;

/// The questions that are being asked.
#[derive(Debug, Default)]
pub(crate) struct Questions(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Without those over the socket.
    total: usize,
    of_caller: HashMap<String, usize>,
}

/// The place of one question.
#[derive(Debug)]
struct QuestionPlace {
    table: Arc<Mutex<Table>>,
    principal: String,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRoom {
    /// The caller has as many questions as it may.
    Own,
    /// All callers together have.
    All,
}

impl Questions {
    /// Asks a question on a thread of its own.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        principal: &str,
        work: impl FnOnce(&Question) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        self.ask_within(TIME, principal, work).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        time: Duration,
        principal: &str,
        work: impl FnOnce(&Question) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        let place = self.place(principal).map_err(|no_room| match no_room {
            NoRoom::Own => HandlerFailure::too_many(
                "this caller already asks as many far ends and directories as it may at a time",
                RETRY_AFTER_S,
            ),
            NoRoom::All => HandlerFailure::too_many(
                "the service already asks as many far ends and directories as it does at a time",
                RETRY_AFTER_S,
            ),
        })?;
        let question = Arc::new(Question::new(Arc::new(place)));
        // Dropped at the end, and when the caller goes.
        let _wanted = Wanted(question.clone());
        let (put, answer) = oneshot::channel();
        let run = move || {
            let answer = work(&question);
            // Whoever hears the answer may ask again at once.
            drop(question);
            drop(put.send(answer));
        };
        std::thread::Builder::new().name("question".into()).spawn(run).map_err(Error::no_thread)?;
        match tokio::time::timeout(time, answer).await {
            Ok(Ok(answer)) => answer.map_err(HandlerFailure::from),
            Ok(Err(_)) => Err(Error::bug("a question").into()),
            Err(_) => {
                let what = format!("there was no answer within {} s", time.as_secs());
                let error = Error::new(Code::PeerSilent, what).with_hint("look at the host that was asked");
                Err(HandlerFailure::with_status(error, StatusCode::GATEWAY_TIMEOUT))
            }
        }
    }

    fn place(&self, principal: &str) -> Result<QuestionPlace, NoRoom> {
        let mut table = self.0.lock().in_any_case();
        let own = table.of_caller.get(principal).copied().unwrap_or(0);
        let counts = principal != SOCKET;
        match () {
            () if own >= EACH_MAX => return Err(NoRoom::Own),
            () if counts && table.total >= ALL_MAX => return Err(NoRoom::All),
            () => {}
        }
        table.total += usize::from(counts);
        table.of_caller.insert(principal.to_string(), own + 1);
        Ok(QuestionPlace { table: self.0.clone(), principal: principal.to_string() })
    }
}

impl Drop for QuestionPlace {
    fn drop(&mut self) {
        let mut table = self.table.lock().in_any_case();
        table.total -= usize::from(self.principal != SOCKET);
        match table.of_caller.get_mut(&self.principal) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(table.of_caller.remove(&self.principal)),
        }
    }
}

/// Somebody waits for the answer.
struct Wanted(Arc<Question>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use farhaul::sisters::DialRequester as _;

    use super::*;

    /// A question that nobody answers until it is given up.
    fn silence(question: &Question) -> Result<(), Error> {
        while !question.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::interrupted())
    }

    async fn until_empty(questions: &Questions) {
        while questions.0.lock().unwrap().total > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn a_caller_has_few_places_all_have_bounded_ones_and_the_socket_has_its_own() {
        let questions = Questions::default();
        let many = |principal: &str| -> Vec<QuestionPlace> {
            (0..EACH_MAX).map(|_| questions.place(principal).unwrap()).collect()
        };
        let mut held = vec![many("token:0")];
        assert_eq!(questions.place("token:0").err(), Some(NoRoom::Own));
        held.extend((1..ALL_MAX / EACH_MAX).map(|number| many(&format!("token:{number}"))));
        assert_eq!(questions.place("token:x").err(), Some(NoRoom::All));
        held.push(many(SOCKET));
        assert_eq!(questions.place(SOCKET).err(), Some(NoRoom::Own));
        held.clear();
        let table = questions.0.lock().unwrap();
        assert_eq!((table.total, table.of_caller.len()), (0, 0));
    }

    #[tokio::test]
    async fn who_is_not_answered_in_time_hears_that_and_the_question_is_given_up() {
        let questions = Questions::default();
        let failure = questions.ask_within(Duration::ZERO, "token:a", silence).await.unwrap_err();
        assert_eq!((failure.status(), failure.error.code()), (StatusCode::GATEWAY_TIMEOUT, Code::PeerSilent));
        until_empty(&questions).await;
        assert_eq!(questions.ask("token:a", |_| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_question_whose_caller_has_gone_is_given_up() {
        let questions = Arc::new(Questions::default());
        let asked = questions.clone();
        let caller = tokio::spawn(async move { asked.ask("token:a", silence).await });
        while questions.0.lock().unwrap().total == 0 {
            tokio::task::yield_now().await;
        }
        caller.abort();
        until_empty(&questions).await;
    }

    #[tokio::test]
    async fn what_outlives_a_question_keeps_its_place() {
        let questions = Questions::default();
        let held = questions.ask("token:a", |question| Ok(question.hold())).await.unwrap();
        assert_eq!(questions.0.lock().unwrap().total, 1);
        drop(held);
        until_empty(&questions).await;
    }
}
