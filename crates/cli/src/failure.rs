//! How the command says that it could not do something: what failed, why, and what to do about it.

use presagio_page::readable;
use std::fmt::Display;

/// An error that a person can act on, printed as `presagio: what; cause; what to do`.
pub fn failure(what: impl Display, cause: impl Display, advice: impl Display) -> anyhow::Error {
    anyhow::anyhow!("{what}; {cause}; {advice}")
}

/// The error and all its causes in one line. Names of files come from anybody: none of them tells a terminal anything.
pub fn one_line(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    readable::without_controls(&causes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_why_and_what_to_do() {
        let error = failure("cannot open x", "no such file", "create it first");
        assert_eq!(
            one_line(&error),
            "cannot open x; no such file; create it first"
        );
    }

    #[test]
    fn causes_follow_what_failed() {
        let error = anyhow::anyhow!("disk full").context("cannot write x");
        assert_eq!(one_line(&error), "cannot write x; disk full");
    }

    #[test]
    fn a_name_in_an_error_tells_a_terminal_nothing() {
        let error = failure("cannot open \u{1b}[2Jx\n\u{202e}y", "no such file", "z");
        let said = "cannot open \u{fffd}[2Jx\u{fffd}\u{fffd}y; no such file; z";
        assert_eq!(one_line(&error), said);
    }
}
