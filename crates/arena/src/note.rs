//! What the manager wants done to an open file. Advice on the mode acts on the open file itself, so only the
//! program can give it; it finds the note at its next operation on the file.

/// The advice that a note can give, with the numbers of `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Advice {
    /// The kernel's usual read-ahead.
    Normal = 0,
    /// No read-ahead.
    Random = 1,
    /// Twice the usual read-ahead.
    Sequential = 2,
    /// The pages will not be needed.
    DontNeed = 4,
}

impl Advice {
    fn from_number(number: u8) -> Option<Advice> {
        [
            Advice::Normal,
            Advice::Random,
            Advice::Sequential,
            Advice::DontNeed,
        ]
        .into_iter()
        .find(|&advice| advice as u8 == number)
    }
}

/// A note in a file's entry. The same word is carried out once: to repeat an advice, change the serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// What to tell the kernel about the whole file.
    pub advice: Advice,
    /// The manager's own remark, a region of its configuration for example.
    pub region: u32,
    /// Sets notes of the same advice apart.
    pub serial: u16,
}

impl Note {
    /// Bit 63 says that there is a note at all; then serial, region and advice.
    pub(crate) fn to_word(self) -> u64 {
        1 << 63
            | u64::from(self.serial & 0x7fff) << 48
            | u64::from(self.region) << 8
            | self.advice as u64
    }

    pub(crate) fn from_word(word: u64) -> Option<Note> {
        if word >> 63 == 0 {
            return None;
        }
        Some(Note {
            advice: Advice::from_number(word as u8)?,
            region: (word >> 8) as u32,
            serial: (word >> 48) as u16 & 0x7fff,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_its_word_and_nonsense_is_no_note() {
        let note = Note {
            advice: Advice::DontNeed,
            region: u32::MAX,
            serial: 0x7fff,
        };
        assert_eq!(Note::from_word(note.to_word()), Some(note));
        assert_eq!(Note::from_word(0), None);
        assert_eq!(Note::from_word(1 << 63 | 3), None);
    }
}
