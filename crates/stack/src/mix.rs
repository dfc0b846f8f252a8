//! The one mixing function behind all hashes here. Names of contexts are kept in models and compared between runs,
//! so changing it makes every kept model forget.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER: u64 = 0xd6e8_feb8_6659_fd93;

/// A word to mix with where there is no other.
pub(crate) const SALT: u64 = 0xa076_1d64_78bd_642f;

/// Both words into one, each bit of the result depending on all of them: the halves of the 128-bit product.
#[inline(always)]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

/// A word spread over 64 bits.
#[inline(always)]
pub(crate) const fn spread(word: u64) -> u64 {
    word.wrapping_mul(MULTIPLIER)
}

/// The hash so far, and one more word.
#[inline(always)]
pub(crate) const fn chain(hash: u64, word: u64) -> u64 {
    fold(hash.rotate_left(23) ^ word ^ OTHER, MULTIPLIER)
}

/// Two words that together select something.
#[inline(always)]
pub(crate) const fn pair(a: u64, b: u64) -> u64 {
    fold(a ^ MULTIPLIER, b ^ OTHER)
}

/// A string of bytes.
pub(crate) fn bytes(text: &[u8]) -> u64 {
    let start = chain(MULTIPLIER, text.len() as u64);
    text.iter()
        .fold(start, |hash, &byte| chain(hash, byte.into()))
}
