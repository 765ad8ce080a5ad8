//! Tests of the model in virtual time: rates, queues, loss, order, and that a seed gives the same results.

use proptest::prelude::*;

use farhaul_motion::{DelayProcess, ServiceCurve};

use super::*;
use crate::LinkSettings;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn profile(text: &str) -> DirectionProfile {
    let mut settings = LinkSettings::default();
    settings.set_all(text).unwrap();
    settings.forward
}

fn model(text: &str) -> LinkModel {
    LinkModel::new(&profile(text), 0, 1, LinkDirection::Forward)
}

fn train(count: u32) -> PacketTrain {
    PacketTrain { count, packet_len: 1500, last_len: 1500, ecn: Ecn::Forbidden }
}

/// Offers a train every `every_ns` until `until_ns`, and returns all pieces.
fn run(model: &mut LinkModel, train: PacketTrain, every_ns: u64, until_ns: u64) -> Vec<TrainPiece> {
    let (mut all, mut pieces) = (Vec::new(), Vec::new());
    for now in (0..until_ns).step_by(every_ns as usize) {
        model.offer(now, train, &mut pieces);
        all.extend_from_slice(&pieces);
    }
    all
}

#[test]
fn a_wire_passes_trains_whole_and_at_once() {
    let mut pieces = Vec::new();
    model("").offer(5, train(40), &mut pieces);
    let whole =
        TrainPiece { first: 0, count: 40, due: 5, marked: false, corrupt: false, order: JitterOrder::Kept };
    assert_eq!(pieces, [whole]);
}

#[test]
fn rate_is_exact_at_any_speed() {
    for (rate, bps) in [("10m", 1e7), ("1g", 1e9), ("3.333g", 3.333e9), ("10g", 1e10), ("100g", 1e11)] {
        let mut model = model(&format!("rate={rate},queue=10ms"));
        // Offered at one and a half times the rate for half a second.
        let packets = if bps < 1e8 { 1 } else { 20 };
        let every = (f64::from(packets) * 1500.0 * 8e9 / (1.5 * bps)) as u64;
        let pieces = run(&mut model, train(packets), every, SECOND / 2);
        let last = pieces.last().unwrap().due as f64;
        let carried = model.counters().passed_bytes as f64 * 8e9 / last;
        assert!((carried / bps - 1.0).abs() < 0.001, "{rate}: {carried}");
        assert!(model.counters().dropped.queue > 0 && model.counters().queue_max_ns <= 10 * MS + 1, "{rate}");
    }
}

#[test]
fn a_queue_in_bytes_holds_that_many_bytes() {
    let mut model = model("rate=10m,queue=15000");
    let mut pieces = Vec::new();
    model.offer(0, train(100), &mut pieces);
    assert_eq!(model.counters().passed_packets, 10);
    assert_eq!(pieces.iter().map(|piece| piece.count).sum::<u32>(), 10);
    // At 10 Mbit/s each packet is a slice of its own, 1.2 ms apart.
    assert_eq!(
        pieces.iter().map(|piece| piece.due).collect::<Vec<_>>(),
        (1..=10).map(|n| n * 1_200_000).collect::<Vec<_>>()
    );
}

#[test]
fn single_packets_of_a_train_are_lost_at_the_set_share() {
    for place in ["front", "behind"] {
        let mut model = model(&format!("loss=1%,loss-place={place}"));
        run(&mut model, train(40), MS, 25 * SECOND);
        let counters = model.counters();
        let lost = counters.dropped.loss as f64;
        assert_eq!(counters.packets, 1_000_000);
        // 99 % of all seeds lie within 2.58 standard deviations, and this one does.
        assert!((lost - 10_000.0).abs() < 2.58 * (1e6_f64 * 0.01 * 0.99).sqrt(), "{lost}");
        assert_eq!(counters.passed_packets + counters.dropped.loss, counters.packets);
    }
}

