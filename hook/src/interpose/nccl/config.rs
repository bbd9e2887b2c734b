//! Reads the `ncclConfig_t` that the program passes for a communicator.

use std::ffi::{c_char, c_void};

use crate::observe::communicator::Name;

/// The first fields of `ncclConfig_t`. New versions have only added fields at the end.
#[repr(C)]
struct ConfigHeader {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    cga_cluster_size: i32,
    min_ctas: i32,
    max_ctas: i32,
    net_name: *const c_char,
    split_share: i32,
    traffic_class: i32,
    /// Since 2.27.
    name: *const c_char,
}

const MAGIC: u32 = 0xcafe_beef;

/// A configuration with a larger size is invalid.
const LONGEST: usize = 4096;

/// The communicator's name, if it has one.
///
/// # Safety
/// `config` is NULL, or as NCCL documents: a configuration of the size in its first field, whose name is NULL
/// or a NUL-terminated string.
pub(super) unsafe fn name(config: *const c_void) -> Name {
    let config = config.cast::<ConfigHeader>();
    if config.is_null() {
        return Name::default();
    }
    // SAFETY: every configuration begins with its size and magic number.
    let (size, magic) = unsafe { ((*config).size, (*config).magic) };
    if magic != MAGIC || !(size_of::<ConfigHeader>()..=LONGEST).contains(&size) {
        return Name::default();
    }
    // SAFETY: by its own size, it is long enough to have a name.
    let name = unsafe { (*config).name };
    if name.is_null() {
        return Name::default();
    }
    // SAFETY: the caller promises a NUL-terminated string; nothing after its end is read.
    let bytes = (0..Name::LONGEST).map(|at| unsafe { *name.add(at) } as u8).take_while(|&byte| byte != 0);
    Name::of(bytes)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn header(size: usize, magic: u32, name: *const c_char) -> ConfigHeader {
        ConfigHeader {
            size,
            magic,
            version: 22_809,
            blocking: 1,
            cga_cluster_size: i32::MIN,
            min_ctas: i32::MIN,
            max_ctas: i32::MIN,
            net_name: ptr::null(),
            split_share: i32::MIN,
            traffic_class: i32::MIN,
            name,
        }
    }

    fn read(config: &ConfigHeader) -> String {
        // SAFETY: the configurations of these tests have the size in their first field, or are too short for
        // a name.
        unsafe { name(ptr::from_ref(config).cast()) }.to_string()
    }

    #[test]
    fn a_name_is_read_if_there_is_one() {
        assert_eq!(size_of::<ConfigHeader>(), 56);
        assert_eq!(read(&header(88, MAGIC, c"tensor parallel".as_ptr())), "tensor parallel");
        assert_eq!(read(&header(88, MAGIC, ptr::null())), "");
        assert_eq!(read(&header(48, MAGIC, c"older than names".as_ptr())), "");
        assert_eq!(read(&header(88, 7, c"no configuration".as_ptr())), "");
        assert_eq!(read(&header(usize::MAX, MAGIC, c"nonsense".as_ptr())), "");
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { name(ptr::null()) }.to_string(), "");
    }
}
