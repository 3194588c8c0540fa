package importer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// shellWord is a word of a shell command. code marks a word with an expansion whose value the script does not give.
type shellWord struct {
	text string
	line int
	code bool
}

// assignment matches a word that sets a variable.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// swiftCommands are the subcommands of ms-swift that train.
var swiftCommands = map[string]bool{"pt": true, "sft": true, "rlhf": true}

// readShell returns the arguments of the only training command of ms-swift in a shell script, and the subcommand. It
// reads the script as text and runs nothing: variables have the values that the script itself assigns to them.
func readShell(src string) (m Map, command string, err error) {
	lines, err := shellLines(src)
	if err != nil {
		return nil, "", err
	}
	for _, words := range lines {
		name, args := swiftCommand(words)
		if name == "" {
			continue
		}
		if command != "" {
			return nil, "", fmt.Errorf("line %d begins a second training command of ms-swift: leave one in the file",
				words[0].line)
		}
		if m, err = shellArguments(args); err != nil {
			return nil, "", err
		}
		command = name
	}
	if command == "" {
		return nil, "", errors.New("it has no command swift pt, swift sft or swift rlhf: of scripts of the shell only " +
			"ms-swift's are read")
	}
	return m, command, nil
}

// swiftCommand returns the subcommand of ms-swift that the words of a command call, and its arguments; "" = none.
func swiftCommand(words []shellWord) (name string, args []shellWord) {
	for i, w := range words {
		if before, ok := strings.CutSuffix(w.text, ".py"); ok { // torchrun .../swift/cli/sft.py
			if _, name, ok := strings.Cut(before, "swift/cli/"); ok && swiftCommands[name] {
				return name, words[i+1:]
			}
		}
		if w.text == "swift" && i+1 < len(words) && swiftCommands[words[i+1].text] {
			return words[i+1].text, words[i+2:]
		}
	}
	return "", nil
}

// shellArguments returns arguments such as --key value, --key=value or --key with several values as keys of a file.
func shellArguments(words []shellWord) (m Map, err error) {
	for i := 0; i < len(words); {
		key, ok := strings.CutPrefix(words[i].text, "--")
		if !ok || key == "" || key[0] == '=' {
			return nil, fmt.Errorf("line %d: %q stands where an argument such as --model is expected", words[i].line,
				shorten(words[i].text))
		}
		line, values := words[i].line, []any(nil)
		if name, value, ok := strings.Cut(key, "="); ok {
			key, values = name, append(values, shellValue(shellWord{value, line, words[i].code}))
		}
		for i++; i < len(words) && (!strings.HasPrefix(words[i].text, "--") || words[i].code); i++ {
			values = append(values, shellValue(words[i]))
		}
		p := Pair{Key: key, Value: any(values), Line: line}
		switch len(values) {
		case 0:
			p.Value = true
		case 1:
			p.Value = values[0]
		}
		if m = append(m, p); len(m) > maxValues {
			return nil, errMany
		}
	}
	return m, nil
}

// shellValue returns the value of a word: a number, true or false, a table in JSON, or text.
func shellValue(w shellWord) any {
	switch {
	case w.code:
		return Code(w.text)
	case w.text == "true" || w.text == "True":
		return true
	case w.text == "false" || w.text == "False":
		return false
	case strings.HasPrefix(w.text, "{"):
		if m, err := parseJSON([]byte(w.text)); err == nil {
			return m
		}
	}
	return number(w.text)
}

// shellLines returns the words of each command of a script, without those that only set variables.
func shellLines(src string) (all [][]shellWord, err error) {
	s := shellScanner{src: src, line: 1, variables: map[string]string{}}
	for s.at < len(s.src) {
		words, err := s.command()
		if err != nil {
			return nil, err
		}
		if words = s.assign(words); len(words) > 0 {
			all = append(all, words)
		}
		if s.words > maxValues {
			return nil, errMany
		}
	}
	return all, nil
}

// shellScanner reads a script from its start to its end.
type shellScanner struct {
	src       string
	at        int // the next byte
	line      int // the line of that byte
	words     int // how many words were read
	variables map[string]string
}

