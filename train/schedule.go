package train

import "math"

// Schedules maps the names of learning-rate schedules in the configuration to their functions. Each returns the rate of
// optimizer step 0, 1, …, total-1. The values equal those of transformers' schedulers of the same names (wsd is
// warmup_stable_decay with a linear warm-up and a cosine decay).
var Schedules = map[string]func(c Config, total int) func(step int) float64{
	"linear": scaled(func(c Config, warm, total int) rateShape {
		return func(step int) float64 { return math.Max(0, 1-afterWarmup(step, warm, total)) }
	}),
	"cosine": scaled(func(c Config, warm, total int) rateShape {
		return func(step int) float64 { return math.Max(0, halfCosine(afterWarmup(step, warm, total))) }
	}),
	"cosine_with_min_lr": scaled(func(c Config, warm, total int) rateShape {
		return func(step int) float64 {
			return math.Max(0, withFloor(halfCosine(afterWarmup(step, warm, total)), c.MinLRRatio))
		}
	}),
	"constant": func(c Config, _ int) func(int) float64 {
		return func(int) float64 { return c.LearningRate }
	},
	"constant_with_warmup": scaled(func(Config, int, int) rateShape {
		return func(int) float64 { return 1 }
	}),
	"inverse_sqrt": scaled(func(c Config, warm, total int) rateShape {
		timescale := warm
		if warm == 0 {
			timescale = 10_000
		}
		shift := timescale - warm
		return func(step int) float64 { return 1 / math.Sqrt(float64(step+shift)/float64(timescale)) }
	}),
	"wsd": wsd,
}

// rateShape returns the rate as a part of the peak, for steps after the warm-up.
type rateShape func(step int) float64

// scaled puts the linear warm-up 0, 1/w, 2/w, … before a rateShape and multiplies by the peak rate.
func scaled(make func(c Config, warm, total int) rateShape) func(Config, int) func(int) float64 {
	return func(c Config, total int) func(int) float64 {
		warm := c.Warmup(total)
		after := make(c, warm, total)
		return func(step int) float64 {
			if step < warm {
				return c.LearningRate * (float64(step) / float64(warm))
			}
			return c.LearningRate * after(step)
		}
	}
}

// wsd warms up from the floor to the peak, stays there, and decays to the floor in the last
// ceil(decay_ratio*total) steps. Its warm-up starts at the floor, not at 0, as transformers' does.
func wsd(c Config, total int) func(int) float64 {
	warm := c.Warmup(total)
	decay := int(math.Ceil(float64(total) * c.DecayRatio))
	stableEnd := max(warm, total-decay)
	return func(step int) float64 {
		part := 1.0
		switch {
		case step < warm:
			part = withFloor(float64(step)/float64(warm), c.MinLRRatio)
		case step >= stableEnd+decay:
			part = c.MinLRRatio
		case step >= stableEnd:
			part = withFloor(halfCosine(float64(step-stableEnd)/float64(decay)), c.MinLRRatio)
		}
		return c.LearningRate * math.Max(0, part)
	}
}

// Warmup returns the number of warm-up steps: warmup_steps, or else ceil(warmup_ratio*total).
func (c Config) Warmup(total int) int {
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int(math.Ceil(float64(total) * c.WarmupRatio))
}

// afterWarmup returns the share of the steps after the warm-up that is done, 0 to 1.
func afterWarmup(step, warm, total int) float64 {
	return float64(step-warm) / float64(max(1, total-warm))
}

func halfCosine(part float64) float64 {
	return 0.5 * (1 + math.Cos(math.Pi*part))
}

// withFloor maps 0..1 linearly to floor..1. The product is rounded on its own, so that no machine fuses it.
func withFloor(part, floor float64) float64 {
	return float64(part*(1-floor)) + floor
}
