{{- /* Every value leaves a template as JSON, which is YAML that nothing inside can break out of, and of which a text stays a text. */}}
{{- define "netinit.base" }}{{ .Values.fullnameOverride | default .Release.Name }}{{ end }}
{{- define "netinit.name" }}{{ template "netinit.base" . }}-webhook{{ if ne .Values.revision "default" }}-{{ .Values.revision }}{{ end }}{{ end }}
{{- /* Puts the labels that select the pods of each part into the map `.into`; what a template gives itself is a text. `.of`: the whole chart. */}}
{{- define "netinit.selectors" }}
  {{- $_ := set .into "webhook" (dict "app.kubernetes.io/name" "netinit-webhook" "app.kubernetes.io/instance" .of.Release.Name "istio.io/rev" .of.Values.revision) }}
  {{- $_ := set .into "node" (dict "app.kubernetes.io/name" "netinit-node" "app.kubernetes.io/instance" .of.Release.Name) }}
{{- end }}
{{- define "netinit.selector" }}{{ $found := dict }}{{ template "netinit.selectors" (dict "into" $found "of" .) }}{{ toJson $found.webhook }}{{ end }}
{{- define "netinit.labels" }}{{ toJson (merge (dict "app.kubernetes.io/name" "netinit-webhook" "app.kubernetes.io/instance" .Release.Name "istio.io/rev" .Values.revision "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/component" "sidecar-injector" "app.kubernetes.io/part-of" "netinit" "app.kubernetes.io/managed-by" .Release.Service) .Values.commonLabels) }}{{ end }}
{{- /* Without istio.io/rev: istiod writes its own caBundle into every configuration of webhooks with the label of its revision. */}}
{{- define "netinit.configuration_labels" }}{{ toJson (merge (dict "app.kubernetes.io/name" "netinit-webhook" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/component" "sidecar-injector" "app.kubernetes.io/part-of" "netinit" "app.kubernetes.io/managed-by" .Release.Service) .Values.commonLabels) }}{{ end }}
{{- define "netinit.secret" }}{{ .Values.certificate.secret }}{{ if ne .Values.revision "default" }}-{{ .Values.revision }}{{ end }}{{ end }}
{{- define "netinit.configurations" }}{{ template "netinit.name" . }}-sidecar-injector{{ $name := . }}{{ range .Values.tags }},{{ template "netinit.name" $name }}-tag-{{ . }}{{ end }}{{ end }}
{{- /* The reference of an image: of a map with repository, tag and digest, and the chart's version. */}}
{{- define "netinit.image" }}{{ .repository }}{{ if or .tag (not .digest) }}:{{ .tag | default .version }}{{ end }}{{ if .digest }}@{{ .digest }}{{ end }}{{ end }}
{{- /* The values of the webhook's own templates, a text of JSON: those that are given, with the init container's image, and the plugin
       where the node's agent is there. */}}
{{- define "netinit.values" }}
  {{- $global := get .Values.injection.values "global" | default dict }}
  {{- $init := get $global "proxy_init" | default dict }}
  {{- if not (get $init "image") }}
    {{- $repository := .Values.initImage.repository }}
    {{- if not $repository }}
      {{- if not (hasSuffix "netinit-webhook" .Values.image.repository) }}
        {{- fail "initImage.repository: name the image that programs the rules of pods, which cannot be told from image.repository" }}
      {{- end }}
      {{- $repository = trimSuffix "-webhook" .Values.image.repository }}
    {{- end }}
    {{- $tag := .Values.initImage.tag }}
    {{- if and (not $tag) (not .Values.initImage.digest) }}{{ $tag = .Chart.AppVersion }}{{ end }}
    {{- $image := $repository }}
    {{- if $tag }}{{ $image = printf "%s:%s" $image $tag }}{{ end }}
    {{- if .Values.initImage.digest }}{{ $image = printf "%s@%s" $image .Values.initImage.digest }}{{ end }}
    {{- $init = merge (dict "image" $image) (omit $init "image") }}
  {{- end }}
  {{- $values := merge (dict "global" (merge (dict "proxy_init" $init) (omit $global "proxy_init"))) (omit .Values.injection.values "global") }}
  {{- if .Values.node.enabled }}
    {{- $values = merge (dict "istio_cni" (dict "enabled" true)) (omit $values "istio_cni") }}
  {{- end }}
  {{- toJson (toJson $values) }}
{{- end }}
{{- /* What values say that contradicts the chart's own. */}}
{{- define "netinit.checks" }}
  {{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/component" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "istio.io/rev" "sidecar.istio.io/inject" "istio.io/dataplane-mode" }}
  {{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "node.podLabels" .Values.node.podLabels }}
    {{- range $key, $_ := $labels }}
      {{- if has $key $own }}{{ fail (printf "%s: %s is the chart's own label; remove it" $value $key) }}{{ end }}
    {{- end }}
  {{- end }}
  {{- $variables := list "POD_NAMESPACE" "POD_NAME" "POD_UID" "NODE_NAME" }}
  {{- range $value, $given := dict "extraEnv" .Values.extraEnv "node.extraEnv" .Values.node.extraEnv }}
    {{- range $given }}
      {{- if has .name $variables }}{{ fail (printf "%s: %s is the chart's own variable; remove it" $value .name) }}{{ end }}
    {{- end }}
  {{- end }}
  {{- $volumes := list "values" "tls" "clients" "bin" "conf" "run" "netns" "records" "cgroups" }}
  {{- range $value, $given := dict "extraVolumes" .Values.extraVolumes "node.extraVolumes" .Values.node.extraVolumes }}
    {{- range $given }}
      {{- if has .name $volumes }}{{ fail (printf "%s: %s is the name of a volume of the chart; take another" $value .name) }}{{ end }}
    {{- end }}
  {{- end }}
  {{- $name := printf "%s-webhook-%s" (.Values.fullnameOverride | default .Release.Name) .Values.revision }}
  {{- if eq .Values.revision "default" }}{{ $name = trimSuffix "-default" $name }}{{ end }}
  {{- if gt (len $name) 63 }}
    {{- fail (printf "revision: the Service's name %s is longer than 63 characters; shorten the revision, or set fullnameOverride" $name) }}
  {{- end }}
{{- end }}
