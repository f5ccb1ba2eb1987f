// looks.go: the verbs about devices, the log and errors.
package main

import (
	"os"
	"syscall"

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

// registerDmabuf has a file stand for the memory of another device: simnic takes any that can be mapped.
func (r *runner) registerDmabuf(l line) error {
	offset, length := l.number("offset"), l.number("length")
	file, err := os.CreateTemp("", "dmabuf")
	if err != nil {
		return err
	}
	defer file.Close()
	os.Remove(file.Name())
	if err = file.Truncate(int64(offset + length)); err != nil {
		return err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, offset+length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	region, err := r.context.RegisterDmabuf(int(file.Fd()), uint64(offset), uint64(length), addressOf(memory[offset:]),
		copyrpc.Access(l.number("access")))
	if err != nil {
		syscall.Munmap(memory)
		return err
	}
	r.things.Store(l["name"], region)
	r.dmabufs[region] = memory[offset:]
	return nil
}
