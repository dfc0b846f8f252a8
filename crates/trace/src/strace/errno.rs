//! The numbers behind the names that strace prints: errors, and the flags of open.

/// The error numbers of Linux that calls on files return (those above 34 are of x86-64, ARM and most others).
const ERRORS: [(&str, i64); 58] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("ENOEXEC", 8),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("ENOTBLK", 15),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("ETXTBSY", 26),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EMLINK", 31),
    ("EPIPE", 32),
    ("EDOM", 33),
    ("ERANGE", 34),
    ("EDEADLK", 35),
    ("ENAMETOOLONG", 36),
    ("ENOLCK", 37),
    ("ENOSYS", 38),
    ("ENOTEMPTY", 39),
    ("ELOOP", 40),
    ("ENODATA", 61),
    ("ENOLINK", 67),
    ("ECOMM", 70),
    ("EPROTO", 71),
    ("EBADMSG", 74),
    ("EOVERFLOW", 75),
    ("EUSERS", 87),
    ("EOPNOTSUPP", 95),
    ("ENOTSUP", 95),
    ("ENOBUFS", 105),
    ("ENOTCONN", 107),
    ("ETIMEDOUT", 110),
    ("EHOSTDOWN", 112),
    ("ESTALE", 116),
    ("EREMOTEIO", 121),
    ("EDQUOT", 122),
    ("ECANCELED", 125),
    ("EHWPOISON", 133),
];

/// The number of an error; of one that we do not know, that of EIO.
pub(super) fn number(name: &[u8]) -> Option<i64> {
    if name.first() != Some(&b'E') {
        return None;
    }
    let known = ERRORS.iter().find(|(known, _)| known.as_bytes() == name);
    Some(known.map_or(5, |&(_, number)| number))
}

pub(super) const O_WRONLY: u64 = 0o1;
pub(super) const O_CREAT: u64 = 0o100;
pub(super) const O_TRUNC: u64 = 0o1000;
pub(super) const O_APPEND: u64 = 0o2000;
pub(super) const O_DIRECTORY: u64 = 0o200_000;
pub(super) const O_CLOEXEC: u64 = 0o2_000_000;

/// The flags of open as x86-64 numbers them, wherever the recording was made.
const FLAGS: [(&str, u64); 20] = [
    ("O_RDONLY", 0),
    ("O_WRONLY", O_WRONLY),
    ("O_RDWR", 0o2),
    ("O_CREAT", O_CREAT),
    ("O_EXCL", 0o200),
    ("O_NOCTTY", 0o400),
    ("O_TRUNC", O_TRUNC),
    ("O_APPEND", O_APPEND),
    ("O_NONBLOCK", 0o4000),
    ("O_DSYNC", 0o10_000),
    ("O_ASYNC", 0o20_000),
    ("O_DIRECT", 0o40_000),
    ("O_LARGEFILE", 0o100_000),
    ("O_DIRECTORY", O_DIRECTORY),
    ("O_NOFOLLOW", 0o400_000),
    ("O_NOATIME", 0o1_000_000),
    ("O_CLOEXEC", O_CLOEXEC),
    ("O_SYNC", 0o4_010_000),
    ("O_PATH", 0o10_000_000),
    ("O_TMPFILE", 0o20_200_000),
];

/// The number of `O_RDWR|O_CREAT` and the like; unknown names count nothing.
pub(super) fn open_flags(text: &[u8]) -> u64 {
    let flag = |name: &[u8]| {
        let known = FLAGS.iter().find(|(known, _)| known.as_bytes() == name);
        let number = || super::line::integer(name).unwrap_or(0) as u64;
        known.map_or_else(number, |&(_, bits)| bits)
    };
    text.split(|&b| b == b'|')
        .fold(0, |bits, name| bits | flag(name))
}
