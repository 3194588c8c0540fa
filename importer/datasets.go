package importer

import (
	"path"
	"strings"
)

// source adds a source of rows from pairs of our keys and values; pairs without a value are left out.
func (t *translation) source(pairs ...Pair) {
	var m Map
	for _, p := range pairs {
		if !isEmpty(p.Value) {
			m = append(m, p)
		}
	}
	t.data = append(t.data, m)
}

// sources writes the rows' sources: one as dataset.path, others as dataset.sources.
func (t *translation) sources() {
	if len(t.data) == 0 {
		return
	}
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

// fields maps our fields to keys of the rows, where they are named otherwise.
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

// axolotl are the rules of Axolotl's keys that mean something of their own.
var axolotl = map[string]rule{
	"datasets": axolotlDatasets,
	"test_datasets": func(t *translation, e entry) {
		t.missing(e, "name the rows in dataset.val_path, or in dataset.val_sources")
	},
	"bf16":           axolotlBF16,
	"roles_to_train": func(t *translation, e entry) { t.take(e, "dataset.roles_to_train") },
	"streaming":      func(t *translation, e entry) { t.take(e, "dataset.streaming") },
	"dataset_prepared_path": func(t *translation, e entry) {
		t.put(e, "dataset.cache_dir", e.Value, "tokens are made anew: the folder's are of another format")
	},
}

func axolotlBF16(t *translation, e entry) { t.precision(e, "bf16") }

// axolotlTypes are the formats of rows by Axolotl's type.
var axolotlTypes = map[string]string{"alpaca": "alpaca", "alpaca_chat": "alpaca", "completion": "text", "chat_template": "messages", "sharegpt": "sharegpt",
	"input_output": "segments", "pretrain": "text"}

func axolotlDatasets(t *translation, e entry) {
	list, ok := e.Value.([]any)
	if !ok {
		t.missing(e, "a list of data sets was expected; give dataset.path")
		return
	}
	for i, one := range list {
		m, ok := one.(Map)
		shown := "datasets[" + text(int64(i)) + "]"
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
	where := m.Get("path")
	split := m.Get("split")
	fieldsOf := Map(nil)
	for _, p := range m {
		one := entry{Pair: p, shown: shown + "." + shorten(p.Key)}
		switch p.Key {
		case "path":
			t.add(Taken, one, "dataset.path", p.Value, "")
		case "type":
			switch {
			case !named:
				t.missing(one, "a format of one's own; name the keys of the rows in dataset.fields, with dataset.format: completion or alpaca")
			case !same:
				t.add(Different, one, "dataset.format", "auto", "no format of this name: it is found from the keys of the rows")
			case kind != base:
				t.add(Different, one, "dataset.format", format, "the part behind the dot is left out")
			case base == "alpaca" || base == "alpaca_chat":
				t.add(Different, one, "dataset.format", format, "rows are written by Alpaca's template as it was published; trainer inspect data shows them")
			default:
				t.add(Taken, one, "dataset.format", format, "")
			}
		case "split", "name", "revision":
			t.add(Taken, one, "dataset.sources[]."+p.Key, p.Value, "")
		case "data_files":
			files, single := p.Value.(string)
			if list, many := p.Value.([]any); many && len(list) == 1 {
				files, single = list[0].(string)
			}
			switch local, _ := where.(string); {
			case single && t.isLoader(local):
				where = files
				t.add(Taken, one, "dataset.path", files, "")
			case single && (strings.HasPrefix(local, ".") || strings.HasPrefix(local, "/")):
				where = path.Join(local, files)
				t.add(Taken, one, "dataset.path", where, "")
			default:
				t.missing(one, "name the files in dataset.path, or one source each in dataset.sources")
			}
		case "ds_type":
			t.add(Taken, one, "", nil, "what a file holds is found from its bytes and its name")
		case "field_messages", "field_tools", "field_system", "field":
			ours := strings.TrimPrefix(p.Key, "field_")
			if p.Key == "field" {
				ours = "text"
			}
			fieldsOf = append(fieldsOf, fields([2]any{ours, p.Value})...)
			t.add(Taken, one, "dataset.fields", p.Value, "")
		case "message_property_mappings":
			if roles, _ := p.Value.(Map); roles.Get("role") == "from" && roles.Get("content") == "value" {
				format = "sharegpt"
				t.add(Taken, one, "dataset.format", format, "")
				break
			} else if roles.Get("role") == "role" && roles.Get("content") == "content" {
				t.add(Taken, one, "", nil, "as dataset.format: messages has it")
				break
			}
			t.missing(one, t.keys[p.Key].Say)
		case "roles_to_train", "chat_template", "train_on_eos":
			t.key(one)
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
	t.source(Pair{Key: "path", Value: where}, Pair{Key: "name", Value: m.Get("name")}, Pair{Key: "revision", Value: m.Get("revision")},
		Pair{Key: "split", Value: wholeTrain(split)}, Pair{Key: "format", Value: format}, Pair{Key: "fields", Value: fieldsOf})
}

// isLoader says that a path is one of datasets' readers of files, not a data set.
func (t *translation) isLoader(name string) bool {
	switch name {
	case "json", "csv", "parquet", "text", "arrow":
		return true
	}
	return false
}

func withoutSame(m Map) (out Map) {
	for _, p := range m {
		if p.Value != p.Key {
			out = append(out, p)
		}
	}
	return out
}

// wholeTrain leaves a split out that is the default.
func wholeTrain(split any) any {
	if split == "train" {
		return nil
	}
	return split
}

// llamaFactory are the rules of LLaMA-Factory's keys that mean something of their own.
var llamaFactory = map[string]rule{
	"dataset":      llamaDataset,
	"dataset_dir":  func(t *translation, e entry) { t.add(Taken, e, "", nil, "where dataset_info.json is looked for") },
	"eval_dataset": func(t *translation, e entry) { t.missing(e, "give dataset.val_path the file of these rows") },
	"lora_alpha":   llamaAlpha,
	"stage":        llamaStage,
	"packing":      llamaPacking,
	"max_samples": func(t *translation, e entry) {
		t.missing(e, "slice each source: dataset.sources with split: train[:1000]")
	},
	"streaming":    func(t *translation, e entry) { t.take(e, "dataset.streaming") },
	"lora_dropout": func(t *translation, e entry) { t.take(e, "lora.dropout") },
	"tokenized_path": func(t *translation, e entry) {
		t.put(e, "dataset.cache_dir", e.Value, "tokens are made anew: the folder's are of another format")
	},
}

func llamaAlpha(t *translation, e entry) {
	if e.Value == nil {
		if r, ok := fit(t.value("lora.r"), Whole); ok {
			e.Value = 2 * r.(int64)
		}
	}
	t.take(e, "lora.alpha")
}

func llamaStage(t *translation, e entry) {
	if e.Value == "sft" {
		t.add(Taken, e, "", nil, "what a run does")
		return
	}
	if e.Value == "pt" {
		t.add(Different, e, "", nil, "write dataset.format: text, which trains every token of a row")
		return
	}
	t.missing(e, t.keys["stage"].Say)
}

func llamaPacking(t *translation, e entry) {
	if e.Value == true && t.given["neat_packing"].Value != true {
		t.put(e, "dataset.packing", true, "no row attends to another, as with neat_packing: true")
		return
	}
	t.take(e, "dataset.packing")
}

// llamaDataset looks the names up in dataset_info.json.
func llamaDataset(t *translation, e entry) {
	names, ok := e.Value.(string)
	if !ok {
		t.missing(e, "names with commas were expected; give dataset.path")
		return
	}
	folder, _ := t.given["dataset_dir"].Value.(string)
	if folder == "" {
		folder = "data"
	}
	file := path.Join(folder, "dataset_info.json")
	var info Map
	why := file + " can't be read from here"
	if t.ReadFile != nil {
		if data, err := t.ReadFile(file); err == nil {
			if info, err = parseJSON(data); err != nil {
				why = file + ": " + err.Error()
			}
		}
	}
	for _, name := range strings.Split(names, ",") {
		name = strings.TrimSpace(name)
		one := entry{Pair: Pair{e.Key, name, e.Line}, shown: e.shown}
		about, known := info.Get(name).(Map)
		if !known {
			if info != nil {
				why = file + " has no " + shorten(name)
			}
			t.add(Different, one, "dataset.path", name, why+": give the path of the rows")
			t.note = "a name of " + file + ": write the path of the rows"
			t.source(Pair{Key: "path", Value: name})
			continue
		}
		t.llamaSource(one, folder, about)
	}
}

func (t *translation) llamaSource(e entry, folder string, about Map) {
	where, _ := about.Get("hf_hub_url").(string)
	if file, ok := about.Get("file_name").(string); ok && where == "" {
		where = path.Join(folder, file)
	}
	if where == "" {
		t.missing(e, "dataset_info.json names neither a file nor a data set of the Hugging Face hub; give dataset.path")
		return
	}
	columns, _ := about.Get("columns").(Map)
	tags, _ := about.Get("tags").(Map)
	format, named := "alpaca", Map(nil)
	switch kind := about.Get("formatting"); {
	case about.Get("ranking") == true:
		t.missing(e, "pairs of preferences, which are not trained on")
		return
	case kind == "sharegpt" && tags.Get("role_tag") == "role", kind == "openai":
		format, named = "messages", fields([2]any{"messages", columns.Get("messages")}, [2]any{"tools", columns.Get("tools")})
	case kind == "sharegpt":
		format, named = "sharegpt", fields([2]any{"conversations", columns.Get("messages")}, [2]any{"tools", columns.Get("tools")}, [2]any{"system", columns.Get("system")})
	default:
		named = fields([2]any{"instruction", columns.Get("prompt")}, [2]any{"input", columns.Get("query")}, [2]any{"output", columns.Get("response")},
			[2]any{"system", columns.Get("system")}, [2]any{"history", columns.Get("history")})
	}
	split, _ := about.Get("split").(string)
	if n, ok := about.Get("num_samples").(int64); ok && n > 0 {
		if split == "" {
			split = "train"
		}
		split += "[:" + text(n) + "]"
	}
	t.add(Taken, e, "dataset.path", where, "by dataset_info.json, format "+format)
	t.source(Pair{Key: "path", Value: where}, Pair{Key: "name", Value: about.Get("subset")}, Pair{Key: "split", Value: wholeTrain(split)},
		Pair{Key: "format", Value: format}, Pair{Key: "fields", Value: named})
}
