"""Expressions about the methods and the named types of template data, and what Istio's types make of them in Go.

    python tests/recorded_templates.py ORACLE

records the answers again. ORACLE is tests/unit/inject/recorded/oracle.go, built beside Istio's pkg/kube/inject/template.go, whose
functions it uses: a program that reads a pod, a mesh configuration and templates as JSON, and writes the text or the error of each.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from netinit.inject.adding.meshconfig import MeshConfig

RECORDED = Path(__file__).parent / "unit" / "inject" / "recorded" / "template-types.json"
FIELDS = Path(__file__).parent / "unit" / "inject" / "template_fields.json"

C0, C1, META = "(index .Spec.Containers 0)", "(index .Spec.Containers 1)", ".ObjectMeta"
QUANTITIES = (
    "100m", "1", "1.5", "0.1", "300m", "1Gi", "1536Mi", "1.5Gi", "2e3", "5k", "1500u", "7n", "9Ei", "1e-3", "0", "-5", "-1500m", "1M", "999999999",
    "0.5Gi", "1.25Ki", ".5", "5.", "1Pi", "9223372036854775807", "1000000000000n", "0.001Gi", "123456.789", "833821u", "13752u", "52e2",
)  # fmt: skip
OF_QUANTITIES = (
    "", ".Value", ".MilliValue", ".ScaledValue 3", ".ScaledValue -6", ".AsApproximateFloat64", ".AsFloat64Slow", ".Format", ".Sign", ".IsZero",
    ".CmpInt64 1",
)  # fmt: skip
STRINGS = (".Spec.DNSPolicy", ".Spec.RestartPolicy", f"{META}.UID", "(index (index .Spec.Containers 0).Ports 1).Protocol")
OF_STRINGS = (
    "{0}", "{0} | lower", "{0} | quote", '{0} | default "d"', 'eq {0} "None"', 'ne {0} "None"', 'lt {0} "zz"', "print {0}",
    'printf "%s %q %v %T" {0} {0} {0} {0}', "typeOf {0}", "kindOf {0}", "len {0}", "toString {0} | lower", "{0} | toJson", "{0} | toYaml",
    'has {0} (list "None")', 'has "None" (list {0})', 'valueOrDefault {0} "d"', 'contains "a" {0}', "{0} | trunc 2", "eq {0} {0}",
    'deepEqual {0} "None"', "empty {0}", 'coalesce {0} "x"', 'list {0} | join ","', "dict {0} 1", "index .ObjectMeta.Labels {0}", 'cat {0} "x"',
    "slice {0} 0 0", "html {0}", "js {0}", "urlquery {0}", 'len (list {0} "None" | uniq)', 'get (dict "None" 1) {0}',
    'without (list {0}) "None" | len', 'excludeInboundPort {0} "1"', "{0}.String", 'kindIs "string" {0}', 'typeIs "string" {0}', "not {0}",
    'and {0} "y"', 'or {0} "y"', "eq {0} 1", "lt {0} 1", 'regexMatch "." {0}', 'index (dict "None" 7) {0}', "int {0}",
    'toJSON (strdict "k" {0})', "call {0}", "compact (list {0}) | len",
)  # fmt: skip
POINTERS = (
    ".Spec.Priority", ".Spec.EnableServiceLinks", ".Spec.RuntimeClassName", ".Spec.PreemptionPolicy", ".Spec.SecurityContext.RunAsUser",
    ".Spec.HostUsers", f"{C0}.SecurityContext.Privileged", f"(index {META}.OwnerReferences 0).Controller", "(index .Spec.Volumes 2).HostPath.Type",
)  # fmt: skip
OF_POINTERS = (
    "{0}", "if {0} }}}}y{{{{ else }}}}n{{{{ end", "with {0} }}}}{{{{ . }}}}{{{{ end", "eq {0} nil", "ne {0} nil", "eq {0} 5", 'eq {0} "x"',
    "eq {0} true", "lt {0} 5", "not {0}", "{0} | default 7", "empty {0}", "int {0}", "{0} | toJson", "{0} | toYaml", "{0} | typeOf",
    "{0} | kindOf", "upper {0}", "add {0} 1", "valueOrDefault {0} 9", "len {0}", "and {0} 1", "or {0} 1", "ternary 1 2 {0}", "until {0}",
    "{0}.Nope", "coalesce {0} 3", "index (list 1 2 3) {0}", "$x := {0} }}}}{{{{ $x", "list {0} | toJson", "deepEqual {0} {0}", "eq {0} {0}",
    "atoi {0}", "float64 {0}", 'toJson (dict "k" {0})', "structToJSON {0}", "max {0} 3", "indent 2 {0}", 'typeIs "bool" {0}',
    'typeIsLike "bool" {0}', "has 5 (list {0})", "range {0} }}}}x{{{{ end", "quote {0}", "print {0}", 'printf "%v" {0}', "toString {0}",
)  # fmt: skip
SINGLE = (
    # resources
    *(
        f"{C0}.Resources.Limits.Memory.{method}"
        for method in (
            "AsDec", "AsInt64", "Size", "ToDec", "Neg", "DeepCopy", "DeepCopy.Format", "Format", "ToUnstructured", "Mul 2", "Set 5", "RoundUp 0",
            "Equal 3", "Cmp 3", "Nope", "CanonicalizeBytes nil", "MarshalJSON", "Reset", "Add 3", 'CmpInt64 "a"', "CmpInt64",
            "Cmp .Spec", "Equal .Spec.Containers",
        )
    ),
    f"{C0}.Resources.Requests.Cpu | quote", f"{C0}.Resources.Requests.Cpu | toJson", f"{C0}.Resources.Limits.Cpu.String | upper",
    f"{C0}.Resources.Limits.Cpu | upper", f"{C0}.Resources.Limits.Cpu.Cmp {C0}.Resources.Requests.Cpu",
    f'printf "%v %s %T" {C0}.Resources.Limits.Cpu {C0}.Resources.Limits.Memory {C0}.Resources.Limits', f"int {C0}.Resources.Limits.Cpu",
    f"div {C0}.Resources.Limits.Cpu.MilliValue 1000", f"if {C0}.Resources.Requests.Pods }}}}y{{{{ end",
    f"with {C0}.Resources.Requests }}}}{{{{ .Cpu }}}} {{{{ .Memory.IsZero }}}}{{{{ end", f"$r := {C0}.Resources }}}}{{{{ $r.Limits.Cpu.MilliValue",
    *(
        f"range $k, $v := {C0}.Resources.Limits }}}}{{{{ {body} }}}};{{{{ end"
        for body in ("$v.String", "$v.Value", "$k | upper", "$v | toJson", 'printf "%s %T %T" $k $k $v', 'eq $k "cpu"', "$v.ToUnstructured", "$k.String", "$v")
    ),
    f'index {C0}.Resources.Requests "cpu"', f"{C0}.Resources.Requests.cpu", f'get {C0}.Resources.Requests "cpu"', f"keys {C0}.Resources.Requests",
    f'{C0}.Resources.Requests.Name "cpu" "DecimalSI"', f'({C0}.Resources.Limits.Name "memory" "BinarySI").Value',
    f'{C0}.Resources.Limits.Name "nvidia.com/gpu" "DecimalSI"', f'{C0}.Resources.Limits.Name "cpu"', f"{C0}.Resources.Limits | toJson",
    f"{C0}.Resources.Limits | toYaml", f"len {C0}.Resources.Limits", f"typeOf {C0}.Resources.Limits", f"kindOf {C0}.Resources.Limits",
    f"{C0}.Resources.Limits.DeepCopy.Cpu", f"{C0}.Resources.Requests.Nope", f"{C0}.Resources.DeepCopy.Limits.Cpu",
    "(first .Spec.Containers).Resources.Requests.Cpu", "(first .Spec.Containers).Name", ".Spec.Overhead.Cpu.MilliValue", 'isset .Spec.Overhead "cpu"',
    "structToJSON .Spec.Overhead", ".Spec.Overhead", f"{C0}.Resources", "(index .Spec.Volumes 1).EmptyDir.SizeLimit.Value",
    "(index .Spec.Volumes 1).EmptyDir.SizeLimit", "(index .Spec.Volumes 1).EmptyDir.Medium | lower",
    f"(index {C0}.Env 2).ValueFrom.ResourceFieldRef.Divisor.String",
    # metadata
    *(
        f"{META}.Get{name}{rest}"
        for name in (
            "Name", "GenerateName", "Namespace", "UID", "ResourceVersion", "Generation", "SelfLink", "Labels", "Annotations", "Finalizers",
            "CreationTimestamp", "DeletionTimestamp", "DeletionGracePeriodSeconds", "ManagedFields",
        )
        for rest in ("", " | typeOf")
    ),
    f"{META}.GetOwnerReferences | typeOf", f"{META}.GetObjectMeta | typeOf", f"{META}.GetObjectMeta.GetName", f"{META}.GetLabels.app",
    f'index {META}.GetAnnotations "nope"', f"(index {META}.GetOwnerReferences 0).Kind", f"{META}.GetNope", f'{META}.SetName "x"', f"{META}.SetName",
    f"{META}.Size", f"{META}.Reset", f"{META}.DeepCopy.GetLabels", f"{META}.DeepCopyInto nil", f"{META}.OpenAPIModelName", f"{META}.SwaggerDoc.name",
    f"{META}.Descriptor", f"{META}.Marshal", f'annotation {META} "zz" {META}.UID', 'annotation .Spec "zz" "d"', f"{META}.GetCreationTimestamp.IsZero",
    *(
        f"{META}.CreationTimestamp.{method}"
        for method in (
            "IsZero", "Unix", "UnixMilli", "UnixMicro", "UnixNano", 'Format "2006-01-02"', "UTC", "Local", "String", "Month", "Weekday", "YearDay", "Date", "Clock",
            "ISOWeek", "Zone", "IsDST", "AddDate 0 1 2", "AddDate 0 14 40", "Time", "Time.Year", "Time | toJson", "Rfc3339Copy", "ToUnstructured", "MarshalText",
            f"Sub {META}.CreationTimestamp", f"Sub {META}.CreationTimestamp.Time", f"After {META}.CreationTimestamp.Time",
            f"Compare {META}.CreationTimestamp.Time", f"Equal {META}.CreationTimestamp", f"Before {META}.CreationTimestamp",
            "Add .ProxyConfig.DrainDuration.AsDuration", "Truncate .ProxyConfig.DrainDuration.AsDuration", "Round .ProxyConfig.DrainDuration.AsDuration",
        )
    ),
    # kinds
    *(
        f".TypeMeta.{rest}"
        for rest in (
            "GroupVersionKind", "GroupVersionKind.Group", "GroupVersionKind.Version", "GroupVersionKind.Kind", "GroupVersionKind.GroupKind",
            "GroupVersionKind.GroupVersion", "GroupVersionKind.Empty", "GroupVersionKind.GroupVersion.Identifier", "GetObjectKind",
            "GetObjectKind.GroupVersionKind.Kind", "String", "Nope", "GroupVersionKind.ToAPIVersionAndKind", "DeepCopy.Kind",
            "SetGroupVersionKind .TypeMeta.GroupVersionKind", 'GroupVersionKind.GroupVersion.WithKind "Job"',
            'GroupVersionKind.GroupKind.WithVersion "v2"',
        )
    ),
    ".TypeMeta", ".DeploymentMeta", ".DeploymentMeta.String", ".DeploymentMeta.Nope", ".DeploymentMeta | toJson",
    # the mesh
    *(
        f".ProxyConfig.DrainDuration.{rest}"
        for rest in (
            "AsDuration", "AsDuration.Seconds", "AsDuration.Minutes", "AsDuration.Hours", "AsDuration.Milliseconds", "AsDuration.Nanoseconds",
            "AsDuration.Abs", "IsValid", "CheckValid", "String", "GetSeconds", "Nope", "Reset", "ProtoMessage", "Descriptor", "AsDuration | quote",
            "AsDuration | typeOf", "AsDuration | kindOf", "AsDuration | toJson", "AsDuration | int64", "AsDuration | duration",
        )
    ),
    ".MeshConfig.ConnectTimeout.AsDuration", ".MeshConfig.TcpKeepalive.Time.AsDuration", ".MeshConfig.TcpKeepalive.Interval.AsDuration",
    ".MeshConfig.TcpKeepalive.Interval.IsValid", ".MeshConfig.TcpKeepalive.Interval.CheckValid", "gt .MeshConfig.ConnectTimeout.AsDuration.Seconds 5.0",
    ".MeshConfig.TcpKeepalive.Time.AsDuration.Round .MeshConfig.ConnectTimeout.AsDuration",
    ".MeshConfig.TcpKeepalive.Time.AsDuration.Truncate .MeshConfig.ConnectTimeout.AsDuration", "eq .MeshConfig.ConnectTimeout.AsDuration 10000000000",
    *(
        f".ProxyConfig.InterceptionMode.{rest}"
        for rest in ("Number", "String", "Enum", "Descriptor.FullName", "EnumDescriptor", "Nope", "Number | typeOf", "Enum | typeOf", "Enum | quote")
    ),
    ".ProxyConfig.InterceptionMode | lower", ".ProxyConfig.InterceptionMode | quote", "eq .ProxyConfig.InterceptionMode 1",
    'eq .ProxyConfig.InterceptionMode "TPROXY"', ".ProxyConfig.InterceptionMode | toJson", ".ProxyConfig.InterceptionMode | kindOf",
    ".ProxyConfig.Concurrency.GetValue", ".ProxyConfig.Concurrency.Reset", ".ProxyConfig.Concurrency | toJson", ".ProxyConfig.Image.DeepCopy.ImageType",
    ".ProxyConfig.DeepCopy.StatusPort", ".ProxyConfig.Reset", ".ProxyConfig.ProtoReflect.Descriptor.FullName", '.ProxyConfig.UnmarshalJSON "x"',
    ".ProxyConfig.Image.MarshalJSON | toString", ".ProxyConfig.GetClusterName.ServiceCluster", ".ProxyConfig.ClusterName.TracingServiceName",
    ".ProxyConfig.Tracing.Tracer.Datadog", ".ProxyConfig.Sds.GetEnabled", ".ProxyConfig.Sds.Reset", ".ProxyConfig", ".ProxyConfig.Tracing",
    ".ProxyConfig.GetSds.GetK8SSaJwtPath", ".ProxyConfig.GetSds.GetK8sSaJwtPath", ".MeshConfig.TcpKeepalive", ".MeshConfig.Ca",
    # objects
    *(
        f"{place}{rest}"
        for place in (
            ".Spec.SecurityContext", "(index .Spec.Tolerations 0)", "(index .Spec.HostAliases 0)", f"(index {META}.OwnerReferences 0)", ".Spec.DNSConfig",
            f"(index {C0}.Ports 0)", f"{C0}.LivenessProbe", "(index .Spec.Volumes 0)", "(index .Spec.Volumes 2)", ".Spec.Affinity",
            "(index .Spec.TopologySpreadConstraints 0)", "(index .Spec.InitContainers 0)", f"(index {C0}.Env 1)", f"{C0}.SecurityContext", C1, META,
        )
        for rest in ("", ".String", " | toJson")
    ),
    f"{C0}.Ports", f"print (index {C0}.Ports 0)", f"range {C0}.Ports }}}}{{{{ . }}}}{{{{ end", f"first {C0}.Ports", f"{C0}.StartupProbe | quote", ".Spec.String",
    ".Spec.DeepCopy.DNSPolicy", f"{C0}.DeepCopyInto .Spec", "(first .Spec.Containers).DeepCopy.Name", f"{C0}.Nope", f"{C0}.LivenessProbe.Nope",
    "(index .Spec.Tolerations 0).MatchToleration (index .Spec.Tolerations 0)", "(index .Spec.Tolerations 0).MatchToleration .Spec",
    "(index .Spec.Tolerations 0).MatchToleration", "(index .Spec.Volumes 0).VolumeSource | toJson", f"{C0}.LivenessProbe.ProbeHandler | toJson",
    *(f"{C0}.LivenessProbe.HTTPGet.{rest}" for rest in ("Scheme | lower", "Port", "Port.String", "Port.IntValue", "Port.Type | typeOf", "Port.Type")),
    *(f"{C0}.StartupProbe.TCPSocket.Port{rest}" for rest in ("", ".IntValue", ".String", " | toJson", " | quote", ".Nope")),
    *(f"{C0}.SecurityContext.Capabilities.Add {rest}" for rest in ('| join ","', "| toJson", "| typeOf", "| sortAlpha | typeOf", "| first | typeOf")),
    f'has "NET_ADMIN" {C0}.SecurityContext.Capabilities.Add', f"range {C0}.SecurityContext.Capabilities.Drop }}}}{{{{ lower . }}}}{{{{ end",
    f"index {C0}.SecurityContext.Capabilities.Add 0 | lower", "includeInboundPorts .Spec.Containers", "includeInboundPorts .Spec",
    "(index .Spec.DNSConfig.Options 0).Value | upper", "add .ProxyUID 1", "typeOf .ProxyUID",
)  # fmt: skip
"""Actions, without their braces; what has several parts has the braces between them."""


def expressions() -> Iterator[str]:
    """Yield all templates."""
    patterns = itertools.chain(
        (pattern.format(field) for field, pattern in itertools.product(STRINGS, OF_STRINGS)),
        (pattern.format(field) for field, pattern in itertools.product(POINTERS, OF_POINTERS)),
        SINGLE,
        (f"{one}.Resources.Requests.{name}{method}" for one, name, method in itertools.product((C0, C1), ("Cpu", "Memory", "Pods", "StorageEphemeral"), OF_QUANTITIES)),
    )
    yield from dict.fromkeys(f"{{{{ {pattern} }}}}" for pattern in patterns)


def of_quantities() -> Iterator[str]:
    """Yield the templates that ask each of the QUANTITIES, which are the processor time of one container each."""
    for number in range(len(QUANTITIES)):
        quantity, other = (f"(index .Spec.Containers {place % len(QUANTITIES)}).Resources.Requests.Cpu" for place in (number, number + 7))
        yield from (f"{{{{ {quantity}{method} }}}}" for method in (*OF_QUANTITIES, f".Cmp {other}", f".Equal {other}"))


def cases() -> dict[str, tuple[dict[str, object], dict[str, object], list[str]]]:
    """Return a pod, a mesh configuration and templates for each case by name."""
    fields = json.loads(FIELDS.read_text())
    containers = [{"name": f"c{number}", "resources": {"requests": {"cpu": text}}} for number, text in enumerate(QUANTITIES)]
    return {
        "a pod with everything": (fields["pod"], fields["mesh"], list(expressions())),
        "a pod with nothing": ({"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}, {}, list(expressions())),
        "quantities": ({"metadata": {}, "spec": {"containers": containers}}, {}, list(of_quantities())),
    }


def read_mesh(tree: dict[str, object]) -> MeshConfig:
    """Read a mesh with curves for mTLS, which Istio's types have and its check of a mesh refuses."""
    mesh = MeshConfig.load({name: value for name, value in tree.items() if name != "meshMTLS"})
    return mesh.replace(fields={**mesh.fields, "meshMTLS": tree.get("meshMTLS")})


def settled(text: str) -> str:
    """Return the text of a message with one space between fields: protobuf puts one or two there, by the program's build."""
    return re.sub("[ \xa0]+", " ", text) if re.search('[a-z]:["{0-9]|proto:', text) else re.sub("0x[0-9a-f]{6,}", "0xc000", text)


def record(oracle: str) -> None:
    """Ask the oracle about all cases; an answer is a text, or an error in a list."""
    told = {}
    for name, (pod, mesh, templates) in cases().items():
        asked = json.dumps({"pod": pod, "mesh": mesh, "templates": templates})
        answers = json.loads(subprocess.run([oracle], input=asked, capture_output=True, text=True, check=True).stdout)
        told[name] = [[answer["error"]] if "error" in answer else settled(answer["text"]) for answer in answers]
    parts = (f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, answers)) + "\n]" for name, answers in told.items())
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1])
