//! The client against servers that reorder, dribble, stall, lie and die.

#[path = "common/peer.rs"]
mod peer;

use peer::{Peer, answer, connect, content, encoded, pair, read};
use presagio_ninep::client::{Ask, Client, Error, Lost, Options, ReadInto};
use presagio_ninep::extension::Wrapped;
use presagio_ninep::{
    Data, Dialect, Errno, Fid, Kind, MSIZE_MAX, Name, Qid, Reply, Request, Tag, Text,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use std::sync::mpsc::channel;
use std::time::Duration;

const CLUNK: Request<'static> = Request::Clunk { fid: Fid(1) };

fn short(timeout_ms: u64) -> Options {
    Options {
        timeout: Duration::from_millis(timeout_ms),
        ..Options::default()
    }
}

fn hasty(connect_timeout_ms: u64) -> Options {
    Options {
        connect_timeout: Duration::from_millis(connect_timeout_ms),
        ..Options::default()
    }
}

/// Answers everything, one after the other.
fn serve_all(mut peer: Peer) {
    while let Some(taken) = peer.take() {
        peer.serve(&taken);
    }
}

fn why(error: &Error) -> &Lost {
    match error {
        Error::Lost { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn replies_in_any_order_reach_their_requests() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        for round in 0..20 {
            let mut taken = peer.take_many(32);
            taken.reverse();
            taken.rotate_left(round);
            taken.iter().for_each(|taken| peer.serve(taken));
        }
    });
    for round in 0..10 {
        let size = 100 + 3000 * round as usize;
        let asks = (0..32).map(|i| Ask::read(Fid(1), i * 977, vec![0; size]));
        let tickets = client.submit_all(asks).unwrap();
        for (ticket, i) in tickets.into_iter().zip(0..) {
            assert!(ticket.wait().unwrap().into_data() == content(i * 977, size as u32));
        }
        let mut memory = vec![0; 32 * size];
        let places = memory.chunks_mut(size).zip((0..).step_by(1001));
        let mut reads: Vec<ReadInto> = places
            .map(|(to, offset)| ReadInto {
                fid: Fid(1),
                offset,
                to,
            })
            .collect();
        for got in client.read_many(&mut reads).unwrap() {
            assert_eq!(got.unwrap(), size);
        }
        for read in reads {
            assert!(*read.to == content(read.offset, size as u32));
        }
    }
    server.join().unwrap();
}

#[test]
fn memory_that_cannot_be_written_fails_its_read_and_nothing_else() {
    let refuses = Options {
        fill: |_, _| false,
        ..Options::default()
    };
    let (client, server) = pair(&refuses, serve_all);
    let mut memory = vec![0; 200_000];
    for size in [1, 5000, 200_000] {
        let read = client.read(Fid(1), 7, &mut memory[..size]);
        assert!(matches!(read, Err(Error::Fault)), "{read:?}");
        let answer = client.call(Ask::read(Fid(1), 7, vec![0; size])).unwrap();
        assert!(answer.into_data() == content(7, size as u32));
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn many_threads_share_a_connection_that_reorders() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        for round in 0..200 {
            let mut taken = peer.take_many(8);
            taken.rotate_left(round % 8);
            taken.iter().for_each(|taken| peer.serve(taken));
        }
    });
    let client = &client;
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for i in 0..200 {
                    let (offset, size) =
                        ((thread << 20) | (i * 13), 1 + (i as usize * 977) % 40_000);
                    let mut to = vec![0; size];
                    assert_eq!(client.read(Fid(1), offset, &mut to).unwrap(), size);
                    assert!(to == content(offset, size as u32));
                }
            });
        }
    });
    server.join().unwrap();
    assert!(client.outstanding().is_empty());
}

#[test]
fn replies_are_whole_wherever_the_stream_is_cut() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        for cut in 0..120 {
            let taken = peer.take_many(3);
            let bytes: Vec<u8> = taken.iter().flat_map(answer).collect();
            let at = cut.min(bytes.len());
            peer.send(&bytes[..at]);
            // Long enough that the client mostly sees the first part alone; right either way.
            std::thread::sleep(Duration::from_micros(300));
            peer.send(&bytes[at..]);
        }
        // And every byte alone.
        let taken = peer.take_many(2);
        for byte in taken.iter().flat_map(answer) {
            peer.send(&[byte]);
        }
    });
    for cut in 0..120 {
        let sizes = [cut % 50, 40 * cut, 1];
        let asks = sizes.map(|size| Ask::read(Fid(1), 5, vec![0; size]));
        for (ticket, size) in client.submit_all(asks).unwrap().into_iter().zip(sizes) {
            assert!(ticket.wait().unwrap().into_data() == content(5, size as u32));
        }
    }
    let tickets = client
        .submit_all([Ask::new(read(9, 300)), Ask::new(CLUNK)])
        .unwrap();
    for (ticket, expected) in tickets.into_iter().zip([300, 0]) {
        assert_eq!(ticket.wait().unwrap().into_data().len(), expected);
    }
    server.join().unwrap();
}

