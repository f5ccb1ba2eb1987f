module github.com/copyrpc/copyrpc/bench/go

go 1.21

require (
	github.com/copyrpc/copyrpc/bindings/go v0.0.0
	github.com/copyrpc/copyrpc/examples/go v0.0.0
)

replace (
	github.com/copyrpc/copyrpc/bindings/go => ../../bindings/go
	github.com/copyrpc/copyrpc/examples/go => ../../examples/go
)
