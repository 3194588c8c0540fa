package importer

import (
	"fmt"
	"strings"
)

// common holds rules for all programs with top-level keys.
var common = map[string]rule{
	"adapter":                  func(t *translation, e entry) { t.method(e) },
	"unfrozen_parameters":      unfrozen,
	"freeze_trainable_layers":  ofFreeze,
	"freeze_trainable_modules": ofFreeze,
	"freeze_extra_modules":     ofFreeze,
	"finetuning_type":          func(t *translation, e entry) { t.method(e) },
	"load_in_4bit":             func(t *translation, e entry) { t.bits(e, 4) },
	"load_in_8bit":             func(t *translation, e entry) { t.bits(e, 8) },
	"quantization_bit":         quantizationBit,
	"lora_target":              targets,
	"lora_target_modules":      targets,
	"target_modules":           targets,
	"modules_to_save":          savedModules,
	"lora_modules_to_save":     savedModules,
	"additional_target":        savedModules,
	"lora_bias":                biasKeys,
	"trainable_token_indices":  tokenIndices,

	"peft_trainable_token_indices": tokenIndices,

	"tokens":             addedTokens("tokenizer.add_tokens"),
	"add_tokens":         addedTokens("tokenizer.add_tokens"),
	"add_special_tokens": addedTokens("tokenizer.additional_special_tokens"),
	"new_special_tokens": addedTokens("tokenizer.additional_special_tokens"),
	"resize_vocab":       passed("the embeddings get rows for tokens that are added"),
	"lora_target_linear": func(t *translation,
		e entry) {
		t.ifTrue(e, "lora.target_modules", "all-linear", "")
	},
	"optim":     optimizer,
	"optimizer": optimizer,
	"adafactor": func(t *translation,
		e entry) {
		t.ifTrue(e, "training.optimizer", "adafactor", "")
	},
	"use_muon":                       func(t *translation, e entry) { t.ifTrue(e, "training.optimizer", "muon", "") },
	"lr_scheduler_type":              scheduler,
	"lr_scheduler":                   scheduler,
	"lr_scheduler_kwargs":            schedulerValues,
	"cosine_min_lr_ratio":            minimumRate,
	"max_steps":                      maxSteps,
	"warmup_steps":                   warmup,
	"bf16":                           func(t *translation, e entry) { t.precision(e, "bf16") },
	"fp16":                           func(t *translation, e entry) { t.precision(e, "fp16") },
	"tf32":                           func(t *translation, e entry) { t.precision(e, "tf32") },
	"pure_bf16":                      func(t *translation, e entry) { t.precision(e, "bf16") },
	"gradient_checkpointing":         checkpointing,
	"use_gradient_checkpointing":     checkpointing,
	"disable_gradient_checkpointing": checkpointing,
	"activation_offloading": func(t *translation,
		e entry) {
		t.ifTrue(e, "training.gradient_checkpointing", "offload", "")
	},
	"eval_strategy":          strategy("eval"),
	"evaluation_strategy":    strategy("eval"),
	"save_strategy":          strategy("save"),
	"logging_strategy":       strategy("logging"),
	"eval_steps":             func(t *translation, e entry) { t.every(e, "eval") },
	"save_steps":             func(t *translation, e entry) { t.every(e, "save") },
	"logging_steps":          func(t *translation, e entry) { t.every(e, "logging") },
	"evals_per_epoch":        perEpoch("training.eval_steps"),
	"saves_per_epoch":        perEpoch("training.save_steps"),
	"val_set_size":           valSize,
	"val_size":               valSize,
	"chat_template":          template,
	"template":               template,
	"default_system":         system,
	"default_system_message": system,
	"mask_history":           func(t *translation, e entry) { t.ifTrue(e, "dataset.train_on", "last", "") },
	"assistant_only_loss":    func(t *translation, e entry) { t.ifTrue(e, "dataset.train_on", "assistant", "") },
	"ddp_timeout": func(t *translation, e entry) {
		t.missing(e, "training.ddp_timeout is how soon a process that is lost ends the run, 30 seconds unless it is "+
			"set; theirs has to outlast the slowest step")
	},
	"early_stopping_steps":         func(t *translation, e entry) { t.take(e, "training.early_stopping_patience") },
	"metric_for_best_model":        bestMetric,
	"output_dir":                   func(t *translation, e entry) { t.take(e, "output_dir") },
	"resume_from_checkpoint":       resume,
	"auto_resume_from_checkpoints": func(t *translation, e entry) { t.ifTrue(e, "training.resume", "auto", "") },
	"peft_init_lora_weights":       loraStart,
	"use_dora":                     useDoRA,
	"peft_use_dora":                useDoRA,
	"loftq_config":                 loftQConfig,
	"eva_config":                   evaConfig,
	"pissa_init":                   pissaStart,
	"pissa_iter":                   passed("of pissa_init"),
	"loraplus_lr_ratio":            func(t *translation, e entry) { t.take(e, "lora.loraplus_lr_ratio") },
	"neat_packing":                 func(t *translation, e entry) { t.ifTrue(e, "dataset.packing", true, "") },
	"batch_size": func(t *translation, e entry) {
		t.missing(e, "the total over all devices; training.batch_size times training.gradient_accumulation_steps is "+
			"that of one")
	},
	"data_seed": func(t *translation, e entry) {
		t.put(e, "seed", e.Value, "one seed holds for weights, order and split")
	},
	"pad_to_sequence_len": padding,
	"streaming":           streaming,
	"disable_shuffling":   func(t *translation, e entry) { t.ifTrue(e, "dataset.shuffle", false, "") },
	"curriculum_sampling": func(t *translation, e entry) { t.ifTrue(e, "dataset.shuffle", false, "") },
	"eval_sample_packing": evalPacking,
	"eval_packing":        evalPacking,
	"train_on_eos":        endOfTurn,
	"train_on_eot":        endOfTurn,
	"special_tokens":      specialTokens,
	"cache_dir": func(t *translation, e entry) {
		t.missing(e, "models and data sets of the hub lie where HF_HOME or HF_HUB_CACHE says; dataset.cache_dir "+
			"keeps tokens")
	},
	"excess_length_strategy": func(t *translation, e entry) {
		t.choose(e, "dataset.on_truncated", map[string]string{"drop": "drop", "truncate": "keep", "raise": "error"})
	},
	"mixed_precision": func(t *translation, e entry) {
		t.choose(e, "training.precision", map[string]string{"bf16": "bf16", "fp16": "fp16", "no": "fp32"})
	},
}