#[test]
fn a_request_without_an_answer_times_out_and_its_tag_waits_for_the_flush() {
    let (client, server) = pair(&short(100), |mut peer| {
        let stalled = peer.take().unwrap();
        let flush = peer.take().unwrap();
        assert_eq!(
            flush.request(),
            Request::Flush {
                old_tag: stalled.tag
            }
        );
        // Neither tag is free, whatever else is asked.
        for _ in 0..5 {
            let other = peer.take().unwrap();
            assert!(other.tag != stalled.tag && other.tag != flush.tag);
            peer.serve(&other);
        }
        // Too late to be wanted, but not a lie.
        peer.serve(&stalled);
        peer.serve(&flush);
        let mut tags = Vec::new();
        for taken in peer.take_many(3) {
            tags.push(taken.tag);
            peer.serve(&taken);
        }
        assert!(tags.contains(&stalled.tag) && tags.contains(&flush.tag));
    });
    let mut to = vec![0; 64];
    let error = client.read(Fid(1), 0, &mut to).unwrap_err();
    assert!(matches!(error, Error::TimedOut { sent: true }) && error.may_have_happened());
    for _ in 0..5 {
        client.call(CLUNK).unwrap();
    }
    // The late reply and the Rflush are on their way, ahead of these.
    while !client.outstanding().is_empty() {
        client.poll();
    }
    let asks = [Ask::new(CLUNK), Ask::new(CLUNK), Ask::new(CLUNK)];
    for ticket in client.submit_all(asks).unwrap() {
        ticket.wait().unwrap();
    }
    server.join().unwrap();
}

#[test]
fn a_server_that_answers_nobody_is_an_error_for_everybody() {
    let (client, server) = pair(
        &Options::default(),
        |mut peer| while peer.take().is_some() {},
    );
    let client = &client;
    std::thread::scope(|scope| {
        // Those who come later may have less time than the one who reads.
        let waiting = [300, 200, 100, 50, 150, 250].map(|ms| {
            let timeout = Some(Duration::from_millis(ms));
            scope.spawn(move || {
                let ask = Ask::new(CLUNK);
                client.call(Ask { timeout, ..ask }).unwrap_err()
            })
        });
        for thread in waiting {
            let error = thread.join().unwrap();
            assert!(matches!(error, Error::TimedOut { sent: true }), "{error}");
        }
    });
    client.close();
    server.join().unwrap();
}

#[test]
fn who_waits_long_does_not_hold_up_the_others() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        let long = peer.take().unwrap();
        for _ in 0..400 {
            let taken = peer.take().unwrap();
            peer.serve(&taken);
        }
        peer.serve(&long);
    });
    let client = &client;
    std::thread::scope(|scope| {
        let long = scope.spawn(move || client.call(CLUNK).unwrap());
        while client.outstanding().is_empty() {
            std::thread::yield_now();
        }
        for thread in 0..4 {
            scope.spawn(move || {
                for i in 0..100 {
                    let mut to = vec![0; 20_000];
                    assert_eq!(client.read(Fid(1), thread + i, &mut to).unwrap(), 20_000);
                    assert!(to == content(thread + i, 20_000));
                }
            });
        }
        long.join().unwrap();
    });
    server.join().unwrap();
}

