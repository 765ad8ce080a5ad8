use proptest::prelude::*;

use super::*;

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A UDP flow that has been unanswered for this long.
fn udp(index: u16, unanswered: Duration) -> UdpFlow {
    UdpFlow { index, is_up: true, is_spare: false, is_path_used: true, unanswered }
}

/// A UDP flow that has never been answered.
fn unheard(index: u16, unanswered: Duration) -> UdpFlow {
    UdpFlow { is_up: false, ..udp(index, unanswered) }
}

fn spare(index: u16) -> UdpFlow {
    UdpFlow { is_spare: true, ..udp(index, Duration::ZERO) }
}

/// A stream that stands by.
fn stream(index: u16) -> StreamFlow {
    StreamFlow {
        index,
        is_channel: false,
        is_down: false,
        was_up: true,
        is_active: false,
        is_carrying: false,
        silent: Duration::ZERO,
    }
}

fn carrying(index: u16) -> StreamFlow {
    StreamFlow { is_active: true, is_carrying: true, ..stream(index) }
}

fn down(index: u16) -> StreamFlow {
    StreamFlow { is_down: true, was_up: false, ..stream(index) }
}

fn channel(index: u16) -> StreamFlow {
    StreamFlow { is_channel: true, ..stream(index) }
}

fn silent(stream: StreamFlow, silent: Duration) -> StreamFlow {
    StreamFlow { silent, ..stream }
}

/// The facts of an initiator's session that runs well.
fn running(udp: &[UdpFlow], streams: &[StreamFlow]) -> CheckFacts {
    CheckFacts {
        now: secs(1000),
        udp: udp.to_vec(),
        streams: streams.to_vec(),
        silent: Duration::ZERO,
        refused: Duration::ZERO,
        was_up: true,
        is_initiator: true,
        is_udp_only: false,
        is_noted: false,
        may_get_direct: false,
        has_better_streams: false,
        taken_up: None,
        has_unseen: false,
    }
}

/// The facts of a session that has not been answered yet.
fn beginning(udp: &[UdpFlow], streams: &[StreamFlow]) -> CheckFacts {
    CheckFacts { was_up: false, ..running(udp, streams) }
}

fn check(cases: impl IntoIterator<Item = (CheckFacts, Vec<CheckAction>)>) {
    for (number, (facts, acts)) in cases.into_iter().enumerate() {
        assert_eq!(judge(&facts), acts, "case {number}: {facts:?}");
    }
}

#[test]
fn where_all_is_well_nothing_is_done() {
    check([
        (running(&[udp(0, ms(700))], &[]), vec![]),
        (running(&[udp(0, ms(700))], &[stream(8)]), vec![]),
        (running(&[], &[carrying(8)]), vec![]),
        (beginning(&[unheard(0, ms(1400))], &[]), vec![]),
    ]);
}

#[test]
fn a_stream_is_opened_before_udp_is_known_to_be_blocked() {
    let unanswered = [udp(0, FORESIGHT)];
    check([
        (running(&[udp(0, FORESIGHT - ms(1))], &[]), vec![]),
        (running(&unanswered, &[]), vec![CheckAction::Dial]),
        (running(&unanswered, &[stream(8)]), vec![]),
        // A stream that has ended and the channel do not count.
        (running(&unanswered, &[down(8), stream(9)]), vec![]),
        (running(&unanswered, &[down(8)]), vec![CheckAction::Dial]),
        (running(&unanswered, &[channel(1)]), vec![CheckAction::Dial]),
        (CheckFacts { is_udp_only: true, ..running(&unanswered, &[]) }, vec![]),
    ]);
}

#[test]
fn a_stream_takes_over_from_udp_that_does_not_get_through() {
    let dead = [unheard(0, SILENCE), unheard(1, SILENCE)];
    check([
        (beginning(&[unheard(0, SILENCE - ms(1))], &[stream(8)]), vec![]),
        (beginning(&dead, &[stream(8)]), vec![CheckAction::ChangeOver(8)]),
        (beginning(&dead, &[silent(stream(8), SILENCE), stream(9)]), vec![CheckAction::ChangeOver(9)]),
        // A silent stream is no reason to change over.
        (running(&dead, &[silent(stream(8), SILENCE)]), vec![]),
        (CheckFacts { is_udp_only: true, ..running(&dead, &[stream(8)]) }, vec![]),
        // A direct connection is better than the channel, and is waited for.
        (running(&dead, &[channel(1), stream(8)]), vec![CheckAction::ChangeOver(8)]),
        (running(&dead, &[channel(1)]), vec![CheckAction::Dial, CheckAction::ChangeOver(1)]),
        (CheckFacts { may_get_direct: true, ..running(&dead, &[channel(1)]) }, vec![CheckAction::Dial]),
        (
            CheckFacts {
                may_get_direct: true,
                ..running(&[unheard(0, SILENCE + DIRECT_TIME)], &[channel(1)])
            },
            vec![CheckAction::Dial, CheckAction::ChangeOver(1)],
        ),
    ]);
}

