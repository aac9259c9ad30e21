import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type dgram from 'node:dgram';
import type net from 'node:net';
import { CloudlessError, definedFields } from '@cloudless/base';
import { holdClients, type HandedSocket } from './handed-socket.js';

/** Argument of a proxy that takes over the sockets of the process that has started it. */
export const SUCCESSOR_FLAG = '--successor';
/** Time for a successor to serve, milliseconds. After this time the predecessor continues. */
const TAKEOVER_TIMEOUT_MS = 30_000;

/**
 * Longest wait for a successor to take messages, milliseconds. A socket accepts clients as soon as it
 * arrives in a process, also while that process still loads its program and has no handler for clients.
 */
const WAITING_TIMEOUT_MS = 10_000;

/** Message of the predecessor; sockets come with their message. */
type ToSuccessor =
  | {
      readonly type: 'socket';
      readonly kind: 'tcp' | 'udp';
      readonly address: string;
      readonly port: number;
    }
  /** The socket that holds the lock of the network namespace, and its path. */
  | { readonly type: 'lock'; readonly path?: string }
  | { readonly type: 'complete' }
  /**
   * The predecessor has closed its control socket. With `asks`, before all others: asks whether the
   * successor takes messages by now. Successors of earlier versions do not answer.
   */
  | { readonly type: 'released'; readonly asks?: true };
/** Message of the successor: it takes sockets now, or has taken the sockets and listens. */
type FromSuccessor = { readonly type: 'waiting' | 'ready' };

/** The lock of a network namespace. */
export interface HandedLock {
  readonly server: net.Server;
  /** Path of the socket; undefined for a predecessor that used none. */
  readonly path: string | undefined;
}

/** Sockets and lock that a proxy process inherits from its predecessor. */
export interface Inheritance {
  readonly sockets: readonly HandedSocket[];
  /** Absent: the predecessor did not hold the lock of the network namespace. */
  readonly lock: HandedLock | undefined;
  /**
   * Tells the predecessor that this process listens. Resolves once it has closed its control
   * socket.
   */
  takeOver(): Promise<void>;
}

/**
 * Starts a successor and hands it the listening sockets.
 * @param errorFile - For the error output of the successor.
 * @param release - Closes the control socket; called once the successor listens.
 * @throws kind `unavailable` when the successor ends or does not listen within 30 s. The caller then
 *   continues to serve.
 */
export async function handOver(
  command: readonly string[],
  errorFile: string,
  given: { readonly sockets: readonly HandedSocket[]; readonly lock: HandedLock | undefined },
  release: () => void,
): Promise<void> {
  const child = start(command, errorFile);
  try {
    // A successor that ends confirms no socket: the wait for it ends the wait for the sockets.
    await Promise.all([
      waitUntilReady(child),
      waitUntilWaiting(child).then(() => sendSockets(child, given)),
    ]);
  } catch (reason) {
    child.kill('SIGKILL');
    throw reason;
  }
  release();
  await send(child, { type: 'released' });
  child.disconnect();
  child.unref();
}

/** Receives the sockets of the process that has started this process. */
export function inherit(): Promise<Inheritance> {
  const sockets: HandedSocket[] = [];
  let lock: HandedLock | undefined;
  return new Promise((resolve, reject) => {
    let onReleased: () => void = () => undefined;
    const released = new Promise<void>((done) => (onReleased = done));
    // A predecessor that ends has released everything.
    process.once('disconnect', () => {
      onReleased();
      reject(new CloudlessError('unavailable', 'the predecessor ended'));
    });
    process.on('message', (message: ToSuccessor, handle: unknown) => {
      if (message.type === 'socket') {
        const { address, port } = message;
        const socket: HandedSocket =
          message.kind === 'tcp'
            ? { kind: 'tcp', address, port, handle: handle as net.Server }
            : { kind: 'udp', address, port, handle: handle as dgram.Socket };
        holdClients(socket);
        sockets.push(socket);
      } else if (message.type === 'lock')
        lock = { server: handle as net.Server, path: message.path };
      else if (message.type === 'released' && message.asks === true)
        process.send?.({ type: 'waiting' } satisfies FromSuccessor);
      else if (message.type === 'released') onReleased();
      else
        resolve({
          sockets,
          lock,
          takeOver: async () => {
            process.send?.({ type: 'ready' } satisfies FromSuccessor);
            await released;
            if (process.connected) process.disconnect();
          },
        });
    });
  });
}

function start([file = '', ...args]: readonly string[], errorFile: string): ChildProcess {
  const errors = openSync(errorFile, 'a', 0o600);
  const child = spawn(file, args, {
    detached: true,
    stdio: ['ignore', errors, errors, 'ipc'],
    env: {},
  });
  closeSync(errors);
  return child;
}

async function sendSockets(
  child: ChildProcess,
  { sockets, lock }: Parameters<typeof handOver>[2],
): Promise<void> {
  for (const { kind, address, port, handle } of sockets)
    await send(child, { type: 'socket', kind, address, port }, handle);
  if (lock !== undefined) {
    const { server, path } = lock;
    await send(child, { type: 'lock', ...definedFields({ path }) }, server);
  }
  await send(child, { type: 'complete' });
}

/** Resolves when a successor takes sockets, or is of an earlier version, as far as is known. */
async function waitUntilWaiting(child: ChildProcess): Promise<void> {
  const isWaiting = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, WAITING_TIMEOUT_MS);
    child.on('message', ({ type }: FromSuccessor) => {
      if (type !== 'waiting') return;
      clearTimeout(timer);
      resolve();
    });
  });
  await send(child, { type: 'released', asks: true });
  await isWaiting;
}

function waitUntilReady(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (problem: string): void =>
      reject(new CloudlessError('unavailable', `the new network proxy ${problem}`));
    const timer = setTimeout(() => fail('does not listen within 30 s'), TAKEOVER_TIMEOUT_MS);
    child.once('exit', () => fail('ended at its start'));
    child.once('error', () => fail('cannot be started'));
    child.on('message', ({ type }: FromSuccessor) => {
      if (type !== 'ready') return;
      clearTimeout(timer);
      resolve();
    });
  });
}

function send(
  child: ChildProcess,
  message: ToSuccessor,
  handle?: net.Server | dgram.Socket,
): Promise<void> {
  return new Promise((resolve, reject) => {
    child.send(message, handle, { keepOpen: true }, (reason) =>
      reason === null ? resolve() : reject(reason),
    );
  });
}
