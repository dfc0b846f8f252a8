//! What the codec promises of every message at once.

use crate::entries::Entry;
use crate::field::{Field, HEADER};
use crate::sample::Source;
use crate::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn encoded_request(request: &Request<'_>, tag: u16) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(Tag(tag), &mut out);
    out
}

fn encoded_reply(reply: &Reply<'_>, tag: u16) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(Tag(tag), &mut out);
    out
}

fn random_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..16_384)
}

proptest! {
    #[test]
    fn every_request_comes_back_as_it_was_sent(bytes in random_bytes(), tag in any::<u16>()) {
        for request in Request::samples(&mut Source::new(&bytes)) {
            let frame = encoded_request(&request, tag);
            let frame = Frame::new(&frame).unwrap();
            prop_assert_eq!(frame.tag, Tag(tag));
            let parsed = Request::parse(frame, Dialect::Presagio).unwrap();
            prop_assert_eq!(&parsed, &request);
            prop_assert_eq!(encoded_request(&parsed, tag), encoded_request(&request, tag));
        }
    }

    #[test]
    fn every_reply_comes_back_as_it_was_sent(bytes in random_bytes(), tag in any::<u16>()) {
        for reply in Reply::samples(&mut Source::new(&bytes)) {
            let frame = encoded_reply(&reply, tag);
            let parsed = Reply::parse(Frame::new(&frame).unwrap(), Dialect::Presagio).unwrap();
            prop_assert_eq!(&parsed, &reply);
            prop_assert_eq!(encoded_reply(&parsed, tag), encoded_reply(&reply, tag));
        }
    }

    #[test]
    fn a_message_that_is_cut_or_followed_by_something_is_refused(bytes in random_bytes(), at in any::<usize>()) {
        for request in Request::samples(&mut Source::new(&bytes)) {
            let whole = encoded_request(&request, 1);
            let cut = HEADER + at % (whole.len() - HEADER).max(1);
            let refused = refused_request(resized(&whole[..cut.min(whole.len() - 1).max(HEADER)]), &request);
            prop_assert!(refused, "{:?} cut at {}", request, cut);
            let longer = resized(&[&whole[..], b"x"].concat());
            let refused = Request::parse(Frame::new(&longer).unwrap(), Dialect::Presagio);
            prop_assert!(refused.is_err(), "{:?}", request);
        }
        for reply in Reply::samples(&mut Source::new(&bytes)) {
            let longer = resized(&[&encoded_reply(&reply, 1)[..], b"x"].concat());
            let refused = Reply::parse(Frame::new(&longer).unwrap(), Dialect::Presagio);
            prop_assert!(refused.is_err(), "{:?}", reply);
        }
    }

    #[test]
    fn entries_come_back_as_they_were_listed(bytes in random_bytes()) {
        let mut source = Source::new(&bytes);
        let entries: Vec<Entry> = (0..20).map(|_| Entry::sample(&mut source)).collect();
        let mut listed = Vec::new();
        for entry in &entries {
            let before = listed.len();
            prop_assert!(!entry.append(&mut listed, before + entry.size() - 1));
            prop_assert!(entry.append(&mut listed, before + entry.size()));
            prop_assert_eq!(listed.len(), before + entry.size());
        }
        let read: Result<Vec<Entry>, _> = Entries::new(Data::new(&listed).unwrap()).collect();
        prop_assert_eq!(read.unwrap(), entries);
    }

    #[test]
    fn frames_are_found_however_the_stream_is_cut(
        bytes in vec(any::<u8>(), 0..8_000),
        cuts in vec(1usize..3_000, 1..200),
    ) {
        let sent: Vec<Vec<u8>> = Request::samples(&mut Source::new(&bytes))
            .iter()
            .map(|request| encoded_request(request, 3))
            .chain([encoded_request(&big_write(&vec![7; 50_000]), 3)])
            .collect();
        let stream = sent.concat();
        let (mut frames, mut found, mut at) = (Frames::new(MSIZE_MAX), Vec::new(), 0);
        for cut in cuts.iter().cycle() {
            let space = frames.space();
            let count = (*cut).min(space.len()).min(stream.len() - at);
            space[..count].copy_from_slice(&stream[at..at + count]);
            frames.received(count);
            at += count;
            while let Some(frame) = frames.next().unwrap() {
                found.push(frame.body.to_vec());
            }
            if at == stream.len() {
                break;
            }
        }
        let bodies: Vec<_> = sent.iter().map(|frame| frame[HEADER..].to_vec()).collect();
        prop_assert!(found == bodies, "{} frames of {}", found.len(), bodies.len());
        prop_assert!(frames.memory() < 110_000);
        frames.release();
        prop_assert_eq!(frames.memory(), 0);
    }
}

