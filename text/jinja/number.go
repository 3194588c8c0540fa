package jinja

import (
	"math"
	"math/big"
	"math/bits"
)

// maxBits is the largest size of integers, because the arithmetic of larger ones could take unlimited time and memory.
const maxBits = 1 << 16

// maxIntDigits is Python's limit on the digits of an int that is parsed or printed.
const maxIntDigits = 4300

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// norm returns an int as an Int if it fits.
func norm(n *big.Int) Value {
	if n.IsInt64() {
		return Int(n.Int64())
	}
	if n.BitLen() > maxBits {
		raise("LimitError", "an integer has more than %d bits", maxBits)
	}
	return bigInt{n}
}

// asBig returns the integer value of an int or bool.
func asBig(v Value) (*big.Int, bool) {
	switch v := v.(type) {
	case Int:
		return big.NewInt(int64(v)), true
	case Bool:
		return big.NewInt(boolInt(bool(v))), true
	case bigInt:
		return v.n, true
	}
	return nil, false
}

// stepBig counts the work of writing an integer, or of comparing it.
func (st *state) stepBig(v bigInt) { st.step(1 + v.n.BitLen()>>3) }

// asInt returns the value of an int or bool of 64 bits.
func asInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case Int:
		return int64(v), true
	case Bool:
		return boolInt(bool(v)), true
	}
	return 0, false
}

func isInt(v Value) bool {
	switch v.(type) {
	case Int, Bool, bigInt:
		return true
	}
	return false
}

func isNumber(v Value) bool {
	_, isFloat := v.(Float)
	return isFloat || isInt(v)
}

// toFloat evaluates Python's float() of a number, which raises OverflowError for an int that is too large.
func toFloat(v Value) float64 {
	switch v := v.(type) {
	case Float:
		return float64(v)
	case Int:
		return float64(v)
	case Bool:
		return float64(boolInt(bool(v)))
	case bigInt:
		f, _ := new(big.Float).SetInt(v.n).Float64()
		if math.IsInf(f, 0) {
			raise("OverflowError", "int too large to convert to float")
		}
		return f
	}
	raise("TypeError", "must be real number, not %s", v.typeName())
	return 0
}

func bigOfFloat(f float64) bigInt {
	n, _ := big.NewFloat(f).Int(nil)
	return bigInt{n}
}

// intOfFloat evaluates Python's int() of a float.
func intOfFloat(f float64) Value {
	switch {
	case f != f:
		raise("ValueError", "cannot convert float NaN to integer")
	case math.IsInf(f, 0):
		raise("OverflowError", "cannot convert float infinity to integer")
	}
	return norm(bigOfFloat(math.Trunc(f)).n)
}

