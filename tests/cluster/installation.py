"""The chart's objects in the control plane with replicas, and pods that are sent to them."""

from __future__ import annotations

import contextlib
import itertools

from control_plane import ADDRESSES, Replica
from webhook_server import make_pod

numbers = itertools.count()


def fresh(plane, **labels):
    return plane.namespace(f"ns-{next(numbers)}", **labels)


def bare(name=None, **more):
    pod = make_pod(name or f"web-{next(numbers)}", **more)
    del pod["metadata"]["namespace"]
    pod["spec"]["serviceAccountName"] = "default"  # as the admission plugin does, which wants a controller
    return pod


def injected(pod):
    names = [one["name"] for key in ("initContainers", "containers") for one in pod["spec"].get(key, ())]
    return "istio-proxy" in names


def reaches(plane, namespace, wanted=True):
    """The API server has heard of the webhooks: a pod of the namespace is injected, or is no more."""
    plane.until(
        lambda: injected(plane.pod(namespace, bare())) is wanted,
        f"pods of {namespace} {'are' if wanted else 'are not'} injected",
    )


@contextlib.contextmanager
def installed(plane, tmp_path, *given, replicas=1, more=()):
    """The chart's objects, and replicas that the Service leads to; gone afterwards."""
    _, trees = plane.install(*given)
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(Replica(plane, address, trees=trees, folder=tmp_path, more=more))
            for address in ADDRESSES[:replicas]
        ]
        for one in made:
            one.wait()
        plane.endpoints(*ADDRESSES[:replicas])
        yield made
