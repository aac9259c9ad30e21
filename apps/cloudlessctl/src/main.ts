#!/usr/bin/env node
import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import { systemClock } from '@cloudless/app-kit';
import { run } from './cli.js';
import type { CliIo, CoordinatorConnection } from './io/io.js';
import { LocalFiles } from './io/local-files.js';
import { listenLocally } from './io/local-listener.js';
import { ProcessInput, ProcessOutput } from './io/process-streams.js';
import { findTerminal } from './io/terminal.js';
import { getLocalOffsetMinutes } from './output/local-time.js';

/**
 * Interval of the HTTP/2 pings. A watch may be silent for hours; a failed ping shows that the
 * connection is broken. A broken connection is detected after at most 25 s.
 */
const PING_INTERVAL_MS = 15_000;
/** Time within which the coordinator must acknowledge a ping. */
const PING_TIMEOUT_MS = 10_000;

/** Creates a client connection to a coordinator. HTTP/2 connects with the first call. */
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
  getUtcOffset: getLocalOffsetMinutes,
  signal: stopping.signal,
  connect,
  terminal: findTerminal(process.stdin, process.stdout),
  listen: listenLocally,
};

// This timer keeps the process alive. The timers of the clock do not, and between two connection
// attempts nothing else is open. The interval of 12 days (2^30 ms) has no meaning.
const keepAlive = setInterval(() => undefined, 2 ** 30);
const exitCode = await run(process.argv.slice(2), io);
clearInterval(keepAlive);
// All output is written. process.exit() ends the process even when standard input is still open.
process.exit(receivedSignal === undefined ? exitCode : EXIT_CODE_BY_SIGNAL[receivedSignal]);
