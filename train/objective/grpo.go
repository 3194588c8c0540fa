package objective

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	judges "github.com/tierlora/tierlora/train/reward"
)

// The names of objectives in Objectives that learn from sampled answers, and of their sections.
const (
	grpoName = "grpo"
	rlooName = "rloo"
)

// GRPOConfig is the section of training.objective: grpo. It has the keys and defaults of TRL's GRPOConfig.
type GRPOConfig struct {
	// LossType is the loss of a token and what the sum of them is divided by. grpo, sapo: the mean over answers of each
	// answer's mean. bnpo: the tokens of each micro-batch. dr_grpo: answers times max_completion_length. dapo, cispo,
	// vespo: the tokens of the whole step. luspo: answers. cispo, sapo and vespo replace the clipped ratio.
	LossType string `yaml:"loss_type" default:"dapo" choices:"grpo bnpo dr_grpo dapo cispo luspo sapo vespo" resume:"steers"`
	// ImportanceSamplingLevel is what has one probability ratio: each token, or the whole answer, the exponential of
	// whose mean log-ratio it is (GSPO).
	ImportanceSamplingLevel string `yaml:"importance_sampling_level" default:"token" choices:"token sequence" resume:"steers"`
	// Epsilon is how far below one the ratio is clipped, and above one where epsilon_high is 0.
	Epsilon float64 `yaml:"epsilon" default:"0.2" range:"[0,inf)" resume:"steers"`
	// EpsilonHigh is how far above one the ratio is clipped; 0 = epsilon. DAPO takes 0.28. For cispo it is the largest
	// ratio itself.
	EpsilonHigh float64 `yaml:"epsilon_high" range:"[0,inf)" resume:"steers"`
	// Delta is the largest ratio of the term that is not clipped (INTELLECT-2); 0 = unbounded. It should exceed
	// 1 + epsilon.
	Delta float64 `yaml:"delta" range:"[0,inf)" resume:"steers"`
	// Beta is the weight of the KL divergence from the reference, the base model with the adapter switched off; 0 =
	// there is no reference, which saves its forward pass.
	Beta float64 `yaml:"beta" range:"[0,inf)" resume:"fixed"`
	// UseBiasCorrectionKL multiplies the KL divergence of each token by its ratio.
	UseBiasCorrectionKL bool `yaml:"use_bias_correction_kl" default:"true" resume:"steers"`
	// ScaleRewards is what an advantage is divided by: the standard deviation of the rewards of its group, of the whole
	// step (batch), or nothing (none).
	ScaleRewards string `yaml:"scale_rewards" default:"group" choices:"group batch none" resume:"steers"`
	// MultiObjectiveAggregation says how several rewards become one advantage. normalize_then_sum normalises each
	// reward in its group before the weighted sum, so that no reward outweighs others by its range.
	MultiObjectiveAggregation string `yaml:"multi_objective_aggregation" default:"sum_then_normalize" choices:"sum_then_normalize normalize_then_sum" resume:"steers"`
	// TopEntropyQuantile is the share of tokens whose loss counts, those with the highest entropies of their
	// micro-batch; 1 = all.
	TopEntropyQuantile float64 `yaml:"top_entropy_quantile" default:"1" range:"(0,1]" resume:"steers"`
	// EntropyCoef is the weight of the mean entropy, which lowers the loss; 0 = none.
	EntropyCoef float64 `yaml:"entropy_coef" range:"[0,inf)" resume:"fixed"`
	// OffPolicyMaskThreshold leaves out answers with a negative advantage whose mean log-probability has fallen by more
	// since they were sampled; 0 = none.
	OffPolicyMaskThreshold float64 `yaml:"off_policy_mask_threshold" range:"[0,inf)" resume:"steers"`
	// SAPOTemperaturePos is sapo's temperature for advantages above zero.
	SAPOTemperaturePos float64 `yaml:"sapo_temperature_pos" default:"1" range:"(0,inf)" resume:"steers"`
	// SAPOTemperatureNeg is sapo's temperature for other advantages.
	SAPOTemperatureNeg float64 `yaml:"sapo_temperature_neg" default:"1.05" range:"(0,inf)" resume:"steers"`
	// VESPOKPos is the power of the ratio in vespo's weight for advantages of zero or more.
	VESPOKPos float64 `yaml:"vespo_k_pos" default:"2" range:"[0,inf)" resume:"steers"`
	// VESPOLambdaPos is the decay of vespo's weight for advantages of zero or more.
	VESPOLambdaPos float64 `yaml:"vespo_lambda_pos" default:"3" range:"[0,inf)" resume:"steers"`
	// VESPOKNeg is the power of the ratio in vespo's weight for negative advantages.
	VESPOKNeg float64 `yaml:"vespo_k_neg" default:"3" range:"[0,inf)" resume:"steers"`
	// VESPOLambdaNeg is the decay of vespo's weight for negative advantages.
	VESPOLambdaNeg float64 `yaml:"vespo_lambda_neg" default:"2" range:"[0,inf)" resume:"steers"`
	Rollouts       `yaml:",inline"`
}

