import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { CoordinatorClient } from '@cloudless/api';

/** Types of HTTP/2 frames (RFC 9113, section 6). */
export const FRAME = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  windowUpdate: 8,
  continuation: 9,
} as const;
/** Flags of HTTP/2 frames. */
const END_STREAM = 0x1;
const END_HEADERS = 0x4;
/** First bytes of each HTTP/2 connection (RFC 9113, section 3.4). */
const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';

/** Encodes one frame; the frame need not be valid. */
export function encodeFrame(
  type: number,
  flags: number,
  stream: number,
  payload: Uint8Array = new Uint8Array(),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/**
 * Encodes the preface and the SETTINGS frame of a client.
 * @param windowSize - Initial window of each stream in bytes; 0 forbids the server to send data.
 *   Default: that of HTTP/2, 65 535.
 */
export function encodeOpening(windowSize?: number): Buffer {
  const setting = Buffer.alloc(windowSize === undefined ? 0 : 6);
  if (windowSize !== undefined) {
    setting.writeUInt16BE(4, 0);
    setting.writeUInt32BE(windowSize, 2);
  }
  return Buffer.concat([Buffer.from(PREFACE), encodeFrame(FRAME.settings, 0, 0, setting)]);
}

/**
 * Encodes a header field in HPACK without compression (RFC 7541, section 6.2.2). Name and value
 * have at most 126 bytes.
 */
function encodeField(name: string, value: string): Buffer {
  const encodeText = (text: string): readonly number[] => [text.length, ...Buffer.from(text)];
  return Buffer.from([0, ...encodeText(name), ...encodeText(value)]);
}

/** Encodes the header block of a call of an RPC of the coordinator. */
export function encodeCallHead(
  rpc: string,
  contentType: string,
  more: Readonly<Record<string, string>> = {},
): Buffer {
  const fields = { ':authority': 'localhost', 'content-type': contentType, ...more };
  const path = encodeField(':path', `/cloudless.api.CoordinatorService/${rpc}`);
  const rest = Object.entries(fields).map(([name, value]) => encodeField(name, value));
  return Buffer.concat([Buffer.from([0x83, 0x86]), path, ...rest]);
}

/** Encodes a message in the envelope of gRPC and Connect streams. */
export function encodeEnvelope(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/**
 * Encodes the frames of a call.
 * @param body - Request body. Default: none, and the request stays open.
 */
export function encodeCall(stream: number, head: Buffer, body?: Uint8Array): Buffer {
  const headers = encodeFrame(FRAME.headers, END_HEADERS, stream, head);
  return body === undefined
    ? headers
    : Buffer.concat([headers, encodeFrame(FRAME.data, END_STREAM, stream, body)]);
}

/** Returns the first `count` stream ids that a client may use: odd numbers. */
export function listStreamIds(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => index * 2 + 1);
}

/** A connection that sends arbitrary bytes: within TLS to `https://`, else over TCP. */
export class RawClient {
  /** Bytes received so far. */
  received = 0;
  /** Resolves when the connection is closed, by either side. */
  readonly closed: Promise<void>;
  private readonly socket: Socket;

  /** @param protocol - Protocol that a connection with TLS chooses. */
  constructor(url: string, protocol: 'h2' | 'http/1.1' = 'h2') {
    const { protocol: scheme, hostname, port } = new URL(url);
    const address = { host: hostname, port: Number(port) };
    this.socket =
      scheme === 'https:'
        ? connectTls({ ...address, ALPNProtocols: [protocol], rejectUnauthorized: false })
        : connect(address);
    this.socket.on('error', () => undefined);
    this.socket.on('data', (chunk) => (this.received += chunk.length));
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  /** Resolves when the bytes were sent or the connection is closed. */
  async send(bytes: Uint8Array | string): Promise<void> {
    if (this.socket.destroyed) return;
    // the callback also runs when the socket closes first
    await new Promise<void>((resolve) => this.socket.write(bytes, () => resolve()));
  }

  /**
   * Sends a chunk `times` times, or until the server closes the connection.
   * @returns The number of chunks sent.
   */
  async sendRepeatedly(chunk: Uint8Array, times: number): Promise<number> {
    let sent = 0;
    for (; sent < times && !this.socket.destroyed; sent += 1) await this.send(chunk);
    return sent;
  }

  get isClosed(): boolean {
    return this.socket.destroyed;
  }

  close(): void {
    this.socket.destroy();
  }
}

/** Effect of an attack on another client and on the memory of the server. */
export interface AttackEffect {
  /** Successful calls of the other client during the attack. */
  readonly calls: number;
  /** Errors of the failed calls. */
  readonly failures: readonly string[];
  /** 95th percentile of the durations of the calls. */
  readonly p95Ms: number;
  /** Longest duration of a call. */
  readonly maxMs: number;
  /** Peak of the resident memory of the server minus `restMiB`. */
  readonly growthMiB: number;
}

/**
 * Runs an attack while another client calls GetWorkload repeatedly over its own connection.
 * @param pid - Process of the server.
 * @param restMiB - Resident memory of the server before all attacks.
 * @param client - The other client.
 * @param name - Workload that the other client reads.
 */
export async function runAttack(
  pid: number,
  restMiB: number,
  client: CoordinatorClient,
  name: string,
  attack: () => Promise<void>,
): Promise<AttackEffect> {
  await client.getWorkload({ name });
  let peakMiB = readResidentMiB(pid);
  const durationsMs: number[] = [];
  const failures: string[] = [];
  let hasEnded = false;
  const bystander = (async () => {
    while (!hasEnded || durationsMs.length + failures.length < 5) {
      const began = performance.now();
      await client.getWorkload({ name }).then(
        () => durationsMs.push(performance.now() - began),
        (reason: unknown) => failures.push(String(reason)),
      );
      peakMiB = Math.max(peakMiB, readResidentMiB(pid));
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  await attack().finally(() => (hasEnded = true));
  await bystander;
  durationsMs.sort((a, b) => a - b);
  const p95Ms = Math.round(durationsMs[Math.floor(durationsMs.length * 0.95)] ?? 0);
  return {
    calls: durationsMs.length,
    failures,
    p95Ms,
    maxMs: Math.round(durationsMs.at(-1) ?? 0),
    growthMiB: Math.round(peakMiB - restMiB),
  };
}

/**
 * Returns the resident memory of a process in MiB.
 * @see proc(5), /proc/pid/status
 */
export function readResidentMiB(pid: number): number {
  const [, kib = '0'] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) / 1024;
}