// assign keeps the values of variables that a command begins with, and returns the words after them.
func (s *shellScanner) assign(words []shellWord) []shellWord {
	if len(words) > 0 && words[0].text == "export" {
		words = words[1:]
	}
	for len(words) > 0 && assignment.MatchString(words[0].text) {
		name, value, _ := strings.Cut(words[0].text, "=")
		if !words[0].code && len(value) <= maxConfigBytes/64 {
			s.variables[name] = value
		}
		words = words[1:]
	}
	return words
}

// command returns the words up to the end of a command: an end of line that no backslash precedes, ";", "|" or "&".
func (s *shellScanner) command() (words []shellWord, err error) {
	for s.at < len(s.src) {
		switch c := s.src[s.at]; {
		case c == '\n':
			s.at, s.line = s.at+1, s.line+1
			return words, nil
		case c == ';' || c == '|' || c == '&':
			s.at++
			return words, nil
		case c == ' ' || c == '\t' || c == '\r':
			s.at++
		case c == '#':
			for s.at < len(s.src) && s.src[s.at] != '\n' {
				s.at++
			}
		case c == '\\' && s.endOfLine(s.at+1) > 0:
			s.at, s.line = s.endOfLine(s.at+1), s.line+1
		default:
			w, err := s.word()
			if err != nil {
				return nil, err
			}
			s.words++
			words = append(words, w)
		}
	}
	return words, nil
}

// endOfLine returns the place after an end of line at i, blanks before it included; 0 = there is none.
func (s *shellScanner) endOfLine(i int) int {
	for ; i < len(s.src) && (s.src[i] == ' ' || s.src[i] == '\t' || s.src[i] == '\r'); i++ {
	}
	if i < len(s.src) && s.src[i] == '\n' {
		return i + 1
	}
	return 0
}

// word returns the next word, without its quotes and with the values of known variables.
func (s *shellScanner) word() (w shellWord, err error) {
	var text strings.Builder
	w.line = s.line
	for s.at < len(s.src) && !strings.ContainsRune(" \t\r\n;|&", rune(s.src[s.at])) {
		switch c := s.src[s.at]; {
		case c == '\'':
			end := strings.IndexByte(s.src[s.at+1:], '\'')
			if end < 0 {
				return w, fmt.Errorf("line %d: a quotation mark has no end", w.line)
			}
			text.WriteString(s.src[s.at+1:][:end])
			s.line += strings.Count(s.src[s.at+1:][:end], "\n")
			s.at += end + 2
		case c == '"':
			if err := s.quoted(&text, &w); err != nil {
				return w, err
			}
		case c == '\\' && s.endOfLine(s.at+1) > 0:
			w.text = text.String()
			return w, nil
		case c == '\\' && s.at+1 < len(s.src):
			text.WriteByte(s.src[s.at+1])
			s.at += 2
		case c == '$':
			s.expand(&text, &w)
		case c == '`':
			w.code = true
			fallthrough
		default:
			text.WriteByte(c)
			s.at++
		}
		if text.Len() > maxConfigBytes {
			return w, errMany
		}
	}
	w.text = text.String()
	return w, nil
}

// quoted reads a part of a word between double quotation marks.
func (s *shellScanner) quoted(text *strings.Builder, w *shellWord) error {
	for s.at++; s.at < len(s.src); {
		switch c := s.src[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c == '\\' && s.at+1 < len(s.src) && strings.IndexByte("\"\\$`", s.src[s.at+1]) >= 0:
			text.WriteByte(s.src[s.at+1])
			s.at += 2
		case c == '$':
			s.expand(text, w)
		default:
			if c == '\n' {
				s.line++
			}
			text.WriteByte(c)
			s.at++
		}
		if text.Len() > maxConfigBytes {
			return errMany
		}
	}
	return fmt.Errorf("line %d: a quotation mark has no end", w.line)
}

// variable matches the use of a variable.
var variable = regexp.MustCompile(`^\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// expand reads an expansion. Of a variable that the script sets it writes the value; any other one makes the word code.
func (s *shellScanner) expand(text *strings.Builder, w *shellWord) {
	m := variable.FindStringSubmatch(s.src[s.at:])
	if m == nil {
		w.code = true
		text.WriteByte('$')
		s.at++
		return
	}
	value, known := s.variables[m[1]+m[2]]
	if !known {
		value, w.code = m[0], true
	}
	text.WriteString(value)
	s.at += len(m[0])
}