func bigString(v bigInt) string {
	if v.n.BitLen() > 4*maxIntDigits { // its length is known without writing it
		raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	s := v.n.String()
	digits := len(s)
	if s[0] == '-' {
		digits--
	}
	if digits > maxIntDigits {
		raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	return s
}

// number computes a binary operator on two numbers.
func number(st *state, op byte, a, b Value) Value {
	x, aSmall := asInt(a)
	y, bSmall := asInt(b)
	if aSmall && bSmall {
		if v := smallInts(op, x, y); v != nil {
			return v
		}
	}
	if isInt(a) && isInt(b) {
		n, _ := asBig(a)
		m, _ := asBig(b)
		st.charge((n.BitLen() + m.BitLen()) / 8)
		words := (1 + n.BitLen()/64) * (1 + m.BitLen()/64)
		if op == '/' { // computes the greatest common divisor
			words *= 16
		}
		st.step(1 + words/64)
		return bigInts(op, n, m)
	}
	if op == '^' {
		st.step(powerSteps)
	}
	return floats(op, toFloat(a), toFloat(b))
}

// smallInts computes on ints of 64 bits; nil = the result may not fit.
func smallInts(op byte, x, y int64) Value {
	switch op {
	case '+':
		if s := x + y; (s > x) == (y > 0) {
			return Int(s)
		}
	case '-':
		if s := x - y; (s < x) == (y > 0) {
			return Int(s)
		}
	case '*':
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		if x != math.MinInt64 && y != math.MinInt64 && hi == 0 && lo < 1<<63 {
			return Int(x * y)
		}
	case '/':
		if y != 0 && x > -1<<53 && x < 1<<53 && y > -1<<53 && y < 1<<53 {
			return Float(float64(x) / float64(y))
		}
	case '%', 'f':
		if y == 0 || x == math.MinInt64 {
			return nil
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == '%' {
			return Int(r)
		}
		return Int(q)
	}
	return nil
}

func bigInts(op byte, n, m *big.Int) Value {
	zero := m.Sign() == 0
	switch op {
	case '+':
		return norm(new(big.Int).Add(n, m))
	case '-':
		return norm(new(big.Int).Sub(n, m))
	case '*':
		return norm(new(big.Int).Mul(n, m))
	case '/':
		if zero {
			raise("ZeroDivisionError", "division by zero")
		}
		f, _ := new(big.Rat).SetFrac(n, m).Float64()
		if math.IsInf(f, 0) {
			raise("OverflowError", "integer division result too large for a float")
		}
		if f == 0 && (n.Sign() < 0) != (m.Sign() < 0) {
			f = math.Copysign(0, -1)
		}
		return Float(f)
	case '%', 'f':
		if zero {
			raise("ZeroDivisionError", "integer division or modulo by zero")
		}
		q, r := new(big.Int).QuoRem(n, m, new(big.Int))
		if r.Sign() != 0 && r.Sign() != m.Sign() {
			q.Sub(q, big.NewInt(1))
			r.Add(r, m)
		}
		if op == '%' {
			return norm(r)
		}
		return norm(q)
	}
	return bigPower(n, m) // '^'
}

func bigPower(n, m *big.Int) Value {
	if m.Sign() < 0 {
		return floats('^', toFloat(norm(n)), toFloat(norm(m)))
	}
	if n.BitLen() > 1 && (!m.IsInt64() || m.Int64()*int64(n.BitLen()-1) > maxBits) {
		raise("LimitError", "an integer has more than %d bits", maxBits)
	}
	return norm(new(big.Int).Exp(n, m, nil))
}

func floats(op byte, x, y float64) Value {
	switch op {
	case '+':
		return Float(x + y)
	case '-':
		return Float(x - y)
	case '*':
		return Float(x * y)
	case '/':
		if y == 0 {
			raise("ZeroDivisionError", "float division by zero")
		}
		return Float(x / y)
	case '%':
		_, r := floatDivmod(x, y)
		return Float(r)
	case 'f':
		q, _ := floatDivmod(x, y)
		return Float(q)
	}
	return floatPower(x, y)
}

// floatDivmod evaluates Python's divmod of floats.
func floatDivmod(x, y float64) (q, r float64) {
	if y == 0 {
		raise("ZeroDivisionError", "float floor division by zero")
	}
	r = math.Mod(x, y)
	q = (x - r) / y
	if r != 0 {
		if (y < 0) != (r < 0) {
			r += y
			q--
		}
	} else {
		r = math.Copysign(0, y)
	}
	if q == 0 {
		return math.Copysign(0, x/y), r
	}
	floor := math.Floor(q)
	if q-floor > 0.5 {
		floor++
	}
	return floor, r
}

// floatPower evaluates Python's ** of floats, with its cases in the order of CPython.
func floatPower(x, y float64) Value {
	switch {
	case y == 0:
		return Float(1)
	case x != x:
		return Float(x)
	case y != y:
		if x == 1 {
			return Float(1)
		}
		return Float(y)
	case math.IsInf(y, 0):
		size := math.Abs(x)
		switch {
		case size == 1:
			return Float(1)
		case (y > 0) == (size > 1):
			return Float(math.Inf(1))
		}
		return Float(0)
	case math.IsInf(x, 0):
		return Float(math.Pow(x, y))
	case x == 0 && y < 0:
		raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	case x < 0 && y != math.Trunc(y):
		raise("TypeError", "the power would be a complex number, which templates have no use for")
	}
	f := power(x, y)
	if math.IsInf(f, 0) {
		raise("OverflowError", "(34, 'Numerical result out of range')")
	}
	return Float(f)
}

// powerSteps is the number of steps that a power of floats counts for.
const powerSteps = 1024

// power computes C's pow of finite numbers with a single rounding; Go's rounds after each multiplication.
func power(x, y float64) float64 {
	f := math.Pow(x, y)
	if x == 0 || math.Abs(x) == 1 || math.Abs(y*math.Log2(math.Abs(x))) > 1100 {
		return f // exact, or beyond the range of a float
	}
	const precision = 256
	n := math.Trunc(math.Abs(y))
	rest := math.Abs(y) - n
	if n >= 1<<63 {
		return f
	}
	exact := new(big.Float).SetPrec(precision).SetInt64(1)
	base := new(big.Float).SetPrec(precision).SetFloat64(x)
	for n := uint64(n); n > 0; n >>= 1 { // the bits before the point by repeated squaring
		if n&1 == 1 {
			exact.Mul(exact, base)
		}
		if n > 1 {
			base.Mul(base, base)
		}
	}
	base.SetFloat64(x)
	for i := 0; rest > 0 && i < 128; i++ { // the bits after it by repeated square roots
		base.Sqrt(base)
		if rest *= 2; rest >= 1 {
			exact.Mul(exact, base)
			rest--
		}
	}
	if y < 0 {
		exact.Quo(big.NewFloat(1).SetPrec(precision), exact)
	}
	f, _ = exact.Float64()
	return f
}
