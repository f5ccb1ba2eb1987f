package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// Each call ends once; those that are not idempotent were done at most once; all that are were answered.
func TestReconnectServersThatAreKilledAtRandom(t *testing.T) {
	const clients, callers, seed = 3, 8, 20261129
	servers := []*process{newProcess(t), newProcess(t)}
	for _, server := range servers {
		server.start(t)
	}
	var mutex sync.Mutex
	results := map[string]copyrpc.Result{}
	var stop atomic.Bool
	var running sync.WaitGroup
	endpoints := make([]*lasting, clients)
	for i := range endpoints {
		endpoints[i] = dialLasting(t, servers[0].address+","+servers[1].address, copyrpc.WithCallsMax(64))
		for caller := 0; caller < callers; caller++ {
			running.Add(1)
			go func(l *lasting, name string, random *rand.Rand) {
				defer running.Done()
				for number := 0; !stop.Load(); number++ {
					calls := make([]copyrpc.Call, []int{1, 1, 7}[random.Intn(3)])
					for k := range calls {
						calls[k].Idempotent = random.Intn(2) == 0
						calls[k].Request = []byte(fmt.Sprintf("%s.%d.%d.%t", name, number, k, calls[k].Idempotent))
					}
					ended, err := l.DoBatch(context.Background(), calls)
					if err != nil {
						t.Error(err)
						return
					}
					mutex.Lock()
					for k, result := range ended {
						results[string(calls[k].Request)] = result
					}
					mutex.Unlock()
				}
			}(endpoints[i], fmt.Sprintf("%d.%d", i, caller), rand.New(rand.NewSource(int64(seed+100*i+caller))))
		}
	}
	random := rand.New(rand.NewSource(seed))
	for ends := time.Now().Add(5 * time.Second); time.Now().Before(ends); {
		time.Sleep(time.Duration(50+random.Intn(400)) * time.Millisecond)
		server := servers[random.Intn(2)]
		server.end(t, []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}[random.Intn(3)])
		time.Sleep(time.Duration(random.Intn(100)) * time.Millisecond)
		server.start(t)
	}
	stop.Store(true)
	running.Wait()
	done, connections := map[string]int{}, 0
	for _, server := range servers {
		server.end(t, syscall.SIGKILL)
		for name, count := range server.done(t) {
			done[name] += count
		}
	}
	for _, endpoint := range endpoints {
		connections += endpoint.info(t).Connections
	}
	unknown := 0
	for name, result := range results {
		switch {
		case result.Err == nil:
			if string(result.Reply) != name || done[name] < 1 {
				t.Errorf("%s: %q, done %d times", name, result.Reply, done[name])
			}
		case strings.HasSuffix(name, "true") || !errors.Is(result.Err, copyrpc.ErrDisconnected):
			t.Errorf("%s: %v", name, result.Err)
		default:
			unknown++
		}
		if strings.HasSuffix(name, "false") && done[name] > 1 {
			t.Errorf("%s was done %d times", name, done[name])
		}
	}
	for name := range done {
		if _, found := results[name]; !found {
			t.Errorf("%s was done, and has not ended", name)
		}
	}
	if connections <= clients || len(results) < 100 {
		t.Fatalf("%d connections of %d clients, %d calls", connections, clients, len(results))
	}
	t.Logf("%d calls, %d unknown, %d connections", len(results), unknown, connections)
}
