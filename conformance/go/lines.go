// lines.go: the lines that the runner takes and tells, each a JSON object: commands that are checked by the schema, answers and events.
package main

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// said is members of an answer or an event.
type said map[string]any

// with adds those of others.
func (s said) with(others ...said) said {
	all := said{}
	for _, one := range append([]said{s}, others...) {
		for key, value := range one {
			all[key] = value
		}
	}
	return all
}

// big is a number as a line has it of which JSON may keep 53 bits only.
func big(number uint64) string {
	return strconv.FormatUint(number, 10)
}

var output sync.Mutex

func say(line said) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func event(kind string, members said) {
	say(members.with(said{"event": kind}))
}

// ---- Commands ----

// schema is the part of JSON Schema that members can do with.
type schema struct {
	Type       string
	Enum       []string
	Pattern    string
	Minimum    *float64
	Maximum    *float64
	Items      *schema
	Properties map[string]*schema
	Required   []string
}

func (s *schema) fits(value any) bool {
	switch value := value.(type) {
	case string:
		for _, choice := range s.Enum {
			if value == choice {
				return true
			}
		}
		return s.Enum == nil && s.Type == "string" && regexp.MustCompile(s.Pattern).MatchString(value)
	case float64:
		return s.Type == "integer" && value == math.Trunc(value) && (s.Minimum == nil || value >= *s.Minimum) && (s.Maximum == nil || value <= *s.Maximum)
	case bool:
		return s.Type == "boolean"
	case []any:
		for _, one := range value {
			if s.Items == nil || !s.Items.fits(one) {
				return false
			}
		}
		return s.Type == "array"
	}
	return false
}

// commands are those that the runner knows.
type commands struct {
	schemas map[string]*schema
	lacks   map[string]bool // verbs
}

func readCommands(path string, lacks ...string) (*commands, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct{ Definitions map[string]*schema }
	c := &commands{lacks: map[string]bool{}}
	for _, verb := range lacks {
		c.lacks[verb] = true
	}
	err = json.Unmarshal(text, &file)
	c.schemas = file.Definitions
	return c, err
}

func (c *commands) verbs() (verbs []string) {
	for verb := range c.schemas {
		if !c.lacks[verb] {
			verbs = append(verbs, verb)
		}
	}
	sort.Strings(verbs)
	return verbs
}

// take is the verb and the members of a line; or what is answered if it is refused.
func (c *commands) take(text []byte) (verb string, l line, refused said) {
	var command map[string]any
	if err := json.Unmarshal(text, &command); err != nil {
		return "", nil, said{"done": "NO_COMMAND"}
	}
	verb, ok := command["do"].(string)
	if !ok {
		return "", nil, said{"done": "NO_COMMAND"}
	}
	known := c.schemas[verb]
	if known == nil || c.lacks[verb] {
		return "", nil, said{"done": "UNKNOWN_VERB"}
	}
	for member := range command {
		if known.Properties[member] == nil {
			return "", nil, said{"done": "UNKNOWN_MEMBER", "member": member}
		}
	}
	for member, value := range command {
		if !known.Properties[member].fits(value) {
			return "", nil, said{"done": "WRONG_TYPE", "member": member}
		}
	}
	for _, member := range known.Required {
		if _, ok := command[member]; !ok {
			return "", nil, said{"done": "MISSING_MEMBER", "member": member}
		}
	}
	return verb, lineOf(command), nil
}

// line is the members of a command as texts: a truth is 1 or left out, and a list has commas.
type line map[string]string

func lineOf(command map[string]any) line {
	l := line{}
	for member, value := range command {
		switch value := value.(type) {
		case string:
			l[member] = value
		case bool:
			if value {
				l[member] = "1"
			}
		case float64:
			l[member] = strconv.FormatInt(int64(value), 10)
		case []any:
			var numbers []string
			for _, one := range value {
				numbers = append(numbers, strconv.FormatInt(int64(one.(float64)), 10))
			}
			l[member] = strings.Join(numbers, ",")
		}
	}
	return l
}
