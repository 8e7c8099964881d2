//! Expressions as Kubernetes documents them, on an object with and without the fields that they ask for; and what is refused by name.

use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};

use super::cel_functions::with_functions;
use super::cel_values::open;
use super::rule_types::undeclared;
use super::rules::{compile, error_text, parse};

fn object() -> Value {
    json!({"data": {"a": "1"}, "empty": {}, "nothing": null, "text": "äöü", "list": [{"name": "x", "n": 1}, {"name": "y"}]})
}

fn value(source: &str) -> Result<Cel, String> {
    let expression = compile(source, &[]).ok_or("it does not parse")?;
    with_functions(|functions| {
        let mut context = functions.new_inner_scope();
        context.add_variable_from_value("object", open(&object()));
        context.resolve(&expression).map_err(|error| error_text(&error))
    })
}

fn assert_true(sources: &[&str]) {
    for source in sources {
        let undeclared = undeclared(&parse(source).expect(source), source, &["object"]);
        assert_eq!(undeclared, None, "{source}");
        assert_eq!(value(source), Ok(Cel::Bool(true)), "{source}");
    }
}

#[test]
fn what_may_be_missing_is_an_optional() {
    assert_true(&[
        "object.?missing.orValue(0) == 0",
        "object.?data.a.orValue('z') == '1'",
        "object.?data.b.orValue('z') == 'z'",
        "object.?missing.a.orValue('z') == 'z'",
        "object.?data.?b.hasValue() == false",
        "object.?empty.?x.orValue(1) == 1",
        "object.data[?'b'].orValue('c') == 'c'",
        "object.?data['b'].orValue('c') == 'c'",
        "object.list[?5].hasValue() == false && object.?list[1].name.orValue('') == 'y'",
        "object.nothing.?x.orValue(1) == 1 && object.?nothing.x.orValue(1) == 1",
        "has(object.?data.a) && !has(object.?data.b) && !has(object.?missing.b)",
        "object.?missing == optional.none() && object.?data.a == optional.of('1')",
        "object.?data.a != optional.of('2')",
        "[?object.?data.a, ?object.?data.b] == ['1']",
        "optional.unwrap([optional.of(1), optional.none()]) == [1]",
    ]);
}

#[test]
fn macros_over_optionals_and_over_keys_with_values_mean_what_they_do() {
    assert_true(&[
        "object.?data.a.optMap(x, x + '0').orValue('') == '10'",
        "!object.?data.b.optMap(x, x + '0').hasValue()",
        "object.?data.optFlatMap(d, d[?'a']).orValue('') == '1'",
        "!object.?data.optFlatMap(d, d[?'b']).hasValue()",
        "object.data.all(k, v, k == 'a' && v == '1') && object.empty.all(k, v, false)",
        "object.list.exists(i, v, i == 1 && v.name == 'y') && !object.list.exists(i, v, i == 2)",
        "object.list.existsOne(i, v, has(v.n)) && object.list.exists_one(i, v, v.name == 'x')",
        "!object.list.existsOne(i, v, has(v.name))",
        "object.list.transformList(i, v, v.name) == ['x', 'y']",
        "object.list.transformList(i, v, i > 0, v.name) == ['y']",
        "object.data.transformMap(k, v, v + '!') == {'a': '1!'}",
        "object.list.transformMap(i, v, i > 0, v.name) == {1: 'y'}",
        "object.list.transformMapEntry(i, v, {v.name: i}) == {'x': 0, 'y': 1}",
        "[[1, 2], [3]].all(i, row, row.all(j, n, n > i + j))",
    ]);
}

#[test]
fn macros_go_through_maps_in_the_order_of_their_keys() {
    assert_true(&[
        "{'d': 1, 'b': 2, 'a': 3, 'e': 4, 'c': 5}.map(k, k) == ['a', 'b', 'c', 'd', 'e']",
        "{'d': 1, 'b': 2, 'a': 3, 'e': 4, 'c': 5}.map(k, k != 'c', k + '!') == ['a!', 'b!', 'd!', 'e!']",
        "{'d': 1, 'b': 2, 'a': 3, 'e': 4, 'c': 5}.filter(k, k != 'c') == ['a', 'b', 'd', 'e']",
        "{3: 'x', 1: 'y', 5: 'z', 2: 'x', 4: 'y'}.map(k, k) == [1, 2, 3, 4, 5]",
        "[{'d': 1, 'b': 2, 'a': 3, 'e': 4, 'c': 5}].all(m, m.map(k, m[k]) == [3, 2, 5, 1, 4])",
        "{'m': {'d': 1, 'b': 2, 'a': 3, 'c': 4}}.m.map(k, k) == ['a', 'b', 'c', 'd']",
        "object.list.map(i, i.map(k, k)) == [['n', 'name'], ['name']]",
        "object.data.all(k, object.data[k] == '1') && object.data.exists_one(k, k == 'a') && !object.empty.exists(k, true)",
        "object.list.filter(i, has(i.n)).map(i, i.n) == [1]",
    ]);
}

