// Tells the types of template data that tests/go_types.py writes to netinit/data, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

type signature struct {
	Pointer bool     `json:"pointer,omitempty"`
	Takes   []string `json:"takes,omitempty"`
	Gives   []string `json:"gives,omitempty"`
}

// what visiting types finds
type library struct {
	methods map[string]map[string]signature
	names   map[string]string
	structs map[string][][]any
	seen    map[reflect.Type]bool
}

func newLibrary(all ...any) *library {
	l := &library{map[string]map[string]signature{}, map[string]string{}, map[string][][]any{}, map[reflect.Type]bool{}}
	for _, one := range all {
		l.visit(reflect.TypeOf(one))
	}
	return l
}

func (l *library) visit(t reflect.Type) {
	if t.Name() == "" {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			l.visit(t.Elem())
		case reflect.Map:
			l.visit(t.Key())
			l.visit(t.Elem())
		}
		return
	}
	if t.PkgPath() == "" || l.seen[t] || t.Kind() == reflect.Interface {
		return
	}
	l.seen[t] = true
	l.addMethods(t)
	switch t.Kind() {
	case reflect.Struct:
		l.structs[t.String()] = [][]any{}
		for i := 0; i < t.NumField(); i++ {
			if f := t.Field(i); f.IsExported() {
				l.structs[t.String()] = append(l.structs[t.String()], describe(f))
				l.visit(f.Type)
			}
		}
	case reflect.Map:
		l.names[t.String()] = "map[" + t.Key().String() + "]" + t.Elem().String()
		l.visit(t.Key())
		l.visit(t.Elem())
	default:
		l.names[t.String()] = t.Kind().String()
	}
}

func describe(f reflect.StructField) []any {
	tag := strings.Split(f.Tag.Get("json"), ",")
	name, mark, number := tag[0], "", 0
	switch {
	case f.Anonymous && name == "":
		mark = "+"
	case f.Anonymous:
		mark = "@"
	case len(tag) == 1:
		mark = "!"
	case f.Type.Kind() == reflect.Struct && strings.Contains(f.Tag.Get("json"), "omitzero"):
		mark = "~"
	}
	if name == "" {
		name = f.Name
	}
	if parts := strings.Split(f.Tag.Get("protobuf"), ","); len(parts) > 1 {
		fmt.Sscan(parts[1], &number)
	}
	return []any{name, f.Name, f.Type.String(), mark, number}
}

func (l *library) addMethods(t reflect.Type) {
	found := map[string]signature{}
	own := func(s string) string {
		name := strings.TrimLeft(s, "*[]")
		if name == t.String() {
			return strings.TrimSuffix(s, name) + "T"
		}
		return s
	}
	p := reflect.PointerTo(t)
	for i := 0; i < p.NumMethod(); i++ {
		m := p.Method(i)
		one := signature{}
		_, ofValue := t.MethodByName(m.Name)
		one.Pointer = !ofValue
		for a := 1; a < m.Type.NumIn(); a++ {
			one.Takes = append(one.Takes, own(m.Type.In(a).String()))
			if in := m.Type.In(a); in.PkgPath() != "" && in.Kind() >= reflect.Bool && in.Kind() <= reflect.Float64 {
				l.names[in.String()] = in.Kind().String()
			}
		}
		for a := 0; a < m.Type.NumOut(); a++ {
			one.Gives = append(one.Gives, own(m.Type.Out(a).String()))
		}
		if !strings.HasPrefix(m.Name, "Get") || !strings.Contains(t.PkgPath(), "istio.io/api") {
			found[m.Name] = one
		}
	}
	l.methods[t.String()] = found
}

// groups tells sets of methods, and which of them each type has.
func (l *library) groups() ([]map[string]signature, map[string][]int) {
	holders, signatures := map[string][]string{}, map[string]signature{}
	for name, methods := range l.methods {
		for m, s := range methods {
			raw, _ := json.Marshal(s)
			key := m + " " + string(raw)
			signatures[key] = s
			holders[key] = append(holders[key], name)
		}
	}
	sets := map[string]map[string]signature{}
	for key, names := range holders {
		sort.Strings(names)
		id := strings.Join(names, " ")
		if sets[id] == nil {
			sets[id] = map[string]signature{}
		}
		sets[id][strings.SplitN(key, " ", 2)[0]] = signatures[key]
	}
	ids := []string{}
	for id := range sets {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	told, of := []map[string]signature{}, map[string][]int{}
	for place, id := range ids {
		told = append(told, sets[id])
		for _, name := range strings.Split(id, " ") {
			of[name] = append(of[name], place)
		}
	}
	return told, of
}

type messages struct {
	fields map[string][][]any
	enums  map[string]map[string]int
	types  *library
}

func nameOf(d protoreflect.Descriptor) string {
	pkg := string(d.ParentFile().Package())
	name := strings.ReplaceAll(strings.TrimPrefix(string(d.FullName()), pkg+"."), ".", "_")
	if pkg == "istio.mesh.v1alpha1" {
		return name
	}
	return pkg[strings.LastIndex(pkg, ".")+1:] + "." + name
}

func (all *messages) kind(f protoreflect.FieldDescriptor) string {
	if f.IsMap() {
		return "map[string]" + all.kind(f.MapValue())
	}
	list := ""
	if f.IsList() {
		list = "[]"
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		found, _ := protoregistry.GlobalTypes.FindMessageByName(f.Message().FullName())
		all.types.visit(reflect.TypeOf(found.Zero().Interface()))
		if f.Message().ParentFile().Package() == "google.protobuf" {
			return list + string(f.Message().Name())
		}
		all.walk(f.Message())
		return list + nameOf(f.Message())
	case protoreflect.EnumKind:
		found, _ := protoregistry.GlobalTypes.FindEnumByName(f.Enum().FullName())
		all.types.visit(reflect.TypeOf(found.New(0)))
		values := map[string]int{}
		for i := 0; i < f.Enum().Values().Len(); i++ {
			values[string(f.Enum().Values().Get(i).Name())] = int(f.Enum().Values().Get(i).Number())
		}
		all.enums[nameOf(f.Enum())] = values
		return list + "enum:" + nameOf(f.Enum())
	}
	return list + f.Kind().String()
}

func (all *messages) walk(m protoreflect.MessageDescriptor) {
	if all.fields[nameOf(m)] != nil {
		return
	}
	all.fields[nameOf(m)] = [][]any{}
	for i := 0; i < m.Fields().Len(); i++ {
		f := m.Fields().Get(i)
		oneof := ""
		if o := f.ContainingOneof(); o != nil {
			oneof = string(o.Name())
		}
		all.fields[nameOf(m)] = append(all.fields[nameOf(m)], []any{f.JSONName(), string(f.Name()), all.kind(f), oneof})
	}
}

func main() {
	pods := newLibrary(metav1.ObjectMeta{}, corev1.PodSpec{}, metav1.TypeMeta{}, schema.GroupVersionKind{}, schema.GroupVersion{},
		schema.GroupKind{}, types.NamespacedName{}, time.Duration(0))
	all := &messages{map[string][][]any{}, map[string]map[string]int{}, newLibrary(meshconfig.MeshConfig{})}
	all.walk((&meshconfig.MeshConfig{}).ProtoReflect().Descriptor())
	ofPods, podsHave := pods.groups()
	ofMesh, meshHas := all.types.groups()
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.Encode(map[string]any{
		"kubernetes": map[string]any{"names": pods.names, "structs": pods.structs, "methods": ofPods, "have": podsHave},
		"mesh":       map[string]any{"messages": all.fields, "enums": all.enums, "methods": ofMesh, "have": meshHas},
	})
}
