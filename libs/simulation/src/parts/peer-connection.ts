import type { DescMethodStreaming, DescMethodUnary } from '@bufbuild/protobuf';
import { Code, ConnectError, type StreamResponse, type Transport } from '@connectrpc/connect';
import type { KnownLeader } from '@cloudless/api-server';
import type { Clock } from '@cloudless/base';
import { PushQueue } from '@cloudless/runtime';
import { SimPipe, type LinkUser, type SimLink } from './sim-link.js';
import { neverSettle, type SimProcess } from './sim-process.js';

/** Largest number of queued items of one stream; more indicates a fault of the simulation. */
const QUEUE_LIMIT = 100_000;
/** Time to connect, milliseconds, as in the program. */
const CONNECT_MS = 1_000;
/** Shortest and longest delay until an end notices a cut after the network is free, milliseconds. */
const RESET_MS = [1, 400] as const;

/** A coordinator that other coordinators call. */
export interface Peer {
  readonly process: SimProcess;
  /** Calls the coordinator within its process. */
  readonly transport: Transport;
}

export interface PeerConnectionsOptions {
  readonly time: Clock;
  /** The coordinator that connects. */
  readonly process: SimProcess;
  readonly linkTo: (address: string) => SimLink;
  /** Returns the coordinator that accepts connections at an address, if any. */
  readonly peerAt: (address: string) => Peer | undefined;
}

/** The connections of one coordinator process to others: one to each address. */
export class PeerConnections {
  private readonly connections = new Map<string, PeerConnection>();

  constructor(private readonly options: PeerConnectionsOptions) {}

  /** Returns a transport over an open connection to the leader. */
  readonly connect = async (
    { address }: Pick<KnownLeader, 'address'>,
    signal: AbortSignal,
  ): Promise<Transport> => {
    const open = this.connections.get(address);
    if (open?.isOpen === true) return open;
    const connection = await this.dial(address, signal);
    this.connections.set(address, connection);
    return connection;
  };

  /** Performs a handshake of one round trip. */
  private dial(address: string, signal: AbortSignal): Promise<PeerConnection> {
    const { time, process, linkTo, peerAt } = this.options;
    if (process.isDead) return neverSettle();
    const link = linkTo(address);
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void =>
        process.run(() => {
          timer.cancel();
          signal.removeEventListener('abort', giveUp);
          settle();
        });
      const giveUp = (): void => end(() => reject(createUnavailableError('no connection')));
      const timer = time.setTimer(CONNECT_MS, giveUp);
      signal.addEventListener('abort', giveUp, { once: true });
      link.transmit('up', () => {
        const peer = peerAt(address);
        link.transmit('down', () =>
          end(() => {
            if (peer === undefined || peer.process.isDead)
              return reject(createUnavailableError('connection refused'));
            resolve(new PeerConnection({ time, link, process, peer }));
          }),
        );
      });
    });
  }
}

interface Ends {
  readonly time: Clock;
  readonly link: SimLink;
  readonly process: SimProcess;
  readonly peer: Peer;
}

/** One connection between two coordinators, on which calls go in one direction. */
class PeerConnection implements Transport, LinkUser {
  isOpen = true;
  private readonly up: SimPipe;
  private readonly down: SimPipe;
  /** Calls without an answer, at the coordinator that calls. */
  private readonly pending = new Set<(reason: ConnectError) => void>();
  /** Calls that run, at the coordinator that is called. */
  private readonly running = new Set<AbortController>();
  private isCut = false;

  constructor(private readonly ends: Ends) {
    const { link, time, process, peer } = ends;
    this.up = new SimPipe(link, 'up', time);
    this.down = new SimPipe(link, 'down', time);
    link.join(this);
    process.onDeath(() => this.up.send(() => this.closeAtPeer()));
    peer.process.onDeath(() => this.down.send(() => this.closeAtCaller()));
  }

  readonly unary: Transport['unary'] = (method, signal, timeoutMs, header, message) =>
    this.start(signal, (call) => {
      const { transport } = this.ends.peer;
      this.atPeer(() => {
        transport
          .unary(method as DescMethodUnary, call.signal, timeoutMs, header, message as never)
          .then(
            (response) => this.atCaller(() => call.resolve(response)),
            (reason: unknown) => this.atCaller(() => call.reject(reason)),
          )
          .finally(() => this.running.delete(call.controller));
      });
    }) as never;

