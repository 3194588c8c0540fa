package jinja

func filterUnique(st *state, b *[maxParams]Value) Value {
	v, attr, fold := b[0], b[2], !flag(st, b[1])
	return lazily(st, func(st *state) pull {
		get := attrGetter(st, attr, fold, nil)
		seen := map[any]bool{}
		next := mustIter(v)
		return func(st *state) Value {
			for {
				v := next(st)
				if v == nil {
					return nil
				}
				if key := hashKey(st, get(st, v)); !seen[key] {
					st.use(keySize)
					seen[key] = true
					return v
				}
			}
		}
	})
}

func filterMap(st *state, a args) Value {
	v := a.pos[0]
	rest := append([]Value(nil), a.pos[1:]...)
	kw := a.kw
	return lazily(st, func(st *state) pull {
		if !truthy(st, v) {
			return pullItems(nil)
		}
		f := mapper(st, rest, kw)
		next := mustIter(v)
		return func(st *state) Value {
			v := next(st)
			if v == nil {
				return nil
			}
			return f(st, v)
		}
	})
}

func mapper(st *state, rest []Value, kw []kwarg) func(*state, Value) Value {
	if len(rest) == 0 {
		var attr, otherwise Value
		found := false
		for _, k := range kw {
			if k.name == "attribute" {
				attr, found = k.v, true
			}
		}
		if !found {
			raise("FilterArgumentError", "map requires a filter argument")
		}
		for _, k := range kw {
			switch k.name {
			case "attribute":
			case "default":
				if _, none := k.v.(None); !none {
					otherwise = k.v
				}
			default:
				raise("FilterArgumentError", "Unexpected keyword argument %s", quote(k.name))
			}
		}
		return attrGetter(st, attr, false, otherwise)
	}
	f := lookUp(filters, "filter", rest[0])
	return func(st *state, v Value) Value {
		st.step(len(rest))
		return f(st).apply(st, args{append([]Value{v}, rest[1:]...), kw})
	}
}

// lookUp finds a filter or test by a name from the template; an unknown name is an error when it is used.
func lookUp(table map[string]*filter, kind string, name Value) func(*state) *filter {
	return func(st *state) *filter {
		s, ok := asStr(name)
		if f := table[s]; ok && f != nil {
			return f
		}
		hashKey(st, name)
		raise("TemplateRuntimeError", "No %s named %s.", kind, safeRepr(name))
		return nil
	}
}

func selectFilter(name string, negate, byAttr bool) func(st *state, a args) Value {
	return func(st *state, a args) Value {
		v := a.pos[0]
		rest := append([]Value(nil), a.pos[1:]...)
		kw := a.kw
		return lazily(st, func(st *state) pull {
			if !truthy(st, v) {
				return pullItems(nil)
			}
			passes := selector(st, rest, kw, byAttr)
			next := mustIter(v)
			return func(st *state) Value {
				for {
					v := next(st)
					st.step(1)
					if v == nil || passes(st, v) != negate {
						return v
					}
				}
			}
		})
	}
}

func selector(st *state, rest []Value, kw []kwarg, byAttr bool) func(*state, Value) bool {
	get := func(_ *state, v Value) Value { return v }
	if byAttr {
		if len(rest) == 0 {
			raise("FilterArgumentError", "Missing parameter for attribute name")
		}
		get = attrGetter(st, rest[0], false, nil)
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return func(st *state, v Value) bool { return truthy(st, get(st, v)) }
	}
	t := lookUp(tests, "test", rest[0])
	return func(st *state, v Value) bool {
		st.step(len(rest))
		return truthy(st, t(st).apply(st, args{append([]Value{get(st, v)}, rest[1:]...), kw}))
	}
}

// lazily returns a generator whose work begins when the first item is requested.
func lazily(st *state, start func(st *state) pull) *iterator {
	st.use(16 * valueSize)
	var next pull
	return &iterator{"generator", func(st *state) Value {
		st.pull()
		defer st.pulled()
		if next == nil {
			next = start(st)
		}
		return next(st)
	}}
}

func filterItems(st *state, b *[maxParams]Value) Value {
	v := b[0]
	return lazily(st, func(*state) pull {
		switch v := v.(type) {
		case *undefined:
			return pullItems(nil)
		case *Dict:
			return (&dictView{v, "dict_items"}).pull()
		}
		raise("TypeError", "Can only get item pairs from a mapping.")
		return nil
	})
}
