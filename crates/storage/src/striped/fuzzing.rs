//! What [`crate::fuzzing`] needs of the records of a striped set.

use super::record::{self, Content};
use super::set::SetRecord;
use presagio_core::Range;

/// Whether it is a record; one that is can be worked with.
pub fn read_record(bytes: &[u8]) -> bool {
    let Content::Whole(record) = record::read(bytes) else {
        return false;
    };
    let geometry = record.geometry();
    for start in [0, 65_000, u64::MAX - 500] {
        let range = Range::at(start, 1000);
        let split = geometry.split(range).map(|(_, part)| part.len());
        assert_eq!(split.sum::<u64>(), range.len());
        for object in 0..geometry.objects {
            let len = geometry.object_len(object, range.end());
            assert!(geometry.file_len(object, len) <= range.end());
        }
    }
    record::read(record.encode().as_bytes()) == Content::Whole(record)
}

/// Whether it is the record of a set.
pub fn read_set(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| SetRecord::parse(text).is_some())
}
