import { connect, type Socket } from 'node:net';
import { systemClock } from '@cloudless/app-kit';

/** Address that receives the load. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** Result of one kind of load. */
export interface LoadResult {
  readonly count: number;
  readonly seconds: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
}

const PARALLEL = 32;
const MESSAGE = Buffer.alloc(200, 1);
const CHUNK = Buffer.alloc(64 * 1024, 2);
const FLOOD = Buffer.alloc(1, 3);

async function open({ host, port }: Target): Promise<Socket> {
  const socket = connect({ host, port, noDelay: true });
  await new Promise((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  return socket;
}

/** Sends a message and resolves when as many bytes have come back. */
function exchange(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    let missing = MESSAGE.length;
    const onData = (chunk: Buffer): void => {
      missing -= chunk.length;
      if (missing > 0) return;
      socket.off('data', onData);
      socket.off('error', reject);
      resolve();
    };
    socket.on('data', onData);
    socket.once('error', reject);
    socket.write(MESSAGE);
  });
}

/** Opens connections one after the other in parallel lanes; each makes one exchange. */
export async function loadConnections(target: Target, count: number): Promise<LoadResult> {
  return runLanes(count, async () => {
    const socket = await open(target);
    await exchange(socket);
    socket.destroy();
  });
}

/** Makes exchanges on connections that stay open. */
export async function loadRequests(target: Target, count: number): Promise<LoadResult> {
  const free = await Promise.all(Array.from({ length: PARALLEL }, () => open(target)));
  const result = await runLanes(count, async () => {
    const socket = free.pop();
    if (socket === undefined) throw new Error('more lanes than connections');
    await exchange(socket);
    free.push(socket);
  });
  for (const socket of free) socket.destroy();
  return result;
}

/** Sends bytes in four connections to a server that echoes nothing and confirms the end. */
export async function loadBytes(target: Target, bytes: number): Promise<LoadResult> {
  const startMs = systemClock.now();
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      const socket = await open(target);
      let missing = bytes / 4;
      await new Promise<void>((resolve, reject) => {
        socket.once('error', reject);
        socket.once('data', () => resolve());
        const send = (): void => {
          while (missing > 0) {
            missing -= CHUNK.length;
            if (!socket.write(CHUNK)) return void socket.once('drain', send);
          }
          socket.end();
        };
        send();
      });
      socket.destroy();
    }),
  );
  return { count: bytes, seconds: (systemClock.now() - startMs) / 1_000 };
}

/** Opens connections that stay idle. Returns a function that closes them. */
export async function openIdle(target: Target, count: number): Promise<() => void> {
  const sockets: Socket[] = [];
  await runLanes(count, async () => {
    const socket = await open(target);
    await exchange(socket);
    sockets.push(socket);
  });
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

/**
 * Opens connections whose server sends 8 MiB, and reads nothing. Returns a function that closes them.
 */
export async function openUnread(target: Target, count: number): Promise<() => void> {
  const sockets: Socket[] = [];
  await runLanes(count, async () => {
    const socket = await open(target);
    socket.pause();
    socket.write(FLOOD);
    sockets.push(socket);
  });
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

async function runLanes(count: number, action: () => Promise<void>): Promise<LoadResult> {
  const startMs = systemClock.now();
  const durations: number[] = [];
  let started = 0;
  await Promise.all(
    Array.from({ length: PARALLEL }, async () => {
      while (started < count) {
        started += 1;
        const fromMs = systemClock.now();
        await action();
        durations.push(systemClock.now() - fromMs);
      }
    }),
  );
  durations.sort((left, right) => left - right);
  const at = (share: number): number =>
    Math.round((durations[Math.floor(durations.length * share)] ?? 0) * 100) / 100;
  return {
    count,
    seconds: (systemClock.now() - startMs) / 1_000,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
  };
}
