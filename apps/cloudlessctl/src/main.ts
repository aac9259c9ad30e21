#!/usr/bin/env node
import { hostname } from 'node:os';
import { systemClock } from '@cloudless/app-kit';
import { run } from './cli.js';
import type { CliIo } from './io/io.js';
import { connectLazily } from './io/lazy-connection.js';
import { LocalFiles } from './io/local-files.js';
import { listenLocally } from './io/local-listener.js';
import { ProcessInput, ProcessOutput } from './io/process-streams.js';
import { findTerminal } from './io/terminal.js';
import { getLocalOffsetMinutes } from './output/local-time.js';

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
  hostName: hostname(),
  clock: systemClock,
  getUtcOffset: getLocalOffsetMinutes,
  signal: stopping.signal,
  connect: connectLazily,
  detectTls: async (server) => (await import('./io/tls-connection.js')).detectTls(server),
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
