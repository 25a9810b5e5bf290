"""The Kubernetes client: find the API server and credentials, send requests, and keep caches up to date by watches.

Objects are plain trees, so fields of newer Kubernetes versions pass through unchanged. HTTP is httpx2, the maintained
continuation of httpx, on the raw API: in our measurements it takes 24 MiB, while clients with models take 31 (lightkube),
44 (kubernetes, kr8s) and 72 (kubernetes_asyncio); none of these puts a deadline on a silent watch, or keeps a cache
correct after 410 Gone. May import: golang, base.

    async with Client(find_access()) as client:
        pods = Cache(client, PODS, namespace="shop")
        task = asyncio.create_task(pods.run())
        await pods.wait(10)
"""