#[test]
fn a_path_that_is_not_answered_is_given_up_while_another_one_is() {
    check([
        (
            running(&[udp(0, SILENCE), udp(1, ms(100)), udp(2, secs(9))], &[]),
            vec![CheckAction::Retire(0), CheckAction::Retire(2)],
        ),
        // A silent flow beside streams that carry is given up as well, but nothing changes over.
        (running(&[udp(0, SILENCE)], &[carrying(8)]), vec![CheckAction::Retire(0)]),
        (running(&[udp(0, SILENCE_BESIDE)], &[carrying(8)]), vec![CheckAction::ChangeOver(8)]),
        (
            running(&[udp(0, SILENCE)], &[silent(carrying(8), SILENCE), stream(9)]),
            vec![CheckAction::ChangeOver(9)],
        ),
    ]);
}

#[test]
fn where_udp_is_noted_as_blocked_streams_begin_at_once() {
    let first = [unheard(0, ms(100))];
    let noted =
        |udp: &[UdpFlow], streams: &[StreamFlow]| CheckFacts { is_noted: true, ..beginning(udp, streams) };
    check([
        (noted(&first, &[]), vec![CheckAction::Dial]),
        (noted(&first, &[stream(8)]), vec![CheckAction::ChangeOver(8)]),
        (CheckFacts { was_up: true, ..noted(&first, &[stream(8)]) }, vec![]),
        // The note was wrong.
        (noted(&[udp(0, ms(100))], &[stream(8)]), vec![CheckAction::ForgetNote]),
        (CheckFacts { is_udp_only: true, ..noted(&first, &[]) }, vec![]),
        (
            CheckFacts { is_udp_only: true, ..noted(&[unheard(0, SILENCE)], &[]) },
            vec![CheckAction::End(SessionEnd::Unreachable)],
        ),
    ]);
}

#[test]
fn spares_take_up_udp_again() {
    let facts = running(&[spare(4), spare(5)], &[carrying(8)]);
    check([
        (facts.clone(), vec![CheckAction::TakeUp(5), CheckAction::LetStreamsGo, CheckAction::SayAlive]),
        (
            CheckFacts { taken_up: Some(4), ..facts.clone() },
            vec![CheckAction::TakeUp(5), CheckAction::LetStreamsGo, CheckAction::SayAlive],
        ),
        (CheckFacts { taken_up: Some(5), ..facts.clone() }, vec![CheckAction::SayAlive]),
        (
            CheckFacts { is_initiator: false, ..facts.clone() },
            vec![CheckAction::TakeUp(5), CheckAction::SayAlive],
        ),
        (
            CheckFacts { has_better_streams: true, ..facts },
            vec![CheckAction::TakeUp(5), CheckAction::SayAlive],
        ),
        (running(&[spare(5)], &[stream(8)]), vec![CheckAction::TakeUp(5), CheckAction::SayAlive]),
    ]);
}

#[test]
fn streams_that_are_let_go_are_none_beside_udp() {
    let late = UdpFlow { unanswered: SILENCE, ..spare(4) };
    let begun = vec![
        CheckAction::TakeUp(4),
        CheckAction::LetStreamsGo,
        CheckAction::SayAlive,
        CheckAction::ChangeOver(8),
    ];
    check([
        (running(&[late], &[carrying(8)]), begun),
        (
            CheckFacts { taken_up: Some(4), ..running(&[late], &[carrying(8)]) },
            vec![CheckAction::SayAlive, CheckAction::Retire(4)],
        ),
    ]);
}

