//! Frames with a deadline over paths that lose packets: few come too late, and little is sent more than once.

use std::sync::Mutex;

use farhaul_sim::{BlockFate, Scenario, check};

const RTT_MS: f64 = 100.0;
/// The rate has been found this long after the first frame.
const BEGUN_S: f64 = 4.0;

/// How frames go over a gigabit and 100 ms.
#[derive(Debug, Clone, Copy)]
struct Frames {
    len: u32,
    every_ms: f64,
    loss: f64,
    /// The mean length of a run of lost packets.
    burst: f64,
    /// From the hand-over at the sender, in round trips.
    deadline_rtts: f64,
}

impl Frames {
    fn scenario(self) -> Scenario {
        // The sender stops half a round trip before a frame must be there.
        let sender_ms = (self.deadline_rtts - 0.5) * RTT_MS;
        Scenario {
            rtt_ms: RTT_MS,
            loss: self.loss,
            burst: self.burst,
            // There are few packets on the way back, so a run of lost ones would be a pause of the path.
            loss_back: (self.burst > 1.0).then_some(0.0),
            blocks: 0,
            timed: Some((self.every_ms, (self.len, sender_ms))),
            warmup_s: 2.0,
            seconds: 20.0,
            seeds: 4,
            ..Scenario::default()
        }
    }

    /// Runs it; returns how many frames there were, how many came late or never, and the bytes that were sent more than
    /// once as a part of those that were sent.
    fn run(self) -> (usize, usize, f64) {
        let all = Mutex::new((0, 0, 0_u64, 0_u64));
        check(self.scenario(), |end| {
            let is_judged = |fate: &&BlockFate| (BEGUN_S..end.seconds - 1.0).contains(&fate.made_s);
            let mut all = all.lock().unwrap();
            for fate in end.fates.iter().filter(is_judged) {
                let latest = self.deadline_rtts * RTT_MS / 1000.0;
                all.0 += 1;
                all.1 += usize::from(fate.took_s().is_none_or(|took| took > latest + 0.001));
                all.2 += u64::from(fate.len);
                all.3 += fate.sent;
            }
        });
        let (frames, late, once, sent) = all.into_inner().unwrap();
        (frames, late, sent as f64 / once as f64 - 1.0)
    }
}

/// One repair can arrive in time where the deadline is 2.5 round trips, two where it is 3.5. Without copies of the last one,
/// one frame of a megabyte in ten would be late.
#[test]
fn frames_are_there_in_time_and_little_is_sent_again() {
    for (len, loss, deadline_rtts) in [
        (65_536, 0.001, 2.0),
        (262_144, 0.001, 2.0),
        (65_536, 0.01, 2.5),
        (1 << 20, 0.01, 2.5),
        (65_536, 0.05, 3.5),
        (1 << 20, 0.05, 3.5),
    ] {
        let frames = Frames { len, every_ms: 1000.0 / 24.0, loss, burst: 1.0, deadline_rtts };
        let (count, late, again) = frames.run();
        assert!(count > 1400 && late == 0, "{late} of {count} late: {frames:?}");
        assert!(again <= 3.0 * loss + 0.01, "{again} sent again: {frames:?}");
    }
}

/// What is lost at the end of a frame is noticed though nothing follows.
#[test]
fn frames_far_apart_are_there_in_time() {
    for (len, loss, deadline_rtts) in [(65_536, 0.01, 2.5), (1 << 20, 0.01, 2.5), (1 << 20, 0.05, 3.5)] {
        let frames = Frames { len, every_ms: 400.0, loss, burst: 1.0, deadline_rtts };
        let (count, late, again) = frames.run();
        assert!(count > 140 && late == 0, "{late} of {count} late: {frames:?}");
        assert!(again <= 3.0 * loss + 0.01, "{again} sent again: {frames:?}");
    }
}

/// A run of lost packets takes one copy of a repair, and not all. Some frames find no room, as the rate falls when much is
/// lost at once.
#[test]
fn runs_of_lost_packets_make_few_frames_late() {
    for (len, loss, deadline_rtts, late_max) in
        [(65_536, 0.01, 2.5, 0.005), (1 << 20, 0.01, 2.5, 0.005), (1 << 20, 0.05, 3.5, 0.01)]
    {
        let frames = Frames { len, every_ms: 1000.0 / 24.0, loss, burst: 20.0, deadline_rtts };
        let (count, late, again) = frames.run();
        assert!(count > 1400 && late as f64 <= late_max * count as f64, "{late} of {count} late: {frames:?}");
        assert!(again <= 3.0 * loss + 0.01, "{again} sent again: {frames:?}");
    }
}
