"""Init containers, listed by name, whose traffic is not captured: they run before the proxy, or work for the application's start.

Rules know users, not containers. So the user of each is excluded, by the annotation of --exclude-outbound-for-uids, which templates
and the node agent read. A user that the manifest does not show, or that a container of the application has or may have, is refused:
what the application sends would pass by the proxy too.
"""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.errors import InjectionError
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.deciding.annotations import UNCAPTURED_INIT
from netinit.inject.deciding.containers import PROXY, find, names
from netinit.inject.deciding.warnings import applications_of, user_of
from netinit.options import Options
from netinit.options.kinds import split_list

EXCLUDED = Options.flag("exclude_outbound_for_uids").annotation
_SET_USER = "set securityContext.runAsUser, to a user that no other container has"
_MAX_NAMED = 5  # containers in a message


def exclude_init_containers(metadata: Tree, spec: Tree) -> None:
    """Add the users of the init containers that the pod's annotation names to those whose traffic is not captured.

    Raises InjectionError with a line for each container that cannot be excluded.
    """
    annotations = strings(metadata.get("annotations"))
    wanted = tuple(dict.fromkeys(split_list(annotations.get(UNCAPTURED_INIT, ""))))
    if not wanted:
        return
    problems = [f"annotation {UNCAPTURED_INIT}: {problem}" for name in wanted for problem in _problems(name, spec)]
    if problems:
        raise InjectionError("\n".join(problems))
    listed = [item for item in annotations.get(EXCLUDED, "").split(";") if item.strip()]
    users = dict.fromkeys([f"*:*:{user_of(mapping(find(spec.get('initContainers'), name)), spec)[0]}" for name in wanted])
    metadata["annotations"] = {**annotations, EXCLUDED: ";".join(dict.fromkeys([*listed, *users]))}


def _problems(name: str, spec: Tree) -> Iterator[str]:
    """Yield why the traffic of an init container cannot be excluded."""
    container = find(spec.get("initContainers"), name)
    if container is None:
        there = [one for one in names(spec.get("initContainers")) if one != PROXY]
        yield f"the pod has no init container {quote(name)}; it has {_list(there) if there else 'none'}"
        return
    if container.get("restartPolicy") == "Always":
        yield f"init container {quote(name)} is a native sidecar, which runs beside the application: exclude what it calls instead"
        return
    uid, _ = user_of(container, spec)
    if uid is None:
        yield f"the user of init container {quote(name)} is not known, its image decides: {_SET_USER}"
        return
    applications = [(string(one.get("name")), user_of(one, spec)[0]) for one in applications_of(spec, None)]
    if same := [one for one, user in applications if user == uid]:
        yield f"init container {quote(name)} has the user {uid} of {_list(same)}, whose traffic would bypass the proxy: {_SET_USER}"
    elif unknown := [one for one, user in applications if user is None]:
        yield (
            f"init container {quote(name)} has the user {uid}, and {_list(unknown)} may have it too, as the image decides:"
            " set securityContext.runAsUser there, to another user"
        )


def _list(found: list[str]) -> str:
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return ", ".join(map(quote, found[:_MAX_NAMED])) + more
