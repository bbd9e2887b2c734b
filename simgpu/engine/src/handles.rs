//! The handles of a C program, and their objects.
//!
//! A handle is not an address, so a stale or invented one is refused and never dereferenced. As in CUDA, the
//! value of a freed handle is soon reused, so an observer that keeps handles must notice when they are freed.

use std::sync::{Arc, PoisonError, RwLock};

/// The distance between two handles. They look like addresses of small structs.
const STEP: usize = 64;

#[derive(Debug)]
pub struct Handles<T> {
    base: usize,
    slots: RwLock<Vec<Option<Arc<T>>>>,
}

impl<T> Handles<T> {
    /// Handles count up from `base`, which must not be a special value of the C interface.
    #[must_use]
    pub const fn new(base: usize) -> Self {
        Self { base, slots: RwLock::new(Vec::new()) }
    }

    pub fn add(&self, value: Arc<T>) -> usize {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[index] = Some(value);
        self.base + index * STEP
    }

    #[must_use]
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(self.index(handle)?)?.clone()
    }

    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.get_mut(self.index(handle)?)?.take()
    }

    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().flatten().cloned().collect()
    }

    fn index(&self, handle: usize) -> Option<usize> {
        let offset = handle.checked_sub(self.base)?;
        offset.is_multiple_of(STEP).then_some(offset / STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_refused_until_it_is_reused() {
        let handles = Handles::new(0x1000);
        let first = handles.add(Arc::new(1));
        assert_eq!(handles.remove(first).as_deref(), Some(&1));
        assert!(handles.get(first).is_none());
        assert_eq!(handles.add(Arc::new(2)), first);
        assert_eq!(handles.get(first).as_deref(), Some(&2));
    }

    #[test]
    fn unknown_handles_are_refused() {
        let handles = Handles::new(0x1000);
        let real = handles.add(Arc::new(1));
        for wrong in [0, 1, real - 1, real + 1, real + STEP, usize::MAX] {
            assert!(handles.get(wrong).is_none(), "{wrong:#x}");
        }
    }
}