#[test]
fn packets_lost_behind_the_bottleneck_have_used_its_rate() {
    for (place, share) in [("behind", 0.7), ("front", 1.0)] {
        let mut model = model(&format!("rate=1g,queue=5ms,loss=30%,loss-place={place}"));
        run(&mut model, train(40), 200_000, SECOND);
        let carried = model.counters().passed_bytes as f64 * 8.0 / 1e9;
        assert!((carried - share).abs() < 0.01, "{place}: {carried}");
    }
}

#[test]
fn survivors_of_high_loss_arrive_together() {
    let mut model = model("loss=30%,rate=10g,rtt=10ms");
    let mut pieces = Vec::new();
    model.offer(0, train(40), &mut pieces);
    assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.due == pieces[0].due), "{pieces:?}");
}

#[test]
fn slices_bound_how_long_packets_wait_for_each_other() {
    let mut model = model("rate=1g,rtt=20ms");
    let mut pieces = Vec::new();
    model.offer(0, train(44), &mut pieces);
    assert_eq!(pieces.iter().map(|piece| piece.count).sum::<u32>(), 44);
    assert!(pieces.iter().all(|piece| piece.count <= 17), "{pieces:?}");
    assert_eq!(pieces.last().unwrap().due, 44 * 12_000 + 10 * MS);
}

#[test]
fn a_policer_lets_its_rate_through_without_a_queue() {
    let mut model = model("policer=100m:30k");
    run(&mut model, train(1), 12_000, SECOND);
    let carried = model.counters().passed_bytes as f64 * 8.0;
    assert!((carried / 1e8 - 1.0).abs() < 0.01, "{carried}");
    assert!(model.counters().dropped.policer > 0 && model.counters().queue_max_ns == 0);
}

#[test]
fn codel_keeps_a_standing_queue_short_where_drop_tail_fills_it() {
    let standing = |codel: &str| {
        let mut model = model(&format!("rate=10m,queue=1s,codel={codel}"));
        run(&mut model, train(1), 1_150_000, 20 * SECOND);
        (model.queue_ns(20 * SECOND), model.counters().dropped)
    };
    let (tail, _) = standing("off");
    let (controlled, dropped) = standing("on");
    assert!(tail > 600 * MS && controlled < 100 * MS, "{tail} {controlled}");
    assert!(dropped.codel > 0 && dropped.queue == 0);
}

#[test]
fn ecn_capable_packets_are_marked_and_codel_drops_the_others() {
    for (ecn, is_marked) in [(Ecn::Capable, true), (Ecn::Forbidden, false)] {
        let mut threshold = model("rate=10m,queue=100ms,ecn=5ms");
        let mut controlled = model("rate=10m,queue=1s,codel=on,ecn=5ms");
        for model in [&mut threshold, &mut controlled] {
            run(model, PacketTrain { ecn, ..train(1) }, 1_150_000, 10 * SECOND);
            assert_eq!(model.counters().marked > 0, is_marked);
        }
        assert_eq!(controlled.counters().dropped.codel > 0, !is_marked);
    }
}

#[test]
fn jitter_keeps_the_order_unless_the_settings_allow_reordering() {
    for (text, ordered) in [("jitter=2ms", true), ("jitter=2ms:reorder", false)] {
        let pieces = run(&mut model(&format!("rtt=20ms,{text}")), train(1), 100_000, SECOND);
        assert_eq!(pieces.is_sorted_by_key(|piece| piece.due), ordered, "{text}");
        assert!(pieces.iter().enumerate().all(|(index, piece)| {
            let sent = index as u64 * 100_000;
            piece.due >= sent + 8 * MS && (!ordered || piece.due <= sent + 12 * MS)
        }));
    }
}

