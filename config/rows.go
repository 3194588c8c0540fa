package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/train"
)

// A key of the kind kindRows is a list of sections. A source that gives it replaces the whole list of the sources
// before; --set dataset.sources[1].weight=2 changes one value of it.

// rowSet is one value of one section, as --set gives it.
type rowSet struct {
	list  *Key
	index int
	k     *Key   // of the value
	entry string // of a table, "" = the whole value
	value any
}

// rows reads a list of sections.
func (l *layer) rows(k *Key, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		l.wrong(k, k.Kind, n)
		return
	}
	list := []map[string]any{}
	for i, item := range n.Content {
		section := k.row(fmt.Sprintf("[%d]", i))
		values := map[string]any{}
		l.at[section.Path] = l.position(item)
		if item.Kind != yaml.MappingNode {
			l.wrong(section, KindSection, item)
			continue
		}
		l.section(section, item, values)
		for _, c := range section.Keys {
			if table, ok := l.tables[c.Path]; ok {
				values[c.Name] = table
				delete(l.tables, c.Path)
			}
		}
		list = append(list, values)
	}
	l.lists[k.Path] = list
}

var rowPath = regexp.MustCompile(`^(.+)\[([0-9]{1,6})\]\.(.+)$`)

// assignRow reads a value for a path such as dataset.sources[1].weight; false where the path is no such one.
func (l *layer) assignRow(path, text string) bool {
	m := rowPath.FindStringSubmatch(path)
	if m == nil {
		return false
	}
	list, rest := Root.Find(m[1])
	if rest != "" || list.Kind != KindRows {
		return false
	}
	index, _ := strconv.Atoi(m[2]) // six digits at most
	section := list.row("[" + m[2] + "]")
	k, entry := section.Find(m[3])
	if k == section || entry != "" && k.Kind != KindTable {
		l.unknown(nil, section, path, m[3])
		return true
	}
	one := newLayer(l.source, l.order)
	one.lenient = true
	values := map[string]any{}
	if k.Kind == KindText {
		values[k.Name] = text
	} else if n := one.parseNode([]byte(text)); n != nil && entry != "" {
		if v, ok := one.scalar(&Key{Path: path}, k.Elem, n); ok {
			values[k.Name] = v
		}
	} else if n != nil {
		one.value(k, n, values)
		if table, ok := one.tables[k.Path]; ok {
			values[k.Name] = table
		}
	}
	for _, p := range one.problems {
		l.problems = append(l.problems, Problem{At: l.position(nil), Text: p.Text, guess: p.guess})
	}
	if v, ok := values[k.Name]; ok {
		l.at[path] = l.position(nil)
		l.rowSets = append(l.rowSets, rowSet{list, index, k, entry, v})
	}
	return true
}

// mergeLists lets a source's lists replace those before, then changes single values.
func mergeLists(lists map[string][]map[string]any, at map[string]Position, l *layer) {
	for path, list := range l.lists {
		lists[path] = list
		for known := range at {
			if strings.HasPrefix(known, path+"[") {
				delete(at, known)
			}
		}
	}
	for _, s := range l.rowSets {
		list := lists[s.list.Path]
		if s.index >= len(list) {
			l.bad(nil, "%s: there is no such place: %s has %d", s.k.Path, s.list.Path, len(list))
			continue
		}
		values := list[s.index]
		if s.entry == "" {
			values[s.k.Name] = s.value
			continue
		}
		table, ok := values[s.k.Name].(map[string]any)
		if !ok {
			table = map[string]any{}
			values[s.k.Name] = table
		}
		table[s.entry] = s.value
	}
}

// setList writes a list's sections, whose values have the right types, into the configuration.
func setList(s *train.Spec, path string, list []map[string]any) {
	k, _ := Root.Find(path)
	if len(list) == 0 {
		return
	}
	field := reflect.ValueOf(s).Elem()
	for _, i := range k.index {
		if field.Kind() == reflect.Pointer {
			if field.IsNil() { // a section that was left out
				field.Set(reflect.New(field.Type().Elem()))
				keys.SetDefaults(field.Interface())
			}
			field = field.Elem()
		}
		field = field.Field(i)
	}
	rows := reflect.MakeSlice(field.Type(), len(list), len(list))
	for i, values := range list {
		row := rows.Index(i)
		keys.SetDefaults(row.Addr().Interface())
		for _, c := range k.Keys {
			v, ok := values[c.Name]
			if !ok {
				continue
			}
			to := row.FieldByIndex(c.index)
			if c.Kind != KindTable {
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
