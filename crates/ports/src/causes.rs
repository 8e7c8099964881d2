//! An error as one line of the log or of an event.
//!
//! Owns the wording of a chain of causes. A client's error by itself only says that it could not connect; why, only its causes say.

use std::error::Error;

/// An error with its causes on one line; a cause that is quoted already is not repeated.
#[must_use]
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("the request failed: {0}")]
        Quoting(#[source] io::Error),
        #[error("the request failed")]
        Silent(#[source] io::Error),
        #[error("creating {name}: {source}")]
        Around { name: &'static str, source: Box<Failed> },
    }

    fn refused() -> io::Error {
        io::Error::other("connection refused")
    }

    #[test]
    fn every_cause_is_named_once() {
        let around = |source| Failed::Around {
            name: "a",
            source: Box::new(source),
        };
        let silent = "the request failed: connection refused";
        assert_eq!(causes(&refused()), "connection refused");
        assert_eq!(causes(&Failed::Quoting(refused())), silent);
        assert_eq!(causes(&Failed::Silent(refused())), silent);
        assert_eq!(
            causes(&around(Failed::Silent(refused()))),
            format!("creating a: {silent}")
        );
        assert_eq!(
            causes(&around(Failed::Quoting(refused()))),
            format!("creating a: {silent}")
        );
    }
}
