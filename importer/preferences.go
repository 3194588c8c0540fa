package importer

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// preferenceTrainers maps the trainers of TRL that learn from preferences, rewards or a teacher to our objectives.
var preferenceTrainers = map[string]string{"DPOTrainer": "dpo", "CPOTrainer": "cpo", "ORPOTrainer": "orpo",
	"KTOTrainer": "kto", "RewardTrainer": "reward", "GRPOTrainer": "grpo", "RLOOTrainer": "rloo",
	"GKDTrainer": "distill", "DistillationTrainer": "distill"}

// preferenceConfigs are the classes of their arguments.
var preferenceConfigs = []string{"DPOConfig", "CPOConfig", "ORPOConfig", "KTOConfig", "RewardConfig", "GRPOConfig",
	"RLOOConfig", "GKDConfig", "DistillationConfig"}

// preferenceCall matches the calls of a program that are about its preference training.
var preferenceCall = regexp.MustCompile(`^(DPO|CPO|ORPO|KTO|Reward|GRPO|RLOO|GKD|Distillation)(Trainer|Config)$`)

// trainsRows reports whether a Python program trains rows, not preferences.
func (in *Input) trainsRows() bool { return in.calls["SFTTrainer"] || in.calls["UnslothTrainer"] }

// callsAny reports whether a Python program makes one of some calls.
func (in *Input) callsAny(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return in.calls[name] })
}

// dropPreferences removes the arguments of preference training from a program that also trains rows: that training is
// the one that is translated.
func (in *Input) dropPreferences() {
	if in.trainsRows() {
		in.entries = slices.DeleteFunc(in.entries, func(e entry) bool {
			call, _, _ := strings.Cut(e.shown, "(")
			return preferenceCall.MatchString(call)
		})
	}
}

// objective returns our objective for a file of preference training, and the key or call that says so; "" = the file
// trains rows.
func (in *Input) objective() (name, said string) {
	value := func(key string) string {
		for _, e := range in.entries {
			if e.Key == key {
				s, _ := e.Value.(string)
				return strings.ToLower(s)
			}
		}
		return ""
	}
	switch {
	case in.Program.python && !in.trainsRows():
		for call, name := range preferenceTrainers {
			if in.calls[call] {
				return name, call
			}
		}
		return in.headed()
	case in.Program.Name == "axolotl":
		switch {
		case in.on("reward_model"):
			return "reward", "reward_model"
		case in.on("kd_trainer"):
			return "distill", "kd_trainer"
		}
		name = map[string]string{"dpo": "dpo", "ipo": "dpo", "simpo": "cpo", "orpo": "orpo", "kto": "kto",
			"grpo": "grpo", "gdpo": "grpo"}[value("rl")]
		return name, "rl"
	case in.Program.Name == "ms-swift":
		return swiftObjective(in, value("rlhf_type")), "rlhf_type"
	case strings.HasPrefix(in.Program.Name, "llamafactory"):
		loss := value("pref_loss")
		switch stage := value("stage"); {
		case stage == "dpo" && (loss == "orpo" || loss == "simpo"):
			return loss, "pref_loss"
		case stage == "dpo" || stage == "kto":
			return stage, "stage"
		case stage == "rm":
			return "reward", "stage"
		}
	}
	return "", ""
}

// setObjective sets training.objective for a file of preference training. An objective that this program doesn't have
// refuses the file.
func setObjective(t *translation) {
	name, said := t.in.objective()
	if name == "" {
		return
	}
	e := entry{Pair: Pair{Key: said}, shown: said}
	if given, ok := t.given[said]; ok {
		e = given
	}
	if t.Kind(cmp.Or(objectiveWitness[name], name+".beta")) == None {
		t.refused = strings.TrimSuffix(e.shown+": "+Text(e.Value), ": null")
		return
	}
	t.objective, t.own = name, objectiveRules(name)
	t.at["training.objective"] = len(t.set)
	t.set = append(t.set, Setting{"training.objective", name, said})
	if _, key := t.given[said]; !key {
		t.add(Taken, e, "training.objective", name, "")
		t.entries[len(t.entries)-1].Value = ""
	}
}

// prefers reports whether the file trains on preferences: pairs or labelled answers.
func prefers(t *translation) bool {
	return slices.Contains([]string{"dpo", "cpo", "simpo", "orpo", "kto", "reward"}, t.objective)
}

