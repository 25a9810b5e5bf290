# The images of netinit. None has a shell, pip, a package manager, or a program of netfilter.
#
#   make image          builds the init container's, `init`, with podman or docker: one static executable
#   make image-test     builds it on an empty machine, attacks it, and runs it as Kubernetes does
#
# The target `webhook` is the admission server's image, `node` that of the CNI plugin and its agent: Debian's Python, and netinit.
# make image IMAGE_FLAGS="--target webhook"

# Debian of one day, for amd64 and arm64. The base names the archive of that day itself, so its digest fixes every package.
ARG BASE=debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
ARG PYTHON=python3.11

# ---- what Debian gives
FROM ${BASE} AS system
ARG PYTHON
ENV DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1

# The packages of which the images with Python hold files; of musl they hold what the launcher is linked with.
ENV SERVED="libc-bin libc6 libexpat1 libffi8 libgcc-s1 libssl3 lib${PYTHON}-minimal lib${PYTHON}-stdlib musl-dev netbase \
${PYTHON}-minimal zlib1g"
# Debian's images write the address of their day's archive as a comment above that of the mirrors, which change. What the
# archive says of its own age is of that day too. A base without such comments has no address left, and apt-get says so.
# hadolint ignore=DL3008,SC2086
RUN sed --in-place --regexp-extended '/^URIs:/d; s,^# *(https?://),URIs: \1,' /etc/apt/sources.list.d/debian.sources \
 && apt-get --option Acquire::Check-Valid-Until=false --option Acquire::Retries=5 update \
 && apt-get --option Acquire::Retries=5 install --yes --no-install-recommends $SERVED ca-certificates gcc libc6-dev libcap2-bin \
      musl-tools python3-dev python3-pip python3-setuptools python3-wheel \
 && rm -rf /var/lib/apt/lists/*

# A root with those files in a merged /usr, their licences, and a paragraph about each package where scanners look for it. Taken are
# libraries, Python, programs, what they read in /etc, and licences. Left out are tables of locales, what wants a shell, and of Python
# what is for terminals, mail and tests, what is there twice, servers that are never started, or what wants a library that is not
# there (SQLite, readline).
ENV TAKEN="^/(usr/)?lib(64)?/|bin/(ldconfig|python3)|^/etc/(ld\.so|protocols|services)|^/usr/share/doc/[^/]+(/copyright)?$" \
    LEFT_OUT="/(binfmt\.d|gconv|locale|systemd|[^/]*-linux-musl|curses|ensurepip|idlelib|pydoc_data|sqlite3|test|turtledemo|xmlrpc)(/|$)|/(_pydecimal|_pyio|cgi|cgitb|doctest|imaplib|mailbox|nntplib|pdb|pickletools|poplib|pydoc|telnetlib|turtle)\.py|\
/lib-dynload/_?(bz2|crypt|ctypes_test|curses|dbm|lzma|nis|ossaudiodev|readline|sqlite3|test|uuid|xx)|\
/sitecustomize"
WORKDIR /served
# hadolint ignore=SC2086
RUN mkdir -p dev etc proc run sys tmp usr/bin usr/lib usr/lib64 usr/sbin var/lib/dpkg/status.d \
 && chmod 1777 tmp \
 && ln -s usr/bin usr/lib usr/lib64 usr/sbin . \
 && dpkg --listfiles $SERVED >/tmp/listed \
 && sed --regexp-extended --expression "\,$TAKEN,!d" --expression "\,$LEFT_OUT,d" --expression 's,^/,,' /tmp/listed >/tmp/files \
 && sort --unique --output /tmp/files /tmp/files \
 && tar --create --file /tmp/files.tar --directory / --no-recursion --files-from /tmp/files \
 && tar --extract --file /tmp/files.tar --keep-directory-symlink \
 && cp --archive --parents /usr/share/common-licenses . \
 && for package in $SERVED; do dpkg-query --status "$package" >"var/lib/dpkg/status.d/$package" || exit 1; done \
 && cp --dereference /etc/debian_version /etc/os-release etc \
 && printf '%s\n' root:x:0:0:root:/:/usr/bin/netinit nonroot:x:65532:65532:nonroot:/:/usr/bin/netinit \
      istio-proxy:x:1337:1337:istio-proxy:/:/usr/bin/netinit >etc/passwd \
 && printf '%s\n' root:x:0: nonroot:x:65532: istio-proxy:x:1337: >etc/group \
 && ln -s "$PYTHON" usr/bin/python3 \
 && ldconfig -r . \
 && rm /tmp/files*

# The way in, which starts nothing but netinit.
COPY netinit/bin/launcher.c /build/
RUN musl-gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -s -o usr/bin/netinit /build/launcher.c

# ---- the CNI plugin: static, for hosts that have nothing but a kernel
FROM system AS plugin
COPY netinit/node/plugin.c /build/
RUN musl-gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -s -o /build/netinit-cni /build/plugin.c

# ---- the Python packages, in a layer before the sources
FROM system AS libraries
# A certificate authority of the building network's own counts where one is mounted; the images hold none.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore PIP_TARGET=/usr/lib/netinit
WORKDIR /build
COPY requirements/webhook.txt .
# Exactly these files.
RUN update-ca-certificates >/dev/null 2>&1 \
 && python3 -m pip install --no-compile --require-hashes --no-deps --only-binary :all: --requirement webhook.txt \
 && rm -rf /usr/lib/netinit/bin /usr/lib/netinit/share \
 && mv /usr/lib/netinit /served/usr/lib/netinit \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /served -p / "/served/usr/lib/$PYTHON" /served/usr/lib/netinit

# ---- netinit, compiled, its start in one file
FROM libraries AS package
ARG VERSION=0.2.0
# The time of the files, in seconds: 1980-01-01, the earliest that an archive can hold, where the build does not say.
ARG SOURCE_DATE_EPOCH=315532800
COPY LICENSE README.md pyproject.toml ./
COPY netinit netinit
RUN python3 -m pip install --no-compile --no-index --no-deps --no-build-isolation . \
 && rm -rf /usr/lib/netinit/bin \
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
 && for package in click yaml; do cp --archive "/served/usr/lib/netinit/$package" packages || exit 1; done \
 && "$PYTHON" -I -S ../netinit/bin/executable.py . "/usr/lib/$PYTHON" "/usr/include/$PYTHON" packages \
 && gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I"/usr/include/$PYTHON" -I. -c -o executable.o ../netinit/bin/executable.c \
 && gcc -std=c11 -fno-toplevel-reorder -I"/usr/include/$PYTHON" -c -o code.o code.c \
 && gcc -static -no-pie -T order.ld -o linked executable.o code.o -L"$(echo /usr/lib/$PYTHON/config-*)" -l"$PYTHON" -lz -lm \
 && nm linked >symbols \
 && if grep --word-regexp _dl_open symbols; then exit 1; fi
WORKDIR /build/executable/root
# hadolint ignore=SC2086
RUN mkdir -p dev etc proc run sys tmp usr/bin usr/lib/netinit usr/share/doc/netinit var/lib/dpkg/status.d \
 && chmod 1777 tmp \
 && strip -o usr/bin/netinit ../linked \
 && setcap cap_net_admin,cap_net_raw=p usr/bin/netinit \
 && ln -s netinit usr/bin/istio-iptables \
 && ln -s netinit usr/bin/kubectl-netinit \
 && ln -s netinit usr/bin/kubectl_complete-netinit \
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
      "and build it: make image. The stage has the commands, the source of every object that is" \
      "linked is netinit's or Debian's: apt-get source glibc $PYTHON zlib, in the versions of /var/lib/dpkg/status.d." \
      >usr/share/doc/netinit/relink \
 && cp --archive /usr/lib/netinit/netinit-*.dist-info /served/usr/lib/netinit/click-*.dist-info \
      /served/usr/lib/netinit/*[Yy]aml-*.dist-info usr/lib/netinit \
 && rm usr/lib/netinit/*/RECORD \
 && cp --archive /served/etc/debian_version /served/etc/group /served/etc/os-release /served/etc/passwd etc

