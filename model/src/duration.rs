//! Go's text of a duration, as Kubernetes' configuration files have it (`metav1.Duration`): `300ms`, `1.5h`, `2h45m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration that is written as Go writes it. Below zero there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(Duration);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write for example \"90s\", \"5m\" or \"1h30m\"")]
pub struct DurationError(String);

/// Units with their nanoseconds. Those that others begin with come later.
const UNITS: [(&str, u128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// As the standard library has it.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// In whole milliseconds, as many as 63 bits hold.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs())
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let error = || DurationError(text.chars().take(64).collect());
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self::default());
        }
        let mut nanos = 0u128;
        if rest.is_empty() {
            return Err(error());
        }
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
            let (number, after) = rest.split_at(end);
            let (unit, of_unit) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(error)?;
            nanos = nanos.saturating_add(part(number, *of_unit).ok_or_else(error)?);
            rest = &after[unit.len()..];
        }
        // Go keeps durations in 63 bits of nanoseconds.
        let nanos =
            u64::try_from(nanos).ok().filter(|nanos| i64::try_from(*nanos).is_ok()).ok_or_else(error)?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

/// So many of a unit, a decimal fraction rounded down.
fn part(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || number.len() > 64 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanos += u128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * place;
    }
    Some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let nanos = self.0.subsec_nanos();
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match nanos {
            0 => write!(f, "{seconds}s"),
            nanos => {
                let fraction = format!("{nanos:09}");
                write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_as_go_does() {
        for (text, millis, written) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("300ms", 300, "0.3s"),
            ("90s", 90_000, "1m30s"),
            ("1.5h", 5_400_000, "1h30m0s"),
            ("2h45m", 9_900_000, "2h45m0s"),
            ("168h", 604_800_000, "168h0m0s"),
            ("+1m.5s", 60_500, "1m0.5s"),
            ("1500us", 1, "0.0015s"),
        ] {
            let read: GoDuration = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((read.millis(), read.to_string().as_str()), (millis, written), "{text}");
        }
        for text in ["", "5", "-1s", "s", ".s", "1d", "1h 2m", "1.2.3s", "99999999999h", "1x", "١s"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }
}