// on reports whether a key of the file is true.
func (in *Input) on(key string) bool {
	return slices.ContainsFunc(in.entries, func(e entry) bool { return e.Key == key && e.Value == true })
}

// preferenceRule returns the rule of a key about preference training.
func preferenceRule(t *translation, key string) (r rule, ok bool) {
	switch name := t.in.Program.Name; {
	case t.in.Program.python, name == "ms-swift":
		r, ok = preferenceRules[key]
	case name == "axolotl":
		r, ok = axolotlPreferences[key]
	case strings.HasPrefix(name, "llamafactory"):
		r, ok = llamaPreferences[key]
	}
	return r, ok
}

// preferenceKind translates the key that says which preference training a file is for.
func preferenceKind(t *translation, e entry) {
	if t.objective == "" {
		t.refuse(e)
		return
	}
	t.add(Taken, e, "training.objective", t.objective, "")
	switch e.Value {
	case "ipo", "simpo":
		takeOfObjective(t, "loss_type", entry{Pair: Pair{e.Key, e.Value, e.Line}, shown: e.shown})
	}
}

// preferenceKey returns the rule of a key that is a key of the objective's section under a name; of an objective
// without the key it says so.
func preferenceKey(name string) rule {
	return func(t *translation, e entry) { takeOfObjective(t, name, e) }
}

// takeOfObjective takes a value unchanged for a key of the objective's section.
func takeOfObjective(t *translation, name string, e entry) {
	path := t.objective + "." + name
	switch {
	case t.objective == "":
		t.missing(e, "of preference training, and the file trains rows")
	case t.Kind(path) == None:
		t.missing(e, "training.objective: "+t.objective+" has no such key")
	default:
		t.take(e, path)
	}
}

// pairLoss translates loss_type. SFTConfig has a key of that name too.
func pairLoss(t *translation, e entry) {
	if t.objective == "" {
		switch e.Value {
		case "nll", "chunked_nll":
			t.add(Taken, e, "", nil, "the loss of training.objective: cross_entropy")
		case "dft":
			t.put(e, "training.objective", "dft", "")
		default:
			t.missing(e, "training.objective names the losses of a run")
		}
		return
	}
	if s, ok := e.Value.(string); ok {
		e.Value = pairLossName(s)
	}
	if list, ok := t.value("dpo.loss_type").([]any); ok && list[0] == e.Value { // likelihoodWeight has set it
		t.add(Taken, e, "dpo.loss_type", e.Value, "")
		return
	}
	takeOfObjective(t, "loss_type", e)
}

// pairLossName returns our name of a loss of pairs: earlier versions of TRL had another one.
func pairLossName(s string) string {
	if s == "aot_pair" {
		return "aot"
	}
	return s
}

// lossWeights translates a list of weights.
func lossWeights(t *translation, e entry) {
	list, ok := e.Value.([]any)
	for _, v := range list {
		_, number := fit(v, Number)
		ok = ok && number
	}
	switch {
	case t.objective != "dpo":
		takeOfObjective(t, "loss_weights", e)
	case !ok:
		t.missing(e, "a list of numbers was expected; give dpo.loss_weights")
	default:
		setAnew(t, "dpo.loss_weights", list, e.shown)
		t.add(Taken, e, "dpo.loss_weights", nil, "")
	}
}

// setAnew sets one of our keys whether or not it has a value.
func setAnew(t *translation, path string, v any, from string) {
	i, ok := t.at[path]
	if !ok {
		i = len(t.set)
		t.at[path], t.set = i, append(t.set, Setting{})
	}
	t.set[i] = Setting{path, v, from}
}

