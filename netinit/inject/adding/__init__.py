"""What is added to a pod: configuration, templates, mesh settings, rendering, patches, and advice for the pod's author. Pure."""
