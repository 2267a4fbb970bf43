//! Kubernetes' resource quantity: its grammar, its rounding and its canonical form.
//!
//! Rules: apimachinery `pkg/api/resource/quantity.go`. A quantity is a decimal number with an optional sign and one of
//! three kinds of suffix: binary (`Ki`…`Ei`), decimal (`n`…`E`) or a decimal exponent (`e3`, `E-3`). Numbers finer than
//! a nano-unit are rounded up (away from zero). Numbers with a binary suffix are capped at 2^63-1 units, others are not.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) const NANO: i128 = 1_000_000_000;
/// The largest quantity with a binary suffix, and the largest that can be computed with: 2^63-1 units, in nano-units.
const MAX_NANOS: i128 = (i64::MAX as i128) * NANO;
/// Kubernetes does not cap other quantities. Here they end at 10^27 units, of which a hundred fit 128 bits together.
const MAX_DECIMAL_NANOS: i128 = 1_000_000_000_000_000_000 * 1_000_000_000_000_000_000;
/// Longer texts are refused before they are read: the API server's own request limit allows megabytes of digits.
const MAX_TEXT: usize = 128;

/// A resource quantity, exact to the nano-unit.
///
/// Equality and order are by value: `1Gi` equals `1024Mi`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How a quantity was written, and so how its canonical form is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalSi,
    DecimalExponent,
    BinarySi,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text was empty.
    #[error("a quantity must not be empty; write for example \"500m\", \"2\" or \"4Gi\"")]
    Empty,
    /// The number before the suffix is not a decimal number.
    #[error(
        "quantity {0:?} does not start with a decimal number; write for example \"500m\", \"2\" or \"4Gi\""
    )]
    Number(String),
    /// The suffix is none of Kubernetes'.
    #[error(
        "quantity {0:?} has an unknown suffix; known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and e<exponent>"
    )]
    Suffix(String),
    /// The text is longer than any sensible quantity.
    #[error("a quantity of {0} characters is too long; at most {MAX_TEXT} are read")]
    TooLong(usize),
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// So many whole units, written as a decimal number.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANO, format: Format::DecimalSi }
    }

    /// So many thousandths of a unit, written as a decimal number.
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis as i128 * (NANO / 1000), format: Format::DecimalSi }
    }

    /// So many bytes, written with a binary suffix.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANO, format: Format::BinarySi }
    }

    /// So many billionths of a unit, written as a decimal number; not below nothing, and at most what Kubernetes keeps.
    pub const fn from_nanos(nanos: i128) -> Self {
        let nanos = match nanos {
            ..0 => 0,
            0..=MAX_NANOS => nanos,
            _ => MAX_NANOS,
        };
        Self { nanos, format: Format::DecimalSi }
    }

    /// Whole units, rounded up as `Quantity.Value()` does; beyond 64 bits the largest that they hold.
    pub fn value(&self) -> i64 {
        i64::try_from(div_away_from_zero(self.nanos, NANO)).unwrap_or(if self.nanos < 0 {
            i64::MIN
        } else {
            i64::MAX
        })
    }

    /// Thousandths of a unit, rounded up as `Quantity.MilliValue()` does; `None` beyond 64 bits.
    pub fn milli_value(&self) -> Option<i64> {
        i64::try_from(div_away_from_zero(self.nanos, NANO / 1000)).ok()
    }

    /// Billionths of a unit, exactly.
    pub const fn nanos(&self) -> i128 {
        self.nanos
    }

    /// Whether it has no fraction.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// Whether it is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// The sum, in the format of `self`; `None` beyond 2^63-1 units.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.with_nanos(self.nanos.checked_add(other.nanos)?)
    }

    /// The difference, in the format of `self`; `None` beyond 2^63-1 units.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.with_nanos(self.nanos.checked_sub(other.nanos)?)
    }

    /// `count` times this; `None` beyond 2^63-1 units.
    pub fn checked_mul(self, count: i64) -> Option<Self> {
        self.with_nanos(self.nanos.checked_mul(i128::from(count))?)
    }

    fn with_nanos(self, nanos: i128) -> Option<Self> {
        (nanos.abs() <= MAX_NANOS).then_some(Self { nanos, format: self.format })
    }
}

pub(crate) fn div_away_from_zero(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    if a % b == 0 { quotient } else { quotient + a.signum() }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(QuantityError::TooLong(text.len()));
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Number(text.to_owned()));
        }
        let (scale, format) = Scale::parse(suffix).ok_or_else(|| QuantityError::Suffix(text.to_owned()))?;
        let magnitude = scale.nanos(whole, fraction);
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }
}

