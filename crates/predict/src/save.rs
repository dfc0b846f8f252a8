//! Models as bytes, so that a second run of a program is predicted from its first operation.
//!
//! What was learned is kept; which files there were is not, since another run has others. A model carries the
//! identity of the program it was learned from, and is not used for another.
//!
//! ```text
//! 8 bytes    "presagio"
//! 4 bytes    version, 3, little endian as all that follows
//! 8 bytes    identity of the program
//! 8 bytes    checksum of the rest (FNV-1a)
//! rest       numbers as varints of seven bits a byte, lowest first; fractions as 8 bytes; grammars and series
//!            as their length and what `presagio-grammar` makes of them:
//!            limit of transitions, whether it adapts (0 or 1), operations observed,
//!            number of sizes, (action, size)…, number of symbols, (origin, action, failed, sizes, duration)…,
//!            number of transitions, (from, to, relative, rank, own, 0 | 1, absolute, stride, from_end, gap)…,
//!            twice (for the next operation, and for one far ahead): number of bins, (tries, hits)…,
//!            grammar
//! span       weighted, count, mean (fraction), variance (fraction), least, greatest, last
//! ```

use crate::calibration::Calibration;
use crate::contexts::{Key, Symbols};
use crate::model::{Context, Model, Settings};
use crate::transition::{Gap, Others, Transition};
use presagio_core::Action;
use presagio_grammar::{Grammar, Series, Spread};

const MAGIC: &[u8; 8] = b"presagio";
const VERSION: u32 = 3;

/// However many a model is allowed, it gets no more transitions than this.
const TRANSITIONS_MAX: u64 = 1 << 20;

/// No model has seen more: counting must not overflow.
const OBSERVED_MAX: u64 = 1 << 60;
const HEADER: usize = 28;

/// Why a saved model is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It is no model at all.
    NotAModel,
    /// It was written by another version of Presagio.
    OtherVersion(u32),
    /// It was learned from another program, or another version of it.
    OtherProgram(u64),
    /// It is damaged.
    Damaged(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::NotAModel => write!(f, "this is not a model that Presagio saved"),
            LoadError::OtherVersion(version) => write!(
                f,
                "the model has format {version}, this Presagio reads {VERSION}: learn it anew"
            ),
            LoadError::OtherProgram(identity) => write!(
                f,
                "the model was learned from another program or version ({identity:#018x}): learn it anew"
            ),
            LoadError::Damaged(what) => write!(f, "the model is damaged: {what}: learn it anew"),
        }
    }
}

impl std::error::Error for LoadError {}

type Loaded<T> = Result<T, LoadError>;

impl Model {
    /// The model as bytes. `identity` is the program's: for example a hash of its build id.
    pub fn save(&self, identity: u64) -> Vec<u8> {
        let mut body = Writer(Vec::new());
        body.model(self);
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(identity.to_le_bytes());
        out.extend(checksum(&body.0).to_le_bytes());
        out.extend(body.0);
        out
    }

    /// A model that was saved with the same identity. It expects the program to begin again.
    pub fn load(bytes: &[u8], identity: u64) -> Result<Model, LoadError> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(LoadError::NotAModel);
        }
        let version = u32::from_le_bytes(array(&bytes[8..12]));
        if version != VERSION {
            return Err(LoadError::OtherVersion(version));
        }
        let learned_from = u64::from_le_bytes(array(&bytes[12..20]));
        if learned_from != identity {
            return Err(LoadError::OtherProgram(learned_from));
        }
        let body = &bytes[HEADER..];
        if checksum(body).to_le_bytes() != bytes[20..HEADER] {
            return Err(damaged("its checksum is wrong"));
        }
        Reader { rest: body }.model()
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes as asked for")
}

