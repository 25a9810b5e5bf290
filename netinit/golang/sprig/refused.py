"""Sprig's functions that a template may name and not call: the same pod must get the same answer wherever it is asked for.

A template that names one of them without calling it, in a branch that is not taken, works.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from netinit.golang.template.values import Function, FunctionError

_RANDOM: Final = "its result is random"
_CLOCK: Final = "its result depends on the time of day"
_ENVIRONMENT: Final = "it reads the environment of the injector"
_KEYS: Final = "it makes or handles private keys"

REFUSED: Final = {
    "ago": _CLOCK,
    "bcrypt": _RANDOM,
    "buildCustomCert": _KEYS,
    "decryptAES": _KEYS,
    "derivePassword": "it takes 32 MiB of memory and a fifth of a second for each call",
    "encryptAES": _RANDOM,
    "env": _ENVIRONMENT,
    "expandenv": _ENVIRONMENT,
    "genCA": _KEYS,
    "genCAWithKey": _KEYS,
    "genPrivateKey": _KEYS,
    "genSelfSignedCert": _KEYS,
    "genSelfSignedCertWithKey": _KEYS,
    "genSignedCert": _KEYS,
    "genSignedCertWithKey": _KEYS,
    "getHostByName": "it asks the network",
    "htpasswd": _RANDOM,
    "now": _CLOCK,
    "randAlpha": _RANDOM,
    "randAlphaNum": _RANDOM,
    "randAscii": _RANDOM,
    "randBytes": _RANDOM,
    "randInt": _RANDOM,
    "randNumeric": _RANDOM,
    "shuffle": _RANDOM,
    "uuidv4": _RANDOM,
}
"""Why a function is refused, by its name."""


def _refusal(name: str, reason: str) -> Function:
    def refuse(*_arguments: Any) -> NoReturn:
        raise FunctionError(f"{name} is not available in injection: {reason}; set a value instead, or an annotation")

    return Function(refuse, variadic="interface {}")


FUNCTIONS: Final = {name: _refusal(name, reason) for name, reason in REFUSED.items()}
