//! Just enough of PromQL to know which series and labels a query names. It does not evaluate, and takes no query that Prometheus would refuse.

/// What a query names.
#[derive(Debug, Default, PartialEq)]
pub struct Query {
    /// Names of series, each with the labels that it is selected by.
    pub series: Vec<(String, Vec<String>)>,
    /// Labels that results are grouped or joined by.
    pub grouped: Vec<String>,
}

const OPERATORS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Sign(char),
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '.')
}

/// Words and signs, without texts in quotes, ranges in brackets and Grafana's variables, which stand for lengths of time elsewhere.
fn tokens(query: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest) = (Vec::new(), query);
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            '$' => rest[1..]
                .find(|letter| !is_word(letter))
                .map_or(rest.len(), |end| end + 1),
            letter if is_word(letter) => {
                let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                tokens.push(Token::Word(&rest[..length]));
                length
            }
            sign => {
                if !sign.is_whitespace() {
                    tokens.push(Token::Sign(sign));
                }
                sign.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// Reads a query.
pub fn read(query: &str) -> Query {
    let tokens = tokens(query);
    let mut found = Query::default();
    let mut at = 0;
    while at < tokens.len() {
        let Token::Word(word) = tokens[at] else {
            at += 1;
            continue;
        };
        at += 1;
        if GROUPINGS.contains(&word) {
            while at < tokens.len() && tokens[at] != Token::Sign(')') {
                if let Token::Word(label) = tokens[at] {
                    found.grouped.push(label.to_owned());
                }
                at += 1;
            }
            continue;
        }
        let next = tokens.get(at);
        let is_call = next == Some(&Token::Sign('('))
            || matches!(next, Some(Token::Word(following)) if GROUPINGS.contains(following));
        let is_name = word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        if is_call || !is_name || OPERATORS.contains(&word) {
            continue;
        }
        let mut labels = Vec::new();
        if next == Some(&Token::Sign('{')) {
            while at < tokens.len() && tokens[at] != Token::Sign('}') {
                if let Token::Word(label) = tokens[at] {
                    labels.push(label.to_owned());
                }
                at += 1;
            }
        }
        found.series.push((word.to_owned(), labels));
    }
    found
}

#[test]
fn p_207_queries_are_read() {
    let query = "histogram_quantile(0.9, sum by (le, pool) (rate(a_bucket{x=\"y(z\",w!~\"$v\"}[5m]))) / on (pool) b > 3.5 and sum(c offset $__rate_interval) by (d) == 0";
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let wanted = Query {
        series: vec![
            ("a_bucket".to_owned(), words(&["x", "w"])),
            ("b".to_owned(), Vec::new()),
            ("c".to_owned(), Vec::new()),
        ],
        grouped: words(&["le", "pool", "pool", "d"]),
    };
    assert_eq!(read(query), wanted);
}
