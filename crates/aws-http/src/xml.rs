//! Replies in XML: what of a tree a call reads.
//!
//! Owns the access to elements by local name. Absent elements are absent values, and what does not parse as a number counts as absent: a reply never
//! makes the program panic.

use std::str::FromStr;

use roxmltree::{Document, Node};

/// An element of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a, 'input>(Node<'a, 'input>);

/// The root of a reply.
#[must_use]
pub fn root<'a, 'input>(document: &'a Document<'input>) -> Element<'a, 'input> {
    Element(document.root_element())
}

impl<'a, 'input> Element<'a, 'input> {
    /// The first child with this name.
    #[must_use]
    pub fn child(self, name: &str) -> Option<Self> {
        self.0
            .children()
            .find(|node| node.is_element() && node.tag_name().name() == name)
            .map(Element)
    }

    /// The first element with this name, at any depth.
    #[must_use]
    pub fn descendant(self, name: &str) -> Option<Self> {
        self.0
            .descendants()
            .find(|node| node.is_element() && node.tag_name().name() == name)
            .map(Element)
    }

    /// The elements of a list: children `item` (EC2) or `member` (IAM) of the child with this name. Empty when it is absent.
    pub fn items(self, name: &str) -> impl Iterator<Item = Element<'a, 'input>> {
        let list = self.child(name);
        list.into_iter()
            .flat_map(|list| list.0.children())
            .filter(|node| node.is_element() && matches!(node.tag_name().name(), "item" | "member"))
            .map(Element)
    }

    /// Own text; empty when there is none.
    #[must_use]
    pub fn own_text(self) -> String {
        self.0.text().unwrap_or_default().trim().to_owned()
    }

    /// Text of a child; empty when it is absent.
    #[must_use]
    pub fn text(self, name: &str) -> String {
        self.child(name).map(Element::own_text).unwrap_or_default()
    }

    /// Text of a child that is there and not empty.
    #[must_use]
    pub fn some_text(self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// A child as a number or another value.
    #[must_use]
    pub fn parsed<T: FromStr>(self, name: &str) -> Option<T> {
        self.text(name).parse().ok()
    }

    /// A child as a truth; false when it is absent.
    #[must_use]
    pub fn is_true(self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// The texts of a list.
    #[must_use]
    pub fn texts(self, name: &str) -> Vec<String> {
        self.items(name).map(Element::own_text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_absent_elements() {
        let document = Document::parse(
            "<r xmlns='http://ec2.amazonaws.com/doc/2016-11-15/'><a>1</a><s><item><b> x </b></item><item/></s><n>seven</n></r>",
        )
        .unwrap();
        let root = root(&document);
        assert_eq!(root.parsed::<i64>("a"), Some(1));
        assert_eq!(root.parsed::<i64>("n"), None, "not a number counts as absent");
        let texts: Vec<String> = root.items("s").map(|item| item.text("b")).collect();
        assert_eq!(texts, ["x", ""]);
        assert_eq!(root.items("absent").count(), 0);
        assert_eq!(root.descendant("b").map(Element::own_text).as_deref(), Some("x"));
    }
}
