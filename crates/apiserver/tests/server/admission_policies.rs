//! ValidatingAdmissionPolicies: who is concerned, what is refused, and in which words.

use crate::client::{Client, DEFINITIONS, MAPS, MERGE, PODS, pod, widgets};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A policy about ConfigMaps.
fn policy(name: &str, spec: Value) -> Value {
    let mut whole = json!({"matchConstraints": {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]}});
    for (key, value) in spec.as_object().expect("a spec") {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": whole})
}

fn binding(policy: &str, actions: &[&str]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": format!("{policy}-binding")},
           "spec": {"policyName": policy, "validationActions": actions}})
}

fn validations(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

async fn with(policies: &[(Value, &[&str])]) -> Client {
    let client = Client::new();
    for (policy, actions) in policies {
        client.post(POLICIES, policy.clone()).await.ok();
        let name = policy["metadata"]["name"].as_str().expect("a name");
        client.post(BINDINGS, binding(name, actions)).await.ok();
    }
    client
}

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_policy_refuses_in_a_real_servers_words() {
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("few", validations("size(object.data) <= 1")), deny)]).await;
    client.post(MAPS, map("a", json!({"x": "1"}))).await.ok();
    let refusal = client.post(MAPS, map("b", json!({"x": "1", "y": "2"}))).await;
    let status = refusal.refused(422, "Invalid");
    let sentence = "ValidatingAdmissionPolicy 'few' with binding 'few-binding' denied request: failed expression: size(object.data) <= 1";
    assert_eq!(
        status["message"],
        format!("configmaps \"b\" is forbidden: {sentence}")
    );
    assert_eq!(status["details"]["causes"], json!([{"message": sentence}]));
    assert!(!client.exists(&format!("{MAPS}/b")).await);
    let patch = client
        .patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"y": "2"}}))
        .await;
    patch.refused(422, "Invalid");
    client.post(PODS, pod("other", json!({}))).await.ok();
    // Without its binding, and without itself, it is as if it were not there.
    client.delete(&format!("{BINDINGS}/few-binding")).await.ok();
    client
        .post(MAPS, map("b", json!({"x": "1", "y": "2"})))
        .await
        .ok();
}

#[tokio::test]
async fn messages_and_reasons_are_the_policys() {
    let rules = json!({"validations": [
        {"expression": "!('secret' in object.data)", "message": "no secrets here", "reason": "Forbidden"},
        {"expression": "object.data.x == '1'", "messageExpression": "'x is ' + object.data.x + ' in ' + object.metadata.namespace", "reason": "Unauthorized"}]});
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("words", rules), deny)]).await;
    let status = client
        .post(MAPS, map("a", json!({"secret": "s", "x": "1"})))
        .await
        .refused(403, "Forbidden");
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.ends_with("denied request: no secrets here"))
    );
    let status = client
        .post(MAPS, map("a", json!({"x": "2"})))
        .await
        .refused(401, "Unauthorized");
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.ends_with("denied request: x is 2 in default")),
        "{status}"
    );
}

#[tokio::test]
async fn messages_name_keys_in_their_order() {
    let rules = json!({"validations": [{"expression": "size(object.data) < 6", "messageExpression": "object.data.map(key, key).join(' ')"}]});
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("few", rules), deny)]).await;
    let many = json!({"e": "", "b": "", "f": "", "a": "", "d": "", "c": ""});
    let status = client.post(MAPS, map("a", many)).await.refused(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.ends_with("denied request: a b c d e f")),
        "{status}"
    );
}

#[tokio::test]
async fn warnings_do_not_refuse_and_unbound_policies_say_nothing() {
    let (warn, audit): (&[&str], &[&str]) = (&["Warn"], &["Audit"]);
    let never = || validations("false");
    let client = with(&[
        (policy("warned", never()), warn),
        (policy("audited", never()), audit),
    ])
    .await;
    client.post(POLICIES, policy("unbound", never())).await.ok();
    let answer = client.post(MAPS, map("a", json!({}))).await;
    assert_eq!(answer.code, 201);
    let text = "Validation failed for ValidatingAdmissionPolicy 'warned' with binding 'warned-binding': failed expression: false";
    assert_eq!(answer.warnings, [format!("299 - \"{text}\"")]);
    let next = client.post(PODS, pod("other", json!({}))).await;
    assert!(next.warnings.is_empty(), "{:?}", next.warnings);
}

