package importer

import (
	"slices"
	"strings"
)

// torchtune holds the rules of torchtune's keys, with the names inside its tables.
var torchtune = map[string]rule{
	"model.lora_rank":               func(t *translation, e entry) { t.take(e, "lora.r") },
	"model.lora_alpha":              func(t *translation, e entry) { t.take(e, "lora.alpha") },
	"model.lora_dropout":            func(t *translation, e entry) { t.take(e, "lora.dropout") },
	"model.lora_attn_modules":       tuneModules,
	"model.apply_lora_to_mlp":       tuneMLP,
	"model.apply_lora_to_output":    tuneHead,
	"model.use_dora":                useDoRA,
	"model._component_":             tuneModel,
	"model.quantize_base":           func(t *translation, e entry) { t.ifTrue(e, "adapter", "qlora", "") },
	"checkpointer.checkpoint_dir":   func(t *translation, e entry) { t.take(e, "base_model") },
	"tokenizer.path":                passed("the tokenizer is that of base_model's folder"),
	"tokenizer._component_":         passed("the tokenizer is that of base_model's folder"),
	"checkpointer._component_":      passed("base_model is a folder as on the hub"),
	"checkpointer.checkpoint_files": passed("the folder's index names its files"),
	"checkpointer.model_type":       passed("the model's config.json says it"),
	"checkpointer.output_dir":       func(t *translation, e entry) { t.take(e, "output_dir") },
	"checkpointer.adapter_checkpoint": func(t *translation,
		e entry) {
		t.missing(e, "lora.init_from starts from an adapter in PEFT's format")
	},
	"checkpointer.recipe_checkpoint": resume,
	"loss._component_": func(t *translation, e entry) {
		s, _ := e.Value.(string)
		if strings.Contains(s, "CrossEntropy") || strings.Contains(s, "CEWithChunkedOutputLoss") {
			t.add(Taken, e, "", nil, "the loss of a run")
			return
		}
		t.refuse(e)
	},
	"kd_loss":       func(t *translation, e entry) { t.refuse(e) },
	"teacher_model": func(t *translation, e entry) { t.refuse(e) },
	"metric_logger": tuneLogger,
	"profiler":      tuneProfiler,
	"quantizer": func(t *translation, e entry) {
		t.missing(e, "no quantisation is simulated in training; adapter: qlora trains on NF4, FP4 or int8")
	},
	"dataloader": func(t *translation, e entry) { t.missing(e, t.keys["dataloader_num_workers"].Say) },
	"dataset": tuneSeveral(
		"list them in dataset.sources, each with path, split, format and weight"),
	"dataset_val":           tuneValidation,
	"batch_size_val":        func(t *translation, e entry) { t.missing(e, t.keys["eval_batch_size"].Say) },
	"run_val_every_n_steps": func(t *translation, e entry) { t.take(e, "training.eval_steps") },
	"compile":               func(t *translation, e entry) { t.ifOn(e, t.keys["torch_compile"].Say) },
	"log_peak_memory_stats": passed("trainer plan prints what is held, and each run's plan_report.json"),
	"log_level": passed(
		"metrics.jsonl has a line every training.logging_steps steps, tokens included"),
	"save_adapter_weights_only":   passed("an adapter is written without the base model"),
	"optimizer_in_bwd":            passed("the update runs behind the backward pass; no number depends on it"),
	"collate_fn":                  passed("rows lie end to end, none is padded"),
	"tokenizer.max_seq_len":       func(t *translation, e entry) { t.take(e, "dataset.max_length") },
	"dataset.packed":              func(t *translation, e entry) { t.take(e, "dataset.packing") },
	"dataset.source":              func(t *translation, e entry) { t.tuneSource(e) },
	"dataset.data_files":          func(t *translation, e entry) { t.tuneSource(e) },
	"dataset.train_on_input":      func(t *translation, e entry) { t.take(e, "dataset.train_on_prompt") },
	"dataset._component_":         tuneDataset,
	"dataset.name":                func(t *translation, e entry) { t.tuneInSource(e, "name", e.Value) },
	"dataset.split":               func(t *translation, e entry) { t.tuneInSource(e, "split", wholeTrain(e.Value)) },
	"dataset.conversation_column": tuneField("messages"),
	"dataset.column":              tuneField("text"),
	"dataset.conversation_style": func(t *translation, e entry) {
		t.choose(e, "dataset.format", map[string]string{"sharegpt": "sharegpt", "openai": "messages"})
	},
	"optimizer._component_":  optimizer,
	"optimizer.lr":           func(t *translation, e entry) { t.take(e, "training.learning_rate") },
	"optimizer.weight_decay": func(t *translation, e entry) { t.take(e, "training.weight_decay") },
	"optimizer.fused":        passed("the update is one kernel"),
	"optimizer.bf16_stochastic_round": func(t *translation, e entry) {
		t.ifTrue(e, "full.stochastic_rounding", true, "")
	},
	"lr_scheduler._component_": func(t *translation, e entry) {
		t.choose(e, "training.lr_scheduler",
			map[string]string{"torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup": "cosine",
				"torchtune.modules.get_cosine_schedule_with_warmup": "cosine"})
	},
	"lr_scheduler.num_warmup_steps": warmup,
	"batch_size":                    func(t *translation, e entry) { t.take(e, "training.batch_size") },
	"epochs":                        func(t *translation, e entry) { t.take(e, "training.epochs") },
	"max_steps_per_epoch": func(t *translation, e entry) {
		t.missing(e, "training.max_steps counts the steps "+
			"of the whole run")
	},
	"gradient_accumulation_steps": func(t *translation, e entry) { t.take(e, "training.gradient_accumulation_steps") },
	"clip_grad_norm": func(t *translation, e entry) {
		if e.Value == nil {
			e.Value = int64(0)
		}
		t.put(e, "training.max_grad_norm", e.Value, "")
	},
	"seed":       func(t *translation, e entry) { t.take(e, "seed") },
	"output_dir": func(t *translation, e entry) { t.take(e, "output_dir") },
	"dtype": func(t *translation, e entry) {
		t.choose(e, "training.precision", map[string]string{"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"})
	},
	"device": func(t *translation,
		e entry) {
		t.choose(e, "device", map[string]string{"cuda": "cuda", "cpu": "cpu"})
	},
	"shuffle":                         func(t *translation, e entry) { t.take(e, "dataset.shuffle") },
	"enable_activation_checkpointing": checkpointing,
	"enable_activation_offloading":    checkpointing,
	"log_every_n_steps":               func(t *translation, e entry) { t.take(e, "training.logging_steps") },
	"resume_from_checkpoint": func(t *translation, e entry) {
		if e.Value == false {
			t.off(e)
			return
		}
		resume(t, e)
	},
}

