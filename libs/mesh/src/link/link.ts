import type { Duplex } from 'node:stream';
import type { Clock, StopSignal, Timer } from '@cloudless/base';
import { batchWrites } from '../stream/batch-writes.js';
import {
  encodeHeader,
  encodeText,
  FrameError,
  FrameReader,
  FrameType,
  MAX_STREAM_ID,
} from './frames.js';
import { LinkStream, type StreamCarrier } from './link-stream.js';
import {
  parseHello,
  parseOpenRequest,
  parseRefusal,
  type Hello,
  type OpenRequest,
  type Refusal,
} from './open-request.js';

/** Time without received bytes after which a connection is probed, milliseconds. */
const QUIET_MS = 10_000;
/** Time for the answer to a probe, milliseconds. */
const PROBE_TIMEOUT_MS = 3_000;
/** Time for the other proxy to end a connection that has ended with its last stream, ms. */
const END_TIMEOUT_MS = 3_000;
/** Bytes that wait to be sent above which streams wait. */
const BACKLOG_BYTES = 512 * 1024;
/** Bytes that wait to be sent at which a connection ends whose peer does not read. */
const MAX_BACKLOG_BYTES = 4 * 1024 * 1024;
/** Bytes of windows above the initial windows that all streams of a connection share. */
const WINDOW_BUDGET_BYTES = 32 * 1024 * 1024;

/** Error of a stream that the other proxy did not open. */
export class OpenRefusedError extends Error {
  override readonly name = 'OpenRefusedError';
  constructor(readonly refusal: Refusal) {
    super(refusal.message);
  }
}

/**
 * Error of a stream that the other proxy has not accepted, because the connection ends: no byte of
 * the client was sent, and another connection may carry the stream.
 */
export class LinkUnusableError extends Error {
  override readonly name = 'LinkUnusableError';
}

/** Arguments of {@link Link}. */
export interface LinkOptions {
  /** The TLS connection, after the handshake and the check of the certificate of the peer. */
  readonly socket: Duplex;
  readonly isDialler: boolean;
  /** Id of this node. */
  readonly nodeId: string;
  /** Id of the node of the peer, by its certificate. */
  readonly peerNodeId: string;
  readonly path: 'link' | 'relay';
  readonly maxStreams: number;
  /** Ids of the connections that this one renews, see {@link Hello}. Default: none. */
  readonly renews?: readonly string[];
  /** Called with the first message of the peer, which has accepted this connection. */
  readonly onHello?: (hello: Hello) => void;
  readonly clock: Clock;
  /** Connects a stream of the peer, and calls `accept` or `refuse` of the stream. */
  readonly onOpen: (request: OpenRequest, stream: LinkStream, link: Link) => void;
  /** Called when the connection accepts streams no longer in this direction, and when it ends. */
  readonly onUnusable: (link: Link) => void;
  /** Called once when the connection has ended. */
  readonly onClose: (link: Link, reason: string) => void;
}

interface Opening {
  readonly stream: LinkStream;
  readonly resolve: (stream: LinkStream) => void;
  readonly reject: (reason: Error) => void;
}

/**
 * A connection between the proxies of two nodes. Carries a stream for each connection of a client,
 * in both directions, each with its own window, so that a slow reader delays no other stream.
 */
export class Link implements StreamCarrier {
  private readonly streams = new Map<number, LinkStream>();
  private readonly openings = new Map<number, Opening>();
  private readonly reader: FrameReader;
  private readonly waiting: (() => void)[] = [];
  private nextId: number;
  private lastPeerId = 0;
  private isReady = false;
  private isPeerLeaving = false;
  private isLeaving = false;
  /** True when this side has sent everything and its end. */
  private isEnding = false;
  private closeReason: string | undefined;
  private windowBudget = WINDOW_BUDGET_BYTES;
  private lastReceivedMs: number;
  private timer: Timer | undefined;
  private probeSentMs: number | undefined;
  private onReady: ((error?: Error) => void) | undefined;

  constructor(private readonly options: LinkOptions) {
    const { socket, isDialler, clock } = options;
    this.nextId = isDialler ? 1 : 2;
    this.lastReceivedMs = clock.now();
    this.reader = new FrameReader({
      onData: (id, bytes) => this.onData(id, bytes),
      onControl: (type, id, payload) => this.onControl(type, id, payload),
    });
    socket.on('data', (chunk: Buffer) => this.onChunk(chunk));
    socket.on('drain', () => this.onDrain());
    socket.on('error', (reason: Error) => this.close(reason.message));
    socket.on('end', () => this.close('the other proxy closed the connection'));
    socket.on('close', () => this.close('the connection was closed'));
    const { nodeId, renews = [] } = options;
    this.send(encodeText(FrameType.hello, 0, JSON.stringify({ nodeId, renews })));
    this.watch(QUIET_MS);
  }

  get peerNodeId(): string {
    return this.options.peerNodeId;
  }

  get path(): 'link' | 'relay' {
    return this.options.path;
  }

