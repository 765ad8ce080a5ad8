//! The IDs under which the limits of transfers are explained.

/// Each ID with the limits that it stands for: `network`, `rate`, or an end and its stage.
const LIMITS: [(&str, &[&str]); 13] = [
    ("slow-network", &["network"]),
    ("rate-limit", &["rate"]),
    ("slow-sender-disk", &["sender read"]),
    ("slow-sender-scan", &["sender scan"]),
    ("slow-sender-digest", &["sender digest"]),
    ("slow-sender-program", &["sender fill"]),
    ("slow-sender-core", &["sender seal", "sender send", "sender receive", "sender open"]),
    ("slow-sender-overflow", &["sender park"]),
    ("slow-receiver-disk", &["receiver write"]),
    ("slow-receiver-digest", &["receiver digest"]),
    ("slow-receiver-finish", &["receiver finish"]),
    ("slow-receiver-program", &["receiver use"]),
    ("slow-receiver-core", &["receiver receive", "receiver open", "receiver seal", "receiver send"]),
];

/// Returns the ID under which `farhaul doctor explain` explains a limit; `None` if nothing has limited the transfer.
pub fn limit_id(limit: &str) -> Option<&'static str> {
    LIMITS.iter().find(|(_, limits)| limits.contains(&limit)).map(|&(id, _)| id)
}

/// All of these IDs.
pub fn limit_ids() -> impl Iterator<Item = &'static str> {
    LIMITS.iter().map(|&(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;

    #[test]
    fn each_limit_is_a_stage_of_an_end_or_one_of_two_words() {
        for limit in LIMITS.iter().flat_map(|(_, limits)| *limits) {
            let is_stage = limit.split_once(' ').is_some_and(|(end, stage)| {
                ["sender", "receiver"].contains(&end) && Stage::of_name(stage).is_some()
            });
            assert!(is_stage || ["network", "rate"].contains(limit), "{limit}");
        }
        assert_eq!(limit_id("receiver write"), Some("slow-receiver-disk"));
        assert_eq!(limit_id("none"), None);
    }
}
