package importer

import "strings"

// python are the rules of arguments of calls in notebooks and scripts.
var python = map[string]rule{
	"model_name":                    func(t *translation, e entry) { t.take(e, "base_model") },
	"pretrained_model_name_or_path": func(t *translation, e entry) { t.take(e, "base_model") },
	"max_seq_length":                func(t *translation, e entry) { t.take(e, "dataset.max_length") },
	"max_length":                    pythonLength,
	"r":                             func(t *translation, e entry) { t.take(e, "lora.r") },
	"random_state": func(t *translation, e entry) {
		t.put(e, "seed", e.Value, "one seed holds for weights, order and split")
	},
	"seed":                   func(t *translation, e entry) { t.take(e, "seed") },
	"packing":                func(t *translation, e entry) { t.take(e, "dataset.packing") },
	"path":                   pythonData,
	"name":                   inSource,
	"split":                  inSource,
	"revision":               inSource,
	"data_files":             inSource,
	"dtype":                  pythonType,
	"torch_dtype":            pythonType,
	"quantization_config":    passed("its own arguments are read"),
	"bnb_4bit_compute_dtype": pythonType,
	"model":                  passed("an object of the program"),
	"args":                   passed("its own arguments are read"),
	"train_dataset":          passed("load_dataset's arguments are read"),
	"eval_dataset":           func(t *translation, e entry) { t.missing(e, "give dataset.val_path, or dataset.val_split") },
	"tokenizer":              passed("an object of the program"),
	"processing_class":       passed("an object of the program"),
	"peft_config":            passed("its own arguments are read"),
	"data_collator":          passed("rows lie end to end, none is padded; what is trained, dataset.train_on says"),
	"formatting_func": func(t *translation, e entry) {
		t.missing(e, "no code is run: rows in dataset.format completion, alpaca, messages or text need none")
	},
	"dataset_text_field": textField,
	"load_in_16bit":      func(t *translation, e entry) { t.ifTrue(e, "adapter", "lora", "") },
	"full_finetuning": func(t *translation, e entry) {
		t.ifTrue(e, "adapter", "lora", "LoRA and QLoRA are what this program trains")
	},
	"chat_template":      pythonTemplate,
	"instruction_part":   onResponses,
	"response_part":      onResponses,
	"num_proc":           passed("all cores read and tokenise"),
	"dataset_num_proc":   passed("all cores read and tokenise"),
	"token":              passed("HF_TOKEN is read from the environment"),
	"max_lora_rank":      passed("of another program's generation"),
	"temporary_location": passed("nothing is kept on disk while training"),
	"logging_dir":        passed("metrics.jsonl is written into output_dir"),
	"mapping":            passed("keys of messages: dataset.format sharegpt or messages says them"),
}

func passed(say string) rule {
	return func(t *translation, e entry) {
		t.add(Taken, entry{Pair: Pair{e.Key, e.Value, e.Line}, shown: e.shown}, "", nil, say)
	}
}

// pythonLength: Unsloth's sequence length is that of from_pretrained.
func pythonLength(t *translation, e entry) {
	if t.has("dataset.max_length") && e.peers == "" {
		t.put(e, "dataset.max_length", e.Value, "")
		return
	}
	t.take(e, "dataset.max_length")
}

// pythonData begins a source of rows.
func pythonData(t *translation, e entry) {
	s, ok := e.Value.(string)
	if !ok {
		t.missing(e, "an expression, which is not worked out: give dataset.path")
		return
	}
	t.add(Taken, e, "dataset.path", s, "")
	t.data = append(t.data, Map{{Key: "path", Value: s}})
}

// inSource reads an argument of load_dataset that belongs to the path before it.
func inSource(t *translation, e entry) {
	s, text := e.Value.(string)
	if !strings.HasPrefix(e.shown, "load_dataset") || len(t.data) == 0 || !text {
		t.missing(e, "not translated; dataset.sources has path, name, revision and split")
		return
	}
	last := &t.data[len(t.data)-1]
	switch {
	case e.Key == "data_files" && len(*last) > 0 && t.isLoader((*last)[0].Value.(string)):
		(*last)[0].Value = s
		t.add(Taken, e, "dataset.path", s, "")
	case e.Key == "data_files":
		t.missing(e, "name the file in dataset.path")
	case e.Key == "split" && s == "train":
		t.add(Taken, e, "", nil, "the default")
	default:
		*last = append(*last, Pair{Key: e.Key, Value: s})
		t.add(Taken, e, "dataset.sources[]."+e.Key, s, "")
	}
}