// tuneModel reads a builder's name: qlora_... stores the base model in NF4, and one without lora_ trains all weights.
func tuneModel(t *translation, e entry) {
	s, _ := e.Value.(string)
	name := s[strings.LastIndexByte(s, '.')+1:]
	switch {
	case strings.HasPrefix(name, "qlora_"):
		t.put(e, "adapter", "qlora", "double_quant is on here; the model itself is the folder's")
	case strings.HasPrefix(name, "lora_"):
		n := len(t.entries)
		t.put(e, "adapter", "lora", "the model itself is the folder's")
		t.as(n, Nothing)
	default:
		trainFull(t, e, "the builder adds no adapter: all weights are trained")
	}
}

// tuneModules translates torchtune's names of attention layers; output_proj is o_proj in the files of Hugging Face.
func tuneModules(t *translation, e entry) {
	list, ok := e.Value.([]any)
	if !ok {
		t.missing(e, "a list of layers was expected; give lora.target_modules")
		return
	}
	out := make([]any, len(list))
	for i, name := range list {
		if out[i] = name; name == "output_proj" {
			out[i] = "o_proj"
		}
	}
	if t.given["model.apply_lora_to_mlp"].Value == true {
		out = append(out, "gate_proj", "up_proj", "down_proj")
	}
	if t.given["model.apply_lora_to_output"].Value == true {
		out = append(out, "lm_head")
	}
	t.put(e, "lora.target_modules", out, "")
}

func tuneMLP(t *translation, e entry) {
	if isOff(e.Value) {
		t.off(e)
		return
	}
	if t.given["model.lora_attn_modules"].Value == nil {
		t.put(e, "lora.target_modules", []any{"gate_proj", "up_proj", "down_proj"}, "")
		return
	}
	t.add(Taken, e, "lora.target_modules", "gate_proj, up_proj, down_proj", "")
}

