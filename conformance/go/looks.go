// looks.go: the verbs about devices, the log and errors.
package main

import (
	"github.com/copyrpc/copyrpc/bindings/go"
)

func tellDevice(name string) (said, error) {
	devices, err := copyrpc.Devices()
	ports, active, drivers := 0, false, []string{}
	for _, port := range devices {
		if port.Name == name {
			ports, active, drivers = ports+1, active || port.Active, port.Drivers
		}
	}
	return said{"ports": ports, "active": active, "drivers": drivers}, err
}

func tellStatusText(name string) (said, error) {
	for status := copyrpc.Status(0); status > -100; status-- {
		if status.Name() == name {
			return said{"explained": status.Error() != ""}, nil
		}
	}
	return nil, errUnknown
}

// tellError tells why an endpoint, a channel or a queue has ended.
func tellError(err error) (said, error) {
	return said{"reason": statusOf(err), "explained": err != nil && err.Error() != ""}, nil
}
