//! The syntax of names and labels, and Kubernetes' messages about violations.

/// What a name like that of most objects must be.
pub const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// What a name like that of a container must be.
pub const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Longest label value, and longest name in a label key, in bytes.
const LONGEST_LABEL: usize = 63;
/// Longest prefix of a label key, in bytes.
const LONGEST_PREFIX: usize = 253;

/// True for a label of a DNS name, whatever its length.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Why a text is not the key of a label or an annotation (an optional DNS prefix and `/`, then a name of at most 63 bytes), in Kubernetes' words.
#[must_use]
pub fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            prefix_problems(prefix, &mut problems);
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED_NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_LABEL {
        problems.push(format!("name part must be no more than {LONGEST_LABEL} bytes"));
    }
    if !is_label_text(name) {
        problems.push(format!("name part {QUALIFIED_NAME}"));
    }
    problems
}

fn prefix_problems(prefix: &str, problems: &mut Vec<String>) {
    if prefix.is_empty() {
        problems.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > LONGEST_PREFIX {
        problems.push(format!("prefix part must be no more than {LONGEST_PREFIX} bytes"));
    }
    if !prefix.split('.').all(is_dns_label) {
        problems.push(format!("prefix part {SUBDOMAIN}"));
    }
}

/// Why a text is not the value of a label (empty, or a name of at most 63 bytes), in Kubernetes' words.
#[must_use]
pub fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_LABEL {
        problems.push(format!("must be no more than {LONGEST_LABEL} bytes"));
    }
    if !text.is_empty() && !is_label_text(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels() {
        for good in ["a", "a.b_c-D", "example.com/a", "kubernetes.io/os", "1/1"] {
            assert_eq!(qualified_name_problems(good), [""; 0], "{good}");
        }
        for (bad, expected) in [
            ("", "non-empty"),
            ("/a", "prefix part must be non-empty"),
            ("a/", "name part must be non-empty"),
            ("a/b/c", "with an optional DNS subdomain prefix"),
            ("-a", "name part must consist"),
            ("Upper.com/a", "prefix part a lowercase RFC 1123 subdomain"),
            ("a b", "name part must consist"),
        ] {
            let problems = qualified_name_problems(bad).join("; ");
            assert!(problems.contains(expected), "{bad}: {problems}");
        }
        let long = "a".repeat(64);
        assert!(qualified_name_problems(&long)[0].contains("no more than 63 bytes"));
        let prefix = format!("{}/a", vec!["a".repeat(60); 5].join("."));
        assert!(qualified_name_problems(&prefix)[0].contains("no more than 253 bytes"));
    }

    #[test]
    fn values_of_labels() {
        for good in ["", "a", "A.b_c-9"] {
            assert_eq!(label_value_problems(good), [""; 0], "{good}");
        }
        for bad in ["-a", "a-", "a b", "é"] {
            assert!(
                label_value_problems(bad)[0].contains("a valid label must be"),
                "{bad}"
            );
        }
        assert!(label_value_problems(&"a".repeat(64))[0].contains("63"));
    }
}