// Rollouts are the keys that objectives over sampled answers have in common. They are TRL's.
type Rollouts struct {
	// RewardWeights are the weights of the rewards in their sum, in the order of rewards; for dataset.format: rollouts
	// in the order of the rewards' names. Empty = 1 each.
	RewardWeights []string `yaml:"reward_weights" form:"numbers" resume:"steers"`
	// MaskTruncatedCompletions leaves answers without an end token, which were too long, out of the loss.
	MaskTruncatedCompletions bool `yaml:"mask_truncated_completions" resume:"steers"`
	// Temperature divides the logits, of sampling and of the loss alike.
	Temperature float64 `yaml:"temperature" default:"1" range:"(0,100]" resume:"fixed"`
	// NumGenerations is how many answers to each prompt are sampled: the size of a group.
	NumGenerations int `yaml:"num_generations" default:"8" range:"[2,1024]" resume:"fixed"`
	// SamplingLogprobs says whose log-probabilities the ratio of a token is taken against. exact: the sampler's, with
	// which the answer was drawn. trainer: those of the step itself, so that the ratio is 1 whatever sampler and
	// trainer round differently; num_iterations must be 1.
	SamplingLogprobs string `yaml:"sampling_logprobs" default:"exact" choices:"exact trainer" resume:"fixed"`
	// MaxNumGenBatches is from how many sets of prompts a step may take its groups. With more than 1 (DAPO's dynamic
	// sampling), groups whose answers all have one reward are replaced by groups of further prompts until none is left
	// or so many sets were sampled.
	MaxNumGenBatches int `yaml:"max_num_gen_batches" default:"1" range:"[1,1000]" resume:"fixed"`
	// NumGenerationsEval is how many answers to each validation prompt an evaluation samples.
	NumGenerationsEval int `yaml:"num_generations_eval" default:"1" range:"[1,1024]" resume:"steers"`
	// EvalTemperature divides the logits when answers to validation prompts are sampled; 0 = greedy answers, of which
	// num_generations_eval must be 1.
	EvalTemperature float64 `yaml:"eval_temperature" range:"[0,100]" resume:"steers"`
	// PassReward names the reward that says whether an answer passes, for pass@k. Empty = the first reward.
	PassReward string `yaml:"pass_reward" resume:"steers"`
	// PassThreshold is the least value of pass_reward with which an answer passes.
	PassThreshold float64 `yaml:"pass_threshold" default:"1" range:"[-1000,1000]" resume:"steers"`
	// NumIterations is how many optimizer steps each set of sampled answers is trained for.
	NumIterations int `yaml:"num_iterations" default:"1" range:"[1,1000]" resume:"fixed"`
	// Rewards are the judges of sampled answers. With dataset.format: rollouts the rows have the rewards.
	Rewards []judges.Config `yaml:"rewards,omitempty" resume:"fixed"`
	// Environment is a program with which the model talks: its answers go on after the program's.
	Environment judges.EnvironmentConfig `yaml:"environment"`
	// RecordRollouts writes every sampled answer with its rewards to rollouts.jsonl in output_dir, in the format
	// rollouts.
	RecordRollouts bool `yaml:"record_rollouts" resume:"free"`
	// MaxCompletionLength is the most tokens of an answer.
	MaxCompletionLength int `yaml:"max_completion_length" default:"256" range:"[1,1048576]" resume:"fixed"`
}

