//! One question about many paths, or about parts of many files. Each is asked before the earlier answers have come, so
//! that they do not cost a round trip each.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{bounded, unbounded};
use farhaul_volume::Algorithm;
use farhaul_words::{Code, Error};

use super::super::messages::{FileRange, ListEntry, ReadMessage};
use super::Remote;
use super::client_session::ClientSession;
use super::file::RemoteFile;
use super::pending_calls::{PendingCall, PendingRanges};

/// The most questions under way at a time; it is below the number of files that a far end may have open.
const AT_ONCE: usize = 256;
/// The most files that are open ahead of the one that is read.
const OPEN_AHEAD: usize = 16;
/// No file ends behind this offset.
const END_MAX: u64 = i64::MAX as u64;

/// Answers in the order of what was asked about. Dropping it cancels the questions under way.
pub struct Answers<'a, I: Iterator, T> {
    remote: &'a Remote,
    paths: I,
    ask: AskFn<I::Item, T>,
    /// The most questions that are asked now. It falls if each keeps a file open at the far end, and the far
    /// end cannot open that many.
    at_once: usize,
    questions: VecDeque<(I::Item, Question<T>)>,
}

enum Question<T> {
    Asked(PendingAnswer<T>),
    /// The far end had no room for it while others were asked.
    AskAgain,
    Answered(Result<T, Error>),
}

/// Asks about a path, or about a part of a file.
type AskFn<K, T> = Box<dyn Fn(&Remote, &K) -> Result<PendingAnswer<T>, Error> + Send>;

struct PendingAnswer<T> {
    link: Arc<ClientSession>,
    op: Option<u64>,
    /// The file that was opened for the question, until the question is answered or dropped.
    file: Option<u64>,
    /// Waits for the answer.
    answer: Option<AnswerFn<T>>,
}

