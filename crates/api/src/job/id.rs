//! The ids of jobs: sixteen characters; later jobs have ids that sort after earlier ones.
//!
//! From: Crockford's base 32 in lower case, as in ULIDs: it has no letters that look like digits, and no
//! characters that are special in a shell.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The characters of an id: ten for the millisecond, six random ones.
const LEN: usize = 16;
const RANDOM_BITS: u32 = 30;

/// The id of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; LEN]);

impl JobId {
    /// The id of a job that is accepted at this node time, by which ids stay in order when a clock is set.
    pub fn new(node_ms: i64) -> Result<JobId, getrandom::Error> {
        Ok(JobId::of(node_ms, getrandom::u32()?))
    }

    fn of(now_ms: i64, random: u32) -> JobId {
        let random = u128::from(random) & ((1 << RANDOM_BITS) - 1);
        let number = u128::try_from(now_ms).unwrap_or(0) << RANDOM_BITS | random;
        let mut text = [b'0'; LEN];
        for (index, place) in text.iter_mut().rev().enumerate() {
            *place = ALPHABET[(number >> (5 * index)) as usize & 31];
        }
        JobId(text)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The text is not the id of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job's id has {LEN} letters and digits")]
pub struct JobIdError;

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<JobId, JobIdError> {
        let bytes: [u8; LEN] = text.as_bytes().try_into().map_err(|_| JobIdError)?;
        if bytes.iter().all(|byte| ALPHABET.contains(byte)) { Ok(JobId(bytes)) } else { Err(JobIdError) }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JobId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_jobs_sort_behind_earlier_ones() {
        let ids: Vec<JobId> =
            [0, 1, 31, 32, 1_795_820_000_000, 1_795_820_000_001].map(|ms| JobId::of(ms, u32::MAX)).to_vec();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(JobId::of(5, 0) < JobId::of(5, 1) && JobId::of(5, u32::MAX) < JobId::of(6, 0));
    }

    #[test]
    fn only_a_whole_id_is_one() {
        let id = JobId::new(1_795_820_000_000).unwrap();
        assert_eq!(id.as_str().parse(), Ok(id));
        for wrong in
            ["", "0", "0123456789abcdefg", "0123456789abcdeu", "0123456789ABCDEF", "0123456789abcde/"]
        {
            assert_eq!(wrong.parse::<JobId>(), Err(JobIdError), "{wrong}");
        }
    }
}