  get isDialler(): boolean {
    return this.options.isDialler;
  }

  get streamCount(): number {
    return this.streams.size;
  }

  /** Returns true when {@link open} may be called. */
  get isUsable(): boolean {
    return this.isReady && !this.isPeerLeaving && !this.isLeaving && !this.isClosed;
  }

  /** Returns true when the connection ends with its last stream. */
  get isDraining(): boolean {
    return this.isPeerLeaving || this.isLeaving;
  }

  get isClosed(): boolean {
    return this.closeReason !== undefined;
  }

  /** Resolves when the peer has accepted the connection. */
  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.onReady = (error) => (error === undefined ? resolve() : reject(error));
      if (this.isReady) this.onReady();
      else if (this.closeReason !== undefined) this.onReady(new Error(this.closeReason));
    });
  }

  /**
   * Opens a stream.
   * @throws LinkUnusableError when the connection or the other proxy ends, OpenRefusedError when the
   *   other proxy refuses, Error when `signal` is aborted.
   */
  open(request: OpenRequest, signal: StopSignal): Promise<LinkStream> {
    // A connection may end between its choice and this call.
    if (!this.isUsable)
      return Promise.reject(new LinkUnusableError(this.closeReason ?? 'the connection is ending'));
    const id = this.nextId;
    this.nextId += 2;
    if (this.nextId > MAX_STREAM_ID) this.leave('the connection has used all ids of streams');
    const stream = new LinkStream(id, this);
    stream.on('error', () => undefined);
    this.streams.set(id, stream);
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        stream.destroy();
        this.probe();
      };
      const settle = (): void => signal.removeEventListener('abort', onAbort);
      this.openings.set(id, {
        stream,
        resolve: (opened) => (settle(), resolve(opened)),
        reject: (reason) => (settle(), reject(reason)),
      });
      signal.addEventListener('abort', onAbort, { once: true });
      this.send(encodeText(FrameType.open, id, JSON.stringify(request)));
    });
  }

  /** Checks whether the peer still answers, and ends the connection if not. */
  probe(): void {
    if (this.probeSentMs !== undefined || this.isClosed) return;
    this.probeSentMs = this.options.clock.now();
    this.send(encodeHeader(FrameType.ping, 0, 0));
    this.watch(PROBE_TIMEOUT_MS);
  }

  /** Accepts and opens no further streams; the connection ends with its last stream. */
  leave(reason: string): void {
    if (this.isLeaving || this.isClosed) return;
    this.isLeaving = true;
    this.send(encodeText(FrameType.goAway, 0, reason));
    this.options.onUnusable(this);
    this.closeWhenIdle();
  }

  /** Ends the connection and resets its streams. */
  close(reason: string): void {
    if (this.isClosed) return;
    this.closeReason = reason;
    this.timer?.cancel();
    for (const stream of [...this.streams.values()]) stream.receiveConnectionEnd(reason);
    for (const action of this.waiting.splice(0)) action();
    this.onReady?.(new Error(reason));
    this.options.socket.destroy();
    this.options.onUnusable(this);
    this.options.onClose(this, reason);
  }

  send(header: Buffer, payload?: Buffer): void {
    const { socket } = this.options;
    if (this.isClosed || this.isEnding || socket.destroyed) return;
    // Data waits for the peer; answers to a peer that sends and does not read must not pile up.
    if (payload === undefined && socket.writableLength > MAX_BACKLOG_BYTES)
      return this.close('the other proxy does not read');
    // The frames of one turn of the event loop become few TLS records.
    batchWrites(socket);
    socket.write(header);
    if (payload !== undefined) socket.write(payload);
  }

  get isWritable(): boolean {
    return this.options.socket.writableLength < BACKLOG_BYTES;
  }

  whenWritable(action: () => void): void {
    this.waiting.push(action);
  }

  reserveWindow(wanted: number): number {
    const granted = Math.min(wanted, this.windowBudget);
    this.windowBudget -= granted;
    return granted;
  }

  releaseWindow(bytes: number): void {
    this.windowBudget += bytes;
  }

  forget(streamId: number): void {
    this.streams.delete(streamId);
    const opening = this.openings.get(streamId);
    this.openings.delete(streamId);
    opening?.reject(
      this.closeReason === undefined
        ? new Error('the connection to the endpoint was given up')
        : new LinkUnusableError(this.closeReason),
    );
    this.closeWhenIdle();
  }

  private closeWhenIdle(): void {
    if (!this.isDraining || this.streams.size > 0 || this.isClosed || this.isEnding) return;
    // Until the peer has accepted this connection, clients wait for it. Then they move to another
    // connection; if it ended before, they would fail.
    if (this.isDialler && !this.isReady) return;
    this.isEnding = true;
    // The other proxy ends too once it has read everything. A close before would lose what it sends
    // meanwhile with a reset, and the reset what it has not read.
    this.options.socket.end();
    this.timer?.cancel();
    this.timer = this.options.clock.setTimer(END_TIMEOUT_MS, () =>
      this.close('all streams have ended'),
    );
  }

  private onChunk(chunk: Buffer): void {
    this.lastReceivedMs = this.options.clock.now();
    this.probeSentMs = undefined;
    try {
      this.reader.read(chunk);
    } catch (reason) {
      if (!(reason instanceof FrameError)) throw reason;
      this.close(`the other proxy broke the protocol: ${reason.message}`);
    }
  }

  private onDrain(): void {
    while (this.isWritable) {
      const action = this.waiting.shift();
      if (action === undefined) return;
      action();
    }
  }

  private onData(id: number, bytes: Buffer): void {
    const stream = this.streams.get(id);
    // The peer may send until it learns of a reset.
    if (stream === undefined) return;
    if (!stream.receiveData(bytes)) throw new FrameError(`stream ${id} exceeds its window`);
  }

  private onControl(type: number, id: number, payload: Buffer): void {
    // A request after the end of this side is not answered: the peer takes another connection.
    if (this.isClosed || this.isEnding) return;
    if (!this.isReady && type !== FrameType.hello && type !== FrameType.goAway)
      throw new FrameError(`frame ${type} before the first message`);
    switch (type) {
      case FrameType.hello:
        return this.onHello(payload);
      case FrameType.open:
        return this.onOpen(id, payload);
      case FrameType.accept:
        this.openings.get(id)?.resolve(this.openings.get(id)?.stream as LinkStream);
        return void this.openings.delete(id);
      case FrameType.refuse:
        return this.onRefuse(id, payload);
      case FrameType.window:
        if (payload.length !== 4) throw new FrameError('a window without a number');
        if (this.streams.get(id)?.receiveWindowOf(payload.readUInt32BE(0)) === false)
          throw new FrameError(`the window of stream ${id} is too large`);
        return;
      case FrameType.end:
        return this.streams.get(id)?.receiveEnd();
      case FrameType.reset:
        return this.streams.get(id)?.receiveReset('the connection was reset by the other side');
      case FrameType.ping:
        return this.send(encodeHeader(FrameType.pong, 0, 0));
      case FrameType.pong:
        return;
      case FrameType.goAway:
        return this.onGoAway(payload);
      default: // a frame of a later version
    }
  }

  private onHello(payload: Buffer): void {
    const received = parseHello(payload);
    if (received === undefined) throw new FrameError('the first message is damaged');
    if (this.isReady) return;
    this.isReady = true;
    this.options.onHello?.(received);
    this.onReady?.();
    this.closeWhenIdle();
  }

  private onOpen(id: number, payload: Buffer): void {
    const isOfPeer = id % 2 === (this.options.isDialler ? 0 : 1);
    if (!isOfPeer || id <= this.lastPeerId || id > MAX_STREAM_ID)
      throw new FrameError(`stream ${id} cannot be opened`);
    this.lastPeerId = id;
    const stream = new LinkStream(id, this);
    stream.on('error', () => undefined);
    const request = parseOpenRequest(payload);
    const count = this.streams.size;
    this.streams.set(id, stream);
    if (request === undefined)
      stream.refuse({ code: 'unknownEndpoint', message: 'the request cannot be read' });
    else if (this.isLeaving)
      stream.refuse({ code: 'draining', message: 'the proxy of the node is about to stop' });
    else if (count >= this.options.maxStreams)
      stream.refuse({
        code: 'limit',
        message: `the connection has ${count} streams; the limit is ${this.options.maxStreams}`,
      });
    else this.options.onOpen(request, stream, this);
  }

  private onRefuse(id: number, payload: Buffer): void {
    const opening = this.openings.get(id);
    if (opening === undefined) return;
    this.openings.delete(id);
    const refusal = parseRefusal(payload);
    if (refusal.code === 'draining') {
      // The request has crossed the notice, or no notice comes: no further stream is opened here.
      this.isPeerLeaving = true;
      this.options.onUnusable(this);
      opening.reject(new LinkUnusableError(refusal.message));
    } else opening.reject(new OpenRefusedError(refusal));
    opening.stream.receiveReset('the stream was refused');
  }

  private onGoAway(payload: Buffer): void {
    this.isPeerLeaving = true;
    if (!this.isReady) return this.close(payload.toString('utf8'));
    this.options.onUnusable(this);
    this.closeWhenIdle();
  }

  private watch(delayMs: number): void {
    this.timer?.cancel();
    this.timer = this.options.clock.setTimer(delayMs, () => {
      const nowMs = this.options.clock.now();
      const { probeSentMs } = this;
      if (probeSentMs !== undefined && nowMs - probeSentMs >= PROBE_TIMEOUT_MS)
        return this.close('the other proxy does not answer');
      const quietMs = nowMs - this.lastReceivedMs;
      if (probeSentMs !== undefined) this.watch(PROBE_TIMEOUT_MS);
      else if (quietMs >= QUIET_MS) this.probe();
      else this.watch(QUIET_MS - quietMs);
    });
  }
}
