//! What the parts of this crate share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex; a thread that panicked while holding one of ours left nothing half done (each holds plain values, replaced whole).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
