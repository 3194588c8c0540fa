package importer

import (
	"path"
	"slices"
	"strings"
)

// source adds a data source made of pairs of our keys and values. Pairs without a value are left out.
func (t *translation) source(pairs ...Pair) {
	var m Map
	for _, p := range pairs {
		if !isEmpty(p.Value) {
			m = append(m, p)
		}
	}
	t.data = append(t.data, m)
}

// sources writes the data sources to the settings: a single one as dataset.path, otherwise as dataset.sources.
func (t *translation) sources() {
	if len(t.data) == 0 {
		return
	}
	t.data = counted(t.data)
	simple := len(t.data) == 1
	for _, p := range t.data[0] {
		simple = simple && (p.Key == "path" || p.Key == "format" || p.Key == "fields")
	}
	from := "the data of the file"
	if t.note != "" {
		from = t.note
	}
	if simple {
		for _, p := range t.data[0] {
			t.at["dataset."+p.Key] = len(t.set)
			t.set = append(t.set, Setting{"dataset." + p.Key, p.Value, from})
		}
		return
	}
	var list []any
	for _, m := range t.data {
		list = append(list, m)
	}
	t.at["dataset.sources"] = len(t.set)
	t.set = append(t.set, Setting{"dataset.sources", list, from})
}

// counted returns each source once. A source that the file names several times gets a weight of that number.
func counted(data []Map) (all []Map) {
	times := map[string]int64{}
	for _, m := range data {
		times[Text(m)]++
	}
	for _, m := range data {
		n := times[Text(m)]
		if n == 0 {
			continue // counted already
		}
		times[Text(m)] = 0
		if n > 1 {
			m = append(m[:len(m):len(m)], Pair{Key: "weight", Value: n})
		}
		all = append(all, m)
	}
	return all
}

// fields maps our fields to keys of the rows, where the names differ.
func fields(pairs ...[2]any) Map {
	var m Map
	for _, p := range pairs {
		ours, _ := p[0].(string)
		if theirs, ok := p[1].(string); ok && theirs != "" && theirs != ours {
			m = append(m, Pair{Key: ours, Value: theirs})
		}
	}
	return m
}

// axolotl holds the rules of keys with a meaning specific to Axolotl.
var axolotl = map[string]rule{
	"datasets":       axolotlDatasets,
	"test_datasets":  func(t *translation, e entry) { t.validation(func() { axolotlDatasets(t, e) }) },
	"strict":         func(t *translation, e entry) { t.ifOn(e, t.keys["strict"].Say) },
	"bf16":           axolotlBF16,
	"plugins":        axolotlPlugins,
	"model_type":     axolotlClass("ForCausalLM"),
	"tokenizer_type": axolotlClass("AutoTokenizer"),
	"roles_to_train": func(t *translation, e entry) { t.take(e, "dataset.roles_to_train") },
	"dataset_prepared_path": func(t *translation, e entry) {
		t.put(e, "dataset.cache_dir", e.Value, "tokens are made anew: the folder's are of another format")
	},
}

func axolotlBF16(t *translation, e entry) { t.precision(e, "bf16") }

// axolotlTypes maps Axolotl's types to formats of rows.
var axolotlTypes = map[string]string{"alpaca": "alpaca", "alpaca_chat": "alpaca", "completion": "text",
	"chat_template": "messages", "sharegpt": "sharegpt",
	"input_output": "segments", "pretrain": "text"}

func axolotlDatasets(t *translation, e entry) {
	list, ok := e.Value.([]any)
	if !ok {
		t.missing(e, "a list of data sets was expected; give dataset.path")
		return
	}
	t.several = len(list) > 1
	for i, one := range list {
		m, ok := one.(Map)
		shown := e.shown + "[" + text(int64(i)) + "]"
		if !ok || isEmpty(m.Get("path")) {
			t.missing(entry{Pair: Pair{e.Key, one, e.Line}, shown: shown}, "it names no path; give dataset.path")
			continue
		}
		t.axolotlDataset(m, shown)
	}
}