#[test]
fn a_path_that_is_not_wanted_is_used_if_no_other_is_left() {
    let unwanted = UdpFlow { is_path_used: false, ..udp(1, ms(100)) };
    check([
        (running(&[udp(0, ms(100)), unwanted], &[]), vec![]),
        (running(&[unwanted], &[]), vec![CheckAction::UseAllPaths]),
        (running(&[], &[carrying(8)]), vec![]),
    ]);
}

#[test]
fn a_far_process_that_has_ended_is_seen_by_its_streams() {
    check([
        (
            running(&[udp(0, ms(100))], &[StreamFlow { is_channel: true, ..down(1) }]),
            vec![CheckAction::HearLastWords],
        ),
        (running(&[udp(0, ms(100))], &[down(8)]), vec![]),
        (running(&[], &[down(8), down(9)]), vec![CheckAction::HearLastWords]),
        // While another stream is alive there is somebody to talk to.
        (running(&[], &[StreamFlow { is_channel: true, ..down(1) }, carrying(8)]), vec![]),
        (running(&[], &[down(8), carrying(9)]), vec![]),
    ]);
}

#[test]
fn a_port_that_is_closed_says_that_the_peer_is_gone() {
    let refused = CheckFacts { refused: REFUSED, ..running(&[udp(0, ms(100))], &[]) };
    check([
        (refused.clone(), vec![CheckAction::End(SessionEnd::Gone)]),
        (CheckFacts { refused: REFUSED - ms(1), ..refused.clone() }, vec![]),
        (CheckFacts { has_unseen: true, ..refused.clone() }, vec![]),
        // The far end may not have begun yet.
        (CheckFacts { was_up: false, ..refused.clone() }, vec![]),
        (CheckFacts { streams: vec![stream(8)], ..refused.clone() }, vec![]),
        (CheckFacts { streams: vec![down(8)], ..refused }, vec![CheckAction::End(SessionEnd::Gone)]),
    ]);
}

#[test]
fn a_network_that_is_gone_is_waited_for() {
    let longer = PATIENCE + ms(1);
    let away = |silence: Duration| CheckFacts {
        silent: silence,
        ..running(&[udp(0, silence)], &[silent(carrying(8), silence)])
    };
    let streams_only = |silence: Duration| running(&[], &[silent(carrying(8), silence)]);
    check([
        (away(PATIENCE), vec![]),
        (away(longer), vec![CheckAction::End(SessionEnd::Silent(longer))]),
        (CheckFacts { has_unseen: true, ..away(longer) }, vec![]),
        (streams_only(PATIENCE), vec![]),
        (streams_only(longer), vec![CheckAction::End(SessionEnd::Silent(PATIENCE))]),
        (CheckFacts { has_unseen: true, ..streams_only(longer) }, vec![]),
        (CheckFacts { now: PATIENCE, ..running(&[], &[]) }, vec![]),
        (
            CheckFacts { now: longer, ..running(&[], &[]) },
            vec![CheckAction::End(SessionEnd::Silent(PATIENCE))],
        ),
    ]);
}

#[test]
fn udp_that_was_never_answered_is_given_up_earlier() {
    let longer = CONNECT_MAX + ms(1);
    let only =
        |unanswered: Duration| CheckFacts { is_udp_only: true, ..beginning(&[unheard(0, unanswered)], &[]) };
    check([
        (beginning(&[unheard(0, CONNECT_MAX)], &[]), vec![CheckAction::Dial]),
        (
            beginning(&[unheard(0, longer)], &[]),
            vec![CheckAction::Dial, CheckAction::End(SessionEnd::Unreachable)],
        ),
        // The initiator's user is told first.
        (only(SILENCE - ms(1)), vec![]),
        (only(SILENCE), vec![CheckAction::End(SessionEnd::Unreachable)]),
        (CheckFacts { is_initiator: false, ..only(CONNECT_MAX) }, vec![]),
        (CheckFacts { is_initiator: false, ..only(longer) }, vec![CheckAction::End(SessionEnd::Unreachable)]),
        (CheckFacts { was_up: true, ..only(longer) }, vec![]),
    ]);
}

/// Times on both sides of each limit.
fn any_time() -> impl Strategy<Value = Duration> {
    let limits = [
        Duration::ZERO,
        FORESIGHT,
        REFUSED,
        SILENCE,
        SILENCE + DIRECT_TIME,
        SILENCE_BESIDE,
        SILENCE_BESIDE + DIRECT_TIME,
        CONNECT_MAX,
        PATIENCE,
    ];
    (prop::sample::select(limits.to_vec()), 0..3u64)
        .prop_map(|(limit, step)| (limit + ms(step)).saturating_sub(ms(1)))
}

