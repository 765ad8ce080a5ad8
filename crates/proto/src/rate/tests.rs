use super::*;

/// Drives a controller over a path of fixed rate and round trip, which reports as a flow would, without
/// packets. Returns what arrives in the second half of the time, as a share of what can, and the longest
/// queue of that half.
fn drive(
    controller: &mut Controller,
    seconds: f64,
    rate: f64,
    rtt: f64,
    loss: f64,
    buffer: f64,
) -> (f64, f64) {
    drive_told(controller, seconds, rate, rtt, loss, buffer, |_| 0.0)
}

/// The same, with reported round trips that are `longer(time)` seconds too long.
fn drive_told(
    controller: &mut Controller,
    seconds: f64,
    rate: f64,
    rtt: f64,
    loss: f64,
    buffer: f64,
    longer: impl Fn(f64) -> f64,
) -> (f64, f64) {
    let flow = controller.add_flow();
    let (mut now, mut queue, mut delivered) = (Timestamp::ZERO, 0.0f64, 0.0);
    let step = (rtt / 16.0).clamp(0.0005, 0.025);
    let mut worst = 0.0f64;
    for _ in 0..(seconds / step) as u64 {
        now = now + Duration::from_secs_f64(step);
        let window = controller.window() as f64;
        let offered = controller.pacing_rate().unwrap_or(f64::INFINITY).min(window / (rtt + queue / rate));
        queue += (offered - rate) * step;
        let overflow = (queue - buffer).max(0.0);
        queue = queue.clamp(0.0, buffer);
        let arrived = offered.min(rate) * step;
        let packets = |bytes: f64| (bytes / 1500.0) as u32;
        let lost = arrived * loss + overflow;
        let report = FeedbackReport {
            delivered: (arrived * (1.0 - loss)) as u64,
            lost: lost as u64,
            packets_delivered: packets(arrived * (1.0 - loss)),
            packets_lost: packets(lost),
            packets_marked: 0,
            loss_runs: packets(lost),
            datagram: 1500,
            receive_time: Duration::from_secs_f64(step),
            rtt: Some(Duration::from_secs_f64(rtt + queue / rate + longer(now.as_nanos() as f64 / 1e9))),
            in_flight: window as u64,
            saturated: true,
            train_rate: None,
        };
        controller.on_report(now, flow, &report);
        if now.as_nanos() > (seconds * 5e8) as u64 {
            delivered += report.delivered as f64;
            worst = worst.max(queue / rate);
        }
    }
    (delivered / (rate * (1.0 - loss) * seconds / 2.0), worst)
}

#[test]
fn random_loss_leaves_the_rate_where_it_is() {
    for loss in [0.0, 0.1, 0.3] {
        for rtt in [0.005, 0.1, 0.4] {
            let mut controller = Controller::new(RateConfig::default());
            let (share, queue) = drive(&mut controller, 20.0, 125e6, rtt, loss, 1e9);
            assert!(share > 0.93, "share {share} at loss {loss}, rtt {rtt}");
            assert!(queue < 0.05, "queue {queue} at loss {loss}, rtt {rtt}");
        }
    }
}

/// An end that stands still may report a round trip that is shorter than the path. After that, there seems to
/// be a queue that never drains.
#[test]
fn a_round_trip_told_too_short_costs_little() {
    for rate in [12.5e6, 125e6] {
        for loss in [0.0, 0.001, 0.05] {
            let mut controller = Controller::new(RateConfig::default());
            let short = |at: f64| if (10.0..10.004).contains(&at) { -0.005 } else { 0.0 };
            let (share, queue) = drive_told(&mut controller, 20.0, rate, 0.05, loss, 1e9, short);
            assert!(share > 0.9, "{share} at loss {loss}");
            assert!(queue < 0.05, "queue {queue} at loss {loss}");
        }
    }
}

#[test]
fn a_ceiling_holds_and_can_be_changed() {
    let mut controller = Controller::new(RateConfig { rate_bps: Some(100_000_000), ..RateConfig::default() });
    let (share, _) = drive(&mut controller, 10.0, 125e6, 0.05, 0.0, 1e9);
    assert!((0.095..=0.101).contains(&share), "{share}");
    controller.set_rate(Some(200_000_000));
    assert!(controller.pacing_rate().is_some_and(|rate| rate <= 25e6));
}

