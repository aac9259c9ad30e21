#!/usr/bin/env node
import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import { systemClock } from '@cloudless/app-kit';
import { run } from './cli.js';
import type { CliIo, CoordinatorConnection } from './io/io.js';
import { LocalFiles } from './io/local-files.js';
import { listenLocally } from './io/local-listener.js';
import { ProcessInput, ProcessOutput } from './io/process-streams.js';
import { findTerminal } from './io/terminal.js';

/**
 * A stream may be silent for long. Pings distinguish a silent coordinator from a broken connection.
 */
const PING_INTERVAL_MS = 15_000;
const PING_TIMEOUT_MS = 10_000;

function connect(server: string): CoordinatorConnection {
  const sessionManager = new Http2SessionManager(server, {
    pingIntervalMs: PING_INTERVAL_MS,
    pingTimeoutMs: PING_TIMEOUT_MS,
  });
  return {
    transport: createConnectTransport({ baseUrl: server, httpVersion: '2', sessionManager }),
    close: () => sessionManager.abort(),
  };
}

const stopping = new AbortController();
const EXIT_CODE_BY_SIGNAL = { SIGINT: 130, SIGTERM: 143 } as const;
let receivedSignal: keyof typeof EXIT_CODE_BY_SIGNAL | undefined;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // A second signal exits at once.
    if (receivedSignal !== undefined) process.exit(EXIT_CODE_BY_SIGNAL[signal]);
    receivedSignal = signal;
    stopping.abort();
  });
}

const io: CliIo = {
  stdout: new ProcessOutput(process.stdout),
  stderr: new ProcessOutput(process.stderr),
  stdin: new ProcessInput(process.stdin),
  env: process.env,
  files: new LocalFiles(),
  clock: systemClock,
  signal: stopping.signal,
  connect,
  terminal: findTerminal(process.stdin, process.stdout),
  listen: listenLocally,
};

// Clock timers do not keep the process alive, and between two connection attempts nothing else
// does.
const keepAlive = setInterval(() => undefined, 2 ** 30);
const exitCode = await run(process.argv.slice(2), io);
clearInterval(keepAlive);
// All output is written. An open standard input must not keep the process alive.
process.exit(receivedSignal === undefined ? exitCode : EXIT_CODE_BY_SIGNAL[receivedSignal]);
