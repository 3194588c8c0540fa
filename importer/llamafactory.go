package importer

import (
	"path"
	"slices"
	"strings"
)

// llamaFactory holds the rules of keys with a meaning specific to LLaMA-Factory.
var llamaFactory = map[string]rule{
	"dataset": llamaDataset,
	"dataset_dir": func(t *translation,
		e entry) {
		t.add(Taken, e, "", nil, "where dataset_info.json is looked for")
	},
	"eval_dataset":        func(t *translation, e entry) { t.validation(func() { llamaDataset(t, e) }) },
	"max_length":          func(t *translation, e entry) { t.missing(e, t.keys["max_new_tokens"].Say) },
	"lora_alpha":          llamaAlpha,
	"packing":             llamaPacking,
	"max_samples":         llamaSamples,
	"quantization_method": llamaQuantiser,
	"lora_dropout":        func(t *translation, e entry) { t.take(e, "lora.dropout") },
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
		t.add(Taken, e, "dataset.format", "text", "")
		return
	}
	preferenceKind(t, e)
}

func llamaPacking(t *translation, e entry) {
	if t.given["stage"].Value == "pt" && e.Value == true {
		t.put(e, "dataset.packing", true,
			"texts are joined and cut into pieces of cutoff_len there; here each is cut by "+
				"itself, and none attends to another")
		return
	}
	if e.Value == true && t.given["neat_packing"].Value != true {
		t.put(e, "dataset.packing", true, "no row attends to another, as with neat_packing: true")
		return
	}
	t.take(e, "dataset.packing")
}