#[test]
fn a_reply_that_stops_half_way_does_not_spoil_the_next() {
    let (go, wait) = channel();
    let (client, server) = pair(&short(2_000), move |mut peer| {
        let taken = peer.take().unwrap();
        let bytes = answer(&taken);
        peer.send(&bytes[..50_000]);
        wait.recv().unwrap();
        let flush = peer.take().unwrap();
        peer.send(&bytes[50_000..]);
        peer.serve(&flush);
        serve_all(peer);
    });
    let mut to = vec![0; 100_000];
    let error = client.read(Fid(1), 0, &mut to).unwrap_err();
    assert!(matches!(error, Error::TimedOut { sent: true }));
    go.send(()).unwrap();
    for offset in 0..10 {
        assert_eq!(client.read(Fid(1), offset, &mut to).unwrap(), to.len());
        assert!(to == content(offset, 100_000));
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_server_that_dies_within_a_frame_is_an_error_for_all() {
    for cut in [0, 3, 7, 10, 11, 5_000, 30_000] {
        let (client, server) = pair(&Options::default(), move |mut peer| {
            let taken = peer.take_many(8);
            let bytes = answer(&taken[0]);
            peer.send(&bytes[..cut]);
        });
        let client = &client;
        std::thread::scope(|scope| {
            let reading = (0..8).map(|_| {
                scope.spawn(move || {
                    let mut to = vec![0; 40_000];
                    client.read(Fid(1), 0, &mut to).unwrap_err()
                })
            });
            for thread in reading.collect::<Vec<_>>() {
                let error = thread.join().unwrap();
                assert!(matches!(error, Error::Lost { sent: true, .. }), "{error}");
            }
        });
        assert_eq!(
            client.outstanding().len(),
            8,
            "what was not answered can be told"
        );
        let error = client.call(CLUNK).unwrap_err();
        assert!(matches!(error, Error::Lost { sent: false, .. }), "{error}");
        server.join().unwrap();
    }
}

/// What the client says of a connection whose server answers one read of 10 bytes with these bytes.
fn after(reply: impl FnOnce(Tag) -> Vec<u8> + Send + 'static) -> Error {
    let (client, server) = pair(&Options::default(), |mut peer| {
        let taken = peer.take().unwrap();
        peer.send(&reply(taken.tag));
        assert!(peer.take().is_none(), "the client hangs up");
    });
    let error = client.read(Fid(1), 0, &mut [0; 10]).unwrap_err();
    let again = client.read(Fid(1), 0, &mut [0; 10]).unwrap_err();
    assert!(!again.may_have_happened() && client.lost().is_some());
    drop(client);
    server.join().unwrap();
    error
}

#[test]
fn a_server_that_breaks_the_protocol_is_left() {
    let data = |count: usize| Reply::Read {
        data: Data::new(&[7; 64][..count]).unwrap(),
    };
    let error = after(move |tag| encoded(Tag(tag.0 + 1), &data(10)));
    assert!(
        matches!(
            why(&error),
            Lost::NotAsked {
                kind: Kind(117),
                ..
            }
        ),
        "{error}"
    );
    let error = after(move |tag| encoded(tag, &Reply::Clunk));
    assert!(
        matches!(
            why(&error),
            Lost::OtherKind {
                wanted: Kind(117),
                ..
            }
        ),
        "{error}"
    );
    let error = after(move |tag| encoded(tag, &data(11)));
    assert!(
        matches!(
            why(&error),
            Lost::TooMuch {
                got: 11,
                limit: 10,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_server_that_sends_no_frames_is_left() {
    let malformed = |bytes: Vec<u8>| {
        let error = after(move |_| bytes);
        assert!(matches!(why(&error), Lost::Malformed(_)), "{error}");
    };
    malformed(vec![0; 7]);
    malformed(vec![255; 7]);
    malformed(vec![7, 0, 0, 0, 117, 0, 0]);
    malformed(vec![10, 0, 0, 0, 117, 0, 0, 1, 1, 1]);
    malformed(vec![12, 0, 0, 0, 117, 0, 0, 5, 0, 0, 0, 1]);
    malformed(vec![12, 0, 0, 0, 117, 0, 0, 0, 0, 0, 0, 1]);
    malformed(vec![8, 0, 0, 0, 121, 0, 0, 1]);
    malformed(vec![7, 0, 0, 0, 99, 0, 0]);
    malformed(vec![11, 0, 0, 0, 120, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn who_cannot_send_reads_meanwhile() {
    // A server of one thread, which does not take the next request before its last reply is gone.
    let (client, server) = pair(&Options::default(), serve_all);
    let block = vec![3; 65_536];
    let reads = (0..100).map(|i| Ask::read(Fid(1), i, vec![0; 65_536]));
    let reads = client.submit_all(reads).unwrap();
    let data = Data::new(&block).unwrap();
    let writes = (0..100).map(|offset| {
        Ask::new(Request::Write {
            fid: Fid(1),
            offset,
            data,
        })
    });
    let writes = client.submit_all(writes).unwrap();
    for (ticket, i) in reads.into_iter().zip(0..) {
        assert!(ticket.wait().unwrap().into_data() == content(i, 65_536));
    }
    for ticket in writes {
        assert_eq!(
            ticket.wait().unwrap().reply(),
            Reply::Write { count: 65_536 }
        );
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn who_asks_for_nothing_does_not_wait_for_a_turn() {
    let (go, wait) = channel::<()>();
    let (client, server) = pair(&Options::default(), move |peer| {
        wait.recv().unwrap();
        serve_all(peer);
    });
    let block = vec![9; 500_000];
    let sender = client.clone();
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let data = Data::new(&block).unwrap();
            let write = Request::Write {
                fid: Fid(1),
                offset: 0,
                data,
            };
            sender
                .submit_all((0..20).map(|_| Ask::new(write)))
                .unwrap()
                .len()
        });
        // Soon the other one has the turn, and keeps it until the server takes what it sends.
        for _ in 0..50 {
            assert!(client.submit_all([]).unwrap().is_empty());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!sending.is_finished());
        go.send(()).unwrap();
        assert_eq!(sending.join().unwrap(), 20);
    });
    drop(client);
    server.join().unwrap();
}

/// What TCP has not delivered when a connection is given up must not arrive later: it may have been done in another way.
#[test]
fn a_connection_that_is_given_up_delivers_nothing_more() {
    use std::io::Read;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (go, wait) = channel::<()>();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let same = std::os::fd::OwnedFd::from(stream.try_clone().unwrap());
        let mut peer = Peer::new(same.into());
        peer.agree();
        wait.recv().unwrap();
        let mut rest = Vec::new();
        let ended = (&stream).read_to_end(&mut rest);
        (ended.is_err(), rest.len())
    });
    let client = Client::tcp(address, &short(300)).unwrap();
    let block = vec![9; 1_000_000];
    let data = Data::new(&block).unwrap();
    let write = Request::Write {
        fid: Fid(1),
        offset: 0,
        data,
    };
    // More than both kernels keep for one that does not read.
    let sent = client.submit_all((0..20).map(|_| Ask::new(write)));
    drop(sent);
    client.close();
    go.send(()).unwrap();
    let (is_reset, arrived) = server.join().unwrap();
    assert!(is_reset, "the server is told that it is over");
    assert!(arrived < 20_000_000, "{arrived}");
}

#[test]
fn a_server_that_takes_nothing_is_an_error_in_time_and_no_frame_is_torn() {
    let (go, wait) = channel();
    let (client, server) = pair(&short(100), move |mut peer| {
        wait.recv().unwrap();
        let (mut written, mut flushed) = (0, 0);
        while let Some(taken) = peer.take() {
            match taken.request() {
                Request::Write { data, .. } => {
                    assert!(data.bytes().iter().all(|byte| *byte == 9));
                    written += 1;
                }
                Request::Flush { .. } => flushed += 1,
                _ => {}
            }
            peer.serve(&taken);
        }
        (written, flushed)
    });
    let block = vec![9; 500_000];
    let mut sent = 0;
    for _ in 0..6 {
        match client.write(Fid(1), 0, &block).unwrap_err() {
            Error::TimedOut { sent: true } => sent += 1,
            Error::TimedOut { sent: false } => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(
        sent, 1,
        "one filled the socket, and those behind it did not begin"
    );
    go.send(()).unwrap();
    client
        .call(Ask {
            timeout: Some(Duration::from_secs(20)),
            ..Ask::new(CLUNK)
        })
        .unwrap();
    drop(client);
    assert_eq!(server.join().unwrap(), (1, 1));
}

#[test]
fn no_more_requests_are_under_way_than_allowed() {
    let options = Options {
        in_flight_max: 4,
        ..short(200)
    };
    let (go, wait) = channel();
    let (client, server) = pair(&options, move |mut peer| {
        let held = peer.take_many(4);
        wait.recv().unwrap();
        held.iter().for_each(|taken| peer.serve(taken));
        serve_all(peer);
    });
    let long = || Ask {
        timeout: Some(Duration::from_secs(20)),
        ..Ask::new(CLUNK)
    };
    let tickets: Vec<_> = (0..4).map(|_| client.submit(long()).unwrap()).collect();
    assert!(matches!(client.submit(CLUNK), Err(Error::Full(4))));
    assert!(
        matches!(client.call(CLUNK), Err(Error::Full(4))),
        "not even after a while"
    );
    go.send(()).unwrap();
    // Dropped tickets give their places back when the replies come.
    drop(tickets);
    for _ in 0..20 {
        client.call(CLUNK).unwrap();
    }
    for _ in 0..20 {
        drop(client.submit(CLUNK));
        client.call(CLUNK).unwrap();
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_cancelled_request_is_done_or_not_and_one_knows_which() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        // Answered first.
        let (taken, flush) = (peer.take().unwrap(), peer.take().unwrap());
        peer.serve(&taken);
        peer.serve(&flush);
        // Refused first.
        let (taken, flush) = (peer.take().unwrap(), peer.take().unwrap());
        peer.reply(
            taken.tag,
            &Reply::Error {
                errno: Errno::NOSPC,
            },
        );
        peer.serve(&flush);
        // Forgotten.
        let (taken, flush) = (peer.take().unwrap(), peer.take().unwrap());
        assert_eq!(flush.request(), Request::Flush { old_tag: taken.tag });
        peer.serve(&flush);
        serve_all(peer);
    });
    let answered = client.submit(read(3, 100)).unwrap().cancel().unwrap();
    assert_eq!(answered.unwrap().into_data(), content(3, 100));
    let refused = client.submit(CLUNK).unwrap().cancel();
    assert!(matches!(refused, Err(Error::Server(Errno::NOSPC))));
    assert!(
        client
            .submit(read(3, 100))
            .unwrap()
            .cancel()
            .unwrap()
            .is_none()
    );
    for _ in 0..10 {
        client.call(CLUNK).unwrap();
    }
    assert!(client.outstanding().is_empty());
    drop(client);
    server.join().unwrap();
}

#[test]
fn an_event_loop_can_look_without_waiting() {
    let (go, wait) = channel();
    let (client, server) = pair(&Options::default(), move |mut peer| {
        let taken = peer.take_many(2);
        wait.recv().unwrap();
        taken.iter().for_each(|taken| peer.serve(taken));
    });
    let tickets = client
        .submit_all([Ask::new(read(1, 5000)), Ask::new(CLUNK)])
        .unwrap();
    client.poll();
    assert!(!tickets[0].is_done() && !tickets[1].is_done());
    assert_eq!(client.outstanding().len(), 2);
    go.send(()).unwrap();
    assert!(client.as_fd().is_some());
    while !tickets.iter().all(|ticket| ticket.is_done()) {
        client.poll();
    }
    for (ticket, size) in tickets.into_iter().zip([5000, 0]) {
        assert_eq!(ticket.wait().unwrap().into_data().len(), size);
    }
    server.join().unwrap();
}

#[test]
fn closing_wakes_who_waits() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        peer.take_many(2);
        assert!(peer.take().is_none());
    });
    let (one, two) = (client.clone(), client.clone());
    let waiting =
        [one, two].map(|client| std::thread::spawn(move || client.call(CLUNK).unwrap_err()));
    while client.outstanding().len() < 2 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    client.close();
    for thread in waiting {
        assert!(matches!(why(&thread.join().unwrap()), Lost::ClosedHere));
    }
    server.join().unwrap();
}

#[test]
fn what_does_not_fit_into_a_frame_is_not_sent() {
    let options = Options {
        msize: 8192,
        ..Options::default()
    };
    let (client, server) = pair(&options, serve_all);
    assert_eq!((client.agreed().msize, client.io_max()), (8192, 8168));
    let block = vec![1; 10_000];
    let data = Data::new(&block).unwrap();
    let error = client
        .call(Request::Write {
            fid: Fid(1),
            offset: 0,
            data,
        })
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                size: 10_023,
                msize: 8192
            }
        ),
        "{error}"
    );
    let error = client.call(read(0, 8169)).unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { size: 8193, .. }),
        "{error}"
    );
    assert_eq!(client.write(Fid(1), 0, &block).unwrap(), 8168);
    let mut to = vec![0; 10_000];
    assert_eq!(client.read(Fid(1), 0, &mut to).unwrap(), 8168);
    drop(client);
    server.join().unwrap();
}

