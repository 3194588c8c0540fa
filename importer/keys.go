package importer

import "strings"

// Counterpart is our key for a key of another program, or the reason why there is none.
type Counterpart struct {
	Key string // our key, "" if there is none
	Say string // what to write instead, or why there is no such key; "" if the value can be kept
	// Class says what follows from leaving the key out; "" if another table gives the class.
	Class Class
}

// sameKeys maps our keys to the names that Axolotl, LLaMA-Factory, PEFT and transformers have for them. The value can
// be kept.
var sameKeys = map[string]string{
	"base_model":                           "model_name_or_path model base_model_name_or_path",
	"output_dir":                           "output_path save_dir",
	"seed":                                 "data_seed random_seed",
	"lora.r":                               "lora_r lora_rank rank",
	"lora.alpha":                           "lora_alpha",
	"lora.dropout":                         "lora_dropout",
	"lora.target_modules":                  "lora_target_modules lora_target",
	"lora.target_parameters":               "lora_target_parameters",
	"lora.exclude_modules":                 "lora_exclude_modules",
	"lora.layers_to_transform":             "peft_layers_to_transform",
	"lora.layers_pattern":                  "peft_layers_pattern",
	"lora.use_rslora":                      "peft_use_rslora",
	"lora.rank_pattern":                    "lora_rank_pattern",
	"lora.alpha_pattern":                   "lora_alpha_pattern",
	"lora.modules_to_save":                 "lora_modules_to_save additional_target",
	"lora.ensure_weight_tying":             "peft_ensure_weight_tying",
	"lora.trainable_token_indices":         "peft_trainable_token_indices",
	"tokenizer.add_tokens":                 "tokens",
	"tokenizer.additional_special_tokens":  "new_special_tokens",
	"lora.init_from":                       "lora_model_dir adapter_name_or_path",
	"quantization.bits":                    "quantization_bit",
	"quantization.type":                    "bnb_4bit_quant_type quantization_type",
	"quantization.double_quant":            "double_quantization bnb_4bit_use_double_quant",
	"dataset.path":                         "dataset_info train_file dataset_dir",
	"dataset.sources[].name":               "subset config_name",
	"dataset.val_path":                     "validation_file test_datasets eval_dataset",
	"dataset.max_length":                   "sequence_len cutoff_len max_seq_length model_max_length",
	"dataset.packing":                      "sample_packing neat_packing",
	"dataset.val_split":                    "val_set_size val_size",
	"dataset.fields":                       "field_mapping column_mapping",
	"dataset.train_on_prompt":              "train_on_inputs",
	"dataset.system":                       "default_system default_system_message",
	"dataset.cache_dir":                    "dataset_prepared_path tokenized_path",
	"training.batch_size":                  "micro_batch_size per_device_train_batch_size train_batch_size",
	"training.gradient_accumulation_steps": "gradient_accumulation accumulate_grad_batches",
	"training.context_parallel_size":       "sequence_parallel_degree sequence_parallel_size",
	"training.epochs":                      "num_epochs num_train_epochs",
	"training.max_steps":                   "max_train_steps num_steps",
	"training.learning_rate":               "lr",
	"training.optimizer":                   "optim",
	"training.lr_scheduler":                "lr_scheduler_type",
	"training.precision":                   "mixed_precision",
	"training.loss_scale":                  "initial_scale_power",
	"training.loss_scale_interval":         "loss_scale_window growth_interval",
	"training.adam_epsilon":                "adam_eps",
	"training.max_grad_norm":               "gradient_clipping",
	"training.neftune_alpha":               "neftune_noise_alpha noisy_embedding_alpha",
	"training.save_total_limit":            "checkpoints_to_keep",
	"training.resume":                      "auto_resume_from_checkpoints resume_from_checkpoint",
}

// namesOfWeights says how weights of the base model are trained.
const namesOfWeights = "write adapter: full, and in full.train the weights to train, such as [layers.30, lm_head]"

// namesOfMethods says where the adapter method stands.
const namesOfMethods = "write adapter: lora or qlora, adapter: full for all weights, or another method of " +
	"docs/ADAPTERS.md"

