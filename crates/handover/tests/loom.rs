//! Checks all orders in which a few threads can run, and the values that the memory model lets them see: `./x
//! loom`.
//!
//! A lost wake-up is a deadlock here, which the checker reports. It also reports two threads that access a
//! slot at the same time.
#![cfg(loom)]

use std::time::Duration;

use farhaul_handover::{Bell, HandOver, Ring, SleepNotes, WaitingRoom};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Runs a model with a bounded number of preemptions; otherwise the checker takes too long.
fn check(threads: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(threads);
}

/// Takes values that own memory, so that the checker finds one that is lost or taken twice.
fn take_some(ring: &Ring<Box<usize>>, times: usize) -> usize {
    (0..times).filter_map(|_| ring.take()).map(|value| *value).sum()
}

#[test]
fn two_put_while_one_takes() {
    check(|| {
        let ring = Arc::new(Ring::new(2));
        let putters: Vec<_> = [1, 2]
            .into_iter()
            .map(|number| {
                let ring = ring.clone();
                thread::spawn(move || ring.put(Box::new(number)).is_ok())
            })
            .collect();
        let early = take_some(&ring, 2);
        assert!(putters.into_iter().all(|putter| putter.join().unwrap()), "there is room for both");
        assert_eq!(early + take_some(&ring, 2), 3);
        assert!(ring.is_empty());
    });
}

#[test]
fn two_take_what_one_puts_over_and_over() {
    check(|| {
        let ring = Arc::new(Ring::new(1));
        ring.put(Box::new(1)).unwrap();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let ring = ring.clone();
                thread::spawn(move || take_some(&ring, 1))
            })
            .collect();
        let is_put = ring.put(Box::new(2)).is_ok();
        let early: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(early + take_some(&ring, 2), if is_put { 3 } else { 1 });
    });
}

/// Blocks of a pool go round: a thread that holds one always finds room in the ring, even while another
/// thread is about to empty its slot.
#[test]
fn there_is_room_for_what_was_taken() {
    check(|| {
        let ring = Arc::new(Ring::new(2));
        ring.put(Box::new(1)).unwrap();
        ring.put(Box::new(2)).unwrap();
        let other = thread::spawn({
            let ring = ring.clone();
            move || ring.take().is_some()
        });
        let own = ring.take().expect("there are two values and one other taker");
        assert!(ring.put(own).is_ok(), "what was taken has left room");
        assert!(other.join().unwrap());
        assert_eq!(ring.len(), 1);
    });
}

/// A bell for threads of the model.
#[derive(Default)]
struct Gong(Mutex<(bool, bool)>, Condvar);

impl Bell for Gong {
    fn ring(&self) {
        self.0.lock().unwrap().0 = true;
        self.1.notify_one();
    }
}

impl Gong {
    /// Waits for the bell; returns `false` when the test is over.
    fn hear(&self) -> bool {
        let mut heard = self.0.lock().unwrap();
        loop {
            if std::mem::take(&mut heard.0) {
                return true;
            }
            if heard.1 {
                return false;
            }
            heard = self.1.wait(heard).unwrap();
        }
    }

    fn end(&self) {
        self.0.lock().unwrap().1 = true;
        self.1.notify_all();
    }
}

/// If a value were left behind, no thread would end the test.
#[test]
fn nothing_that_is_handed_over_is_left_behind() {
    check(|| {
        let hand_over = Arc::new(HandOver::new(3, Gong::default()));
        let left = Arc::new(AtomicUsize::new(3));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (hand_over, left) = (hand_over.clone(), left.clone());
                thread::spawn(move || {
                    while hand_over.bell().hear() {
                        if hand_over.take().is_none() {
                            continue;
                        }
                        if left.fetch_sub(1, Relaxed) == 1 {
                            hand_over.bell().end();
                        }
                        hand_over.ring();
                    }
                })
            })
            .collect();
        assert!(hand_over.put([1, 2]));
        assert!(hand_over.put([3]));
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(left.load(Relaxed), 0);
    });
}

#[test]
fn who_waits_for_room_gets_it() {
    check(|| {
        let (ring, room) = (Arc::new(Ring::new(1)), Arc::new(WaitingRoom::default()));
        ring.put(0).unwrap();
        let putter = thread::spawn({
            let (ring, room) = (ring.clone(), room.clone());
            move || {
                while ring.put(1).is_err() {
                    room.wait(Duration::from_secs(3600), || ring.is_empty());
                }
            }
        });
        assert_eq!(ring.take(), Some(0));
        room.taken(|| ring.is_empty());
        putter.join().unwrap();
        assert_eq!(ring.take(), Some(1));
    });
}

#[test]
fn who_sleeps_is_woken_for_what_comes() {
    check(|| {
        let (sleep, ring) = (Arc::new(SleepNotes::default()), Arc::new(Ring::new(2)));
        // Stands for the system call that wakes a thread.
        let gong = Arc::new(Gong::default());
        let putters: Vec<_> = (0..2)
            .map(|number| {
                let (sleep, ring, gong) = (sleep.clone(), ring.clone(), gong.clone());
                thread::spawn(move || {
                    ring.put(number).unwrap();
                    if sleep.announce() {
                        gong.ring();
                    }
                })
            })
            .collect();
        let mut taken = 0;
        while taken < 2 {
            sleep.begin_turn();
            while ring.take().is_some() {
                taken += 1;
            }
            if taken < 2 && sleep.may_sleep() {
                gong.hear();
            }
            sleep.awake();
        }
        putters.into_iter().for_each(|putter| putter.join().unwrap());
    });
}
