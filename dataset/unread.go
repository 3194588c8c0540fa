package dataset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Unread is a key of rows that nothing reads.
type Unread struct {
	Key  string `json:"key"`  // at most maxUnreadKey bytes of it
	Rows int    `json:"rows"` // that have it with a value which is not null and not empty
	// Advice says how it can be read; "" = nothing can be said.
	Advice string `json:"advice,omitempty"`
}

// Bounds of what a report keeps of keys that nothing reads.
const (
	maxUnread    = 64
	maxUnreadKey = 60 // bytes
)

// contextKeys are keys that say what an answer is given to. A run whose rows have them unread trains something else than
// the rows mean, so that it warns.
var contextKeys = []string{
	"system", "system_prompt", "history", "context", "contexts", "document", "documents", "passage", "passages", "input", "instruction", "question",
	"tools", "functions", "messages", "conversations", "conversation",
}

// bookkeepingKeys are keys that people keep beside rows for themselves: where a row is from, what it is called, what was
// measured of it.
var bookkeepingKeys = strings.Fields(`_id author category class created created_at custom_id data_source dataset dataset_name date difficulty domain
		end file filename generator guid hash id idx index intent key lang language level license line md5 meta metadata model model_name name no
		num number origin position quality rank rating row score sha sha256 size source split src start status subject subset tag tags task
		task_name task_type time timestamp title topic type uid unnamed updated_at url user uuid version`)

// bookkeeping reports whether a key is one of bookkeepingKeys, an identifier, a number of something, or an index that a
// program wrote (pandas: "", "Unnamed: 0", "__index_level_0__").
func bookkeeping(key string) bool {
	key = strings.ToLower(strings.TrimSpace(key))
	for _, ending := range []string{"_id", "_ids", "_idx", "_index", "_hash", "_url", "_date", "_count", "_score", "_tokens", "_length"} {
		if strings.HasSuffix(key, ending) {
			return true
		}
	}
	for _, beginning := range []string{"num_", "n_", "unnamed:", "__index_level_"} {
		if strings.HasPrefix(key, beginning) {
			return true
		}
	}
	return key == "" || slices.Contains(bookkeepingKeys, key)
}

// fields is a row seen through the roles of the file's format. Where the row lacks the key that the file's first row had
// for an optional field, another key of that field serves.
func (s *loading) fields(o Object) Fields {
	keys := s.keys
	for _, r := range s.format.Roles {
		bound := s.keys[r.Name]
		if _, mapped := s.cfg.Fields[r.Name]; mapped || !r.Optional || len(r.Keys) < 2 || o.filled(bound) {
			continue
		}
		for _, key := range r.Keys {
			if key != bound && o.filled(key) {
				keys = maps.Clone(keys)
				keys[r.Name] = key
				break
			}
		}
	}
	return Fields{row: o, keys: keys}
}

// filled reports whether a key has a value that is not null and not empty.
func (o Object) filled(key string) bool {
	v, ok := o.lookup(key)
	return ok && !empty(v)
}

// empty reports whether a value is null, or a text, list or object of nothing.
func empty(value []byte) bool {
	switch string(value) {
	case "null", `""`, "[]", "{}":
		return true
	}
	if k := kindOf(value); k == "a list" || k == "an object" {
		i := skipSpace(value, skipSpace(value, 0)+1)
		return value[i] == ']' || value[i] == '}'
	}
	return false
}

// unread lists the keys of a row that nothing reads, in their order; unused are keys of fields that gave way to others.
func (s *loading) unread(f Fields, unused []string) []string {
	keys := unused
	for i, key := range f.row.keys {
		if empty(f.row.values[i]) {
			continue
		}
		of := func(field string) bool {
			return field == key || strings.HasPrefix(field, key) && field[len(key)] == '.'
		}
		if slices.ContainsFunc(s.reads, of) {
			continue
		}
		other := false // a key that serves this row alone
		for _, r := range s.format.Roles {
			other = other || f.keys[r.Name] == key
		}
		if !other {
			keys = append(keys, clip(key, maxUnreadKey))
		}
	}
	return keys
}

// advise notes how the keys can be read that rows so far have unread.
func (s *loading) advise() {
	for i, u := range s.report.Unread {
		if u.Advice == "" {
			s.report.Unread[i].Advice = s.format.advice(s.report.Format, u.Key, s.keys)
		}
	}
}

// advice says how a key can be read that the format does not read; "" = nothing can be said. keys are bound to its fields.
func (f Format) advice(name, key string, keys map[string]string) string {
	if f.AsChat == nil {
		return ""
	}
	if name == "completion" && key == "context" {
		return fmt.Sprintf("set dataset.format: alpaca and dataset.fields: {instruction: %s, input: context, output: %s} to train it behind the question",
			yamlKey(keys["prompt"]), yamlKey(keys["completion"]))
	}
	var more []string
	found := false
	for _, r := range f.asConversations().Roles {
		if !f.hasRoles([]string{r.Name}) {
			more = append(more, r.Name)
			found = found || slices.Contains(r.Keys, key)
		}
	}
	if f.Chat || !found {
		return ""
	}
	return "set dataset.as_chat: yes to read " + strings.Join(more, " and ")
}

func (r *Report) countUnread(u Unread) {
	i := slices.IndexFunc(r.Unread, func(known Unread) bool { return known.Key == u.Key })
	switch {
	case i >= 0:
		r.Unread[i].Rows += u.Rows
	case len(r.Unread) < maxUnread:
		r.Unread = append(r.Unread, u)
	default:
		r.UnreadMore += u.Rows
	}
}

// addUnread sums up another report's keys.
func (r *Report) addUnread(o *Report) {
	for _, u := range o.Unread {
		r.countUnread(u)
	}
	r.UnreadMore += o.UnreadMore
}

// KeysNotRead lists the keys of rows that nothing reads, with the rows that have them and how they can be read: "context in
// 12 rows, functions in 2 rows; bookkeeping: id, source". It is "" where everything is read.
func (r *Report) KeysNotRead() string {
	var keys, aside, advice []string
	for _, u := range r.Unread {
		if bookkeeping(u.Key) {
			aside = append(aside, keyText(u.Key))
			continue
		}
		keys = append(keys, fmt.Sprintf("%s in %s", keyText(u.Key), counted(u.Rows, "row")))
		if u.Advice != "" && !slices.Contains(advice, u.Advice) {
			advice = append(advice, u.Advice)
		}
	}
	if r.UnreadMore > 0 {
		keys = append(keys, "and others")
	}
	text := strings.Join(keys, ", ")
	if aside != nil {
		text = strings.TrimPrefix(text+"; bookkeeping: "+strings.Join(aside, ", "), "; ")
	}
	if advice != nil {
		text += "; " + strings.Join(advice, "; ")
	}
	return text
}

// unreadWarning says which keys that give an answer its context are not read; "" = none.
func (r *Report) unreadWarning() string {
	for _, u := range r.Unread {
		if slices.Contains(contextKeys, strings.ToLower(u.Key)) {
			return "keys not read: " + r.KeysNotRead()
		}
	}
	return ""
}

// keyText is a key of a file as a report shows it.
func keyText(key string) string {
	plain := func(c rune) bool {
		return unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("_-.:/ ", c)
	}
	if key != "" && strings.TrimSpace(key) == key && !strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) {
		return key
	}
	return strconv.Quote(key)
}
