package copyrpc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestMetricsAreServed(t *testing.T) {
	t.Setenv("COPYRPC_METRICS", "1") // the contexts of a pair are opened without options
	var router copyrpc.Router
	router.HandleName("metrics.get", answer("get"))
	p := newPair(t)
	p.serve(t, router.Serve)
	for i := 0; i < 3; i++ {
		if _, err := p.client.Do(limited(t), copyrpc.Call{Method: copyrpc.MethodNumber("metrics.get"), Request: []byte("12")}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(p.clientContext.MetricsHandler())
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatal(answer.Header, err)
	}
	for _, line := range []string{"copyrpc_client_started_total", "copyrpc_client_handled_total", "copyrpc_client_handling_seconds_count"} {
		if !strings.Contains(string(text), "\n"+line+"{") {
			t.Errorf("no %s in %s", line, text)
		}
	}
	if !strings.Contains(string(text), "method=\"metrics.get\"} 3\n") {
		t.Errorf("%s", text)
	}
	var all strings.Builder
	if err := p.clientContext.WriteEndpointMetrics(&all); err != nil || !strings.Contains(all.String(), "\ncopyrpc_endpoint_calls_total{") {
		t.Error(err, all.String())
	}
}
