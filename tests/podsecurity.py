"""What Kubernetes' pod security standards say about a pod: the checks that can concern a mesh, in the words of its messages.

Written from the standards' table of restricted fields and allowed values (Linux, no user namespaces).
"""

from __future__ import annotations

BASELINE_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
RESTRICTED_CAPABILITIES = {"NET_BIND_SERVICE"}
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
SECCOMP = {"RuntimeDefault", "Localhost"}

# What the examples give the init container: no more than it needs.
INIT_CONTAINER = {
    "runAsUser": 0,
    "runAsGroup": 0,
    "runAsNonRoot": False,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
}


def containers(pod):
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def offences(pod, level):
    """The set of what offends `baseline` or `restricted`, as (container, reason); the pod itself is `pod`."""
    spec = pod["spec"]
    whole = spec.get("securityContext", {})
    found = {("pod", field) for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)}
    for volume in spec.get("volumes", ()):
        kinds = volume.keys() - {"name"}
        if "hostPath" in kinds or (level == "restricted" and not kinds <= RESTRICTED_VOLUMES):
            found.add(("pod", f"volume {volume['name']}"))
    for container in containers(pod):
        own = container.get("securityContext", {})
        found |= {(container["name"], reason) for reason in _of_container(own, whole, level)}
    return found


def _of_container(own, whole, level):
    capabilities = own.get("capabilities", {})
    allowed = RESTRICTED_CAPABILITIES if level == "restricted" else BASELINE_CAPABILITIES
    for name in set(capabilities.get("add", ())) - allowed:
        yield f"must not add {name}"
    if own.get("privileged"):
        yield "privileged"
    seccomp = own.get("seccompProfile", whole.get("seccompProfile", {})).get("type")
    if seccomp == "Unconfined":
        yield "seccompProfile"
    if level != "restricted":
        return
    if "ALL" not in capabilities.get("drop", ()):
        yield "must drop ALL"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation != false"
    if not own.get("runAsNonRoot", whole.get("runAsNonRoot")):
        yield "runAsNonRoot != true"
    if own.get("runAsUser", whole.get("runAsUser")) == 0:
        yield "runAsUser=0"
    if seccomp not in SECCOMP:
        yield "seccompProfile"
