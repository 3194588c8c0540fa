package jinja

import "testing"

// Extreme numbers, as Jinja2 3.1.6 under Python takes them; scripts/jinja_fuzz.py finds such expressions.
func TestExtremes(t *testing.T) {
	for _, c := range []struct{ expr, want, refusal string }{
		{"('nan'|float) ** 0", "1.0", ""},
		{"('nan'|float) ** 0.0", "1.0", ""},
		{"1 ** ('nan'|float)", "1.0", ""},
		{"0 ** (-('inf'|float))", "inf", ""},
		{"0.0 ** -1", "", "ZeroDivisionError"},
		{"(-2.5) ** ('nan'|float)", "nan", ""},
		{"(-0.5) ** ('inf'|float)", "0.0", ""},
		{"2 ** -0.5", "0.7071067811865476", ""},
		{"0.5 ** -2.5", "5.656854249492381", ""},
		{"(2**64) ** -2.5", "6.842277657836021e-49", ""},
		{"1e308 ** 2", "", "OverflowError"},
		{"('inf'|float) // 1", "nan", ""},
		{"5.0 % ('inf'|float)", "5.0", ""},
		{"7 // 0", "", "ZeroDivisionError"},
		{"7.5 % 0", "", "ZeroDivisionError"},
		{"'abc'['x':]", "", ""},
		{"'abc'[('nan'|float):]", "", ""},
		{"'abc'[::0]", "", "ValueError"},
		{"'abc'[2**70:]", "", ""},
		{"'abc'[::-(2**63)]", "c", ""},
		{"[1, 2]|sum(start='inf'|float)", "inf", ""},
		{"'5x'|float('nan'|float)", "nan", ""},
		{"'5x'|int(-('inf'|float))", "-inf", ""},
		{"('nan'|float) is in [1]", "False", ""},
		{"'abc'.splitlines(0.5)", "", "TypeError"},
		{"'abc' * -(10**400)", "", "OverflowError"},
		{"7|round(-300)", "0", ""},
		{"(10**4000 + 6 * 10**3999)|round(-4000) == 2 * 10**4000", "True", ""},
		{"2.5|round(400)", "2.5", ""},
		{"1e300|round(-400)", "0.0", ""},
		{"-0.0|round", "-0.0", ""},
		{"('inf'|float)|int", "", "NameError"},
		{"('inf'|float)|round", "inf", ""},
		{"('nan'|float)|int", "0", ""},
		{"'1_000'|int", "1000", ""},
		{"'1__0'|int", "0", ""},
		{"'0x_1f'|int(0, 16)", "31", ""},
		{"' -7 '|int", "-7", ""},
		{"['nan'|float, 'inf'|float]|tojson", "[NaN, Infinity]", ""},
		{"range(5)[::2]|list", "[0, 2, 4]", ""},
		{"n|default(10**5000)", "", "ValueError"},
	} {
		got, err := renderSource("{{ "+c.expr+" }}", nil)
		switch {
		case c.refusal != "" && err == nil:
			t.Errorf("%s gives %q, Jinja2 refuses it: %s", c.expr, got.Text, c.refusal)
		case c.refusal == "" && (err != nil || got.Text != c.want):
			t.Errorf("%s gives %q, %v, Jinja2 %q", c.expr, got.Text, err, c.want)
		}
	}
}