func (t *translation) ifTrue(e entry, path string, v any, say string) {
	switch on := e.Value.(type) {
	case bool:
		if !on {
			t.off(e)
			return
		}
		t.put(e, path, v, say)
	default:
		t.missing(e, "neither true nor false; give "+path+" by hand")
	}
}

// choose translates one of the known values to our name for it.
func (t *translation) choose(e entry, path string, ours map[string]string) {
	s, _ := e.Value.(string)
	if v, ok := ours[strings.ToLower(s)]; ok {
		t.put(e, path, v, "")
		return
	}
	t.missing(e, "no value of "+path+" stands for it")
}

func (t *translation) method(e entry) {
	switch e.Value {
	case "lora":
		if t.given["load_in_8bit"].Value == true || t.given["quantization_bit"].Value != nil {
			t.put(e, "adapter", "qlora", "qlora is LoRA on a base model that is stored in 4 or 8 bits")
			return
		}
		t.take(e, "adapter")
	case "qlora":
		t.take(e, "adapter")
	case "full", "freeze":
		t.all = &e
	default:
		if s, _ := e.Value.(string); t.peft != nil && strings.EqualFold(s, t.peft.adapter) {
			t.put(e, "adapter", "lora", "")
			return
		}
		n := len(t.entries)
		t.put(e, "adapter", "lora", "there is no method of this name, so LoRA is taken; docs/ADAPTERS.md lists the "+
			"methods")
		t.as(n, Changes)
	}
}

func (t *translation) bits(e entry, bits int64) {
	if on, ok := e.Value.(bool); !ok || !on {
		if ok {
			t.off(e)
		} else {
			t.put(e, "quantization.bits", e.Value, "")
		}
		return
	}
	t.quantised(e, bits)
}

