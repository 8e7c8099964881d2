"""Microsoft's own Python SDK against our Azure over HTTP: it reads what our provider wrote, and our provider reads what it wrote.

    azure_sdk.py ARM    ARM is the program of `cargo build -p spokeshave-azure-simulated --example arm`

Ends with 1 when something is not as it should be, or does not come to an end.
"""

import json
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute import models as compute_models
from azure.mgmt.containerservice import ContainerServiceClient
from azure.mgmt.containerservice import models as aks_models
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.network import models as network_models

GROUP = "Nodes"
# Each of the two stories takes seconds.
LONGEST = 240
failed = 0


def check(what, seen, wanted):
    global failed
    right = seen == wanted
    failed += not right
    print(f"{'ok  ' if right else 'FAIL'} {what}: {seen!r}" + ("" if right else f", not {wanted!r}"))


class Token(SansIOHTTPPolicy):
    """Sends a token also over plain HTTP, which the SDK's own policy refuses."""

    def __init__(self, token):
        self.token = token

    def on_request(self, request):
        request.http_request.headers["Authorization"] = f"Bearer {self.token}"


class NoCredential:
    """The clients want one; the policy above is asked instead."""

    def get_token(self, *scopes, **options):
        raise AssertionError("the policy sends the token")


def log_in(start):
    form = {
        "grant_type": "client_credentials",
        "client_id": start["client"],
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": start["assertion"],
        "scope": start["url"] + "/.default",
    }
    url = f"{start['url']}/{start['tenant']}/oauth2/v2.0/token"
    with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode(), timeout=60) as reply:
        return json.load(reply)["access_token"]


def unknown(model, path):
    """Fields of a reply, which has what was asked for in it, that Microsoft's models do not have: misspelt, or in the wrong place."""
    if isinstance(model, (list, tuple)):
        return [it for index, one in enumerate(model) for it in unknown(one, f"{path}[{index}]")]
    fields = getattr(model, "_attr_to_rest_field", None)
    if fields is None:
        return []
    by_wire_name = {field._rest_name: attribute for attribute, field in fields.items()}
    found = [f"{path}.{name}" for name in model.keys() if name not in by_wire_name]
    for name in model.keys():
        if name in by_wire_name:
            found += unknown(getattr(model, by_wire_name[name]), f"{path}.{name}")
    return found


def refusal(call):
    try:
        call()
    except HttpResponseError as error:
        return error.status_code, error.error.code if error.error else None
    return None