// likelihoodWeight returns the rule of a key that adds the negative log-likelihood of the chosen answers to the loss of
// dpo; say is the difference from the other program's formula, if any.
func likelihoodWeight(say string) rule {
	return func(t *translation, e entry) {
		weight, ok := fit(e.Value, Number)
		switch {
		case !ok:
			t.missing(e, "not a number; give dpo.loss_type: [sigmoid, sft] with dpo.loss_weights")
			return
		case weight == int64(0) || weight == 0.0:
			t.off(e)
			return
		case t.objective != "dpo":
			t.missing(e, "training.objective: "+t.objective+" adds no such loss")
			return
		}
		losses := "sigmoid"
		for _, key := range []string{"loss_type", "pref_loss"} {
			if s, ok := t.given[key].Value.(string); ok {
				losses = pairLossName(s)
			}
		}
		if t.given["rl"].Value == "ipo" {
			losses = "ipo"
		}
		setAnew(t, "dpo.loss_type", []any{losses, "sft"}, e.shown)
		setAnew(t, "dpo.loss_weights", []any{int64(1), weight}, e.shown)
		group := Taken
		if say != "" {
			group = Different
		}
		t.add(group, e, "dpo.loss_weights", []any{int64(1), weight}, say)
	}
}

// ifGiven returns the rule of a key that has no counterpart: off values are not set, others say why.
func ifGiven(say string) rule {
	return func(t *translation, e entry) {
		if e.peers == "" {
			t.ifOn(e, say)
		}
	}
}

// precompute translates the key that computes the reference before the first step.
func precompute(t *translation, e entry) {
	if e.peers == "" {
		t.ifTrue(e, "training.precompute", "yes", "")
	}
}

// preferenceRules are the rules of TRL's arguments of preference trainers.
var preferenceRules = map[string]rule{
	"loss_type":                 pairLoss,
	"loss_weights":              lossWeights,
	"beta":                      preferenceKey("beta"),
	"label_smoothing":           preferenceKey("label_smoothing"),
	"f_divergence_type":         preferenceKey("f_divergence_type"),
	"f_alpha_divergence_coef":   preferenceKey("f_alpha_divergence_coef"),
	"discopop_tau":              preferenceKey("discopop_tau"),
	"ld_alpha":                  preferenceKey("ld_alpha"),
	"use_weighting":             preferenceKey("use_weighting"),
	"cpo_alpha":                 preferenceKey("cpo_alpha"),
	"simpo_gamma":               preferenceKey("simpo_gamma"),
	"alpha":                     preferenceKey("alpha"),
	"desirable_weight":          preferenceKey("desirable_weight"),
	"undesirable_weight":        preferenceKey("undesirable_weight"),
	"rpo_alpha":                 likelihoodWeight(""),
	"disable_dropout":           passed("lora.dropout says how much is dropped"),
	"precompute_ref_log_probs":  precompute,
	"precompute_ref_batch_size": passed(inStep),
	"ref_model":                 ifGiven(otherReference),
	"model_adapter_name":        ifGiven(otherReference),
	"ref_adapter_name":          ifGiven(otherReference),
	"force_use_ref_model":       ifGiven(otherReference),
	"sync_ref_model":            ifGiven("the reference stays the base model: it never follows the trained one"),
	"reference_free":            ifGiven("training.objective: simpo, cpo and orpo need no reference"),
	"max_prompt_length":         ifGiven(noPartIsCut),
	"max_completion_length":     ifGiven(noPartIsCut),
	"label_pad_token_id":        passed("rows lie end to end, none is padded"),
	"padding_value":             passed("rows lie end to end, none is padded"),
	"generate_during_eval":      ifGiven("training.sample_prompts writes samples while a run trains"),
	"truncation_mode": func(t *translation, e entry) {
		if e.Value == "keep_start" {
			t.add(Taken, e, "", nil, "a longer row keeps its start")
			return
		}
		t.missing(e, "a row longer than dataset.max_length keeps its start")
	},
	"train_sampling_strategy": func(t *translation, e entry) {
		switch e.Value {
		case "sequential":
			t.put(e, "dataset.shuffle", false, "")
		case "random":
			t.put(e, "dataset.shuffle", true, "")
		default:
			t.missing(e, "dataset.shuffle is true or false")
		}
	},
}

const (
	inStep         = "training.precompute computes the reference before the first step, which changes no number"
	otherReference = "the reference is the base model with the adapter off"
	noPartIsCut    = "dataset.max_length bounds prompt and answer together; neither is cut by itself"
)

