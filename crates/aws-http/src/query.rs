//! The query encoding of EC2, IAM and STS: a form of numbered names.
//!
//! Owns names and their order. It knows no call.

/// Parameters of one call, in the order in which they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// A call of a version of an API.
    #[must_use]
    pub fn new(action: &str, version: &str) -> Self {
        Query {
            parameters: vec![
                ("Action".to_owned(), action.to_owned()),
                ("Version".to_owned(), version.to_owned()),
            ],
        }
    }

    /// Name of the call.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.parameters[0].1
    }

    /// Adds a parameter.
    pub fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a parameter that has a value; an absent one and an empty text are left out.
    pub fn set_some(&mut self, name: &str, value: Option<impl ToString>) -> &mut Self {
        if let Some(value) = value
            .map(|value| value.to_string())
            .filter(|value| !value.is_empty())
        {
            self.parameters.push((name.to_owned(), value));
        }
        self
    }

    /// Adds parameters that are encoded already.
    pub fn extend(&mut self, parameters: impl IntoIterator<Item = (String, String)>) -> &mut Self {
        self.parameters.extend(parameters);
        self
    }

    /// The body of the request.
    #[must_use]
    pub fn encoded(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(&self.parameters);
        form.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_empty_ones_left_out() {
        let mut query = Query::new("DescribeSubnets", "2016-11-15");
        query
            .set_some("NextToken", None::<String>)
            .set_some("Other", Some(""))
            .set("MaxResults", 500)
            .extend([("Filter.1.Name".to_owned(), "tag:a b".to_owned())])
            .set("Filter.1.Value.1", "1&2=*");
        assert_eq!(
            query.encoded(),
            "Action=DescribeSubnets&Version=2016-11-15&MaxResults=500&Filter.1.Name=tag%3Aa+b&Filter.1.Value.1=1%262%3D*"
        );
    }
}