func (t *translation) axolotlDataset(m Map, shown string) {
	kind, named := m.Get("type").(string)
	base, _, _ := strings.Cut(kind, ".")
	format, same := axolotlTypes[base]
	talks := base == "chat_template" && m.Get("message_field_role") == "from" &&
		m.Get("message_field_content") == "value"
	if talks {
		format = "sharegpt"
	}
	where := m.Get("path")
	split := m.Get("split")
	fieldsOf, files := Map(nil), []any(nil)
	for _, p := range m {
		one := entry{Pair: p, shown: shown + "." + shorten(p.Key)}
		switch p.Key {
		case "path":
			t.add(Taken, one, "dataset.path", p.Value, "")
		case "type":
			switch {
			case prefers(t):
				format = axolotlPairs(t, one, kind)
			case !named:
				t.missing(one, "a format of one's own; name the keys of the rows in dataset.fields, with "+
					"dataset.format: completion or alpaca")
			case !same:
				t.add(Different, one, "dataset.format", "auto",
					"no format of this name: it is found from the keys of the rows")
			case kind != base:
				t.add(Different, one, "dataset.format", format, "the part behind the dot is left out")
			case base == "alpaca" || base == "alpaca_chat":
				t.add(Different, one, "dataset.format", format,
					"rows are written by Alpaca's template as it was published; "+
						"trainer inspect data shows them")
				t.entries[len(t.entries)-1].Class = Nothing
			default:
				t.add(Taken, one, "dataset.format", format, "")
			}
		case "split", "name", "revision":
			t.add(Taken, one, "dataset.sources[]."+p.Key, p.Value, "")
		case "data_files":
			local, _ := where.(string)
			if files = filesIn(p.Value, local, t.isLoader(local)); files == nil {
				t.missing(one, "name the files in dataset.path, or one source each in dataset.sources")
				break
			}
			if where = files[0]; len(files) > 1 {
				where = nil
			}
			t.add(Taken, one, "dataset.path", where, "")
		case "ds_type":
			t.add(Taken, one, "", nil, "what a file holds is found from its bytes and its name")
		case "field_chosen", "field_rejected", "field_prompt":
			fieldsOf = append(fieldsOf, fields([2]any{strings.TrimPrefix(p.Key, "field_"), p.Value})...)
			t.add(Taken, one, "dataset.fields", p.Value, "")
		case "field_messages", "field_tools", "field_system", "field":
			ours := strings.TrimPrefix(p.Key, "field_")
			switch {
			case p.Key == "field":
				ours = "text"
			case ours == "messages" && prefers(t):
				ours = "prompt"
			}
			fieldsOf = append(fieldsOf, fields([2]any{ours, p.Value})...)
			t.add(Taken, one, "dataset.fields", p.Value, "")
		case "message_property_mappings":
			if prefers(t) && knownProperties(p.Value) {
				t.add(Taken, one, "", nil, "known by these names")
				break
			}
			if roles, _ := p.Value.(Map); roles.Get("role") == "from" && roles.Get("content") == "value" {
				format = "sharegpt"
				t.add(Taken, one, "dataset.format", format, "")
				break
			} else if roles.Get("role") == "role" && roles.Get("content") == "content" {
				t.add(Taken, one, "", nil, "as dataset.format: messages has it")
				break
			}
			t.missing(one, t.keys[p.Key].Say)
		case "message_field_role", "message_field_content":
			if talks || p.Value == strings.TrimPrefix(p.Key, "message_field_") {
				t.add(Taken, one, "dataset.format", format, "")
				continue
			}
			t.missing(one, t.keys[p.Key].Say)
		case "roles":
			if knownRoles(p.Value) {
				t.add(Taken, one, "", nil, "known by these names")
				break
			}
			t.missing(one, t.keys[p.Key].Say)
		case "roles_to_train", "chat_template", "train_on_eos", "train_on_eot":
			n := len(t.entries)
			if t.key(one); t.several && n < len(t.entries) && t.entries[n].Group == Taken && t.entries[n].To != "" {
				t.entries[n].Group, t.entries[n].Say = Different, "of all sources"
			}
		default:
			if isOff(p.Value) {
				t.off(one)
				continue
			}
			say := t.keys[p.Key].Say
			if say == "" {
				say = "no counterpart for a single data set"
			}
			t.missing(one, say)
		}
	}
	if format == "sharegpt" {
		for i := range fieldsOf {
			if fieldsOf[i].Key == "messages" {
				fieldsOf[i].Key = "conversations"
			}
		}
	}
	fieldsOf = withoutSame(fieldsOf)
	if files == nil {
		files = []any{where}
	}
	for _, file := range files {
		t.source(Pair{Key: "path", Value: file}, Pair{Key: "name", Value: m.Get("name")},
			Pair{Key: "revision", Value: m.Get("revision")},
			Pair{Key: "split", Value: wholeTrain(split)}, Pair{Key: "format", Value: format}, Pair{Key: "fields",
				Value: fieldsOf})
	}
}