// axolotlPreferences and llamaPreferences are the rules of the two programs' own names.
var axolotlPreferences = map[string]rule{
	"rl":                       preferenceKind,
	"rl_beta":                  preferenceKey("beta"),
	"orpo_alpha":               preferenceKey("beta"),
	"rpo_alpha":                likelihoodWeight(""),
	"cpo_alpha":                preferenceKey("cpo_alpha"),
	"simpo_gamma":              preferenceKey("simpo_gamma"),
	"dpo_label_smoothing":      preferenceKey("label_smoothing"),
	"dpo_use_weighting":        preferenceKey("use_weighting"),
	"dpo_loss_type":            pairLoss,
	"dpo_loss_weights":         lossWeights,
	"kto_desirable_weight":     preferenceKey("desirable_weight"),
	"kto_undesirable_weight":   preferenceKey("undesirable_weight"),
	"dpo_padding_free":         passed("rows lie end to end, none is padded"),
	"dpo_use_logits_to_keep":   passed("logits of prompts are never computed"),
	"dpo_use_liger_kernel":     passed("the fused kernels that fit the device are always used"),
	"dpo_generate_during_eval": ifGiven("training.sample_prompts writes samples while a run trains"),
	"dpo_norm_loss":            ifGiven("dpo.loss_type: sigmoid_norm is DPO over averages per token"),
	"precompute_ref_log_probs": precompute,
	"rl_adapter_ref_model":     ifGiven(otherReference),
	"trl": func(t *translation, e entry) {
		m, _ := e.Value.(Map)
		for _, p := range m {
			one := entry{Pair: p, shown: e.shown + "." + shorten(p.Key)}
			if p.Key == "beta" {
				takeOfObjective(t, "beta", one)
				continue
			}
			t.ifOn(one, "of generation while training")
		}
	},
}

var llamaPreferences = map[string]rule{
	"stage":               llamaStage,
	"pref_loss":           llamaPairLoss,
	"pref_beta":           preferenceKey("beta"),
	"simpo_gamma":         preferenceKey("simpo_gamma"),
	"kto_chosen_weight":   preferenceKey("desirable_weight"),
	"kto_rejected_weight": preferenceKey("undesirable_weight"),
	"pref_ftx": likelihoodWeight("the mean over all tokens of a micro-batch's chosen answers; there it is the mean " +
		"of " +
		"each answer's mean"),
	"pref_bco_weight": ifGiven("dpo.loss_type: [sigmoid, bco_pair] adds BCO's loss without its running mean"),
	"ld_alpha": func(t *translation, e entry) {
		t.put(e, "dpo.ld_alpha", e.Value, "the reference's log-probabilities too, as in TRL; there the model's alone")
	},
	"dpo_label_smoothing": func(t *translation, e entry) {
		if loss, _ := t.given["pref_loss"].Value.(string); loss == "robust" || loss == "exo_pair" {
			t.take(e, "dpo.label_smoothing")
			return
		}
		t.ifOn(e, "sigmoid ignores label smoothing, as in TRL; dpo.loss_type: robust is for noisy labels")
	},
	"ref_model":                  ifGiven(otherReference),
	"ref_model_adapters":         func(t *translation, e entry) { t.take(e, "training.reference") },
	"ref_model_quantization_bit": ifGiven(otherReference),
}

// llamaPreferenceDefaults returns the defaults of the losses of preferences.
func llamaPreferenceDefaults(in *Input) []Pair {
	switch objective, _ := in.objective(); objective {
	case "":
		return nil
	case "simpo":
		return []Pair{{Key: "pref_beta", Value: 0.1}, {Key: "simpo_gamma", Value: 0.5}}
	default:
		return []Pair{{Key: "pref_beta", Value: 0.1}}
	}
}

// llamaPairLoss reads pref_loss, which may name another objective.
func llamaPairLoss(t *translation, e entry) {
	switch {
	case t.objective == "simpo" || t.objective == "":
		t.add(Taken, e, "training.objective", t.objective, "")
	case t.objective == "orpo":
		t.add(Different, e, "training.objective", "orpo", "the negative log-likelihood of prompt and answer, as in "+
			"TRL; "+
			"there of the answer alone")
	default:
		pairLoss(t, e)
	}
}

