"""What is added to a pod: configuration, templates, mesh settings, rendering, patches. Pure."""
