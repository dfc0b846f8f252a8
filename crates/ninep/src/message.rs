//! What turns a table of messages into an enum that can be parsed and encoded: used for requests and for replies.

/// A table row is `Variant = number "name" { field: type, … }`; the fields follow the header in that order.
macro_rules! messages {
    (
        $(#[$doc:meta])*
        $name:ident<$life:lifetime> {
            $($(#[$row_doc:meta])* $variant:ident = $number:literal $wire:literal
                $({ $($field:ident: $type:ty),* $(,)? })?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the byte table above says what each field is")]
        pub enum $name<$life> {
            $($(#[$row_doc])* $variant $({ $($field: $type,)* })?,)*
        }

        impl<$life> $name<$life> {
            /// The type byte.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($name::$variant { .. } => Kind($number),)*
                }
            }

            /// The name that the protocol gives a type, if it is one of these.
            pub(crate) const fn name_of(kind: Kind) -> Option<&'static str> {
                match kind.0 {
                    $($number => Some($wire),)*
                    _ => None,
                }
            }

            /// Parses the fields of a message; `None` if there is no such message.
            #[inline]
            pub(crate) fn fields(
                kind: Kind,
                from: &mut Fields<$life>,
            ) -> Result<Option<$name<$life>>, Fault> {
                let message = match kind.0 {
                    $($number => $name::$variant $({
                        $($field: <$type as Field<$life>>::get(from, stringify!($field))?,)*
                    })?,)*
                    _ => return Ok(None),
                };
                from.finish()?;
                Ok(Some(message))
            }

            /// Appends the fields, and returns the payload that has to follow them.
            #[inline]
            pub(crate) fn put(&self, out: &mut Vec<u8>) -> &[u8] {
                #[allow(unused_mut, reason = "most messages have no payload")]
                let mut tail: &[u8] = &[];
                match self {
                    $($name::$variant $({ $($field,)* })? => {
                        $($(
                            $field.put(out);
                            if !$field.tail().is_empty() {
                                tail = $field.tail();
                            }
                        )*)?
                    })*
                }
                tail
            }

            /// Appends the frame up to its payload, and returns the payload (of most messages: nothing), which has
            /// to follow: by `writev`, or by [`encode`](Self::encode), which copies it.
            #[inline]
            pub fn encode_head(&self, tag: Tag, out: &mut Vec<u8>) -> &[u8] {
                let start = out.len();
                out.extend_from_slice(&[0, 0, 0, 0, self.kind().0]);
                tag.put(out);
                let tail = self.put(out);
                let size = (out.len() - start + tail.len()) as u32;
                out[start..start + 4].copy_from_slice(&size.to_le_bytes());
                tail
            }

            /// Appends the whole frame.
            pub fn encode(&self, tag: Tag, out: &mut Vec<u8>) {
                let tail = self.encode_head(tag, out);
                out.extend_from_slice(tail);
            }

            /// Every row of the table: number, name, fields as the byte tables write them.
            #[cfg(test)]
            pub(crate) fn rows() -> Vec<(u8, &'static str, String)> {
                vec![$((
                    $number,
                    $wire,
                    Vec::<String>::from([
                        $($(stringify!($field).to_owned() + <$type as Field>::WIRE,)*)?
                    ]).join(" "),
                ),)*]
            }

            /// A message of each type, with any content.
            #[cfg(test)]
            pub(crate) fn samples(from: &mut crate::sample::Source<$life>) -> Vec<$name<$life>> {
                vec![$($name::$variant $({
                    $($field: <$type as Field<$life>>::sample(from),)*
                })?,)*]
            }
        }
    };
}
pub(crate) use messages;
