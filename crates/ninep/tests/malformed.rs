//! Frames that are not what the protocol demands: each is refused with the message, the tag, the field, the place and the
//! reason.

use presagio_ninep::extension::{ReopenFlags, Wrapped};
use presagio_ninep::{
    Data, Dialect, Entries, EntryName, Fid, Frame, Frames, Handle, Kind, List, MSIZE_MAX, Name,
    OpenFlags, Reason, Reply, Request, Step, Tag, Text, WireError, version,
};

const TAG: u16 = 0x1234;

/// A frame of a type with these fields.
fn frame(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let size = (body.len() as u32 + 7).to_le_bytes();
    [&size[..], &[kind], &TAG.to_le_bytes(), &body].concat()
}

fn request_error(kind: u8, fields: &[&[u8]]) -> WireError {
    let frame = frame(kind, fields);
    let parsed = Request::parse(Frame::new(&frame).unwrap(), Dialect::Presagio);
    parsed.expect_err("a refusal")
}

fn reply_error(kind: u8, fields: &[&[u8]]) -> WireError {
    let frame = frame(kind, fields);
    let parsed = Reply::parse(Frame::new(&frame).unwrap(), Dialect::Presagio);
    parsed.expect_err("a refusal")
}

#[track_caller]
fn check(error: WireError, kind: u8, field: &str, at: u32, reason: Reason) {
    assert_eq!((error.kind, error.tag), (Kind(kind), Tag(TAG)));
    assert_eq!(
        (error.field, error.at, error.reason),
        (field, at, reason),
        "{error}"
    );
}

const FID: &[u8] = &[9, 0, 0, 0];
const U32: &[u8] = &[1, 0, 0, 0];
const U64: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn an_error_reads_like_a_sentence() {
    let error = request_error(72, &[FID, b"\x03\x00a/b", U32, U32]);
    let said = "Tmkdir with tag 4660: name, at byte 11 of the frame, contains a slash: a name is one component of a path";
    assert_eq!(error.to_string(), said);
}

#[test]
fn fields_that_the_frame_is_too_short_for() {
    let short = |needs, has| Reason::Short { needs, has };
    check(
        request_error(120, &[&[1, 2, 3]]),
        120,
        "fid",
        7,
        short(4, 3),
    );
    check(
        request_error(116, &[FID, U64]),
        116,
        "count",
        19,
        short(4, 0),
    );
    check(
        request_error(118, &[FID, U64, &[5, 0, 0, 0], b"four"]),
        118,
        "data",
        23,
        short(5, 4),
    );
    check(
        request_error(110, &[FID, FID, &[2, 0], b"\x01\x00a"]),
        110,
        "steps",
        20,
        short(2, 0),
    );
    check(
        request_error(110, &[FID, FID, &[1, 0], b"\x05\x00abc"]),
        110,
        "steps",
        19,
        short(5, 3),
    );
    check(
        request_error(100, &[U32, &[8]]),
        100,
        "version",
        11,
        short(2, 1),
    );
    check(
        request_error(26, &[FID, &[0; 50]]),
        26,
        "nsec",
        59,
        short(8, 2),
    );
    check(
        request_error(50, &[FID, &[0, 0]]),
        50,
        "datasync",
        11,
        short(4, 2),
    );
    check(
        reply_error(117, &[&[200, 0, 0, 0], b"few"]),
        117,
        "data",
        11,
        short(200, 3),
    );
    check(reply_error(25, &[&[0; 20]]), 25, "path", 20, short(8, 7));
}

#[test]
fn bytes_behind_the_last_field() {
    check(
        request_error(120, &[FID, b"xyz"]),
        120,
        "the last field",
        11,
        Reason::Trailing(3),
    );
    check(
        request_error(118, &[FID, U64, &[1, 0, 0, 0], b"ab"]),
        118,
        "the last field",
        24,
        Reason::Trailing(1),
    );
    check(
        reply_error(109, &[b"x"]),
        109,
        "the last field",
        7,
        Reason::Trailing(1),
    );
}

