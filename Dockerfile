# The init container: netinit, Debian's Python and the programs that speak to netfilter. No shell, pip or package manager.
#
#   make image          builds it with podman or docker
#   make image-test     builds it on an empty machine, attacks it, and runs it as Kubernetes does
#
# The target `webhook` is another image, of the admission server: make image IMAGE_FLAGS="--target webhook". The target
# `node` is a third, of the CNI plugin and its agent; `init-nft` an init container that programs by netlink alone, and has
# Python and nothing else.

# Debian of one day, for amd64 and arm64. The base names the archive of that day itself, so its digest fixes every package.
ARG BASE=debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
ARG PYTHON=python3.11

# ---- what Debian gives
FROM ${BASE} AS system
ARG PYTHON
ENV DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1

# The packages of which the image holds files; of musl it holds what the launcher is linked with.
ENV KEPT="ipset iptables libbsd0 libc-bin libc6 libedit2 libexpat1 libffi8 libgmp10 libip4tc2 libip6tc2 libipset13 \
libjansson4 libmd0 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libnftables1 libnftnl11 lib${PYTHON}-minimal \
lib${PYTHON}-stdlib libtinfo6 libxtables12 musl-dev netbase nftables ${PYTHON}-minimal zlib1g"
# Debian's images write the address of their day's archive as a comment above that of the mirrors, which change. What the
# archive says of its own age is of that day too. A base without such comments has no address left, and apt-get says so.
# hadolint ignore=DL3008,SC2086
RUN sed --in-place --regexp-extended '/^URIs:/d; s,^# *(https?://),URIs: \1,' /etc/apt/sources.list.d/debian.sources \
 && apt-get --option Acquire::Check-Valid-Until=false --option Acquire::Retries=5 update \
 && apt-get --option Acquire::Retries=5 install --yes --no-install-recommends $KEPT ca-certificates gcc libc6-dev libcap2-bin \
      musl-tools python3-dev python3-pip python3-setuptools python3-wheel \
 && rm -rf /var/lib/apt/lists/*

# The admission server's image has the same Python with TLS and none of the programs; the node's has both.
ENV SERVED="libc-bin libc6 libexpat1 libffi8 libgcc-s1 libssl3 lib${PYTHON}-minimal lib${PYTHON}-stdlib musl-dev netbase \
${PYTHON}-minimal zlib1g" OF_THE_NODE="$KEPT libgcc-s1 libssl3"
# What Python itself wants: native nft tables are programmed without a program or a library.
ENV OF_PYTHON="libc-bin libc6 libexpat1 libffi8 lib${PYTHON}-minimal lib${PYTHON}-stdlib musl-dev netbase ${PYTHON}-minimal zlib1g"

# For each a root with those files in a merged /usr, their licences, and a paragraph about each package where scanners look
# for it. Taken are libraries, Python, programs, what they read in /etc, and licences. Left out are tables of locales, what
# wants a shell, and of Python what is for terminals, mail and tests, what is there twice, servers that are never started, or what wants a
# library that is not there (SQLite, readline, and for the init container OpenSSL).
ENV TAKEN="^/(usr/)?lib(64)?/|bin/(ip6?tables|ipset|ldconfig|nft|python3|xtables)|^/etc/(ld\.so|protocols|services)|^/usr/share/doc/[^/]+(/copyright)?$" \
    LEFT_OUT="/(binfmt\.d|gconv|locale|systemd|[^/]*-linux-musl|curses|ensurepip|idlelib|pydoc_data|sqlite3|test|turtledemo|xmlrpc)(/|$)|/(_pydecimal|_pyio|cgi|cgitb|doctest|imaplib|mailbox|nntplib|pdb|pickletools|poplib|pydoc|telnetlib|turtle)\.py|\
/lib-dynload/_?(bz2|crypt|ctypes_test|curses|dbm|lzma|nis|ossaudiodev|readline|sqlite3|test|uuid|xx)|\
/ip6?tables-apply|/sitecustomize" \
    OF_OPENSSL="/lib-dynload/_(hashlib|ssl)"
WORKDIR /
# hadolint ignore=DL3003,SC2086
RUN gather() { \
      mkdir -p "$1" && cd "$1" \
      && mkdir -p dev etc proc run sys tmp usr/bin usr/lib usr/lib64 usr/sbin var/lib/dpkg/status.d \
      && chmod 1777 tmp \
      && ln -s usr/bin usr/lib usr/lib64 usr/sbin . \
      && dpkg --listfiles $3 >/tmp/listed \
      && sed --regexp-extended --expression "\\,$TAKEN,!d" --expression "\\,$2,d" --expression 's,^/,,' /tmp/listed >/tmp/files \
      && sort --unique --output /tmp/files /tmp/files \
      && tar --create --file /tmp/files.tar --directory / --no-recursion --files-from /tmp/files \
      && tar --extract --file /tmp/files.tar --keep-directory-symlink \
      && cp --archive --parents /usr/share/common-licenses . \
      && for package in $3; do dpkg-query --status "$package" >"var/lib/dpkg/status.d/$package" || exit 1; done \
      && cp --dereference /etc/debian_version /etc/os-release etc \
      && printf '%s\n' root:x:0:0:root:/:/usr/bin/netinit nonroot:x:65532:65532:nonroot:/:/usr/bin/netinit \
           istio-proxy:x:1337:1337:istio-proxy:/:/usr/bin/netinit >etc/passwd \
      && printf '%s\n' root:x:0: nonroot:x:65532: istio-proxy:x:1337: >etc/group \
      && ln -s "$PYTHON" usr/bin/python3 \
      && ldconfig -r . ; } \
 && gather /image "$LEFT_OUT|$OF_OPENSSL" "$KEPT" \
 && gather /webhook "$LEFT_OUT" "$SERVED" \
 && gather /node "$LEFT_OUT" "$OF_THE_NODE" \
 && gather /init-nft "$LEFT_OUT|$OF_OPENSSL" "$OF_PYTHON" \
 && rm /tmp/files*

# The way in, which starts nothing but netinit, has the capabilities that a user other than root needs: permitted, not
# effective ones, so that it starts everywhere, also where the container may not have them. The servers' is plain.
WORKDIR /image
COPY netinit/bin/launcher.c /build/
RUN musl-gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -s -o usr/bin/netinit /build/launcher.c \
 && install --target-directory /webhook/usr/bin usr/bin/netinit \
 && install --target-directory /node/usr/bin usr/bin/netinit \
 && install --target-directory /init-nft/usr/bin usr/bin/netinit \
 && ln -s netinit usr/bin/istio-iptables \
 && ln -s netinit /init-nft/usr/bin/istio-iptables \
 && setcap cap_net_admin=p /init-nft/usr/bin/netinit \
 && setcap cap_net_admin,cap_net_raw=p usr/bin/netinit

# ---- the Python packages, in a layer before the sources
FROM system AS libraries
# A certificate authority of the building network's own counts where one is mounted; the image holds none.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore PIP_TARGET=/usr/lib/netinit CFLAGS=-g0
WORKDIR /build
COPY requirements/image.txt .
# Exactly these files: what has to be built is built with Debian's setuptools, nothing else is fetched for it.
RUN update-ca-certificates >/dev/null 2>&1 \
 && python3 -m pip install --no-compile --require-hashes --no-deps --use-pep517 --no-build-isolation \
      --only-binary :all: --no-binary python-iptables --requirement image.txt \
 && find /usr/lib/netinit -name '*.so' -exec strip --strip-unneeded {} + \
 && rm -rf /usr/lib/netinit/bin /usr/lib/netinit/share \
 && mv /usr/lib/netinit /image/usr/lib/netinit \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /image -p / "/image/usr/lib/$PYTHON" /image/usr/lib/netinit

# ---- the CNI plugin: static, for hosts that have nothing but a kernel
FROM system AS plugin
COPY netinit/node/plugin.c /build/
RUN musl-gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -s -o /build/netinit-cni /build/plugin.c

# ---- netinit, compiled, its start in one file
FROM libraries AS package
ARG VERSION=0.2.0
# The time of the files, in seconds: 1980-01-01, the earliest that an archive can hold, where the build does not say.
ARG SOURCE_DATE_EPOCH=315532800
COPY LICENSE README.md pyproject.toml ./
COPY netinit netinit
RUN python3 -m pip install --no-compile --no-index --no-deps --no-build-isolation . \
 && rm -rf /usr/lib/netinit/bin \
 && ln -s netinit/__main__.py /usr/lib/netinit/istio-iptables \
 && find /usr/lib/netinit -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} + \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/netinit \
 && PYTHONPATH=/usr/lib/netinit python3 -P -c "import sys, netinit; netinit.__version__ == '$VERSION' \
      or sys.exit('these sources are netinit ' + netinit.__version__ + '; the build was told VERSION=$VERSION')"

# ---- netinit as one static executable, of Debian's static libraries. Python is 3.11 until a newer one starts as fast: 3.12 and 3.13
# take 18 and 22 of a hundred more instructions.
FROM package AS executable
ARG PYTHON
# What is linked, and what of Python's library is embedded. The C library's licence (LGPL-2.1, section 6) wants that a user can link
# another one: the image's /usr/share/doc/netinit/relink says how, of which sources.
ENV PARTS="libc6-dev lib${PYTHON}-dev lib${PYTHON}-minimal lib${PYTHON}-stdlib zlib1g-dev"
WORKDIR /build/executable
# There is no loader in it: the build fails if what opens libraries is linked.
# hadolint ignore=SC2086
RUN mkdir packages \
 && cp --archive ../netinit packages \
 && for package in click yaml; do cp --archive "/image/usr/lib/netinit/$package" packages || exit 1; done \
 && "$PYTHON" -I -S ../netinit/bin/executable.py . "/usr/lib/$PYTHON" "/usr/include/$PYTHON" packages \
 && gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I"/usr/include/$PYTHON" -I. -c -o executable.o ../netinit/bin/executable.c \
 && gcc -std=c11 -fno-toplevel-reorder -I"/usr/include/$PYTHON" -c -o code.o code.c \
 && gcc -static -no-pie -T order.ld -o linked executable.o code.o -L"$(echo /usr/lib/$PYTHON/config-*)" -l"$PYTHON" -lz -lm \
 && if nm linked | grep --word-regexp _dl_open; then exit 1; fi
WORKDIR /build/executable/root
# hadolint ignore=SC2086
RUN mkdir -p dev etc proc run sys tmp usr/bin usr/lib/netinit usr/share/doc/netinit var/lib/dpkg/status.d \
 && chmod 1777 tmp \
 && strip -o usr/bin/netinit ../linked \
 && setcap cap_net_admin,cap_net_raw=p usr/bin/netinit \
 && ln -s netinit usr/bin/istio-iptables \
 && ln -s netinit usr/bin/kubectl-netinit \
 && ln -s usr/bin usr/lib . \
 && for package in $PARTS; do \
      dpkg-query --status "$package" >"var/lib/dpkg/status.d/$package" \
      && mkdir -p "usr/share/doc/$package" \
      && cp --dereference "/usr/share/doc/$package/copyright" "usr/share/doc/$package" || exit 1; \
    done \
 && cp --archive --parents /usr/share/common-licenses . \
 && cp --archive /build/LICENSE usr/share/doc/netinit \
 && printf '%s\n' "/usr/bin/netinit is linked statically with the GNU C library (LGPL-2.1-or-later), $(dpkg-query --show libc6-dev)." \
      "To link it with another one: in the sources of netinit of this version, change the packages of the stage \"executable\" of Dockerfile," \
      "and build it: make image IMAGE_FLAGS=\"--target init-executable\". The stage has the commands, the source of every object that is" \
      "linked is netinit's or Debian's: apt-get source glibc $PYTHON zlib, in the versions of /var/lib/dpkg/status.d." \
      >usr/share/doc/netinit/relink \
 && cp --archive /usr/lib/netinit/netinit-*.dist-info /image/usr/lib/netinit/click-*.dist-info \
      /image/usr/lib/netinit/*[Yy]aml-*.dist-info usr/lib/netinit \
 && cp --archive /image/etc/debian_version /image/etc/group /image/etc/os-release /image/etc/passwd etc

FROM scratch AS init-executable
COPY --from=executable /build/executable/root /
ARG VERSION=0.2.0
ARG BASE
LABEL org.opencontainers.image.title="netinit-executable" \
      org.opencontainers.image.description="Sets up the traffic interception of a service mesh pod: one static executable" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-3-Clause AND GPL-2.0-or-later AND ISC AND LGPL-2.1-or-later AND MIT AND Python-2.0 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/netinit"]

# ---- the admission server's image
FROM system AS webhook-libraries
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore PIP_TARGET=/usr/lib/netinit
WORKDIR /build
COPY requirements/webhook.txt .
RUN update-ca-certificates >/dev/null 2>&1 \
 && python3 -m pip install --no-compile --require-hashes --no-deps --only-binary :all: --requirement webhook.txt \
 && rm -rf /usr/lib/netinit/bin /usr/lib/netinit/share \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /webhook -p / "/webhook/usr/lib/$PYTHON" /usr/lib/netinit

FROM scratch AS webhook
COPY --from=webhook-libraries /webhook /
COPY --from=webhook-libraries /usr/lib/netinit /usr/lib/netinit
ARG VERSION=0.2.0
COPY --from=package /usr/lib/netinit/netinit /usr/lib/netinit/netinit
COPY --from=package /usr/lib/netinit/netinit-$VERSION.dist-info /usr/lib/netinit/netinit-$VERSION.dist-info
ARG BASE
LABEL org.opencontainers.image.title="netinit-webhook" \
      org.opencontainers.image.description="Injects the sidecar of a service mesh as pods are created" \
      org.opencontainers.image.licenses="Apache-2.0 AND (Apache-2.0 OR BSD-3-Clause) AND BSD-2-Clause AND BSD-3-Clause AND GPL-2.0-only AND GPL-2.0-or-later AND (GPL-2.0-or-later OR Apache-2.0) AND GPL-3.0-or-later WITH GCC-exception-3.1 AND ISC AND LGPL-2.1-or-later AND MIT AND MIT-0 AND PSF-2.0 AND Python-2.0 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/sbin:/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/netinit"]

# ---- the node's image: the init container's programs, Python with TLS, the agent's packages, and the plugin
FROM scratch AS node
COPY --from=system /node /
COPY --from=webhook-libraries /usr/lib/netinit /usr/lib/netinit
ARG VERSION=0.2.0
COPY --from=package /usr/lib/netinit/netinit /usr/lib/netinit/netinit
COPY --from=package /usr/lib/netinit/netinit-$VERSION.dist-info /usr/lib/netinit/netinit-$VERSION.dist-info
COPY --from=plugin /build/netinit-cni /usr/lib/netinit/netinit-cni
ARG BASE
LABEL org.opencontainers.image.title="netinit-node" \
      org.opencontainers.image.description="Programs the traffic interception of pods from the node, by a CNI plugin" \
      org.opencontainers.image.licenses="Apache-2.0 AND (Apache-2.0 OR BSD-3-Clause) AND BSD-2-Clause AND BSD-3-Clause AND Beerware AND GPL-2.0-only AND GPL-2.0-or-later AND (GPL-2.0-or-later OR Apache-2.0) AND (GPL-2.0-or-later OR LGPL-3.0-or-later) AND GPL-3.0-or-later WITH GCC-exception-3.1 AND ISC AND LGPL-2.1-or-later AND MIT AND MIT-0 AND PSF-2.0 AND Python-2.0 AND X11 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/sbin:/usr/bin
# It enters pods: the chart says with which capabilities.
# hadolint ignore=DL3002
USER 0:0
ENTRYPOINT ["/usr/bin/netinit"]

# ---- the init container's package: without the server, the agent, their client and chart, and the plugin of kubectl
FROM package AS init-package
WORKDIR /usr/lib/netinit/netinit
RUN rm -r bin cli/node cli/webhook data/chart installation kube kubectl node serving webhook \
 && sed --in-place --regexp-extended \
      '\,^netinit/(bin|cli/node|cli/webhook|data/chart|installation|kube|kubectl|node|serving|webhook)/,d' ../netinit-*.dist-info/RECORD \
 && touch --reference=__init__.py . cli data ../netinit-*.dist-info ../netinit-*.dist-info/RECORD

# ---- the init container of native nft tables: Python and netinit
FROM system AS init-nft-system
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -s /init-nft -p / "/init-nft/usr/lib/$PYTHON"

FROM scratch AS init-nft
COPY --from=init-nft-system /init-nft /
COPY --from=init-package /usr/lib/netinit /usr/lib/netinit
ARG VERSION=0.2.0
ARG BASE
LABEL org.opencontainers.image.title="netinit-nft" \
      org.opencontainers.image.description="Sets up the traffic interception of a service mesh pod by netlink, without programs" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND GPL-2.0-only AND GPL-2.0-or-later AND (GPL-2.0-or-later OR Apache-2.0) AND ISC AND LGPL-2.1-or-later AND MIT AND Python-2.0 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/sbin:/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/netinit"]

# ---- the image
FROM scratch AS init
COPY --from=libraries /image /
COPY --from=init-package /usr/lib/netinit /usr/lib/netinit
# Behind the files: podman keeps a step whose words are the same, whatever the value of VERSION was.
ARG VERSION=0.2.0
ARG BASE
LABEL org.opencontainers.image.title="netinit" \
      org.opencontainers.image.description="Sets up the traffic interception of a service mesh pod, in the place of istio-init" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND Beerware AND GPL-2.0-only AND GPL-2.0-or-later AND (GPL-2.0-or-later OR Apache-2.0) AND (GPL-2.0-or-later OR LGPL-3.0-or-later) AND ISC AND LGPL-2.1-or-later AND MIT AND Python-2.0 AND X11 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/sbin:/usr/bin
# Dry runs, render and explain need no privileges. Kubernetes' templates say runAsUser: 0 where rules are programmed.
USER 65532:65532
ENTRYPOINT ["/usr/bin/netinit"]
