//! The order in which chunks go: S3-FIFO (Yang and others, SOSP 2023), in batches.
//!
//! A chunk that comes stands in the small queue, which has a tenth of the cache. If it was used again by the time it is
//! the oldest there, it goes on to the main queue; otherwise it leaves, and is remembered as a ghost. A chunk that comes
//! again while its ghost is remembered stands in the main queue at once. In the main queue, each use buys one more round.
//! So a scan of everything passes through the small queue and does not touch the main one.
//!
//! Always true: nothing here reads a clock or a disk.

use std::collections::VecDeque;

/// A chunk's place in the order. It is kept in the access time of the chunk's file, as a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) queue: Queue,
    /// How often it was used since it came into its queue, up to [`HITS_MAX`].
    pub(crate) hits: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Small,
    Main,
}

pub(crate) const HITS_MAX: u8 = 3;
/// The part of the cache that the small queue may have: one of this many.
const SMALL_PART: u64 = 10;

impl Standing {
    pub(crate) const NEW: Standing = Standing { queue: Queue::Small, hits: 0 };
    /// Of a chunk that comes again soon after it had to go.
    pub(crate) const RETURNED: Standing = Standing { queue: Queue::Main, hits: 0 };

    /// The standing that an access time stands for. Another program's reading may have set it to the time of day, which
    /// counts as one use of a new chunk.
    pub(crate) fn of_seconds(seconds: i64) -> Standing {
        let hits = |from: i64| u8::try_from(seconds - from).unwrap_or(0);
        match seconds {
            0..=3 => Standing { queue: Queue::Small, hits: hits(0) },
            4..=7 => Standing { queue: Queue::Main, hits: hits(4) },
            _ => Standing { queue: Queue::Small, hits: 1 },
        }
    }

    pub(crate) fn seconds(self) -> i64 {
        match self.queue {
            Queue::Small => i64::from(self.hits),
            Queue::Main => 4 + i64::from(self.hits),
        }
    }

    /// The standing after one more use; `None` if that changes nothing.
    pub(crate) fn used(self) -> Option<Standing> {
        (self.hits < HITS_MAX).then_some(Standing { hits: self.hits + 1, ..self })
    }
}

/// A chunk, as the order sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) standing: Standing,
    pub(crate) bytes: u64,
}

/// What happens to a chunk. Chunks that are not named stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes to the end of the main queue with this standing.
    Requeued(Standing),
    /// It leaves; a ghost stays if it leaves the small queue.
    Removed { leaves_ghost: bool },
}