func (c GRPOConfig) problems() (all []error) {
	if c.LossType == "cispo" && c.EpsilonHigh == 0 {
		all = append(all, errors.New("grpo.epsilon_high: is 0, and for cispo it is the largest ratio itself; 5 is "+
			"usual"))
	}
	if c.Delta > 0 && c.Delta <= 1+c.Epsilon {
		all = append(all, fmt.Errorf("grpo.delta: is %v, and the clip at 1 + epsilon = %v would never be reached: "+
			"write more, or 0 for no bound", c.Delta, 1+c.Epsilon))
	}
	return append(all, c.Rollouts.problems(grpoName)...)
}

// problems returns what is wrong with the common keys of a section.
func (c Rollouts) problems(section string) (all []error) {
	if _, err := c.weights(len(c.RewardWeights)); err != nil {
		all = append(all, fmt.Errorf("%s.%w", section, err))
	}
	if c.EvalTemperature == 0 && c.NumGenerationsEval > 1 {
		all = append(all, fmt.Errorf("%s.num_generations_eval: is %d, and with eval_temperature 0 all answers to a "+
			"prompt are the same: set eval_temperature, such as 1", section, c.NumGenerationsEval))
	}
	if c.SamplingLogprobs == "trainer" && c.NumIterations > 1 {
		all = append(all, fmt.Errorf("%s.sampling_logprobs: trainer takes the log-probabilities of the step itself, "+
			"and num_iterations %d trains the same answers again, where they must be older: write exact, or "+
			"num_iterations: 1", section, c.NumIterations))
	}
	if n := c.Environment.MaxTurnLength; n > c.MaxCompletionLength {
		all = append(all, fmt.Errorf("%s.environment.max_turn_length: is %d, and a whole conversation has at most "+
			"max_completion_length %d tokens: lower it, or write 0", section, n, c.MaxCompletionLength))
	}
	if c.PassReward != "" && c.passReward() < 0 {
		all = append(all, fmt.Errorf("%s.pass_reward: no reward has the name %q", section, c.PassReward))
	}
	for i, r := range c.Rewards {
		at := fmt.Sprintf("%s.rewards[%d].", section, i)
		for _, err := range r.Validate() {
			all = append(all, fmt.Errorf("%s%w", at, err))
		}
		if r.Type == "environment" && len(c.Environment.Command) == 0 {
			all = append(all, fmt.Errorf("%stype: environment is the reward of the program %s.environment.command, "+
				"which is missing: name it, such as [python3, environment.py]", at, section))
		}
		if r.Type == "soft_overlong" && r.SoftPunishCache > c.MaxCompletionLength {
			all = append(all, fmt.Errorf("%ssoft_punish_cache: is %d, more than max_completion_length %d: lower it", at,
				r.SoftPunishCache, c.MaxCompletionLength))
		}
	}
	return all
}

// rows returns what is wrong with single values of the sections within the section.
func (c Rollouts) rows(section string) (all []error) {
	all = keys.Check(section+".environment.", c.Environment)
	for i, r := range c.Rewards {
		all = append(all, keys.Check(fmt.Sprintf("%s.rewards[%d].", section, i), r)...)
	}
	return all
}

// Sampled is an Objective that learns from sampled answers with rewards. Before a step, Advantages turns the rewards of
// all its answers into advantages.
type Sampled interface {
	Objective
	// Settings are the keys of the objective's section that sampling reads.
	Settings() Rollouts
	// Advantages sets the advantages of all groups of a step from their rewards, and returns further numbers of the
	// step. tokens is the number of tokens of all answers.
	Advantages(groups []*dataset.Rollout, tokens int) ([]Value, error)
}