#[test]
fn names_that_are_none() {
    let mkdir = |name: &[u8]| {
        let length = (name.len() as u16).to_le_bytes();
        request_error(72, &[FID, &length, name, U32, U32])
    };
    for (name, reason) in [
        (&b""[..], Reason::Empty),
        (b".", Reason::Dots),
        (b"..", Reason::Dots),
        (b"a/b", Reason::Slash),
        (b"/", Reason::Slash),
        (b"../x", Reason::Slash),
        (b"a\0b", Reason::Nul),
    ] {
        check(mkdir(name), 72, "name", 11, reason);
        assert_eq!(Name::new(name), Err(reason), "nor can they be sent");
    }
    // Every other message that names something new or removes it.
    for (kind, before, field, after) in [
        (14, FID, "name", &[U32, U32, U32].concat()),
        (16, FID, "name", &[b"\x01\x00t", U32].concat()),
        (18, FID, "name", &U32.repeat(4)),
        (20, U64, "name", &Vec::new()),
        (70, U64, "name", &Vec::new()),
        (74, FID, "old_name", &[FID, b"\x01\x00n"].concat()),
        (76, FID, "name", &U32.to_vec()),
    ] {
        let error = request_error(kind, &[before, b"\x02\x00..", after]);
        check(error, kind, field, 7 + before.len() as u32, Reason::Dots);
    }
}

