//! Sessions that come and go in caps, in virtual time: compares what they put on the wire with what the caps
//! allow.
//!
//! A session is a sender that uses its part as soon as it knows it: here at once, at the far end half a round
//! trip after it was told; and what it sends arrives another half round trip later. It confirms as the
//! supervisor does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{CapMembership, CapMemberships, RateCap, RatePart, RateShares};
use crate::content_role::ContentRole;

const STEP: Duration = Duration::from_millis(10);
const CHECK: u64 = 5;
/// The bits a second of two caps, one within another and one beside it.
const UPLINK: f64 = 150e6;
const OTHER: f64 = 120e6;

struct Sender {
    named: CapMemberships,
    shares: RateShares,
    /// The steps of half a round trip; 0 for a sender here.
    delay: u64,
    /// True if it ignores what it is told.
    is_deaf: bool,
    /// Parts on their way to it, with the step at which they arrive.
    told: VecDeque<(u64, RatePart)>,
    known: Option<RatePart>,
    last_told: Option<RatePart>,
    /// Confirmations on their way back.
    confirming: VecDeque<(u64, RatePart)>,
    /// The bits that arrive at each step.
    arriving: VecDeque<(u64, f64)>,
    moved: f64,
    /// The bits a second that it can use, and the most that all sessions in the same caps may use.
    can: f64,
    group_most: f64,
    until: u64,
}

struct World {
    begin: Instant,
    step: u64,
    senders: Vec<Sender>,
    /// The bits moved in each step, and those that were allowed.
    moved: Vec<f64>,
    allowed: Vec<f64>,
    /// True if somebody could have used more than there was.
    is_wanted: Vec<bool>,
}

