"""Whose token a pod has."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from netinit.base.tree import Tree, mapping, string
from netinit.kube.access import Access


def find_service_account(access: Access) -> Tree | None:
    """The token's service account as an owner reference, with which objects are deleted; None if it is not a pod's token.

    It is read from the token's claim kubernetes.io, so that no permission is needed.
    """
    try:
        claims = Path(access.token_file).read_text().split(".")[1]
        account = mapping(mapping(json.loads(base64.urlsafe_b64decode(claims + "=="))).get("kubernetes.io")).get("serviceaccount")
    except (OSError, ValueError, IndexError):
        return None
    name, uid = (string(mapping(account).get(key)) for key in ("name", "uid"))
    return {"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid} if name and uid else None
