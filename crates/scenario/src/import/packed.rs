//! MessagePack without memory: where values begin and end, whatever they claim to hold.
//!
//! Owns only the lengths of values; what is in them is read by rmpv, once it is known to be small enough.

/// What is wrong, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) at: usize,
    pub(super) problem: &'static str,
}

/// A reader of values, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// The head of a value.
enum Head {
    /// Nothing, or bytes that have been passed, belongs to it.
    Whole,
    /// So many values.
    List(u64),
    /// So many pairs of values.
    Map(u64),
}

impl<'b> Packed<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Enters a map: how many pairs follow.
    ///
    /// # Errors
    /// The next value is something else.
    pub(super) fn map(&mut self) -> Result<u64, Broken> {
        let at = self.at;
        match self.head()? {
            Head::Map(pairs) => Ok(pairs),
            _ => Err(Broken {
                at,
                problem: "expected a map",
            }),
        }
    }

    /// Enters a list: how many values follow.
    ///
    /// # Errors
    /// The next value is something else.
    pub(super) fn list(&mut self) -> Result<u64, Broken> {
        let at = self.at;
        match self.head()? {
            Head::List(values) => Ok(values),
            _ => Err(Broken {
                at,
                problem: "expected a list",
            }),
        }
    }

    /// The bytes of the next value, with everything in it.
    ///
    /// # Errors
    /// The bytes end before it.
    pub(super) fn value(&mut self) -> Result<&'b [u8], Broken> {
        let start = self.at;
        let mut left: u64 = 1;
        while left > 0 {
            left -= 1;
            left = match self.head()? {
                Head::Whole => left,
                Head::List(values) => left.saturating_add(values),
                Head::Map(pairs) => left.saturating_add(pairs.saturating_mul(2)),
            };
        }
        Ok(&self.bytes[start..self.at])
    }

    /// The head of the next value; bytes that belong to it are passed.
    fn head(&mut self) -> Result<Head, Broken> {
        let marker = self.number(1)?;
        let head = match marker {
            0x80..=0x8f => Head::Map(marker & 0x0f),
            0x90..=0x9f => Head::List(marker & 0x0f),
            0xa0..=0xbf => self.pass(marker & 0x1f)?,
            0xc1 => {
                return Err(Broken {
                    at: self.at - 1,
                    problem: "no value begins with the byte 0xc1",
                });
            }
            0xc4..=0xc6 => self.counted(1 << (marker - 0xc4), 0)?,
            // The type of an extension is one byte more.
            0xc7..=0xc9 => self.counted(1 << (marker - 0xc7), 1)?,
            0xca => self.pass(4)?,
            0xcb => self.pass(8)?,
            0xcc..=0xcf => self.pass(1 << (marker - 0xcc))?,
            0xd0..=0xd3 => self.pass(1 << (marker - 0xd0))?,
            0xd4..=0xd8 => self.pass((1 << (marker - 0xd4)) + 1)?,
            0xd9..=0xdb => self.counted(1 << (marker - 0xd9), 0)?,
            0xdc | 0xdd => Head::List(self.number(2 << (marker - 0xdc))?),
            0xde | 0xdf => Head::Map(self.number(2 << (marker - 0xde))?),
            // Small integers, nil, false and true are their markers.
            _ => Head::Whole,
        };
        Ok(head)
    }

    /// A number of so many bytes, the highest first.
    fn number(&mut self, bytes: usize) -> Result<u64, Broken> {
        let from = self.at;
        self.pass(bytes as u64)?;
        Ok(self.bytes[from..self.at]
            .iter()
            .fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Bytes whose number comes before them in `width` bytes, and `more`.
    fn counted(&mut self, width: usize, more: u64) -> Result<Head, Broken> {
        let count = self.number(width)?;
        self.pass(count + more)
    }

    fn pass(&mut self, bytes: u64) -> Result<Head, Broken> {
        let there = self.bytes.len() - self.at;
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= there => {
                self.at += bytes;
                Ok(Head::Whole)
            }
            _ => Err(Broken {
                at: self.at,
                problem: "it ends in the middle of a value",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rmpv::Value;

    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-40_i64..200).prop_map(Value::from),
            any::<f32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (0_usize..70_000).prop_map(|length| Value::from("x".repeat(length))),
            (0_usize..70_000).prop_map(|length| Value::Binary(vec![7; length])),
            (any::<i8>(), 0_usize..300).prop_map(|(kind, length)| Value::Ext(kind, vec![7; length])),
        ];
        leaf.prop_recursive(4, 60, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::Array),
                prop::collection::vec((inner.clone(), inner), 0..20).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn a_value_ends_where_rmpv_ends_it(value in values(), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            rmpv::encode::write_value(&mut bytes, &value).expect("memory");
            let mut packed = Packed::new(&bytes);
            prop_assert_eq!(packed.value().map(<[u8]>::len), Ok(bytes.len()));
            let cut = &bytes[..cut.index(bytes.len())];
            prop_assert!(Packed::new(cut).value().is_err());
        }

        #[test]
        fn any_bytes_are_walked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            let read = rmpv::decode::read_value(&mut rest).is_ok();
            let mut packed = Packed::new(&bytes);
            // rmpv takes the byte that MessagePack never uses as nil.
            if packed.value().is_ok() {
                prop_assert!(read);
                prop_assert_eq!(packed.at, bytes.len() - rest.len());
            }
        }
    }
}
