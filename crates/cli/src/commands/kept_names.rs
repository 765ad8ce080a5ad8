//! The names of a list that a verb keeps until the list is over, to sort them or to add them up.
//!
//! Always true: a far end that lists without end takes no more than half of this host's memory.

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::read::ListEntry;
use farhaul::sisters::MemoryLimits;

/// What a name costs beside its bytes.
const NAME: usize = 64;

pub struct KeptNames {
    most: u64,
    bytes: u64,
    hint: &'static str,
}

impl KeptNames {
    /// `hint` says how to go without keeping so much.
    pub fn new(hint: &'static str) -> KeptNames {
        KeptNames { most: MemoryLimits::of_this_host().process, bytes: 0, hint }
    }

    /// Counts an entry that is kept.
    pub fn entry(&mut self, entry: &ListEntry) -> Result<(), Error> {
        self.add(size_of::<ListEntry>() + entry.path.len() + entry.target.len())
    }

    /// Counts a name that is kept.
    pub fn name(&mut self, name: &[u8]) -> Result<(), Error> {
        self.add(NAME + name.len())
    }

    fn add(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes <= self.most {
            return Ok(());
        }
        let what = format!("the list takes more than half of this host's memory ({} bytes)", self.most);
        Err(Error::new(Code::NoMemory, what).with_hint(self.hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_up_to_a_limit() {
        let mut kept = KeptNames { most: 200, bytes: 0, hint: "name less" };
        assert!(kept.name(b"a").is_ok() && kept.name(b"b").is_ok() && kept.name(b"c").is_ok());
        let error = kept.name(b"d").unwrap_err();
        assert_eq!((error.code(), error.hint()), (Code::NoMemory, Some("name less")));
        assert!(KeptNames::new("").most > 64 << 20);
    }
}
