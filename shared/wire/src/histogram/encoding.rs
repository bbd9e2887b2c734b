//! The V2 encoding of an HDR histogram: a header, then the count of each bucket as a number of variable
//! length. A run of empty buckets is one negative number.

use super::{Bucket, HALF, LONGEST, index};

/// Significant digits, as the header states them.
const DIGITS: u32 = 2;

const COOKIE: u32 = 0x1c84_9313;

/// Bytes of the header: cookie, payload length, normalizing offset, digits, lowest, highest, ratio.
const HEADER: usize = 40;

/// Bytes that are not a histogram of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not an HdrHistogram V2 of two significant digits from 1 up to two hours")]
pub struct BadHistogram;

pub(super) fn encode(buckets: &[Bucket]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 4 * buckets.len() + 2);
    bytes.extend(COOKIE.to_be_bytes());
    // The length of the payload, and no normalizing offset.
    bytes.extend([0; 8]);
    bytes.extend(DIGITS.to_be_bytes());
    bytes.extend(1_u64.to_be_bytes());
    bytes.extend(buckets.last().map_or(2, |last| last.highest().max(2)).to_be_bytes());
    bytes.extend(1_f64.to_be_bytes());
    let mut next = 0;
    for bucket in buckets {
        match i64::from(bucket.index - next) {
            0 => {}
            1 => put(0, &mut bytes),
            empty => put(-empty, &mut bytes),
        }
        put(i64::try_from(bucket.count).unwrap_or(i64::MAX), &mut bytes);
        next = bucket.index + 1;
    }
    if buckets.is_empty() {
        put(0, &mut bytes);
    }
    let length = (bytes.len() - HEADER) as u32;
    bytes[4..8].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// From untrusted bytes: only the counts that are present take memory, not the sizes that the header claims.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Bucket>, BadHistogram> {
    let (header, mut payload) = bytes.split_at_checked(HEADER).ok_or(BadHistogram)?;
    let word = |at: usize| header[at..].first_chunk().copied().map(u32::from_be_bytes);
    let long = |at: usize| header[at..].first_chunk().copied().map(u64::from_be_bytes);
    let stated = (word(0), word(4).map(|length| length as usize), word(8), word(12), long(16));
    let highest = long(24).filter(|highest| (2..=2 * LONGEST).contains(highest)).ok_or(BadHistogram)?;
    if stated != (Some(COOKIE), Some(payload.len()), Some(0), Some(DIGITS), Some(1)) {
        return Err(BadHistogram);
    }
    // Buckets exist up to the next power of two.
    let end = u64::from((index(highest) >> HALF).max(1) + 1) << HALF;
    let mut buckets = Vec::new();
    let mut next = 0_u64;
    while !payload.is_empty() {
        let number = take(&mut payload).ok_or(BadHistogram)?;
        let is_count = number >= 0;
        let at = next;
        next = next.saturating_add(if is_count { 1 } else { number.unsigned_abs() });
        if next > end {
            return Err(BadHistogram);
        }
        if number > 0 {
            let index = u16::try_from(at).map_err(|_beyond| BadHistogram)?;
            buckets.push(Bucket { index, count: number.unsigned_abs() });
        }
    }
    buckets.shrink_to_fit();
    Ok(buckets)
}

/// Appends a number in zigzag form, which keeps numbers near zero short for either sign, as LEB128 of at most
/// nine bytes. The ninth byte holds eight bits.
fn put(number: i64, bytes: &mut Vec<u8>) {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    for _ in 0..8 {
        if left < 0x80 {
            bytes.push(left as u8);
            return;
        }
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
}

fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for place in 0..9 {
        let byte = *bytes.split_off_first()?;
        let (bits, more) = if place == 8 { (byte, false) } else { (byte & 0x7f, byte >= 0x80) };
        number |= u64::from(bits) << (7 * place);
        if !more {
            break;
        }
    }
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}