#[tokio::test]
async fn conditions_and_variables_decide_what_is_judged() {
    let rules = json!({
        "matchConditions": [{"name": "marked", "expression": "has(object.metadata.labels) && 'judged' in object.metadata.labels"}],
        "variables": [{"name": "count", "expression": "size(object.data)"}, {"name": "enough", "expression": "variables.count >= 2"},
                      {"name": "broken", "expression": "object.nothing.at.all"}],
        "validations": [{"expression": "variables.enough", "messageExpression": "'only ' + string(variables.count)"}]});
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("rules", rules), deny)]).await;
    client.post(MAPS, map("free", json!({"x": "1"}))).await.ok();
    let mut judged = map("judged", json!({"x": "1"}));
    judged["metadata"]["labels"] = json!({"judged": ""});
    let status = client.post(MAPS, judged.clone()).await.refused(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.ends_with("only 1")),
        "{status}"
    );
    judged["data"]["y"] = json!("2");
    client.post(MAPS, judged).await.ok();
}

#[tokio::test]
async fn what_cannot_be_evaluated_fails_unless_it_may_be_ignored() {
    let broken = "object.data.missing == '1'";
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("strict", validations(broken)), deny)]).await;
    let status = client
        .post(MAPS, map("a", json!({"x": "1"})))
        .await
        .refused(422, "Invalid");
    let text = status["message"].as_str().unwrap_or_default();
    assert!(
        text.contains(&format!(
            "expression '{broken}' resulted in error: no such key: missing"
        )),
        "{text}"
    );
    client
        .patch(
            &format!("{POLICIES}/strict"),
            MERGE,
            json!({"spec": {"failurePolicy": "Ignore"}}),
        )
        .await
        .ok();
    client.post(MAPS, map("a", json!({"x": "1"}))).await.ok();
}

