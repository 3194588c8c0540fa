package importer

import (
	"fmt"
	"regexp"
	"strings"
)

// objectiveWitness maps objectives to a key of their section; other objectives have a key beta. A program without the
// key lacks the objective.
var objectiveWitness = map[string]string{"reward": "reward.center_rewards_coefficient",
	"classification": "classification.num_labels", "token_classification": "classification.num_labels"}

// objectiveRules returns the rules of keys whose meaning depends on the objective of the file: TRL's names, which
// Axolotl and LLaMA-Factory take over, and transformers' of heads.
func objectiveRules(objective string) map[string]rule {
	switch objective {
	case "grpo", "rloo":
		return rolloutRules()
	case "classification", "token_classification":
		return headRules
	case "distill":
		return teacherRules
	case "reward":
		return map[string]rule{
			"center_rewards_coefficient": func(t *translation, e entry) {
				t.take(e,
					"reward.center_rewards_coefficient")
			},
			"disable_dropout": passed("lora.dropout says how much is dropped"),
			"reward_model":    objectiveSaid,
			"num_labels":      passed("the head of a reward model has one score"),
			"model_type":      passed("task: sequence_classification says it"),
			"modules_to_save": headModules,
			"task_type":       passed("the head is saved as PEFT's task type says"),
		}
	}
	return nil
}

// teacherRules are the rules of distillation.
var teacherRules = map[string]rule{
	"beta":        preferenceKey("beta"),
	"temperature": preferenceKey("temperature"),
	"lmbda":       onPolicy,
	"seq_kd": ifGiven("write the teacher's answers to the rows with trainer generate; training.objective: " +
		"cross_entropy learns them"),
	"teacher_model":              teacher,
	"teacher_model_name_or_path": teacher,
	"teacher_model_init_kwargs":  passed("the teacher is read as its folder says"),
	"max_new_tokens":             passed("the rows have the answers"),
	"max_completion_length":      passed("the rows have the answers"),
	"disable_dropout":            passed("lora.dropout says how much is dropped"),
	"use_fused_linear_loss":      passed("logits are never computed for all tokens at once"),
	"loss_top_k":                 topTokens,
	"kd_temperature":             preferenceKey("temperature"),
	"kd_alpha":                   preferenceKey("alpha"),
	"kd_ce_alpha":                preferenceKey("ce_alpha"),
	"kd_beta":                    preferenceKey("beta"),
	"kd_trainer":                 objectiveSaid,
	"kd_online_topk":             topTokens,
	"plugins": func(t *translation, e entry) {
		t.add(Taken, e, "", nil, "training.objective: distill learns from the teacher")
	},
	"kd_normalize_topk": func(t *translation, e entry) {
		t.choose(entry{Pair: Pair{e.Key, strings.ToLower(Text(e.Value)), e.Line}, shown: e.shown}, "distill.rest",
			map[string]string{"true": "renormalise", "false": "zero"})
	},
}

// objectiveSaid records the key that names the objective.
func objectiveSaid(t *translation, e entry) { t.add(Taken, e, "training.objective", t.objective, "") }

