package providers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// node is a part of the schema with its references followed.
type node struct {
	t    testing.TB
	root map[string]any
	at   map[string]any
	path string
}

func (n node) to(part any, path string) node {
	n.t.Helper()
	at, ok := part.(map[string]any)
	if !ok {
		n.t.Fatalf("%s%s: the schema has nothing there", n.path, path)
	}
	out := node{n.t, n.root, at, n.path + path}
	if ref, ok := at["$ref"].(string); ok {
		defs, _ := n.root["$defs"].(map[string]any)
		target, ok := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		if !ok {
			n.t.Fatalf("%s: reference %s leads nowhere", out.path, ref)
		}
		out.at = maps.Clone(target)
		out.at["description"] = at["description"]
	}
	return out
}

// holds compares a type of the spec with its part of the schema.
func (n node) holds(typ reflect.Type) {
	n.t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[duration](), reflect.TypeFor[retention](), reflect.TypeFor[rate]():
		n.is("string")
		return
	case reflect.TypeFor[statusSet]():
		n.is("array")
		return
	case reflect.TypeFor[plain]():
		n.is(nil)
		return
	}
	switch typ.Kind() {
	case reflect.String:
		if n.at["enum"] == nil {
			n.is("string")
		}
		for _, v := range n.list("enum") {
			if _, ok := v.(string); !ok {
				n.t.Errorf("%s: %v is no text", n.path, v)
			}
		}
	case reflect.Bool:
		n.is("boolean")
	case reflect.Int:
		n.is("integer")
	case reflect.Float64:
		n.is("number")
	case reflect.Slice:
		n.is("array")
		n.to(n.at["items"], "[]").holds(typ.Elem())
	case reflect.Map:
		n.is("object")
		n.to(n.at["additionalProperties"], "{}").holds(typ.Elem())
	case reflect.Struct:
		n.fields(typ)
	default:
		n.t.Errorf("%s: no rule for %s", n.path, typ)
	}
}

// fields: every field of the spec is in the schema, described, and no other.
func (n node) fields(typ reflect.Type) {
	n.t.Helper()
	n.is("object")
	if n.at["additionalProperties"] != false {
		n.t.Errorf("%s: unknown fields are allowed", n.path)
	}
	properties, _ := n.at["properties"].(map[string]any)
	left := maps.Clone(properties)
	for field := range typ.Fields() {
		name := field.Tag.Get("yaml")
		part := n.to(properties[name], "."+name)
		if d, _ := part.at["description"].(string); !strings.HasSuffix(d, ".") {
			n.t.Errorf("%s: the description %q is no sentence", part.path, d)
		}
		part.holds(field.Type)
		delete(left, name)
	}
	if len(left) > 0 {
		n.t.Errorf("%s: the format has no field %v", n.path, slices.Sorted(maps.Keys(left)))
	}
	for _, name := range n.list("required") {
		if _, ok := properties[fmt.Sprint(name)]; !ok {
			n.t.Errorf("%s: %v is required and not there", n.path, name)
		}
	}
}

func (n node) is(want any) {
	n.t.Helper()
	if n.at["type"] != want {
		n.t.Errorf("%s: the schema says %v, the format %v", n.path, n.at["type"], want)
	}
}

func (n node) list(name string) []any {
	out, _ := n.at[name].([]any)
	return out
}

func schemaRoot(t testing.TB) node {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	return node{t, root, root, ""}
}

func TestTheSchemaForEditorsHasEveryFieldOfTheFormatAndNoOther(t *testing.T) {
	t.Parallel()
	schemaRoot(t).holds(reflect.TypeFor[fileSpec]())
}

func TestTheSchemaForEditorsHasTheClosedListsOfTheFormat(t *testing.T) {
	t.Parallel()
	root := schemaRoot(t)
	defs := root.to(root.root["$defs"], "$defs")
	words := func(def, field string) []string {
		t.Helper()
		d := defs.to(defs.at[def], "."+def)
		properties := d.to(d.at["properties"], "")
		f := properties.to(properties.at[field], "."+field)
		if f.at["items"] != nil {
			f = f.to(f.at["items"], "[]")
		}
		var out []string
		for _, v := range f.list("enum") {
			out = append(out, fmt.Sprint(v))
		}
		slices.Sort(out)
		return out
	}
	texts := func(list any) []string {
		var out []string
		for v := range reflect.ValueOf(list).Seq2() {
			out = append(out, fmt.Sprint(reflect.ValueOf(list).Index(int(v.Int()))))
		}
		slices.Sort(out)
		return out
	}
	answers := slices.DeleteFunc(operation.OutcomeWords(), func(w operation.OutcomeWord) bool { return w == operation.OutcomeNotSent })
	for where, want := range map[[2]string][]string{
		{"outcome", "is"}:         texts(answers),
		{"action", "on_unknown"}:  texts(events.OnUnknowns()),
		{"request", "method"}:     texts(httpMethods()),
		{"request", "encoding"}:   texts([]string{encodingJSON, encodingForm, encodingGraphQL, encodingNone}),
		{"lookup", "consistency"}: texts([]string{consistencyDirect, consistencyEventual, consistencyFulltext}),
		{"lookup", "proves"}:      texts([]string{provesPresence, provesAbsence}),
		{"action", "uniqueness"}:  texts([]string{uniqueStrict, uniqueWeak}),
		{"action", "class"}: texts([]operation.Class{
			operation.ClassKey, operation.ClassClientID, operation.ClassUpsert, operation.ClassLabel, operation.ClassNone,
		}),
	} {
		if got := words(where[0], where[1]); !slices.Equal(got, want) {
			t.Errorf("%s.%s: got %v, want %v", where[0], where[1], got, want)
		}
	}
}

// compiled is the schema, ready to validate.
func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("contract.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("contract.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// generic is a YAML document as an editor's JSON Schema sees it.
func generic(t testing.TB, data []byte) any {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	v, err := plainValue(doc.Content[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEveryShippedContractFitsTheSchemaForEditors(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	check := func(name string, data []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(generic(t, data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range Shipped() {
		data, err := Template(name, nil)
		check(name, data, err)
	}
	files, err := filepath.Glob("catalogue/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the catalogue: got %v, %v", files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		check(name, data, err)
	}
}

func TestTheSchemaForEditorsKnowsRemoteContracts(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../examples/python/files.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("files.yaml", data); err != nil {
		t.Error(err)
	}
	s := compiled(t)
	if err := s.Validate(generic(t, data)); err != nil {
		t.Error(err)
	}
	for _, by := range []string{"{remote: false}", "{}", `{remote: true, base_url: "https://x.example"}`} {
		if s.Validate(generic(t, bytes.Replace(data, []byte("{remote: true}"), []byte(by), 1))) == nil {
			t.Errorf("connection %s: got no error", by)
		}
	}
}

func TestTheSchemaForEditorsFindsWhatAnAuthorGetsWrong(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for _, change := range [][2]string{
		{"api_version: v1", "api_version: v1\nextra: 1"},
		{"class: K4", "class: K6"},
		{"total: 10s", "total: soon"},
		{"[401, 429]", "[700]"},
		{"retention: none", "retention: never"},
		{"max: 5}", "max: 500}"},
		{"is: rejected", "is: not_sent"},
		{"provider: crm", "provider: a.b"},
		{"task.create:", "Task.Create:"},
	} {
		data, err := Template("sim-crm", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte(change[0])) {
			t.Fatalf("no %q", change[0])
		}
		if s.Validate(generic(t, bytes.Replace(data, []byte(change[0]), []byte(change[1]), 1))) == nil {
			t.Errorf("%q: got no error", change[1])
		}
	}
}
