package importer

import (
	"strings"
)

// swiftTypes maps ms-swift's rlhf_type to our objectives.
var swiftTypes = map[string]string{"dpo": "dpo", "orpo": "orpo", "simpo": "cpo", "cpo": "cpo", "kto": "kto",
	"rm": "reward", "grpo": "grpo", "gkd": "distill"}

// swiftObjective returns our objective for a file of ms-swift: rlhf_type says it, dpo unless given. An unknown type is
// returned as it is, so that it is refused.
func swiftObjective(in *Input, kind string) string {
	if kind == "" && in.calls["rlhf"] {
		kind = "dpo"
	}
	if name, ok := swiftTypes[kind]; ok {
		return name
	}
	return kind
}

// swiftGKD reports whether the file is ms-swift's distillation, which compares whole distributions as TRL's does.
func swiftGKD(t *translation) bool {
	return t.in.Program.Name == "ms-swift" && t.objective == "distill"
}

// swift holds the rules of arguments with a meaning specific to ms-swift.
var swift = map[string]rule{
	"rlhf_type":  preferenceKind,
	"model":      func(t *translation, e entry) { t.take(e, "base_model") },
	"train_type": func(t *translation, e entry) { t.method(e) },
	"tuner_type": func(t *translation, e entry) { t.method(e) },
	"task_type":  swiftTask,
	"quant_bits": quantizationBit,
	"init_weights": func(t *translation, e entry) {
		if e.Value == "true" {
			e.Value = true
		}
		loraStart(t, e)
	},
	"target_modules": func(t *translation, e entry) {
		if list, ok := e.Value.([]any); ok && len(list) == 1 {
			e.Value = list[0]
		}
		targets(t, e)
	},
	"target_regex":   targets,
	"lorap_lr_ratio": func(t *translation, e entry) { t.take(e, "lora.loraplus_lr_ratio") },
	"adapters": func(t *translation, e entry) {
		if list, ok := e.Value.([]any); ok && len(list) == 1 {
			e.Value = list[0]
		}
		t.take(e, "lora.init_from")
	},
	"ref_adapters": func(t *translation, e entry) {
		if Text(e.Value) == Text(t.given["adapters"].Value) {
			t.put(e, "training.reference", "start", "")
			return
		}
		if list, ok := e.Value.([]any); ok && len(list) == 1 {
			e.Value = list[0]
		}
		t.take(e, "training.reference")
	},
	"ref_model": func(t *translation, e entry) {
		if e.Value == t.given["model"].Value {
			t.add(Taken, e, "", nil, "the reference is the base model")
			return
		}
		t.ifOn(e, otherReference)
	},
	"dataset":                  func(t *translation, e entry) { swiftRows(t, e) },
	"val_dataset":              func(t *translation, e entry) { t.validation(func() { swiftRows(t, e) }) },
	"split_dataset_ratio":      valSize,
	"dataset_shuffle":          swiftOrder,
	"train_dataloader_shuffle": swiftOrder,
	"data_seed": func(t *translation, e entry) {
		t.put(e, "seed", e.Value, "one seed holds for weights, order and split")
	},
	"truncation_strategy": func(t *translation, e entry) {
		t.choose(e, "dataset.on_truncated", map[string]string{"delete": "drop", "right": "keep", "raise": "error"})
	},
	"template": func(t *translation, e entry) {
		t.missing(e, "prompts are written by the model's own chat template; dataset.chat_template names another one")
	},
	"system": func(t *translation, e entry) {
		if s, _ := e.Value.(string); strings.HasSuffix(s, ".txt") {
			t.missing(e, "a file: write its text in dataset.system")
			return
		}
		system(t, e)
	},
	"use_chat_template": func(t *translation, e entry) {
		if e.Value == true {
			t.off(e)
			return
		}
		t.put(e, "dataset.as_chat", "no", "")
	},
	"loss_scale": func(t *translation, e entry) {
		if e.Value == "last_round" && t.objective != "" && t.objective != "distill" {
			t.add(Taken, e, "", nil, "the answers are trained")
			return
		}
		t.choose(e, "dataset.train_on", map[string]string{"default": "assistant", "last_round": "last", "all": "all"})
	},
	"torch_dtype": func(t *translation, e entry) {
		t.choose(e, "training.precision", map[string]string{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"})
	},
	"enable_dft_loss": func(t *translation, e entry) { t.ifTrue(e, "training.objective", "dft", "") },
	"sft_alpha":       preferenceKey("ce_alpha"),
	"early_stop_interval": func(t *translation, e entry) {
		t.take(e, "training.early_stopping_patience")
	},
	"sequence_parallel_size": func(t *translation, e entry) {
		if e.Value == int64(1) {
			t.off(e)
			return
		}
		t.take(e, "training.context_parallel_size")
	},
	"offload_teacher_model": passed("the plan says where the teacher's weights lie"),
	"attn_impl":             passed("the fused kernels that fit the device are always used"),
	"use_logits_to_keep":    passed("logits of prompts are never computed"),
	"packing_length":        func(t *translation, e entry) { t.take(e, "dataset.max_length") },
	"tuner_backend":         passed("the method is computed here"),
	"quant_method": func(t *translation, e entry) {
		if e.Value == "bnb" {
			t.add(Taken, e, "", nil, "weights are quantised as bitsandbytes does, byte for byte")
			return
		}
		t.missing(e, t.keys["quantization_method"].Say)
	},
}

// swiftHarmless are arguments of ms-swift that change no number of the training.
const swiftHarmless = "add_version check_model create_checkpoint_symlink use_hf lazy_tokenize load_from_cache_file " +
	"logging_first_step ignore_args_error download_mode custom_register_path packing_num_proc model_type load_args " +
	"acc_strategy val_dataset_shuffle use_ray device_groups ref_model_type model_revision"

// swiftRules returns the rules of ms-swift.
func swiftRules() map[string]rule {
	for _, key := range strings.Fields(swiftHarmless) {
		if swift[key] == nil {
			swift[key] = passed("no number of the training depends on it")
		}
	}
	delete(swift, "model_revision") // the table of names has it
	return swift
}

// swiftTask refuses heads, which the translation does not set.
func swiftTask(t *translation, e entry) {
	if e.Value == "causal_lm" {
		t.off(e)
		return
	}
	t.refuse(e)
}

// swiftOrder reads whether rows are shuffled.
func swiftOrder(t *translation, e entry) {
	if e.Value == true {
		t.off(e)
		return
	}
	t.put(e, "dataset.shuffle", false, "")
}

// swiftRows reads data sets, each NAME:SUBSET#COUNT.
func swiftRows(t *translation, e entry) {
	list, ok := e.Value.([]any)
	if !ok {
		list = []any{e.Value}
	}
	t.several = t.several || len(list) > 1
	for _, one := range list {
		name, ok := one.(string)
		if !ok {
			t.missing(e, "the name or the path of a data set was expected; give dataset.path")
			continue
		}
		where, count, sampled := strings.Cut(name, "#")
		where, subset, _ := strings.Cut(where, ":")
		n, whole := number(count).(int64)
		split := ""
		single := entry{Pair: Pair{e.Key, name, e.Line}, shown: e.shown}
		switch {
		case sampled && (!whole || n <= 0):
			t.missing(single, "the number after # is not one of rows; slice the source: split: train[:1000]")
		case sampled:
			split = firstOf("", n)
			t.add(Different, single, "dataset.path", where+", "+split, "the first rows; there a sample at random")
		default:
			t.add(Taken, single, "dataset.path", where, "")
		}
		t.source(Pair{Key: "path", Value: where}, Pair{Key: "name", Value: subset}, Pair{Key: "split", Value: split})
	}
}

// swiftDefaults returns ms-swift's defaults, which depend on the kind of training.
func swiftDefaults(in *Input) []Pair {
	given := func(key string) any {
		for _, e := range in.entries {
			if e.Key == key {
				return e.Value
			}
		}
		return nil
	}
	objective, _ := in.objective()
	kind, _ := given("rlhf_type").(string)
	rate, batch, loss := 1e-4, int64(1), "default"
	if given("train_type") == "full" || given("tuner_type") == "full" {
		rate = 1e-5
	}
	if n, ok := fit(given("per_device_train_batch_size"), Whole); ok && n.(int64) > 0 {
		batch = n.(int64)
	}
	steps := (16 + batch - 1) / batch // a total of at least 16
	switch {
	case objective == "grpo":
		steps, loss = 1, "last_round"
	case objective != "":
		loss = "last_round"
	case in.calls["pt"]:
		loss = "all"
	}
	all := []Pair{{Key: "train_type", Value: "lora"}, {Key: "lora_rank", Value: int64(8)},
		{Key: "lora_alpha", Value: int64(32)}, {Key: "lora_dropout", Value: 0.05},
		{Key: "target_modules", Value: "all-linear"}, {Key: "truncation_strategy", Value: "delete"},
		{Key: "packing", Value: false}, {Key: "gradient_accumulation_steps", Value: steps},
		{Key: "loss_scale", Value: loss}}
	if in.calls["pt"] {
		all = append(all, Pair{Key: "use_chat_template", Value: false})
	}
	switch beta := map[string]float64{"dpo": 0.1, "orpo": 0.1, "cpo": 0.1, "kto": 0.1, "grpo": 0.04, "distill": 0.5}; {
	case kind == "simpo":
		all = append(all, Pair{Key: "beta", Value: 2.0}, Pair{Key: "simpo_gamma", Value: 1.0},
			Pair{Key: "cpo_alpha", Value: 1.0})
	case beta[objective] > 0:
		all = append(all, Pair{Key: "beta", Value: beta[objective]})
	}
	switch objective {
	case "grpo":
		all = append(all, Pair{Key: "max_completion_length", Value: int64(512)}, Pair{Key: "temperature", Value: 0.9})
	case "distill":
		all = append(all, Pair{Key: "temperature", Value: 0.9})
	}
	own := map[string]any{"per_device_train_batch_size": int64(1), "learning_rate": rate,
		"lr_scheduler_type": "cosine", "weight_decay": 0.1, "adam_beta2": 0.95}
	for _, p := range trainingArguments {
		if v, ok := own[p.Key]; ok {
			p.Value = v
		}
		all = append(all, p)
	}
	return all
}

// swiftFinish reports what no argument of the file says.
func swiftFinish(t *translation) {
	if t.in.Program.Name != "ms-swift" {
		return
	}
	if _, given := t.given["max_length"]; !given && t.objective != "grpo" {
		t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: "max_length", Value: "left out",
			Say: "there rows may have as many tokens as the model has positions: give dataset.max_length"})
	}
	if _, given := t.given["lmbda"]; t.objective == "distill" && !given {
		t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: "lmbda", Value: "left out",
			Say: "there the student samples a part of the answers; here the rows have all"})
	}
}