// withoutDropout sets lora.dropout to 0 in preference training: the other programs switch all dropout off there, unless
// disable_dropout is false.
func withoutDropout(t *translation) {
	switch {
	case t.given["disable_dropout"].Value == false:
		return
	case t.given["disable_dropout"].Value == true:
	case !prefers(t) && (t.objective != "distill" || !t.in.Program.python):
		return
	case t.objective == "reward" && strings.HasPrefix(t.in.Program.Name, "llamafactory"):
		return
	}
	i, ok := t.at["lora.dropout"]
	if !ok || t.set[i].Value == int64(0) || t.set[i].Value == 0.0 {
		return
	}
	t.set[i].Value = int64(0)
	for j := range t.entries {
		if e := &t.entries[j]; e.To == "lora.dropout" {
			e.Group, e.Class, e.As = Different, Nothing, "0"
			e.Say = t.in.Program.Title + " switches dropout off in preference training"
		}
	}
}

// unreadByLoss drops keys of the objective's section that its loss ignores in TRL too.
func unreadByLoss(t *translation) {
	const say = "the loss does not read it, there neither"
	if t.objective == "cpo" {
		loss, _ := t.value("cpo.loss_type").(string)
		if loss != "simpo" && loss != "alphapo" {
			t.dropUnread("cpo.simpo_gamma", say)
		}
		if loss == "hinge" || loss == "ipo" {
			t.dropUnread("cpo.label_smoothing", say)
		}
		if loss == "alphapo" {
			t.dropUnread("cpo.cpo_alpha", say)
		}
	}
	if t.in.Program.Name == "trl" && t.objective == "dpo" &&
		!regexp.MustCompile(`robust|exo_pair|aot`).MatchString(Text(t.value("dpo.loss_type"))) {
		t.dropUnread("dpo.label_smoothing", say)
	}
}

// bestMetric translates the number that chooses the best checkpoint. transformers writes eval_ before its name where it
// is left out.
func bestMetric(t *translation, e entry) {
	name, ok := e.Value.(string)
	if !ok {
		t.missing(e, "the name of a number was expected; give training.metric_for_best_model")
		return
	}
	if !strings.HasPrefix(name, "eval_") {
		name = "eval_" + name
	}
	t.put(e, "training.metric_for_best_model", name, "")
}

// axolotlPairs translates the type of a source of preferences, and returns the format of its rows; "" = the keys of the
// rows decide it.
func axolotlPairs(t *translation, e entry, kind string) string {
	base, _, _ := strings.Cut(kind, ".")
	switch {
	case kind == "":
		t.missing(e, "a format of one's own; name the keys of the rows in dataset.fields, with dataset.format: "+
			"preference")
	case base == "chat_template":
		t.add(Taken, e, "dataset.format", "auto", "")
	case base == "chatml" && kind != base:
		t.put(e, "dataset.chat_template", "chatml", "conversations as ChatML writes them, answers as its turns")
		t.entries[len(t.entries)-1].Class = Nothing
		t.talks("texts, which Axolotl writes as ChatML")
	default:
		t.put(e, "dataset.as_chat", "yes", "prompts are written by the model's chat template; trainer inspect data "+
			"shows them")
	}
	return ""
}

// knownProperties reports whether messages have the keys of one of the two usual forms.
func knownProperties(v any) bool {
	m, _ := v.(Map)
	role, content := m.Get("role"), m.Get("content")
	return role == "role" && content == "content" || role == "from" && content == "value"
}

// llamaPairs returns the format of a source of preferences, and our names of its columns.
func llamaPairs(t *translation, columns Map, kind any) (format string, named Map) {
	talks := kind == "sharegpt" || kind == "openai"
	if t.objective == "kto" {
		answer, prompt := columns.Get("response"), columns.Get("prompt")
		if talks {
			answer, prompt = columns.Get("messages"), nil
		}
		return "unpaired", fields([2]any{"prompt", prompt}, [2]any{"input", columns.Get("query")},
			[2]any{"completion", answer}, [2]any{"label", columns.Get("kto_tag")}, [2]any{"system",
				columns.Get("system")},
			[2]any{"history", columns.Get("history")})
	}
	prompt := columns.Get("prompt")
	if talks {
		prompt = columns.Get("messages")
	}
	return "preference", fields([2]any{"prompt", prompt}, [2]any{"input", columns.Get("query")},
		[2]any{"chosen", columns.Get("chosen")}, [2]any{"rejected", columns.Get("rejected")},
		[2]any{"system", columns.Get("system")}, [2]any{"history", columns.Get("history")},
		[2]any{"tools", columns.Get("tools")})
}
