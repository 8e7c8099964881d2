//! Requirements that came of several on one key: whether a node without the label satisfies them, and how they are written.

use spokeshave_model::{Operator, Requirement};

fn requirement(operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new("key", operator, values.iter().copied())
}

#[test]
fn p_031_what_demanded_the_label_is_not_satisfied_by_its_absence() {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    let exists = requirement(Exists, &[]);
    let not_in = |value| requirement(NotIn, &[value]);
    for (left, right, contradicts) in [
        (exists.clone(), not_in("a"), false),
        (requirement(Gt, &["3"]), not_in("8"), false),
        (requirement(In, &["a"]), requirement(In, &["b"]), true),
        (requirement(In, &["a"]), not_in("a"), true),
        (requirement(Gt, &["8"]), requirement(Lt, &["3"]), true),
        (exists, requirement(DoesNotExist, &[]), true),
    ] {
        let both = left.intersection(&right);
        assert!(!both.is_satisfied_by_absence(), "{both}");
        assert_eq!(both.is_contradiction(), contradicts, "{both}");
    }
    let absent = not_in("a").intersection(&requirement(DoesNotExist, &[]));
    assert!(absent.is_satisfied_by_absence() && !absent.is_contradiction());
    assert!(!requirement(Gt, &["9223372036854775807"]).is_satisfied_by_absence());
}

#[test]
fn p_039_what_demanded_the_label_is_written_as_upstream_writes_it_and_read_again() {
    let both = requirement(Operator::Exists, &[]).intersection(&requirement(Operator::NotIn, &["gpu"]));
    assert_eq!(both.to_string(), "key NotIn [gpu]");
    assert_eq!(
        both.to_entries(),
        [(Operator::NotIn, vec!["gpu".to_owned()], None)]
    );
    let plain = requirement(Operator::NotIn, &["gpu"]);
    assert_ne!(both, plain, "they are not interned as one");
    for one in [both, plain] {
        let text = serde_json::to_string(&one).expect("text");
        assert_eq!(
            serde_json::from_str::<Requirement>(&text).expect("a requirement"),
            one
        );
    }
}
