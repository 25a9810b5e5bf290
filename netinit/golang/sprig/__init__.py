"""The functions of the sprig library (https://masterminds.github.io/sprig/), under its names and with its arguments.

The size of what a function builds is limited (`template.limits`). Random functions, and those that read the clock, the
environment or the network, fail when they are called, because the same pod must always get the same result; a template
may name them in a branch that is not taken. set, unset and merge only modify maps that the template itself made.
"""

from __future__ import annotations

from typing import Final, NoReturn

from netinit.golang.sprig import collections, dates, encodings, numbers, regexes, text, urls, versions
from netinit.golang.template.values import ANY, Function, FunctionError

__all__ = ["FUNCTIONS", "REFUSED"]

_REASONS: Final = {
    "its result is random": (
        "bcrypt encryptAES htpasswd randAlpha randAlphaNum randAscii randBytes randInt randNumeric shuffle uuidv4"
    ),
    "its result depends on the time of day": "ago now",
    "it reads the environment of the injector": "env expandenv",
    "it makes or handles private keys": (
        "buildCustomCert decryptAES genCA genCAWithKey genPrivateKey genSelfSignedCert genSelfSignedCertWithKey "
        "genSignedCert genSignedCertWithKey"
    ),
    "it takes 32 MiB of memory and a fifth of a second for each call": "derivePassword",
    "it asks the network": "getHostByName",
}
REFUSED: Final = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Each refused function, and why."""


def _refusal(name: str, reason: str) -> Function:
    def refuse(*_arguments: object) -> NoReturn:
        raise FunctionError(f"{name} is not available in injection: {reason}; set a value instead, or an annotation")

    return Function(refuse, variadic=ANY)


_MODULES: Final = (text, numbers, collections, encodings, regexes, versions, dates, urls)

FUNCTIONS: Final = {
    **{name: Function.of(call) for module in _MODULES for name, call in module.FUNCTIONS.items()},
    **{name: _refusal(name, reason) for name, reason in REFUSED.items()},
}
"""sprig's functions by name."""
