module localpool.dev/sanity

go 1.25.0

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/container-storage-interface/spec v1.13.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/grpc v1.83.1 // indirect
)
