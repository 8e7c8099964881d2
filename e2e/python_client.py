#!/usr/bin/env python3
"""The client `kubernetes` from PyPI against an API server: it lists, watches, patches, applies, pages, evicts, and reads errors.

    python_client.py KUBECONFIG

The server may be `spokeshave up --bare` or any other whose objects may be thrown away; `python-client.sh` starts one.
"""

import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = NODE = "python-client"
DONE = []


def check(what, condition, shown=""):
    if not condition:
        sys.exit(f"FAILED: {what} {shown}")
    DONE.append(what)
    print(f"ok: {what}")


def refused(code, call):
    try:
        call()
    except ApiException as error:
        return error.status == code
    return False


def pod(name, node=None):
    containers = [client.V1Container(name="main", image="example.com/app:1", resources=client.V1ResourceRequirements(requests={"cpu": "0.5"}))]
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels={"app": "web"}), spec=client.V1PodSpec(containers=containers, node_name=node))


def lists(core):
    names = {namespace.metadata.name for namespace in core.list_namespace().items}
    check("namespaces are listed", {"default", "kube-system"} <= names, names)
    for index in range(7):
        core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"map-{index}", labels={"odd": str(index % 2)}), data={"key": str(index)}))
    odd = core.list_namespaced_config_map(NAMESPACE, label_selector="odd=1").items
    check("a label selector chooses", [one.metadata.name for one in odd] == ["map-1", "map-3", "map-5"], odd)
    one = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=map-4").items
    check("a field selector chooses", [item.data["key"] for item in one] == ["4"], one)
    pages, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, limit=3, _continue=token)
        pages.append([item.metadata.name for item in page.items])
        token = page.metadata._continue
        if not token:
            break
    check("pages join to the whole", sum(pages, []) == [f"map-{index}" for index in range(7)], pages)


def watches(core):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen = []

    def follow():
        for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=30):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 3:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="watched")))
    core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("watched", NAMESPACE)
    follower.join(timeout=30)
    check("a watch delivers", seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")], seen)
    try:
        for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version="1", timeout_seconds=2):
            check("an old version is followed or expired", event["type"] in ("ADDED", "MODIFIED", "DELETED"), event)
            break
    except ApiException as error:
        check("an old version is followed or expired", error.status == 410, error)


def patches(core, apps):
    # The client sends a dict as a strategic merge patch where it can, and a list as a JSON patch.
    patched = core.patch_namespaced_config_map("map-0", NAMESPACE, {"data": {"key": None, "more": "1"}})
    check("a merge patch removes and adds", patched.data == {"more": "1"}, patched.data)
    patched = core.patch_namespaced_config_map("map-0", NAMESPACE, [{"op": "replace", "path": "/data/more", "value": "2"}])
    check("a JSON patch replaces", patched.data == {"more": "2"}, patched.data)
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels={"app": "web"}), spec=pod("").spec)
    spec = client.V1DeploymentSpec(replicas=0, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template)
    apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))
    change = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example.com/side:1"}]}}}}
    patched = apps.patch_namespaced_deployment("web", NAMESPACE, change)
    images = {container.name: container.image for container in patched.spec.template.spec.containers}
    check("a strategic patch merges containers", images == {"main": "example.com/app:1", "side": "example.com/side:1"}, images)
    scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 0}})
    check("scale is a subresource", scale.spec.replicas == 0, scale)
    check("a stale replacement is a conflict", refused(409, lambda: replace_stale(core)))


def replace_stale(core):
    old = core.read_namespaced_config_map("map-1", NAMESPACE)
    core.patch_namespaced_config_map("map-1", NAMESPACE, {"data": {"key": "newer"}})
    core.replace_namespaced_config_map("map-1", NAMESPACE, old)


def applies(api):
    maps = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"key": "one"}}
    maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="first")
    body["data"]["key"] = "two"
    conflict = refused(409, lambda: maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="second"))
    check("applying over another manager is a conflict", conflict)
    applied = maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="second", force_conflicts=True)
    check("forced, it is not", applied.data.key == "two", applied)


def pods(core, policy):
    core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name=NODE)))
    created = core.create_namespaced_pod(NAMESPACE, pod("one", node=NODE))
    check("quantities are normalised", created.spec.containers[0].resources.requests == {"cpu": "500m"}, created.spec.containers[0].resources)
    core.patch_namespaced_pod_status("one", NAMESPACE, {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    budget = client.V1PodDisruptionBudget(
        metadata=client.V1ObjectMeta(name="all"), spec=client.V1PodDisruptionBudgetSpec(max_unavailable=0, selector=client.V1LabelSelector(match_labels={"app": "web"}))
    )
    policy.create_namespaced_pod_disruption_budget(NAMESPACE, budget)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="one", namespace=NAMESPACE))
    check("a budget stops an eviction with 429", refused(429, lambda: core.create_namespaced_pod_eviction("one", NAMESPACE, eviction)))
    policy.delete_namespaced_pod_disruption_budget("all", NAMESPACE)
    core.create_namespaced_pod_eviction("one", NAMESPACE, eviction)
    # A simulated kubelet may already have let it end.
    try:
        check("without it the pod ends", core.read_namespaced_pod("one", NAMESPACE).metadata.deletion_timestamp is not None)
        core.delete_namespaced_pod("one", NAMESPACE, grace_period_seconds=0)
    except ApiException as error:
        check("without it the pod ends", error.status == 404, error)
    check("and goes", refused(404, lambda: core.read_namespaced_pod("one", NAMESPACE)))
    core.delete_node(NODE)


def custom_objects(api, objects):
    extensions = client.ApiextensionsV1Api(api)
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 3, "default": 1}}}}}
    extensions.create_custom_resource_definition(
        {
            "metadata": {"name": "things.python.example.com"},
            "spec": {
                "group": "python.example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
    )
    place = ("python.example.com", "v1", NAMESPACE, "things")
    body = {"apiVersion": "python.example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {}}
    created = None
    for _ in range(50):
        try:
            created = objects.create_namespaced_custom_object(*place, body)
            break
        except ApiException as error:
            if error.status != 404:
                raise
            threading.Event().wait(0.1)
    check("a custom object gets its defaults", created and created["spec"] == {"size": 1}, created)
    wrong = refused(422, lambda: objects.patch_namespaced_custom_object(*place, "one", {"spec": {"size": 4}}))
    check("its schema is kept", wrong)
    extensions.delete_custom_resource_definition("things.python.example.com")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    api = config.new_client_from_config(config_file=sys.argv[1])
    core, apps, policy = client.CoreV1Api(api), client.AppsV1Api(api), client.PolicyV1Api(api)
    check("the version is told", client.VersionApi(api).get_code().major == "1")
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    try:
        lists(core)
        watches(core)
        patches(core, apps)
        applies(api)
        pods(core, policy)
        custom_objects(api, client.CustomObjectsApi(api))
        check("what is not there is 404", refused(404, lambda: core.read_namespaced_secret("none", NAMESPACE)))
    finally:
        core.delete_namespace(NAMESPACE)
    print(f"{len(DONE)} checks passed with kubernetes {sys.modules['kubernetes'].__version__}")


if __name__ == "__main__":
    main()
