"""Objects of a small mesh for tests of `why`: a client `web`, a server `db` with its Service, and what decides about them."""

from __future__ import annotations

import functools
import json

import yaml

from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_objects
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from netinit.questions.why.objects import read_objects

NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
"""
STRICT = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: all, namespace: shop}
spec: {mtls: {mode: STRICT}}
"""
DB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: shop}
spec: {template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: db, ports: [{containerPort: 5432, name: sql}]}]}}}
"""
TO_DB = {"to": "db:5432"}
MESH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'SETTINGS'}"
CLOSED, OPEN = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "outboundTrafficPolicy: {mode: ALLOW_ANY}"
KINDS = ("AuthorizationPolicy", "VirtualService", "Service", "ServiceEntry", "Sidecar", "PeerAuthentication", "DestinationRule", "NetworkPolicy")
OPEN_MESH, CLOSED_MESH = MESH.replace("SETTINGS", "{}"), MESH.replace("SETTINGS", CLOSED)
OUTSIDE = "api.example.com:443"
CLIENT = DB.replace("name: db", "name: api").replace("app: db", "app: api")
FROM = {"client": "api", "port": "8080"}


def workload(spec="containers: [{name: web, image: web}]", annotations="", kind="Deployment", labels="app: web", top=""):
    """A workload `web` of the namespace shop."""
    group = "batch" if kind == "Job" else "apps"
    template = f"metadata: {{labels: {{{labels}}}, annotations: {{{annotations}}}}}, spec: {{{spec}}}"
    return f"apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: web, namespace: shop{top}}}\nspec: {{template: {{{template}}}}}"


def service(ports="[{port: 5432, name: tcp-sql}]", more="", name="db", namespace="shop"):
    """A Service of the pods `db`."""
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{selector: {{app: db}}, ports: {ports}{more}}}"


WEB_SERVICE = service("[{port: 80, targetPort: 8080, name: http}]", name="web").replace("app: db", "app: web")


def sidecar(spec, namespace="shop", name="s", made="2026-01-01T00:00:00Z"):
    """A Sidecar resource."""
    return f"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: {name}, namespace: {namespace}, creationTimestamp: {made}}}\nspec: {{{spec}}}"


def only(*hosts, mode="REGISTRY_ONLY"):
    """A Sidecar's spec that imports these hosts."""
    return f"outboundTrafficPolicy: {{mode: {mode}}}, egress: [{{hosts: {json.dumps(hosts)}}}]"


@functools.cache
def read(text):
    """The objects of a text, which nothing changes."""
    return tuple(yaml.safe_load_all(text))


def report(*texts, unread=(), whole=KINDS, **asked):
    """The report about `web`; kinds of `unread` could not be read in every namespace."""
    trees = [tree for text in (NAMESPACE, workload(), *texts) for tree in read(text)]
    known = read_objects(trees, whole=set(whole) - {*unread}, unread=dict.fromkeys(unread, "Forbidden"))
    chosen = next(one for one in known.workloads if one.name == "web")
    return why_of_objects(read_asked(**asked), chosen, known, options=Options(), outlook=Outlook())


def outcomes(found, name):
    return [(step.outcome, step.code) for step in found.steps if step.name == name]