/// Decides until at most `bytes` are left in a cache of `limit`. The chunks are in the order of their coming. The fates
/// are in the order in which they are to be carried out; each chunk has at most one.
pub(crate) fn decide(chunks: &[Queued], limit: u64, bytes: u64) -> Vec<(usize, Fate)> {
    let mut there: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
    let (mut small, mut main) = (VecDeque::new(), VecDeque::new());
    let mut small_bytes = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        match chunk.standing.queue {
            Queue::Small => {
                small_bytes += chunk.bytes;
                small.push_back(at);
            }
            Queue::Main => main.push_back((at, chunk.standing.hits)),
        }
    }
    let mut removed = Vec::new();
    let mut moved = vec![false; chunks.len()];
    while there > bytes {
        let is_small = small_bytes > limit / SMALL_PART || main.is_empty();
        if is_small {
            let Some(at) = small.pop_front() else { break };
            small_bytes -= chunks[at].bytes;
            if chunks[at].standing.hits > 0 {
                moved[at] = true;
                main.push_back((at, 0));
                continue;
            }
            there -= chunks[at].bytes;
            removed.push((at, Fate::Removed { leaves_ghost: true }));
        } else if let Some((at, hits)) = main.pop_front() {
            if hits > 0 {
                moved[at] = true;
                main.push_back((at, hits - 1));
                continue;
            }
            there -= chunks[at].bytes;
            moved[at] = false;
            removed.push((at, Fate::Removed { leaves_ghost: false }));
        }
    }
    let requeued = main.into_iter().filter(|(at, _)| moved[*at]);
    let standing = |hits| Standing { queue: Queue::Main, hits };
    removed.extend(requeued.map(|(at, hits)| (at, Fate::Requeued(standing(hits)))));
    removed
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};

    use super::*;

    #[test]
    fn a_standing_survives_in_an_access_time() {
        for seconds in 0..8 {
            assert_eq!(Standing::of_seconds(seconds).seconds(), seconds);
        }
        assert_eq!(Standing::of_seconds(1_700_000_000), Standing { queue: Queue::Small, hits: 1 });
        assert_eq!(Standing::of_seconds(-5).hits, 1);
        assert_eq!(Standing { queue: Queue::Main, hits: HITS_MAX }.used(), None);
    }

    #[test]
    fn what_was_used_stays_and_what_was_not_goes() {
        let queued = |queue, hits| Queued { standing: Standing { queue, hits }, bytes: 1 };
        let small = [queued(Queue::Small, 0), queued(Queue::Small, 2), queued(Queue::Small, 0)];
        let main = Fate::Requeued(Standing { queue: Queue::Main, hits: 0 });
        assert_eq!(decide(&small, 3, 3), []);
        let gone = Fate::Removed { leaves_ghost: true };
        assert_eq!(decide(&small, 3, 1), [(0, gone), (2, gone), (1, main)]);
        let mixed = [queued(Queue::Main, 1), queued(Queue::Main, 0), queued(Queue::Small, 0)];
        let fates = decide(&mixed, 100, 2);
        assert_eq!(fates, [(1, Fate::Removed { leaves_ghost: false }), (0, main)]);
        assert_eq!(decide(&mixed, 100, 0).len(), 3, "all go if nothing may stay");
    }

    /// Numbers that look random, the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    const OBJECTS: usize = 20_000;
    const ROOM: usize = 2_000;
    const REQUESTS: usize = 300_000;

    /// Requests with this exponent; with `scans`, each tenth of them is followed by a scan of chunks that are read once.
    fn requests(exponent: f64, scans: bool) -> Vec<u64> {
        let mut sums = Vec::with_capacity(OBJECTS);
        let mut sum = 0.0;
        for rank in 1..=OBJECTS {
            sum += (rank as f64).powf(-exponent);
            sums.push(sum);
        }
        let mut numbers = Numbers(42);
        let mut all = Vec::new();
        let mut scanned = OBJECTS as u64;
        for number in 0..REQUESTS {
            let wanted = numbers.next() * sum;
            all.push(sums.partition_point(|sum| *sum < wanted) as u64);
            if scans && number % (REQUESTS / 10) == REQUESTS / 20 {
                all.extend(scanned..scanned + 2 * ROOM as u64);
                scanned += 2 * ROOM as u64;
            }
        }
        all
    }

    /// The share of requests, without those of scans, that an order of our kind answers.
    fn share_of_ours(requests: &[u64]) -> f64 {
        let mut there: HashMap<u64, (u64, Standing)> = HashMap::new();
        let (mut ghosts, mut ghost_order) = (HashSet::new(), VecDeque::new());
        let (mut clock, mut hits, mut asked) = (0_u64, 0, 0);
        for &wanted in requests {
            clock += 1;
            let counts = wanted < OBJECTS as u64;
            asked += u64::from(counts);
            if let Some((_, standing)) = there.get_mut(&wanted) {
                hits += u64::from(counts);
                *standing = standing.used().unwrap_or(*standing);
                continue;
            }
            let standing = if ghosts.contains(&wanted) { Standing::RETURNED } else { Standing::NEW };
            there.insert(wanted, (clock, standing));
            if there.len() > ROOM {
                let mut order: Vec<_> =
                    there.iter().map(|(id, (since, standing))| (*since, *id, *standing)).collect();
                order.sort_unstable_by_key(|(since, ..)| *since);
                let queued: Vec<_> =
                    order.iter().map(|(_, _, standing)| Queued { standing: *standing, bytes: 1 }).collect();
                for (at, fate) in decide(&queued, ROOM as u64, (ROOM - ROOM / 32) as u64) {
                    let id = order[at].1;
                    clock += 1;
                    match fate {
                        Fate::Requeued(standing) => drop(there.insert(id, (clock, standing))),
                        Fate::Removed { leaves_ghost } => {
                            there.remove(&id);
                            if leaves_ghost && ghosts.insert(id) {
                                ghost_order.push_back(id);
                            }
                        }
                    }
                }
                while ghost_order.len() > ROOM {
                    ghosts.remove(&ghost_order.pop_front().unwrap());
                }
            }
        }
        hits as f64 / asked as f64
    }

    fn share_of_lru(requests: &[u64]) -> f64 {
        let (mut there, mut order): (HashMap<u64, u64>, BTreeMap<u64, u64>) = Default::default();
        let (mut hits, mut asked) = (0, 0);
        for (clock, &wanted) in (0..).zip(requests) {
            let counts = wanted < OBJECTS as u64;
            asked += u64::from(counts);
            if let Some(before) = there.insert(wanted, clock) {
                hits += u64::from(counts);
                order.remove(&before);
            }
            order.insert(clock, wanted);
            if there.len() > ROOM {
                let (_, oldest) = order.pop_first().unwrap();
                there.remove(&oldest);
            }
        }
        hits as f64 / asked as f64
    }

    /// `cargo test -p farhaul-cache hit_rates -- --nocapture` prints the table of docs/design/cache.md.
    #[test]
    fn hit_rates_beside_lru() {
        println!("| exponent | scans | S3-FIFO | LRU |\n| --- | --- | --- | --- |");
        for exponent in [0.8, 1.0, 1.2] {
            for scans in [false, true] {
                let requests = requests(exponent, scans);
                let (ours, lru) = (share_of_ours(&requests), share_of_lru(&requests));
                let word = if scans { "with" } else { "without" };
                println!("| {exponent:.1} | {word} | {:.1} % | {:.1} % |", 100.0 * ours, 100.0 * lru);
                assert!(ours > lru, "exponent {exponent}, {word} scans: {ours} and {lru}");
            }
        }
    }
}
