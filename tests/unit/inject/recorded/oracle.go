// Tells what Go's text/template makes of templates with the data of Istio's injector: JSON on standard input and output.
// It is built with Istio's functions for templates (InjectionFuncmap of pkg/kube/inject/template.go) in its package.
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The defaults that InjectionFuncmap compares with, as Istio's pkg/config/mesh has them.
func DefaultProxyConfig() *meshconfig.ProxyConfig {
	return &meshconfig.ProxyConfig{
		ConfigPath:               "./etc/istio/proxy",
		ClusterName:              &meshconfig.ProxyConfig_ServiceCluster{ServiceCluster: "istio-proxy"},
		DrainDuration:            durationpb.New(45 * time.Second),
		TerminationDrainDuration: durationpb.New(5 * time.Second),
		ProxyAdminPort:           15000,
		ControlPlaneAuthPolicy:   meshconfig.AuthenticationPolicy_MUTUAL_TLS,
		DiscoveryAddress:         "istiod.istio-system.svc:15012",
		BinaryPath:               "/usr/local/bin/envoy",
		StatNameLength:           189,
		StatusPort:               15020,
	}
}

// SidecarTemplateData of Istio's pkg/kube/inject.
type SidecarTemplateData struct {
	TypeMeta                 metav1.TypeMeta
	DeploymentMeta           types.NamespacedName
	ObjectMeta               metav1.ObjectMeta
	Spec                     corev1.PodSpec
	ProxyConfig              *meshconfig.ProxyConfig
	MeshConfig               *meshconfig.MeshConfig
	Values                   map[string]any
	Revision                 string
	NativeSidecars           bool
	ProxyImage               string
	ProxyInitImage           string
	ProxyUID                 int64
	ProxyGID                 int64
	InboundTrafficPolicyMode string
	CompliancePolicy         string
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// overlaid puts top-level fields over those of a message in JSON.
func overlaid(base []byte, given map[string]json.RawMessage) []byte {
	whole := map[string]json.RawMessage{}
	must(json.Unmarshal(base, &whole))
	for name, value := range given {
		whole[name] = value
	}
	out, err := json.Marshal(whole)
	must(err)
	return out
}

func readMesh(given map[string]json.RawMessage) *meshconfig.MeshConfig {
	proxy, err := protojson.Marshal(DefaultProxyConfig())
	must(err)
	of := map[string]json.RawMessage{}
	if given["defaultConfig"] != nil {
		must(json.Unmarshal(given["defaultConfig"], &of))
	}
	base := []byte(`{"connectTimeout": "10s", "dnsRefreshRate": "60s", "ingressClass": "istio"}`)
	whole := overlaid(overlaid(base, given), map[string]json.RawMessage{"defaultConfig": overlaid(proxy, of)})
	mesh := &meshconfig.MeshConfig{}
	must(protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(whole, mesh))
	return mesh
}

func answer(text string, data *SidecarTemplateData) map[string]string {
	parsed, err := template.New("inject").Funcs(sprig.TxtFuncMap()).Funcs(InjectionFuncmap).Parse(text)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return map[string]string{"text": out.String()}
}

func main() {
	var asked struct {
		Pod       corev1.Pod
		Mesh      map[string]json.RawMessage
		Templates []string
	}
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	mesh := readMesh(asked.Mesh)
	told := []map[string]string{}
	for _, text := range asked.Templates {
		told = append(told, answer(text, &SidecarTemplateData{
			TypeMeta:       metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
			DeploymentMeta: types.NamespacedName{Namespace: "shop", Name: "web"},
			ObjectMeta:     *asked.Pod.ObjectMeta.DeepCopy(),
			Spec:           *asked.Pod.Spec.DeepCopy(),
			ProxyConfig:    mesh.DefaultConfig,
			MeshConfig:     mesh,
			Values:         map[string]any{},
			ProxyUID:       1337,
			ProxyGID:       1337,
		}))
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	must(out.Encode(told))
}
