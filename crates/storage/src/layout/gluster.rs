//! GlusterFS: the attribute `trusted.glusterfs.pathinfo`.
//!
//! ```text
//! (<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-1> <POSIX(/brick/2):host2:/brick/2/dir/file> <POSIX(…):host3:…>))
//! (<DISTRIBUTE:v-dht> (<STRIPE:v-stripe-0:[131072]> <POSIX(…):…> <POSIX(…):…>))
//! ```
//!
//! Each translator of the volume puts its name before what those below it say; a brick says `POSIX(` its directory `):`
//! its host `:` the path of the file there. A server is a brick, called `host:directory`.
//!
//! *Distribute*: the file is on the first that it names. *Stripe* (volumes made before version 6): those below take
//! turns. All others (replicate, disperse): all below have a share in every byte, and are one server, called like the first of
//! them in alphabetical order, for they come in the order in which they happened to answer.
//!
//! Names of files can have any character in them, ` `, `>` and `)` too. But all bricks have the file under the same path, so
//! its end is where the whole value makes sense.
//!
//! Not seen here: *shards* (`features.shard`). The value names the first shard's bricks only, and shards are hidden from
//! clients, so the whole file counts as being there.

use super::{Layout, LayoutError, STRIPE_MIN, Servers};

/// The kernel allows no longer value.
const LONGEST: usize = 64 << 10;
/// So deep are no translators nested.
const DEEPEST: u32 = 16;
/// So many ends of a file's name are tried.
const ENDS_MAX: usize = 64;

const BRICK: &[u8] = b"<POSIX(";