// rolloutRules returns the rules of GRPOConfig and RLOOConfig.
func rolloutRules() map[string]rule {
	all := map[string]rule{
		"reward_funcs": rewardFunctions, "reward_weights": rewardWeights, "scale_rewards": scaleRewards,
		"reward_processing_classes": passed("rewards are programs of your own"),
		"max_prompt_length":         promptLength,
		"log_completions":           recordRollouts,
		"num_completions_to_print":  passed("rollouts.jsonl has every answer"),
		"log_unique_prompts":        passed("rollouts.jsonl has every answer"),
		"wandb_log_unique_prompts":  passed("rollouts.jsonl has every answer"),
		"num_generations_eval":      answersOfEvaluations,
		"shuffle_dataset":           func(t *translation, e entry) { t.take(e, "dataset.shuffle") },
		"top_p":                     neutral(1), "top_k": neutral(0, -1), "min_p": neutral(0),
		"repetition_penalty": neutral(1),
		"generation_kwargs":  ifGiven(wholeDistribution),
		"steps_per_generation": ifGiven("answers are sampled for one step; num_iterations trains " +
			"them several times"),
		"generation_batch_size": ifGiven("answers are sampled for one step; num_iterations trains " +
			"them several times"),
		"sync_ref_model":        ifGiven("the reference stays the base model: it never follows the trained one"),
		"ref_model_mixup_alpha": passed("of sync_ref_model"),
		"ref_model_sync_steps":  passed("of sync_ref_model"),
		"disable_dropout":       passed("lora.dropout says how much is dropped"),
		"tools":                 ifGiven("answers are texts: no tool is called while they are sampled"),
		"rollout_func":          ifGiven("the program samples the answers by itself"),
		"environment_factory":   ifGiven("the program samples the answers by itself"),
		"reward_clip_range":     rewardClip,
		"loss_type":             func(t *translation, e entry) { takeOfObjective(t, "loss_type", e) },
		"use_vllm":              passed(sampler),
		"chat_template_kwargs": ifGiven("a row's own key chat_template_kwargs gives the template " +
			"more variables"),
		"bias_correction_kl":          preferenceKey("use_bias_correction_kl"),
		"trl":                         rolloutTable,
		"rl":                          rolloutKind,
		"max_tool_calling_iterations": passed("no tool is called while answers are sampled"),
	}
	for _, name := range strings.Fields("beta importance_sampling_level epsilon epsilon_high delta " +
		"use_bias_correction_kl multi_objective_aggregation top_entropy_quantile entropy_coef " +
		"off_policy_mask_threshold sapo_temperature_pos sapo_temperature_neg vespo_k_pos vespo_lambda_pos " +
		"vespo_k_neg " +
		"vespo_lambda_neg mask_truncated_completions temperature num_generations num_iterations " +
		"max_completion_length " +
		"normalize_advantages") {
		all[name] = preferenceKey(name)
	}
	for _, name := range strings.Fields("vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host " +
		"vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length " +
		"vllm_tensor_parallel_size vllm_enable_sleep_mode vllm_dtype vllm_enable_prefix_caching " +
		"vllm_guided_decoding_regex vllm_importance_sampling_correction vllm_importance_sampling_cap " +
		"vllm_importance_sampling_mode vllm_sampling_params ds3_gather_for_generation use_transformers_paged " +
		"cache_implementation fast_inference gpu_memory_utilization cast_lm_head_to_fp32 use_liger_loss") {
		all[name] = passed(sampler)
	}
	return all
}

const (
	sampler           = "the program samples the answers by itself, from the weights that it trains"
	wholeDistribution = "answers are sampled from the whole distribution, divided by temperature alone"
)

// rolloutKind records the key of Axolotl that names GRPO. gdpo normalises each reward before they are added.
func rolloutKind(t *translation, e entry) {
	t.add(Taken, e, "training.objective", t.objective, "")
	if e.Value == "gdpo" {
		t.put(e, "grpo.multi_objective_aggregation", "normalize_then_sum", "")
	}
}

// rolloutTable translates Axolotl's table of TRL's arguments.
func rolloutTable(t *translation, e entry) {
	m, _ := e.Value.(Map)
	for _, p := range m {
		one := entry{Pair: p, shown: e.shown + "." + shorten(p.Key)}
		switch r, ok := t.own[p.Key]; {
		case isEmpty(p.Value):
			t.off(one)
		case ok && p.Key != "trl":
			r(t, one)
		default:
			t.missing(one, "training.objective: "+t.objective+" has no such key")
		}
	}
}

// neutral returns the rule of a key of sampling whose neutral values change nothing.
func neutral(values ...int64) rule {
	return func(t *translation, e entry) {
		v, ok := fit(e.Value, Number)
		for _, n := range values {
			if ok && (v == n || v == float64(n)) {
				t.add(Taken, e, "", nil, wholeDistribution)
				return
			}
		}
		t.missing(e, wholeDistribution)
	}
}

// answersOfEvaluations translates the number of answers of evaluations, which TRL samples at the temperature of
// training.
func answersOfEvaluations(t *translation, e entry) {
	preferenceKey(e.Key)(t, e)
	t.put(e, t.objective+".eval_temperature", 1.0, "the temperature of training by default")
}

// scaleRewards translates scale_rewards, which was true or false before it had names.
func scaleRewards(t *translation, e entry) {
	t.choose(entry{Pair: Pair{e.Key, strings.ToLower(Text(e.Value)), e.Line}, shown: e.shown},
		t.objective+".scale_rewards",
		map[string]string{"true": "group", "false": "none", "group": "group", "batch": "batch", "none": "none"})
}

// rewardWeights translates the weights of the rewards.
func rewardWeights(t *translation, e entry) { numbersOf(t, e, t.objective+".reward_weights") }