// otherValues are keys whose meaning is a value of one of our keys, or differs slightly from it.
var otherValues = map[string]Counterpart{
	"finetuning_type":          {Key: "adapter", Say: namesOfMethods},
	"peft_type":                {Key: "adapter", Say: namesOfMethods},
	"unfrozen_parameters":      {Key: "full.train", Say: namesOfWeights},
	"freeze_trainable_layers":  {Key: "full.train", Say: namesOfWeights},
	"freeze_trainable_modules": {Key: "full.train", Say: namesOfWeights},
	"freeze_extra_modules":     {Key: "full.train", Say: namesOfWeights},
	"lora_target_linear":       {Key: "lora.target_modules", Say: "write lora.target_modules: all-linear"},
	"load_in_4bit":             {Key: "quantization.bits", Say: "write quantization.bits: 4, or adapter: qlora"},
	"load_in_8bit":             {Key: "quantization.bits", Say: "write quantization.bits: 8 with adapter: qlora"},
	"bnb_config_kwargs": {Key: "quantization.type",
		Say: "write quantization.type, quantization.block_size and quantization.double_quant"},
	"quantization_config": {Key: "quantization.type",
		Say: "write quantization.type, quantization.block_size and quantization.double_quant"},
	"bnb_4bit_compute_dtype": {Key: "training.precision", Say: "write training.precision: bf16, or auto"},
	"bf16":                   {Key: "training.precision", Say: "write training.precision: bf16, or auto"},
	"fp16":                   {Key: "training.precision", Say: "write training.precision: fp16, or auto"},
	"tf32":                   {Key: "training.precision", Say: "write training.precision: tf32"},
	"float16":                {Key: "training.precision", Say: "write training.precision: fp16, or auto"},
	"bfloat16":               {Key: "training.precision", Say: "write training.precision: bf16, or auto"},
	"pure_bf16":              {Key: "training.precision", Say: "write training.precision: bf16, or auto"},
	"dtype": {Key: "training.precision",
		Say: "write training.precision: bf16, fp16 or fp32, or auto"},
	"fp16_opt_level": {Key: "training.precision", Say: "write training.precision: fp16, or auto"},
	"torch_dtype": {Key: "training.precision",
		Say: "write training.precision: bf16, fp16 or fp32, or auto"},
	"dataset_text_field": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {text: body} for dataset.format: text"},
	"completion_only_loss": {Key: "dataset.train_on_prompt", Say: "write dataset.train_on_prompt: false"},
	"template": {Key: "dataset.chat_template",
		Say: "write dataset.chat_template: a .jinja file or a template's name; empty is the model's own"},
	"mask_history": {Key: "dataset.train_on", Say: "write dataset.train_on: last"},
	"field_instruction": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"field_input": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"field_output": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"columns": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"prompt_column": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"completion_column": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"prompt_field": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"completion_field": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"prompt_key": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"response_key": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {prompt: question, completion: answer} for dataset.format: completion"},
	"text_column": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {text: body} for dataset.format: text"},
	"text_field": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {text: body} for dataset.format: text"},
	"field": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {text: body} for dataset.format: text"},
	"on_nan": {Key: "training.on_nonfinite", Say: "write training.on_nonfinite: stop or skip"},
	"field_messages": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {messages: talk} for dataset.format: messages"},
	"assistant_only_loss": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations"},
	"train_on_responses_only": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations; the template says where " +
			"answers are, no text is searched for"},
	"response_template": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations; the template says where " +
			"answers are, no text is searched for"},
	"instruction_template": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations; the template says where " +
			"answers are, no text is searched for"},
	"response_part": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations; the template says where " +
			"answers are, no text is searched for"},
	"instruction_part": {Key: "dataset.train_on",
		Say: "write dataset.train_on: assistant, which is the default for conversations; the template says where " +
			"answers are, no text is searched for"},
	"chat_template_jinja": {Key: "dataset.chat_template",
		Say: "write the template to a file and name it: dataset.chat_template: mine.jinja"},
	"chat_template_path": {Key: "dataset.chat_template", Say: "write dataset.chat_template: a .jinja file"},
	"field_tools": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {tools: functions} for dataset.format: messages"},
	"field_system": {Key: "dataset.fields",
		Say: "write dataset.fields, such as {system: prompt} for dataset.format: sharegpt"},
	"split_thinking": {Key: "dataset.train_reasoning",
		Say: "a text between <think> and </think> is known as reasoning; dataset.train_reasoning says whether it is " +
			"trained"},
	"packing_strategy": {Key: "dataset.packing",
		Say: "write dataset.packing: true; rows are packed best-fit and none is cut for it"},
	"eval_packing": {Key: "dataset.packing", Say: "validation rows are always packed"},
	"padding_free": {Key: "dataset.packing",
		Say: "no row is padded: without packing the rows of a batch lie end to end"},
	"pad_to_multiple_of": {Key: "dataset.pad_to",
		Say: "no row is padded: the rows of a batch lie end to end, in the token budgets that trainer plan prints"},
	"datasets": {Key: "dataset.sources",
		Say: "list them in dataset.sources, each with path, split, format and weight"},
	"eval_sample_packing":     {Key: "dataset.packing", Say: "validation rows are always packed"},
	"pad_to_sequence_len":     {Key: "dataset.pad_to", Say: "write dataset.pad_to: max_length"},
	"shuffle_merged_datasets": {Key: "dataset.shuffle", Say: "write dataset.shuffle"},
	"disable_shuffling":       {Key: "dataset.shuffle", Say: "write dataset.shuffle: false"},
	"curriculum_sampling":     {Key: "dataset.shuffle", Say: "write dataset.shuffle: false"},
	"batch_flattening": {Key: "dataset.packing",
		Say: "no row is padded: without packing the rows of a batch lie end to end"},
	"chat_template_kwargs": {Key: "dataset.chat_template",
		Say: "a row's own key chat_template_kwargs gives the template more variables"},
	"generate_samples": {Key: "training.sample_prompts",
		Say: "write training.sample_prompts: texts that the model continues for the log"},
	"use_unsloth_gc": {Key: "training.gradient_checkpointing",
		Say: "write training.gradient_checkpointing: offload"},
	"float32": {Key: "training.precision", Say: "write training.precision: fp32"},
	"compute_dtype": {Key: "training.precision",
		Say: "write training.precision: bf16, fp16 or fp32, or auto"},
	"use_mlflow":  {Key: "training.report_to", Say: "write training.report_to: [mlflow]"},
	"use_trackio": {Key: "training.report_to", Say: "write training.report_to: [trackio]"},
	"trackio_project_name": {Key: "tracking.experiment",
		Say: "write tracking.experiment, and training.report_to: [trackio]"},
	"trackio_run_name": {Key: "tracking.run_name",
		Say: "write tracking.run_name, and training.report_to: [trackio]"},
	"wandb_mode": {Key: "training.report_to", Say: "a run is written offline; wandb sync uploads it"},
	"max_samples": {Key: "dataset.sources",
		Say: "write dataset.sources with a split, such as train[:1000]"},
	"max_train_samples": {Key: "dataset.sources",
		Say: "write dataset.sources with a split, such as train[:1000]"},
	"mix_strategy":     {Key: "dataset.sources", Say: "each of dataset.sources has a weight"},
	"interleave_probs": {Key: "dataset.sources", Say: "each of dataset.sources has a weight"},
	"ds_type":          {Key: "dataset.path", Say: "what a file holds is found from its bytes and its name"},
	"sample_by":        {Key: "dataset.text_by", Say: "write dataset.text_by: line, paragraph or document"},
	"data_files": {Key: "dataset.path", Say: "write dataset.path: a file, a folder or a pattern such " +
		"as data/*.jsonl"},
	"excess_length_strategy": {Key: "dataset.on_truncated", Say: "write dataset.on_truncated: keep, drop or error"},
	"activation_offloading": {Key: "training.gradient_checkpointing",
		Say: "write training.gradient_checkpointing: offload"},
	"eval_strategy": {Key: "training.eval_steps",
		Say: "training.eval_steps counts optimizer steps, 0 = at the end"},
	"evaluation_strategy": {Key: "training.eval_steps",
		Say: "training.eval_steps counts optimizer steps, 0 = at the end"},
	"eval_on_start": {Key: "training.eval_steps",
		Say: "training.eval_steps counts optimizer steps, 0 = at the end"},
	"eval_delay": {Key: "training.eval_steps",
		Say: "training.eval_steps counts optimizer steps, 0 = at the end"},
	"save_strategy": {Key: "training.save_steps",
		Say: "training.save_steps counts optimizer steps, 0 = at the end"},
	"logging_strategy": {Key: "training.logging_steps", Say: "training.logging_steps counts optimizer steps"},
	"overwrite_output_dir": {Key: "output_dir", Say: "a run never replaces another: name a new output_dir, or " +
		"set training.resume: auto"},
	"logging_dir":      {Key: "output_dir", Say: "metrics.jsonl is written into output_dir"},
	"no_cuda":          {Key: "device", Say: "write device: cpu"},
	"use_cpu":          {Key: "device", Say: "write device: cpu"},
	"gpu_memory_limit": {Key: "vram", Say: "write vram: 8GiB"},
	"max_memory":       {Key: "vram", Say: "write vram: 8GiB"},
	"per_device_eval_batch_size": {Key: "training.batch_size",
		Say: "evaluation packs its rows into batches of as many tokens as training's"},
	"eval_batch_size": {Key: "training.batch_size",
		Say: "evaluation packs its rows into batches of as many tokens as training's"},
	"auto_find_batch_size": {Key: "training.batch_size",
		Say: "training.batch_size is fixed; trainer plan prints the memory that it takes"},
	"warmup_decay": {Key: "training.lr_scheduler",
		Say: "write training.lr_scheduler: wsd, with training.decay_ratio"},
	"cosine_min_lr_ratio": {Key: "training.min_lr_ratio",
		Say: "write training.lr_scheduler: cosine_with_min_lr, with training.min_lr_ratio"},
	"lr_scheduler_kwargs": {Key: "training.lr_scheduler",
		Say: "training.min_lr_ratio and training.decay_ratio are its values"},
	"use_wandb":       {Key: "training.report_to", Say: "write training.report_to: [wandb]"},
	"use_tensorboard": {Key: "training.report_to", Say: "write training.report_to: [tensorboard]"},
	"wandb_project": {Key: "tracking.experiment",
		Say: "write tracking.experiment, and training.report_to: [wandb]"},
	"wandb_name": {Key: "tracking.run_name",
		Say: "write tracking.run_name, and training.report_to: [wandb]"},
	"mlflow_tracking_uri": {Key: "tracking.mlflow_url",
		Say: "write tracking.mlflow_url, and training.report_to: [mlflow]"},
	"mlflow_experiment_name": {Key: "tracking.experiment",
		Say: "write tracking.experiment, and training.report_to: [mlflow]"},
	"mlflow_run_name": {Key: "tracking.run_name",
		Say: "write tracking.run_name, and training.report_to: [mlflow]"},
	"gradient_checkpointing_kwargs": {Key: "training.gradient_checkpointing",
		Say: "training.gradient_checkpointing takes none, selective, full, offload or auto"},
}

