package providers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a contract file.
const (
	// MaxFileBytes is the largest contract file.
	MaxFileBytes = 256 << 10
	// maxDepth is how deep its values may nest.
	maxDepth = 32
)

// LoadError says what is wrong with a contract file, and where.
type LoadError struct {
	File string
	Line int
	// Path names the field, such as actions[task.create].timing.total.
	Path string
	Text string
}

// Error gives file:line, the field and the fault.
func (e *LoadError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Path, e.Text)
}

// nodeDecoder is a value that reads itself from a YAML node.
type nodeDecoder interface {
	decodeNode(n *yaml.Node) error
}

// decoder reads YAML strictly: an unknown field, a duplicate key, an alias or a
// second document is an error. It remembers the line of every path.
type decoder struct {
	file  string
	lines map[string]int
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) error {
	return &LoadError{File: d.file, Line: n.Line, Path: path, Text: fmt.Sprintf(format, args...)}
}

// at makes an error about a path that was read before.
func (d *decoder) at(path, format string, args ...any) error {
	return &LoadError{File: d.file, Line: d.line(path), Path: path, Text: fmt.Sprintf(format, args...)}
}

// line returns the line of a path that was read, or of its nearest parent.
func (d *decoder) line(path string) int {
	for p := path; p != ""; p = p[:max(strings.LastIndexAny(p, ".["), 0)] {
		if l, ok := d.lines[p]; ok {
			return l
		}
	}
	return 1
}

// document reads the only document of the file into v.
func (d *decoder) document(data []byte, v any) error {
	if len(data) > MaxFileBytes {
		return &LoadError{File: d.file, Line: 1, Text: fmt.Sprintf("%d bytes, the limit is %d", len(data), MaxFileBytes)}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return d.syntax(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return &LoadError{File: d.file, Line: 1, Text: "more than one document"}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return &LoadError{File: d.file, Line: 1, Text: "the file is empty"}
	}
	return d.decode(doc.Content[0], reflect.ValueOf(v).Elem(), "", 0)
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntax turns an error of the YAML reader into one with file and line.
func (d *decoder) syntax(err error) error {
	if errors.Is(err, io.EOF) {
		return &LoadError{File: d.file, Line: 1, Text: "the file is empty"}
	}
	e := &LoadError{File: d.file, Line: 1, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := yamlLine.FindStringSubmatch(e.Text); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // the pattern has only digits; a huge one becomes the largest int
		e.Text = strings.Replace(e.Text, m[0], "", 1)
	}
	return e
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, depth int) error {
	d.lines[path] = n.Line
	if err := d.check(n, path, depth); err != nil {
		return err
	}
	if own, ok := reflect.TypeAssert[nodeDecoder](v.Addr()); ok {
		if err := own.decodeNode(n); err != nil {
			return d.fail(n, path, "%s", err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.structure(n, v, path, depth)
	case reflect.Map:
		return d.mapping(n, v, path, depth)
	case reflect.Slice:
		return d.sequence(n, v, path, depth)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(n, v.Elem(), path, depth)
	case reflect.String, reflect.Bool, reflect.Int, reflect.Float64:
		return d.scalar(n, v, path)
	}
	panic(fmt.Sprintf("providers: no rule to decode %s", v.Type()))
}

func (d *decoder) check(n *yaml.Node, path string, depth int) error {
	switch {
	case depth > maxDepth:
		return d.fail(n, path, "nested deeper than %d", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return d.fail(n, path, "anchors and aliases are not allowed")
	}
	return nil
}

// members walks a mapping and refuses keys that are not text or come twice.
func (d *decoder) members(n *yaml.Node, path string, visit func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return d.fail(n, path, "must be a mapping")
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" {
			return d.fail(key, path, "a key must be text: quote it")
		}
		if seen[key.Value] {
			return d.fail(key, path, "duplicate key %q", clip(key.Value))
		}
		seen[key.Value] = true
		if err := visit(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string, depth int) error {
	fields := make(map[string]reflect.Value)
	for i := range v.NumField() {
		fields[v.Type().Field(i).Tag.Get("yaml")] = v.Field(i)
	}
	return d.members(n, path, func(key, value *yaml.Node) error {
		field, ok := fields[key.Value]
		if !ok {
			return d.fail(key, join(path, key.Value), "unknown field")
		}
		return d.decode(value, field, join(path, key.Value), depth+1)
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string, depth int) error {
	v.Set(reflect.MakeMap(v.Type()))
	return d.members(n, path, func(key, value *yaml.Node) error {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.decode(value, item, path+"["+clip(key.Value)+"]", depth+1); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), item)
		return nil
	})
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string, depth int) error {
	if n.Kind != yaml.SequenceNode {
		return d.fail(n, path, "must be a list")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if err := d.decode(item, v.Index(i), path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) error {
	wrong := d.fail(n, path, "must be %s", map[reflect.Kind]string{
		reflect.String: "text: quote it", reflect.Bool: "true or false",
		reflect.Int: "a whole number", reflect.Float64: "a number",
	}[v.Kind()])
	if n.Kind != yaml.ScalarNode {
		return wrong
	}
	tag := n.ShortTag()
	switch {
	case v.Kind() == reflect.String && tag == "!!str":
		v.SetString(n.Value)
		return nil
	case v.Kind() == reflect.String:
		return wrong
	case v.Kind() == reflect.Bool && tag != "!!bool", v.Kind() == reflect.Int && tag != "!!int":
		return wrong
	case v.Kind() == reflect.Float64 && tag != "!!int" && tag != "!!float":
		return wrong
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		return wrong
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return clip(key)
	}
	return path + "." + clip(key)
}

// plain is any JSON-like value of a contract: a body, a schema, a wanted value.
type plain struct {
	v   any
	set bool
}

func (p *plain) decodeNode(n *yaml.Node) error {
	v, err := plainValue(n, 0)
	*p = plain{v, true}
	return err
}

// plainValue turns a node into the values of encoding/json, numbers as
// json.Number.
func plainValue(n *yaml.Node, depth int) (any, error) {
	d := decoder{}
	if err := d.check(n, "", depth); err != nil {
		return nil, textOf(err)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		err := d.members(n, "", func(key, value *yaml.Node) error {
			v, err := plainValue(value, depth+1)
			out[key.Value] = v
			return err
		})
		return out, textOf(err)
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := plainValue(item, depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case yaml.ScalarNode:
		return plainScalar(n)
	case yaml.DocumentNode, yaml.AliasNode:
	}
	return nil, errors.New("must be a value")
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$`)

func plainScalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str":
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, errors.New("must be true or false")
		}
		return b, nil
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			return json.Number(n.Value), nil
		}
	}
	return nil, fmt.Errorf("%q is neither text nor a JSON number: quote it", clip(n.Value))
}

// textOf drops the place of an error, which the caller knows better.
func textOf(err error) error {
	if e, ok := errors.AsType[*LoadError](err); ok {
		return errors.New(e.Text)
	}
	return err
}