/// The value of the attribute.
pub fn parse(value: &[u8]) -> Result<Layout<String>, LayoutError> {
    let end = value.iter().rposition(|byte| !matches!(byte, 0 | b' '));
    let text = &value[..end.map_or(0, |end| end + 1)];
    if text.len() > LONGEST {
        return Err(LayoutError::new(
            LONGEST,
            "is longer than an attribute can be",
        ));
    }
    let mut first = Reader::new(text, b"");
    first.at =
        find(text, BRICK).ok_or_else(|| LayoutError::new(0, "names no brick (<POSIX(…)…>)"))?;
    let begin = first.begin_of_path()?;
    let ends = (begin..text.len()).filter(|end| ends_name(&text[*end..]));
    let mut error = LayoutError::new(begin, "the path of the file has no end (>)");
    for end in ends.take(ENDS_MAX) {
        match Reader::new(text, &text[begin..end]).all() {
            Ok(found) => return Ok(found.layout()),
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// Whether a name may end here.
fn ends_name(rest: &[u8]) -> bool {
    matches!(rest, [b'>'] | [b'>', b' ' | b')', ..])
}

/// What a translator says.
enum Found {
    Server(String),
    Stripes { stripe: u64, servers: Vec<String> },
}

impl Found {
    fn layout(self) -> Layout<String> {
        let (stripe, servers) = match self {
            Found::Server(server) => (u64::MAX, vec![server]),
            Found::Stripes { stripe, servers } => (stripe, servers),
        };
        Layout::whole(Servers::Turns { stripe, servers })
    }

    fn server(&self) -> &str {
        match self {
            Found::Server(server) => server,
            Found::Stripes { servers, .. } => &servers[0],
        }
    }
}

/// Reads a value in which the file lies under `path` within each brick.
struct Reader<'a> {
    text: &'a [u8],
    path: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8], path: &'a [u8]) -> Reader<'a> {
        let at = 0;
        Reader { text, path, at }
    }

    fn all(mut self) -> Result<Found, LayoutError> {
        let found = self.node(0)?;
        if self.at < self.text.len() {
            return Err(self.wrong("the end"));
        }
        Ok(found)
    }

    /// A brick, or a translator with what is below it.
    fn node(&mut self, depth: u32) -> Result<Found, LayoutError> {
        if self.rest().starts_with(BRICK) {
            return self.brick().map(Found::Server);
        }
        if depth == DEEPEST {
            return Err(self.wrong("anything: it is nested too deeply"));
        }
        self.expect(b"(<")?;
        let translator = self.until(b">")?;
        let mut below = Vec::new();
        while self.rest().starts_with(b" ") {
            self.at += 1;
            below.push(self.node(depth + 1)?);
        }
        self.expect(b")")?;
        self.join(translator, below)
    }

    fn join(&self, translator: &[u8], below: Vec<Found>) -> Result<Found, LayoutError> {
        let stripe = match translator.split(|byte| *byte == b':').next() {
            Some(b"STRIPE") => Some(self.stripe(translator)?),
            _ => None,
        };
        let mut below = below.into_iter();
        let found = match stripe {
            Some(stripe) => {
                let servers: Vec<_> = below.map(|found| found.server().to_owned()).collect();
                (!servers.is_empty()).then_some(Found::Stripes { stripe, servers })
            }
            None if translator.starts_with(b"DISTRIBUTE:") => below.next(),
            None => below.min_by(|a, b| a.server().cmp(b.server())),
        };
        found.ok_or_else(|| self.wrong("a translator with bricks below it"))
    }

    /// The size in `STRIPE:volume-stripe-0:[131072]`.
    fn stripe(&self, translator: &[u8]) -> Result<u64, LayoutError> {
        let size = translator.rsplit(|byte| *byte == b'[').next();
        let size = size.and_then(|size| size.strip_suffix(b"]"));
        let size = size.and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
        let size = size.filter(|size| *size >= STRIPE_MIN);
        size.ok_or_else(|| self.wrong("STRIPE:name:[size] with a size of 4096 or more"))
    }

    fn brick(&mut self) -> Result<String, LayoutError> {
        self.expect(BRICK)?;
        let directory = self.until(b"):")?;
        let path = [b":", directory, self.path, b">"].concat();
        let host = self.until(&path)?;
        self.named(host, directory)
    }

    /// Where the path of the file within the brick begins that is next.
    fn begin_of_path(&mut self) -> Result<usize, LayoutError> {
        self.expect(BRICK)?;
        let directory = self.until(b"):")?;
        let host = self.until(&[b":", directory].concat())?;
        self.named(host, directory).map(|_| self.at)
    }

    fn named(&self, host: &[u8], directory: &[u8]) -> Result<String, LayoutError> {
        let odd = |byte: &u8| matches!(byte, b'<' | b'>' | b'(' | b')' | b' ');
        if host.is_empty() || directory.is_empty() || host.iter().any(odd) {
            return Err(self.wrong("a brick: <POSIX(directory):host:path>"));
        }
        let (host, directory) = (
            String::from_utf8_lossy(host),
            String::from_utf8_lossy(directory),
        );
        Ok(format!("{host}:{directory}"))
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn expect(&mut self, what: &[u8]) -> Result<(), LayoutError> {
        if !self.rest().starts_with(what) {
            return Err(self.wrong(&what.escape_ascii().to_string()));
        }
        self.at += what.len();
        Ok(())
    }

    /// What is before `mark`, which is passed too.
    fn until(&mut self, mark: &[u8]) -> Result<&'a [u8], LayoutError> {
        let rest = self.rest();
        let Some(len) = find(rest, mark) else {
            let mark: String = mark.escape_ascii().to_string().chars().take(100).collect();
            return Err(self.wrong(&format!("something up to {mark}")));
        };
        self.at += len + mark.len();
        Ok(&rest[..len])
    }

    fn wrong(&self, right: &str) -> LayoutError {
        let found: Vec<u8> = self.rest().iter().take(40).copied().collect();
        let found = found.escape_ascii();
        LayoutError::new(
            self.at,
            format!("{found:?} is not {right}", found = found.to_string()),
        )
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(stripe: u64, servers: &[&str]) -> Result<Layout<String>, LayoutError> {
        let servers = servers.iter().map(|server| (*server).to_owned()).collect();
        Ok(Layout::whole(Servers::Turns { stripe, servers }))
    }

    #[test]
    fn a_distributed_file_is_on_its_brick() {
        let value = b"(<DISTRIBUTE:gv0-dht> <POSIX(/data/b4):node1:/data/b4/dir//f1>) \0";
        assert_eq!(parse(value), on(u64::MAX, &["node1:/data/b4"]));
    }

    #[test]
    fn replicas_are_one_server_in_whatever_order_they_answered() {
        let one = b"(<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-0> <POSIX(/b/2):h2:/b/2/f> <POSIX(/b/1):h1:/b/1/f>))";
        let other = b"(<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-0> <POSIX(/b/1):h1:/b/1/f> <POSIX(/b/2):h2:/b/2/f>))\0";
        assert_eq!(parse(one), on(u64::MAX, &["h1:/b/1"]));
        assert_eq!(parse(other), parse(one));
    }

    #[test]
    fn stripes_take_turns_over_bricks_or_replicas() {
        let value = b"(<DISTRIBUTE:v-dht> (<STRIPE:v-stripe-0:[131072]> (<REPLICATE:v-r-0> <POSIX(/b/2):h:/b/2/f> \
            <POSIX(/b/1):h:/b/1/f>) (<REPLICATE:v-r-1> <POSIX(/b/3):h:/b/3/f> <POSIX(/b/4):h:/b/4/f>)))";
        assert_eq!(parse(value), on(131_072, &["h:/b/1", "h:/b/3"]));
    }

    #[test]
    fn a_brick_or_a_replica_alone_will_do() {
        let value = b"(<REPLICATE:r-replicate-0> <POSIX(/b1):h1:/b1/123> <POSIX(/b1):h2:/b1/123>)";
        assert_eq!(parse(value), on(u64::MAX, &["h1:/b1"]));
        assert_eq!(parse(b"<POSIX(/b1):::1:/b1/f>"), on(u64::MAX, &["::1:/b1"]));
    }

    #[test]
    fn no_name_of_a_file_makes_up_a_brick() {
        for name in [
            "a b>) <POSIX(/q):h:/q/z>)",
            "> ",
            ">",
            "):h:/b/1",
            ")",
            "> <POSIX(/b/1):h1:/b/1/f",
        ] {
            let value = format!(
                "(<DISTRIBUTE:v> (<REPLICATE:r> <POSIX(/b/1):h1:/b/1/{name}> <POSIX(/b/2):h2:/b/2/{name}>))"
            );
            assert_eq!(
                parse(value.as_bytes()),
                on(u64::MAX, &["h1:/b/1"]),
                "{name}"
            );
        }
    }

    #[test]
    fn directories_and_other_things_are_refused_with_their_place() {
        let directory = b"((<DISTRIBUTE:v-dht> <POSIX(/b3):vm:/b3/d> <POSIX(/b2):vm:/b2/d>) (v-dht-layout (v-client-0 0 1)))";
        assert_eq!(parse(directory).expect_err("a directory").at, 0);
        for value in [
            "",
            "()",
            "(<DISTRIBUTE:v>)",
            "<POSIX(/b1):h:/b1/f",
            "(<STRIPE:v:[7]> <POSIX(/b):h:/b/f>)",
        ] {
            assert!(parse(value.as_bytes()).is_err(), "{value}");
        }
    }
}
