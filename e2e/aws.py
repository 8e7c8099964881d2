#!/usr/bin/env python3
"""A cluster on AWS, from a Deployment to nothing: the shipped operator against an emulated AWS (moto) and the embedded API server.

    e2e/moto.sh target/moto-venv/bin/python e2e/aws.py --kubeconfig FILE --spokeshave PROGRAM [--log FILE]

Applies an EC2NodeClass and a NodePool as people write them, scales a Deployment, sees tagged instances, lets a Node join for each as a machine would,
changes the image and sees drift roll, tells of a spot interruption through EventBridge and SQS, and deletes everything. Prints what it checked; the
first thing that is not so ends it.

What moto does otherwise than EC2, and what follows: it launches the first place of a fleet whatever it costs; instances on demand have no security
groups, which would be drift, so that the NodePool asks for spot; it has no prices, so that those of the program count. Once the account is prepared, moto
checks signatures and permissions: the operator's key may do what deploy/aws/controller-policy.json allows. Of its statements the actions count; conditions
and resources moto does not know for most calls.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from botocore.exceptions import ClientError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import PATIENCE  # noqa: E402
from scenario import CLAIMS, DEPLOYMENTS, NODES, POOLS, PODS, Cluster, Wrong, condition  # noqa: E402

NAME = "e2e"
CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
DISCOVERY = "karpenter.sh/discovery"
LIVE = ["pending", "running", "stopping", "stopped", "shutting-down"]
POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../deploy/aws/controller-policy.json")
START = time.monotonic()


def say(text):
    print(f"ok   {time.monotonic() - START:6.1f} s  {text}", flush=True)


def until(what, check, seconds=120):
    """The first value of `check` that is not nothing. PATIENCE multiplies how long, for machines that are busy with something else."""
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            value = check()
            if value:
                return value
        except Wrong as error:
            last = error
        time.sleep(0.5)
    raise Wrong(f"not within {seconds:.0f} s: {what}" + (f" ({last})" if last else ""))


class Account:
    """What somebody has at AWS before the operator is installed."""

    def __init__(self):
        region = os.environ["AWS_REGION"]
        # A session of its own: the default one keeps the first key that it has found.
        session = boto3.session.Session()
        self.ec2, self.iam, self.ssm, self.sqs, self.events, self.eks = (
            session.client(service, region_name=region) for service in ("ec2", "iam", "ssm", "sqs", "events", "eks")
        )

    def prepare(self):
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        for role in (f"KarpenterNodeRole-{NAME}", "cluster"):
            self.iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
        subnets = self.ec2.describe_subnets()["Subnets"]
        groups = self.ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["default"]}])["SecurityGroups"]
        things = [subnet["SubnetId"] for subnet in subnets] + [group["GroupId"] for group in groups]
        self.ec2.create_tags(Resources=things, Tags=[{"Key": DISCOVERY, "Value": NAME}])
        role = self.iam.get_role(RoleName="cluster")["Role"]["Arn"]
        network = {"subnetIds": [subnet["SubnetId"] for subnet in subnets][:2]}
        self.eks.create_cluster(name=NAME, roleArn=role, resourcesVpcConfig=network)
        queue = self.sqs.create_queue(QueueName=NAME)["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
        self.events.put_rule(Name="spot", EventPattern=json.dumps(pattern))
        self.events.put_targets(Rule="spot", Targets=[{"Id": "queue", "Arn": arn}])
        images = self.ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"]
        return sorted(image["ImageId"] for image in images)[:2]

    def close(self):
        """From here on every call needs a key and a permission; ours has all. The key of the operator, as variables."""
        with open(POLICY, encoding="utf-8") as file:
            allowed = [{"Effect": one["Effect"], "Action": one["Action"], "Resource": "*"} for one in json.load(file)["Statement"]]
        everything = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        keys = [self.user(name, statements) for name, statements in (("owner", everything), ("controller", allowed))]
        closed = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"] + "/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"})
        urllib.request.urlopen(closed, timeout=10 * PATIENCE).close()
        os.environ.update(keys[0])
        self.__init__()
        key = keys[1]
        client = boto3.client("ec2", region_name=os.environ["AWS_REGION"], aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
                              aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"])
        client.describe_subnets()
        try:
            client.describe_vpcs()
        except ClientError:
            return key
        raise Wrong("moto allows the operator's key what its policy lacks")

    def user(self, name, statements):
        self.iam.create_user(UserName=name)
        self.iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements}))
        key = self.iam.create_access_key(UserName=name)["AccessKey"]
        return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def instances(self):
        filters = [{"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]}, {"Name": "instance-state-name", "Values": LIVE}]
        pages = self.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        return [one for page in pages for reservation in page["Reservations"] for one in reservation["Instances"]]

    def interrupt(self, instance):
        detail = json.dumps({"instance-id": instance, "instance-action": "terminate"})
        entry = {"Source": "aws.ec2", "DetailType": "EC2 Spot Instance Interruption Warning", "Detail": detail}
        self.events.put_events(Entries=[entry])

    def left(self):
        templates = self.ec2.describe_launch_templates()["LaunchTemplates"]
        profiles = self.iam.list_instance_profiles()["InstanceProfiles"]
        return {
            "instances": [one["InstanceId"] for one in self.instances()],
            "launch templates": [one["LaunchTemplateName"] for one in templates],
            "instance profiles": [one["InstanceProfileName"] for one in profiles],
        }


def tags_of(thing):
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", [])}


def machines(cluster, account, stop):
    """For every instance that runs, a Node joins, as its kubelet would make it."""
    known = set()
    while not stop.wait(1):
        try:
            claims = {(claim.get("status") or {}).get("providerID"): claim for claim in cluster.items(CLAIMS)}
            for instance in account.instances():
                identity = instance["InstanceId"]
                provider_id = f"aws:///{instance['Placement']['AvailabilityZone']}/{identity}"
                claim = claims.get(provider_id)
                if identity in known or claim is None or instance["State"]["Name"] != "running":
                    continue
                known.add(identity)
                cluster.call("POST", NODES, node_of(instance, provider_id, claim["status"]), accepted=(200, 201, 409))
        except (Wrong, OSError):
            continue


def node_of(instance, provider_id, status):
    name = instance["PrivateDnsName"]
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": provider_id, "taints": [taint]},
        "status": {"capacity": status.get("capacity"), "allocatable": status.get("allocatable")},
    }


def node_class(image):
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "role": f"KarpenterNodeRole-{NAME}",
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"id": image}],
            "subnetSelectorTerms": [{"tags": {DISCOVERY: NAME}}],
            "securityGroupSelectorTerms": [{"tags": {DISCOVERY: NAME}}],
        },
    }


def node_pool():
    requirements = [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"requirements": requirements, "nodeClassRef": reference, "expireAfter": "720h"}},
            "limits": {"cpu": 1000},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10s", "budgets": [{"nodes": "50%"}]},
        },
    }


def deployment(replicas):
    container = {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 3, "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": {"app": "web"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "topologySpreadConstraints": [spread]},
            },
        },
    }


def running(cluster, replicas):
    pods = cluster.pods()
    up = [pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]]
    return len(up) == replicas and len(pods) == replicas


def story(cluster, account, images):
    first, second = images
    cluster.apply(CLASSES, "default", node_class(first))
    cluster.apply(POOLS, "default", node_pool())
    ready = until("EC2NodeClass Ready", lambda: condition(cluster.call("GET", f"{CLASSES}/default"), "Ready") == "True")
    status = cluster.call("GET", f"{CLASSES}/default")["status"]
    say(f"EC2NodeClass is Ready: {ready}, {len(status['subnets'])} subnets, profile {status['instanceProfile']}")
    until("NodePool Ready", lambda: condition(cluster.call("GET", f"{POOLS}/default"), "Ready") == "True")
    cluster.apply(DEPLOYMENTS, "web", deployment(12))
    until("12 pods run", lambda: running(cluster, 12), 60)
    instances = account.instances()
    for instance in instances:
        tags = tags_of(instance)
        expected = {f"kubernetes.io/cluster/{NAME}": "owned", "eks:eks-cluster-name": NAME, "karpenter.sh/nodepool": "default"}
        wrong = {key: value for key, value in expected.items() if tags.get(key) != value}
        if wrong or instance["ImageId"] != first:
            raise Wrong(f"instance {instance['InstanceId']}: image {instance['ImageId']}, tags {tags}; expected {expected}")
    say(f"12 pods run on {len(instances)} instances, each with image and tags: {sorted(one['InstanceType'] for one in instances)}")
    until("every instance has its Name", lambda: all("Name" in tags_of(one) for one in account.instances()), 60)
    say("every instance is tagged with the name of its Node")

    cluster.apply(CLASSES, "default", node_class(second))
    moved = lambda: {one["ImageId"] for one in account.instances()} == {second} and running(cluster, 12)  # noqa: E731
    until("all nodes have the new image", moved, 300)
    say("another image: every node was replaced, all pods run")

    victim = next(one for one in account.instances() if one["State"]["Name"] == "running")
    begun = time.monotonic()
    account.interrupt(victim["InstanceId"])
    gone = lambda: victim["InstanceId"] not in {one["InstanceId"] for one in account.instances()}  # noqa: E731
    until("the interrupted node is drained and ended", gone, 120)
    until("all pods run again", lambda: running(cluster, 12), 180)
    say(f"spot interruption: drained and ended after {time.monotonic() - begun:.0f} s, all pods run")

    cluster.call("DELETE", f"{DEPLOYMENTS}/web")
    until("pods are gone", lambda: not cluster.pods())
    cluster.call("DELETE", f"{POOLS}/default")
    until("NodeClaims are gone", lambda: not cluster.items(CLAIMS), 180)
    cluster.call("DELETE", f"{CLASSES}/default")
    until("EC2NodeClass is gone", lambda: not cluster.items(CLASSES), 60)
    until("nothing is left at AWS", lambda: not any(account.left().values()), 60)
    if cluster.items(NODES):
        raise Wrong("Nodes are left")
    say("everything is deleted: no instance, launch template or instance profile is left")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--spokeshave", required=True)
    parser.add_argument("--log", default="operator.log")
    parser.add_argument("--apart", action="store_true", help="the provider in a process of its own")
    options = parser.parse_args()
    cluster, account = Cluster(options.kubeconfig), Account()
    images = account.prepare()
    key = account.close()
    say("the operator's key may do what its policy says, and nothing else")
    definitions = subprocess.run([options.spokeshave, "crds", "--cloud-provider", "aws"], check=True, capture_output=True).stdout
    subprocess.run(["kubectl", "--kubeconfig", options.kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-"],
                   input=definitions, check=True, stdout=subprocess.DEVNULL)
    place, socket = ["--kubeconfig", options.kubeconfig], options.log + ".sock"
    if options.apart:
        serve = [options.spokeshave, "provider-serve", "--cloud-provider", "aws", "--socket", socket, *place]
        command = [options.spokeshave, "operator", "--cloud-provider", "grpc", "--provider-socket", socket, *place]
    else:
        serve, command = None, [options.spokeshave, "operator", "--cloud-provider", "aws", *place]
    settings = {"CLUSTER_NAME": NAME, "INTERRUPTION_QUEUE": NAME, "METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0", "LOG_LEVEL": "debug"}
    stop = threading.Event()
    threading.Thread(target=machines, args=(Cluster(options.kubeconfig), Account(), stop), daemon=True).start()
    with open(options.log, "wb") as log:
        start = lambda program: subprocess.Popen(program, env={**os.environ, **key, **settings}, stdout=log, stderr=log)  # noqa: E731
        provider = start(serve) if serve else None
        operator = start(command)
        try:
            story(cluster, account, images)
            operator.send_signal(signal.SIGTERM)
            if operator.wait(30 * PATIENCE) != 0:
                raise Wrong(f"the operator ended with {operator.returncode}")
        except Wrong as error:
            print(f"FAIL {error}\nsee {options.log}", flush=True)
            sys.exit(1)
        finally:
            stop.set()
            if operator.poll() is None:
                operator.kill()
            if provider:
                provider.terminate()
                provider.wait(30 * PATIENCE)
    print(f"passed in {time.monotonic() - START:.0f} s")


main()
