//! A task that panics is lost in silence: the runtime catches it. Here it is remembered, by the thread that plays.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics of any task are remembered by their thread.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
}

/// What panicked in this thread since the last call.
pub fn take() -> Vec<String> {
    PANICS.take()
}
