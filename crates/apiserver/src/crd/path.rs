//! Positions in an object. Paths are built on the way down without allocating and are spelled only when there is something to
//! say.

use std::fmt;

/// A place, as a chain to the top.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: Part<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Root(&'a str),
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The top; it may itself lie below a place spelled by `prefix`.
    pub(crate) fn root(prefix: &'a str) -> Self {
        Self {
            parent: None,
            part: Part::Root(prefix),
        }
    }

    /// `.name`.
    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Field(name),
        }
    }

    /// `[index]` of a list.
    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Index(index),
        }
    }

    /// `[key]` of a map.
    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Key(key),
        }
    }

    fn write(&self, text: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(text);
        }
        match self.part {
            Part::Root(prefix) => text.push_str(prefix),
            Part::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Part::Index(index) => text.push_str(&format!("[{index}]")),
            Part::Key(key) => {
                text.push('[');
                text.push_str(key);
                text.push(']');
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}