// quantised sets the adapter to qlora, with base weights of the given number of bits.
func (t *translation) quantised(e entry, bits int64) {
	if !t.has("adapter") {
		t.at["adapter"] = len(t.set)
		t.set = append(t.set, Setting{"adapter", "qlora", e.shown})
	} else if i := t.at["adapter"]; t.set[i].Value == "lora" {
		t.set[i].Value, t.set[i].From = "qlora", e.shown
	}
	t.put(e, "quantization.bits", bits, "")
}

func quantizationBit(t *translation, e entry) {
	if bits, ok := fit(e.Value, Whole); ok && (bits == int64(4) || bits == int64(8)) {
		t.quantised(e, bits.(int64))
		return
	}
	t.missing(e, "base weights are quantised to 4 or 8 bits here: give quantization.bits")
}

func targets(t *translation, e entry) {
	v := e.Value
	if s, ok := v.(string); ok {
		switch {
		case s == "all" || s == "all-linear" || s == "all_linear":
			v = "all-linear"
		case strings.Contains(s, ",") && !strings.ContainsAny(s, `()[]{}\|*+?^$`):
			var list []any
			for _, name := range strings.Split(s, ",") {
				list = append(list, strings.TrimSpace(name))
			}
			v = list
		case !strings.ContainsAny(s, `()[]{}\|*+?^$.`):
			v = []any{s}
		}
	}
	if list, ok := v.([]any); ok {
		var kept []any
		for _, name := range list {
			if t.peft == nil || name != "lm_head" && name != "embed_tokens" {
				kept = append(kept, name)
			}
		}
		if len(kept) < len(list) {
			t.put(e, "lora.target_modules", kept, "adapter: "+t.peft.adapter+" leaves embeddings and head as they are")
			return
		}
	}
	t.put(e, "lora.target_modules", v, "")
}

// savedModules takes the modules that are trained in whole, a list or names between commas.
func savedModules(t *translation, e entry) {
	v := e.Value
	if s, ok := v.(string); ok {
		var list []any
		for _, name := range strings.Split(s, ",") {
			list = append(list, strings.TrimSpace(name))
		}
		v = list
	}
	t.put(e, "lora.modules_to_save", v, "")
}

// schedules maps schedules of other programs to our names, with the difference.
var schedules = map[string][2]string{
	"warmup_stable_decay":  {"wsd", "training.decay_ratio and training.min_lr_ratio say where it ends"},
	"polynomial":           {"linear", "power 1, which is transformers' default"},
	"cosine_with_restarts": {"cosine", "one cycle, which is transformers' default"},
	"rex":                  {"cosine", "there is no rex"},
	"one_cycle":            {"cosine", "there is no one_cycle"},
	"reduce_lr_on_plateau": {"constant_with_warmup", "no schedule looks at the loss"},
}

func scheduler(t *translation, e entry) {
	s, _ := e.Value.(string)
	if o, ok := schedules[s]; ok {
		t.put(e, "training.lr_scheduler", o[0], o[1])
		return
	}
	switch s {
	case "linear", "cosine", "constant", "constant_with_warmup", "inverse_sqrt", "cosine_with_min_lr", "wsd":
		if s == "cosine" && t.given["cosine_min_lr_ratio"].Value != nil {
			t.put(e, "training.lr_scheduler", "cosine_with_min_lr", "")
			return
		}
		t.take(e, "training.lr_scheduler")
	default:
		t.missing(e, "no schedule of this name; training.lr_scheduler is cosine")
	}
}

func schedulerValues(t *translation, e entry) {
	m, _ := e.Value.(Map)
	for _, p := range m {
		one := entry{Pair: Pair{p.Key, p.Value, p.Line}, shown: e.shown + "." + shorten(p.Key)}
		switch p.Key {
		case "min_lr_rate", "min_lr_ratio":
			t.put(one, "training.min_lr_ratio", p.Value, "")
		default:
			t.missing(one, "training.min_lr_ratio and training.decay_ratio are the values of schedules, both parts "+
				"of a whole")
		}
	}
	if m == nil {
		t.missing(e, "training.min_lr_ratio and training.decay_ratio are the values of schedules")
	}
}

func minimumRate(t *translation, e entry) { t.put(e, "training.min_lr_ratio", e.Value, "") }

