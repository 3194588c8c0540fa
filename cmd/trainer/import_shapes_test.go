package main

// importsOfShapes are files of the shapes that the programs' own examples have.
var importsOfShapes = []importCase{
	{"axolotl, keys of messages one by one", "lora.yml", "base_model: m\nload_in_8bit: true\nadapter: " +
		"lora\ndatasets:\n  - {path: org/talks, type: chat_template, split: 'train[:20%]', field_messages: " +
		"conversations, " +
		"message_field_role: from, message_field_content: value}\ntrain_on_inputs: true\nsequence_len: " +
		"4096\nmicro_batch_size: 4\nprocessor_type: AutoProcessor\nliger_layer_norm: true\n", nil, "axolotl",
		[]string{"- {path: org/talks, split: 'train[:20%]', format: sharegpt}", "train_on: all",
			"adapter: qlora", "bits: 8"},
		[]string{"datasets[0].message_field_role: from -> dataset.format: sharegpt",
			"train_on_inputs: true -> dataset.train_on: all", "processor_type: AutoProcessor; rows are text",
			"liger_layer_norm: true; the fused kernels that fit the device are always used"}},
	{"llama-factory, parts of the rows", "sft.yaml", "model_name_or_path: org/m\nstage: sft\nfinetuning_type: " +
		"lora\nquantization_bit: 4\nquantization_method: bnb\ndataset: one,two\nmax_samples: 500\noutput_dir: o\n",
		map[string]string{"data/dataset_info.json": `{"one": {"file_name": "one.json"}, "two": {"hf_hub_url": ` +
			`"org/two", "num_samples": 50}}`}, "llamafactory",
		[]string{"- {path: data/one.json, split: 'train[:500]', format: alpaca}",
			"- {path: org/two, split: 'train[:50]', format: alpaca}", "bits: 4"},
		[]string{"max_samples: 500 -> dataset.sources[].split: train[:500]",
			"quantization_method: bnb; the weights are those of bitsandbytes"}},
	{"llama-factory, plain text", "pt.yaml",
		"model_name_or_path: org/m\nstage: pt\nfinetuning_type: lora\ndataset: web,gone\noutput_dir: o\n",
		map[string]string{
			"data/dataset_info.json": `{"web": {"file_name": "web.jsonl", "columns": {"prompt": "body"}}}`},
		"llamafactory",
		[]string{"- {path: data/web.jsonl, format: text, fields: {text: body}}", "- {path: gone, format: text}"},
		[]string{"stage: pt -> dataset.format: text"}},
	{"llama-factory, the new keys", "lora.yaml", "model: org/m\nmodel_class: llm\npeft_config:\n  name: lora\n  r: " +
		"24\n  lora_alpha: 48\n  target_modules: all\nquant_config: {name: bnb, quantization_bit: 4}\n" +
		"dist_config: {name: fsdp2}\ntrain_dataset: rows.yaml\nmicro_batch_size: 2\nglobal_batch_size: " +
		"8\ncutoff_len: 1024\nmax_steps: 10\noutput_dir: o\n",
		map[string]string{"rows.yaml": "a: {path: data/a.json, source: local, converter: alpaca}\nb: {path: org/b, " +
			"source: hf_hub, converter: sharegpt, size: 500}\n"}, "llamafactory-v1",
		[]string{"base_model: org/m", "adapter: qlora", "r: 24", "alpha: 48", "dropout: 0.05",
			"target_modules: all-linear", "bits: 4", "- {path: data/a.json, format: alpaca}",
			"- {path: org/b, split: 'train[:500]', format: sharegpt}", "batch_size: 2", "global_batch_size: 8",
			"max_length: 1024", "lr_scheduler: constant", "weight_decay: 0.01", "precision: bf16"},
		[]string{"program  LLaMA-Factory (v1)", "peft_config.r: 24 -> lora.r",
			"dist_config: {name: fsdp2}; devices says how many GPUs train"}},
	{"torchtune, references and tables", "tune.yaml", `
output_dir: /tmp/out
run: ${output_dir}/a
model: {_component_: torchtune.models.qwen2.lora_qwen2_0_5b, lora_attn_modules: [q_proj], lora_rank: 8, lora_alpha: 16}
tokenizer: {_component_: torchtune.models.qwen2.qwen2_tokenizer, path: /tmp/m/vocab.json, merges_file: /tmp/m/merges.txt}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/m, checkpoint_files: {filename_format: "model-{}-of-{}.safetensors", max_filename: "00005"}, output_dir: "${output_dir}"}
dataset: {_component_: torchtune.datasets.chat_dataset, source: org/talks, conversation_column: dialogue, conversation_style: openai, split: "train[:95%]"}
dataset_val: {source: org/talks, split: "train[95%:]"}
run_val_every_n_steps: 20
batch_size: 4
batch_size_val: ${batch_size}
gradient_accumulation_steps: ${batch_size}
optimizer: {_component_: torch.optim.AdamW, lr: 3e-4}
metric_logger: {_component_: torchtune.training.metric_logging.WandBLogger, project: bots}
profiler: {_component_: torchtune.training.setup_torch_profiler, enabled: false, warmup_steps: 3, output_dir: "${output_dir}/prof"}
`, nil, "torchtune",
		[]string{"- {path: org/talks, split: 'train[:95%]', format: messages, fields: {messages: dialogue}}",
			"- {path: org/talks, split: 'train[95%:]', format: auto}", "gradient_accumulation_steps: 4",
			"eval_steps: 20", "report_to: [wandb]", "experiment: bots", "output_dir: /tmp/out"},
		[]string{"run: /tmp/out/a; no key of this name is known", "checkpointer.output_dir: /tmp/out -> output_dir",
			"batch_size_val: 4; evaluation packs", "profiler: ", "; it is not enabled",
			"tokenizer.merges_file: /tmp/m/merges.txt; the tokenizer is that of base_model's folder"}},
	{"unsloth, rows that code writes", "u.py", "model, tok = FastLanguageModel.from_pretrained(model_name = " +
		"'m')\nmodel = FastLanguageModel.get_peft_model(model, finetune_mlp_modules = True)\n" +
		"d = load_dataset('org/talks', split = 'train')\nd = standardize_sharegpt(d)\nd = d.map(to_text, batched = " +
		"True)\nSFTTrainer(model = model, train_dataset = d, dataset_text_field = 'text', args = " +
		"SFTConfig(output_dir = 'o'))\n", nil, "unsloth",
		[]string{"path: org/talks", "output_dir: o"},
		[]string{"Changes what is trained: 1\n  standardize_sharegpt; code of the file makes the rows, and none is run",
			"get_peft_model(finetune_mlp_modules): true; lora.target_modules names them"}},
	{"transformers, an AdamW that is none", "args.json", `{"optim": "schedule_free_radam", "learning_rate": 1e-4, ` +
		`"per_device_train_batch_size": 2, "output_dir": "o", "num_train_epochs": 1}`, nil, "transformers",
		[]string{"learning_rate: 0.0001"}, []string{"optim: schedule_free_radam; training.optimizer is adamw, " +
			"adamw_8bit, lion, lion_8bit, adafactor, muon, schedule_free_adamw or sgd; adamw is the default"}},
	{"trl, as its quick start", "t.py", "d = load_dataset('json', data_files = {'train': 'a.jsonl', 'test': " +
		"'b.jsonl'})\ntrainer = SFTTrainer(model = 'org/m', train_dataset = d['train'], eval_dataset = d['test'], " +
		"args = SFTConfig('o', eval_strategy = 'steps', eval_steps = 5), peft_config = LoraConfig(r = 8, " +
		"target_modules = 'all-linear'))\n", nil, "trl",
		[]string{"base_model: org/m", "path: a.jsonl", "val_path: b.jsonl", "eval_steps: 5", "output_dir: o"},
		[]string{"SFTTrainer(model): org/m -> base_model",
			"assistant_only_loss: false (its default) -> dataset.train_on: all"}},
	{"unsloth, rows held out", "u.py", "model, tok = FastLanguageModel.from_pretrained(model_name = 'm')\nd = " +
		"load_dataset('json', data_files = ['a.jsonl', 'b.jsonl'], split = 'train').train_test_split(test_size = " +
		"0.1, seed = 1)\n" +
		"SFTTrainer(model = model, train_dataset = d['train'], eval_dataset = d['test'], args = SFTConfig(output_dir " +
		"= 'o', seed = 7))\nt = train_on_responses_only(t, instruction_part = 'a', response_part = 'b')\n",
		nil, "unsloth",
		[]string{"- {path: a.jsonl}", "- {path: b.jsonl}", "val_split: 0.1", "seed: 7", "train_on: assistant"},
		[]string{"train_test_split(test_size): 0.1 -> dataset.val_split",
			"SFTTrainer(eval_dataset): d['test']; the rows that are held out"}},
	{"unsloth, rows that have the text", "u.py", "model, tok = FastLanguageModel.from_pretrained(model_name = " +
		"'m')\nn = list(map(str, [1]))\nd = load_dataset('org/web')\nSFTTrainer(model = model, dataset_text_field = " +
		"'body', args = SFTConfig(output_dir = 'o'))\n",
		nil, "unsloth", []string{"path: org/web", "format: text", "fields: {text: body}"},
		[]string{"the field is trained whole"}},
	{"axolotl, names that mean something else here", "axolotl.yml", "base_model: org/m\nadapter: lora\nload_in_8bit: " +
		"false\nstrict: true\ndatasets:\n  - {path: a.jsonl, type: chat_template, train_on_eos: turn, " +
		"roles: {user: [human, user], assistant: [gpt, model]}}\ntest_datasets:\n  - {path: b.jsonl, type: " +
		"chat_template, split: train}\neval_sample_packing: false\nwandb_project: p\nwandb_mode: offline\n" +
		"use_mlflow: true\nlora_rank_pattern: {q_proj: 4}\nlora_alpha_pattern: {q_proj: 8}\ncurriculum_sampling: " +
		"true\nspecial_tokens: {pad_token: <pad>}\nstreaming: true\nlearning_rate: 1e-4\nmicro_batch_size: 1\n",
		nil, "axolotl",
		[]string{"path: a.jsonl", "format: messages", "val_path: b.jsonl", "shuffle: false",
			"rank_pattern: {q_proj: 4}", "alpha_pattern: {q_proj: 8}", "report_to: [wandb, mlflow]"},
		[]string{"strict: true; an unknown key is always an error",
			"datasets[0].train_on_eos: turn; the token that ends a trained turn",
			"datasets[0].roles: {user: [human, user], assistant: [gpt, model]}; known by these names",
			"test_datasets[0].path: b.jsonl -> dataset.val_path", "wandb_mode: offline; a run is written offline",
			"special_tokens.pad_token: <pad>; no row is padded",
			"streaming: true; dataset.streaming needs training.max_steps",
			"eval_sample_packing: false; validation rows are always packed"}},
	{"axolotl, several files and a template for one", "axolotl.yml",
		"base_model: org/m\nadapter: lora\nload_in_8bit: false\nlabel_smoothing_factor: 0.0\ndatasets:\n  - {path: " +
			"a.jsonl, type: chat_template}\n" +
			"  - {path: json, data_files: [c.jsonl, d.jsonl], type: completion, field: content}\n  - {path: " +
			"./folder, data_files: [x.jsonl, y.jsonl], type: chat_template, chat_template: chatml}\nlearning_rate: " +
			"1e-4\nmicro_batch_size: 1\n", nil, "axolotl",
		[]string{"- {path: a.jsonl, format: messages}", "- {path: c.jsonl, format: text, fields: {text: content}}",
			"- {path: d.jsonl, format: text, fields: {text: content}}",
			"- {path: folder/x.jsonl, format: messages}", "- {path: folder/y.jsonl, format: messages}",
			"chat_template: chatml"},
		[]string{"datasets[1].data_files: [c.jsonl, d.jsonl] -> dataset.path",
			"label_smoothing_factor: 0; not set",
			"datasets[2].chat_template: chatml -> dataset.chat_template; of all sources"}},
	{"axolotl, validation rows of another format", "axolotl.yml", "base_model: org/m\nadapter: lora\nload_in_8bit: " +
		"false\ndatasets: [{path: a.jsonl, type: chat_template}]\ntest_datasets:\n" +
		"  - {path: org/b, type: alpaca, split: 'test[:50]'}\n  - {path: c.jsonl, type: chat_template}\neval_steps: " +
		"10\nlearning_rate: 1e-4\nmicro_batch_size: 1\n", nil, "axolotl",
		[]string{"path: a.jsonl", "- {path: org/b, split: 'test[:50]', format: alpaca}",
			"- {path: c.jsonl, format: messages}", "eval_steps: 10"},
		[]string{"test_datasets[0].split: test[:50] -> dataset.val_sources[].split"}},
	{"llama-factory, names of messages", "sft.yaml", "model_name_or_path: org/m\nstage: sft\nfinetuning_type: " +
		"lora\ndataset: mine\ntemplate: qwen\noutput_dir: o\n",
		map[string]string{"data/dataset_info.json": `{"mine": {"file_name": "mine.json", "formatting": "sharegpt", ` +
			`"columns": {"messages": "talk", "system": "sys"}, "tags": {"role_tag": "who", "content_tag": "text", ` +
			`"user_tag": "u"}}}`}, "llamafactory",
		[]string{"path: data/mine.json", "format: sharegpt", "fields: {conversations: talk, system: sys}"},
		[]string{"tags: {role_tag: who, content_tag: text, user_tag: u}; messages have role and content"}},
	{"llama-factory, validation rows and order", "sft.yaml", "model_name_or_path: org/m\nstage: " +
		"sft\nfinetuning_type: lora\ndataset: [one, two]\neval_dataset: held\ndisable_shuffling: true\ncache_dir: " +
		"/models\n" +
		"max_length: 99\nmax_new_tokens: 5\ntemplate: qwen\ndefault_system: Be kind.\ntrain_on_prompt: " +
		"true\neval_strategy: steps\neval_steps: 5\noutput_dir: o\n",
		map[string]string{"data/dataset_info.json": `{"one": {"file_name": "one.json"}, "two": {"file_name": ` +
			`"two.json", "formatting": "sharegpt"}, "held": {"file_name": "held.json"}}`}, "llamafactory",
		[]string{"- {path: data/one.json, format: alpaca}", "- {path: data/two.json, format: sharegpt}",
			"- {path: data/held.json, format: alpaca}", "as_chat: \"yes\"", "system: Be kind.", "train_on: all",
			"shuffle: false", "max_length: 2048", "eval_steps: 5"},
		[]string{"eval_dataset: held -> dataset.val_sources", "cache_dir: /models; models",
			"max_length: 99; trainer generate makes text", "dataset: one -> dataset.path: data/one.json; by " +
				"dataset_info.json, format alpaca, written as conversations by the chat template, as there " +
				"(dataset.as_chat: yes)"}},
}
