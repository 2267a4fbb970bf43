//! Uids, small and quickly compared.

use std::cmp::Ordering;
use std::fmt;
use std::hash::BuildHasher as _;
use std::num::NonZeroU8;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// `metadata.uid`: what a decision is about. Names are reused, uids are not.
///
/// The API server makes UUIDs (RFC 9562), which are kept as their 16 bytes: uids are compared more often than anything else,
/// and no text has to be fetched for it. Any other text is a uid as well. They are in the order of their texts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// What is written in lower case with four hyphens, and so has one text only. The byte in the middle has the version in it,
    /// and is never 0: that tells it from a text without taking more room.
    Uuid([u8; 6], NonZeroU8, [u8; 9]),
    Text(Arc<String>),
}

const LENGTH: usize = 36;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// From its text.
    pub fn new(text: &str) -> Self {
        Self(bytes(text.as_bytes()).unwrap_or_else(|| Form::Text(Arc::new(text.to_owned()))))
    }

    /// Its hash in tables that look uids up in what they keep, and so have no keys of their own.
    pub fn hash_in_table(&self) -> u64 {
        FixedState::default().hash_one(self)
    }
}

/// The bytes of a UUID that is written as the API server writes them.
fn bytes(text: &[u8]) -> Option<Form> {
    if text.len() != LENGTH || HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let digits = text.iter().enumerate().filter(|(at, _)| !HYPHENS.contains(at)).map(|(_, digit)| digit);
    for (index, digit) in digits.enumerate() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        bytes[index / 2] = bytes[index / 2] << 4 | value;
    }
    let (head, rest) = bytes.split_first_chunk::<6>()?;
    let (version, tail) = rest.split_first()?;
    Some(Form::Uuid(*head, NonZeroU8::new(*version)?, tail.try_into().ok()?))
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Form::Uuid(head, version, tail), Form::Uuid(other_head, other_version, other_tail)) => {
                (head, version, tail).cmp(&(other_head, other_version, other_tail))
            }
            (Form::Text(one), Form::Text(other)) => one.cmp(other),
            _ => self.to_string().cmp(&other.to_string()),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Uuid(head, version, tail) => {
                let bytes = head.iter().copied().chain([version.get()]).chain(tail.iter().copied());
                for (index, byte) in bytes.enumerate() {
                    let hyphen = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are several copies of one for every workload.
    #[test]
    fn one_is_small() {
        assert_eq!(size_of::<Uid>(), 16);
    }

    #[test]
    fn uids_read_and_compare_like_their_texts() {
        let mut texts = vec![
            "00000000-0000-0000-0000-000000000000",
            "0b7f8c1e-99aa-4d2c-8f11-0123456789ab",
            "0b7f8c1e-99aa-4d2c-8f11-0123456789ac",
            "0b7f8c1e-99aa-4d2c-8f11-0123456789AC",
            "0b7f8c1e-99aa-4d2c-8f11-0123456789a",
            "0b7f8c1e-99aa-002c-8f11-0123456789ab",
            "0b7f8c1e-99aa-4d2c-8f11x0123456789ab",
            "0b7f8c1e",
            "{0b7f8c1e-99aa-4d2c-8f11-0123456789}",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "w1",
            "",
        ];
        texts.sort_unstable();
        let uids: Vec<Uid> = texts.iter().copied().map(Uid::from).collect();
        assert_eq!(uids.iter().map(ToString::to_string).collect::<Vec<_>>(), texts);
        assert!(uids.is_sorted());
        for (one, text) in uids.iter().zip(&texts) {
            let same: Vec<&str> = texts.iter().copied().filter(|other| Uid::from(*other) == *one).collect();
            assert_eq!(same, [*text]);
        }
    }
}
