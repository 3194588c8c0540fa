package reward

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// turnsOf are turns of two conversations.
func turnsOf(texts ...string) (turns []Turn) {
	for i, text := range texts {
		turns = append(turns, Turn{Turn: 1, Completion: text, Columns: json.RawMessage("{}"), Number: i})
	}
	return turns
}

// TestEnvironmentReplies checks messages, the end with a reward, and that a conversation stays with one copy of the
// program.
func TestEnvironmentReplies(t *testing.T) {
	command := script(t, `n=0; while read -r line; do n=$((n+1)); case "$line" in
*end*) echo '{"done": true, "reward": '$n'}';;
*'"last":true'*) echo '{"reward": -1}';;
*) echo '{"messages": [{"role": "tool", "content": "4", "name": "add"}]}';; esac; done`)
	e := OpenEnvironment(EnvironmentConfig{Command: command, Workers: 2, Timeout: 10, OnError: "error"})
	defer e.Close()
	step := func(turns []Turn) string {
		replies, err := e.Step(t.Context(), turns)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, r := range replies {
			text += fmt.Sprintf("%s %v; ", r.Messages, r.Reward)
		}
		return text
	}
	const tool = `[{"role": "tool", "content": "4", "name": "add"}] NaN; `
	if got := step(turnsOf("a", "b", "c")); got != tool+tool+tool {
		t.Errorf("first turns: %s", got)
	}
	last := turnsOf("end", "end", "a")
	last[2].Last = true
	if got := step(last); got != "[] 3; [] 2; [] -1; " { // one copy has seen the first and the third conversation
		t.Errorf("second turns: %s", got)
	}
	if OpenEnvironment(EnvironmentConfig{}) != nil {
		t.Error("an environment without a program")
	}
}

// TestEnvironmentFails checks the errors of programs that write something else, and what a counted zero is.
func TestEnvironmentFails(t *testing.T) {
	const form = `, want {"messages": [...]} or {"done": true, "reward": number or null}`
	const message = ", want an object with role (tool, user or system) and content, a text"
	for script, want := range map[string]string{
		`echo good`:                                                    `it wrote "good"` + form,
		`echo '{"done": true, "reward": NaN}'`:                         `it wrote "{\"done\": true, \"reward\": NaN}"` + form,
		`echo '{"done": true, "rewards": 1}'`:                          `it wrote "{\"done\": true, \"rewards\": 1}"` + form,
		`echo '{}'`:                                                    "it wrote neither messages nor done: write messages to go on, or done to end",
		`echo '{"done": true, "messages": [{}]}'`:                      "it wrote done and messages: write messages to go on, or done to end",
		`echo '{"reward": 1, "messages": [{}]}'`:                       "it wrote a reward with messages: a reward is given at the end, with done",
		`echo '{"messages": [{"role": "tool"}]}'`:                      `messages[0] is {"role": "tool"}` + message,
		`echo '{"messages": [{"role": "assistant", "content": "x"}]}'`: `messages[0] is {"role": "assistant", "content": "x"}` + message,
		`sleep 60`:                         "no line came within 0.3 s, and the program was killed",
		`echo broken >&2; sleep 0.1; exit`: `the program ended: "broken"`,
	} {
		c := EnvironmentConfig{Command: scripted(t, script), Workers: 1, Timeout: 0.3, OnError: "error"}
		if strings.Contains(script, "broken") {
			c.Timeout = 10
		}
		e := OpenEnvironment(c)
		_, err := e.Step(t.Context(), turnsOf("yes"))
		want = `sh on turn 1, the answer "yes": ` + want + "; on_error: zero would count it and go on"
		if err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	e := OpenEnvironment(EnvironmentConfig{Command: scripted(t, "echo good"), Workers: 1, Timeout: 10, OnError: "zero"})
	defer e.Close()
	if got, err := e.Step(t.Context(), turnsOf("yes", "no")); err != nil || e.Zeros() != 2 || got[1].Reward != 0 {
		t.Errorf("%v, %d zeros: %v", got, e.Zeros(), err)
	}
}

// scripted is a program that does something for each line.
func scripted(t *testing.T, text string) []string {
	return script(t, "while read -r line; do "+text+"; done")
}
