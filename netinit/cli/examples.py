"""The end of each command's help: two examples and the address of the command's page."""

from __future__ import annotations

from netinit.cli.commands import ALIASES, name_page

EXAMPLES = {
    "explain": (
        "netinit explain -i '*' -b '*' --to 10.1.2.3:443 --uid 1000",
        "kubectl get pod web -o yaml | netinit explain --pod - --to 10.1.2.3:443",
    ),
    "why": ("netinit why examples/why.yaml --to db:3307", "netinit why --pid 4711 web.yaml --to 10.1.2.3:443"),
    "audit": ("netinit audit --pid 4711", "netinit audit examples/ --fail-on bypass:network"),
    "diff": ("netinit diff \"apply -b '*' -d 15021\" \"apply -b '*'\"", "netinit diff --pod old.yaml --pod new.yaml"),
    "verify": ("netinit verify --pid 4711 -b '*' -i '*' --live", "netinit verify --pid 4711 --pod pod.yaml --watch"),
    "check": ("netinit check examples/", "helm template shop | netinit check - --baseline netinit-baseline.yaml"),
    "lint": ("netinit lint examples/", "helm template shop | netinit lint - --format github"),
    "draw": ("netinit draw -i '*' -b '*' --to 10.1.2.3:443", "netinit draw --pid 4711 --format svg >rules.svg"),
    "watch": ("netinit watch --pid 4711", "netinit watch --pid 4711 --interval 10 --format json"),
    "trace": ("netinit trace --pid 4711 --to 10.1.2.3:443", "netinit trace --pid 4711 inbound --to-port 8080 --count 3"),
    "doctor": ("netinit doctor", "netinit doctor --backend iptables-legacy --json"),
    "apply": ("netinit apply -b '*' -i '*' -d 15090,15021,15020", "netinit apply --pid 4711 -b '*' -i '*' --reconcile"),
    "remove": ("netinit remove --pid 4711 --dry-run", "netinit remove --pid 4711"),
    "render": ("netinit render -b '*' -i '*' --ipv6 off", "netinit render -b '*' -i '*' --format nft"),
    "convert": (
        "netinit convert --from linkerd -- -p 4143 -o 4140 -u 2102",
        "netinit convert --from kuma --file transparent-proxy.yaml --format config",
    ),
    "inject": ("netinit inject -f app.yaml | kubectl apply -f -", "netinit inject -f app.yaml --explain"),
    "check-inject": (
        "netinit check-inject -f app.yaml --namespace-labels istio-injection=enabled",
        "netinit check-inject -f app.yaml --context my-cluster",
    ),
    "demo": ("netinit demo", "netinit demo --backend iptables-legacy"),
    "help": ("netinit help NI106", "netinit help codes"),
    "completion": ("source <(netinit completion bash)", "netinit completion fish >~/.config/fish/completions/netinit.fish"),
    "version": ("netinit version", "netinit --version"),
    "kubectl": ("kubectl netinit explain web-1 --to db.shop:5432", "kubectl netinit check -A"),
    "kubectl explain": ("kubectl netinit explain web-1 --to db.shop:5432", "kubectl netinit explain deploy/web --to example.com:443"),
    "kubectl why": ("kubectl netinit why web-1 --to db.shop:5432", "kubectl netinit why deploy/web --probe"),
    "kubectl audit": ("kubectl netinit audit web-1", "kubectl netinit audit deploy/web -o json"),
    "kubectl verify": ("kubectl netinit verify web-1", "kubectl netinit verify deploy/web -n shop"),
    "kubectl draw": ("kubectl netinit draw web-1", "kubectl netinit draw web-1 --to db.shop:5432"),
    "kubectl doctor": ("kubectl netinit doctor web-1", "kubectl netinit doctor --cluster"),
    "kubectl watch": ("kubectl netinit watch web-1", "kubectl netinit watch web-1 -o json"),
    "kubectl trace": ("kubectl netinit trace web-1 --to db.shop:5432", "kubectl netinit trace web-1 inbound --to-port 8080"),
    "kubectl fix": ("kubectl netinit fix web-1 --dry-run", "kubectl netinit fix deploy/web --yes"),
    "kubectl report": ("kubectl netinit report web-1 >report.md", "kubectl netinit report web-1 --plain >report.md"),
    "kubectl check": ("kubectl netinit check -n shop", "kubectl netinit check -A -o json"),
    "kubectl preflight": (
        "kubectl netinit preflight --set image.repository=REGISTRY/netinit-webhook",
        "kubectl netinit preflight -f values.yaml -n netinit-system",
    ),
    "webhook": ("netinit webhook lint --context my-cluster", "netinit webhook manifests | kubectl apply -f -"),
    "webhook serve": (
        "netinit webhook serve --certificateSecret netinit-webhook-tls",
        "netinit webhook serve --tlsCertFile tls.crt --tlsKeyFile tls.key",
    ),
    "webhook manifests": (
        "netinit webhook manifests --set image.repository=REGISTRY/netinit-webhook | kubectl apply -f -",
        "netinit webhook manifests -f values.yaml -n mesh-system",
    ),
    "webhook compare": (
        "netinit webhook compare -f reviews/ --url https://localhost:15017/inject --ca ca.pem",
        "netinit webhook compare --context my-cluster --url https://localhost:15017/inject --ca ca.pem",
    ),
    "webhook lint": ("netinit webhook lint --context my-cluster", "netinit webhook lint -f manifests.yaml --json"),
    "webhook probe": (
        "netinit webhook probe --probe-path /tmp/health",
        "netinit webhook probe --probe-path /tmp/health --interval 10s",
    ),
    "node": ("netinit node status", "netinit node uninstall"),
    "node agent": ("netinit node agent --nodeName node-1", "netinit node agent --repair program --sweepInterval 1m"),
    "node status": ("netinit node status", "netinit node status --json"),
    "node run": ("netinit node run --uid UID watch", "netinit node run <questions"),
    "node install": ("netinit node install", "netinit node install --cniConfName 10-calico.conflist"),
    "node uninstall": (
        "netinit node uninstall",
        "netinit node uninstall --cniBinFolder /opt/cni/bin --cniConfFolder /etc/cni/net.d",
    ),
}


def format_epilog(path: str) -> str:
    """The end of the help of a command, named with its group, for click."""
    name = ALIASES.get(path, path)
    lines = [f"  {example}" for example in EXAMPLES.get(name, ())]
    page = name_page(name.partition(" ")[0])
    return "\n".join(["Examples:", "", "\b", *lines, "", page]) if lines else page
