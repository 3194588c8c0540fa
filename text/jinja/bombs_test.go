package jinja

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/cputime"
)

// nested makes a value that holds itself twice on every level: small to build, endless to go through.
func nested(first, pair, use string) string {
	return "{% set ns = namespace(x=" + first + ") %}{% for i in range(60) %}{% set ns.x = " + pair + " %}{% endfor %}" + use
}

// again makes rounds of a loop that takes statements of no work itself.
func again(before, body string) string {
	return before + "{% for a in range(99999) %}{% for b in range(99999) %}" + body + "{% endfor %}{% endfor %}"
}

// bombs are templates whose work, memory or output is out of proportion to their length. A source with a result ends
// well within the bounds; the others end with an error.
var bombs = map[string]struct{ source, result string }{
	"list as text":            {nested(`["a"]`, "[ns.x, ns.x]", "{{ ns.x|string|length }}"), ""},
	"empty lists as text":     {nested(`[]`, "[ns.x, ns.x]", "{{ ns.x|string|length }}"), ""},
	"tuple as a key":          {nested(`("a",)`, "(ns.x, ns.x)", "{{ {ns.x: 1} }}"), ""},
	"tuple looked up":         {nested(`("a",)`, "(ns.x, ns.x)", "{{ {}[ns.x] }}{{ 1 }}"), ""},
	"tuple of a list":         {nested(`([],)`, "(ns.x, ns.x)", "{{ {1: 1}.get(ns.x) }}"), ""},
	"unique tuples":           {nested(`("a",)`, "(ns.x, ns.x)", "{{ [ns.x, ns.x]|unique|list|length }}"), ""},
	"tuple as a filter":       {nested(`("a",)`, "(ns.x, ns.x)", "{{ [1]|map(ns.x)|list }}"), ""},
	"tuple as a test":         {nested(`("a",)`, "(ns.x, ns.x)", "{{ [1]|select(ns.x)|list }}"), ""},
	"tuple in keys":           {nested(`("a",)`, "(ns.x, ns.x)", "{{ ns.x in {1: 1}.keys() }}"), ""},
	"list as JSON":            {nested(`["a"]`, "[ns.x, ns.x]", "{{ ns.x|tojson|length }}"), ""},
	"empty lists as JSON":     {nested(`[]`, "[ns.x, ns.x]", "{{ ns.x|tojson|length }}"), ""},
	"dict as JSON":            {nested(`{}`, "{1: ns.x, 2: ns.x}", "{{ ns.x|tojson(sort_keys=true)|length }}"), ""},
	"lists compared":          {"{% set m = namespace(y=[1]) %}" + nested(`[1]`, "[ns.x, ns.x]", "{% for i in range(60) %}{% set m.y = [m.y, m.y] %}{% endfor %}{{ ns.x == m.y }}"), ""},
	"lists ordered":           {"{% set m = namespace(y=[1]) %}" + nested(`[1]`, "[ns.x, ns.x]", "{% for i in range(60) %}{% set m.y = [m.y, m.y] %}{% endfor %}{{ ns.x < m.y }}"), ""},
	"constants in each other": {"{{ [[[[[0]*1000]*1000]*1000]*1000]*1000 == 1 }}", "False"},
	"indent of JSON":          {"{{ range(100000)|list|tojson(indent=1000000) }}", ""},
	"separators of JSON":      {"{% set s = 'a'*1000000 %}{{ range(100000)|list|tojson(separators=[s, s]) }}", ""},
	"escapes of JSON":         {"{{ ('\x01'*10000000)|tojson|length }}", ""},
	"integers as text":        {again("{% set n = 2**14000 %}", "{% set s = n|string %}"), ""},
	"integers divided":        {again("{% set e = 20000 %}{% set n = 3**(e+e) %}{% set m = 7**e %}", "{% set s = m / n %}"), ""},
	"keyword arguments":       {"{% macro m() %}{{ kwargs|length }}{% endmacro %}{{ m(**{" + manyKeys(20000) + "}) }}", ""},
	"empty statements":        {again("", strings.Repeat("{% if 0 %}{% endif %}", 2000)), ""},
	"long expressions":        {again("{% set a = {'b': 1} %}", "{% if "+strings.Repeat("a.b and ", 120)+"0 %}{% endif %}"), ""},
	"long lists":              {again("", "{% set x = ["+strings.Repeat("a,", 100000)+"] %}"), ""},
	"equal texts":             {again("{% set s = ['a'*10000000] %}{% set t = ['a'*10000000] %}", "{% set x = s == t %}"), ""},
	"buffers in buffers":      {"{% macro m(n) %}{{ 'a'*3000000 }}{{ m(n+1) }}{% endmacro %}{{ m(0) }}", ""},
	"a buffer that grows":     {"{% set x %}{% for a in range(99999) %}{{ 'a'*10000 }}{% endfor %}{% endset %}", ""},
	"text that grows":         {"{% for a in range(99999) %}{{ 'a'*10000 }}{% endfor %}", ""},
	"text of constants":       {again("", strings.Repeat("a", 100000)), ""},
	"generators":              {again("{% set ns = namespace(x=[1]) %}", "{% set ns.x = ns.x|map('string') %}") + "{{ ns.x|list }}", ""},
	"few generators":          {"{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}", ""},
	"a loop that asks itself": {"{% set ns = namespace(l=[1]) %}{% for x in range(9999)|map('string') if ns.l|first %}{% set ns.l = loop %}{% endfor %}", ""},
	"loops over loops":        {"{% set ns = namespace(l=range(99999)) %}{% for i in range(99999) %}{% for x in ns.l %}{% set ns.l = loop %}{% break %}{% endfor %}{% endfor %}", ""},
	"upper case":              {again("{% set s = 'ﬃ'*1000000 %}", "{% set x = s|upper %}"), ""},
	"titles":                  {again("{% set s = 'é '*1000000 %}", "{% set x = s.title() %}"), ""},
	"numerals":                {again("{% set s = '零'*1000000 %}", "{% set x = s.isnumeric() %}"), ""},
	"strip":                   {again("{% set s = 'é'*1000000 %}", "{% set x = s.strip('abcdefghijklmnopqrstuvwxyzé') %}"), ""},
	"fields":                  {"{{ ('a '*10000000).split()|length }}", ""},
	"lines":                   {"{{ ('\\n'*20000000).splitlines()|length }}", ""},
	"escaped":                 {"{{ ('\"'*20000000)|escape|length }}", ""},
	"quoted":                  {"{{ ['\x01'*20000000]|string|length }}", ""},
	"many texts":              {again("{% set ns = namespace(x=[]) %}", "{% set ns.x = [ns.x, 'a' ~ b] %}"), ""},
	"many pairs":              {again("{% set ns = namespace(x=[]) %}{% set d = dict([(1, 2)]*1) %}", "{% set ns.x = [ns.x, d.items()|list, d.copy()] %}"), ""},
	"many loops":              {again("{% set ns = namespace(x=[]) %}", "{% for i in [1] %}{% set ns.x = [ns.x, loop] %}{% endfor %}"), ""},
	"many macros":             {again("{% set ns = namespace(x=[]) %}", "{% macro m() %}{% endmacro %}{% set ns.x = [ns.x, m] %}"), ""},
	"many namespaces":         {again("{% set ns = namespace(x=[]) %}", "{% set ns.x = [ns.x, namespace(a=1, b=2, c=3)] %}"), ""},
	"large frames":            {again("{% macro m() %}{% if 0 %}"+manySets(20000)+"{% endif %}{% endmacro %}", "{{ m() }}"), ""},
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "'a%d': 1, ", i)
	}
	return b.String()
}

func manySets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%% set a%d = 1 %%}", i)
	}
	return b.String()
}

// TestBombs renders each with the default limits: it ends within a second of a processor's time, here with allowance
// for a slow machine and the race detector, and the heap grows by 256 MiB at most.
func TestBombs(t *testing.T) {
	for name, c := range bombs {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		peak, stop, stopped := uint64(0), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapInuse)
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		start := cputime.Process()
		tmpl, err := Compile(c.source)
		out := Output{}
		if err == nil {
			out, err = tmpl.Render(nil, Options{})
		}
		took := cputime.Process() - start
		close(stop)
		<-stopped
		var e *Error
		if c.result == "" && !errors.As(err, &e) || c.result != "" && (err != nil || out.Text != c.result) {
			t.Errorf("%s: %.100q, %v", name, out.Text, err)
		}
		grown := int64(peak) - int64(before.HeapInuse)
		if took > 8*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if grown > 256<<20 {
			t.Errorf("%s took %d MiB", name, grown>>20)
		}
		t.Logf("%-26s %6.2f s %4d MiB  %.120v", name, took.Seconds(), grown>>20, err)
	}
}