  /** Streams of requests are sent one by one; otherwise there is only one request. */
  readonly stream: Transport['stream'] = async (method, signal, timeoutMs, header, input) => {
    const sendsMany = method.methodKind !== 'server_streaming';
    const requests: unknown[] = [];
    if (!sendsMany) for await (const request of input) requests.push(request);
    return this.start(signal, (call) => {
      const { transport } = this.ends.peer;
      const received = new PushQueue<unknown>({ limit: QUEUE_LIMIT, onClose: call.cancel });
      const sent = new PushQueue<unknown>({ limit: QUEUE_LIMIT });
      call.onFailure((reason) => received.fail(reason));
      this.atPeer(() => {
        transport
          .stream(
            method as DescMethodStreaming,
            call.signal,
            timeoutMs,
            header,
            (sendsMany ? toStream(sent) : toStream(requests)) as never,
          )
          .then(
            (response) => {
              this.atCaller(() => call.resolve({ ...response, message: received }));
              this.pump((response as StreamResponse).message, this.down, this.ends.peer.process, {
                item: (item) => this.atCaller(() => received.push(item)),
                end: () => this.atCaller(() => (call.finish(), received.end())),
                failed: (reason) => this.atCaller(() => (call.finish(), received.fail(reason))),
              });
            },
            (reason: unknown) => this.atCaller(() => call.reject(reason)),
          );
      });
      call.signal.addEventListener('abort', () => sent.fail(createUnavailableError('call ended')));
      if (sendsMany)
        this.pump(input, this.up, this.ends.process, {
          item: (item) => this.atPeer(() => sent.push(item)),
          end: () => this.atPeer(() => sent.end()),
          failed: (reason) => this.atPeer(() => sent.fail(reason)),
        });
    }) as never;
  };

  onCut(): void {
    this.isCut = true;
    this.up.drop();
    this.down.drop();
  }

  onReset(): void {
    const { time, link } = this.ends;
    if (!this.isCut && link.isFree('up') && link.isFree('down')) this.onCut();
    if (!this.isCut) return;
    time.setTimer(link.random.between(...RESET_MS), () => this.closeAtCaller());
    time.setTimer(link.random.between(...RESET_MS), () => this.closeAtPeer());
  }

  private atPeer(action: () => void): void {
    this.up.send(() => this.ends.peer.process.run(action));
  }

  private atCaller(action: () => void): void {
    this.down.send(() => this.ends.process.run(action));
  }

  /** Begins a call, which fails when the connection ends. */
  private start(
    signal: AbortSignal | undefined,
    send: (call: {
      readonly controller: AbortController;
      readonly signal: AbortSignal;
      resolve(response: unknown): void;
      reject(reason: unknown): void;
      /** Calls the listener when the call fails after its response has begun. */
      onFailure(listener: (reason: Error) => void): void;
      finish(): void;
      readonly cancel: () => void;
    }) => void,
  ): Promise<unknown> {
    if (!this.isOpen) return Promise.reject(createUnavailableError('connection closed'));
    const controller = new AbortController();
    this.running.add(controller);
    return new Promise((resolve, reject) => {
      let failed = (_reason: Error): void => undefined;
      const fail = (reason: ConnectError): void => {
        finish();
        reject(reason);
        failed(reason);
      };
      const cancel = (): void => {
        finish();
        this.atPeer(() => controller.abort());
      };
      const abort = (): void => {
        cancel();
        fail(new ConnectError('the call was canceled', Code.Canceled));
      };
      const finish = (): void => {
        this.pending.delete(fail);
        signal?.removeEventListener('abort', abort);
      };
      this.pending.add(fail);
      signal?.addEventListener('abort', abort, { once: true });
      if (signal?.aborted === true) return abort();
      send({
        ...{ controller, signal: controller.signal, finish, cancel },
        resolve: (response) => {
          if (!(response as StreamResponse).stream) finish();
          resolve(response);
        },
        reject: (reason) => {
          finish();
          reject(ConnectError.from(reason));
        },
        onFailure: (listener) => (failed = listener),
      });
    });
  }

  /** Reads a stream only as fast as the pipe accepts items. */
  private pump(
    stream: AsyncIterable<unknown>,
    pipe: SimPipe,
    reader: SimProcess,
    sink: { item(item: unknown): void; end(): void; failed(reason: ConnectError): void },
  ): void {
    const items = stream[Symbol.asyncIterator]();
    const next = (): void => {
      items.next().then(
        (result) => {
          if (result.done === true) return sink.end();
          sink.item(result.value);
          if (pipe.canSend(() => reader.run(next))) next();
        },
        (reason: unknown) => sink.failed(ConnectError.from(reason)),
      );
    };
    next();
  }

  private closeAtCaller(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.ends.link.leave(this);
    this.ends.process.run(() => {
      for (const fail of [...this.pending]) fail(createUnavailableError('connection reset'));
    });
  }

  private closeAtPeer(): void {
    this.ends.peer.process.run(() => {
      for (const controller of [...this.running]) controller.abort();
      this.running.clear();
    });
  }
}

function createUnavailableError(message: string): ConnectError {
  return new ConnectError(message, Code.Unavailable);
}

async function* toStream(
  items: Iterable<unknown> | AsyncIterable<unknown>,
): AsyncGenerator<unknown> {
  yield* items;
}