#[test]
fn walks_may_stay_or_go_up_but_nowhere_else_that_is_not_a_name() {
    // diod's own clients begin with a dot.
    let steps: &[&[u8]] = &[b"\x01\x00.", b"\x02\x00..", b"\x03\x00abc"];
    let up = frame(110, &[FID, FID, &[3, 0], &steps.concat()]);
    let Ok(Request::Walk { steps, .. }) = Request::parse(Frame::new(&up).unwrap(), Dialect::Linux)
    else {
        panic!("a walk");
    };
    assert_eq!(
        steps
            .iter()
            .map(|step| step.bytes().len())
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    for (step, reason) in [
        (&b"\x00\x00"[..], Reason::Empty),
        (b"\x02\x00a\0", Reason::Nul),
        (b"\x02\x00a/", Reason::Slash),
    ] {
        check(
            request_error(110, &[FID, FID, &[1, 0], step]),
            110,
            "steps",
            17,
            reason,
        );
    }
    let too_many = Reason::TooMany { count: 17, max: 16 };
    check(
        request_error(110, &[FID, FID, &[17, 0], &b"\x01\x00a".repeat(17)]),
        110,
        "steps",
        15,
        too_many,
    );
    let steps = [Step::new("a").unwrap(); 17];
    assert_eq!(List::<Step, 16>::new(&steps).unwrap_err(), too_many);
}

#[test]
fn texts_with_a_nul() {
    check(
        request_error(100, &[U32, b"\x02\x00a\0"]),
        100,
        "version",
        11,
        Reason::Nul,
    );
    check(
        request_error(16, &[FID, b"\x01\x00n", b"\x01\x00\0", U32]),
        16,
        "target",
        14,
        Reason::Nul,
    );
    check(
        reply_error(23, &[b"\x03\x00a\0b"]),
        23,
        "target",
        7,
        Reason::Nul,
    );
    assert_eq!(Text::new("a\0"), Err(Reason::Nul));
}

#[test]
fn numbers_that_mean_nothing() {
    let lock = |kind: u8| request_error(52, &[FID, &[kind], U32, U64, U64, U32, b"\x00\x00"]);
    check(lock(3), 52, "lock_type", 11, Reason::Value(3));
    check(reply_error(53, &[&[4]]), 53, "status", 7, Reason::Value(4));
}

#[test]
fn messages_that_do_not_exist_or_go_the_other_way() {
    check(
        request_error(98, &[]),
        98,
        "the type",
        4,
        Reason::UnknownKind,
    );
    check(
        request_error(6, &[U32]),
        6,
        "the type",
        4,
        Reason::UnknownKind,
    );
    check(
        request_error(121, &[]),
        121,
        "the type",
        4,
        Reason::Direction,
    );
    check(
        reply_error(120, &[FID]),
        120,
        "the type",
        4,
        Reason::Direction,
    );
    check(
        reply_error(107, &[b"\x00\x00"]),
        107,
        "the type",
        4,
        Reason::UnknownKind,
    );
    check(
        reply_error(205, &[]),
        205,
        "the type",
        4,
        Reason::UnknownKind,
    );
}

#[test]
fn extensions_that_were_not_negotiated() {
    for kind in [200, 202, 204, 206, 208, 210] {
        let request = frame(kind, &[FID]);
        let error = Request::parse(Frame::new(&request).unwrap(), Dialect::Linux).unwrap_err();
        check(error, kind, "the type", 4, Reason::NotNegotiated);
        let reply = frame(kind + 1, &[]);
        let error = Reply::parse(Frame::new(&reply).unwrap(), Dialect::Linux).unwrap_err();
        check(error, kind + 1, "the type", 4, Reason::NotNegotiated);
    }
}

#[test]
fn extensions_that_ask_for_what_they_may_not() {
    // A file is not cut, made or excluded a second time.
    for flags in [OpenFlags::TRUNC, OpenFlags::EXCL, OpenFlags::CREAT] {
        let error = request_error(208, &[FID, FID, &flags.0.to_le_bytes(), b"\x01\x00h"]);
        check(error, 208, "flags", 15, Reason::Value(flags.0.into()));
        assert_eq!(
            ReopenFlags::new(flags | OpenFlags::RDWR).flags(),
            OpenFlags::RDWR
        );
    }
    check(
        request_error(208, &[FID, FID, U32, b"\x00\x00"]),
        208,
        "handle",
        19,
        Reason::Empty,
    );
    assert_eq!(Handle::new(""), Err(Reason::Empty));
    // Only what changes something is numbered, and nothing twice.
    check(
        request_error(204, &[U64, U64, &[116]]),
        204,
        "request",
        23,
        Reason::NotWrappable,
    );
    check(
        request_error(204, &[U64, U64, &[204], U64, U64]),
        204,
        "request",
        23,
        Reason::NotWrappable,
    );
    let short = Reason::Short { needs: 4, has: 0 };
    check(
        request_error(204, &[U64, U64, &[122]]),
        204,
        "fid",
        24,
        short,
    );
    assert_eq!(
        Wrapped::new(&Request::Clunk { fid: Fid(1) }),
        Err(Reason::NotWrappable)
    );
    // A foreseen request has a fid or a path, an operation and an end.
    let foreseen = |fid: &[u8], path: &[u8], op: u8, offset: u64| {
        let offset = offset.to_le_bytes();
        request_error(202, &[&[1, 0], fid, path, &[op], &offset, U64, U64])
    };
    check(
        foreseen(FID, b"\x01\x00p", 0, 0),
        202,
        "fid",
        9,
        Reason::Value(9),
    );
    check(
        foreseen(&[255; 4], b"\x00\x00", 0, 0),
        202,
        "path",
        9,
        Reason::Empty,
    );
    check(
        foreseen(FID, b"\x00\x00", 2, 0),
        202,
        "op",
        15,
        Reason::Value(2),
    );
    check(
        foreseen(FID, b"\x00\x00", 1, u64::MAX),
        202,
        "length",
        24,
        Reason::Value(1),
    );
}

#[test]
fn sizes_that_no_frame_has() {
    let mut frames = Frames::new(8192);
    let first = |frames: &mut Frames, bytes: &[u8]| {
        frames.space()[..bytes.len()].copy_from_slice(bytes);
        frames.received(bytes.len());
        frames.next().map(|frame| frame.is_some())
    };
    assert_eq!(
        first(&mut frames, &[6, 0, 0, 0, 116, 0x34]),
        Ok(false),
        "not before the header is there"
    );
    let error = first(&mut frames, &[0x12]).unwrap_err();
    check(error, 116, "size", 0, Reason::TooSmall(6));
    let mut frames = Frames::new(8192);
    let error = first(&mut frames, &[1, 32, 0, 0, 118, 0x34, 0x12]).unwrap_err();
    check(
        error,
        118,
        "size",
        0,
        Reason::TooLarge {
            size: 8193,
            msize: 8192,
        },
    );
    assert!(frames.memory() < 20_000, "nothing is allocated for it");
    let error = Frame::new(&[9, 0, 0, 0, 121, 0x34, 0x12]).unwrap_err();
    check(error, 121, "size", 0, Reason::Short { needs: 9, has: 7 });
    let error = Frame::new(&[7, 0, 0, 0, 121, 0x34, 0x12, 0]).unwrap_err();
    check(error, 121, "size", 0, Reason::Trailing(1));
    assert_eq!(Frame::new(&[7, 0]).unwrap_err().reason, Reason::TooSmall(2));
}

#[test]
fn entries_that_lead_astray() {
    let entry = |name: &[u8]| [&[0; 22][..], &(name.len() as u16).to_le_bytes(), name].concat();
    for (name, reason) in [
        (&b""[..], Reason::Empty),
        (b"a/b", Reason::Slash),
        (b"a\0", Reason::Nul),
    ] {
        let listed = [entry(b".."), entry(name), entry(b"x")].concat();
        let mut entries = Entries::new(Data::new(&listed).unwrap());
        assert!(entries.next().unwrap().is_ok());
        let error = entries.next().unwrap().unwrap_err();
        assert_eq!(
            (error.field, error.at, error.reason),
            ("name", 11 + 26 + 22, reason)
        );
        assert!(entries.next().is_none(), "nothing is trusted behind it");
        assert_eq!(EntryName::new(name), Err(reason));
    }
}

#[test]
fn what_is_too_long_cannot_be_sent() {
    let long = vec![b'a'; 65_536];
    assert_eq!(Name::new(&long), Err(Reason::TooLong(65_536)));
    assert!(Name::new(&long[1..]).is_ok());
    let long = vec![0; MSIZE_MAX as usize + 1];
    assert_eq!(Data::new(&long), Err(Reason::TooLong(MSIZE_MAX as u64 + 1)));
}

#[test]
fn older_clients_leave_datasync_out() {
    let short = frame(50, &[FID]);
    let parsed = Request::parse(Frame::new(&short).unwrap(), Dialect::Linux).unwrap();
    assert!(matches!(parsed, Request::Fsync { fid: Fid(9), datasync } if !datasync.0));
}

#[test]
fn a_server_answers_what_both_speak() {
    let answer = |offered: &'static str, msize| {
        let agreed = version::answer(msize, Text::new(offered).unwrap(), 1 << 20);
        agreed.map(|agreed| (agreed.dialect, agreed.msize))
    };
    // Linux and diod's clients get exactly what they ask for.
    assert_eq!(answer("9P2000.L", 65_560), Some((Dialect::Linux, 65_560)));
    assert_eq!(
        answer("9P2000.L.presagio1", 4 << 20),
        Some((Dialect::Presagio, 1 << 20))
    );
    // Clients of later versions of ours, and of others' extensions.
    assert_eq!(
        answer("9P2000.L.presagio12", 8192),
        Some((Dialect::Presagio, 8192))
    );
    for other in [
        "9P2000.L.Google.11",
        "9P2000.L.presagio",
        "9P2000.L.presagio0",
        "9P2000.L.presagiox",
    ] {
        assert_eq!(answer(other, 8192), Some((Dialect::Linux, 8192)), "{other}");
    }
    for none in ["", "9P2000", "9P2000.u", "9P2000.Lx", "9p2000.L", "unknown"] {
        assert_eq!(answer(none, 8192), None, "{none}");
    }
    assert_eq!(answer("9P2000.L", 4095), None);
    let Reply::Version { version, .. } = version::refusal(8192) else {
        panic!("a version");
    };
    assert_eq!(version.bytes(), b"unknown");
}