prop_compose! {
    fn any_udp()(is_up: bool, is_spare: bool, is_path_used: bool, unanswered in any_time()) -> UdpFlow {
        // Nobody relies on a spare that is not up.
        UdpFlow { index: 0, is_up: is_up || is_spare, is_spare, is_path_used, unanswered }
    }
}

prop_compose! {
    fn any_stream()(
        is_channel: bool,
        is_up: bool,
        is_down: bool,
        was_retired: bool,
        is_active: bool,
        silent in any_time(),
    ) -> StreamFlow {
        let is_down = is_down && !is_up;
        let is_carrying = is_up && is_active && !was_retired;
        StreamFlow { index: 0, is_channel, is_down, was_up: is_up, is_active, is_carrying, silent }
    }
}

prop_compose! {
    fn any_facts()(
        mut udp in prop::collection::vec(any_udp(), 0..4),
        mut streams in prop::collection::vec(any_stream(), 0..4),
        silent in any_time(),
        refused in any_time(),
        flags in any::<[bool; 7]>(),
        taken_up in prop::option::of(0..5u16),
    ) -> CheckFacts {
        udp.iter_mut().zip(0..).for_each(|(flow, index)| flow.index = index);
        streams.iter_mut().zip(8..).for_each(|(flow, index)| flow.index = index);
        let [was_up, is_initiator, is_udp_only, is_noted, may_get_direct, has_better_streams, has_unseen] =
            flags;
        CheckFacts {
            now: secs(1000),
            udp,
            streams,
            silent,
            refused,
            was_up,
            is_initiator,
            is_udp_only,
            is_noted,
            may_get_direct,
            has_better_streams,
            taken_up,
            has_unseen,
        }
    }
}

fn is_final(act: &CheckAction) -> bool {
    matches!(act, CheckAction::ChangeOver(_) | CheckAction::HearLastWords | CheckAction::End(_))
}

proptest! {
    #[test]
    fn a_change_over_or_an_end_is_the_last_act(facts in any_facts()) {
        let acts = judge(&facts);
        let position = acts.iter().position(is_final);
        prop_assert!(position.is_none_or(|position| position + 1 == acts.len()), "{acts:?}");
    }

    #[test]
    fn nobody_is_given_up_before_its_words_are_seen(facts in any_facts()) {
        let acts = judge(&CheckFacts { has_unseen: true, ..facts });
        prop_assert!(acts.iter().all(|act| !matches!(act, CheckAction::End(SessionEnd::Gone | SessionEnd::Silent(_)))), "{acts:?}");
    }

    #[test]
    fn udp_only_means_no_stream(facts in any_facts()) {
        let acts = judge(&CheckFacts { is_udp_only: true, ..facts });
        prop_assert!(acts.iter().all(|act| !matches!(act, CheckAction::Dial | CheckAction::ChangeOver(_))), "{acts:?}");
    }

    #[test]
    fn who_takes_over_is_alive_and_no_channel_beside_a_better_one(facts in any_facts()) {
        let taker = judge(&facts).into_iter().find_map(|act| match act {
            CheckAction::ChangeOver(index) => facts.streams.iter().find(|flow| flow.index == index),
            _ => None,
        });
        if let Some(taker) = taker {
            prop_assert!(taker.is_alive());
            prop_assert!(!taker.is_channel || facts.direct_alive().is_none());
        }
    }

    #[test]
    fn who_is_answered_stays(facts in any_facts(), answered in any_udp()) {
        let mut facts = facts;
        facts.udp.push(UdpFlow { index: 7, is_up: true, unanswered: ms(100), ..answered });
        (facts.refused, facts.is_noted) = (Duration::ZERO, false);
        let acts = judge(&facts);
        prop_assert!(!acts.contains(&CheckAction::Retire(7)), "{acts:?}");
        prop_assert!(acts.iter().all(|act| !matches!(act, CheckAction::ChangeOver(_) | CheckAction::End(_))), "{acts:?}");
        prop_assert!(acts.iter().all(|act| *act != CheckAction::HearLastWords || facts.is_far_process_gone()));
    }
}
