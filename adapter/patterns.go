package adapter

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
)

// patterns are rank_pattern or alpha_pattern with their order, which PEFT goes by: the first key that matches counts.
type patterns[V int | float64] struct {
	order  []string
	values map[string]V
}

// patternsOf are a configuration's own; order nil = sorted.
func patternsOf[V int | float64](values map[string]V, order []string) patterns[V] {
	if order == nil {
		order = sortedKeys(values)
	}
	return patterns[V]{order, values}
}

// add puts a pattern behind the others.
func (p *patterns[V]) add(key string, value V) {
	if p.values == nil {
		p.values = map[string]V{}
	}
	if !slices.Contains(p.order, key) {
		p.order = append(p.order, key)
	}
	p.values[key] = value
}

// addEach adds a pattern for the names of one end: one for all where their values are equal.
func (p *patterns[V]) addEach(end string, values map[string]V) {
	names := sortedKeys(values)
	for _, name := range names {
		if values[name] != values[names[0]] {
			for _, name := range names {
				p.add(regexp.QuoteMeta(name), values[name])
			}
			return
		}
	}
	p.add(regexp.QuoteMeta(end), values[names[0]])
}

// before puts other patterns in front.
func (p patterns[V]) before(later patterns[V]) patterns[V] {
	all := patterns[V]{}
	for _, each := range []patterns[V]{p, later} {
		for _, key := range each.order {
			if _, there := all.values[key]; !there {
				if v, ok := each.values[key]; ok {
					all.add(key, v)
				}
			}
		}
	}
	return all
}

func (p patterns[V]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range p.order {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(p.values[key])
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (p *patterns[V]) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &p.values) }
