package kernel

import "math"

// form returns one form of a pair and its gradient for s; zero where the form is one of all pairs together.
func (o PairLoss) form(form PairForm, a answerPair) (v float64, g [2]float64) {
	b, e := o.Beta, o.Smoothing
	dc, dx := a.d(0), a.d(1)
	fc, slopeC := o.diverge(dc)
	fx, slopeX := o.diverge(dx)
	// margin returns the gradient of a function of fc and fx.
	margin := func(c, x float64) [2]float64 { return [2]float64{c * slopeC, x * slopeX} }
	u := b * (fc - fx)
	switch form {
	case PairSigmoid:
		du := -sigmoid(-u)
		return softplus(-u), margin(b*du, -b*du)
	case PairHinge:
		if u >= 1 {
			return 0, g
		}
		return 1 - u, margin(-b, b)
	case PairIPO:
		z := fc/a.n[0] - fx/a.n[1] - 1/(2*b)
		return z * z, margin(2*z/a.n[0], -2*z/a.n[1])
	case PairSigmoidNorm:
		z := b * (fc/a.n[0] - fx/a.n[1])
		dz := -sigmoid(-z)
		return softplus(-z), margin(b*dz/a.n[0], -b*dz/a.n[1])
	case PairRobust:
		du := (-(1-e)*sigmoid(-u) - e*sigmoid(u)) / (1 - 2*e)
		return ((1-e)*softplus(-u) - e*softplus(u)) / (1 - 2*e), margin(b*du, -b*du)
	case PairEXO:
		right, wrong := math.Log1p(-e), math.Log(e)
		du := sigmoid(u) * sigmoid(-u) * (u - right + wrong)
		return sigmoid(u)*(-softplus(-u)-right) + sigmoid(-u)*(-softplus(u)-wrong), margin(b*du, -b*du)
	case PairDiscoPOP:
		m := sigmoid(u / o.Tau)
		dm := m * (1 - m) / o.Tau
		mixed := math.Exp(-u - softplus(-u/o.Tau)) // exp(-u) m, whose factors may be infinite and zero
		du := -sigmoid(-u)*(1-m) - softplus(-u)*dm - mixed + mixed*(1-m)/o.Tau
		return softplus(-u)*(1-m) + mixed, margin(b*du, -b*du)
	case PairNCA:
		return softplus(-b*dc) + softplus(b*dc)/2 + softplus(b*dx)/2,
			[2]float64{b * (sigmoid(b*dc)/2 - sigmoid(-b*dc)), b * sigmoid(b*dx) / 2}
	case PairBCO:
		return softplus(-b*dc) + softplus(b*dx), [2]float64{-b * sigmoid(-b*dc), b * sigmoid(b*dx)}
	case PairSPPO:
		zc, zx := dc-1/(2*b), dx+1/(2*b)
		return zc*zc + zx*zx, [2]float64{2 * zc, 2 * zx}
	case PairAPOZero:
		return sigmoid(-b*dc) + sigmoid(b*dx), [2]float64{-b * sigmoidSlope(b*dc), b * sigmoidSlope(b*dx)}
	case PairAPODown:
		m := b * sigmoidSlope(b*(dc-dx))
		return sigmoid(b*dc) + sigmoid(-b*(dc-dx)), [2]float64{b*sigmoidSlope(b*dc) - m, m}
	}
	return 0, g
}

// diverge returns what takes the place of a log-ratio, and its slope.
func (o PairLoss) diverge(d float64) (f, slope float64) {
	switch o.Divergence {
	case ForwardKL:
		e := math.Exp(-d)
		return 1 - e, e
	case JensenShannon:
		return math.Ln2 - softplus(-d), sigmoid(-d)
	case AlphaDivergence:
		e := math.Exp((o.Alpha - 1) * d)
		return (e - 1) / (o.Alpha - 1), e
	}
	return d, 1
}

// sigmoidSlope is the derivative of sigmoid.
func sigmoidSlope(x float64) float64 { return sigmoid(x) * sigmoid(-x) }

// softplus is log(1 + exp(x)); softplus(-x) is minus the logarithm of sigmoid(x).
func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