// policy is an objective over sampled answers. Its loss is a kernel.PolicyLoss.
type policy struct {
	Rollouts
	loss    kernel.PolicyLoss
	divisor Count
	// mean divides an answer's loss by its tokens, batch that of all answers of a micro-batch by their mean number of
	// tokens, length by max_completion_length.
	mean, batch, length bool
	advantages          func(groups []*dataset.Rollout) error
	divergence          bool // the rewards have a KL divergence taken off
}

func newGRPO(c Config) Objective {
	s := settings(c.GRPO)
	o := policy{Rollouts: s.Rollouts, divisor: Sequences, advantages: s.advantages}
	k := &o.loss
	k.Low, k.High, k.Delta, k.Beta, k.WeighKL = s.Epsilon, s.EpsilonHigh, s.Delta, s.Beta, s.UseBiasCorrectionKL
	k.TopEntropy, k.OffPolicy, k.EntropyBonus = s.TopEntropyQuantile, s.OffPolicyMaskThreshold, s.EntropyCoef
	k.Above, k.Below = s.SAPOTemperaturePos, s.SAPOTemperatureNeg
	k.K, k.Lambda, k.KBelow, k.LambdaBelow = s.VESPOKPos, s.VESPOLambdaPos, s.VESPOKNeg, s.VESPOLambdaNeg
	if k.High == 0 {
		k.High = s.Epsilon
	}
	if s.ImportanceSamplingLevel == "sequence" {
		k.Level = kernel.RatioMean
	}
	switch s.LossType {
	case "grpo":
		o.mean = true
	case "bnpo":
		o.batch = true
	case "dr_grpo":
		o.length = true
	case "dapo":
		o.divisor = Tokens
	case "cispo":
		k.Form, o.divisor = kernel.PolicyCISPO, Tokens
	case "vespo":
		k.Form, o.divisor = kernel.PolicyVESPO, Tokens
	case "sapo":
		k.Form, o.mean = kernel.PolicySAPO, true
	}
	return o
}

// Divisor is the number of tokens or of answers.
func (o policy) Divisor() Count { return o.divisor }

// BatchTerm is the divisor of loss_type bnpo or the threshold of top_entropy_quantile.
func (o policy) BatchTerm() string {
	switch {
	case o.batch:
		return "with loss_type: bnpo the mean number of tokens of an answer is one"
	case o.loss.TopEntropy < 1:
		return "top_entropy_quantile takes the tokens with the highest entropies"
	}
	return ""
}

// Reference reports whether the loss has a KL divergence.
func (o policy) Reference() bool { return o.loss.Beta != 0 }

// SharesPrompts reports that the answers of a group may continue one prompt.
func (policy) SharesPrompts() bool { return true }

// Settings are the section's common keys.
func (o policy) Settings() Rollouts { return o.Rollouts }

// Numbers are TRL's. Those over tokens are means over the answers' tokens; a clip of a ratio of whole answers counts
// answers.
func (o policy) Numbers() []Number {
	clip := Tokens
	if o.loss.Level != kernel.RatioToken {
		clip = Sequences
	}
	low := []Number{{Name: "clip_ratio/low_mean", Per: clip}, {Name: "clip_ratio/high_mean", Per: clip}}
	switch o.loss.Form {
	case kernel.PolicyCISPO:
		low = []Number{{Name: "cispo_clip_ratio", Per: clip}}
	case kernel.PolicySAPO:
		low = nil
	case kernel.PolicyVESPO:
		low = []Number{{Name: "vespo/phi_seq_mean", Per: Sequences}}
	}
	all := []Number{{Name: "entropy", Unit: "nats/token", Per: Tokens}}
	if o.loss.Beta != 0 {
		all = append(all, Number{Name: "kl", Unit: "nats/token", Per: Tokens})
	}
	all = append(all, low...)
	all = append(all, Number{Name: "sampling/sampling_logp_difference/mean", Unit: "nats/token", Per: Tokens})
	return append(all, o.evaluated()...)
}