fn big_write(data: &[u8]) -> Request<'_> {
    Request::Write {
        fid: Fid(1),
        offset: 2,
        data: Data::new(data).unwrap(),
    }
}

/// The same bytes, as a frame of their length.
fn resized(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let size = bytes.len() as u32;
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// Whether a frame that was cut is refused by a field that is too short; what Tfsync may leave out is no field.
fn refused_request(cut: Vec<u8>, whole: &Request<'_>) -> bool {
    match Request::parse(Frame::new(&cut).unwrap(), Dialect::Presagio) {
        Err(error) => matches!(error.reason, Reason::Short { .. }) && error.kind == whole.kind(),
        Ok(Request::Fsync { datasync, .. }) => !datasync.0,
        Ok(_) => false,
    }
}

#[test]
fn the_byte_tables_say_what_the_code_does() {
    let documented = |source: &str| -> Vec<String> {
        let rows = source.lines().filter(|line| line.starts_with("//! | "));
        let rows = rows.filter(|line| !line.contains("| type |"));
        rows.map(|line| line[4..].to_owned()).collect()
    };
    let coded = |rows: Vec<(u8, &str, String)>| -> Vec<String> {
        let row = |(number, name, fields): (u8, &str, String)| match &fields[..] {
            "" => format!("| {number} | {name} | |"),
            fields => format!("| {number} | {name} | `{fields}` |"),
        };
        rows.into_iter().map(row).collect()
    };
    assert_eq!(
        documented(include_str!("request.rs")),
        coded(Request::rows())
    );
    assert_eq!(documented(include_str!("reply.rs")), coded(Reply::rows()));
}

#[test]
fn structures_are_as_long_as_the_byte_tables_say() {
    fn length<'a, T: Field<'a> + Default>() -> (String, &'static str) {
        let mut out = Vec::new();
        T::default().put(&mut out);
        (format!("[{}]", out.len()), T::WIRE)
    }
    for (coded, documented) in [
        length::<Qid>(),
        length::<Time>(),
        length::<Attr>(),
        length::<SetAttr>(),
        length::<StatFs>(),
    ] {
        assert_eq!(coded, documented);
    }
}

#[test]
fn headers_made_apart_are_those_of_the_whole_frame() {
    let data = vec![9; 300];
    let frame = encoded_request(&big_write(&data), 77);
    assert_eq!(
        frame[..request::WRITE_HEAD],
        request::write_head(Tag(77), Fid(1), 2, 300)
    );
    let read = Reply::Read {
        data: Data::new(&data).unwrap(),
    };
    let frame = encoded_reply(&read, 77);
    assert_eq!(frame[..reply::READ_HEAD], reply::read_head(Tag(77), 300));
    let listed = Reply::ReadDir {
        entries: Data::new(&data).unwrap(),
    };
    let frame = encoded_reply(&listed, 77);
    assert_eq!(frame[..reply::READ_HEAD], reply::readdir_head(Tag(77), 300));
}

#[test]
fn a_payload_stays_where_it_is() {
    let data = vec![9; 300];
    let write = big_write(&data);
    let once = Request::Once {
        sequence: 5,
        settled: 4,
        request: extension::Wrapped::new(&write).unwrap(),
    };
    for request in [write, once] {
        let mut head = Vec::new();
        let tail = request.encode_head(Tag(1), &mut head);
        assert!(std::ptr::eq(tail, &data[..]));
        assert_eq!([&head[..], tail].concat(), encoded_request(&request, 1));
    }
}

#[test]
fn requests_are_even_and_replies_are_one_more() {
    let requests = Request::rows().into_iter();
    let replies: Vec<u8> = Reply::rows().iter().map(|row| row.0).collect();
    for (number, name, _) in requests {
        assert!(Kind(number).is_request(), "{name}");
        let answered = replies.contains(&Kind(number).reply().0);
        assert_eq!(answered, name != "Tonce", "{name}");
        assert_eq!(Kind(number).to_string(), name);
        assert_eq!(Kind(number).is_extension(), number >= 200);
    }
    assert_eq!(Kind(99).to_string(), "message type 99");
}
