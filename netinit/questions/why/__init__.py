"""From a symptom to its cause: the steps of a connection, a probe or a pod's start, each passed, failed or unknown. Pure.

`examination` chooses the steps and puts them in order; each other module is one kind of step. The first step that failed is the
answer. What is asked about (manifests, the cluster's objects, explain's answers) is handed in as values.
"""