// noCounterpart gives the reason why keys of other programs have no counterpart.
var noCounterpart = []struct {
	class      Class
	names, why string
}{
	{Changes, "task_type stage rl reward_model pref_beta pref_loss dpo_beta",
		"a run trains on rows of text, preferences, labels, rewards or a teacher (training.objective)"},
	{Nothing, "do_train do_eval do_predict inference_mode", "the command says what is done: train, eval or generate"},
	{Changes, "init_lora_weights peft_init_lora_weights loftq_config pissa_init pissa_iter eva_config corda_config",
		"A starts at random and B at zero, as is PEFT's default; lora.init_lora_weights takes eva, gaussian, loftq, " +
			"loftq_iter_N, pissa, pissa_niter_N or olora, and lora.init_from starts from an adapter instead"},
	{Changes, "use_dora peft_use_dora", "DoRA is a method of its own here: write adapter: dora, or adapter: qdora " +
		"over a quantised base model"},
	{Changes, "use_qalora relora_steps relora_prune_ratio use_llama_pro", "no method that adapter names does this"},
	{Changes, "loraplus_lr_embedding", "LoRA+ does not go with LoRA on embeddings; lora.loraplus_lr_ratio is that of " +
		"the B matrices"},
	{Nothing, "create_new_adapter", "a run without lora.init_from makes a new adapter"},
	{Changes, "fan_in_fan_out lora_fan_in_fan_out layer_replication megatron_config megatron_core",
		"the model's own files say how its weights are stored"},
	{Changes, "gptq gptq_disable_exllama bnb_4bit_quant_storage quantization_method quantization_device_map",
		"base weights are kept as they are, or as NF4, FP4 or int8 with adapter: qlora"},
	{Nothing, "lora_on_cpu low_cpu_mem_usage device_map", "weights are read straight to where the run computes"},
	{ByHand, "merge_lora export_dir export_size export_device export_legacy_format",
		"trainer merge writes a merged model"},
	{Changes, "model_type base_model_config is_llama_derived_model is_mistral_derived_model is_qwen_derived_model " +
		"rope_scaling rope_theta overrides_of_model_config auto_mapping",
		"the model's config.json says it"},
	{Changes, "tokenizer_type tokenizer_config tokenizer_use_fast tokenizer_legacy use_fast_tokenizer special_tokens " +
		"added_tokens_overrides resize_token_embeddings_to_32x init_special_tokens new_special_tokens_config " +
		"split_special_tokens mean_resizing_embeddings shrink_embeddings embeddings_skip_upcast reinit_weights " +
		"fix_untrained_tokens",
		"the tokenizer and its special tokens are those of the model's folder"},
	{Nothing, "resize_vocab", "the embeddings get rows for tokens that are added"},
	{Nothing, "trust_remote_code", "no code of a model's folder is ever run"},
	{Changes, "model_revision revision", "name the folder of the snapshot in base_model"},
	{ByHand, "hub_model_id push_to_hub push_dataset_to_hub hub_strategy hub_revision export_hub_model_id " +
		"ms_hub_token om_hub_token hub_token hf_use_auth_token hf_hub_token",
		"trainer push uploads output_dir when the run has ended; it holds the adapter in PEFT's format"},
	{Changes, "train_on_eos train_on_eot eot_tokens efficient_eos",
		"the token that ends a trained turn is found in the template and always trained; trainer inspect template " +
			"--model DIR names it"},
	{Changes, "message_property_mappings message_field_role message_field_content roles",
		"messages have role and content (dataset.format: messages) or from and value (sharegpt), with the usual " +
			"names of roles; trainer inspect data shows them"},
	{Changes, "message_field_training message_field_training_detail",
		"a message's own key train (true or false) or weight (0 or 1) says whether it is trained"},
	{Changes, "drop_system_message", "conversations are written as their rows and the template say; a system message " +
		"stands in the row"},
	{Changes, "tool_format enable_thinking preserve_thinking",
		"the model's own chat template decides it; a row's chat_template_kwargs gives the template more variables"},
	{Nothing, "dataset_processes dataset_num_proc dataset_keep_in_memory preprocessing_batch_size " +
		"data_shared_file_system preprocessing_num_workers dataloader_num_workers dataloader_prefetch_factor " +
		"dataloader_pin_memory dataloader_drop_last overwrite_cache",
		"rows are read and tokenised before the first step, batches come from memory"},
	{Changes, "pretraining_dataset", "dataset.format: text trains on plain text, and dataset.streaming reads it as " +
		"training goes"},
	{Nothing, "group_by_length",
		"no row is padded to the length of another: unpacked rows lie end to end, whatever their order"},
	{Nothing, "buffer_size streaming_multipack_buffer_size",
		"with dataset.streaming rows are shuffled and packed within windows of 4096; without it over all rows"},
	{Nothing, "multipack_real_batches sample_packing_eff_est sample_packing_group_size sample_packing_bin_size " +
		"total_num_tokens", "packed sequences are counted, not estimated"},
	{Nothing, "remove_unused_columns label_names length_column_name",
		"fields that the format does not read are left alone"},
	{Nothing, "flash_attention flash_attn xformers_attention sdp_attention s2_attention eager_attention " +
		"attn_implementation flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp use_unsloth " +
		"use_liger_kernel liger_rope liger_rms_norm liger_glu_activation enable_liger_kernel lora_qkv_kernel " +
		"lora_mlp_kernel lora_o_kernel unsloth_lora_mlp unsloth_lora_qkv torch_compile torchdynamo " +
		"torch_compile_mode liger_layer_norm liger_rms_norm_gated liger_fused_linear_cross_entropy use_kernels " +
		"use_scattermoe use_sonicmoe cut_cross_entropy fused_attn_kernel experts_implementation " +
		"gemma4_hybrid_attn_impl use_v1_kernels llama4_linearized_experts flex_attn_compile_kwargs flex_attention " +
		"flash_optimum sage_attention large_head_attention flash_attn_d512 sdpa_varlen lora_embedding_kernel " +
		"chunked_cross_entropy chunked_cross_entropy_num_chunks torch_compile_backend torch_compile_options " +
		"deepcompile tiled_mlp tiled_mlp_num_shards tiled_mlp_use_original_mlp pretrain_multipack_attn use_kv_cache",
		"the fused kernels that fit the device are always used"},
	{ByHand, "deepspeed fsdp fsdp_config",
		"devices says how many GPUs train, and training.base_sharding whether they " +
			"hold the frozen base model in slices, as FSDP and ZeRO stage 3 do: auto does where it does not fit " +
			"whole; training.optimizer_sharding does so with optimizer states, as ZeRO stage 1"},
	{ByHand, "tpu_num_cores ddp_backend ddp_find_unused_parameters local_rank tensor_parallel_size world_size " +
		"accelerator_config use_ray", "devices says how many GPUs train; each computes whole layers"},
	{ByHand, "use_comet trackio_space_id swanlab_run_name swanlab_workspace wandb_watch wandb_run_id wandb_log_model " +
		"comet_project_name hf_mlflow_log_artifacts use_swanlab",
		"metrics are written to metrics.jsonl in output_dir; training.report_to and tracking name trackers"},
	{Nothing, "logging_first_step include_num_input_tokens_seen include_tokens_per_second " +
		"include_effective_tokens_per_second include_tkps log_level disable_tqdm",
		"metrics.jsonl has a line every training.logging_steps steps, tokens included"},
	{Changes, "optim_args adam_beta3", "AdamW's values are training.adam_beta1, training.adam_beta2 and " +
		"training.adam_epsilon"},
	{Nothing, "greater_is_better", "the objective says whether higher values of a number are better"},
	{Nothing, "save_safetensors save_only_model save_first_step",
		"checkpoints are SafeTensors and hold all that exact resume needs"},
	{Nothing, "eval_table_size eval_max_new_tokens eval_causal_lm_metrics compute_accuracy predict_with_generate",
		"evaluation measures the loss; trainer generate makes text"},
	{Changes, "label_smoothing_factor",
		"smoothed_cross_entropy.label_smoothing is that share, for the objective of the same name"},
	{Nothing, "bf16_full_eval fp16_full_eval eval_accumulation_steps prediction_loss_only include_inputs_for_metrics " +
		"infer_backend",
		"evaluation computes as training does and keeps the loss alone"},
	{Nothing, "ignore_data_skip full_determinism runtime_config",
		"a resumed run continues with the next row, and a run repeats bit by bit on one kind of device"},
	{Nothing, "debug profiler_steps profiler_steps_start enable_torch_profiler print_param_status",
		"trainer plan and trainer bench show what a step takes"},
	{Nothing, "strict", "an unknown key is always an error"},
	{Changes, "processor_type skip_prepare_dataset image_max_pixels image_min_pixels video_max_pixels " +
		"video_min_pixels video_fps video_maxlen image_size image_resize_algorithm freeze_vision_tower " +
		"freeze_multi_modal_projector freeze_mm_modules",
		"rows are text: of a model that reads images the language model alone is trained"},
	{Changes, "tokenizer_use_mistral_common", "the folder's tokenizer.json is read, and its chat template"},
	{Changes, "model_quantization_config model_quantization_config_kwargs quantize_moe_experts nvfp4_merge_aware fp8 " +
		"fp8_backend fp8_enable_fsdp_float8_all_gather qat_scheme quantization_aware_training qat",
		"base weights are kept as they are, as NF4, FP4 or int8 with adapter: qlora, or experts in MXFP4 as the " +
			"folder has them"},
	{ByHand, "expert_parallel_size tensor_model_parallel_size pipeline_model_parallel_size " +
		"expert_model_parallel_size dp_shard_size fsdp_version fsdp_transformer_layer_cls_to_wrap ray_num_workers " +
		"use_distributed_optimizer overlap_param_gather overlap_grad_reduce experimental_skip_move_to_device use_kt " +
		"kt_config kt_weight_path kt_non_expert_weight_path kt_cpu_activation",
		"devices says how many GPUs train, and training.base_sharding whether they hold the base model in slices"},
	{Changes, "revision_of_model model_config", "the model's folder says it; of another revision, name the folder of " +
		"its snapshot in base_model"},
	{Nothing, "sample_packing_sequentially", "packing is best-fit over all rows; without it dataset.shuffle: false " +
		"keeps the order of the file"},
	{Changes, "dataset_exact_deduplication",
		"data_report.json counts rows that are there twice; leave them out of the file"},
	{Changes, "use_galore galore_rank use_badam use_asft_loss asft_alpha use_dft_loss use_adam_mini use_apollo " +
		"apollo_layerwise " +
		"apollo_target apollo_rank apollo_scale apollo_scale_type badam_mode badam_switch_mode badam_switch_interval " +
		"badam_verbose galore_layerwise galore_target galore_scale mixture_of_depths diffusion lr_quadratic_warmup " +
		"embedding_learning_rate oft_block_size oft_target relora jagged_restart_steps jagged_restart_warmup_steps " +
		"pissa_convert", "what is trained follows one of training.optimizer's rules"},
	{ByHand, "use_otel_metrics otel_metrics_host otel_metrics_port swanlab_project swanlab_experiment_name " +
		"swanlab_description swanlab_mode",
		"training.report_to knows tensorboard, wandb, mlflow, prometheus, csv, webhook and kubeflow"},
	{Nothing, "do_sample temperature top_p top_k num_beams max_new_tokens repetition_penalty length_penalty " +
		"skip_special_tokens generation_max_new_tokens generation_temperature",
		"trainer generate makes text; its flags say how"},
	{Nothing, "layer_offloading selective_checkpointing gc_steps torch_empty_cache_steps gc_collect_steps " +
		"use_reentrant_gc offload_folder",
		"memory is planned before the run; training.gradient_checkpointing and vram say how"},
	{Changes, "min_sample_len ignore_pad_token_for_loss",
		"rows without a trained token are dropped, no row is padded, " +
			"and the report on the data says what was left out"},
	{ByHand, "export_quantization_bit export_quantization_dataset", "trainer export writes quantised GGUF files"},
	{Changes, "dataset_kwargs", "rows are read by dataset.format"},
	{ByHand, "wandb_entity", "set WANDB_ENTITY in the environment: the tracker wandb reads it"},
	{Nothing, "plot_loss", "trainer report draws the curves of a run"},
	{Changes, "plugins trainer_cls", "there are no plugins: the program is one binary"},
}

// Keys returns the counterpart of each known key of other programs, by its name with underscores.
func Keys() map[string]Counterpart {
	all := map[string]Counterpart{}
	for key, names := range sameKeys {
		for _, name := range strings.Fields(names) {
			all[name] = Counterpart{Key: key}
		}
	}
	for name, c := range otherValues {
		all[name] = c
	}
	for _, group := range noCounterpart {
		for _, name := range strings.Fields(group.names) {
			all[name] = Counterpart{Say: group.why, Class: group.class}
		}
	}
	return all
}
