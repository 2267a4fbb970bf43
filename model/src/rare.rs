//! What few of many have: kept apart, so that the many are small.

use std::ops::{Deref, DerefMut};

/// A value that mostly is as when nothing was said. It reads like the value itself, and takes the room of a pointer until
/// something is written into it.
#[derive(Clone, Debug)]
pub struct Rare<T: Plain>(Option<Box<T>>);

/// What can be said of everything that nothing was said of.
pub trait Plain: Default + PartialEq + 'static {
    /// The value of those.
    fn plain() -> &'static Self;
}

impl<T: Plain> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Plain> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Plain + Eq> Eq for Rare<T> {}

impl<T: Plain> Rare<T> {
    /// The value by itself.
    pub fn into_inner(self) -> T {
        self.0.map(|value| *value).unwrap_or_default()
    }
}

impl<T: Plain> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::plain()).then(|| Box::new(value)))
    }
}

impl<T: Plain> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => T::plain(),
        }
    }
}

impl<T: Plain> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Marks {
        words: String,
        number: i64,
    }

    impl Plain for Marks {
        fn plain() -> &'static Self {
            static PLAIN: Marks = Marks { words: String::new(), number: 0 };
            &PLAIN
        }
    }

    #[test]
    fn it_is_read_and_written_like_the_value_and_small() {
        let mut marks: Rare<Marks> = Rare::default();
        assert_eq!((marks.words.as_str(), marks.number), ("", 0));
        assert!(marks.0.is_none());
        marks.number = 3;
        assert_eq!(marks, Rare::from(Marks { number: 3, ..Marks::default() }));
        marks.number = 0;
        assert_eq!(marks, Rare::default());
        assert!(Rare::from(Marks::default()).0.is_none());
        assert_eq!(size_of_val(&marks), size_of::<usize>());
    }
}