#[tokio::test]
async fn selectors_rules_and_the_binding_narrow_it() {
    let mut rules = validations("false");
    rules["matchConstraints"] = json!({
        "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["configmaps", "namespaces"]}],
        "excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "resourceNames": ["spared"]}],
        "objectSelector": {"matchLabels": {"kind": "odd"}}});
    let client = Client::new();
    client.post(POLICIES, policy("narrow", rules)).await.ok();
    let mut bound = binding("narrow", &["Deny"]);
    bound["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}});
    client.post(BINDINGS, bound).await.ok();
    client
        .post(
            "/api/v1/namespaces",
            json!({"metadata": {"name": "shop", "labels": {"kind": "odd"}}}),
        )
        .await
        .ok();
    let labelled = |name: &str| json!({"metadata": {"name": name, "labels": {"kind": "odd"}}});
    client.post(MAPS, map("even", json!({}))).await.ok();
    client.post(MAPS, labelled("spared")).await.ok();
    client
        .post("/api/v1/namespaces/shop/configmaps", labelled("elsewhere"))
        .await
        .ok();
    client.post(MAPS, labelled("odd")).await.refused(422, "Invalid");
}

#[tokio::test]
async fn updates_deletions_and_subresources_are_judged_as_what_they_are() {
    let rule = |operations: Value, resources: Value| json!({"resourceRules": [{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": operations, "resources": resources}]});
    let (mut frozen, mut kept, mut small) = (
        validations("request.operation != 'UPDATE' || object.spec.replicas >= oldObject.spec.replicas"),
        validations(
            "object == null && oldObject.metadata.name != 'kept' && request.name == oldObject.metadata.name",
        ),
        validations(
            "request.subResource == 'scale' && request.kind.kind == 'Scale' && object.spec.replicas <= 3",
        ),
    );
    frozen["matchConstraints"] = rule(json!(["*"]), json!(["deployments"]));
    kept["matchConstraints"] = rule(json!(["DELETE"]), json!(["configmaps"]));
    small["matchConstraints"] = rule(json!(["UPDATE"]), json!(["*/scale"]));
    let deny: &[&str] = &["Deny"];
    let client = with(&[
        (policy("frozen", frozen), deny),
        (policy("kept", kept), deny),
        (policy("small", small), deny),
    ])
    .await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    client.post(deployments, web).await.ok();
    let path = format!("{deployments}/web");
    client
        .patch(&path, MERGE, json!({"spec": {"replicas": 1}}))
        .await
        .refused(422, "Invalid");
    let scale = |count: i64| json!({"spec": {"replicas": count}});
    client.patch(&format!("{path}/scale"), MERGE, scale(3)).await.ok();
    client
        .patch(&format!("{path}/scale"), MERGE, scale(4))
        .await
        .refused(422, "Invalid");
    for name in ["kept", "free"] {
        client.post(MAPS, map(name, json!({}))).await.ok();
    }
    client
        .delete(&format!("{MAPS}/kept"))
        .await
        .refused(422, "Invalid");
    client.delete(&format!("{MAPS}/free")).await.ok();
    client.delete(MAPS).await.refused(422, "Invalid");
    assert!(client.exists(&format!("{MAPS}/kept")).await);
}

#[tokio::test]
async fn parameters_come_from_the_binding() {
    let mut rules = validations("size(object.data) <= int(params.data.most)");
    rules["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    rules["matchConditions"] = json!([{"name": "others", "expression": "object.metadata.name != 'limits'"}]);
    let client = Client::new();
    client.post(MAPS, map("limits", json!({"most": "2"}))).await.ok();
    client.post(POLICIES, policy("limited", rules)).await.ok();
    let mut bound = binding("limited", &["Deny"]);
    bound["spec"]["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    client.post(BINDINGS, bound).await.ok();
    client
        .post(MAPS, map("a", json!({"x": "1", "y": "2"})))
        .await
        .ok();
    client
        .post(MAPS, map("b", json!({"x": "1", "y": "2", "z": "3"})))
        .await
        .refused(422, "Invalid");
    client.delete(&format!("{MAPS}/limits")).await.ok();
    let status = client
        .post(MAPS, map("c", json!({})))
        .await
        .refused(422, "Invalid");
    let text = status["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("failed to configure binding: no params found"),
        "{text}"
    );
}

#[tokio::test]
async fn custom_kinds_and_their_namespaces_are_judged_too() {
    let mut rules = validations("object.spec.size < 5 && namespaceObject.metadata.name == request.namespace");
    rules["matchConstraints"] = json!({"resourceRules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]});
    let deny: &[&str] = &["Deny"];
    let client = with(&[(policy("widgets", rules), deny)]).await;
    client.post(DEFINITIONS, widgets()).await.ok();
    let widget = |name: &str, size: i64| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}});
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    client.post(path, widget("small", 4)).await.ok();
    let status = client
        .post(path, widget("large", 6))
        .await
        .refused(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("widgets.example.com \"large\" is forbidden: "))
    );
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused_by_the_field() {
    let client = Client::new();
    for (spec, field) in [
        (validations("object.data =="), "spec.validations[0].expression"),
        (
            validations("authorizer.group('').resource('pods').check('get').allowed()"),
            "spec.validations[0].expression",
        ),
        (validations("params.x == 1"), "spec.validations[0].expression"),
        (
            json!({"validations": [{"expression": "true", "reason": "Teapot"}]}),
            "spec.validations[0].reason",
        ),
        (
            json!({"validations": [{"expression": "true"}], "failurePolicy": "Maybe"}),
            "spec.failurePolicy",
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": []}}),
            "spec.matchConstraints.resourceRules",
        ),
        (json!({}), "spec.validations"),
    ] {
        let status = client
            .post(POLICIES, policy("bad", spec.clone()))
            .await
            .refused(422, "Invalid");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{spec}");
    }
    let status = client
        .post(BINDINGS, binding("x", &["Deny", "Warn"]))
        .await
        .refused(422, "Invalid");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.validationActions");
    client
        .post(POLICIES, policy("good", validations("false")))
        .await
        .ok();
    let stored = client.get(&format!("{POLICIES}/good")).await.ok();
    assert_eq!(stored["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
    assert_eq!(stored["status"]["observedGeneration"], 1);
    client.delete(&format!("{POLICIES}/good")).await.ok();
}

/// The idioms of the documentation, on objects that lack what they ask for.
#[tokio::test]
async fn what_an_object_may_lack_is_asked_for_by_optionals() {
    let both = "object.metadata.?annotations[?'tier'].orValue('') != 'gold' && oldObject.?data.orValue({}).size() == 0";
    let pairs = "object.?data.orValue({}).all(k, v, v.size() <= 3 && k != '')";
    let deny: &[&str] = &["Deny"];
    let client = with(&[
        (policy("optional", validations(both)), deny),
        (policy("pairs", validations(pairs)), deny),
    ])
    .await;
    client
        .post(MAPS, json!({"metadata": {"name": "bare"}}))
        .await
        .ok();
    client.post(MAPS, map("short", json!({"x": "äöü"}))).await.ok();
    client
        .post(MAPS, map("long", json!({"x": "abcd"})))
        .await
        .refused(422, "Invalid");
    let mut gold = map("gold", json!({}));
    gold["metadata"]["annotations"] = json!({"tier": "gold"});
    client.post(MAPS, gold).await.refused(422, "Invalid");
}

#[tokio::test]
async fn names_that_stand_for_nothing_are_refused_when_the_policy_is_made() {
    let client = Client::new();
    for (expression, name) in [
        ("objct.data.x == '1'", "objct"),
        ("object.data.nonsense(1)", "nonsense"),
        ("cel.bind(x, object, x) == x", "cel"),
    ] {
        let status = client
            .post(POLICIES, policy("bad", validations(expression)))
            .await
            .refused(422, "Invalid");
        let message = status["message"].as_str().unwrap_or_default();
        let expected = format!("undeclared reference to '{name}' (in container '')");
        assert!(message.contains(&expected), "{expression}: {message}");
    }
}
