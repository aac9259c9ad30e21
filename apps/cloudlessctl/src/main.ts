#!/usr/bin/env node
import { randomBytes } from 'node:crypto';
import { fstatSync } from 'node:fs';
import { readFile, readdir, rename, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import { makeDirectory, systemClock } from '@cloudless/app-kit';
import { run } from './cli.js';
import { BrokenPipeError } from './io/io.js';
import { listenLocally, findTerminal } from './io/local-io.js';
import type { CliIo, CoordinatorConnection, Files, CliInput, CliOutput } from './io/io.js';

/**
 * A stream may be silent for long. Pings distinguish a silent coordinator from a broken connection.
 */
const PING_INTERVAL_MS = 15_000;
const PING_TIMEOUT_MS = 10_000;
const DEFAULT_COLUMNS = 80;

function createOutput(stream: NodeJS.WriteStream): CliOutput {
  // A write reports the error of a closed pipe. Without a listener the error event would end the
  // process with a stack trace.
  stream.on('error', () => undefined);
  return {
    isTTY: stream.isTTY === true,
    get columns() {
      // A terminal without a size reports 0 columns.
      return stream.columns || DEFAULT_COLUMNS;
    },
    write: (data) =>
      new Promise((resolve, reject) => {
        stream.write(data, (error) => {
          if (error === undefined || error === null) resolve();
          else if (
            'code' in error &&
            (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED')
          )
            reject(new BrokenPipeError());
          else reject(error);
        });
      }),
  };
}

function createInput(stream: NodeJS.ReadStream): CliInput {
  return {
    kind: findInputKind(stream),
    readAll: async (maxBytes) => {
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of stream) {
        const bytes = Buffer.from(chunk);
        chunks.push(bytes);
        size += bytes.length;
        if (size > maxBytes) return undefined;
      }
      return new Uint8Array(Buffer.concat(chunks));
    },
    readChunks: () => stream as AsyncIterable<Buffer>,
  };
}

function findInputKind(stream: NodeJS.ReadStream): CliInput['kind'] {
  if (stream.isTTY) return 'terminal';
  try {
    const info = fstatSync(0);
    return info.isFIFO() || info.isFile() ? 'pipe' : 'other';
  } catch {
    // Standard input was closed before the start.
    return 'other';
  }
}

const files: Files = {
  read: async (path) => new Uint8Array(await readFile(path)),
  list: async (path) => ((await stat(path)).isDirectory() ? readdir(path) : undefined),
  write: async (path, text) => {
    await makeDirectory(dirname(path));
    const temporary = `${path}.${randomBytes(4).toString('hex')}`;
    await writeFile(temporary, text, { mode: 0o600 });
    await rename(temporary, path);
  },
};

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
  stdout: createOutput(process.stdout),
  stderr: createOutput(process.stderr),
  stdin: createInput(process.stdin),
  env: process.env,
  files,
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
