package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// TestBrokenPreferenceConfigs checks what is said of sections and values that no run on preference pairs can have.
func TestBrokenPreferenceConfigs(t *testing.T) {
	const run = "base_model: m\noutput_dir: o\n"
	names := strings.Join(slices.Sorted(maps.Keys(objective.Objectives)), ", ")
	for _, c := range []struct{ text, want string }{
		{"training: {objective: dop}",
			`run.yaml:3:23: training.objective: "dop" is not one of ` + names},
		{"training: {objective: DPO}",
			`run.yaml:3:23: training.objective: "DPO" is not one of ` + names},
		{"training: {objective: dpo}\ndpo: {beta: 0}",
			`run.yaml:4:13: dpo.beta: 0 must be above 0`},
		{"training: {objective: dpo}\ndpo: {beta: -1}",
			`run.yaml:4:13: dpo.beta: -1 must be above 0`},
		{"training: {objective: dpo}\ndpo: {beta: .inf}",
			`run.yaml:4:13: dpo.beta: expected a number, got .inf`},
		{"training: {objective: dpo}\ndpo: {beta: .nan}",
			`run.yaml:4:13: dpo.beta: expected a number, got .nan`},
		{"training: {objective: dpo}\ndpo: {beta: strong}",
			`run.yaml:4:13: dpo.beta: expected a number, got the text "strong"`},
		{"training: {objective: dpo}\ndpo: {bta: 0.1}",
			`run.yaml:4:7: dpo.bta: unknown key; the nearest is dpo.beta`},
		{"training: {objective: dpo}\ndpo: 0.1",
			`run.yaml:4:6: dpo: expected a section with keys of its own, got 0.1`},
		{"training: {objective: dpo}\ndpo: {loss_type: sigmiod}",
			`run.yaml:4:18: dpo.loss_type: "sigmiod" is not one of sigmoid, hinge, ipo, exo_pair, nca_pair, robust, ` +
				`bco_pair, sppo_hard, aot, aot_unpaired, apo_zero, apo_down, discopop, sigmoid_norm, sft; did you ` +
				`mean sigmoid?`},
		{"training: {objective: dpo}\ndpo: {loss_type: []}",
			`run.yaml:4:18: dpo.loss_type: names no loss; write sigmoid for DPO itself`},
		{"training: {objective: dpo}\ndpo: {loss_type: {sigmoid: 1}}",
			`run.yaml:4:18: dpo.loss_type: expected a text or a list of texts, got keys and values`},
		{"training: {objective: dpo}\ndpo: {loss_type: [sigmoid, sft], loss_weights: [1]}",
			`run.yaml:4:48: dpo.loss_weights: 1 weights for 2 losses in dpo.loss_type: give one for each`},
		{"training: {objective: dpo}\ndpo: {loss_type: [sigmoid, sft], loss_weights: [1, x]}",
			`run.yaml:4:48: dpo.loss_weights: "x" is not a finite number`},
		{"training: {objective: dpo}\ndpo: {loss_type: [sigmoid, sft], loss_weights: [1, -1]}",
			`run.yaml:4:48: dpo.loss_weights: the weight of sft is -1, which would make its loss larger: give at ` +
				`least 0`},
		{"training: {objective: dpo}\ndpo: {loss_type: [sigmoid, sft], loss_weights: [0, 0]}",
			`run.yaml:4:48: dpo.loss_weights: the weights of sigmoid, sft are 0 in all: nothing would be learnt`},
		{"training: {objective: dpo}\ndpo: {loss_type: [sigmoid], loss_weights: [.inf]}",
			`run.yaml:4:43: dpo.loss_weights: ".inf" is not a finite number`},
		{"training: {objective: dpo}\ndpo: {loss_type: exo_pair}",
			`run.yaml:4:6: dpo.label_smoothing: exo_pair takes its logarithm, so it must be above 0; 1e-3 is usual`},
		{"training: {objective: dpo}\ndpo: {label_smoothing: 0.1}",
			`run.yaml:4:24: dpo.label_smoothing: does nothing without robust, exo_pair, aot or aot_unpaired in ` +
				`dpo.loss_type (sigmoid ignores it, as in TRL): remove it`},
		{"training: {objective: dpo}\ndpo: {loss_type: robust, label_smoothing: 0.5}",
			`run.yaml:4:43: dpo.label_smoothing: 0.5 must be at least 0 and below 0.5`},
		{"training: {objective: dpo}\ndpo: {loss_type: robust, label_smoothing: -0.1}",
			`run.yaml:4:43: dpo.label_smoothing: -0.1 must be at least 0 and below 0.5`},
		{"training: {objective: dpo}\ndpo: {f_divergence_type: kl}",
			`run.yaml:4:26: dpo.f_divergence_type: "kl" is not one of reverse_kl, forward_kl, js_divergence, ` +
				`alpha_divergence`},
		{"training: {objective: dpo}\ndpo: {f_divergence_type: alpha_divergence, f_alpha_divergence_coef: 1}",
			`run.yaml:4:69: dpo.f_alpha_divergence_coef: 1 is the limit that reverse_kl has; write ` +
				`dpo.f_divergence_type: reverse_kl`},
		{"training: {objective: dpo}\ndpo: {f_alpha_divergence_coef: 0.3}",
			`run.yaml:4:32: dpo.f_alpha_divergence_coef: does nothing but with dpo.f_divergence_type: ` +
				`alpha_divergence: remove it`},
		{"training: {objective: dpo}\ndpo: {loss_type: nca_pair, f_divergence_type: forward_kl}",
			`run.yaml:4:47: dpo.f_divergence_type: does nothing with dpo.loss_type: nca_pair; sigmoid, hinge, ipo, ` +
				`exo_pair, robust, discopop and sigmoid_norm use it: remove it`},
		{"training: {objective: dpo}\ndpo: {discopop_tau: 0.1}",
			`run.yaml:4:21: dpo.discopop_tau: does nothing without discopop in dpo.loss_type: remove it`},
		{"training: {objective: dpo}\ndpo: {loss_type: discopop, discopop_tau: 0}",
			`run.yaml:4:42: dpo.discopop_tau: 0 must be above 0`},
		{"training: {objective: dpo}\ndpo: {ld_alpha: 1.5}",
			`run.yaml:4:17: dpo.ld_alpha: 1.5 must be from 0 to 1 (0.015 is 1.5%)`},
		{"training: {objective: dpo}\ndpo: {use_weighting: maybe}",
			`run.yaml:4:22: dpo.use_weighting: expected true or false, got the text "maybe"`},
		{"training: {objective: dpo}\ncpo: {beta: 0.2}",
			`run.yaml:4:6: cpo: is set, and training.objective is dpo: set training.objective: cpo, or remove the ` +
				`section`},
		{"dpo: {beta: 0.2}",
			`run.yaml:3:6: dpo: is set, and training.objective is cross_entropy: set training.objective: dpo, or ` +
				`remove the section`},
		{"training: {objective: cpo}\ncpo: {loss_type: dpo}",
			`run.yaml:4:18: cpo.loss_type: "dpo" is not one of sigmoid, hinge, ipo, simpo, alphapo`},
		{"training: {objective: cpo}\ncpo: {loss_type: hinge, label_smoothing: 0.1}",
			`run.yaml:4:42: cpo.label_smoothing: does nothing with cpo.loss_type: hinge; sigmoid, simpo and alphapo ` +
				`use it: remove it`},
		{"training: {objective: cpo}\ncpo: {simpo_gamma: 1}",
			`run.yaml:4:20: cpo.simpo_gamma: does nothing with cpo.loss_type: sigmoid; simpo and alphapo use it: ` +
				`remove it`},
		{"training: {objective: cpo}\ncpo: {loss_type: alphapo, cpo_alpha: 0.5}",
			`run.yaml:4:38: cpo.cpo_alpha: does nothing with cpo.loss_type: alphapo, which adds no negative ` +
				`log-likelihood; simpo with cpo.alpha does: remove it`},
		{"training: {objective: cpo}\ncpo: {cpo_alpha: -1}",
			`run.yaml:4:18: cpo.cpo_alpha: -1 must be at least 0`},
		{"training: {objective: cpo}\ncpo: {alpha: -1}",
			`run.yaml:4:14: cpo.alpha: -1 must be at least 0`},
		{"training: {objective: simpo}\nsimpo: {beta: 0}",
			`run.yaml:4:15: simpo.beta: 0 must be above 0`},
		{"training: {objective: simpo}\nsimpo: {simpo_gamma: -0.5}",
			`run.yaml:4:22: simpo.simpo_gamma: -0.5 must be at least 0`},
		{"training: {objective: simpo}\nsimpo: {cpo_alpha: 1}",
			`run.yaml:4:9: simpo.cpo_alpha: unknown key; use cpo.cpo_alpha`},
		{"training: {objective: orpo}\norpo: {beta: -0.1}",
			`run.yaml:4:14: orpo.beta: -0.1 must be above 0`},
		{"training: {objective: orpo}\norpo: {alpha: 0.1}",
			`run.yaml:4:8: orpo.alpha: unknown key; use lora.alpha`},
		{"training: {objective: dpo, metric_for_best_model: eval_rewards/accuracies}",
			`run.yaml:3:51: training.metric_for_best_model: there is nothing to evaluate; set dataset.val_split or ` +
				`dataset.val_path`},
		{"training: {objective: orpo, metric_for_best_model: eval_rewards/accuracy, eval_steps: 5}\ndataset: {path: " +
			"d, val_split: 0.1}",
			`run.yaml:3:52: training.metric_for_best_model: objective orpo reports no eval_rewards/accuracy; it ` +
				`reports loss, rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen, ` +
				`logps/rejected, nll_loss, log_odds_chosen, log_odds_ratio, logits/chosen, logits/rejected, and each with ` +
				`eval_ before its name in evaluations`},
		{"training: {objective: dpo}\ndataset: {path: d, weights: true}",
			`run.yaml:4:29: dataset.weights: training.objective dpo takes no weights of rows or messages: remove it`},
	} {
		text := run + c.text + "\n"
		if !strings.Contains(c.text, "dataset:") {
			text += "dataset: {path: d.jsonl}\n"
		}
		_, problems := Merge("run.yaml", []byte(text), nil, nil)
		var got []string
		for _, p := range problems {
			got = append(got, p.Error())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.text, text, c.want)
		}
	}
}