#[test]
fn fixed_is_a_pacer() {
    let config = RateConfig { policy: Policy::Fixed, rate_bps: Some(80_000_000), ..RateConfig::default() };
    let mut controller = Controller::new(config);
    assert_eq!(controller.pacing_rate(), Some(10e6));
    drive(&mut controller, 5.0, 5e6, 0.05, 0.2, 1e6);
    assert_eq!(controller.pacing_rate(), Some(10e6));
}

#[test]
fn a_near_path_keeps_a_window_through_noise() {
    let config = RateConfig { queue_bytes_max: Some(8 << 20), ..RateConfig::default() };
    let mut controller = Controller::new(config);
    let flow = controller.add_flow();
    for step in 0..2000u64 {
        let now = Timestamp::from_nanos(step * 500_000);
        let noise = if step % 10 == 0 { 50 } else { 50 + (step * 7919) % 5000 };
        let report = FeedbackReport {
            delivered: 100_000,
            packets_delivered: 68,
            datagram: 1472,
            receive_time: Duration::from_micros(500),
            rtt: Some(Duration::from_micros(noise)),
            saturated: true,
            ..FeedbackReport::default()
        };
        controller.on_report(now, flow, &report);
        assert!(step < 50 || controller.window() >= 2 << 20, "step {step}: {}", controller.window());
        assert!(controller.window() <= 12 << 20);
    }
    assert_eq!(controller.pacing_rate(), None);
}

/// The part of the window that is left after `rounds` round trips in which only a tenth arrives of what did
/// before; `part` of the window is in flight.
fn left_after(rounds: f64, part: f64) -> f64 {
    let (rate, rtt) = (500e6, 0.1);
    let config = RateConfig { queue_bytes_max: Some(8 << 20), ..RateConfig::default() };
    let mut controller = Controller::new(config);
    drive(&mut controller, 10.0, rate, rtt, 0.0, 1e9);
    let (flow, before, step) = (FlowIndex(0), controller.window() as f64, rtt / 16.0);
    for number in 1..=(16.0 * rounds) as u32 {
        let arrived = 0.1 * rate * step;
        let report = FeedbackReport {
            delivered: arrived as u64,
            packets_delivered: (arrived / 1500.0) as u32,
            datagram: 1500,
            receive_time: Duration::from_secs_f64(step),
            rtt: Some(Duration::from_secs_f64(rtt)),
            in_flight: (part * controller.window() as f64) as u64,
            saturated: true,
            ..FeedbackReport::default()
        };
        let now = Timestamp::from_nanos(10_000_000_000) + Duration::from_secs_f64(f64::from(number) * step);
        controller.on_report(now, flow, &report);
    }
    controller.window() as f64 / before
}

/// A sender that stands still for most of a round trip must not come back with a smaller window; a path that
/// slows down must shrink it.
#[test]
fn a_sender_that_stood_still_keeps_its_window_and_a_path_that_slows_down_does_not() {
    let (stood_still, slower, idle) = (left_after(1.5, 0.1), left_after(1.5, 1.0), left_after(8.0, 0.1));
    assert!(stood_still > 0.95, "{stood_still}");
    assert!(slower < 0.5, "{slower}");
    assert!(idle < 0.5, "a sender that needs less for a long time does not keep its window: {idle}");
}

#[test]
fn a_mark_counts_once_a_round_trip() {
    let mut controller = Controller::new(RateConfig::default());
    drive(&mut controller, 10.0, 125e6, 0.05, 0.0, 1e9);
    let flow = controller.add_flow();
    let mut now = Timestamp::from_nanos(10_000_000_000);
    let mut report = |packets_marked| {
        now = now + Duration::from_millis(3);
        let report = FeedbackReport {
            delivered: 375_000,
            packets_delivered: 250,
            packets_marked,
            datagram: 1500,
            receive_time: Duration::from_millis(3),
            rtt: Some(Duration::from_millis(51)),
            in_flight: 6_000_000,
            saturated: true,
            ..FeedbackReport::default()
        };
        controller.on_report(now, flow, &report);
        controller.window() as f64
    };
    let before = report(0);
    let marked = report(7);
    assert!((0.8..0.88).contains(&(marked / before)), "{before} {marked}");
    let again = report(7);
    assert!(again > 0.97 * marked, "{marked} {again}");
}

#[test]
fn a_mark_before_anything_is_known_does_not_stop_the_start() {
    let mut controller = Controller::new(RateConfig::default());
    let flow = controller.add_flow();
    for step in 0..3u64 {
        let report = FeedbackReport {
            packets_marked: 1,
            datagram: 1200,
            receive_time: Duration::from_millis(step),
            rtt: Some(Duration::from_millis(50)),
            in_flight: 38_400,
            ..FeedbackReport::default()
        };
        controller.on_report(Timestamp::from_nanos(step * 1_000_000), flow, &report);
    }
    let (share, _) = drive(&mut controller, 10.0, 125e6, 0.05, 0.0, 1e9);
    assert!(share > 0.93, "{share}");
}

