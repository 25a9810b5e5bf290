"""The Kubernetes client: finds API server and credentials, sends requests, and keeps caches up to date by watches.

Objects are plain trees, so that fields of newer versions pass through. HTTP is httpx2, the maintained continuation of
httpx: it takes 24 MiB, while clients with models take 31 (lightkube), 44 (kubernetes, kr8s) and 72
(kubernetes_asyncio), and none puts a deadline on a silent watch or keeps a cache correct after 410 Gone. May import
golang and base.

    async with Client(find_access()) as client:
        pods = Cache(client, PODS, namespace="shop")
        task = asyncio.create_task(pods.run())
        await pods.wait()
"""
