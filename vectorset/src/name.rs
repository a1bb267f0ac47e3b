//! An element's name in sixteen bytes: a short one lies in place, a long one on the heap.
//!
//! It never changes, so readers need nothing but the node. It must never know what it names.

const MAX_SHORT: usize = 14;

/// A name of any length.
pub(crate) enum Name {
    Short { len: u8, bytes: [u8; MAX_SHORT] },
    Long(Box<Box<[u8]>>),
}

impl Name {
    pub(crate) fn new(text: &[u8]) -> Name {
        if text.len() > MAX_SHORT {
            return Name::Long(Box::new(text.into()));
        }
        let mut bytes = [0; MAX_SHORT];
        bytes[..text.len()].copy_from_slice(text);
        Name::Short { len: text.len() as u8, bytes }
    }

    #[inline]
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Name::Short { len, bytes } => &bytes[..usize::from(*len)],
            Name::Long(text) => text,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Name::Short { .. } => 0,
            Name::Long(text) => text.len() + size_of::<Box<[u8]>>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_what_was_given() {
        assert_eq!(size_of::<Name>(), 16);
        for len in (0..40).chain([1_000]) {
            let text: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let name = Name::new(&text);
            assert_eq!(name.text(), text);
            assert_eq!(name.heap_bytes() == 0, len <= MAX_SHORT);
        }
    }
}
