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
//! rest       numbers and fractions as in `presagio-grammar`, module `bytes`; grammars and series as their length
//!            and what that makes of them:
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
use presagio_grammar::bytes::{self, Reader, Writer};
use presagio_grammar::{GAP, Grammar, Series, Spread, Symbol};

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

impl From<bytes::LoadError> for LoadError {
    fn from(bytes::LoadError { at, what }: bytes::LoadError) -> Self {
        LoadError::Damaged(format!("{what}, at byte {at}"))
    }
}

type Loaded<T> = bytes::Loaded<T>;

impl Model {
    /// The model as bytes. `identity` is the program's: for example a hash of its build id.
    pub fn save(&self, identity: u64) -> Vec<u8> {
        let mut body = Writer::default();
        write_model(&mut body, self);
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
            return Err(LoadError::Damaged("its checksum is wrong".to_owned()));
        }
        Ok(model(&mut Reader::new(bytes, HEADER))?)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes as asked for")
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn write_model(out: &mut Writer, model: &Model) {
    out.number(model.settings.transitions as u64);
    out.number(model.settings.adapts.into());
    out.number(model.observed);
    write_symbols(out, &model.symbols, &model.contexts);
    out.number(model.transitions.len() as u64);
    let mut numbers: Vec<_> = model.transition_numbers.iter().collect();
    numbers.sort_unstable_by_key(|n| *n.1);
    for (&(from, to), &number) in numbers {
        out.numbers([from, to]);
        write_transition(out, &model.transitions[number as usize]);
    }
    for calibration in [&model.calibration, &model.far_calibration] {
        let bins: Vec<_> = calibration.bins().collect();
        out.number(bins.len() as u64);
        for (tries, hits) in bins {
            out.fraction(tries);
            out.fraction(hits);
        }
    }
    out.bytes(&model.grammar.save());
}

fn write_symbols(out: &mut Writer, symbols: &Symbols, contexts: &[Context]) {
    let sizes = symbols.sizes();
    out.number(sizes.len() as u64);
    for (action, len) in sizes {
        out.numbers([action as u64, len]);
    }
    out.number(symbols.len() as u64);
    for (key, context) in symbols.keys().iter().zip(contexts) {
        out.numbers([key.origin, key.action as u64, key.failed.into()]);
        out.bytes(&context.sizes.save());
        write_gap(out, &context.duration);
    }
}

fn write_transition(out: &mut Writer, transition: &Transition) {
    let Transition {
        relative,
        others,
        rank,
        own,
        gap,
    } = transition;
    for series in [relative, rank, own] {
        out.bytes(&series.save());
    }
    out.number(others.is_some().into());
    if let Some(others) = others {
        for series in [&others.absolute, &others.stride, &others.from_end] {
            out.bytes(&series.save());
        }
    }
    write_gap(out, gap);
}

fn write_gap(out: &mut Writer, Gap { weighted, spread }: &Gap) {
    out.numbers([*weighted, spread.count]);
    out.fraction(spread.mean);
    out.fraction(spread.variance());
    out.numbers([spread.least, spread.greatest, spread.last]);
}

fn model(from: &mut Reader<'_>) -> Loaded<Model> {
    let transitions = from.number()?.min(TRANSITIONS_MAX) as usize;
    let adapts = from.flag()?;
    let observed = from.number()?;
    from.require(
        observed <= OBSERVED_MAX,
        "it has seen more than there can be",
    )?;
    let mut model = Model::with_settings(Settings {
        transitions,
        adapts,
        ..Settings::default()
    });
    model.observed = observed;
    symbols(from, &mut model)?;
    for _ in 0..from.count()? {
        transition(from, &mut model)?;
    }
    model.calibration = calibration(from)?;
    model.far_calibration = calibration(from)?;
    model.grammar = from.nested(Grammar::load)?;
    from.end()?;
    check_symbols(from, &model)?;
    model.settings.mode = model.grammar.mode();
    model.settings.limits = model.grammar.limits();
    model.grammar.rewind();
    Ok(model)
}

fn symbols(from: &mut Reader<'_>, model: &mut Model) -> Loaded<()> {
    for _ in 0..from.count()? {
        let action = action(from)?;
        model.symbols.size_class(action, from.number()?);
    }
    for number in 0..from.count()? {
        let key = Key {
            origin: from.number()?,
            action: action(from)?,
            failed: from.flag()?,
        };
        let is_new = model.symbols.number(key) as usize == number;
        from.require(is_new, "a symbol is there twice")?;
        model.contexts.push(Context {
            sizes: from.nested(Series::load)?,
            duration: gap(from)?,
            ..Context::default()
        });
    }
    Ok(())
}

fn action(from: &mut Reader<'_>) -> Loaded<Action> {
    let number = u8::try_from(from.number()?).ok();
    match number.and_then(Action::from_number) {
        Some(action) => Ok(action),
        None => from.wrong("an action is unknown"),
    }
}

fn transition(from: &mut Reader<'_>, model: &mut Model) -> Loaded<()> {
    let ends = (from.small()?, from.small()?);
    let known = (ends.0.max(ends.1) as usize) < model.contexts.len();
    from.require(known, "a transition is between unknown symbols")?;
    let number = model.transitions.len() as u32;
    let before = model.transition_numbers.insert(ends, number);
    from.require(before.is_none(), "a transition is there twice")?;
    model.transitions.push(Transition {
        relative: from.nested(Series::load)?,
        rank: from.nested(Series::load)?,
        own: from.nested(Series::load)?,
        others: others(from)?,
        gap: gap(from)?,
    });
    Ok(())
}

fn others(from: &mut Reader<'_>) -> Loaded<Option<Box<Others>>> {
    if !from.flag()? {
        return Ok(None);
    }
    Ok(Some(Box::new(Others {
        absolute: from.nested(Series::load)?,
        stride: from.nested(Series::load)?,
        from_end: from.nested(Series::load)?,
    })))
}

fn gap(from: &mut Reader<'_>) -> Loaded<Gap> {
    let (weighted, count) = (from.number()?, from.number()?);
    let (mean, variance) = (from.fraction()?, from.fraction()?);
    let extent = (from.number()?, from.number()?);
    let spread = Spread::from_parts(count, mean, variance, extent, from.number()?);
    Ok(Gap { weighted, spread })
}

fn calibration(from: &mut Reader<'_>) -> Loaded<Calibration> {
    let count = from.count()?;
    let bin = |_| Ok((from.fraction()?, from.fraction()?));
    let bins = (0..count).map(bin).collect::<Loaded<Vec<_>>>()?;
    Ok(Calibration::from_bins(bins.into_iter()))
}

/// The grammar must not speak of symbols that nothing else is known of.
fn check_symbols(from: &Reader<'_>, model: &Model) -> Loaded<()> {
    let symbols = model.contexts.len() as u32;
    let rules = model.grammar.rules();
    let mut bodies = rules.iter().flat_map(|(_, body)| body);
    let known = bodies.all(|(symbol, _)| match symbol {
        Symbol::Terminal(number) => *number < symbols || *number == GAP,
        Symbol::Rule(_) => true,
    });
    from.require(known, "its grammar has an unknown symbol")
}
