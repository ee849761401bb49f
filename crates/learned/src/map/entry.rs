//! One key of a map, whether it is there or not.

use super::Map;
use crate::key::Key;

/// A key and its place in a map: look first, then put.
///
/// ```
/// let mut seen = perigee_learned::Map::<u64, u32>::new();
/// for key in [7, 9, 7] {
///     seen.entry(key).and_modify(|n| *n += 1).or_insert(1);
/// }
/// assert_eq!(seen.get(7), Some(&2));
/// ```
pub struct MapEntry<'a, K, V> {
    pub(super) map: &'a mut Map<K, V>,
    pub(super) key: K,
}

impl<'a, K: Key, V> MapEntry<'a, K, V> {
    /// The key.
    pub fn key(&self) -> K {
        self.key
    }
    /// Changes the value, if there is one.
    #[must_use]
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Self {
        if let Some(value) = self.map.get_mut(self.key) {
            change(value);
        }
        self
    }
    /// The value, which is `value` if there was none.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }
    /// The value, which is made if there was none.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'a mut V {
        if !self.map.contains(self.key) {
            self.map.insert(self.key, make());
        }
        self.map.get_mut(self.key).expect("it was there or was put there")
    }
    /// The value, which is the default if there was none.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}