/// Waits for an answer; the file that was opened for it belongs to the answer from here on.
type AnswerFn<T> = Box<dyn FnOnce(&Arc<ClientSession>) -> Result<T, Error> + Send>;

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, ListEntry> {
    pub(super) fn stats(remote: &'a Remote, follow: bool, paths: I) -> Answers<'a, I, ListEntry> {
        let ask = move |remote: &Remote, path: &Vec<u8>| {
            let (put, answer) = bounded(1);
            let (link, path) = (remote.link.clone(), remote.full(path));
            let op = link.ask(PendingCall::Stat(put), |op| ReadMessage::Stat { op, path, follow })?;
            let answer = move |link: &Arc<ClientSession>| link.wait(&answer)?.map_err(Error::from);
            Ok(PendingAnswer { link, op: Some(op), file: None, answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: AT_ONCE, questions: VecDeque::new() }
    }
}

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, (Vec<u8>, u64)> {
    pub(super) fn digests(
        remote: &'a Remote,
        algorithm: Algorithm,
        paths: I,
    ) -> Answers<'a, I, (Vec<u8>, u64)> {
        let ask = move |remote: &Remote, path: &Vec<u8>| {
            let link = remote.link.clone();
            // If the file cannot be opened, the digest fails with the reason.
            let (opening, _) = bounded(1);
            let file = link.open(remote.full(path), opening)?;
            let (put, answer) = bounded(1);
            let digest = |op| ReadMessage::Digest { op, file, range: None, algorithm };
            let op = link.ask(PendingCall::Digest(put), digest).inspect_err(|_| link.close(file))?;
            let answer = move |link: &Arc<ClientSession>| {
                let answer = link.wait(&answer);
                link.close(file);
                let (bytes, digest) = answer??;
                Ok((digest, bytes))
            };
            Ok(PendingAnswer { link, op: Some(op), file: Some(file), answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: AT_ONCE, questions: VecDeque::new() }
    }
}

impl<'a, I: Iterator<Item = Vec<u8>>> Answers<'a, I, RemoteFile> {
    pub(super) fn files(remote: &'a Remote, paths: I) -> Answers<'a, I, RemoteFile> {
        let ask = move |remote: &Remote, path: &Vec<u8>| {
            let (put, answer) = bounded(1);
            let link = remote.link.clone();
            let number = link.open(remote.full(path), put)?;
            let answer = move |link: &Arc<ClientSession>| {
                let opened = link.wait(&answer)?.inspect_err(|_| link.close(number));
                Ok(RemoteFile::new(link.clone(), number, opened?))
            };
            Ok(PendingAnswer { link, op: None, file: Some(number), answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths, ask: Box::new(ask), at_once: OPEN_AHEAD, questions: VecDeque::new() }
    }
}

impl<'a, I: Iterator<Item = (Vec<u8>, FileRange)>> Answers<'a, I, Vec<u8>> {
    pub(super) fn parts(remote: &'a Remote, parts: I) -> Answers<'a, I, Vec<u8>> {
        let ask = move |remote: &Remote, (path, range): &(Vec<u8>, FileRange)| {
            let link = remote.link.clone();
            // If the file cannot be opened, the read fails with the reason.
            let (opening, _) = bounded(1);
            let file = link.open(remote.full(path), opening)?;
            let (to, answer) = unbounded();
            let mut waiting = PendingRanges::of_unknown_size(file, to);
            let range = FileRange { len: range.len.min(END_MAX.saturating_sub(range.offset)), ..*range };
            waiting.expect(0, range);
            let ranges = vec![range];
            let read = |op| ReadMessage::Read { op, file, first: 0, ranges };
            let op = link.ask(PendingCall::Ranges(waiting), read).inspect_err(|_| link.close(file))?;
            let answer = move |link: &Arc<ClientSession>| {
                let answer = link.wait(&answer);
                link.close(file);
                let (_, bytes) = answer?;
                bytes.map_err(Error::from)
            };
            Ok(PendingAnswer { link, op: Some(op), file: Some(file), answer: Some(Box::new(answer)) })
        };
        Answers { remote, paths: parts, ask: Box::new(ask), at_once: AT_ONCE, questions: VecDeque::new() }
    }
}

impl<I: Iterator, T> Iterator for Answers<'_, I, T> {
    type Item = (I::Item, Result<T, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.ask_more();
            let (path, question) = self.questions.pop_front()?;
            match question {
                Question::Answered(answer) => return Some((path, answer)),
                // The first question is asked before any other.
                Question::AskAgain => return Some((path, Err(Error::bug("a question that was asked")))),
                Question::Asked(pending) => match pending.answer() {
                    Err(error) if error.code() == Code::ShareUsed && self.at_once > 1 => {
                        self.questions.push_front((path, Question::AskAgain));
                        self.ask_fewer();
                    }
                    answer => return Some((path, answer)),
                },
            }
        }
    }
}

impl<I: Iterator, T> Answers<'_, I, T> {
    fn ask_more(&mut self) {
        let mut room = self.at_once.saturating_sub(self.asked());
        for (path, question) in &mut self.questions {
            if room > 0 && matches!(question, Question::AskAgain) {
                *question = Question::ask(&self.ask, self.remote, path);
                room -= 1;
            }
        }
        while room > 0 && self.questions.len() < AT_ONCE {
            let Some(path) = self.paths.next() else { return };
            let question = Question::ask(&self.ask, self.remote, &path);
            self.questions.push_back((path, question));
            room -= 1;
        }
    }

    /// Takes all answers that are under way, so that nothing is kept open for them, and asks fewer questions
    /// at once from here on.
    fn ask_fewer(&mut self) {
        self.at_once = (self.at_once.min(1 + self.asked()) / 2).max(1);
        for (_, question) in &mut self.questions {
            *question = match std::mem::replace(question, Question::AskAgain) {
                Question::Asked(pending) => match pending.answer() {
                    Err(error) if error.code() == Code::ShareUsed => Question::AskAgain,
                    answer => Question::Answered(answer),
                },
                other => other,
            };
        }
    }

    fn asked(&self) -> usize {
        self.questions.iter().filter(|(_, question)| matches!(question, Question::Asked(_))).count()
    }
}

impl<T> Question<T> {
    fn ask<K>(ask: &AskFn<K, T>, remote: &Remote, about: &K) -> Question<T> {
        match ask(remote, about) {
            Ok(pending) => Question::Asked(pending),
            Err(error) => Question::Answered(Err(error)),
        }
    }
}

impl<T> PendingAnswer<T> {
    /// Waits for the answer.
    fn answer(mut self) -> Result<T, Error> {
        self.file = None;
        let answer = self.answer.take().map(|answer| answer(&self.link));
        answer.unwrap_or_else(|| Err(Error::bug("an answer")))
    }
}

impl<T> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        if let Some(op) = self.op {
            self.link.cancel(op);
        }
        if let Some(file) = self.file {
            self.link.close(file);
        }
    }
}
