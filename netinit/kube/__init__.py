"""How a cluster is asked, by the only Kubernetes client: where it is and who asks, requests, watches that keep a cache true.

It speaks of objects as trees, so that fields of a newer Kubernetes pass through unharmed. HTTP is httpx2's, the kept-up
continuation of httpx, on the raw API: on the machine of our measurements it takes 24 MiB where the clients with models
take 31 (lightkube), 44 (kubernetes, kr8s) and 72 (kubernetes_asyncio); none of these puts a deadline on a watch that has
gone silent, or keeps a cache true after 410 Gone. May import: golang, base.

    async with Client(find_access()) as client:
        pods = Cache(client, PODS, namespace="shop")
        task = asyncio.create_task(pods.run())
        await pods.wait(10)
"""