def main():
    for arguments, story in (([], run), (["--aks"], run_aks)):
        program = subprocess.Popen([sys.argv[1], *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # Whoever waits for its words or its answers then learns that there are none.
        watch = threading.Timer(LONGEST, ended, [program])
        watch.daemon = True
        watch.start()
        try:
            story(program)
        finally:
            watch.cancel()
            program.stdin.close()
            program.wait(30)
    sys.exit(1 if failed else 0)


def ended(program):
    print(f"FAIL {' '.join(program.args)} hangs: it was ended after {LONGEST} s", flush=True)
    program.kill()


def introduced(program):
    """What the program says first, how it is asked for more, and what each client of the SDK needs."""
    start = json.loads(program.stdout.readline())

    def ask(line):
        program.stdin.write(line + "\n")
        program.stdin.flush()
        return json.loads(program.stdout.readline())

    return start, ask, {"base_url": start["url"], "authentication_policy": Token(log_in(start)), "polling_interval": 1}


def run(program):
    start, ask, options = introduced(program)
    compute = ComputeManagementClient(NoCredential(), start["subscription"], **options)
    network = NetworkManagementClient(NoCredential(), start["subscription"], **options)

    # What our provider wrote.
    name = start["machine"].rsplit("/", 1)[1]
    machine = compute.virtual_machines.get(GROUP, name)
    check("size", machine.hardware_profile.vm_size, "Standard_D4s_v5")
    check("state", machine.provisioning_state, "Succeeded")
    check("zones", len(machine.zones), 1)
    check("NodeClaim", machine.tags["karpenter.sh_nodeclaim"], "ours")
    check("image", machine.storage_profile.image_reference.community_gallery_image_id.rsplit("/", 1)[1], "202608.1.0")
    check("disk", (machine.storage_profile.os_disk.disk_size_gb, machine.storage_profile.os_disk.delete_option), (128, "Delete"))
    check("administrator", machine.os_profile.admin_username, "azureuser")
    check("passwords", machine.os_profile.linux_configuration.disable_password_authentication, True)
    check("keys", machine.os_profile.linux_configuration.ssh.public_keys[0].path, "/home/azureuser/.ssh/authorized_keys")
    reference = machine.network_profile.network_interfaces[0]
    check("interface ends with it", (reference.primary, reference.delete_option), (True, "Delete"))
    interface = network.network_interfaces.get(GROUP, reference.id.rsplit("/", 1)[1])
    check("accelerated", interface.enable_accelerated_networking, True)
    check("forwarding", interface.enable_ip_forwarding, True)
    check("subnet", interface.ip_configurations[0].subnet.id, start["subnet"])
    check("attached", interface.virtual_machine.id.lower(), start["machine"].lower())

    check("fields that no machine has", unknown(machine, "machine"), [])
    check("fields that no interface has", unknown(interface, "interface"), [])
    wrong = compute_models.VirtualMachine({"location": "here", "properties": {"hardwareProfile": {"vmsize": "x"}}, "zone": "1"})
    check("and one that is wrong is noticed", sorted(unknown(wrong, "it")), ["it.properties.hardwareProfile.vmsize", "it.zone"])

    # Lists, page by page.
    sizes = {sku.name: sku for sku in compute.resource_skus.list(filter=f"location eq '{start['location']}'")}
    check("sizes", len(sizes), 72)
    capabilities = {it.name: it.value for it in sizes["Standard_D4s_v5"].capabilities}
    check("capabilities", (capabilities["vCPUs"], capabilities["MemoryGB"]), ("4", "16"))
    usages = {usage.name.value: usage for usage in compute.usage.list(start["location"])}
    check("usage", (usages["standardDSv5Family"].current_value, usages["standardDSv5Family"].limit), (4, 100))

    # What the SDK writes, our provider reads.
    made = network.network_interfaces.begin_create_or_update(
        GROUP,
        "aks-theirs",
        network_models.NetworkInterface(
            location=start["location"],
            ip_configurations=[
                network_models.NetworkInterfaceIPConfiguration(name="ip", primary=True, subnet=network_models.Subnet(id=start["subnet"]))
            ],
        ),
    ).result()
    check("interface made", made.provisioning_state, "Succeeded")
    tags = dict(machine.tags, **{"karpenter.sh_nodeclaim": "theirs"})
    image = machine.storage_profile.image_reference.community_gallery_image_id
    reference = compute_models.NetworkInterfaceReference(id=made.id, primary=True, delete_option="Delete")

    def theirs(size="Standard_D2s_v5", zones=None):
        return compute_models.VirtualMachine(
            location=start["location"],
            tags=tags,
            zones=zones,
            hardware_profile=compute_models.HardwareProfile(vm_size=size),
            storage_profile=compute_models.StorageProfile(
                image_reference=compute_models.ImageReference(community_gallery_image_id=image),
                os_disk=compute_models.OSDisk(create_option="FromImage", delete_option="Delete"),
            ),
            os_profile=compute_models.OSProfile(computer_name="aks-theirs", admin_username="azureuser", custom_data="IyEvYmluL3NoCg=="),
            network_profile=compute_models.NetworkProfile(network_interfaces=[reference]),
        )

    made = compute.virtual_machines.begin_create_or_update(GROUP, "aks-theirs", theirs()).result()
    check("machine made", (made.name, made.provisioning_state), ("aks-theirs", "Succeeded"))
    check("what our provider lists", ask("list"), ["ours", "theirs"])

    # Refusals are the SDK's errors.
    begin = compute.virtual_machines.begin_create_or_update
    check("quota", refusal(lambda: begin(GROUP, "aks-large", theirs("Standard_D96s_v5")).result()), (409, "OperationNotAllowed"))
    check("size that is none", refusal(lambda: begin(GROUP, "aks-none", theirs("Standard_None")).result()), (400, "InvalidParameter"))
    check("changed zone", refusal(lambda: begin(GROUP, "aks-theirs", theirs(zones=["1"])).result()), (409, "PropertyChangeNotAllowed"))
    in_use = lambda: network.network_interfaces.begin_delete(GROUP, "aks-theirs").result()
    check("interface in use", refusal(in_use), (400, "NicInUse"))

    # What the SDK ends, our provider knows to be gone.
    for machine in (name, "aks-theirs"):
        compute.virtual_machines.begin_delete(GROUP, machine, force_deletion=True).result()
    check("machine gone", ask("gone"), True)
    check("nothing is listed", ask("list"), [])
    try:
        network.network_interfaces.get(GROUP, "aks-theirs")
        check("interface gone", "there", "gone")
    except ResourceNotFoundError as error:
        check("interface gone", error.status_code, 404)


def run_aks(program):
    """The same where AKS has made the machine."""
    start, ask, options = introduced(program)
    aks = ContainerServiceClient(NoCredential(), start["subscription"], **options)
    parts = start["aksMachine"].split("/")
    pool, name = (parts[4], parts[8], parts[10]), parts[12]

    # What our provider wrote.
    machine = aks.machines.get(*pool, name)
    properties = machine.properties
    check("size at AKS", properties.hardware.vm_size, "Standard_D4s_v5")
    check("state at AKS", properties.provisioning_state, "Succeeded")
    check("virtual machine", properties.resource_id.lower(), start["machine"].lower())
    check("image", properties.node_image_version, "AKSUbuntu-2404gen2containerd-202608.1.0")
    check("operating system", (properties.operating_system.os_sku, properties.operating_system.os_disk_size_gb), ("Ubuntu2404", 128))
    check("taints", properties.kubernetes.node_initialization_taints, ["karpenter.sh/unregistered:NoExecute"])
    check("pods", (properties.kubernetes.max_pods, properties.kubernetes.orchestrator_version), (250, "1.34.1"))
    check("bought", (properties.priority, properties.mode), ("Regular", "User"))
    check("NodeClaim at AKS", properties.tags["karpenter.azure.com_aksmachine_nodeclaim"], "ours")
    check("drift", (properties.status.drift_action, properties.status.vm_state), ("Synced", None))
    expanded = aks.machines.list(*pool, params={"$expand": "instanceView"})
    check("state of its virtual machine, only when asked for", [it.properties.status.vm_state for it in expanded], ["Running"])
    check("fields that no machine of AKS has", unknown(machine, "machine"), [])
    wrong = aks_models.Machine({"properties": {"hardware": {"size": "x"}}, "zone": "1"})
    check("and one that is wrong is noticed", sorted(unknown(wrong, "it")), ["it.properties.hardware.size", "it.zone"])
    images = {f"{it.os}-{it.sku}-{it.version}" for it in aks.container_service.list_node_image_versions(start["location"])}
    check("images of AKS", properties.node_image_version in images, True)

    # What the SDK writes, our provider reads.
    theirs = aks_models.MachineProperties(
        hardware=aks_models.MachineHardwareProfile(vm_size="Standard_D2s_v5"),
        tags=dict(properties.tags, **{"karpenter.sh_nodeclaim": "theirs"}),
    )
    made = aks.machines.begin_create_or_update(*pool, "theirs", aks_models.Machine(properties=theirs)).result()
    check("machine of AKS made", (made.name, made.properties.provisioning_state), ("theirs", "Succeeded"))
    check("all machines of AKS", sorted(it.name for it in aks.machines.list(*pool)), ["ours", "theirs"])
    check("what our provider lists of them", ask("list"), ["ours", "theirs"])

    # Refusals are the SDK's errors.
    none = aks_models.MachineProperties(hardware=aks_models.MachineHardwareProfile(vm_size="Standard_None"))
    begin = lambda: aks.machines.begin_create_or_update(*pool, "none", aks_models.Machine(properties=none))
    check("size that AKS does not support", refusal(begin), (400, "VMSizeNotSupported"))

    def delete(*names):
        parameters = aks_models.AgentPoolDeleteMachinesParameter(machine_names=list(names))
        return aks.agent_pools.begin_delete_machines(*pool, parameters).result()

    # What the SDK ends, our provider knows to be gone.
    delete(name, "theirs")
    check("machine of AKS gone", ask("gone"), True)
    check("nothing is listed of them", ask("list"), [])
    check("nothing to delete", refusal(lambda: delete(name)), (400, "InvalidParameter"))


main()
