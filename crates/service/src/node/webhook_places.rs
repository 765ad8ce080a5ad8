//! How many webhooks are delivered at a time: in all, to one receiver, and to receivers that do not answer.
//!
//! Always true: a receiver that does not answer takes few places for itself, and all such receivers together leave
//! half of the places to the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::hooks::webhook::WebhookUrl;

/// The most webhooks that are delivered at a time: each takes a connection and a few pages of memory.
pub(super) const WEBHOOKS_MAX: usize = 16;
/// The most of them that go to one receiver.
const EACH_MAX: usize = 2;
/// The most of them that go to receivers that have not taken the last message.
const TROUBLED_MAX: usize = WEBHOOKS_MAX / 2;
/// The most receivers that are remembered as troubled; beyond that, all are forgotten.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct WebhookPlaces {
    under_way: BTreeMap<String, usize>,
    /// The receivers that have not taken the last message that they got.
    troubled: BTreeSet<String>,
}

/// A receiver is a host and a port, whatever the path.
fn receiver(url: &WebhookUrl) -> String {
    format!("{} {}", url.host(), url.port())
}

impl WebhookPlaces {
    pub(super) fn are_full(&self) -> bool {
        self.under_way.values().sum::<usize>() >= WEBHOOKS_MAX
    }

    /// Takes a place for a message; returns false if there is none now.
    pub(super) fn take(&mut self, url: &WebhookUrl) -> bool {
        let receiver = receiver(url);
        let there = self.under_way.get(&receiver).copied().unwrap_or(0);
        let is_troubled = self.troubled.contains(&receiver);
        let troubled = || {
            let counts = self.under_way.iter().filter(|(one, _)| self.troubled.contains(*one));
            counts.map(|(_, count)| count).sum::<usize>()
        };
        if self.are_full() || there >= EACH_MAX || is_troubled && (there > 0 || troubled() >= TROUBLED_MAX) {
            return false;
        }
        self.under_way.insert(receiver, there + 1);
        true
    }

    /// A message is no longer under way; `is_taken` says whether the receiver has answered it.
    pub(super) fn give_back(&mut self, url: &WebhookUrl, is_taken: bool) {
        let receiver = receiver(url);
        match self.under_way.get_mut(&receiver) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(self.under_way.remove(&receiver)),
            None => {}
        }
        if is_taken {
            self.troubled.remove(&receiver);
            return;
        }
        if self.troubled.len() >= REMEMBERED_MAX {
            self.troubled.clear();
        }
        self.troubled.insert(receiver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(host: usize, path: usize) -> WebhookUrl {
        format!("http://10.0.0.{host}/{path}").parse().unwrap()
    }

    #[test]
    fn one_receiver_has_few_places_whatever_its_paths() {
        let mut places = WebhookPlaces::default();
        let taken = (0..40).filter(|path| places.take(&url(1, *path))).count();
        assert_eq!(taken, EACH_MAX);
        assert!(places.take(&url(2, 0)));
        places.give_back(&url(1, 0), true);
        assert!(places.take(&url(1, 7)));
    }

    #[test]
    fn receivers_that_do_not_answer_leave_places_to_others_until_they_do() {
        let mut places = WebhookPlaces::default();
        for host in 0..40 {
            assert!(places.take(&url(host, 0)));
            places.give_back(&url(host, 0), false);
        }
        let taken = (0..40).filter(|host| places.take(&url(*host, 0))).count();
        assert_eq!(taken, TROUBLED_MAX);
        assert!(places.take(&url(50, 0)) && places.take(&url(50, 1)) && !places.are_full());
        places.give_back(&url(0, 0), true);
        assert!(places.take(&url(0, 0)) && places.take(&url(0, 1)), "it answers again");
    }
}
