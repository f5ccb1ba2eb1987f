package copyrpc_test

import (
	"strings"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// portOf describes the port that contexts open.
func portOf(t *testing.T) copyrpc.DeviceInfo {
	info, err := openContext(t).Info()
	check(t, err)
	devices, err := copyrpc.Devices()
	check(t, err)
	for _, device := range devices {
		if device.Name == info.Device && device.Port == info.Port {
			return device
		}
	}
	t.Fatalf("no port %+v", info)
	return copyrpc.DeviceInfo{}
}

func network(t *testing.T, c *copyrpc.Context) [5]int {
	info, err := c.Info()
	check(t, err)
	return [5]int{info.TrafficClass, info.ServiceLevel, info.PartitionKey, info.RetryTimeout, info.RetryCount}
}

func TestNetworkOptions(t *testing.T) {
	device := portOf(t)
	if !device.InfiniBand && (device.PartitionKey != 0xffff || device.GRHRequired) {
		t.Fatalf("%+v", device)
	}
	if got, want := network(t, openContext(t)), [5]int{0, 0, device.PartitionKey, 0, 0}; got != want {
		t.Fatalf("%v, not %v", got, want)
	}
	options := []copyrpc.Option{copyrpc.WithTrafficClass(106), copyrpc.WithServiceLevel(5), copyrpc.WithPartitionKey(device.PartitionKey),
		copyrpc.WithContextRetry(18, 5)}
	if got, want := network(t, openContext(t, options...)), [5]int{106, 5, device.PartitionKey, 18, 5}; got != want {
		t.Fatalf("%v, not %v", got, want)
	}
	c := openContext(t, copyrpc.WithRails(), copyrpc.WithGIDIndex(device.GIDIndex), copyrpc.WithRailsGIDIndex())
	rails, err := c.Rails()
	check(t, err)
	for _, rail := range rails {
		if rail.GIDIndex != device.GIDIndex {
			t.Fatalf("%+v", rail)
		}
	}
}

func TestNetworkOptionsThatAreWrong(t *testing.T) {
	for _, wrong := range []struct {
		option copyrpc.Option
		word   string
	}{
		{copyrpc.WithTrafficClass(256), "traffic_class"}, {copyrpc.WithTrafficClass(-1), "traffic_class"},
		{copyrpc.WithServiceLevel(16), "service_level"}, {copyrpc.WithPartitionKey(0x8000), "partition_key"},
		{copyrpc.WithPartitionKey(0x8123), "no P_Key 0x8123; it has"}, {copyrpc.WithContextRetry(32, 0), "retry_timeout"},
		{copyrpc.WithContextRetry(0, 8), "retry_count"}, {copyrpc.WithRailsGIDIndex(), "CRPC_CONTEXT_RAILS_GID_INDEX"},
	} {
		_, err := copyrpc.Open(wrong.option)
		is(t, err, copyrpc.ErrInvalid)
		if !strings.Contains(err.Error(), wrong.word) {
			t.Fatalf("%q is not in: %v", wrong.word, err)
		}
	}
}

func TestNetworkOptionsOfTheEnvironment(t *testing.T) {
	t.Setenv("COPYRPC_TRAFFIC_CLASS", "0x6a")
	t.Setenv("COPYRPC_RETRY_TIMEOUT", "20")
	if got := network(t, openContext(t)); got[0] != 106 || got[3] != 20 {
		t.Fatalf("%v", got)
	}
	if got := network(t, openContext(t, copyrpc.WithTrafficClass(7))); got[0] != 7 || got[3] != 20 {
		t.Fatalf("%v", got)
	}
	t.Setenv("COPYRPC_TRAFFIC_CLASS", "loud")
	_, err := copyrpc.Open()
	is(t, err, copyrpc.ErrInvalid)
	if !strings.Contains(err.Error(), "COPYRPC_TRAFFIC_CLASS=loud") {
		t.Fatal(err)
	}
}

func TestAnAddressKeepsThatAPortRequiresAGRH(t *testing.T) {
	r, err := copyrpc.OpenRaw(copyrpc.RawSizes{}, copyrpc.WithQueues())
	check(t, err)
	defer r.Close()
	queue, err := r.OpenDatagrams(1, copyrpc.QueueOptions{})
	check(t, err)
	address, err := r.QueueAddress(queue)
	check(t, err)
	info, err := r.Info()
	check(t, err)
	if address.GRHRequired != info.GRHRequired {
		t.Fatalf("%+v, %+v", address, info)
	}
	address.GRHRequired = true
	target, err := r.OpenTarget(address, copyrpc.TargetOptions{})
	check(t, err)
	check(t, r.CloseTarget(target))
}