// tuneHead reads whether the vocabulary head is adapted, which the list of attention layers then names.
func tuneHead(t *translation, e entry) {
	if e.Value == true && t.given["model.lora_attn_modules"].Value != nil {
		t.add(Taken, e, "lora.target_modules", "lm_head", "")
		return
	}
	t.ifOn(e, "name lm_head in lora.target_modules")
}

func (t *translation) tuneSource(e entry) {
	s, ok := e.Value.(string)
	if !ok {
		t.missing(e, "a path was expected; give dataset.path")
		return
	}
	if t.isLoader(s) {
		t.add(Taken, e, "", nil, "what a file holds is found from its bytes and its name")
		return
	}
	if len(t.data) > 0 && e.Key == "dataset.data_files" {
		t.missing(e, "name the files in dataset.path")
		return
	}
	t.add(Taken, e, "dataset.path", s, "")
	t.tuneBegin(s, tuneFormat(t.given["dataset._component_"].Value))
}

// tuneBegin returns the single source of rows, whose other keys come before or after it.
func (t *translation) tuneBegin(where, format string) {
	if style := map[any]string{"sharegpt": "sharegpt",
		"openai": "messages"}[t.given["dataset.conversation_style"].Value]; style != "" {
		format = style
	}
	var named Map
	if column := t.given["dataset.conversation_column"].Value; format == "sharegpt" {
		named = fields([2]any{"conversations", column})
	} else if format == "messages" {
		named = fields([2]any{"messages", column})
	} else if format == "text" {
		named = fields([2]any{"text", t.given["dataset.column"].Value})
	}
	name, _ := t.given["dataset.name"].Value.(string)
	t.source(Pair{Key: "path", Value: where}, Pair{Key: "name", Value: name},
		Pair{Key: "split", Value: wholeTrain(t.given["dataset.split"].Value)},
		Pair{Key: "format", Value: format}, Pair{Key: "fields", Value: named})
}

// tuneInSource records a key that tuneBegin reads.
func (t *translation) tuneInSource(e entry, ours string, v any) {
	if _, ok := e.Value.(string); !ok {
		t.missing(e, "a text was expected; give dataset.sources")
		return
	}
	t.add(Taken, e, "dataset.sources[]."+ours, v, "")
}

func tuneField(of string) rule {
	return func(t *translation, e entry) { t.add(Taken, e, "dataset.fields", of+": "+Text(e.Value), "") }
}

// tuneFormats maps torchtune's builders to formats of rows, and to the data set that a builder reads by default.
var tuneFormats = map[string][2]string{"alpaca_dataset": {"alpaca", "tatsu-lab/alpaca"},
	"alpaca_cleaned_dataset": {"alpaca", "yahma/alpaca-cleaned"}, "chat_dataset": {"auto", ""},
	"text_completion_dataset": {"text", ""}, "instruct_dataset": {"auto", ""}}

func tuneBuilder(component any) (f [2]string, ok bool) {
	s, _ := component.(string)
	f, ok = tuneFormats[s[strings.LastIndexByte(s, '.')+1:]]
	return f, ok
}

func tuneFormat(component any) string {
	f, _ := tuneBuilder(component)
	return f[0]
}

func tuneDataset(t *translation, e entry) {
	f, ok := tuneBuilder(e.Value)
	switch {
	case !ok:
		t.missing(e, "no format of this name; give dataset.path and dataset.format")
	case f[1] != "" && t.given["dataset.source"].Value == nil:
		t.add(Taken, e, "dataset.path", f[1], "")
		t.tuneBegin(f[1], f[0])
	default:
		t.add(Taken, e, "dataset.format", f[0], "")
	}
	tokenizer, _ := t.given["tokenizer._component_"].Value.(string)
	if f[0] == "alpaca" && tokenizer != "" && !strings.HasSuffix(tokenizer, ".llama2_tokenizer") {
		t.missing(e, "the model's tokenizer writes its marks of messages around Alpaca's text there; here the text "+
			"stands alone, or dataset.as_chat: yes writes the rows by the chat template without Alpaca's text")
		t.as(len(t.entries)-1, Changes)
	}
}

func tuneSeveral(say string) rule { return func(t *translation, e entry) { t.missing(e, say) } }

