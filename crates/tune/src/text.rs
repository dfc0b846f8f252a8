//! Trees as a text that a person reads and the program reads back.
//!
//! ```text
//! presagio trees 1
//!
//! # Lines that begin like this one are for people.
//! tree T3
//! feature operation: read, write
//! feature ratio: number
//! class none
//! class SJF
//! if ratio <= 2.5
//!   choose none (12)
//! else
//!   if operation is read
//!     choose SJF (4)
//!   if operation is write
//!     choose none (4)
//! end
//! ```
//!
//! What belongs to a question is indented by two more spaces. A feature with few values has a block for each of them, in
//! their order. The number behind an answer is how many cases of the training ended there.

use crate::tree::{Feature, Kind, Node, Schema, Tree};
use std::fmt::Write;

/// The first line.
const HEAD: &str = "presagio trees 1";

/// Deeper trees are no trees that anybody made: reading one must not use up the stack.
const DEPTH_MAX: usize = 64;

/// What is wrong with a text of trees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TextError {
    /// Which line, from 1.
    pub line: usize,
    /// Why it cannot be.
    pub reason: String,
}

/// The text of these trees.
pub(crate) fn write(about: &str, trees: &[Tree]) -> String {
    let mut out = format!("{HEAD}\n");
    for line in about.lines() {
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
    for tree in trees {
        // Writing to a string cannot fail.
        let _ = write!(out, "\ntree {}\n", tree.name);
        for feature in &tree.schema.features {
            let kind = match &feature.kind {
                Kind::Number => "number".to_owned(),
                Kind::OneOf(values) => values.join(", "),
            };
            let _ = writeln!(out, "feature {}: {kind}", feature.name);
        }
        for class in &tree.schema.classes {
            let _ = writeln!(out, "class {class}");
        }
        write_node(&mut out, &tree.schema, &tree.root, 0);
        out.push_str("end\n");
    }
    out
}

fn write_node(out: &mut String, schema: &Schema, node: &Node, depth: usize) {
    let indent = "  ".repeat(depth);
    match node {
        Node::Leaf { class, cases } => {
            let _ = writeln!(out, "{indent}choose {} ({cases})", schema.classes[*class]);
        }
        Node::Number {
            feature,
            threshold,
            below,
            above,
        } => {
            let name = &schema.features[*feature].name;
            let _ = writeln!(out, "{indent}if {name} <= {threshold}");
            write_node(out, schema, below, depth + 1);
            let _ = writeln!(out, "{indent}else");
            write_node(out, schema, above, depth + 1);
        }
        Node::OneOf { feature, ways } => {
            let Feature { name, kind } = &schema.features[*feature];
            let Kind::OneOf(values) = kind else { return };
            for (value, way) in values.iter().zip(ways) {
                let _ = writeln!(out, "{indent}if {name} is {value}");
                write_node(out, schema, way, depth + 1);
            }
        }
    }
}

/// The trees of a text.
pub(crate) fn read(text: &str) -> Result<Vec<Tree>, TextError> {
    let lines = text.lines().enumerate().map(|(at, text)| Line {
        number: at + 1,
        text: text.trim_end(),
    });
    let said = |line: &Line<'_>| !line.text.is_empty() && !line.text.starts_with('#');
    let mut reader = Reader {
        lines: lines.filter(said).collect(),
        at: 0,
        last: text.lines().count().max(1),
    };
    match reader.next() {
        Some(line) if line.text == HEAD => {}
        _ => return Err(wrong(1, format!("the first line must be \"{HEAD}\""))),
    }
    let mut trees: Vec<Tree> = Vec::new();
    while let Some(line) = reader.next() {
        let tree = reader.tree(line)?;
        if trees.iter().any(|other| other.name == tree.name) {
            let reason = format!("there is a tree {} already", tree.name);
            return Err(wrong(line.number, reason));
        }
        trees.push(tree);
    }
    Ok(trees)
}

fn wrong(line: usize, reason: impl Into<String>) -> TextError {
    TextError {
        line,
        reason: reason.into(),
    }
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

struct Reader<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
    /// The number of the last line of all.
    last: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Line<'a>> {
        let line = self.lines.get(self.at).copied();
        self.at += usize::from(line.is_some());
        line
    }

    fn peek(&self) -> Option<Line<'a>> {
        self.lines.get(self.at).copied()
    }

    fn tree(&mut self, head: Line<'a>) -> Result<Tree, TextError> {
        let Some(name) = head.text.strip_prefix("tree ") else {
            let reason = format!("\"{}\" where a tree should begin: tree NAME", head.text);
            return Err(wrong(head.number, reason));
        };
        let mut schema = Schema {
            features: Vec::new(),
            classes: Vec::new(),
        };
        while let Some(line) = self.peek() {
            if let Some(feature) = line.text.strip_prefix("feature ") {
                add_feature(&mut schema, feature).map_err(|reason| wrong(line.number, reason))?;
            } else if let Some(class) = line.text.strip_prefix("class ") {
                add_class(&mut schema, class).map_err(|reason| wrong(line.number, reason))?;
            } else {
                break;
            }
            self.at += 1;
        }
        let name = word(name).map_err(|reason| wrong(head.number, reason))?;
        let root = self.node(&schema, 0)?;
        match self.next() {
            Some(line) if line.text == "end" => Ok(Tree { name, schema, root }),
            Some(line) => Err(wrong(
                line.number,
                format!("\"{}\" where the tree should end: end", line.text.trim()),
            )),
            None => Err(wrong(self.last, format!("the tree {name} has no end"))),
        }
    }

    /// The next line, without its indent, if it is one of this depth.
    fn line(&mut self, depth: usize) -> Result<Line<'a>, TextError> {
        let line = self.peek().ok_or_else(|| {
            let reason = "the text ends where a question or an answer should be";
            wrong(self.last, reason)
        })?;
        let text = line.text.trim_start_matches(' ');
        let indent = line.text.len() - text.len();
        if indent != 2 * depth {
            let reason = format!("it is indented by {indent} where {} belong", 2 * depth);
            return Err(wrong(line.number, reason));
        }
        self.at += 1;
        Ok(Line { text, ..line })
    }

    fn node(&mut self, schema: &Schema, depth: usize) -> Result<Node, TextError> {
        let line = self.line(depth)?;
        let explain = |reason: String| wrong(line.number, reason);
        if depth > DEPTH_MAX {
            return Err(explain(format!("it is deeper than {DEPTH_MAX} questions")));
        }
        if let Some(answer) = line.text.strip_prefix("choose ") {
            return leaf(schema, answer).map_err(explain);
        }
        let Some(question) = line.text.strip_prefix("if ") else {
            let reason = format!("\"{}\" is neither if ... nor choose ...", line.text);
            return Err(explain(reason));
        };
        if let Some((name, threshold)) = question.split_once(" <= ") {
            let feature = feature_of(schema, name).map_err(explain)?;
            if schema.features[feature].kind != Kind::Number {
                return Err(explain(format!(
                    "{name} is no number: ask if {name} is ..."
                )));
            }
            let threshold: f64 = threshold
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .ok_or_else(|| explain(format!("\"{threshold}\" is no number")))?;
            let below = Box::new(self.node(schema, depth + 1)?);
            let otherwise = self.line(depth)?;
            if otherwise.text != "else" {
                let reason = format!("\"{}\" where else should be", otherwise.text);
                return Err(wrong(otherwise.number, reason));
            }
            let above = Box::new(self.node(schema, depth + 1)?);
            return Ok(Node::Number {
                feature,
                threshold,
                below,
                above,
            });
        }
        let Some((name, _)) = question.split_once(" is ") else {
            return Err(explain(format!(
                "\"{question}\" asks nothing: use <= or is"
            )));
        };
        let feature = feature_of(schema, name).map_err(explain)?;
        let Kind::OneOf(values) = &schema.features[feature].kind else {
            return Err(explain(format!("{name} is a number: ask if {name} <= ...")));
        };
        let mut ways = Vec::with_capacity(values.len());
        self.at -= 1;
        for value in values {
            let line = self.line(depth)?;
            if line.text != format!("if {name} is {value}") {
                let reason = format!("\"{}\" where \"if {name} is {value}\" should be", line.text);
                return Err(wrong(line.number, reason));
            }
            ways.push(self.node(schema, depth + 1)?);
        }
        Ok(Node::OneOf { feature, ways })
    }
}