// rewardClip translates the bounds of RLOO's rewards.
func rewardClip(t *translation, e entry) { numbersOf(t, e, t.objective+".reward_clip_range") }

// numbersOf takes a list of numbers.
func numbersOf(t *translation, e entry, path string) {
	list, ok := e.Value.([]any)
	for _, v := range list {
		_, number := fit(v, Number)
		ok = ok && number
	}
	if !ok || t.Kind(path) == None {
		t.missing(e, "a list of numbers was expected; give "+path)
		return
	}
	setAnew(t, path, list, e.shown)
	t.add(Taken, e, path, nil, "")
}

// recordRollouts translates the logging of answers.
func recordRollouts(t *translation, e entry) { t.ifTrue(e, t.objective+".record_rollouts", true, "") }

// promptLength translates the bound of prompts: dataset.max_length bounds a prompt with its answer.
func promptLength(t *translation, e entry) {
	most, ok := fit(e.Value, Whole)
	answer, known := fit(t.given["max_completion_length"].Value, Whole)
	if !known {
		answer = int64(256)
	}
	if !ok || t.has("dataset.max_length") {
		t.add(Different, e, "", nil, "dataset.max_length bounds a prompt with its answer")
		return
	}
	t.put(e, "dataset.max_length", most.(int64)+answer.(int64),
		"the tokens of a prompt and of an answer; a longer prompt is an error, there it is cut")
}

