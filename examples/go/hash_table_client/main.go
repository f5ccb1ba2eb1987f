// hash_table_client looks up, inserts and updates in the memory of hash_table_server (examples/c).
//
//	hash_table_client ADDRESS get KEY           prints the value; status 2 if it is not there
//	hash_table_client ADDRESS put KEY VALUE
//	hash_table_client ADDRESS add KEY NUMBER    to the number that is its value; prints the sum
//	hash_table_client ADDRESS storm NAME ROUNDS [OTHER...]
//
// It uses READ, WRITE and compare-and-swap alone; the server's processor does nothing for it. hash_table.h in examples/c has the
// layout, and says why it is right, whatever other clients do. A storm is for tests: many puts, adds and gets at once with those of
// others, each checked.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/copyrpc/copyrpc/examples/go/options"
)

const (
	counters = 4
	keys     = 8 // of each client of a storm
)

var (
	errNotThere = errors.New("it is not there")
	errUsage    = errors.New("usage: hash_table_client ADDRESS get KEY | put KEY VALUE | add KEY NUMBER | storm NAME ROUNDS [OTHER...]")
)

func main() {
	options.Parse("ADDRESS COMMAND [WORD...]")
	ctx := context.Background()
	err := errUsage
	if command := commandOf(flag.Args()); command != nil {
		err = run(ctx, flag.Arg(0), command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hash_table_client:", err)
		if errors.Is(err, errNotThere) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// commandOf returns what the words ask for, or nil.
func commandOf(words []string) func(context.Context, *table) error {
	if len(words) < 3 {
		return nil
	}
	key, last := []byte(words[2]), words[len(words)-1]
	switch command, more := words[1], words[3:]; {
	case command == "get" && len(more) == 0:
		return func(ctx context.Context, t *table) error {
			value, err := t.get(ctx, key)
			if err == nil && value == nil {
				err = fmt.Errorf("%s: %w", key, errNotThere)
			}
			if err == nil {
				fmt.Printf("%s\n", value)
			}
			return err
		}
	case command == "put" && len(more) == 1:
		return func(ctx context.Context, t *table) error { return t.put(ctx, key, []byte(last)) }
	case command == "add" && len(more) == 1:
		number, err := strconv.ParseUint(last, 10, 64)
		if err != nil {
			return nil
		}
		return func(ctx context.Context, t *table) error {
			sum, err := t.add(ctx, key, number)
			if err == nil {
				fmt.Println(sum)
			}
			return err
		}
	case command == "storm" && len(more) >= 1:
		rounds, err := strconv.Atoi(more[0])
		if err != nil || rounds < 0 {
			return nil
		}
		return func(ctx context.Context, t *table) error { return storm(ctx, t, words[2], rounds, more[1:]) }
	}
	return nil
}

func run(ctx context.Context, address string, command func(context.Context, *table) error) error {
	t, err := openTable(ctx, address)
	if err != nil {
		return err
	}
	err = command(ctx, t)
	if leaving := t.close(ctx); err == nil {
		err = leaving
	}
	return err
}

// ---- A storm ------------------------------------------------------------------------------------

// valueOf is a value in which bytes of another round would be noticed.
func valueOf(key string, round int) []byte {
	return append([]byte(fmt.Sprintf("%s %d ", key, round)), bytes.Repeat([]byte{byte('a' + round%26)}, round*7%40)...)
}

// roundIn gets an entry of somebody's storm, and checks all of it. It returns 0 if the entry is not there.
func roundIn(ctx context.Context, t *table, key string) (int, error) {
	value, err := t.get(ctx, []byte(key))
	if value == nil || err != nil {
		return 0, err
	}
	var name string
	var round int
	if _, err := fmt.Sscan(string(value), &name, &round); err != nil || !bytes.Equal(value, valueOf(key, round)) {
		return 0, fmt.Errorf("%s: its value is not whole", key)
	}
	return round, nil
}

// meet waits until each of the others has begun, so that they meet.
func meet(ctx context.Context, t *table, others []string) error {
	for _, other := range others {
		for {
			found, err := roundIn(ctx, t, other+"-1")
			if err != nil {
				return err
			}
			if found > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func storm(ctx context.Context, t *table, name string, rounds int, others []string) error {
	seen := map[string]int{}
	for round := 1; round <= rounds; round++ {
		if _, err := t.add(ctx, []byte(fmt.Sprintf("counter-%d", round%counters)), 1); err != nil {
			return err
		}
		own := fmt.Sprintf("%s-%d", name, round%keys)
		if err := t.put(ctx, []byte(own), valueOf(own, round)); err != nil {
			return err
		}
		found, err := roundIn(ctx, t, own)
		if err != nil {
			return err
		}
		if found != round {
			return fmt.Errorf("%s: it is not what this client has put there", own)
		}
		for _, other := range others {
			key := fmt.Sprintf("%s-%d", other, round%keys)
			found, err := roundIn(ctx, t, key)
			if err != nil {
				return err
			}
			if found < seen[key] {
				return fmt.Errorf("%s: its value is older than what was there before", key)
			}
			seen[key] = found
		}
		if round == 1 {
			if err := meet(ctx, t, others); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s: %d rounds\n", name, rounds)
	return nil
}