fn add_feature(schema: &mut Schema, text: &str) -> Result<(), String> {
    let (name, kind) = text
        .split_once(": ")
        .ok_or("a feature is written as NAME: number, or NAME: VALUE, VALUE")?;
    if schema.features.iter().any(|other| other.name == name) {
        return Err(format!("there is a feature {name} already"));
    }
    let kind = match kind {
        "number" => Kind::Number,
        values => Kind::OneOf(values.split(", ").map(word).collect::<Result<_, _>>()?),
    };
    let name = word(name)?;
    schema.features.push(Feature { name, kind });
    Ok(())
}

fn add_class(schema: &mut Schema, text: &str) -> Result<(), String> {
    if schema.classes.iter().any(|other| other == text) {
        return Err(format!("there is a class {text} already"));
    }
    schema.classes.push(word(text)?);
    Ok(())
}

/// A name: letters, digits, and what joins them.
fn word(text: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match !text.is_empty() && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "\"{text}\" is no name: use letters, digits, - and _"
        )),
    }
}

fn feature_of(schema: &Schema, name: &str) -> Result<usize, String> {
    let place = schema.features.iter().position(|other| other.name == name);
    place.ok_or_else(|| format!("there is no feature {name}"))
}

fn leaf(schema: &Schema, answer: &str) -> Result<Node, String> {
    let (name, cases) = answer.split_once(' ').unwrap_or((answer, "(0)"));
    let class = schema.classes.iter().position(|other| other == name);
    let class = class.ok_or_else(|| format!("there is no class {name}"))?;
    let cases = cases
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| format!("\"{cases}\" is no number of cases, as in (12)"))?;
    Ok(Node::Leaf { class, cases })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
