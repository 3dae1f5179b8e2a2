package events_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/events/schema"
)

const schemaBase = "https://opledger.dev/schema/v1/"

func loadSchemas(t *testing.T) (*jsonschema.Compiler, map[string]map[string]any) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	docs := map[string]map[string]any{}
	files, err := fs.Glob(schema.FS(), "v1/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		body, err := fs.ReadFile(schema.FS(), file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		docs[name] = doc.(map[string]any)
		if err := c.AddResource(schemaBase+name+".json", doc); err != nil {
			t.Fatal(err)
		}
		if docs[name]["$id"] != schemaBase+name+".json" || docs[name]["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $id or $schema is wrong", file)
		}
	}
	return c, docs
}

// Section 11: every golden event is valid by the schema of its kind, and a
// broken one is not.
func TestGoldenEventsFollowTheSchemas(t *testing.T) {
	t.Parallel()
	c, _ := loadSchemas(t)
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		of, _, _ := strings.Cut(name, ".")
		switch of {
		case "unknown_kind":
			of = "envelope"
		case "unknown_members":
			of = "ReviewOpened"
		}
		s, err := c.Compile(schemaBase + of + ".json")
		if err != nil {
			t.Fatal(err)
		}
		check := func(body []byte) error {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			return s.Validate(v)
		}
		body := read(t, name)
		if err := check(body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if check(bytes.Replace(body, []byte(`"event_id"`), []byte(`"event_ix"`), 1)) == nil {
			t.Errorf("%s without event_id is valid by the schema %s", name, of)
		}
		if of != "envelope" && check(bytes.Replace(body, []byte(".v1."), []byte(".v1.X"), 1)) == nil {
			t.Errorf("%s of another kind is valid by the schema %s", name, of)
		}
	}
}

// members returns the JSON members of a struct, embedded ones included, and
// which of them are always written.
func members(typ reflect.Type, all map[string]reflect.Type, always map[string]bool) {
	for f := range typ.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			members(f.Type, all, always)
			continue
		}
		all[tag] = f.Type
		always[tag] = options == ""
	}
}

// agree compares a struct with its schema in both directions.
func agree(t *testing.T, where string, typ reflect.Type, object map[string]any) {
	t.Helper()
	all, always := map[string]reflect.Type{}, map[string]bool{}
	members(typ, all, always)
	properties, _ := object["properties"].(map[string]any)
	for name := range properties {
		if _, ok := all[name]; !ok {
			t.Errorf("%s: the schema describes %q, which is never written", where, name)
		}
	}
	var required []string
	for name, member := range all {
		described, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s: %q is written, but the schema does not describe it", where, name)
			continue
		}
		if always[name] {
			required = append(required, name)
		}
		for member.Kind() == reflect.Pointer || (member.Kind() == reflect.Slice && member.Elem().Kind() == reflect.Struct) {
			if member.Kind() == reflect.Slice {
				described = described["items"].(map[string]any)
			}
			member = member.Elem()
		}
		if _, nested := described["properties"]; nested || (member.Kind() == reflect.Struct && member.Name() != "Time") {
			agree(t, where+"."+name, member, described)
		}
	}
	var stated []string
	for _, v := range anySlice(object["required"]) {
		stated = append(stated, v.(string))
	}
	slices.Sort(required)
	slices.Sort(stated)
	if diff := cmp.Diff(required, stated); diff != "" {
		t.Errorf("%s: always written and required differ (-written +schema):\n%s", where, diff)
	}
}

func anySlice(v any) []any { s, _ := v.([]any); return s }

func data(doc map[string]any) map[string]any {
	return doc["properties"].(map[string]any)["data"].(map[string]any)
}