impl World {
    fn new() -> World {
        World {
            begin: Instant::now(),
            step: 0,
            senders: Vec::new(),
            moved: Vec::new(),
            allowed: Vec::new(),
            is_wanted: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.begin + STEP * self.step as u32
    }

    fn add(
        &mut self,
        (memberships, group_most): (&[CapMembership], f64),
        delay: u64,
        can: f64,
        seconds: u64,
    ) -> &mut Sender {
        let named = CapMemberships::from(memberships.to_vec());
        let shares = RateShares::join(None, &named, self.now()).unwrap();
        shares.allow(if delay > 0 { ContentRole::Receiver } else { ContentRole::Sender });
        shares.follow(|| {});
        self.senders.push(Sender {
            named,
            shares,
            delay,
            is_deaf: false,
            told: VecDeque::new(),
            known: None,
            last_told: None,
            confirming: VecDeque::new(),
            arriving: VecDeque::new(),
            moved: 0.0,
            can,
            group_most,
            until: self.step + seconds * 100,
        });
        self.senders.last_mut().unwrap()
    }

    /// Runs one step, in which `allowed` bits a second may be moved.
    fn run(&mut self, allowed: f64) {
        let (now, step) = (self.now(), self.step);
        self.senders.retain(|sender| sender.until > step);
        let mut moved = 0.0;
        for sender in &mut self.senders {
            moved += sender.run(step, now);
        }
        self.moved.push(moved);
        self.allowed.push(allowed * STEP.as_secs_f64());
        let wanted = |most: f64| {
            let group =
                self.senders.iter().filter(|sender| sender.group_most == most && sender.until > step + 30);
            group.map(|sender| sender.can).sum::<f64>().min(most)
        };
        self.is_wanted.push([OTHER, UPLINK, f64::INFINITY].map(wanted).iter().sum::<f64>() > allowed);
        self.step += 1;
    }

    /// The most that was moved over this many steps, as a share of what was allowed.
    fn worst(&self, steps: usize, from: usize) -> f64 {
        let over = |at: usize| {
            self.moved[at..at + steps].iter().sum::<f64>() / self.allowed[at..at + steps].iter().sum::<f64>()
        };
        (from..self.moved.len().saturating_sub(steps)).map(over).fold(0.0, f64::max)
    }

    /// The least that was moved over 5 s in which somebody wanted more.
    fn least(&self, from: usize) -> f64 {
        let over = |at: usize| {
            self.moved[at..at + 500].iter().sum::<f64>() / self.allowed[at..at + 500].iter().sum::<f64>()
        };
        (from..self.moved.len().saturating_sub(500))
            .filter(|&at| self.is_wanted[at..at + 500].iter().all(|wanted| *wanted))
            .map(over)
            .fold(f64::INFINITY, f64::min)
    }
}

impl Sender {
    /// Returns the bits that pass this end.
    fn run(&mut self, step: u64, now: Instant) -> f64 {
        let part = self.shares.part();
        let is_check = step.is_multiple_of(CHECK);
        if (self.shares.take_news() || is_check) && part != self.last_told {
            self.last_told = part;
            self.told.extend(part.map(|part| (step + self.delay, part)));
        }
        while let Some((_, part)) = self.told.pop_front_if(|(at, _)| *at <= step) {
            self.known = if self.is_deaf { self.known.or(Some(part)) } else { Some(part) };
            self.confirming.push_back((step + self.delay, part));
        }
        if let Some((_, part)) = self.confirming.pop_front_if(|(at, _)| *at <= step)
            && !self.is_deaf
        {
            self.shares.confirm(part, now);
        }
        let rate = self.known.map_or(0.0, |part| (part.each_way as f64).min(self.can));
        self.arriving.push_back((step + self.delay, rate * STEP.as_secs_f64()));
        let mut passing = 0.0;
        while let Some((_, bits)) = self.arriving.pop_front_if(|(at, _)| *at <= step) {
            passing += bits;
        }
        self.moved += passing;
        if is_check {
            self.shares.has_moved((self.moved / 8.0) as u64, 0, now);
        }
        passing
    }
}

/// The next number of a pseudo-random sequence.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Runs ten sessions that live for 1 to 8 s and are followed by others. Their caps lie within and beside one
/// whose rate changes twice. `delays` are the steps of half a round trip; about every fifth session can use
/// no more than `slow`. Returns the most of one second and of five, and the least of five seconds that
/// somebody wanted, as shares of the cap.
fn ten_that_come_and_go(seed: u64, delays: [u64; 4], slow: Option<f64>) -> [f64; 3] {
    let mut world = World::new();
    let mut numbers = seed;
    let cap = RateCap::new("host", Some(200_000_000), world.begin);
    let uplink = cap.within("campus-uplink", Some(UPLINK as u64), world.begin);
    let other = cap.beside("principal", Some(OTHER as u64), world.begin);
    let mut most = 200e6;
    for step in 0..4000u64 {
        if step == 1500 || step == 2500 {
            most = if step == 1500 { 80e6 } else { 200e6 };
            cap.set_most(Some(most as u64), world.now());
        }
        while world.senders.len() < 10 {
            let draw = random(&mut numbers);
            let memberships: (&[CapMembership], f64) = match draw % 4 {
                0 => (&[uplink.clone().into()], UPLINK),
                1 => (&[cap.clone().into(), other.clone().into()], OTHER),
                _ => (&[cap.clone().into()], f64::INFINITY),
            };
            let can = slow.filter(|_| draw.is_multiple_of(5)).unwrap_or(1e9);
            world.add(memberships, delays[(draw >> 8) as usize % 4], can, 1 + (draw >> 12) % 8);
        }
        world.run(most);
    }
    [world.worst(100, 0), world.worst(500, 0), world.least(300)]
}

#[test]
fn ten_sessions_that_come_and_go_never_exceed_a_cap_that_changes_and_use_it() {
    for seed in 1..=20 {
        let [second, five, least] = ten_that_come_and_go(seed, [0, 0, 1, 1], None);
        assert!(second <= 1.05 && five <= 1.018 && least >= 0.98, "seed {seed}: {second} {five} {least}");
    }
}

#[test]
fn sessions_on_long_paths_and_slow_ones_never_exceed_a_cap_either() {
    for seed in 1..=20 {
        // Traffic that is on a path of 200 ms when the cap falls arrives all the same.
        let [second, five, least] = ten_that_come_and_go(seed, [0, 1, 5, 10], Some(3e6));
        assert!(second <= 1.10 && five <= 1.02 && least >= 0.75, "seed {seed}: {second} {five} {least}");
    }
}

#[test]
fn sessions_that_move_between_caps_never_exceed_the_one_above_and_obey_the_new_one() {
    for seed in 1..=20 {
        let mut world = World::new();
        let mut numbers = seed;
        let host = RateCap::new("host", Some(200_000_000), world.begin);
        let uplink = host.within("campus-uplink", Some(UPLINK as u64), world.begin);
        let caps = [host.clone(), uplink.clone()];
        for delay in [0, 0, 1, 2, 5, 10] {
            world.add((&[host.clone().into()], f64::INFINITY), delay, 1e9, 100);
        }
        // Every half second a session other than the first is put into a cap, and the uplink gets another
        // rate.
        let mut passed = Vec::new();
        for step in 0..4000u64 {
            if step.is_multiple_of(50) {
                let sender = &world.senders[1 + random(&mut numbers) as usize % 5];
                sender.named.set(vec![caps[random(&mut numbers) as usize % 2].clone().into()], world.now());
                uplink.set_most(Some(20_000_000 * (1 + random(&mut numbers) % 8)), world.now());
            }
            world.run(200e6);
            let is_in = |sender: &&Sender| sender.named.get()[0].cap.is(&uplink);
            let known =
                world.senders.iter().filter(is_in).map(|sender| sender.known.map_or(0, |part| part.in_all));
            passed.push((known.sum::<u64>(), uplink.usage().most_bps.unwrap()));
        }
        // By then all have heard of the last change.
        for (step, (known, most)) in passed.iter().enumerate().filter(|(step, _)| step % 50 >= 40) {
            // A cap may be behind, and make up for that.
            assert!(*known <= most + most / 20, "seed {seed}: {known} of the uplink's {most} at step {step}");
        }
        let figures = [world.worst(100, 0), world.worst(500, 0), world.least(300)];
        let [second, five, least] = figures;
        assert!(second <= 1.06 && five <= 1.02 && least >= 0.97, "seed {seed}: {figures:?}");
    }
}

#[test]
fn one_that_does_not_obey_keeps_the_others_down_for_two_seconds_and_no_longer() {
    let mut world = World::new();
    let cap = RateCap::new("host", Some(100_000_000), world.begin);
    world.add((&[cap.clone().into()], f64::INFINITY), 5, 1e9, 100).is_deaf = true;
    (0..300).for_each(|_| world.run(100e6));
    world.add((&[cap.clone().into()], f64::INFINITY), 5, 1e9, 100);
    (0..150).for_each(|_| world.run(100e6));
    assert!(world.senders[1].known.is_none_or(|part| part.in_all < 1_000_000), "nothing is free yet");
    (0..100).for_each(|_| world.run(100e6));
    assert_eq!(world.senders[1].known.map(|part| part.in_all), Some(50_000_000));
}

#[test]
fn weights_that_change_move_the_rates_and_never_exceed_the_cap() {
    let mut world = World::new();
    let cap = RateCap::new("host", Some(100_000_000), world.begin);
    for delay in [0, 5, 10] {
        world.add((&[cap.clone().into()], f64::INFINITY), delay, 1e9, 100);
    }
    for weights in [[1.0, 1.0, 2.0], [8.0, 1.0, 1.0], [0.5, 4.5, 5.0]] {
        for (sender, weight) in world.senders.iter().zip(weights) {
            sender.shares.set_weight(weight, world.now());
        }
        (0..400).for_each(|_| world.run(100e6));
        let sum: f64 = weights.iter().sum();
        let part = |sender: &Sender| sender.known.unwrap().in_all as f64;
        let all: f64 = world.senders.iter().map(part).sum();
        assert!((0.95..=1.05).contains(&(all / 100e6)), "{all}");
        for (sender, weight) in world.senders.iter().zip(weights) {
            let part = part(sender);
            assert!((part - all * weight / sum).abs() < 10.0, "{part} for {weights:?}");
        }
    }
    assert!(world.worst(100, 0) <= 1.05 && world.worst(500, 0) <= 1.01, "{}", world.worst(500, 0));
}