presagio trees 1
# for people

tree T3
feature operation: read, write
feature ratio: number
class none
class SJF
if ratio <= 2.5
  choose none (12)
else
  if operation is read
    choose SJF (4)
  if operation is write
    choose none (4)
end
";

    #[test]
    fn what_is_written_is_read_back() {
        let trees = read(TEXT).expect("good");
        assert_eq!(trees.len(), 1);
        assert_eq!(trees[0].answer(&[0.0, 3.0]), "SJF");
        assert_eq!(write("for people", &trees), TEXT);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("trees 1", "trees 2", "line 1: the first line"),
            (
                "choose SJF (4)",
                "choose LIFO (4)",
                "line 13: there is no class LIFO",
            ),
            (
                "choose SJF (4)",
                "choose SJF 4",
                "line 13: \"4\" is no number of cases",
            ),
            (
                "ratio <= 2.5",
                "ratio <= lots",
                "line 9: \"lots\" is no number",
            ),
            (
                "ratio <= 2.5",
                "ratio <= NaN",
                "line 9: \"NaN\" is no number",
            ),
            (
                "if ratio <= 2.5",
                "if operation <= 2.5",
                "line 9: operation is no number",
            ),
            (
                "if operation is read",
                "if ratio is read",
                "line 12: ratio is a number",
            ),
            (
                "if operation is write",
                "if operation is stat",
                "line 14: \"if operation is stat\"",
            ),
            (
                "    choose SJF",
                "   choose SJF",
                "line 13: it is indented by 3 where 4",
            ),
            ("else\n", "", "line 11: it is indented by 2 where 0"),
            ("end\n", "", "has no end"),
            (
                "class SJF",
                "class none",
                "line 8: there is a class none already",
            ),
            ("class SJF", "class S JF", "line 8: \"S JF\" is no name"),
            (
                "tree T3",
                "bush T3",
                "line 4: \"bush T3\" where a tree should begin",
            ),
        ];
        for (from, to, said) in cases {
            let error = read(&TEXT.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let mut text = "presagio trees 1\ntree T\nfeature x: number\nclass a\n".to_owned();
        for depth in 0..100_000 {
            text.push_str(&"  ".repeat(depth.min(200)));
            text.push_str("if x <= 1\n");
        }
        assert!(
            read(&text)
                .expect_err("deep")
                .to_string()
                .contains("deeper")
        );
    }

    fn schema() -> Schema {
        Schema {
            features: vec![
                Feature::number("a"),
                Feature::one_of("b", &["x", "y", "z"]),
                Feature::number("c-d"),
            ],
            classes: vec!["none".to_owned(), "TO-agg".to_owned()],
        }
    }

    fn nodes() -> impl Strategy<Value = Node> {
        let leaf =
            (0_usize..2, any::<u64>()).prop_map(|(class, cases)| Node::Leaf { class, cases });
        leaf.prop_recursive(6, 64, 3, |inner| {
            let number = (
                any::<bool>(),
                prop::num::f64::NORMAL,
                inner.clone(),
                inner.clone(),
            );
            let number = number.prop_map(|(first, threshold, below, above)| Node::Number {
                feature: if first { 0 } else { 2 },
                threshold,
                below: Box::new(below),
                above: Box::new(above),
            });
            let ways = prop::collection::vec(inner, 3);
            let one_of = ways.prop_map(|ways| Node::OneOf { feature: 1, ways });
            prop_oneof![number, one_of]
        })
    }

    proptest! {
        #[test]
        fn every_tree_is_read_back_as_it_was(first in nodes(), second in nodes()) {
            let tree = |name: &str, root| Tree { name: name.to_owned(), schema: schema(), root };
            let trees = vec![tree("one", first), tree("two", second)];
            prop_assert_eq!(read(&write("two\nlines", &trees)), Ok(trees));
        }

        /// Lines of a good text, some changed, repeated or left out: an answer, never a panic; and what is
        /// accepted is written and read back alike.
        #[test]
        fn no_text_makes_the_reader_fail(
            picks in prop::collection::vec((0_usize..16, 0_usize..40, any::<char>()), 0..40),
            keep in any::<bool>(),
        ) {
            let mut lines: Vec<String> = TEXT.lines().map(str::to_owned).collect();
            for (which, column, letter) in picks {
                let at = which % lines.len();
                match column {
                    0 if lines.len() > 1 => drop(lines.remove(at)),
                    1 => lines.insert(at, lines[which % 3].clone()),
                    2 => lines[at] = format!("  {}", lines[at]),
                    3 => lines[at] = lines[at].trim_start().to_owned(),
                    _ if !keep => {
                        let mut letters: Vec<char> = lines[at].chars().collect();
                        letters.insert(column.min(letters.len()), letter);
                        lines[at] = letters.into_iter().collect();
                    }
                    _ => {}
                }
            }
            if let Ok(trees) = read(&lines.join("\n")) {
                prop_assert_eq!(read(&write("", &trees)), Ok(trees));
            }
        }
    }
}
