"""The metadata services of clouds, for --exclude-cloud-metadata."""

from __future__ import annotations

from netinit.base.net import Network

# Link-local and private addresses at which a cloud serves each machine its own metadata.
CLOUD_METADATA = (
    Network.parse("169.254.169.254/32"),  # AWS, Google Cloud, Azure and most others
    Network.parse("168.63.129.16/32"),  # Azure's platform: agents, DNS, health probes
    Network.parse("fd00:ec2::254/128"),  # AWS
    Network.parse("fd20:ce::254/128"),  # Google Cloud
)
