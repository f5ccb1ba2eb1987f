package copyrpc_test

import (
	"strings"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestFlightRecords(t *testing.T) {
	t.Setenv("COPYRPC_FLIGHT_RECORDS", "16") // the contexts of a pair are opened without options
	p := newPair(t)
	p.serve(t, answer("good"))
	if _, err := p.client.Do(limited(t), copyrpc.Call{Method: 7, Request: []byte("12")}); err != nil {
		t.Fatal(err)
	}
	records, err := p.client.FlightRecords()
	if err != nil || !strings.Contains(records, " ms call user_data ") || !strings.Contains(records, "method 7, 2 bytes\n") ||
		!strings.Contains(records, "method 7, 4 bytes, status 0\n") {
		t.Error(records, err)
	}
}

func TestFlightRecordsOfNone(t *testing.T) {
	p := newPair(t)
	if records, err := p.client.FlightRecords(); err == nil {
		t.Error(records)
	}
}