#[test]
fn extensions_are_spoken_where_both_know_them() {
    let (client, server) = pair(&Options::default(), |mut peer| {
        let hello = peer.take().unwrap();
        assert!(matches!(hello.request(), Request::Hello { rank: 3, .. }));
        let refuse = Reply::Error {
            errno: Errno::AGAIN,
        };
        peer.reply(hello.tag, &refuse);
        let once = peer.take().unwrap();
        let Request::Once {
            sequence: 9,
            settled: 8,
            request,
        } = once.request()
        else {
            panic!("{:?}", once.request());
        };
        assert!(matches!(
            request.request(),
            Request::Mkdir { mode: 0o700, .. }
        ));
        peer.reply(
            once.tag,
            &Reply::Mkdir {
                qid: Qid::default(),
            },
        );
    });
    assert_eq!(client.agreed().dialect, Dialect::Presagio);
    let hello = Request::Hello {
        instance: [1; 16],
        resume: [0; 16],
        client: Text::new("node17").unwrap(),
        job: Text::new("4711").unwrap(),
        rank: 3,
        program: Text::new("lmp").unwrap(),
    };
    assert!(matches!(
        client.call(hello),
        Err(Error::Server(Errno::AGAIN))
    ));
    let (dir, name) = (Fid(1), Name::new("new").unwrap());
    let mkdir = Request::Mkdir {
        dir,
        name,
        mode: 0o700,
        gid: 0,
    };
    let request = Wrapped::new(&mkdir).unwrap();
    let once = Request::Once {
        sequence: 9,
        settled: 8,
        request,
    };
    let answer = client.call(once).unwrap();
    assert!(matches!(answer.reply(), Reply::Mkdir { .. }));
    server.join().unwrap();
}

