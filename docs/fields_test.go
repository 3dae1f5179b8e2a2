package docs_test

import (
	"reflect"
	"slices"
	"strings"

	"github.com/opledger/opledger/events"
)

// payloadFields returns the JSON names of a payload, those of embedded structs
// included; members of nested objects are "outer.inner".
func payloadFields(p events.Payload) []string { return jsonFields(reflect.TypeOf(p), "") }

func jsonFields(t reflect.Type, prefix string) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		nested := inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "opledger/events")
		switch {
		case f.Anonymous && name == "":
			out = append(out, jsonFields(f.Type, prefix)...)
		case nested:
			out = append(out, prefix+name)
			out = append(out, jsonFields(inner, prefix+name+".")...)
		case name != "":
			out = append(out, prefix+name)
		}
	}
	slices.Sort(out)
	return out
}
