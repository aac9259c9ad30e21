import * as net from 'node:net';
import { once } from 'node:events';
import {
  DEFAULT_WINDOW,
  FLAG_ACK,
  FLAG_END_STREAM,
  FrameSplitter,
  FrameType,
  HEADER_BYTES,
  MAX_PAYLOAD,
  SETTING_INITIAL_WINDOW_SIZE,
  decodeSettings,
  decodeWindowUpdate,
  encodeClientStart,
  encodeFrame,
  encodeHeaders,
  withoutPadding,
  writeHeader,
} from './http2-frames.js';

const INITIAL_OUTPUT_BYTES = 64 * 1024;
const EMPTY = Buffer.alloc(0);
/** Payload of RST_STREAM: the error code NO_ERROR. */
const NO_ERROR = Buffer.alloc(4);

/** Callbacks of a stream. */
export interface StreamHandler {
  /** @param data - Shares the memory of what was read. */
  readonly onData: (data: Buffer) => void;
  /** The peer has ended or reset the stream, or the connection is gone. Called once. */
  readonly onEnd: () => void;
}

/**
 * A plaintext HTTP/2 client connection for a load generator: many streams that stay open, each with
 * small messages in both directions. What is sent while the connection handles one chunk of input
 * leaves in one write. Why not `node:http2`: docs/performance.md, "The whole path".
 *
 * Limits: header fields of the peer are ignored, a connection and a stream receive at most 2 GiB,
 * output that the peer does not read is kept without a limit, and the caller opens at most as many
 * streams as the peer permits (the coordinator permits 128).
 */
export class FrameConnection {
  private readonly streams = new Map<number, FrameStream>();
  private nextStreamId = 1;
  private readonly input = new FrameSplitter();
  /** Frames that leave with the next {@link flush}. */
  private output = Buffer.allocUnsafe(INITIAL_OUTPUT_BYTES);
  private outputBytes = 0;
  private isFlushScheduled = false;
  /** Bytes of data that the peer still accepts on the connection. */
  private window = DEFAULT_WINDOW;
  /** Bytes of data that the peer accepts on a new stream. */
  private newStreamWindow = DEFAULT_WINDOW;
  private isClosed = false;
  private resolveClosed: () => void = () => undefined;
  /** Resolves when the connection is gone and all streams have ended. */
  readonly whenClosed = new Promise<void>((resolve) => (this.resolveClosed = resolve));