/// What a client makes of a server that answers its offers like this.
fn agreed(answers: Vec<(&'static [u8], u32)>) -> Result<(Dialect, u32), Lost> {
    let (client, server) = connect(&short(2000), move |mut peer| {
        for (version, msize) in answers {
            let taken = peer.take().unwrap();
            let reply = match version {
                b"" => Reply::Error { errno: Errno::IO },
                version => Reply::Version {
                    msize,
                    version: Text::new(version).unwrap(),
                },
            };
            peer.reply(taken.tag, &reply);
        }
        peer.take().map(|taken| format!("{:?}", taken.request()))
    });
    let agreed = client.map(|client: Client| (client.agreed().dialect, client.agreed().msize));
    assert_eq!(server.join().unwrap(), None);
    agreed
}

#[test]
fn a_common_version_is_found_or_the_client_leaves() {
    let (ours, plain) = (&b"9P2000.L.presagio1"[..], &b"9P2000.L"[..]);
    let half = MSIZE_MAX / 8;
    assert_eq!(
        agreed(vec![(ours, half)]).unwrap(),
        (Dialect::Presagio, half)
    );
    assert_eq!(
        agreed(vec![(plain, 65_536)]).unwrap(),
        (Dialect::Linux, 65_536)
    );
    // diod's way, and QEMU's.
    assert_eq!(
        agreed(vec![(b"", 0), (plain, 8192)]).unwrap(),
        (Dialect::Linux, 8192)
    );
    assert_eq!(
        agreed(vec![(b"unknown", 0), (plain, 8192)]).unwrap(),
        (Dialect::Linux, 8192)
    );
    // More than was offered counts as what was offered.
    assert_eq!(
        agreed(vec![(plain, u32::MAX)]).unwrap(),
        (Dialect::Linux, Options::default().msize)
    );
    for answers in [
        vec![(b"" as &[u8], 0), (b"", 0)],
        vec![(b"9P2000", 8192), (b"9P2000", 8192)],
        vec![(plain, 100)],
        vec![(b"unknown", 0), (ours, 8192)],
    ] {
        let refused = agreed(answers).unwrap_err();
        assert!(matches!(refused, Lost::NoCommonVersion(_)), "{refused}");
    }
}

#[test]
fn a_server_whose_queue_is_full_is_left_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _queued = std::os::unix::net::UnixStream::connect(&path).unwrap();
    match Client::unix(&path, &hasty(50)) {
        Err(Lost::Io(error)) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_server_that_says_nothing_at_first_is_left_in_time() {
    let (client, server) = connect(&hasty(50), |mut peer| {
        peer.take();
        assert!(peer.take().is_none());
    });
    assert!(matches!(client, Err(Lost::Silent)));
    server.join().unwrap();
}