// word matches a name in Python, and file what a file may be named after it.
var (
	word = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_.]*`)
	file = regexp.MustCompile(`[^A-Za-z0-9_]+`)
)

// maxRewards is the most reward functions that are read from a file.
const maxRewards = 100

// rewardFunctions names the functions that judge answers. None is run: each becomes a program that is still to be
// written.
func rewardFunctions(t *translation, e entry) {
	var names []string
	switch v := e.Value.(type) {
	case []any:
		for _, one := range v {
			names = append(names, word.FindAllString(Text(one), -1)...)
		}
	case string:
		names = []string{v}
	default:
		names = word.FindAllString(Text(e.Value), -1)
	}
	var rewards []any
	seen := map[string]bool{}
	for _, name := range names[:min(len(names), maxRewards)] {
		short := strings.Trim(file.ReplaceAllString(name[strings.LastIndexByte(name, '.')+1:], "_"), "_")
		if short == "" || seen[short] {
			continue
		}
		seen[short] = true
		rewards = append(rewards, Map{{Key: "name", Value: short}, {Key: "type", Value: "command"},
			{Key: "command", Value: []any{"python3", "reward_" + short + ".py"}}})
	}
	if len(rewards) == 0 {
		t.missing(e, "name what judges an answer in "+t.objective+".rewards")
		return
	}
	path := t.objective + ".rewards"
	setAnew(t, path, rewards, e.shown)
	t.add(Different, e, path, nil, "no code is run: write each as a program that reads answers and writes numbers, or "+
		"choose another type of reward (docs/RL.md)")
	t.entries[len(t.entries)-1].Class = Changes
}

// onPolicy reads GKD's share of answers that the student samples.
func onPolicy(t *translation, e entry) {
	if v, ok := fit(e.Value, Number); ok && (v == int64(0) || v == 0.0) {
		t.add(Taken, e, "", nil, "the rows have the answers")
		return
	}
	t.missing(e, "the rows have the answers: the student samples none")
}

// topTokens reads how many of the teacher's tokens take part at each place; -1 and 0 are all.
func topTokens(t *translation, e entry) {
	if n, ok := fit(e.Value, Whole); ok && n.(int64) > 0 {
		t.put(e, "distill.top_k", n, "")
		return
	}
	t.missing(e, "a teacher has log-probabilities for its likeliest tokens: trainer logprobs --top-k")
}

// teacher names the teacher. TRL's GKDTrainer compares whole distributions: the teacher is then loaded beside the
// student, with its weights as they are. Others learn from log-probabilities, which are written before the run.
func teacher(t *translation, e entry) {
	name, ok := e.Value.(string)
	if ok && (t.in.calls["GKDTrainer"] || swiftGKD(t)) && t.Kind("distill.teacher") != None {
		t.take(e, "distill.teacher")
		setAnew(t, "distill.teacher_quantization", "none", e.shown)
		return
	}
	if !ok {
		name = "TEACHER"
	}
	writeTeacher(t, name)
	t.add(Taken, e, "distill.logprobs", nil, "the folder that trainer logprobs writes with --model "+name)
}

// teacherFolder is the folder of log-probabilities that a translation names.
const teacherFolder = "teacher-logprobs"

// writeTeacher sets the folder of the teacher's log-probabilities, and says how it is made.
func writeTeacher(t *translation, model string) {
	if t.has("distill.logprobs") || t.has("distill.teacher") || t.Kind("distill.logprobs") == None {
		return
	}
	t.at["distill.logprobs"] = len(t.set)
	t.set = append(t.set, Setting{"distill.logprobs", teacherFolder, "written first by trainer logprobs"})
	t.entries = append(t.entries, Entry{Group: Different, Class: ByHand, Key: "teacher", Value: model,
		To: "distill.logprobs", As: teacherFolder, Say: fmt.Sprintf("the teacher runs before the training: "+
			"trainer logprobs "+
			"run.yaml --model %s --top-k 32 --out %s", model, teacherFolder)})
}

// finishObjective resolves what depends on the objective and on several keys.
func finishObjective(t *translation) {
	switch t.objective {
	case "reward":
		setAnew(t, "task", "sequence_classification", "reward models have a head of one score")
	case "classification", "token_classification":
		finishHead(t)
	case "distill":
		writeTeacher(t, "TEACHER")
		if _, given := t.given["lmbda"]; t.in.Program.python && !given {
			t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: "lmbda", Value: "left out",
				Say: "there the student samples a part of the answers; here the rows have all"})
		}
	case "grpo", "rloo":
		for _, key := range []string{"val_split", "val_path", "val_sources"} {
			if v := t.value("dataset." + key); v == int64(0) || v == 0.0 {
				continue
			}
			t.drop("dataset."+key, "training.objective: "+t.objective+" has no loss of validation rows")
		}
		groupsOfAnswers(t)
		if !t.has(t.objective + ".rewards") {
			rewardFunctions(t, entry{Pair: Pair{Key: "reward_funcs", Value: "mine"}, shown: "reward_funcs"})
		}
	}
}

// groupsOfAnswers turns numbers of answers into numbers of prompts, which training.batch_size counts here.
func groupsOfAnswers(t *translation) {
	number := func(path string, otherwise int64) int64 {
		if n, ok := fit(t.value(path), Whole); ok && n.(int64) > 0 {
			return n.(int64)
		}
		return otherwise
	}
	answers := number(t.objective+".num_generations", 8)
	rows, steps := number("training.batch_size", 8), number("training.gradient_accumulation_steps", 1)
	groups, several := rows/answers, steps
	if rows%answers != 0 {
		groups, several = 1, rows*steps/answers
	}
	say := fmt.Sprintf("%d answers of a micro-batch are %d prompts with %d answers each", rows, groups, answers)
	switch {
	case rows*steps%answers != 0:
		say = fmt.Sprintf("%d answers of a step are no whole groups of %d on one device: a step has one prompt here",
			rows*steps, answers)
		groups, several = 1, 1
	case rows%answers != 0:
		say = fmt.Sprintf("%d times %d answers of a step are %d prompts with %d answers each", steps, rows, several,
			answers)
	}
	setAnew(t, "training.batch_size", groups, "prompts, not answers")
	setAnew(t, "training.gradient_accumulation_steps", several, "micro-batches of prompts")
	class := Nothing
	if rows*steps%answers != 0 {
		class = Changes
	}
	t.entries = append(t.entries, Entry{Group: Different, Class: class, Key: "per_device_train_batch_size",
		Value: text(rows), To: "training.batch_size", As: text(groups), Say: say})
}

// objectiveDefaults returns TRL's defaults of an objective's arguments that differ from ours.
func objectiveDefaults(in *Input) []Pair {
	switch objective, said := in.objective(); {
	case said == "GKDTrainer":
		return []Pair{{Key: "beta", Value: 0.5}, {Key: "temperature", Value: 0.9}}
	case said == "DistillationTrainer":
		return []Pair{{Key: "beta", Value: 1.0}}
	case objective == "rloo":
		return []Pair{{Key: "beta", Value: 0.05}, {Key: "num_generations", Value: int64(2)}}
	}
	return nil
}

// lengthDefault returns TRL's default length of a row; sampled answers have a length of their own.
func lengthDefault(in *Input) []Pair {
	if objective, _ := in.objective(); objective == "grpo" || objective == "rloo" {
		return nil
	}
	return []Pair{{Key: "max_length", Value: int64(1024)}}
}
