//! What the report and the dashboard are made of: one look, the same small tools, and the same distrust.
//!
//! A page is one text: a frame with its style and script in it. [`Page::policy`] names both by their hashes, so that a browser
//! runs and applies nothing else, whatever stands in the page; data never becomes markup. [`readable`] makes harmless text of any name.

#![forbid(unsafe_code)]

pub mod readable;

use sha2::{Digest, Sha256};

/// Colours for light and dark, fonts, cards, tables, buttons.
const LOOK: &str = include_str!("look.css");

/// Elements, figures as people read them, the tip beside the pointer.
const TOOLS: &str = include_str!("tools.js");

/// A style and a script, with the look and the tools that all pages share before them.
#[derive(Clone, Debug)]
pub struct Page {
    style: String,
    script: String,
}

impl Page {
    /// A page's own style and script.
    pub fn new(style: &str, script: &str) -> Page {
        Page {
            style: format!("{LOOK}{style}"),
            script: format!("{TOOLS}{script}"),
        }
    }

    /// A Content-Security-Policy by which nothing runs or loads but these two; `more` is allowed besides.
    pub fn policy(&self, more: &str) -> String {
        format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'{more}",
            hash(&self.script),
            hash(&self.style)
        )
    }

    /// Puts the policy, the style, the script and whatever else into the frame, at `{{POLICY}}`, `{{STYLE}}`, `{{SCRIPT}}` and
    /// the marks of `rest`, which follow in that order.
    pub fn fill(&self, frame: &str, policy: &str, rest: &[(&str, &str)]) -> String {
        let own = [
            ("{{POLICY}}", policy),
            ("{{STYLE}}", self.style.as_str()),
            ("{{SCRIPT}}", self.script.as_str()),
        ];
        fill(frame, &[&own, rest].concat())
    }

    /// What is wrong with it, if something is: for tests of the pages.
    pub fn fault(&self, frame: &str) -> Option<String> {
        let marks = ["{{POLICY}}", "{{STYLE}}", "{{SCRIPT}}"];
        let places: Vec<Option<usize>> = marks.iter().map(|mark| frame.find(mark)).collect();
        if !places.iter().all(Option::is_some) || !places.is_sorted() {
            return Some(format!("the frame has no place for all of {marks:?}"));
        }
        if self.script.contains("</script") || self.style.contains("</style") {
            return Some("the script or the style ends itself".to_owned());
        }
        let makers = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ];
        let maker = makers.iter().find(|word| self.script.contains(**word));
        maker.map(|word| format!("the script makes markup of text: {word}"))
    }
}

/// Puts parts in their places. What is put in is not looked at again, whatever it contains.
fn fill(frame: &str, parts: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = frame;
    for (mark, part) in parts {
        let Some((before, after)) = rest.split_once(mark) else {
            continue;
        };
        out.push_str(before);
        out.push_str(part);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// How a policy names a script or style by its content.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            let is_there = at <= chunk.len();
            out.push(if is_there { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_everybody() {
        let encoded = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn what_is_put_in_is_not_looked_at_again() {
        let parts = [("{{A}}", "{{B}}"), ("{{B}}", "x")];
        assert_eq!(fill("<{{A}}|{{B}}>", &parts), "<{{B}}|x>");
    }

    #[test]
    fn faults_are_found() {
        let frame = "{{POLICY}}{{STYLE}}{{SCRIPT}}";
        assert_eq!(Page::new("", "").fault(frame), None);
        assert!(Page::new("", "x.innerHTML = y").fault(frame).is_some());
        assert!(Page::new("</style>", "").fault(frame).is_some());
        assert!(Page::new("", "").fault("{{SCRIPT}}{{STYLE}}").is_some());
    }
}
