"""The Secret with the webhook's certificate: whose it is, and what happens to it where somebody deletes it."""

from __future__ import annotations

import asyncio
import base64
import json
from types import SimpleNamespace

import pytest

from netinit.base.errors import ClusterError
from netinit.kube.access import Access
from netinit.kube.service_account import find_service_account
from netinit.webhook.certificates import from_secret
from netinit.webhook.cluster import WatchedCluster
from netinit.webhook.serving_state import ServingState
from netinit.webhook.settings import ServeSettings

OWNER = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "netinit-webhook", "uid": "7a11"}


def write_token(folder, account):
    claims = base64.urlsafe_b64encode(json.dumps({"kubernetes.io": {"namespace": "mesh", "serviceaccount": account}}).encode()).decode().rstrip("=")
    (folder / "token").write_text(f"e30.{claims}.c2ln")
    return Access(server="https://api", token_file=str(folder / "token"), namespace="mesh")


class Cluster:
    """An API that keeps one Secret."""

    def __init__(self, access):
        self.access, self.secret = access, None

    async def create(self, _, tree, namespace):
        assert self.secret is None
        assert namespace == "mesh"
        self.secret = tree


@pytest.fixture
def cluster(tmp_path):
    return Cluster(write_token(tmp_path, {"name": "netinit-webhook", "uid": "7a11"}))


def renew(cluster, *moments, state=None):
    """Serves what comes of the Secret at each of these moments: a function that changes the cluster before the next look."""
    served = []
    settings = ServeSettings(certificate_secret="tls", namespace="mesh")
    certificates = SimpleNamespace(offer=lambda *pair: served.append(pair))
    watched = WatchedCluster(cluster, settings, state or ServingState(), config=None, certificates=certificates)

    async def look():
        await watched.renew_step(cluster.secret)
        for change in moments:
            change()
            await watched.renew_step(cluster.secret)

    asyncio.run(look())
    return served


def test_a_deleted_secret_is_written_anew_with_the_pair_that_is_served(cluster):
    """API servers go on trusting it, while a new authority would have to reach each of them first."""
    first, second = renew(cluster, lambda: setattr(cluster, "secret", None))
    assert first == second
    current = from_secret(cluster.secret).current
    assert (current.certificate, current.key) == first


def test_a_secret_without_its_key_gets_another_pair(cluster):
    served = []

    def spoil():
        del cluster.secret["data"]["tls.key"]
        cluster.secret["metadata"]["resourceVersion"] = "1"

    async def replace(_, tree, name, namespace):
        assert (name, namespace) == ("tls", "mesh")
        cluster.secret = tree

    cluster.replace = replace
    served = renew(cluster, spoil)
    assert served[0] != served[1]


@pytest.mark.parametrize(("status", "problems"), [(409, {}), (404, {}), (403, {"Secret mesh/tls": "no"}), (0, {"Secret mesh/tls": "no"})])
def test_a_secret_that_cannot_be_written_is_a_problem_unless_another_replica_was_faster(cluster, status, problems):
    async def create(*_):
        raise ClusterError("no", status=status)

    cluster.create, state = create, ServingState()
    assert renew(cluster, state=state) == []
    assert state.cluster_problems == problems


def test_it_belongs_to_the_service_account_and_goes_with_it(cluster):
    renew(cluster)
    assert cluster.secret["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize("account", [None, {}, {"name": "x"}, {"uid": "7a11"}, [], "x"])
def test_a_token_that_names_no_account_makes_no_owner(tmp_path, account):
    assert find_service_account(write_token(tmp_path, account)) is None


@pytest.mark.parametrize("text", ["", "a.b", "static-token", "a.%%%.c", "a.W10.c"])
def test_what_is_no_token_of_a_pod_makes_no_owner(tmp_path, text):
    (tmp_path / "token").write_text(text)
    assert find_service_account(Access(server="https://api", token_file=str(tmp_path / "token"))) is None