func pythonType(t *translation, e entry) {
	name := Text(e.Value)
	name = name[strings.LastIndexByte(name, '.')+1:]
	ours, ok := map[string]string{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[name]
	if !ok {
		ours = "auto"
	}
	if strings.HasPrefix(e.Key, "bnb_") && t.has("training.precision") {
		t.add(Taken, e, "", nil, "training.precision is given besides")
		return
	}
	t.put(e, "training.precision", ours, "")
}

// textField: the format text reads one field.
func textField(t *translation, e entry) {
	s, ok := e.Value.(string)
	if !ok {
		t.missing(e, "give dataset.fields, such as {text: body}")
		return
	}
	if len(t.data) == 1 {
		t.data[0] = append(t.data[0], Pair{Key: "format", Value: "text"})
		if s != "text" {
			t.data[0] = append(t.data[0], Pair{Key: "fields", Value: Map{{Key: "text", Value: s}}})
		}
	} else {
		t.at["dataset.format"] = len(t.set)
		t.set = append(t.set, Setting{"dataset.format", "text", e.shown})
	}
	t.add(Different, e, "dataset.format", "text", "the field is trained whole; rows as formats messages, alpaca or completion train the answers alone")
}

func pythonTemplate(t *translation, e entry) { template(t, e) }

func onResponses(t *translation, e entry) {
	t.put(e, "dataset.train_on", "assistant", "the template says where answers are; rows must be conversations (dataset.format: messages)")
}

// peft are the rules of an adapter_config.json.
var peft = map[string]rule{
	"peft_type": func(t *translation, e entry) {
		if e.Value == "LORA" {
			t.put(e, "adapter", "lora", "")
			return
		}
		t.put(e, "adapter", "lora", "LoRA and QLoRA are what this program trains")
	},
	"r":        func(t *translation, e entry) { t.take(e, "lora.r") },
	"bias":     func(t *translation, e entry) { t.missing(e, t.keys["bias"].Say) },
	"revision": func(t *translation, e entry) { t.missing(e, t.keys["revision"].Say) },
	"task_type": func(t *translation, e entry) {
		if e.Value == "CAUSAL_LM" {
			t.add(Taken, e, "", nil, "what a run trains")
			return
		}
		t.missing(e, t.keys["task_type"].Say)
	},
	"inference_mode": passed("train it further with lora.init_from"),
	"peft_version":   passed("which version wrote the file"),
	"auto_mapping":   passed("of another program's loading"),
	"init_lora_weights": func(t *translation, e entry) {
		if e.Value == true {
			t.add(Taken, e, "", nil, "A at random and B at zero")
			return
		}
		t.missing(e, t.keys["init_lora_weights"].Say)
	},
	"megatron_core":     passed("of another program"),
	"qalora_group_size": passed("of use_qalora, which is off unless it is named"),
}

// torchtune are the rules of torchtune's keys, whose names are those within its tables.
var torchtune = map[string]rule{
	"model.lora_rank":             func(t *translation, e entry) { t.take(e, "lora.r") },
	"model.lora_alpha":            func(t *translation, e entry) { t.take(e, "lora.alpha") },
	"model.lora_dropout":          func(t *translation, e entry) { t.take(e, "lora.dropout") },
	"model.lora_attn_modules":     tuneModules,
	"model.apply_lora_to_mlp":     tuneMLP,
	"model.apply_lora_to_output":  func(t *translation, e entry) { t.ifOn(e, "the head stays as it is") },
	"model.use_dora":              func(t *translation, e entry) { t.ifOn(e, t.keys["use_dora"].Say) },
	"model._component_":           tuneModel,
	"model.quantize_base":         func(t *translation, e entry) { t.ifTrue(e, "adapter", "qlora", "") },
	"checkpointer.checkpoint_dir": func(t *translation, e entry) { t.take(e, "base_model") },
	"tokenizer.path":              passed("the tokenizer is that of base_model's folder"),
	"tokenizer._component_":       passed("the tokenizer is that of base_model's folder"),
	"checkpointer._component_":    passed("base_model is a folder as on the hub"),
	"loss._component_": func(t *translation, e entry) {
		s, _ := e.Value.(string)
		if strings.Contains(s, "CrossEntropy") || strings.Contains(s, "CEWithChunkedOutputLoss") {
			t.add(Taken, e, "", nil, "the loss of a run")
			return
		}
		t.missing(e, t.keys["stage"].Say)
	},
	"tokenizer.max_seq_len":  func(t *translation, e entry) { t.take(e, "dataset.max_length") },
	"dataset.packed":         func(t *translation, e entry) { t.take(e, "dataset.packing") },
	"dataset.source":         func(t *translation, e entry) { t.tuneSource(e) },
	"dataset.data_files":     func(t *translation, e entry) { t.tuneSource(e) },
	"dataset.train_on_input": func(t *translation, e entry) { t.take(e, "dataset.train_on_prompt") },
	"dataset._component_":    tuneDataset,
	"dataset.split": func(t *translation, e entry) {
		if e.Value == "train" {
			t.add(Taken, e, "", nil, "the default")
			return
		}
		t.missing(e, "not translated; dataset.sources has path and split")
	},
	"optimizer._component_":  optimizer,
	"optimizer.lr":           func(t *translation, e entry) { t.take(e, "training.learning_rate") },
	"optimizer.weight_decay": func(t *translation, e entry) { t.take(e, "training.weight_decay") },
	"optimizer.fused":        passed("the update is one kernel"),
	"lr_scheduler._component_": func(t *translation, e entry) {
		t.choose(e, "training.lr_scheduler", map[string]string{"torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup": "cosine", "torchtune.modules.get_cosine_schedule_with_warmup": "cosine"})
	},
	"lr_scheduler.num_warmup_steps": warmup,
	"batch_size":                    func(t *translation, e entry) { t.take(e, "training.batch_size") },
	"epochs":                        func(t *translation, e entry) { t.take(e, "training.epochs") },
	"max_steps_per_epoch":           func(t *translation, e entry) { t.missing(e, "training.max_steps counts the steps of the whole run") },
	"gradient_accumulation_steps":   func(t *translation, e entry) { t.take(e, "training.gradient_accumulation_steps") },
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
	"device":                          func(t *translation, e entry) { t.choose(e, "device", map[string]string{"cuda": "cuda", "cpu": "cpu"}) },
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

func (t *translation) ifOn(e entry, say string) {
	if isOff(e.Value) {
		t.off(e)
		return
	}
	t.missing(e, say)
}

// tuneModel reads a builder's name: qlora_... stores the base model in NF4.
func tuneModel(t *translation, e entry) {
	s, _ := e.Value.(string)
	name := s[strings.LastIndexByte(s, '.')+1:]
	switch {
	case strings.HasPrefix(name, "qlora_"):
		t.put(e, "adapter", "qlora", "double_quant is on here; the model itself is the folder's")
	case strings.HasPrefix(name, "lora_"):
		t.put(e, "adapter", "lora", "the model itself is the folder's")
	default:
		t.put(e, "adapter", "lora", "LoRA and QLoRA are what this program trains")
	}
}

// tuneModules are torchtune's names of attention's layers; output_proj is o_proj in the files of Hugging Face.
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
	t.source(Pair{Key: "path", Value: s}, Pair{Key: "format", Value: tuneFormat(t.given["dataset._component_"].Value)})
}

// tuneFormats are formats of rows by torchtune's builders, and the data set that a builder reads by itself.
var tuneFormats = map[string][2]string{"alpaca_dataset": {"alpaca", "tatsu-lab/alpaca"}, "alpaca_cleaned_dataset": {"alpaca", "yahma/alpaca-cleaned"}, "chat_dataset": {"auto", ""},
	"text_completion_dataset": {"text", ""}, "instruct_dataset": {"auto", ""}}

func tuneFormat(component any) string {
	s, _ := component.(string)
	return tuneFormats[s[strings.LastIndexByte(s, '.')+1:]][0]
}

func tuneDataset(t *translation, e entry) {
	s, _ := e.Value.(string)
	f, ok := tuneFormats[s[strings.LastIndexByte(s, '.')+1:]]
	switch {
	case !ok:
		t.missing(e, "no format of this name; give dataset.path and dataset.format")
	case f[1] != "" && t.given["dataset.source"].Value == nil:
		t.add(Taken, e, "dataset.path", f[1], "")
		t.source(Pair{Key: "path", Value: f[1]}, Pair{Key: "format", Value: f[0]})
	default:
		t.add(Taken, e, "dataset.format", f[0], "")
	}
}