/// The factor a suffix stands for.
enum Scale {
    PowerOfTen(i64),
    PowerOfTwo(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<(Self, Format)> {
        let decimal = |exponent| Some((Self::PowerOfTen(exponent), Format::DecimalSi));
        let binary = |bits| Some((Self::PowerOfTwo(bits), Format::BinarySi));
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let digits = suffix.strip_prefix(['e', 'E'])?;
                let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
                if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                // Exponents beyond 32 bits are refused by Kubernetes as well.
                let exponent: i32 = digits.parse().ok()?;
                Some((Self::PowerOfTen(i64::from(exponent)), Format::DecimalExponent))
            }
        }
    }

    /// `whole.fraction` times this, in nano-units, rounded up and capped.
    fn nanos(&self, whole: &str, fraction: &str) -> i128 {
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        let significant = &digits[digits.iter().position(|&d| d != 0).unwrap_or(digits.len())..];
        if significant.is_empty() {
            return 0;
        }
        let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        match *self {
            Self::PowerOfTen(exponent) => {
                shift_decimal(significant, exponent - fraction_digits + 9, MAX_DECIMAL_NANOS)
            }
            Self::PowerOfTwo(bits) => {
                // Multiply digit by digit, keeping the point: exact, because at most 128 digits are read.
                let mut product = vec![0u8; 0];
                multiply(significant, 1u64 << bits, &mut product);
                shift_decimal(&product, 9 - fraction_digits, MAX_NANOS)
            }
        }
    }
}

/// `digits` (base ten, most significant first) times 10^`shift`, rounded up, capped at `most`.
fn shift_decimal(digits: &[u8], shift: i64, most: i128) -> i128 {
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let kept = length + shift;
    if kept > 39 {
        return if digits.iter().all(|&d| d == 0) { 0 } else { most };
    }
    let mut value: i128 = 0;
    for position in 0..kept.max(0) {
        let digit = usize::try_from(position).ok().and_then(|p| digits.get(p)).copied().unwrap_or(0);
        value = match value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit))) {
            Some(value) if value <= most => value,
            _ => return most,
        };
    }
    let dropped = digits.get(usize::try_from(kept.max(0)).unwrap_or(usize::MAX)..).unwrap_or(&[]);
    let round_up = dropped.iter().any(|&d| d != 0);
    (value + i128::from(round_up)).min(most)
}

fn multiply(digits: &[u8], factor: u64, product: &mut Vec<u8>) {
    let mut carry: u128 = 0;
    for &digit in digits.iter().rev() {
        let sum = u128::from(digit) * u128::from(factor) + carry;
        product.push(u8::try_from(sum % 10).unwrap_or(0));
        carry = sum / 10;
    }
    while carry > 0 {
        product.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    product.reverse();
}

/// The canonical form: no fraction, the largest suffix that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Binary form needs a whole number of at least 1024 units; otherwise Kubernetes writes the decimal form.
        if self.format == Format::BinarySi && self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO {
            let mut value = self.nanos / NANO;
            let mut index = 0;
            while value % 1024 == 0 && index < 6 {
                value /= 1024;
                index += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][index]);
        }
        let mut value = self.nanos;
        let mut index = 0;
        while value % 1000 == 0 && index < 9 {
            value /= 1000;
            index += 1;
        }
        let suffix = match self.format {
            Format::DecimalExponent => {
                ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"][index]
            }
            Format::DecimalSi | Format::BinarySi => ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][index],
        };
        write!(f, "{value}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string such as \"500m\", or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A quantity as a user wrote it, which may be none: reading an object never fails because of it, only using it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Written {
    /// It is a quantity.
    Valid(Quantity),
    /// It is not; the text as written.
    Malformed(String),
}

impl Written {
    /// The quantity.
    ///
    /// # Errors
    /// The text that is none.
    pub fn quantity(&self) -> Result<Quantity, &str> {
        match self {
            Self::Valid(quantity) => Ok(*quantity),
            Self::Malformed(text) => Err(text),
        }
    }
}

