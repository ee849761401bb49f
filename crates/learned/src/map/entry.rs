//! Entry API of the map: a key that may or may not be present.

use super::Map;
use crate::key::Key;

/// A key of a map, to inspect and then insert or modify.
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
    /// Returns the key.
    pub fn key(&self) -> K {
        self.key
    }
    /// Modifies the value, if the key is present.
    #[must_use]
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Self {
        if let Some(value) = self.map.get_mut(self.key) {
            change(value);
        }
        self
    }
    /// Returns the value, after inserting `value` if the key is absent.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }
    /// Returns the value, after inserting the result of `make` if the key is absent.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'a mut V {
        if !self.map.contains(self.key) {
            self.map.insert(self.key, make());
        }
        self.map.get_mut(self.key).expect("the key is present or was just inserted")
    }
    /// Returns the value, after inserting the default value if the key is absent.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}
