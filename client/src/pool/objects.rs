//! Objects that are costly to make and cheap to keep (encoders, decoders, scratch memory): taken, used, put
//! back.

use parking_lot::Mutex;

/// As many objects as were ever in use at once.
#[derive(Debug)]
pub(crate) struct ObjectPool<T>(Mutex<Vec<T>>);

impl<T> Default for ObjectPool<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> ObjectPool<T> {
    /// A kept object, or else a new one by `make`.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn take_or<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let kept = self.0.lock().pop();
        kept.map_or_else(make, Ok)
    }

    /// Puts one back.
    pub(crate) fn put(&self, object: T) {
        self.0.lock().push(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_is_taken_again() {
        let pool = ObjectPool::default();
        assert_eq!(pool.take_or(|| Ok::<_, ()>(1)), Ok(1));
        assert_eq!(pool.take_or(|| Err("none")), Err("none"));
        pool.put(7);
        assert_eq!(pool.take_or(|| Ok::<_, ()>(1)), Ok(7));
    }
}