fn damaged(what: &str) -> LoadError {
    LoadError::Damaged(what.to_owned())
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn fraction(&mut self, fraction: f64) {
        self.0.extend(fraction.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn series(&mut self, series: &Series) {
        self.bytes(&series.save());
    }

    fn gap(&mut self, gap: &Gap) {
        let Gap { weighted, spread } = gap;
        self.number(*weighted);
        self.number(spread.count);
        self.fraction(spread.mean);
        self.fraction(spread.variance());
        for value in [spread.least, spread.greatest, spread.last] {
            self.number(value);
        }
    }

    fn model(&mut self, model: &Model) {
        self.number(model.settings.transitions as u64);
        self.number(u64::from(model.settings.adapts));
        self.number(model.observed);
        self.symbols(&model.symbols, &model.contexts);
        self.number(model.transitions.len() as u64);
        let mut numbers: Vec<_> = model.transition_numbers.iter().collect();
        numbers.sort_unstable_by_key(|n| *n.1);
        for (&(from, to), &number) in numbers {
            self.transition(from, to, &model.transitions[number as usize]);
        }
        for calibration in [&model.calibration, &model.far_calibration] {
            let bins: Vec<_> = calibration.bins().collect();
            self.number(bins.len() as u64);
            for (tries, hits) in bins {
                self.fraction(tries);
                self.fraction(hits);
            }
        }
        self.bytes(&model.grammar.save());
    }

    fn symbols(&mut self, symbols: &Symbols, contexts: &[Context]) {
        let sizes = symbols.sizes();
        self.number(sizes.len() as u64);
        for (action, len) in sizes {
            self.number(action as u64);
            self.number(len);
        }
        self.number(symbols.len() as u64);
        for (key, context) in symbols.keys().iter().zip(contexts) {
            self.number(key.origin);
            self.number(key.action as u64);
            self.number(u64::from(key.failed));
            self.series(&context.sizes);
            self.gap(&context.duration);
        }
    }

    fn transition(&mut self, from: u32, to: u32, transition: &Transition) {
        self.number(u64::from(from));
        self.number(u64::from(to));
        self.series(&transition.relative);
        self.series(&transition.rank);
        self.series(&transition.own);
        self.number(u64::from(transition.others.is_some()));
        if let Some(others) = &transition.others {
            self.series(&others.absolute);
            self.series(&others.stride);
            self.series(&others.from_end);
        }
        self.gap(&transition.gap);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Loaded<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(damaged("it ends too early"));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Loaded<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number is too long"))
    }

    /// How many there are of something that takes a byte at least.
    fn count(&mut self) -> Loaded<usize> {
        let count = self.number()?;
        let fits = usize::try_from(count)
            .ok()
            .filter(|c| *c <= self.rest.len());
        fits.ok_or_else(|| damaged("a number is larger than the model"))
    }

    fn fraction(&mut self) -> Loaded<f64> {
        let fraction = f64::from_le_bytes(array(self.take(8)?));
        let sane = fraction.is_finite() && fraction >= 0.0;
        sane.then_some(fraction)
            .ok_or_else(|| damaged("a fraction is out of range"))
    }

    fn action(&mut self) -> Loaded<Action> {
        let number = u8::try_from(self.number()?).ok();
        let action = number.and_then(Action::from_number);
        action.ok_or_else(|| damaged("an action is unknown"))
    }

    fn flag(&mut self) -> Loaded<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged("a flag is neither 0 nor 1")),
        }
    }

    fn bytes(&mut self) -> Loaded<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    fn series(&mut self) -> Loaded<Series> {
        Series::load(self.bytes()?).map_err(|error| LoadError::Damaged(error.to_string()))
    }

    fn gap(&mut self) -> Loaded<Gap> {
        let weighted = self.number()?;
        let count = self.number()?;
        let (mean, variance) = (self.fraction()?, self.fraction()?);
        let extent = (self.number()?, self.number()?);
        let last = self.number()?;
        let spread = Spread::from_parts(count, mean, variance, extent, last);
        Ok(Gap { weighted, spread })
    }

    fn model(&mut self) -> Loaded<Model> {
        let transitions = self.number()?.min(TRANSITIONS_MAX) as usize;
        let adapts = self.flag()?;
        let observed = self.number()?;
        if observed > OBSERVED_MAX {
            return Err(damaged("it has seen more than there can be"));
        }
        let mut model = Model::with_settings(Settings {
            transitions,
            adapts,
            ..Settings::default()
        });
        model.observed = observed;
        self.symbols(&mut model)?;
        for _ in 0..self.count()? {
            self.transition(&mut model)?;
        }
        model.calibration = self.calibration()?;
        model.far_calibration = self.calibration()?;
        let grammar = Grammar::load(self.bytes()?);
        model.grammar = grammar.map_err(|error| LoadError::Damaged(error.to_string()))?;
        if !self.rest.is_empty() {
            return Err(damaged("there is more than a model"));
        }
        self.check_symbols(&model)?;
        model.settings.mode = model.grammar.mode();
        model.settings.limits = model.grammar.limits();
        model.grammar.rewind();
        Ok(model)
    }

    fn symbols(&mut self, model: &mut Model) -> Loaded<()> {
        for _ in 0..self.count()? {
            let action = self.action()?;
            let len = self.number()?;
            model.symbols.size_class(action, len);
        }
        for number in 0..self.count()? {
            let key = Key {
                origin: self.number()?,
                action: self.action()?,
                failed: self.flag()?,
            };
            if model.symbols.number(key) as usize != number {
                return Err(damaged("a symbol is there twice"));
            }
            model.contexts.push(Context {
                sizes: self.series()?,
                duration: self.gap()?,
                ..Context::default()
            });
        }
        Ok(())
    }

    fn transition(&mut self, model: &mut Model) -> Loaded<()> {
        let symbols = model.contexts.len() as u64;
        let (from, to) = (self.number()?, self.number()?);
        if from >= symbols || to >= symbols {
            return Err(damaged("a transition is between unknown symbols"));
        }
        let (relative, rank, own) = (self.series()?, self.series()?, self.series()?);
        let others = match self.flag()? {
            false => None,
            true => Some(Box::new(Others {
                absolute: self.series()?,
                stride: self.series()?,
                from_end: self.series()?,
            })),
        };
        let number = model.transitions.len() as u32;
        let known = model
            .transition_numbers
            .insert((from as u32, to as u32), number);
        if known.is_some() {
            return Err(damaged("a transition is there twice"));
        }
        model.transitions.push(Transition {
            relative,
            others,
            rank,
            own,
            gap: self.gap()?,
        });
        Ok(())
    }

    fn calibration(&mut self) -> Loaded<Calibration> {
        let count = self.count()?;
        let bin = |_| Ok((self.fraction()?, self.fraction()?));
        let bins = (0..count).map(bin).collect::<Loaded<Vec<_>>>()?;
        Ok(Calibration::from_bins(bins.into_iter()))
    }

    /// The grammar must not speak of symbols that nothing else is known of.
    fn check_symbols(&self, model: &Model) -> Loaded<()> {
        let symbols = model.contexts.len() as u32;
        let rules = model.grammar.rules();
        let mut bodies = rules.iter().flat_map(|(_, body)| body);
        let unknown = bodies.any(|(symbol, _)| match symbol {
            presagio_grammar::Symbol::Terminal(number) => {
                *number >= symbols && *number != presagio_grammar::GAP
            }
            presagio_grammar::Symbol::Rule(_) => false,
        });
        match unknown {
            true => Err(damaged("its grammar has an unknown symbol")),
            false => Ok(()),
        }
    }
}
