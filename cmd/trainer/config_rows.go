package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train"
)

// A key of the kind kindRows is a list of sections. A source that gives it replaces the whole list of the sources before;
// --set dataset.sources[1].weight=2 changes one value of it.

// rowSet is one value of one section, as --set gives it.
type rowSet struct {
	list  *key
	index int
	k     *key   // of the value
	entry string // of a table, "" = the whole value
	value any
}

// rows reads a list of sections.
func (l *layer) rows(k *key, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		l.wrong(k, k.kind, n)
		return
	}
	list := []map[string]any{}
	for i, item := range n.Content {
		section := k.row(fmt.Sprintf("[%d]", i))
		values := map[string]any{}
		l.at[section.path] = l.position(item)
		if item.Kind != yaml.MappingNode {
			l.wrong(section, kindSection, item)
			continue
		}
		l.section(section, item, values)
		for _, c := range section.keys {
			if table, ok := l.tables[c.path]; ok {
				values[c.name] = table
				delete(l.tables, c.path)
			}
		}
		list = append(list, values)
	}
	l.lists[k.path] = list
}

var rowPath = regexp.MustCompile(`^(.+)\[([0-9]{1,6})\]\.(.+)$`)

// assignRow reads a value for a path such as dataset.sources[1].weight; false where the path is no such one.
func (l *layer) assignRow(path, text string) bool {
	m := rowPath.FindStringSubmatch(path)
	if m == nil {
		return false
	}
	list, rest := schema.find(m[1])
	if rest != "" || list.kind != kindRows {
		return false
	}
	index, _ := strconv.Atoi(m[2]) // six digits at most
	section := list.row("[" + m[2] + "]")
	k, entry := section.find(m[3])
	if k == section || entry != "" && k.kind != kindTable {
		l.unknown(nil, section, path, m[3])
		return true
	}
	one := newLayer(l.source, l.order)
	one.lenient = true
	values := map[string]any{}
	if k.kind == kindText {
		values[k.name] = text
	} else if n := one.parseNode([]byte(text)); n != nil && entry != "" {
		if v, ok := one.scalar(&key{path: path}, k.elem, n); ok {
			values[k.name] = v
		}
	} else if n != nil {
		one.value(k, n, values)
		if table, ok := one.tables[k.path]; ok {
			values[k.name] = table
		}
	}
	for _, p := range one.problems {
		l.problems = append(l.problems, problem{at: l.position(nil), text: p.text, guess: p.guess})
	}
	if v, ok := values[k.name]; ok {
		l.at[path] = l.position(nil)
		l.rowSets = append(l.rowSets, rowSet{list, index, k, entry, v})
	}
	return true
}

// mergeLists lets a source's lists replace those before, then changes single values.
func mergeLists(lists map[string][]map[string]any, at map[string]position, l *layer) {
	for path, list := range l.lists {
		lists[path] = list
		for known := range at {
			if strings.HasPrefix(known, path+"[") {
				delete(at, known)
			}
		}
	}
	for _, s := range l.rowSets {
		list := lists[s.list.path]
		if s.index >= len(list) {
			l.bad(nil, "%s: there is no such place: %s has %d", s.k.path, s.list.path, len(list))
			continue
		}
		values := list[s.index]
		if s.entry == "" {
			values[s.k.name] = s.value
			continue
		}
		table, ok := values[s.k.name].(map[string]any)
		if !ok {
			table = map[string]any{}
			values[s.k.name] = table
		}
		table[s.entry] = s.value
	}
}

// rowDefaults are the values of a list's section that gives none.
var rowDefaults = map[reflect.Type]any{reflect.TypeFor[dataset.Source](): dataset.DefaultSource()}

// setList writes a list's sections, whose values have the right types, into the configuration.
func setList(s *train.Spec, path string, list []map[string]any) {
	k, _ := schema.find(path)
	field := reflect.ValueOf(s).Elem().FieldByIndex(k.index)
	if len(list) == 0 {
		return
	}
	rows := reflect.MakeSlice(field.Type(), len(list), len(list))
	for i, values := range list {
		row := rows.Index(i)
		if given, ok := rowDefaults[row.Type()]; ok {
			row.Set(reflect.ValueOf(given))
		}
		for _, c := range k.keys {
			v, ok := values[c.name]
			if !ok {
				continue
			}
			to := row.FieldByIndex(c.index)
			if c.kind != kindTable {
				to.Set(reflect.ValueOf(v).Convert(to.Type()))
				continue
			}
			m := reflect.MakeMap(to.Type())
			for name, value := range v.(map[string]any) {
				m.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(value).Convert(to.Type().Elem()))
			}
			to.Set(m)
		}
	}
	field.Set(rows)
}
