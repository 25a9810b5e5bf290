# The init container: netinit, Debian's Python and the programs that speak to netfilter. No shell, pip or package manager.
#
#   make image          builds it with podman or docker
#   make image-test     builds it on an empty machine, attacks it, and runs it as Kubernetes does

# ---- what Debian gives
FROM debian:bookworm-slim AS system
ENV DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1

# The packages of which the image holds the files.
ENV KEPT="ipset iptables libbsd0 libc-bin libc6 libedit2 libexpat1 libffi8 libgmp10 libip4tc2 libip6tc2 libipset13 \
libjansson4 libmd0 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libnftables1 libnftnl11 libpython3.11-minimal \
libpython3.11-stdlib libtinfo6 libxtables12 netbase nftables python3.11-minimal zlib1g"
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
 && apt-get install --yes --no-install-recommends $KEPT binutils ca-certificates gcc libc6-dev libcap2-bin \
      python3-dev python3-pip python3-setuptools python3-wheel \
 && rm -rf /var/lib/apt/lists/*

# A root with those files in a merged /usr, their licences, and a paragraph about each package where scanners look for it.
# The expressions of sed, in order: paths as the merged /usr has them; only programs, libraries, Python, what they read in
# /etc, and licences; no tables of locales, no parts of Python for terminals, tests and documents; nothing that wants a shell;
# relative paths. Modules of Python that want a library which is not there (OpenSSL, SQLite, readline) are left out.
# The interpreter's capabilities are permitted, not effective: root does not need them, and for another user netinit raises
# them where the container may have them.
WORKDIR /image
# hadolint ignore=SC2086
RUN mkdir -p dev etc proc run sys tmp usr/bin usr/lib usr/lib64 usr/sbin var/lib/dpkg/status.d \
 && chmod 1777 tmp \
 && ln -s usr/bin usr/lib usr/lib64 usr/sbin . \
 && dpkg --listfiles $KEPT >/tmp/files \
 && sed --in-place --regexp-extended /tmp/files \
      --expression 's,^/((bin|lib|lib64|sbin)/),/usr/\1,' \
      --expression '\,^/(usr/lib|usr/s?bin/(python3|ipset|ldconfig|nft|xtables|ip6?tables)|etc/(ld\.so|protocols|services)|usr/share/doc/[^/]+(/copyright)?$),!d' \
      --expression '\,/(binfmt.d|gconv|locale|systemd|python3.11/(curses|ensurepip|idlelib|pydoc_data|sqlite3|test|turtledemo))(/|$),d' \
      --expression '\,/(lib-dynload/_?(ctypes_test|ossaudiodev|test|xx)|ip6?tables-apply|sitecustomize),d' \
      --expression 's,^/,,' \
 && sort --unique --output /tmp/files /tmp/files \
 && tar --create --file /tmp/files.tar --directory / --no-recursion --files-from /tmp/files \
 && tar --extract --file /tmp/files.tar \
 && cp --archive --parents /usr/share/common-licenses . \
 && for module in usr/lib/python3.11/lib-dynload/*.so; do \
      readelf --dynamic "$module" >/tmp/dynamic && sed --quiet 's/.*NEEDED.*\[\(.*\)\]/\1/p' /tmp/dynamic >/tmp/wanted; \
      while read -r library; do \
        [ -n "$(find usr/lib -name "$library")" ] || rm --force "$module"; \
      done </tmp/wanted; \
    done \
 && for package in $KEPT; do dpkg-query --status "$package" >"var/lib/dpkg/status.d/$package" || exit 1; done \
 && cp --dereference /etc/debian_version /etc/os-release etc \
 && printf '%s\n' root:x:0:0:root:/:/usr/bin/netinit nonroot:x:65532:65532:nonroot:/:/usr/bin/netinit \
      istio-proxy:x:1337:1337:istio-proxy:/:/usr/bin/netinit >etc/passwd \
 && printf '%s\n' root:x:0: nonroot:x:65532: istio-proxy:x:1337: >etc/group \
 && ldconfig -r . \
 && ln -s ../lib/netinit/netinit/__main__.py usr/bin/netinit \
 && ln -s ../lib/netinit/netinit/__main__.py usr/bin/istio-iptables \
 && ln -s python3.11 usr/bin/python3 \
 && setcap cap_net_admin,cap_net_raw=p usr/bin/python3.11

# ---- the Python packages, in a layer before the sources
FROM system AS libraries
# A certificate authority of the building network's own counts where one is mounted; the image holds none.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore PIP_TARGET=/usr/lib/netinit CFLAGS=-g0
WORKDIR /build
COPY pyproject.toml .
RUN update-ca-certificates >/dev/null 2>&1 \
 && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["image"])' \
      >/tmp/requirements \
 && xargs python3 -m pip install --no-compile </tmp/requirements \
 && find /usr/lib/netinit -name '*.so' -exec strip --strip-unneeded {} + \
 && rm -rf /usr/lib/netinit/bin /usr/lib/netinit/share \
 && mv /usr/lib/netinit /image/usr/lib/netinit \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /image -p / /image/usr/lib/python3.11 /image/usr/lib/netinit

# ---- netinit, compiled, its start in one file
FROM libraries AS package
ARG VERSION=0.1.0
# The time of the files, in seconds: 1980-01-01, the earliest that an archive can hold, where the build does not say.
ARG SOURCE_DATE_EPOCH=315532800
COPY LICENSE README.md ./
COPY netinit netinit
RUN python3 -m pip install --no-compile --no-deps --no-build-isolation . \
 && rm -rf /usr/lib/netinit/bin \
 && chmod 755 /usr/lib/netinit/netinit/__main__.py \
 && find /usr/lib/netinit -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} + \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/netinit \
 && PYTHONPATH=/usr/lib/netinit python3 -P -c "import sys, netinit; netinit.__version__ == '$VERSION' \
      or sys.exit('these sources are netinit ' + netinit.__version__ + '; the build was told VERSION=$VERSION')"

# ---- the image
FROM scratch
COPY --from=libraries /image /
COPY --from=package /usr/lib/netinit /usr/lib/netinit
# Behind the files: podman keeps a step whose words are the same, whatever the value of VERSION was.
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="netinit" \
      org.opencontainers.image.description="Sets up the traffic interception of a service mesh pod, in the place of istio-init" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="debian:bookworm-slim"
ENV PATH=/usr/sbin:/usr/bin
# Dry runs, render and explain need no privileges. Kubernetes' templates say runAsUser: 0 where rules are programmed.
USER 65532:65532
ENTRYPOINT ["/usr/bin/python3.11", "-I", "-S", "/usr/lib/netinit/netinit/__main__.py"]