# ---- the admission server's image
FROM scratch AS webhook
COPY --from=libraries /served /
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

# ---- the node's image: the admission server's, and the plugin
FROM scratch AS node
COPY --from=libraries /served /
ARG VERSION=0.2.0
COPY --from=package /usr/lib/netinit/netinit /usr/lib/netinit/netinit
COPY --from=package /usr/lib/netinit/netinit-$VERSION.dist-info /usr/lib/netinit/netinit-$VERSION.dist-info
COPY --from=plugin /build/netinit-cni /usr/lib/netinit/netinit-cni
ARG BASE
LABEL org.opencontainers.image.title="netinit-node" \
      org.opencontainers.image.description="Programs the traffic interception of pods from the node, by a CNI plugin" \
      org.opencontainers.image.licenses="Apache-2.0 AND (Apache-2.0 OR BSD-3-Clause) AND BSD-2-Clause AND BSD-3-Clause AND GPL-2.0-only AND GPL-2.0-or-later AND (GPL-2.0-or-later OR Apache-2.0) AND GPL-3.0-or-later WITH GCC-exception-3.1 AND ISC AND LGPL-2.1-or-later AND MIT AND MIT-0 AND PSF-2.0 AND Python-2.0 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/sbin:/usr/bin
# It enters pods: the chart says with which capabilities.
# hadolint ignore=DL3002
USER 0:0
ENTRYPOINT ["/usr/bin/netinit"]

# ---- the init container's image
FROM scratch AS init
COPY --from=executable /build/executable/root /
ARG VERSION=0.2.0
ARG BASE
LABEL org.opencontainers.image.title="netinit" \
      org.opencontainers.image.description="Sets up the traffic interception of a service mesh pod, in the place of istio-init" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-3-Clause AND GPL-2.0-or-later AND ISC AND LGPL-2.1-or-later AND MIT AND Python-2.0 AND Zlib" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.base.name="$BASE"
ENV PATH=/usr/bin
# Dry runs, render and explain need no privileges. Kubernetes' templates say runAsUser: 0 where rules are programmed.
USER 65532:65532
ENTRYPOINT ["/usr/bin/netinit"]