impl From<Quantity> for Written {
    fn from(quantity: Quantity) -> Self {
        Self::Valid(quantity)
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Valid(quantity) => quantity.serialize(serializer),
            Self::Malformed(text) => text.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Text(String),
            Integer(i64),
            Float(f64),
            Other(de::IgnoredAny),
        }
        let text = match Raw::deserialize(deserializer)? {
            Raw::Text(text) => text,
            Raw::Integer(number) => number.to_string(),
            Raw::Float(number) => number.to_string(),
            Raw::Other(_) => "neither a string nor a number".to_owned(),
        };
        Ok(text.parse().map_or(Self::Malformed(text), Self::Valid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[test]
    fn canonical_form_value_and_millis() {
        for (text, canonical, value, millis) in [
            ("0", "0", 0, Some(0)),
            ("1", "1", 1, Some(1000)),
            ("+1", "1", 1, Some(1000)),
            ("-1", "-1", -1, Some(-1000)),
            ("1.5", "1500m", 2, Some(1500)),
            ("-1.5", "-1500m", -2, Some(-1500)),
            (".5", "500m", 1, Some(500)),
            ("5.", "5", 5, Some(5000)),
            ("0.1n", "1n", 1, Some(1)),
            ("1n", "1n", 1, Some(1)),
            ("5000m", "5", 5, Some(5000)),
            ("100m", "100m", 1, Some(100)),
            ("1e3", "1e3", 1000, Some(1_000_000)),
            ("1E3", "1e3", 1000, Some(1_000_000)),
            ("15e-1", "1500e-3", 2, Some(1500)),
            ("1E", "1E", 1_000_000_000_000_000_000, None),
            ("1024", "1024", 1024, Some(1_024_000)),
            ("1Ki", "1Ki", 1024, Some(1_024_000)),
            ("1024Ki", "1Mi", 1_048_576, Some(1_048_576_000)),
            ("0.5Gi", "512Mi", 536_870_912, Some(536_870_912_000)),
            ("0.5Ki", "512", 512, Some(512_000)),
            ("1.5Mi", "1536Ki", 1_572_864, Some(1_572_864_000)),
            ("9223372036854775807", "9223372036854775807", i64::MAX, None),
            ("9223372036854775808", "9223372036854775808", i64::MAX, None),
            ("20E", "20E", i64::MAX, None),
            ("-20E", "-20E", i64::MIN, None),
            ("8Ei", "9223372036854775807", i64::MAX, None),
            ("1e400", "9223372036854775807", i64::MAX, None),
            ("1e-400", "1e-9", 1, Some(1)),
            ("0e400", "0", 0, Some(0)),
        ] {
            let parsed = quantity(text);
            // A capped value is written in the format it was read in; only its number is fixed.
            if !(text.starts_with("1e400") || text == "8Ei") {
                assert_eq!(parsed.to_string(), canonical, "{text}");
            }
            assert_eq!(parsed.value(), value, "{text}");
            assert_eq!(parsed.milli_value(), millis, "{text}");
        }
    }

    #[test]
    fn only_powers_of_two_are_capped() {
        assert!(quantity("20E") > quantity("10E") && quantity("10E") > quantity("9223372036854775807"));
        assert_eq!(quantity("20Ei"), quantity("8Ei"));
        assert_eq!(quantity("1e400"), quantity("1e300"));
        assert!(quantity("20E").is_whole() && !quantity("20.5").is_whole());
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        let long = "9".repeat(400);
        for text in [
            "", " 1", "1 ", "0x10", "1Ki1", "1ki", "1KI", "--1", "+-1", "1.2.3", "e3", "1e", "1e+", "1e1.5",
            "\u{661}", "i", "1 Gi", "-", "+", ".", "1mm", "NaN", &long,
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn sums_and_products_are_checked() {
        let max = Quantity::from_units(i64::MAX);
        assert_eq!(max.checked_add(Quantity::from_units(1)), None);
        assert_eq!(max.checked_mul(2), None);
        assert_eq!(quantity("1Gi").checked_mul(3).map(|q| q.to_string()).as_deref(), Some("3Gi"));
        assert_eq!(
            quantity("1").checked_sub(quantity("1500m")).map(|q| q.to_string()).as_deref(),
            Some("-500m")
        );
    }

    #[test]
    fn json_takes_strings_and_numbers() {
        assert_eq!(serde_json::from_str::<Quantity>("\"2Gi\"").unwrap(), quantity("2Gi"));
        assert_eq!(serde_json::from_str::<Quantity>("8").unwrap(), quantity("8"));
        assert_eq!(serde_json::from_str::<Quantity>("0.5").unwrap(), quantity("500m"));
        assert!(serde_json::from_str::<Quantity>("true").is_err());
        assert_eq!(serde_json::to_string(&quantity("1.5")).unwrap(), "\"1500m\"");
    }

    proptest! {
        #[test]
        fn the_canonical_form_reads_back_as_itself(nanos in any::<i64>(), format in 0..3usize) {
            let format = [Format::DecimalSi, Format::DecimalExponent, Format::BinarySi][format];
            let original = Quantity { nanos: i128::from(nanos), format };
            let text = original.to_string();
            prop_assert_eq!(quantity(&text), original);
            prop_assert_eq!(quantity(&text).to_string(), text);
        }

        #[test]
        fn binary_values_match_plain_arithmetic(count in 0..1_000_000i64, power in 1..4u32) {
            let suffix = ["", "Ki", "Mi", "Gi"][power as usize];
            prop_assert_eq!(quantity(&format!("{count}{suffix}")).value(), count << (10 * power));
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "[-+0-9.eEnumkMGTPKi]{0,40}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
