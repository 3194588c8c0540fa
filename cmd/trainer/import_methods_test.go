package main

// importsOfMethods are files whose adapter is of another method than LoRA.
var importsOfMethods = []importCase{
	{"peft, DoRA", "adapter_config.json", `{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_dora": true, ` +
		`"target_modules": ["q_proj"], "base_model_name_or_path": "org/m", "init_lora_weights": true}`, nil, "peft",
		[]string{"adapter: dora", "r: 4", "alpha: 8", "target_modules: [q_proj]"},
		[]string{"peft_type: LORA -> adapter: dora", "use_dora: true -> adapter: dora"}},
	{"peft, IA3", "adapter_config.json", `{"peft_type": "IA3", "base_model_name_or_path": "org/m", ` +
		`"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"], "init_ia3_weights": true, ` +
		`"fan_in_fan_out": false, "inference_mode": true}`, nil, "peft",
		[]string{"adapter: ia3", "target_modules: [k_proj, down_proj]", "feedforward_modules: [down_proj]"},
		[]string{"peft_type: IA3 -> adapter: ia3", "init_ia3_weights: true; a run starts at the base model",
			"inference_mode: true; train it further with init_from"}},
	{"peft, MiSS", "adapter_config.json", `{"peft_type": "MISS", "base_model_name_or_path": "org/m", "r": 16, ` +
		`"target_modules": ["q_proj"], "mini_r": 1, "init_weights": "bat", "rank_pattern": {"q": 3}}`, nil, "peft",
		[]string{"adapter: miss", "r: 16", "target_modules: [q_proj]"},
		[]string{"init_weights: bat; a run of this method always starts at the base model",
			"rank_pattern: {q: 3}; adapter: miss has no such key"}},
	{"peft, Bone", "adapter_config.json", `{"peft_type": "BONE", "base_model_name_or_path": "org/m", "r": 16, ` +
		`"target_modules": ["q_proj"], "inference_mode": true}`, nil, "peft", []string{"adapter: miss", "r: 16"},
		[]string{"peft_type: BONE -> adapter: miss; Bone's successor in PEFT is MiSS"}},
	{"peft, VeRA", "adapter_config.json", `{"peft_type": "VERA", "base_model_name_or_path": "org/m", "r": 128, ` +
		`"target_modules": ["q_proj"], "d_initial": 0.2, "projection_prng_key": 5, "save_projection": true, ` +
		`"vera_dropout": 0.1}`, nil, "peft",
		[]string{"adapter: vera", "r: 128", "d_initial: 0.2", "projection_prng_key: 5", "dropout: 0.1"},
		[]string{"save_projection: true; the random matrices are always saved"}},
	{"peft, OFT", "adapter_config.json", `{"peft_type": "OFT", "base_model_name_or_path": "org/m", "r": 0, ` +
		`"oft_block_size": 64, "target_modules": ["q_proj"], "coft": false, "eps": 6e-05, "block_share": true, ` +
		`"use_cayley_neumann": false, "num_cayley_neumann_terms": 6}`, nil, "peft",
		[]string{"adapter: oft", "oft_block_size: 64", "num_cayley_neumann_terms: 6"},
		[]string{"use_cayley_neumann: false; the exact inverse is not computed here",
			"block_share: true; each block has"}},
	{"peft, LoKr", "adapter_config.json", `{"peft_type": "LOKR", "base_model_name_or_path": "org/m", "r": 4, ` +
		`"alpha": 16, "target_modules": ["q_proj"], "decompose_both": true, "decompose_factor": -1, ` +
		`"rank_dropout": 0.1, "use_effective_conv2d": false}`, nil, "peft",
		[]string{"adapter: lokr", "r: 4", "alpha: 16", "decompose_both: true"},
		[]string{"decompose_factor: -1; the default", "rank_dropout: 0.1; adapter: lokr has no dropout"}},
	{"peft, a method that there is none of", "adapter_config.json", `{"peft_type": "LOHA", "r": 8, ` +
		`"base_model_name_or_path": "org/m", "target_modules": ["q_proj"]}`, nil, "peft", []string{"adapter: lora"},
		[]string{"Changes what is trained", "peft_type: LOHA -> adapter: lora; no such method here"}},
	{"peft, LoftQ", "adapter_config.json", `{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "org/m", ` +
		`"target_modules": ["q_proj"], "init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, ` +
		`"loftq_iter": 5}}`, nil, "peft", []string{"init_lora_weights: loftq_iter_5"},
		[]string{"loftq_config: {loftq_bits: 4, loftq_iter: 5}; of init_lora_weights"}},
	{"peft, EVA", "adapter_config.json", `{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "org/m", ` +
		`"target_modules": ["q_proj"], "init_lora_weights": "eva", "eva_config": {"rho": 2.0, "tau": 0.99, ` +
		`"whiten": false}}`, nil, "peft", []string{"init_lora_weights: eva"},
		[]string{"init_lora_weights: eva -> lora.init_lora_weights; each layer keeps its rank, as with rho 1",
			"eva_config: {rho: 2, tau: 0.99, whiten: false}; of init_lora_weights"}},
	{"trl, VeRA of a script", "t.py", "d = load_dataset('org/d')\nSFTTrainer(model = 'org/m', train_dataset = d, " +
		"args = SFTConfig('o'), peft_config = VeraConfig(r = 64, target_modules = 'all-linear'))\n", nil, "trl",
		[]string{"adapter: vera", "r: 64", "target_modules: all-linear"}, nil},
	{"unsloth, DoRA on 4 bits", "u.py", "model, tok = FastLanguageModel.from_pretrained(model_name = 'm')\nmodel = " +
		"FastLanguageModel.get_peft_model(model, use_dora = True)\nd = load_dataset('org/d')\n" +
		"SFTTrainer(model = model, train_dataset = d, dataset_text_field = 'body', args = SFTConfig(output_dir = " +
		"'o'))\n", nil, "unsloth", []string{"adapter: qdora", "r: 16"},
		[]string{"get_peft_model(use_dora): true -> adapter: qdora"}},
	{"axolotl, DoRA", "axolotl.yml", "base_model: org/m\nadapter: qlora\npeft_use_dora: true\nload_in_4bit: true\n" +
		"lora_r: 8\nlora_alpha: 16\nlora_target_linear: true\ndatasets:\n  - {path: a.jsonl, type: alpaca}\n" +
		"sequence_len: 512\nmicro_batch_size: 1\nnum_epochs: 1\nlearning_rate: 1e-4\noutput_dir: o\n", nil, "axolotl",
		[]string{"adapter: qdora", "bits: 4", "r: 8", "target_modules: all-linear"},
		[]string{"adapter: qlora -> adapter: qdora", "peft_use_dora: true -> adapter: qdora"}},
	{"llama-factory, PiSSA", "sft.yaml", "model_name_or_path: org/m\nstage: sft\nfinetuning_type: lora\n" +
		"pissa_init: true\npissa_iter: -1\nuse_dora: false\ndataset: a\ntemplate: qwen\noutput_dir: o\n", nil,
		"llamafactory", []string{"adapter: lora", "init_lora_weights: pissa"},
		[]string{"pissa_init: true -> lora.init_lora_weights: pissa"}},
}
