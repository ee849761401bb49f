//! Implements the traits of `serde` (feature `serde`): errors as a structure, types with a text
//! form as that text.

use crate::{Error, ErrorKind, KeyComparator, MergeRule};
use serde::ser::{Serialize, SerializeStruct, Serializer};

impl Serialize for ErrorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Error", 9)?;
        out.serialize_field("kind", &self.kind())?;
        out.serialize_field("message", self.message())?;
        out.serialize_field("file", &self.file())?;
        out.serialize_field("offset", &self.offset())?;
        out.serialize_field("expected", &self.expected_value())?;
        out.serialize_field("got", &self.got_value())?;
        out.serialize_field("os_error", &self.os_error())?;
        out.serialize_field("family", &self.family())?;
        out.serialize_field("key", &self.key())?;
        out.end()
    }
}

/// Implements both traits through `Display` and `FromStr`.
#[macro_export]
#[doc(hidden)]
macro_rules! serialize_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(
                &self,
                to: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                from: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(|e: $crate::Error| serde::de::Error::custom(e.message()))
            }
        }
    )+};
}

serialize_as_text!(KeyComparator, MergeRule);
