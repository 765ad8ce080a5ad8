//! What has limited a session in its last seconds.
//!
//! Always true: of what the far end reports, only valid stages are kept.

use std::time::{Duration, Instant};

use farhaul_words::StageFigures;

use super::super::bottleneck::{BottleneckVerdict, verdict};

/// The limit of a session is judged by this much of its recent time.
const JUDGED: Duration = Duration::from_secs(5);

/// The most characters of a stage's name.
const STAGE_NAME_MAX: usize = 24;

/// What the peer and the users hear of a judgement.
#[derive(Default)]
pub(super) struct LimitNews {
    /// How busy this end's stages were, for the peer; `None` if nothing has moved.
    pub(super) stages: Option<Vec<StageFigures>>,
    /// The verdict, for the users, if it is another one than before.
    pub(super) verdict: Option<BottleneckVerdict>,
}

/// The recent limit of the session, and the figures by which it is judged.
pub(super) struct LimitHistory {
    since: Instant,
    /// How busy the stages were until `since`, and what had been moved.
    stages: Vec<StageFigures>,
    moved: u64,
    limit: String,
    /// How busy the stages of this end, and those of the far end, were when the limit was last judged.
    ours: Vec<StageFigures>,
    theirs: Vec<StageFigures>,
}

impl LimitHistory {
    pub(super) fn new() -> LimitHistory {
        LimitHistory {
            since: Instant::now(),
            stages: Vec::new(),
            moved: 0,
            limit: String::new(),
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// The far end has reported how busy its stages are. Entries that are no valid stage are ignored.
    pub(super) fn hear(&mut self, mut stages: Vec<StageFigures>) {
        stages.retain(is_stage);
        self.theirs = stages;
    }

    /// What has limited the session, in a word.
    pub(super) fn limit(&self) -> &str {
        &self.limit
    }

    /// Returns whether it is time to judge.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= JUDGED
    }

    /// Judges what has limited the session since the last time. `stages` say in seconds how busy this end's
    /// stages have been since the session began, and `moved` what the session has moved.
    pub(super) fn judge(
        &mut self,
        stages: Vec<StageFigures>,
        moved: u64,
        is_paused: bool,
        now: Instant,
    ) -> LimitNews {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let recent: Vec<StageFigures> = stages
            .iter()
            .map(|stage| {
                let before = self.stages.iter().find(|before| before.name == stage.name);
                let busy = stage.busy - before.map_or(0.0, |before| before.busy);
                StageFigures { busy: busy.max(0.0) / seconds, ..stage.clone() }
            })
            .collect();
        let is_idle = is_paused || moved == self.moved;
        self.ours = if is_idle { Vec::new() } else { recent.clone() };
        let more = moved.saturating_sub(self.moved);
        (self.since, self.stages, self.moved) = (now, stages, moved);
        if is_idle {
            return LimitNews::default();
        }
        let BottleneckVerdict { limit, text } = verdict(&self.both(), more, seconds);
        let is_news = limit != self.limit;
        self.limit.clone_from(&limit);
        LimitNews { stages: Some(recent), verdict: is_news.then_some(BottleneckVerdict { limit, text }) }
    }

    /// The stages of both ends, the sender's first.
    pub(super) fn both(&self) -> Vec<StageFigures> {
        let mut both: Vec<StageFigures> = self.ours.iter().chain(&self.theirs).cloned().collect();
        both.sort_by(|one, other| other.end.cmp(&one.end));
        both
    }
}

fn is_stage(stage: &StageFigures) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    let is_name =
        !stage.name.is_empty() && stage.name.len() <= STAGE_NAME_MAX && stage.name.bytes().all(is_plain);
    is_name && (stage.end == "sender" || stage.end == "receiver")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(end: &str, name: &str) -> StageFigures {
        StageFigures { name: name.into(), end: end.into(), busy: 0.5 }
    }

    #[test]
    fn of_what_the_far_end_says_only_stages_are_heard() {
        let mut judged = LimitHistory::new();
        judged.ours = vec![stage("receiver", "write")];
        judged.hear(vec![
            stage("sender", "wait-network"),
            stage("sender", "\u{1b}[2J"),
            stage("sender", ""),
            stage("sender", &"x".repeat(25)),
            stage("both", "read"),
            stage("sender", "read"),
        ]);
        let both: Vec<_> = judged.both().into_iter().map(|stage| (stage.end, stage.name)).collect();
        let pairs = [("sender", "wait-network"), ("sender", "read"), ("receiver", "write")];
        assert_eq!(both, pairs.map(|(end, name)| (end.to_string(), name.to_string())));
        judged.hear(Vec::new());
        assert_eq!(judged.both(), [stage("receiver", "write")]);
    }

    #[test]
    fn the_verdict_is_told_when_it_changes_and_nothing_is_judged_that_stands_still() {
        let mut history = LimitHistory::new();
        let at = |seconds| history.since + Duration::from_secs(seconds);
        let (first, second, third, fourth) = (at(5), at(10), at(15), at(20));
        assert!(!history.is_due(at(4)) && history.is_due(first));
        let busy = |seconds| vec![StageFigures { busy: seconds, ..stage("sender", "read") }];
        let news = history.judge(busy(5.0), 1_000_000, false, first);
        let limit = news.verdict.expect("it is the first one").limit;
        assert!(
            news.stages.is_some_and(|stages| (stages[0].busy - 1.0).abs() < 1e-9) && limit == history.limit()
        );
        let news = history.judge(busy(10.0), 2_000_000, false, second);
        assert!(news.stages.is_some() && news.verdict.is_none(), "it is the same one");
        for (moved, is_paused, now) in [(2_000_000, false, third), (3_000_000, true, fourth)] {
            let news = history.judge(busy(10.0), moved, is_paused, now);
            assert!(news.stages.is_none() && news.verdict.is_none() && history.both().is_empty());
        }
    }
}
