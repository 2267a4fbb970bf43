module trireme.dev/e2e/tools/workload

go 1.26.0
