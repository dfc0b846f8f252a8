//! The page: one file, with its style, its script, and the document that it draws.
//!
//! Nothing of the document becomes markup. It lies in a data block as JSON, with every `<` written as an escape, so that no
//! name can end the block; the script puts it into the page as text, and the policy in the page's head lets no other
//! script or style run, and nothing be fetched.

use crate::doc::Document;
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("page/report.html");
const STYLE: &str = include_str!("page/report.css");
const SCRIPT: &str = include_str!("page/report.js");

/// The page of a document.
pub fn page(document: &Document) -> Result<String, serde_json::Error> {
    let data = data(document)?;
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let parts = [
        ("{{POLICY}}", policy.as_str()),
        ("{{STYLE}}", STYLE),
        ("{{SCRIPT}}", SCRIPT),
        ("{{DATA}}", &data),
    ];
    Ok(fill(FRAME, &parts))
}

/// The document as JSON that can stand in a page.
fn data(document: &Document) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(document)?;
    // Within JSON these occur in strings only, where escapes mean the same.
    Ok(json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029"))
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
    fn the_frame_has_a_place_for_everything_in_this_order() {
        let marks = ["{{POLICY}}", "{{STYLE}}", "{{SCRIPT}}", "{{DATA}}"];
        let places: Vec<Option<usize>> = marks.iter().map(|m| FRAME.find(m)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted());
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }

    #[test]
    fn the_script_never_makes_markup_of_text() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }
}