/// The simulator's link makes the same delays, so what is seen in one can be looked for in the other.
#[test]
fn delay_moves_by_the_seed_alone_whatever_is_sent() {
    for word in ["walk:5:10", "white:5", "white:5:reorder", "steps:20:300:50", "bursts:7"] {
        for direction in [LinkDirection::Forward, LinkDirection::Back] {
            let profile = profile(&format!("rtt=40ms,rate=100m,jitter={word}"));
            let mut model = LinkModel::new(&profile, 0, 7, direction);
            let mut delay = DelayProcess::new(word.parse().unwrap(), 7, direction);
            // The lab's clock is far from zero, and time passes without packets, too.
            let begin = 3600 * SECOND;
            let mut pieces = Vec::new();
            for index in 0..3000 {
                let now = index * MS;
                // 1250 bytes take 0.1 ms.
                let packet = PacketTrain { count: 1, packet_len: 1250, last_len: 1250, ecn: Ecn::Forbidden };
                model.offer(begin + now, packet, &mut pieces);
                model.pass_time(begin + now + MS / 2);
                let arrival = pieces.first().map(|piece| piece.due - begin);
                assert_eq!(arrival, delay.arrival(now + 20_100_000), "{word} {direction:?} {index}");
            }
            let (counters, gaps) = (model.counters(), word.starts_with("steps"));
            assert_eq!(counters.dropped.gap > 0, gaps);
            assert_eq!(counters.packets, counters.passed_packets + counters.dropped.gap);
        }
    }
}

#[test]
fn a_moving_delay_reorders_packets_only_if_the_settings_say_so() {
    for (text, ordered) in
        [("walk:5:3", true), ("white:5", true), ("bursts:5", true), ("white:5:reorder", false)]
    {
        let pieces = run(&mut model(&format!("rtt=20ms,rate=1g,jitter={text}")), train(5), 100_000, SECOND);
        assert_eq!(pieces.is_sorted_by_key(|piece| piece.due), ordered, "{text}");
        assert_eq!(pieces.iter().all(|piece| piece.order == JitterOrder::Kept), ordered, "{text}");
    }
}

#[test]
fn a_motion_begins_anew_only_when_its_settings_change() {
    let mut model = model("jitter=walk:5:10");
    let mut delays = |changes: &str, from: u64| {
        model.change(&profile(changes), 0);
        let mut pieces = Vec::new();
        (from..from + 300 * MS)
            .step_by(MS as usize)
            .map(|now| {
                model.offer(now, train(1), &mut pieces);
                pieces[0].due - now
            })
            .collect::<Vec<_>>()
    };
    let first = delays("jitter=walk:5:10", SECOND);
    let goes_on = delays("jitter=walk:5:10,loss=0%,queue=1s", 2 * SECOND);
    delays("jitter=0ms", 3 * SECOND);
    assert_ne!(first, goes_on);
    assert_eq!(first, delays("jitter=walk:5:10", 4 * SECOND));
}

#[test]
fn a_moving_rate_carries_as_much_as_its_service_curve() {
    for word in ["walk:0.1:100", "cellular"] {
        let mut model = model(&format!("rate=100m,rate-motion={word},queue=1s"));
        let mut service =
            ServiceCurve::new(&word.parse().unwrap(), 100_000_000, 1, LinkDirection::Forward).unwrap();
        // Packets come at the whole rate for ten seconds, so the queue never empties and sometimes overflows.
        let begin = 3600 * SECOND;
        let (mut left, mut pieces) = (0, Vec::new());
        for now in (0..10 * SECOND).step_by(1_200_000) {
            model.offer(begin + now, train(10), &mut pieces);
            model.pass_time(begin + now);
            left = pieces.last().map_or(left, |piece| piece.due - begin);
        }
        let carried = model.counters().passed_bytes as f64;
        assert!((carried / service.by(left as f64) - 1.0).abs() < 0.001, "{word}: {carried}");
        assert!(model.counters().dropped.queue > 0, "{word}");
        // The queue's bytes are those of a second at the whole rate.
        let waiting = service.by(left as f64) - service.by(10e9);
        assert!((0.9..=1.0).contains(&(waiting / 12.5e6)), "{word}: {waiting}");
    }
}

#[test]
fn reordered_duplicated_and_corrupted_packets_have_their_shares() {
    let mut model = model("rtt=2ms,reorder=2%:3ms,duplicate=1%,corrupt=3%");
    let pieces = run(&mut model, train(10), MS, 20 * SECOND);
    let counters = *model.counters();
    for (count, share) in
        [(counters.reordered, 0.02), (counters.duplicated, 0.01), (counters.corrupted, 0.03)]
    {
        assert!((count as f64 / 200_000.0 / share - 1.0).abs() < 0.05, "{count} of {share}");
    }
    assert!(pieces.iter().all(|piece| !piece.corrupt || piece.count == 1));
    let arrived: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
    assert_eq!(arrived, counters.passed_packets + counters.duplicated);
}

