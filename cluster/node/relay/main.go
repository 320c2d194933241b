// Stands in for kube-proxy for the one service address that every program in a cluster knows: that of the apiserver.
// Takes two addresses, listens on the first and copies each connection to the second. Connections that are open when
// the apiserver goes away break, as they would behind kube-proxy.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: relay LISTEN-ADDRESS TARGET-ADDRESS")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "relay: cannot listen on %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	for {
		accepted, err := listener.Accept()
		if err != nil {
			fmt.Fprintf(os.Stderr, "relay: cannot accept on %s: %v\n", os.Args[1], err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go carry(accepted, os.Args[2])
	}
}

func carry(client net.Conn, address string) {
	defer client.Close()
	target, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return
	}
	defer target.Close()
	var directions sync.WaitGroup
	directions.Go(func() { oneWay(target, client) })
	directions.Go(func() { oneWay(client, target) })
	directions.Wait()
}

// A watch keeps one direction silent for hours, so only the end of a stream ends it, and only that half.
func oneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if err != nil {
		to.Close()
		from.Close()
		return
	}
	to.(*net.TCPConn).CloseWrite()
}
