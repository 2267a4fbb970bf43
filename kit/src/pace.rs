//! How often what can wait is written: what people read gives way to what others wait for.

use std::time::Duration;

/// Where writes take so long, a pause is as long as a write.
const AT_ONCE: Duration = Duration::from_millis(1);
/// A pause never comes to more.
pub const LONGEST: Duration = Duration::from_secs(1);

/// How long to wait with the next write of what can wait, where writes take so long now. It grows with the square: a server that has
/// become twice as slow has others to serve, and gets a quarter.
pub fn pause(took: Duration) -> Duration {
    took.mul_f64(took.as_secs_f64() / AT_ONCE.as_secs_f64()).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_twice_as_slow_gets_a_quarter() {
        let table = [(0, 0), (1, 1), (3, 9), (6, 36), (20, 400), (32, 1_000), (30_000, 1_000)];
        for (took, expected) in table {
            let pause = pause(Duration::from_millis(took));
            assert_eq!((pause + Duration::from_micros(1)).as_millis(), expected, "{took} ms");
        }
    }
}