#[test]
fn numbers_of_two_types_may_be_equal_and_signs_cancel_out() {
    assert_true(&[
        "dyn(1) == 1.0 && 1u == dyn(1) && dyn(2.0) != 1 && dyn(-1.0) == -1",
        "object.list[0].n == 1.0 && object.list[0].n != 1.5 && dyn('1') != 1",
        "object.list.map(i, has(i.n), i.n)[0] == 1u",
        "--1 == 1 && ---1 == -1 && 3--1 == 4 && 3 - --1 == 2",
        "object.list.all(i, !has(i.n) || --i.n == 1)",
    ]);
}

#[test]
fn sizes_conversions_and_times_are_a_real_servers() {
    assert_true(&[
        "size('äöü') == 3 && object.text.size() == 3 && object.list.size() == 2",
        "dyn(1) == 1 && bool('true') && !bool('f') && int('3') == 3",
        "string(true) == 'true' && string(1) == '1' && string(ip('10.0.0.1')) == '10.0.0.1'",
        "string(duration('90s')) == '90s' && string(duration('500ms')) == '0.5s'",
        "string(timestamp('2024-01-01T00:00:00.500Z')) == '2024-01-01T00:00:00.5Z'",
        "timestamp(5) == timestamp('1970-01-01T00:00:05Z') && int(timestamp(5)) == 5",
        "duration(duration('1m')) == duration('60s') && timestamp(timestamp(0)) == timestamp(0)",
        "timestamp('2024-01-01T00:00:00Z').getHours('-05:00') == 19",
        "timestamp('2024-01-01T00:00:00Z').getDate('-05:00') == 31",
        "timestamp('2024-01-01T00:00:00Z').getFullYear('-05:00') == 2023",
        "timestamp('2024-07-01T00:30:00Z').getHours('Europe/Berlin') == 2",
        "timestamp('2024-01-01T00:00:00+02:00').getHours() == 22",
        "timestamp('2024-12-31T00:00:00Z').getDayOfYear() == 365",
        "timestamp('2024-12-31T00:00:00Z').getDayOfWeek() == 2",
        "timestamp('2024-12-31T00:00:00Z').getMonth() == 11",
        "duration('90m').getHours() == 1 && duration('90m').getMinutes() == 90",
        "!format.named('dns1123Label').value().validate('ok').hasValue()",
        "format.named('dns1123Label').value().validate('_').hasValue()",
        "!format.named('nonsense').hasValue()",
        "!!has(object.data) && !!!has(object.missing)",
        "type(timestamp(0)) == google.protobuf.Timestamp && type('a') == string",
    ]);
}

#[test]
fn what_cannot_be_evaluated_is_an_error_and_not_false() {
    for (source, problem) in [
        ("object.missing == 1", "no such key: missing"),
        ("object.text.x == 1", "no such overload"),
        ("object.nothing.x == 1", "no such overload"),
        ("object.list.x == 1", "no such overload"),
        (
            "timestamp(0).getHours('Nowhere/Town') == 0",
            "unknown time zone Nowhere/Town",
        ),
        (
            "object.list.transformMapEntry(i, v, {'same': i}).size() == 1",
            "insert failed: key same already exists",
        ),
        (
            "object.list.transformMapEntry(i, v, {'e': i, 'd': i, 'c': i, 'b': i, 'a': i}).size() == 5",
            "insert failed: key a already exists",
        ),
        (
            "{'e': 1, 'b': 2, 'a': 3, 'd': 4, 'c': 5}.all(k, {'z': 'y'}[k] == 'y')",
            "no such key: a",
        ),
        ("object.?data.all(k, true)", "no such overload"),
    ] {
        assert_eq!(value(source), Err(problem.to_owned()), "{source}");
    }
}

#[test]
fn what_there_is_not_is_refused_by_name() {
    for (source, name, place) in [
        ("objct.data == {}", "objct", "1:1"),
        ("object.data.foo() == 1", "foo", "1:16"),
        ("foo(object)", "foo", "1:4"),
        ("object.data.all(k, v, w, true)", "all", "1:16"),
        ("Thing{a: 1}.a == 1", "Thing", "1:6"),
    ] {
        let parsed = parse(source).expect(source);
        let problem = undeclared(&parsed, source, &["object"]).expect(source);
        let first = problem.lines().next().unwrap_or_default();
        let expected = format!("ERROR: <input>:{place}: undeclared reference to '{name}' (in container '')");
        assert_eq!(first, expected, "{source}");
    }
    for (source, problem) in [
        ("object.data.all(1, v, true)", "argument must be a simple name"),
        ("object.data.all(k, k, true)", "duplicate variable name"),
        ("object.?data.optMap(1, true)", "argument must be a simple name"),
    ] {
        let refusal = parse(source).expect_err(source);
        assert!(refusal.contains(problem), "{source}: {refusal}");
    }
}
