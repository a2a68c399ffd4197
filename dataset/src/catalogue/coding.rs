//! The coding of the catalogue's rows: field after field, each by its type.
//!
//! A row begins with its version, so that a later program can distinguish old rows from new. The checksum of the node
//! protects a row from damage; decoding still trusts nothing.

use pool::{
    format::codec::{Malformed, Reader, Writer, malformed},
    units::{Guid, Txg},
};

/// The version of every row written by this program.
pub(super) const ROW_VERSION: u8 = 1;

/// A value that can be part of a row.
pub(super) trait Field: Sized {
    /// Appends the coded value.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes and removes the value.
    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Self, Malformed>;
}

/// A row: the body of one item of the catalogue.
pub trait Row: Sized {
    /// The row's name in errors.
    const WHAT: &'static str;

    /// The row as stored, version included.
    fn encode(&self) -> Vec<u8>;

    /// Decodes a row from all of the bytes.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed>;
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(*self);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
        reader.varint(what)
    }
}

impl Field for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(*self);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<u8, Malformed> {
        reader.u8(what)
    }
}

impl Field for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cast_unsigned());
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<i64, Malformed> {
        reader.u64(what).map(u64::cast_signed)
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, Malformed> {
        match reader.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => malformed(what),
        }
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_prefixed(self.as_bytes());
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<String, Malformed> {
        reader.text(what).map(str::to_owned)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Option<T>, Malformed> {
        bool::take(reader, what)?.then(|| T::take(reader, what)).transpose()
    }
}

/// A key, in parts: object, kind, offset.
impl Field for (u64, u8, u64) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<(u64, u8, u64), Malformed> {
        Ok((u64::take(reader, what)?, u8::take(reader, what)?, u64::take(reader, what)?))
    }
}

impl Field for Txg {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Txg, Malformed> {
        u64::take(reader, what).map(Txg)
    }
}

/// Fixed length: a random number would not become shorter.
impl Field for Guid {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.0);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Guid, Malformed> {
        reader.u64(what).map(Guid)
    }
}

/// Defines a row: a structure whose fields are coded in the order of declaration.
macro_rules! row {
    ($(#[$about:meta])* $name:ident, $what:literal { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl $crate::catalogue::coding::Row for $name {
            const WHAT: &'static str = $what;

            fn encode(&self) -> Vec<u8> {
                let mut out = vec![$crate::catalogue::coding::ROW_VERSION];
                $($crate::catalogue::coding::Field::put(&self.$field, &mut out);)*
                out
            }

            fn decode(bytes: &[u8]) -> Result<Self, pool::format::codec::Malformed> {
                let mut reader = pool::format::codec::Reader::new(bytes);
                if reader.u8($what)? != $crate::catalogue::coding::ROW_VERSION {
                    return pool::format::codec::malformed(concat!($what, "'s version"));
                }
                let row = $name {
                    $($field: $crate::catalogue::coding::Field::take(
                        &mut reader, concat!($what, "'s ", stringify!($field)))?,)*
                };
                reader.finish($what)?;
                Ok(row)
            }
        }
    };
}
pub(super) use row;