// Section 11: the schemas describe each member that the Go types write, and none
// beside; all names are snake_case; none is used by the common members too.
func TestSchemasDescribeWhatIsWritten(t *testing.T) {
	t.Parallel()
	_, docs := loadSchemas(t)
	common := data(docs["envelope"])["properties"].(map[string]any)
	for _, p := range full() {
		doc, ok := docs[string(p.Kind())]
		if !ok {
			t.Errorf("%s has no schema", p.Kind())
			continue
		}
		agree(t, string(p.Kind()), reflect.TypeOf(p), data(doc))
		for name := range data(doc)["properties"].(map[string]any) {
			if _, twice := common[name]; twice {
				t.Errorf("%s.%s is a member of every event already", p.Kind(), name)
			}
			if strings.ToLower(name) != name || strings.ContainsAny(name, "- ") {
				t.Errorf("%s.%s is not snake_case", p.Kind(), name)
			}
		}
	}
	if len(docs) != len(events.Kinds())+2 {
		t.Errorf("%d schemas for %d kinds, envelope and system", len(docs), len(events.Kinds()))
	}
	// The envelope itself, as it is written with everything set.
	body, err := events.Encode(eventOf(events.ArgumentsErased{KeyID: "k"}, true))
	if err != nil {
		t.Fatal(err)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal(body, &written); err != nil {
		t.Fatal(err)
	}
	sameKeys(t, "envelope", written, docs["envelope"]["properties"].(map[string]any))
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(written["data"], &inner); err != nil {
		t.Fatal(err)
	}
	delete(inner, "key_id")
	sameKeys(t, "envelope.data", inner, common)
}

func sameKeys(t *testing.T, where string, written map[string]json.RawMessage, described map[string]any) {
	t.Helper()
	var a, b []string
	for k := range written {
		a = append(a, k)
	}
	for k := range described {
		b = append(b, k)
	}
	slices.Sort(a)
	slices.Sort(b)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("%s (-written +schema):\n%s", where, diff)
	}
}

// The closed lists of the schemas are those of the code.
func TestSchemasKnowTheClosedLists(t *testing.T) {
	t.Parallel()
	_, docs := loadSchemas(t)
	defs := docs["envelope"]["$defs"].(map[string]any)
	enum := func(name string) []string {
		var out []string
		for _, v := range anySlice(defs[name].(map[string]any)["enum"]) {
			out = append(out, v.(string))
		}
		return out
	}
	same(t, "next_action", enum("next_action"), events.NextActions())
	same(t, "unknown_reason", enum("unknown_reason"), events.UnknownReasons())
	same(t, "proof", enum("proof"), events.Proofs())
	same(t, "evidence_source", enum("evidence_source"), events.EvidenceSources())
	same(t, "finding", enum("finding"), events.Findings())
	same(t, "basis", enum("basis"), events.Bases())
	same(t, "review_reason", enum("review_reason"), events.ReviewReasons())
	same(t, "via", enum("via"), events.Vias())
	same(t, "decision", enum("decision"), events.DecisionWords())
	same(t, "on_unknown", enum("on_unknown"), events.OnUnknowns())
}

func same[T ~string](t *testing.T, name string, described []string, list []T) {
	t.Helper()
	var code []string
	for _, v := range list {
		code = append(code, string(v))
	}
	slices.Sort(code)
	slices.Sort(described)
	if diff := cmp.Diff(code, described); diff != "" {
		t.Errorf("%s (-code +schema):\n%s", name, diff)
	}
}

// Between them the golden events of a kind have every member set, so that none
// can lose its name unseen.
func TestGoldenEventsSetEveryMember(t *testing.T) {
	t.Parallel()
	_, docs := loadSchemas(t)
	for _, kind := range events.Kinds() {
		seen := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(goldenDir, string(kind)+".*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var env struct{ Data any }
			if err := json.Unmarshal(read(t, filepath.Base(file)), &env); err != nil {
				t.Fatal(err)
			}
			paths("", env.Data, seen)
		}
		described := map[string]bool{}
		describedPaths("", data(docs[string(kind)]), described)
		for path := range described {
			if !seen[path] {
				t.Errorf("%s: no golden event has %s", kind, path)
			}
		}
	}
}

func paths(prefix string, v any, seen map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			seen[prefix+"."+name] = true
			paths(prefix+"."+name, inner, seen)
		}
	case []any:
		for _, inner := range v {
			paths(prefix, inner, seen)
		}
	}
}

func describedPaths(prefix string, object map[string]any, out map[string]bool) {
	if items, ok := object["items"].(map[string]any); ok {
		object = items
	}
	properties, _ := object["properties"].(map[string]any)
	for name, inner := range properties {
		out[prefix+"."+name] = true
		describedPaths(prefix+"."+name, inner.(map[string]any), out)
	}
}
