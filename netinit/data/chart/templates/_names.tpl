{{- define "netinit.name" }}{{ if eq .Values.revision "default" }}{{ .Release.Name }}-webhook{{ else }}{{ .Release.Name }}-webhook-{{ .Values.revision }}{{ end }}{{ end }}
{{- define "netinit.names" }}app.kubernetes.io/name: netinit-webhook, app.kubernetes.io/instance: {{ .Release.Name | quote }}{{ end }}
{{- define "netinit.selector" }}{{ template "netinit.names" . }}, istio.io/rev: {{ .Values.revision | quote }}{{ end }}
{{- define "netinit.common_labels" }}app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}, app.kubernetes.io/component: sidecar-injector, app.kubernetes.io/part-of: netinit, app.kubernetes.io/managed-by: {{ .Release.Service | quote }}{{ end }}
{{- define "netinit.labels" }}{ {{- template "netinit.common_labels" . }}, {{ template "netinit.selector" . }}}{{ end }}
{{- /* Without istio.io/rev: istiod writes its own caBundle into every configuration of webhooks with the label of its revision. */}}
{{- define "netinit.configuration_labels" }}{ {{- template "netinit.common_labels" . }}, {{ template "netinit.names" . }}}{{ end }}
{{- define "netinit.secret" }}{{ if eq .Values.revision "default" }}{{ .Values.certificate.secret }}{{ else }}{{ .Values.certificate.secret }}-{{ .Values.revision }}{{ end }}{{ end }}
{{- define "netinit.configurations" }}{{ template "netinit.name" . }}-sidecar-injector{{ $name := . }}{{ range .Values.tags }},{{ template "netinit.name" $name }}-tag-{{ . }}{{ end }}{{ end }}
{{- /* The values of the webhook's own templates, a text of JSON: those that are given, with the init container's image, and the plugin
       where the node's agent is there. */}}
{{- define "netinit.initImage" }}{{ if .Values.initImage.repository }}{{ .Values.initImage.repository }}{{ else if hasSuffix "netinit-webhook" .Values.image.repository }}{{ trimSuffix "-webhook" .Values.image.repository }}{{ else }}{{ fail "initImage.repository: name the image that programs the rules of pods, which cannot be told from image.repository" }}{{ end }}:{{ .Values.initImage.tag | default .Chart.AppVersion }}{{ end }}
{{- define "netinit.values" }}
  {{- $given := .Values.injection.values }}
  {{- $global := get $given "global" | default dict }}
  {{- $init := get $global "proxy_init" | default dict }} |-
    { {{- range $key, $value := $given }}{{ if not (or (eq $key "global") (and $.Values.node.enabled (eq $key "istio_cni"))) }}{{ toJson $key }}: {{ toJson $value }}, {{ end }}{{ end }}{{ if .Values.node.enabled }}"istio_cni": {"enabled": true}, {{ end }}"global": { {{- range $key, $value := $global }}{{ if ne $key "proxy_init" }}{{ toJson $key }}: {{ toJson $value }}, {{ end }}{{ end }}"proxy_init": { {{- range $key, $value := $init }}{{ if ne $key "image" }}{{ toJson $key }}: {{ toJson $value }}, {{ end }}{{ end }}"image": {{ if get $init "image" }}{{ toJson (get $init "image") }}{{ else }}"{{ template "netinit.initImage" . }}"{{ end -}} }}}
{{- end }}