#[test]
fn a_cut_link_and_a_small_path_mtu_drop_packets() {
    let mut model = model("path-mtu=1400");
    model.cut(SECOND);
    run(&mut model, train(3), MS, SECOND + 10 * MS);
    assert_eq!((model.counters().dropped.cut, model.counters().dropped.path_mtu), (3000, 30));
}

#[test]
fn changed_settings_apply_to_later_packets_and_keep_the_order() {
    let mut model = model("rtt=100ms,rate=1g");
    let mut pieces = run(&mut model, train(10), MS, 100 * MS);
    model.change(&profile("rtt=10ms,rate=200m,loss=100%"), 10 * MS);
    let mut later = Vec::new();
    model.offer(100 * MS, train(10), &mut later);
    assert_eq!((model.counters().dropped.loss, later.len()), (10, 0));
    model.change(&profile("rtt=10ms,rate=200m"), 10 * MS);
    model.offer(101 * MS, train(10), &mut later);
    pieces.extend(later);
    assert!(pieces.is_sorted_by_key(|piece| piece.due));
}

proptest! {
    /// Whatever the link does, each packet is in at most one piece (two if duplicated), pieces that keep the
    /// order come in order and never before the propagation delay, counters add up, and the same seed gives
    /// the same results.
    #[test]
    fn pieces_and_counters_agree_with_the_offered_packets(
        seed: u64,
        rate in prop_oneof![Just("unlimited".to_string()), (1_u64..20_000).prop_map(|m| format!("{m}m"))],
        loss in 0.0..0.5_f64,
        burst in prop_oneof![Just("off"), Just("5%:4")],
        duplicate in 0.0..0.1_f64,
        corrupt in 0.0..0.1_f64,
        reorder in prop_oneof![Just("off"), Just("3%:1ms")],
        jitter in prop_oneof![Just("0ms"), Just("1ms"), Just("walk:5:3"), Just("white:2:reorder"), Just("steps:5:20:3"), Just("bursts:2")],
        motion in prop_oneof![Just("still"), Just("walk:0.1:10"), Just("cellular")],
        offers in prop::collection::vec((0_u64..3_000_000, 1_u32..50, 100_u32..1500), 1..60),
    ) {
        let text = format!(
            "rate={rate},queue=20ms,rtt=4ms,loss={loss:.4},burst-loss={burst},duplicate={duplicate:.4},\
             corrupt={corrupt:.4},reorder={reorder},jitter={jitter},rate-motion={motion}"
        );
        // Only jitter around the delay can shorten it.
        let delay_min = if jitter == "1ms" { MS } else { 2 * MS };
        let mut pair = [0, 1].map(|_| LinkModel::new(&profile(&text), 0, seed, LinkDirection::Back));
        let (mut now, mut last_due, mut pieces, mut same_pieces) = (0, 0, Vec::new(), Vec::new());
        for (step, count, last_len) in offers {
            now += step;
            let offered = PacketTrain { count, packet_len: 1500, last_len, ecn: Ecn::Capable };
            pair[0].offer(now, offered, &mut pieces);
            pair[1].offer(now, offered, &mut same_pieces);
            prop_assert_eq!(&pieces, &same_pieces);
            let mut seen = vec![0; count as usize];
            for piece in &pieces {
                prop_assert!(piece.count > 0 && piece.first + piece.count <= count && piece.due >= now + delay_min);
                (piece.first..piece.first + piece.count).for_each(|index| seen[index as usize] += 1);
                if piece.order == JitterOrder::Kept {
                    prop_assert!(piece.due >= last_due);
                    last_due = piece.due;
                }
            }
            prop_assert!(seen.iter().all(|times| *times <= 2));
        }
        let counters = pair[0].counters();
        let dropped = counters.dropped;
        prop_assert_eq!(counters.packets, counters.passed_packets + dropped.queue + dropped.loss + dropped.burst_loss + dropped.gap);
    }
}