// llamaDataset looks up the names of data sets in dataset_info.json.
func llamaDataset(t *translation, e entry) {
	var names []string
	switch v := e.Value.(type) {
	case string:
		names = strings.Split(v, ",")
	case []any:
		for _, one := range v {
			if s, ok := one.(string); ok {
				names = append(names, s)
			}
		}
	}
	if len(names) == 0 {
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
	for _, name := range names {
		name = strings.TrimSpace(name)
		one := entry{Pair: Pair{e.Key, name, e.Line}, shown: e.shown}
		if folder == "ONLINE" {
			t.llamaSource(one, folder, Map{{Key: "hf_hub_url", Value: name}})
			continue
		}
		about, known := info.Get(name).(Map)
		if !known {
			if info != nil {
				why = file + " has no " + shorten(name)
			}
			t.add(Different, one, "dataset.path", name, why+": give the path of the rows")
			t.note = "a name of " + file + ": write the path of the rows"
			format := ""
			if t.given["stage"].Value == "pt" {
				format = "text"
			}
			t.source(Pair{Key: "path", Value: name}, Pair{Key: "split", Value: t.samples("")},
				Pair{Key: "format", Value: format})
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
	kind := about.Get("formatting")
	switch {
	case t.given["stage"].Value == "pt":
		format, named = "text", fields([2]any{"text", columns.Get("prompt")})
	case about.Get("ranking") == true && !prefers(t):
		t.missing(e, "pairs of preferences, and stage is not dpo: training.objective: dpo learns from them")
		return
	case about.Get("ranking") == true, prefers(t):
		format, named = llamaPairs(t, columns, kind)
	case kind == "sharegpt" && tags.Get("role_tag") == "role", kind == "openai":
		format, named = "messages", fields([2]any{"messages", columns.Get("messages")},
			[2]any{"tools", columns.Get("tools")},
			[2]any{"system", columns.Get("system")})
	case kind == "sharegpt":
		format, named = "sharegpt", fields([2]any{"conversations", columns.Get("messages")},
			[2]any{"tools", columns.Get("tools")}, [2]any{"system", columns.Get("system")})
	default:
		named = fields([2]any{"instruction", columns.Get("prompt")}, [2]any{"input", columns.Get("query")},
			[2]any{"output", columns.Get("response")},
			[2]any{"system", columns.Get("system")}, [2]any{"history", columns.Get("history")})
	}
	if !knownTags(tags) && (kind == "sharegpt" || kind == "openai") {
		t.missing(entry{Pair: Pair{"tags", tags, e.Line}, shown: "dataset_info.json: tags"}, t.keys["roles"].Say)
	}
	split, _ := about.Get("split").(string)
	if n, ok := about.Get("num_samples").(int64); ok && n > 0 {
		split = firstOf(split, n)
	}
	by := "by dataset_info.json, format " + format
	if folder == "ONLINE" {
		by = "a data set of the hub, format " + format
	}
	if format == "alpaca" || prefers(t) && kind != "sharegpt" && kind != "openai" {
		by += ", written as conversations by the chat template, as there (dataset.as_chat: yes)"
		t.talks("rows of texts, which LLaMA-Factory writes as conversations")
	}
	t.add(Taken, e, "dataset.path", where, by)
	t.source(Pair{Key: "path", Value: where}, Pair{Key: "name", Value: about.Get("subset")},
		Pair{Key: "split", Value: t.samples(split)},
		Pair{Key: "format", Value: format}, Pair{Key: "fields", Value: named})
}

// knownTags reports whether conversations are read by the names in a table of tags.
func knownTags(tags Map) bool {
	want := map[string]string{"user_tag": "user", "assistant_tag": "assistant", "observation_tag": "tool",
		"system_tag": "system"}
	for _, p := range tags {
		s, _ := p.Value.(string)
		ok := true
		switch {
		case p.Key == "role_tag":
			ok = s == "role" || s == "from"
		case p.Key == "content_tag":
			ok = s == "content" && tags.Get("role_tag") == "role" || s == "value" && tags.Get("role_tag") != "role"
		case want[p.Key] != "":
			ok = slices.Contains(strings.Fields(roleNames[s]), want[p.Key])
		}
		if !ok {
			return false
		}
	}
	return true
}

// firstOf returns the split that consists of the first n rows.
func firstOf(split string, n int64) string {
	if split == "" {
		split = "train"
	}
	return split + "[:" + text(n) + "]"
}

// samples limits a split to max_samples rows.
func (t *translation) samples(split string) any {
	if n, ok := fit(t.given["max_samples"].Value, Whole); ok && n.(int64) > 0 && !strings.Contains(split, "[") {
		return firstOf(split, n.(int64))
	}
	return wholeTrain(split)
}

func llamaSamples(t *translation, e entry) {
	if n, ok := fit(e.Value, Whole); ok && n.(int64) > 0 && t.given["dataset"].Value != nil {
		t.add(Taken, e, "dataset.sources[].split", firstOf("", n.(int64)), "of each source")
		return
	}
	t.missing(e, "slice each source: dataset.sources with split: train[:1000]")
}

func llamaQuantiser(t *translation, e entry) {
	if s, _ := e.Value.(string); s == "bnb" || s == "bitsandbytes" {
		t.add(Taken, e, "", nil, "the weights are those of bitsandbytes, byte for byte")
		return
	}
	t.missing(e, t.keys["quantization_method"].Say)
}

// llamaV1 lists the keys of LLaMA-Factory's new configurations. Keys inside tables get the names that the old
// configurations have for them.
func llamaV1(m Map) (all []entry) {
	for _, p := range m {
		table, _ := p.Value.(Map)
		names := map[string]map[string]string{
			"peft_config": {"name": "finetuning_type", "r": "lora_rank", "lora_alpha": "lora_alpha",
				"lora_dropout": "lora_dropout", "target_modules": "lora_target",
				"use_rslora": "use_rslora", "use_dora": "use_dora", "modules_to_save": "additional_target",
				"adapter_name_or_path": "adapter_name_or_path"},
			"quant_config":        {"name": "quantization_method", "quantization_bit": "quantization_bit"},
			"lr_scheduler_config": {"name": "lr_scheduler_type"},
			"optim_config":        {"name": "optim"},
		}[p.Key]
		if table == nil || names == nil {
			all = append(all, entry{Pair: p, shown: shorten(p.Key)})
			continue
		}
		for _, q := range table {
			key := names[q.Key]
			if key == "" {
				key = q.Key
			}
			all = append(all, entry{Pair: Pair{key, q.Value, q.Line}, shown: shorten(p.Key + "." + q.Key)})
		}
	}
	return all
}

// llamaV1Rules returns the rules of LLaMA-Factory and those of new keys.
func llamaV1Rules() map[string]rule {
	rules := map[string]rule{}
	for key, r := range llamaFactory {
		rules[key] = r
	}
	for key, say := range map[string]string{
		"model_class": "a run trains a causal language model on rows of text", "kernel_config": "the fused kernels " +
			"that fit the device are always used",
		"dist_config": "devices says how many GPUs train, and training.base_sharding whether they hold the frozen " +
			"base model in slices", "init_config": "weights are read straight to where the run computes",
		"sample_backend": "trainer generate makes text", "max_new_tokens": "trainer generate makes text: --max-tokens",
		"batching_workers": "rows are read and tokenised before the first step, batches come from memory",
		"dist_timeout":     "training.ddp_timeout is how soon a process that is lost ends the run",
		"save_epochs":      "training.save_steps counts optimizer steps (trainer plan prints how many the run has)",
	} {
		rules[key] = func(t *translation, e entry) { t.missing(e, say) }
	}
	rules["global_batch_size"] = func(t *translation, e entry) { t.take(e, "training.global_batch_size") }
	rules["cp_size"] = func(t *translation, e entry) {
		if e.Value == int64(1) {
			t.off(e)
			return
		}
		t.take(e, "training.context_parallel_size")
	}
	rules["enable_activation_checkpointing"] = checkpointing
	rules["batching_strategy"] = func(t *translation, e entry) {
		t.ifOn(e, "rows lie end to end, none is padded; dataset.packing packs them")
	}
	rules["train_dataset"] = llamaV1Dataset
	return rules
}

// llamaV1Dataset reads the file of sources that train_dataset names, or takes that file as the rows.
func llamaV1Dataset(t *translation, e entry) {
	name, _ := e.Value.(string)
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
		t.add(Taken, e, "dataset.path", name, "")
		t.source(Pair{Key: "path", Value: name})
		return
	}
	var sources Map
	if t.ReadFile != nil {
		if data, err := t.ReadFile(name); err == nil {
			sources, _ = parseYAML(data)
		}
	}
	found := false
	for _, p := range sources {
		about, _ := p.Value.(Map)
		where, ok := about.Get("path").(string)
		if !ok {
			continue
		}
		found = true
		split, _ := about.Get("split").(string)
		if n, ok := about.Get("size").(int64); ok && n > 0 {
			split = firstOf(split, n)
		}
		format, _ := about.Get("converter").(string)
		if format != "alpaca" && format != "sharegpt" {
			format = ""
		}
		t.source(Pair{Key: "path", Value: where}, Pair{Key: "split", Value: wholeTrain(split)},
			Pair{Key: "format", Value: format})
	}
	if !found {
		t.missing(e, "it can't be read from here: give dataset.path, or dataset.sources")
		return
	}
	t.add(Taken, e, "dataset.path", nil, "the sources that it lists")
}
