"""FlashDeployment -> wanted processes. Pure: no kubernetes, no kopf."""
