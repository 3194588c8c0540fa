package importer

import "strings"

// validation calls read and records the sources that it finds as sources of validation rows.
func (t *translation) validation(read func()) {
	rows, first := t.data, len(t.entries)
	t.data = nil
	read()
	t.val = append(t.val, t.data...)
	t.data = rows
	for i := first; i < len(t.entries); i++ {
		e := &t.entries[i]
		if of, ok := strings.CutPrefix(e.To, "dataset.sources"); ok {
			e.To = "dataset.val_sources" + of
		} else if of, ok := strings.CutPrefix(e.To, "dataset."); ok && (of == "path" || of == "format" ||
			of == "fields") {
			e.To = "dataset.val_sources[]." + of
		}
	}
}

// validationSources writes the sources of validation rows: a single one with the format of the training rows as
// dataset.val_path, others as dataset.val_sources.
func (t *translation) validationSources() {
	if len(t.val) == 0 {
		return
	}
	from := "validation rows of the file"
	if one := t.val[0]; len(t.val) == 1 && len(t.data) == 1 && one.Get("split") == nil && one.Get("name") == nil &&
		one.Get("revision") == nil &&
		t.at["dataset.path"] < len(t.set) && t.has("dataset.path") &&
		Text(one.Get("format")) == Text(t.data[0].Get("format")) &&
		Text(one.Get("fields")) == Text(t.data[0].Get("fields")) {
		t.at["dataset.val_path"] = len(t.set)
		t.set = append(t.set, Setting{"dataset.val_path", one.Get("path"), from})
		for i := range t.entries {
			if of, ok := strings.CutPrefix(t.entries[i].To, "dataset.val_sources[]."); ok {
				t.entries[i].To = "dataset." + map[bool]string{true: "val_path", false: of}[of == "path"]
			}
		}
		return
	}
	var list []any
	for _, m := range t.val {
		list = append(list, m)
	}
	t.at["dataset.val_sources"] = len(t.set)
	t.set = append(t.set, Setting{"dataset.val_sources", list, from})
}

// streaming translates to dataset.streaming, which needs a number of steps.
func streaming(t *translation, e entry) {
	if n, ok := fit(t.given["max_steps"].Value, Whole); e.Value == true && (!ok || n.(int64) <= 0) {
		t.missing(e, "dataset.streaming needs training.max_steps; without it the rows are read before the first step")
		return
	}
	t.take(e, "dataset.streaming")
}

// evalPacking reports that validation rows are always packed, which does not change their loss.
func evalPacking(t *translation, e entry) {
	if e.Value == true {
		t.add(Taken, e, "", nil, "validation rows are always packed")
		return
	}
	t.add(Different, e, "", nil,
		"validation rows are always packed; none attends to another, and the loss is the mean "+
			"over their trained tokens")
}

// endOfTurn translates train_on_eos: turn is what always happens here.
func endOfTurn(t *translation, e entry) {
	if e.Value == "turn" {
		t.add(Taken, e, "", nil, "the token that ends a trained turn is always trained")
		return
	}
	t.missing(e, t.keys[e.Key].Say)
}

// specialTokens reports that no padding token is needed; other special tokens come from the tokenizer.
func specialTokens(t *translation, e entry) {
	m, ok := e.Value.(Map)
	if !ok {
		t.missing(e, t.keys[e.Key].Say)
		return
	}
	var roles Map
	for _, p := range m {
		one := entry{Pair: p, shown: e.shown + "." + shorten(p.Key)}
		if p.Key == "pad_token" || isEmpty(p.Value) {
			t.add(Taken, one, "", nil, "no row is padded, so no token is needed for it")
			continue
		}
		roles = append(roles, p)
	}
	if roles != nil {
		t.put(e, "tokenizer.add_special_tokens", roles, "their rows must be trained if the vocabulary lacks them")
	}
}

func valSize(t *translation, e entry) {
	v, ok := fit(e.Value, Number)
	f, part := v.(float64)
	n, whole := v.(int64)
	switch {
	case !ok:
		t.missing(e, "dataset.val_split is a part of the rows, such as 0.05")
	case part && f < 1 || whole && n == 0:
		t.put(e, "dataset.val_split", v, "")
	default:
		t.missing(e, "a number of rows; dataset.val_split is a part of them, such as 0.05")
	}
}

// templates lists chat templates that have the same name here.
var templates = map[string]bool{"chatml": true, "vicuna": true, "zephyr": true}

func template(t *translation, e entry) {
	s, _ := e.Value.(string)
	switch {
	case templates[s]:
		t.take(e, "dataset.chat_template")
	case s == "jinja" || s == "tokenizer_default":
		t.add(Taken, e, "", nil, "the model's own template is the default")
	case strings.HasSuffix(s, ".jinja"):
		t.take(e, "dataset.chat_template")
	default:
		t.put(e, "dataset.chat_template", "", "the model's own template is used; trainer inspect template shows it; a "+
			".jinja file replaces it")
	}
}

// system translates the system message of conversations that have none.
func system(t *translation, e entry) {
	switch e.Value {
	case nil, "":
		t.off(e)
	default:
		t.take(e, "dataset.system")
	}
}

// talks sets dataset.as_chat for rows that the other program renders as conversations, unless the format already does.
func (t *translation) talks(from string) {
	if t.has("dataset.as_chat") {
		return
	}
	t.at["dataset.as_chat"] = len(t.set)
	t.set = append(t.set, Setting{"dataset.as_chat", "yes", from})
}