func maxSteps(t *translation, e entry) {
	if v, ok := fit(e.Value, Whole); ok && v.(int64) <= 0 {
		t.off(e)
		return
	}
	t.take(e, "training.max_steps")
}

// warmup reads a number of steps; in transformers 5 the same key also takes a fraction of the steps.
func warmup(t *translation, e entry) {
	v, _ := fit(e.Value, Number)
	if f, ok := v.(float64); ok && f > 0 && f < 1 {
		t.put(e, "training.warmup_ratio", f, "")
		return
	}
	if v == int64(0) || v == 0.0 {
		if t.given["warmup_ratio"].Value == nil {
			t.put(e, "training.warmup_ratio", int64(0), "")
		} else {
			t.off(e)
		}
		return
	}
	t.take(e, "training.warmup_steps")
}

func (t *translation) precision(e entry, p string) {
	switch v := e.Value.(type) {
	case bool:
		if !v {
			t.off(e)
			return
		}
		if p == "tf32" && (t.given["bf16"].Value == true || t.given["fp16"].Value == true ||
			t.given["bf16"].Value == "auto") {
			t.add(Taken, e, "", nil, "bf16 and fp16 leave nothing to tf32")
			return
		}
		t.put(e, "training.precision", p, "")
	case string:
		if v == "auto" || v == "full" || v == "true" {
			t.put(e, "training.precision", map[bool]string{true: "auto", false: p}[v == "auto" && p != "tf32"], "")
			return
		}
		t.missing(e, "training.precision is bf16, fp16, tf32, fp32 or auto")
	case Code:
		t.put(e, "training.precision", "auto",
			"an expression, which is not worked out; auto is bf16 where the GPU has it, else fp16")
	default:
		t.missing(e, "training.precision is bf16, fp16, tf32, fp32 or auto")
	}
}

// checkpointing leaves the choice to the plan, since no number depends on it.
func checkpointing(t *translation, e entry) {
	t.put(e, "training.gradient_checkpointing", "auto", "chosen by what fits in memory; no number depends on it")
}

// strategy reads no, steps or epoch, which goes with a number of steps.
func strategy(what string) rule {
	return func(t *translation, e entry) {
		switch e.Value {
		case "steps":
			t.add(Taken, e, "", nil, fmt.Sprintf("training.%s_steps counts optimizer steps", what))
		case "epoch":
			perEpoch("training."+what+"_steps")(t, e)
		default:
			t.off(e)
		}
	}
}

// every reads a number of steps, which applies only if the strategy says so.
func (t *translation) every(e entry, what string) {
	path := "training." + what + "_steps"
	said := t.given[what+"_strategy"].Value
	if said == nil && what == "eval" {
		said = t.given["evaluation_strategy"].Value
	}
	if e.peers != "" && said != nil && said != "steps" {
		return
	}
	if said == "no" || said == "epoch" || said == false {
		t.add(Taken, e, "", nil, what+"_strategy lets it do nothing")
		return
	}
	if f, ok := e.Value.(float64); ok && f > 0 && f < 1 {
		t.missing(e, path+" counts optimizer steps, not parts of the run; trainer plan prints how many there are")
		return
	}
	t.take(e, path)
}

func perEpoch(path string) rule {
	return func(t *translation, e entry) {
		key, own := map[string]string{"training.eval_steps": "training.evals_per_epoch",
			"training.save_steps": "training.saves_per_epoch"}[path]
		v := e.Value
		if v == "epoch" {
			v = int64(1)
		}
		if n, ok := fit(v, Whole); own && ok && n.(int64) > 0 {
			t.put(e, key, n, "")
			return
		}
		t.missing(e, path+" counts optimizer steps (trainer plan prints how many the run has)")
	}
}

func resume(t *translation, e entry) {
	if on, ok := e.Value.(bool); ok && on {
		t.put(e, "training.resume", "auto", "")
		return
	}
	t.missing(e, "checkpoints of other programs can't be resumed; lora.init_from starts from their adapter")
}

func padding(t *translation, e entry) {
	t.add(Different, e, "", nil, "no row is padded, which changes no number; dataset.pad_to: max_length pads")
}
