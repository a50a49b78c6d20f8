# Hoga: two commands matter, `make run` and `make test`. Both do their own set-up and say what they do.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run build test lint unit crash faults plant clients browser web deny bench clean setup

DATA ?= data

help:            ## what there is
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build       ## build everything and start it: market, ticks, API and console on http://127.0.0.1:8080
	@exec target/release/hoga up --feed --data $(DATA)

build: web       ## the optimised binary with the console inside
	@echo "== building hoga (release; the first build takes some minutes)"
	cargo build --release --locked -p hoga

web: setup       ## the console
	@scripts/web.sh

setup:           ## what a fresh Debian machine lacks
	@scripts/setup.sh

test:            ## everything: lints, unit and property tests, real servers, crash rounds, faults, real clients, a real browser
	@scripts/test.sh

lint: setup      ## format, clippy, licences
	@scripts/test.sh lint

unit: setup web  ## the Rust and console tests
	@scripts/test.sh unit

crash: setup web ## kill -9 rounds on the real binary; ROUNDS=20
	@scripts/test.sh crash

faults: setup web ## Kafka, PostgreSQL, consumers and the exchange taken away under load; OUTAGE=30
	@scripts/test.sh faults

plant: setup web  ## the tick plant's members and servers killed, paused and taken away under load
	@scripts/test.sh plant

clients: setup web ## ccxt and python-binance against the real binary
	@scripts/test.sh clients

browser: setup web ## the console in Chromium
	@scripts/test.sh browser

clean:           ## remove what was built
	cargo clean
	rm -rf web/dist web/node_modules
