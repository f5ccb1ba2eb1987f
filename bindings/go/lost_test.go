package copyrpc_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// lostWarnings collects garbage until there are as many warnings as are expected of what was lost that `made` tells, and for a
// while longer, so that one too many shows too. What tests before this one have lost was made otherwise.
func lostWarnings(expected int, made ...string) []string {
	var texts []string
	deadline := time.Now().Add(60 * time.Second)
	for more := 5; more > 0 && time.Now().Before(deadline); {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		for _, text := range collected.take() {
			for _, name := range made {
				if strings.Contains(text, "("+name+") was lost without being closed") {
					texts = append(texts, text)
				}
			}
		}
		if len(texts) >= expected {
			more--
		}
	}
	return texts
}

func TestLostObjectsAreWarnedOf(t *testing.T) {
	p := newPair(t)
	listens := ""
	lose := func() {
		client, server := p.connectUnclosed(t)
		defer runtime.KeepAlive(client)
		t.Cleanup(func() { server.Close() })
		listener, err := p.clientContext.Listen(host() + ":0")
		check(t, err)
		listens = "listen " + listener.Address()
		_, err = copyrpc.Open()
		check(t, err)
	}
	lose()
	info, err := p.clientContext.Info()
	check(t, err)
	said := strings.Join(lostWarnings(3, "dial "+p.listener.Address(), listens, info.Device), "; ")
	for _, name := range []string{"an Endpoint", "a Listener", "a Context"} {
		if strings.Count(said, name+" (") != 1 {
			t.Errorf("%s is not warned of once: %q", name, said)
		}
	}
}

func TestLostQueuesAreWarnedOf(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	listens := ""
	lose := func() {
		accepted := make(chan *copyrpc.Queue, 1)
		go func() {
			far, _ := p.listener.Accept(limited(t), copyrpc.QueueOptions{})
			accepted <- far
		}()
		near, err := p.contexts[0].ConnectQueue(limited(t), p.listener.Address(), copyrpc.QueueOptions{})
		check(t, err)
		_, err = near.Batch(1)
		check(t, err)
		far := <-accepted
		t.Cleanup(func() { far.Close() })
		listener, err := p.contexts[0].ListenQueues(host() + ":0")
		check(t, err)
		listens = "listen " + listener.Address()
		_, err = p.contexts[0].OpenSharedReceives(copyrpc.QueueOptions{Receives: 1})
		check(t, err)
	}
	lose()
	made := []string{"connect queue " + p.listener.Address(), listens, "open shared receives", "batch of ops"}
	said := strings.Join(lostWarnings(4, made...), "; ")
	for _, name := range []string{"a Queue", "a QueueListener", "a SharedReceives", "a QueueBatch"} {
		if strings.Count(said, name+" (") != 1 {
			t.Errorf("%s is not warned of once: %q", name, said)
		}
	}
}

// connectUnclosed connects without closing at the end of the test.
func (p *pair) connectUnclosed(t *testing.T) (client, server *copyrpc.Endpoint) {
	accepted := make(chan *copyrpc.Endpoint, 1)
	go func() {
		server, _ := p.listener.Accept(limited(t))
		accepted <- server
	}()
	client, err := p.clientContext.Dial(limited(t), p.listener.Address())
	check(t, err)
	return client, <-accepted
}

// A Context's Close closes what was made from it; who forgets those afterwards has forgotten nothing.
func TestWhatItsContextClosedIsNoLoss(t *testing.T) {
	p := newPair(t)
	witness := newPair(t)
	listens := ""
	lose := func() {
		_, server := p.connectUnclosed(t)
		t.Cleanup(func() { server.Close() })
		listener, err := p.clientContext.Listen(host() + ":0")
		check(t, err)
		listens = "listen " + listener.Address()
		check(t, p.clientContext.Close())
		_, server = witness.connectUnclosed(t) // by which one sees that the finalizers have run
		t.Cleanup(func() { server.Close() })
	}
	lose()
	if texts := lostWarnings(1, "dial "+witness.listener.Address(), "dial "+p.listener.Address(), listens); len(texts) != 1 {
		t.Fatalf("%q: only the witness' endpoint is lost", texts)
	}
}

// An endpoint that is over has been closed by the poller; there is nothing that its Close would free.
func TestWhatIsOverIsNoLoss(t *testing.T) {
	p := newPair(t)
	witness := newPair(t)
	lose := func() {
		client, server := p.connectUnclosed(t)
		check(t, server.Close())
		select {
		case <-client.Done():
		case <-limited(t).Done():
			t.Fatal("the client did not hear of it")
		}
		_, server = witness.connectUnclosed(t)
		t.Cleanup(func() { server.Close() })
	}
	lose()
	if texts := lostWarnings(1, "dial "+witness.listener.Address(), "dial "+p.listener.Address()); len(texts) != 1 {
		t.Fatalf("%q: only the witness' endpoint is lost", texts)
	}
}

// In a shared context an endpoint that is over keeps the device open until its Close.
func TestWhatIsOverKeepsASharedContext(t *testing.T) {
	listener, err := openContext(t).Listen(host() + ":0")
	check(t, err)
	defer listener.Close()
	accepted := make(chan *copyrpc.Endpoint, 1)
	go func() {
		server, _ := listener.Accept(limited(t))
		accepted <- server
	}()
	// A device that no other test names, and hence a context that no other test shares.
	lose := func() {
		client, err := copyrpc.Dial(limited(t), listener.Address(), copyrpc.WithEndpointsMax(17))
		check(t, err)
		check(t, (<-accepted).Close())
		<-client.Done()
	}
	lose()
	if texts := lostWarnings(1, "dial "+listener.Address()); len(texts) != 1 {
		t.Fatalf("%q: one endpoint is lost", texts)
	}
}
