//! Encodes and decodes the session's own messages: varints, byte strings, and little else.
//!
//! Always true: reading never panics, and never allocates more than the bytes at hand. From: QUIC's idea of a
//! varint, but encoded as LEB128, as most numbers here are small and the length need not be known first.

use farhaul_words::{Code, Failure};

/// The most bytes of a text for people.
const REASON_MAX: usize = 1000;

/// The bytes are no valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a signed number so that small magnitudes are short (zigzag).
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Writes a message's code and the numbers that follow it.
pub fn put_numbers(out: &mut Vec<u8>, code: u8, numbers: &[u64]) {
    out.push(code);
    for &number in numbers {
        put_varint(out, number);
    }
}

/// Writes a text for people; a text that is too long is cut off.
pub fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let mut end = reason.len().min(REASON_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, &reason.as_bytes()[..end]);
}

/// Writes why one item among many has failed.
pub fn put_failure(out: &mut Vec<u8>, failure: &Failure) {
    put_varint(out, u64::from(failure.code.number()));
    put_reason(out, &failure.reason);
}

/// Takes values off the front of a slice.
pub struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(Malformed);
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.take(len)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Takes what [`put_failure`] wrote. A code that this version does not know becomes [`Code::FilesFailed`].
    pub fn failure(&mut self) -> Result<Failure, Malformed> {
        let number = u16::try_from(self.varint()?).map_err(|_| Malformed)?;
        Ok(Failure::new(Code::of_number(number).unwrap_or(Code::FilesFailed), self.text()?))
    }

    /// Takes all that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut reader = ByteReader(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.signed(), Ok(value as i64));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn an_overlong_number_is_refused() {
        assert_eq!(ByteReader(&[0xff; 11]).varint(), Err(Malformed));
        assert_eq!(
            ByteReader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint(),
            Err(Malformed)
        );
        assert_eq!(ByteReader(&[0x80]).varint(), Err(Malformed));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert_eq!(ByteReader(&[5, 1, 2]).bytes(), Err(Malformed));
    }

    #[test]
    fn a_failure_comes_back_and_an_unknown_code_is_one_of_files() {
        let failure = Failure::cannot("write", &std::io::Error::from_raw_os_error(28));
        assert_eq!(failure, Failure::new(Code::NoSpace, "cannot write: no space left on device"));
        let mut bytes = Vec::new();
        put_failure(&mut bytes, &failure);
        assert_eq!(ByteReader(&bytes).failure(), Ok(failure));
        let mut later = Vec::new();
        put_varint(&mut later, 4999);
        put_reason(&mut later, "why");
        assert_eq!(ByteReader(&later).failure(), Ok(Failure::new(Code::FilesFailed, "why")));
        assert_eq!(ByteReader(&[0xff, 0xff, 0xff, 0xff, 1, 0]).failure(), Err(Malformed));
    }
}