  private constructor(
    private readonly socket: net.Socket,
    private readonly authority: string,
  ) {
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.endAll());
    socket.write(encodeClientStart());
  }

  /**
   * @param url - With a port, and a name or IPv4 address, such as `http://127.0.0.1:7400`.
   * @throws Error of the socket when there is no connection.
   */
  static async connect(url: string): Promise<FrameConnection> {
    const { hostname, port, host } = new URL(url);
    const socket = net.connect(Number(port), hostname);
    await once(socket, 'connect');
    return new FrameConnection(socket, host);
  }

  /** True once the socket is closed. */
  get closed(): boolean {
    return this.isClosed;
  }

  /** Opens a gRPC stream. */
  open(path: string, handler: StreamHandler): FrameStream {
    const id = this.nextStreamId;
    this.nextStreamId += 2;
    const stream = new FrameStream(this, id, this.newStreamWindow, handler);
    this.streams.set(id, stream);
    const fields = new Map([
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', path],
      [':authority', this.authority],
      ['content-type', 'application/grpc+proto'],
      ['te', 'trailers'],
    ]);
    this.append(encodeHeaders(id, fields));
    return stream;
  }

  ping(): void {
    this.append(encodeFrame(FrameType.PING, 0, 0, Buffer.alloc(8)));
  }

  destroy(): void {
    this.socket.destroy();
  }

  /**
   * Sends as much data of a stream as both windows permit.
   * @returns Number of bytes sent.
   */
  sendData(stream: number, streamWindow: number, data: Uint8Array): number {
    const permitted = Math.min(data.length, streamWindow, this.window);
    for (let start = 0; start < permitted; start += MAX_PAYLOAD) {
      const length = Math.min(MAX_PAYLOAD, permitted - start);
      this.reserve(HEADER_BYTES + length);
      writeHeader(this.output, this.outputBytes, length, FrameType.DATA, 0, stream);
      this.output.set(data.subarray(start, start + length), this.outputBytes + HEADER_BYTES);
      this.outputBytes += HEADER_BYTES + length;
    }
    this.window -= permitted;
    return permitted;
  }

  private receive(chunk: Buffer): void {
    this.isFlushScheduled = true;
    this.input.read(chunk, (type, flags, stream, payload) =>
      this.handleFrame(type, flags, stream, payload),
    );
    this.flush();
  }

  private handleFrame(type: number, flags: number, id: number, payload: Buffer): void {
    switch (type) {
      case FrameType.DATA:
        this.streams.get(id)?.handler.onData(withoutPadding(flags, payload));
        if ((flags & FLAG_END_STREAM) !== 0) this.resetAndEnd(id);
        return;
      case FrameType.HEADERS:
        if ((flags & FLAG_END_STREAM) !== 0) this.resetAndEnd(id);
        return;
      case FrameType.RST_STREAM:
        return this.end(id);
      case FrameType.SETTINGS:
        if ((flags & FLAG_ACK) === 0) this.applySettings(payload);
        return;
      case FrameType.PING:
        if ((flags & FLAG_ACK) === 0)
          this.append(encodeFrame(FrameType.PING, FLAG_ACK, 0, payload));
        return;
      case FrameType.GOAWAY:
        // The coordinator ends: an agent dials again, so open streams need not finish.
        return this.destroy();
      case FrameType.WINDOW_UPDATE:
        return this.widen(id, decodeWindowUpdate(payload));
    }
  }

  private applySettings(payload: Buffer): void {
    const window = decodeSettings(payload).get(SETTING_INITIAL_WINDOW_SIZE);
    if (window !== undefined) {
      const change = window - this.newStreamWindow;
      this.newStreamWindow = window;
      for (const stream of this.streams.values()) stream.changeWindow(change);
    }
    this.append(encodeFrame(FrameType.SETTINGS, FLAG_ACK, 0, EMPTY));
  }

  private widen(id: number, bytes: number): void {
    if (id !== 0) return this.streams.get(id)?.changeWindow(bytes);
    this.window += bytes;
    for (const stream of this.streams.values()) stream.sendWaiting();
  }

  /** Resets a stream whose other side the peer has ended. */
  private resetAndEnd(id: number): void {
    this.append(encodeFrame(FrameType.RST_STREAM, 0, id, NO_ERROR));
    this.end(id);
  }

  private end(id: number): void {
    const stream = this.streams.get(id);
    if (stream === undefined) return;
    this.streams.delete(id);
    stream.end();
  }

  private endAll(): void {
    this.isClosed = true;
    for (const id of [...this.streams.keys()]) this.end(id);
    this.resolveClosed();
  }

  private append(frame: Buffer): void {
    this.reserve(frame.length);
    frame.copy(this.output, this.outputBytes);
    this.outputBytes += frame.length;
  }

  /** Makes room for a frame, and schedules a flush. */
  private reserve(bytes: number): void {
    if (!this.isFlushScheduled) {
      this.isFlushScheduled = true;
      setImmediate(() => this.flush());
    }
    if (this.outputBytes + bytes <= this.output.length) return;
    const larger = Buffer.allocUnsafe(2 * (this.outputBytes + bytes));
    this.output.copy(larger, 0, 0, this.outputBytes);
    this.output = larger;
  }

  private flush(): void {
    this.isFlushScheduled = false;
    if (this.outputBytes === 0 || this.isClosed) return;
    // The socket keeps what it cannot send at once, so it needs bytes of its own.
    this.socket.write(Buffer.from(this.output.subarray(0, this.outputBytes)));
    this.outputBytes = 0;
  }
}

/** One stream of a {@link FrameConnection}. */
export class FrameStream {
  /** Data that waits for a larger window, oldest first. */
  private readonly waiting: Uint8Array[] = [];
  private isEnded = false;

  constructor(
    private readonly connection: FrameConnection,
    private readonly id: number,
    private window: number,
    readonly handler: StreamHandler,
  ) {}

  /** Ends the stream. Call once. */
  end(): void {
    this.isEnded = true;
    this.handler.onEnd();
  }

  /** Sends data; data after the end of the stream is dropped. */
  write(data: Uint8Array): void {
    if (this.isEnded) return;
    this.waiting.push(data);
    this.sendWaiting();
  }

  /**
   * Adds to the number of bytes that the peer accepts; a negative number after a smaller
   * SETTINGS_INITIAL_WINDOW_SIZE.
   */
  changeWindow(bytes: number): void {
    this.window += bytes;
    this.sendWaiting();
  }

  sendWaiting(): void {
    for (let data = this.waiting[0]; data !== undefined; data = this.waiting[0]) {
      const sent = this.connection.sendData(this.id, Math.max(0, this.window), data);
      this.window -= sent;
      if (sent < data.length) {
        this.waiting[0] = data.subarray(sent);
        return;
      }
      this.waiting.shift();
    }
  }
}
