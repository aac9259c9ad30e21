#!/usr/bin/env node
import { randomBytes } from 'node:crypto';
import { fstatSync } from 'node:fs';
import { readFile, readdir, rename, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Http2SessionManager, createConnectTransport } from '@connectrpc/connect-node';
import { makeDirectory, systemClock } from '@cloudless/system';
import { run } from './cli.js';
import { BrokenPipeError } from './io.js';
import { listen, terminalOf } from './local-io.js';
import type { CliIo, Connection, Files, InputStream, OutputStream } from './io.js';

/**
 * A stream that follows has nothing to say for long; pings tell a silent coordinator from a lost
 * one.
 */
const PING_INTERVAL_MS = 15_000;
const PING_TIMEOUT_MS = 10_000;
const DEFAULT_COLUMNS = 80;

function outputTo(stream: NodeJS.WriteStream): OutputStream {
  // The error of a closed pipe is told to whoever writes; without a listener it would end the
  // process with a stack trace.
  stream.on('error', () => undefined);
  return {
    isTTY: stream.isTTY === true,
    get columns() {
      // A terminal that was never told its size has 0.
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

function inputFrom(stream: NodeJS.ReadStream): InputStream {
  return {
    kind: kindOfInput(stream),
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
    chunks: () => stream as AsyncIterable<Buffer>,
  };
}

function kindOfInput(stream: NodeJS.ReadStream): InputStream['kind'] {
  if (stream.isTTY) return 'terminal';
  try {
    const info = fstatSync(0);
    return info.isFIFO() || info.isFile() ? 'pipe' : 'other';
  } catch {
    // Closed before we started.
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

function connect(server: string): Connection {
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
const EXIT_BY_SIGNAL = { SIGINT: 130, SIGTERM: 143 } as const;
let received: keyof typeof EXIT_BY_SIGNAL | undefined;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // A second one does not wait for anything.
    if (received !== undefined) process.exit(EXIT_BY_SIGNAL[signal]);
    received = signal;
    stopping.abort();
  });
}

const io: CliIo = {
  stdout: outputTo(process.stdout),
  stderr: outputTo(process.stderr),
  stdin: inputFrom(process.stdin),
  env: process.env,
  files,
  clock: systemClock,
  signal: stopping.signal,
  connect,
  terminal: terminalOf(process.stdin, process.stdout),
  listen,
};

// Timers of the clock do not keep the process alive, and between two attempts to connect nothing
// else does.
const keepAlive = setInterval(() => undefined, 2 ** 30);
const exitCode = await run(process.argv.slice(2), io);
clearInterval(keepAlive);
// Nothing is left to write, and a pipe that nobody closes must not keep the process.
process.exit(received === undefined ? exitCode : EXIT_BY_SIGNAL[received]);