#[test]
fn another_path_is_learned_anew() {
    let mut controller = Controller::new(RateConfig::default());
    drive(&mut controller, 10.0, 125e6, 0.01, 0.0, 1e9);
    controller.restart();
    let (share, queue) = drive(&mut controller, 20.0, 12.5e6, 0.2, 0.05, 1e9);
    assert!(share > 0.93 && queue < 0.1, "{share} {queue}");
}

#[test]
fn on_another_path_old_round_trips_do_not_choose_whose_count() {
    let mut controller = Controller::new(RateConfig::default());
    let flows = [controller.add_flow(), controller.add_flow()];
    let report = |rtt_ms| FeedbackReport {
        rtt: Some(Duration::from_millis(rtt_ms)),
        receive_time: Duration::from_millis(1),
        delivered: 1500,
        datagram: 1500,
        ..FeedbackReport::default()
    };
    flows.iter().for_each(|&flow| controller.on_report(Timestamp::from_nanos(1_000_000), flow, &report(1)));
    controller.restart();
    controller.on_report(Timestamp::from_nanos(2_000_000), flows[0], &report(100));
    assert!((controller.fair.path().base() - 0.1).abs() < 1e-9, "{}", controller.fair.path().base());
    assert!(controller.fair.path().is_known());
}

#[test]
fn a_mark_ends_the_start() {
    let mut controller = Controller::new(RateConfig::default());
    drive(&mut controller, 0.1, 125e6, 0.05, 0.0, 1e9);
    assert_eq!(controller.state(), "start");
    let report = FeedbackReport {
        delivered: 15_000,
        packets_delivered: 10,
        packets_marked: 1,
        datagram: 1500,
        receive_time: Duration::from_millis(3),
        rtt: Some(Duration::from_millis(50)),
        saturated: true,
        ..FeedbackReport::default()
    };
    controller.on_report(Timestamp::from_nanos(103_000_000), FlowIndex(0), &report);
    assert_eq!(controller.state(), "delay");
}

/// Otherwise a TCP that starts at the same time would find the link full before it is near its share.
#[test]
fn low_does_not_jump_to_what_a_train_shows_or_memory_has() {
    let rtt = Duration::from_millis(100);
    let window_after = |policy, remembered, train_rate| {
        let mut controller = Controller::new(RateConfig { policy, remembered, ..RateConfig::default() });
        let flow = controller.add_flow();
        let report = FeedbackReport {
            delivered: 15_000,
            packets_delivered: 10,
            datagram: 1500,
            receive_time: Duration::from_millis(3),
            rtt: Some(rtt),
            in_flight: 30_000,
            saturated: true,
            train_rate,
            ..FeedbackReport::default()
        };
        controller.on_report(Timestamp::from_nanos(100_000_000), flow, &report);
        controller.window()
    };
    let remembered = Some(PathMemory { rate_bps: 1_000_000_000, rtt, loss_ppm: 0 });
    for (remembered, train_rate) in [(remembered, None), (None, Some(125e6))] {
        assert!(window_after(Policy::Fair, remembered, train_rate) > 3_000_000);
        assert!(window_after(Policy::Low, remembered, train_rate) < 100_000);
    }
}

/// This path reports at once what has arrived. So a start that grows by one byte for each that arrives grows
/// e-fold a round trip, and more because of the start's pace.
#[test]
fn low_grows_more_slowly_than_one_for_one() {
    let growth = |policy| {
        let mut controller = Controller::new(RateConfig { policy, ..RateConfig::default() });
        let before = controller.window() as f64;
        drive(&mut controller, 0.3, 1.25e9, 0.1, 0.0, 1e9);
        assert_eq!(controller.state(), "start");
        controller.window() as f64 / before
    };
    let one_for_one = 3f64.exp();
    assert!(growth(Policy::Fair) > 2.0 * one_for_one);
    assert!((0.2 * one_for_one..one_for_one).contains(&growth(Policy::Low)));
}

#[test]
fn what_is_lost_is_told_to_who_asks() {
    let mut controller = Controller::new(RateConfig::default());
    drive(&mut controller, 10.0, 125e6, 0.04, 0.05, 2.5e6);
    assert!((controller.loss() - 0.05).abs() < 0.02, "{}", controller.loss());
}