// sums picks the sums of the numbers from those of the kernel, in the order of Numbers.
func (o policy) sums(of []*graph.Value) (sums []*graph.Value) {
	sums = append(sums, of[kernel.PolicyEntropy])
	if o.loss.Beta != 0 {
		sums = append(sums, of[kernel.PolicyKL])
	}
	switch o.loss.Form {
	case kernel.PolicyClip:
		sums = append(sums, of[kernel.PolicyLow], of[kernel.PolicyHigh])
	case kernel.PolicyCISPO:
		sums = append(sums, of[kernel.PolicyHigh])
	case kernel.PolicyVESPO:
		sums = append(sums, of[kernel.PolicyPhi])
	}
	return append(sums, of[kernel.PolicyGap])
}

// CheckRows refuses rows that are not sampled answers.
func (o policy) CheckRows(r *dataset.Report) error {
	if g := r.Groups; r.Format == dataset.FormatRollouts && g.Sampled < r.Kept || g.Most > 1 && g.Sampled == 0 {
		return fmt.Errorf("it learns from sampled answers, and %d of %d rows are none: write dataset.format: %s",
			r.Kept-g.Sampled, r.Kept, dataset.FormatRollouts)
	}
	return nil
}

const (
	nameOld     = "old log-probabilities"
	nameAnswers = "answers"
)

// policyInputs is what a micro-batch of sampled answers holds besides token ids and positions.
type policyInputs struct{ labels, scale, borders, old, answers *graph.Value }

// Declare adds labels and scale, the log-probabilities of sampling, and each answer's advantage and factors.
func (o policy) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	if n.Ranks() > 1 {
		n.Fail(errors.New("a loss of sampled answers needs all tokens of an answer, and each rank has a part of " +
			"them: training.context_parallel_size must be 1"))
	}
	in := crossEntropy{}.Declare(n, prefix, s)
	return append(in, n.Batch(prefix+nameBorders, kernel.T(kernel.I32, s.Sequences+1)),
		n.Batch(prefix+nameOld, kernel.T(n.Float(), s.Tokens)),
		n.Batch(prefix+nameAnswers, kernel.T(n.Float(), s.Sequences, 6)))
}

// Train builds the loss with its gradient.
func (o policy) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o policy) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

// build records the loss of a batch.
func (o policy) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	p := policyInputs{labels: in[0], scale: in[1], borders: in[2], old: in[3], answers: in[4]}
	k := o.loss
	k.Grad, k.Scaled = grad, at.Scaling != nil
	head := kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap}
	hidden, reference := o.cool(n, at, at.Hidden), (*graph.Value)(nil)
	if k.Beta != 0 {
		reference = n.Apply(head, o.cool(n, at, at.Reference), at.Head, p.labels)
	}
	head.Grad, head.Entropy = grad, kernel.EntropyConstant
	if k.EntropyBonus != 0 {
		head.Entropy = kernel.EntropyDifferentiable
	}
	own := n.ApplyAll(head, hidden, at.Head, p.labels)
	if n.Err() != nil {
		return Outcome{}
	}
	values := []*graph.Value{own[0], p.old, p.labels, p.borders, p.answers, p.scale}
	if k.EntropyBonus == 0 {
		values = append(values, own[len(own)-1].Constant())
	}
	if k.Beta != 0 {
		values = append(values, reference)
	}
	if k.Scaled {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(k, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Sums: o.sums(out[len(out)-kernel.PolicySums:])}
}

// cool divides hidden states by the temperature, and with them the logits.
func (o policy) cool(n *nn.Net, at Network, hidden *graph.Value) *graph.Value {
	switch {
	case o.Temperature == 1:
		return hidden
	case at.LogitCap != 0:
		n.Fail(errors.New("the model caps its logits before the temperature divides them, which losses of sampled " +
			"answers don't do: temperature must be 1"))
	}
	return n.Apply(kernel.Scale{By: 1 / o.Temperature}, hidden)
}

// Bind finds the data of Declare in the memory of a plan.
func (o policy) Bind(b *session.Batch) (Filler, error) {
	own, err := crossEntropy{}.Bind(b)
	if err != nil {
		return nil, err
	}
	f := &policyFiller{labelled: own.(*labelled), policy: o}
	if f.old, err = b.Float32s(nameOld); err != nil {
		return nil, err
	}
	f.answers, err = b.Float32s(nameAnswers)
	return f, err
}