// filesIn returns the files that data_files names, relative to a loader or a local folder; nil if where is neither.
func filesIn(v any, where string, loader bool) (files []any) {
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	for _, one := range list {
		name, ok := one.(string)
		switch {
		case !ok:
			return nil
		case loader:
			files = append(files, name)
		case strings.HasPrefix(where, ".") || strings.HasPrefix(where, "/"):
			files = append(files, path.Join(where, name))
		default:
			return nil
		}
	}
	return files
}

// isLoader reports whether a path is one of the file loaders of the library datasets, not a data set.
func (t *translation) isLoader(name string) bool {
	switch name {
	case "json", "csv", "parquet", "text", "arrow":
		return true
	}
	return false
}

// roleNames maps the role names that conversations may use to the roles that they are read as.
var roleNames = map[string]string{
	"system": "system", "developer": "system", "user": "user", "human": "user", "prompter": "user",
	"assistant": "assistant gpt", "gpt": "assistant gpt", "chatgpt": "assistant gpt", "bot": "assistant gpt",
	"model": "assistant gpt",
	"tool":  "tool", "observation": "tool", "function_response": "tool", "tool_response": "tool",
}

// knownRoles reports whether conversations are read by the role names that a table of roles lists.
func knownRoles(v any) bool {
	table, ok := v.(Map)
	for _, p := range table {
		names, _ := p.Value.([]any)
		for _, name := range names {
			s, _ := name.(string)
			ok = ok && slices.Contains(strings.Fields(roleNames[s]), p.Key)
		}
		ok = ok && len(names) > 0
	}
	return ok
}

func withoutSame(m Map) (out Map) {
	for _, p := range m {
		if p.Value != p.Key {
			out = append(out, p)
		}
	}
	return out
}

// wholeTrain returns nil for the default split.
func wholeTrain(split any) any {
	if split == "train" {
		return nil
	}
	return split
}

// promptsOfConversations translates train_on_prompt for conversations, where train_on decides it.
func (t *translation) promptsOfConversations() {
	if t.value("dataset.train_on_prompt") != true || len(t.data) == 0 {
		return
	}
	for _, m := range t.data {
		if f := m.Get("format"); f != "messages" && f != "sharegpt" && !(f == "alpaca" && t.has("dataset.as_chat")) {
			return
		}
	}
	i := t.at["dataset.train_on_prompt"]
	t.set[i].Path, t.set[i].Value = "dataset.train_on", "all"
	delete(t.at, "dataset.train_on_prompt")
	t.at["dataset.train_on"] = i
	for j := range t.entries {
		if e := &t.entries[j]; e.To == "dataset.train_on_prompt" {
			e.To, e.As = "dataset.train_on", "all"
		}
	}
}
