//! Writes `.darshan` logs as the tests want them: any version, byte order and compression, whole or damaged.

use std::io::Write;

/// One operation of a DXT record.
#[derive(Clone, Copy)]
pub struct Segment {
    pub offset: i64,
    pub len: i64,
    pub start: f64,
    pub end: f64,
    pub thread: u64,
}

/// What one process did to one file.
#[derive(Clone)]
pub struct DxtRecord {
    pub file: u64,
    pub rank: i64,
    pub host: &'static str,
    pub writes: Vec<Segment>,
    pub reads: Vec<Segment>,
}

/// A log to be written.
#[derive(Clone)]
pub struct Log {
    /// `3.` and two digits.
    pub version: &'static str,
    pub big_endian: bool,
    /// 0 zlib, 1 bzip2, 2 none.
    pub compression: u8,
    /// Each region is cut into streams of this many bytes before compression.
    pub stream: usize,
    pub names: Vec<(u64, &'static [u8])>,
    pub posix: (u32, Vec<DxtRecord>),
    pub mpiio: (u32, Vec<DxtRecord>),
    pub partial: bool,
}

impl Log {
    fn minor(&self) -> u32 {
        self.version[2..].parse().unwrap()
    }

    fn u64(&self, value: u64) -> [u8; 8] {
        if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    /// Compresses a region.
    pub fn compress(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in bytes.chunks(self.stream) {
            match self.compression {
                0 => {
                    let mut to = flate2::write::ZlibEncoder::new(&mut out, Default::default());
                    to.write_all(piece).unwrap();
                    to.finish().unwrap();
                }
                1 => {
                    let mut to = bzip2::write::BzEncoder::new(&mut out, Default::default());
                    to.write_all(piece).unwrap();
                    to.finish().unwrap();
                }
                _ => out.extend_from_slice(piece),
            }
        }
        out
    }

    fn job(&self) -> Vec<u8> {
        let times: &[u64] = if self.minor() < 41 {
            &[1_700_000_000, 1_700_000_010]
        } else {
            &[1_700_000_000, 5, 1_700_000_010, 6]
        };
        let mut out = Vec::new();
        out.extend(self.u64(1000));
        times.iter().for_each(|&t| out.extend(self.u64(t)));
        out.extend(self.u64(4));
        out.extend(self.u64(77));
        out.resize(out.len() + 1024, 0);
        out.extend_from_slice(b"./simulate --steps 10\n/\text4");
        out.resize(4096, 0);
        out
    }

    fn name_region(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, name) in &self.names {
            out.extend(self.u64(*id));
            out.extend_from_slice(name);
            out.push(0);
        }
        out
    }

    fn module(&self, records: &[DxtRecord], with_thread: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            out.extend(self.u64(record.file));
            out.extend(self.u64(record.rank as u64));
            out.extend(self.u64(0));
            let mut host = [0; 64];
            host[..record.host.len()].copy_from_slice(record.host.as_bytes());
            out.extend_from_slice(&host);
            out.extend(self.u64(record.writes.len() as u64));
            out.extend(self.u64(record.reads.len() as u64));
            for segment in record.writes.iter().chain(&record.reads) {
                out.extend(self.u64(segment.offset as u64));
                out.extend(self.u64(segment.len as u64));
                out.extend(self.u64(segment.start.to_bits()));
                out.extend(self.u64(segment.end.to_bits()));
                if with_thread {
                    out.extend(self.u64(segment.thread));
                }
            }
        }
        out
    }

    /// The bytes of the log.
    pub fn bytes(&self) -> Vec<u8> {
        self.with_posix(&self.compress(&self.module(&self.posix.1, self.posix.0 == 2)))
    }

    /// The bytes of the log with this region in the place of that of POSIX.
    pub fn with_posix(&self, posix: &[u8]) -> Vec<u8> {
        let new = self.minor() >= 41;
        let modules = if new { 64 } else { 16 };
        let dxt = match self.minor() {
            0..20 => 8,
            20..41 => 9,
            _ => 10,
        };
        let job = self.compress(&self.job());
        let names = self.compress(&self.name_region());
        let mpiio = self.compress(&self.module(&self.mpiio.1, self.mpiio.0 == 3));
        let header_len = if new { 32 } else { 24 } + 16 + modules * 20;

        let mut out = vec![0; 8];
        out[..self.version.len()].copy_from_slice(self.version.as_bytes());
        out.extend(self.u64(6_567_223));
        out.push(self.compression);
        let partial = if self.partial { 3 << dxt } else { 0 };
        if new {
            out.resize(24, 0);
            out.extend(self.u64(partial));
        } else {
            out.resize(20, 0);
            out.extend(self.u32(partial as u32));
        }
        let mut at = header_len + job.len();
        let mut extent = |out: &mut Vec<u8>, len: usize| {
            out.extend(self.u64(if len > 0 { at as u64 } else { 0 }));
            out.extend(self.u64(len as u64));
            at += len;
        };
        extent(&mut out, names.len());
        for id in 0..modules {
            extent(
                &mut out,
                match id {
                    _ if id == dxt => posix.len(),
                    _ if id == dxt + 1 => mpiio.len(),
                    _ => 0,
                },
            );
        }
        for id in 0..modules {
            out.extend(self.u32(match id {
                _ if id == dxt => self.posix.0,
                _ if id == dxt + 1 => self.mpiio.0,
                _ => 0,
            }));
        }
        assert_eq!(out.len(), header_len);
        for region in [&job[..], &names, posix, &mpiio] {
            out.extend_from_slice(region);
        }
        out
    }
}
