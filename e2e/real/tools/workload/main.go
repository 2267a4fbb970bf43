// Command workload is the only program in the only image of the real-cluster tests, and needs nothing else in it.
//
//	workload          prints its environment, then waits for SIGTERM, or as long as RUN_FOR says, and exits with EXIT_CODE
//	workload env      prints its environment and exits
//	workload succeed  exits with 0
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	mode := "run"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if mode == "succeed" {
		return
	}
	for _, entry := range os.Environ() {
		fmt.Println(entry)
	}
	if mode == "env" {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	var over <-chan time.Time
	if limit, err := time.ParseDuration(os.Getenv("RUN_FOR")); err == nil {
		over = time.After(limit)
	}
	select {
	case <-stop:
	case <-over:
	}
	code, _ := strconv.Atoi(os.Getenv("EXIT_CODE"))
	os.Exit(code)
}