// tuneValidation reads the validation rows; what their table leaves out comes from the table of the training rows.
func tuneValidation(t *translation, e entry) {
	m, ok := e.Value.(Map)
	if !ok {
		t.missing(e, "give dataset.val_path or dataset.val_sources")
		return
	}
	get := func(key string) any {
		if v := m.Get(key); v != nil {
			return v
		}
		return t.given["dataset."+key].Value
	}
	f, known := tuneBuilder(get("_component_"))
	where, _ := get("source").(string)
	if where == "" {
		where = f[1]
	}
	if where == "" || t.isLoader(where) || !known {
		t.missing(e, "give dataset.val_path or dataset.val_sources")
		return
	}
	one := Map{{Key: "path", Value: where}}
	for _, p := range []Pair{{Key: "split", Value: wholeTrain(m.Get("split"))}, {Key: "format", Value: f[0]}} {
		if s, text := p.Value.(string); text && s != "" {
			one = append(one, p)
		}
	}
	t.put(e, "dataset.val_sources", []any{one}, "")
}

// tuneLogger translates the logger to trackers.
func tuneLogger(t *translation, e entry) {
	m, _ := e.Value.(Map)
	s, _ := m.Get("_component_").(string)
	switch {
	case strings.HasSuffix(s, "WandBLogger"):
		t.reports(e, "wandb", true)
		if project, ok := m.Get("project").(string); ok && project != "" {
			t.take(entry{Pair: Pair{"project", project, e.Line}, shown: "metric_logger.project"}, "tracking.experiment")
		}
	case strings.HasSuffix(s, "TensorBoardLogger"):
		t.reports(e, "tensorboard", true)
	case strings.HasSuffix(s, "DiskLogger"), strings.HasSuffix(s, "StdoutLogger"):
		t.add(Taken, e, "", nil, "metrics.jsonl is written into output_dir, and lines to the terminal")
	default:
		t.missing(e, "training.report_to names trackers; metrics.jsonl in output_dir has all numbers")
	}
}

func tuneProfiler(t *translation, e entry) {
	if m, _ := e.Value.(Map); m != nil && m.Get("enabled") != true {
		t.add(Taken, e, "", nil, "it is not enabled")
		return
	}
	t.missing(e, t.keys["profiler_steps"].Say)
}

// whole lists tables that one rule reads as a whole.
var whole = []string{"profiler", "metric_logger", "quantizer", "kd_loss", "teacher_model", "teacher_checkpointer",
	"dataloader", "dataset_val", "checkpointer.checkpoint_files"}

// section answers for keys of a table that have no rule of their own.
func section(key string) (say string, known bool) {
	table, _, _ := strings.Cut(key, ".")
	say, known = map[string]string{"tokenizer": "the tokenizer is that of base_model's folder",
		"checkpointer":         "base_model is a folder as on the hub",
		"model":                "the model's config.json says its shape; lora.target_modules says which layers are trained",
		"dataset":              "no counterpart for a data set",
		"optimizer":            "AdamW's values are training.adam_beta1, training.adam_beta2 and training.adam_epsilon",
		"lr_scheduler":         "training.min_lr_ratio and training.decay_ratio are the values of schedules",
		"loss":                 "the loss is the plain cross-entropy on the rows as they are",
		"teacher_checkpointer": "a run has one model"}[table]
	return say, known && (table != key || slices.Contains(whole, key))
}

// resolve replaces references such as ${output_dir}/logs whose value is in the file.
func resolve(m Map) {
	find := func(path string) (string, bool) {
		var v any = m
		for part := range strings.SplitSeq(path, ".") {
			inner, ok := v.(Map)
			if !ok {
				return "", false
			}
			v = inner.Get(part)
		}
		switch v.(type) {
		case nil, Map, []any, Code:
			return "", false
		}
		return Text(v), true
	}
	var walk func(m Map)
	walk = func(m Map) {
		for i := range m {
			switch v := m[i].Value.(type) {
			case Map:
				walk(v)
			case string:
				for range 8 { // a reference may refer to another one
					before, rest, open := strings.Cut(v, "${")
					path, after, closed := strings.Cut(rest, "}")
					text, known := find(strings.TrimSpace(path))
					if !open || !closed || !known || len(text) > 4096 {
						break
					}
					if v = before + text + after; before == "" && after == "" {
						m[i].Value = number(v)
					} else {
						m[i].Value = v
					}
				}
			}
		}
	}
	walk(m)
}
