"""Writes train/reward/testdata/math.json.gz: pairs of formulas as sympy writes them in LaTeX, and whether sympy finds them equal.

    make_math.py FILE     (sympy 1.14)
"""
import gzip
import json
import random
import sys

import sympy as s

x, y, n, theta = s.symbols("x y n theta")
R = random.Random(7)


def number():
    return R.choice([s.Integer(R.randint(-40, 40)), s.Rational(R.randint(-30, 30), R.randint(2, 12)), s.sqrt(R.randint(2, 30)),
                     R.randint(1, 5) * s.sqrt(R.randint(2, 12)) / R.randint(1, 6), s.pi / R.randint(1, 6), s.root(R.randint(2, 9), 3),
                     R.randint(1, 4) + R.randint(1, 3) * s.I, s.log(R.randint(2, 9)), s.E ** R.randint(1, 3), s.cos(s.pi / R.randint(5, 9))])


def term(v):
    return R.choice([v ** R.randint(1, 4), R.randint(1, 9) * v, number() * v, s.sin(v), s.cos(2 * v), s.exp(v), s.sqrt(v + R.randint(1, 5)),
                     s.log(v + 3), 1 / (v + R.randint(2, 6)), s.Abs(v + R.randint(1, 3)), s.factorial(R.randint(3, 6)), s.tan(v) ** 2])


def formula():
    if R.random() < 0.35:
        return R.choice([lambda: number(), lambda: number() + number(), lambda: number() * number()])()
    v, w = R.sample([x, y, n, theta], 2)
    return R.choice([lambda: term(v) + term(v), lambda: (v + R.randint(1, 9)) * (w - R.randint(1, 9)), lambda: term(v) * term(w),
                     lambda: (v + R.randint(1, 5)) ** R.randint(2, 4), lambda: (v ** 2 - R.randint(1, 9) ** 2) / (w + R.randint(1, 5)),
                     lambda: number() + term(v) - term(w)])()


rows, seen = [], set()
while len(rows) < 240:
    a = formula()
    equal = R.random() < 0.6
    if equal:
        b = R.choice([s.expand, s.factor, s.together, s.simplify, s.nsimplify, lambda e: e])(a)
    else:
        b = R.choice([lambda: a + 1, lambda: -a, lambda: 2 * a, lambda: a + x / 7, lambda: a ** 2])()
    known = a.equals(b)
    if known is None or known != equal:
        continue
    one, two = s.latex(a), s.latex(b)
    if (one, two) in seen or len(one) + len(two) > 160 or one == two and R.random() < 0.8:
        continue
    seen.add((one, two))
    rows.append([one, two, equal])
text = "[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n"
with open(sys.argv[1], "wb") as f:
    f.write(gzip.compress(text.encode(), 9, mtime=0))
