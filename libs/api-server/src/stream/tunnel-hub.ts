import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  OpenTunnelSchema,
  readFirstMessage,
  fromConnectError,
  fromTunnelError,
  computeWindowCost,
  type OpenTunnel,
  type TunnelFrame,
} from '@cloudless/api';
import { CloudlessError, randomHex, type StopSignal } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';
import type { TunnelRequester } from '../session/tunnel-requester.js';
import { StreamQuota, type StreamClient, type StreamQuotaLimits } from './stream-quota.js';

/** The purpose of a tunnel with its request: `logs`, `exec`, `portForward`, … */
export type TunnelPurpose = Exclude<OpenTunnel['target'], { readonly case: undefined }>;

/**
 * Open tunnels of one node. More are refused, so that tunnels leave the connection of the node
 * enough streams for its session.
 */
const MAX_TUNNELS_PER_NODE = 32;
/**
 * Log tunnels of agents of protocol 1: half of all tunnels, so that commands have capacity beside
 * them.
 */
const LOG_TUNNELS: StreamQuotaLimits = { perNode: 16, perClient: 12, noun: 'logs' };
/**
 * Relayed connections of network proxies, one for each other node that uses the node. They are not
 * part of {@link MAX_TUNNELS_PER_NODE}; together they stay below the 128 streams of a connection.
 */
const RELAY_TUNNELS: StreamQuotaLimits = {
  perNode: 64,
  perClient: 64,
  noun: 'relayed connections',
};
/** The remaining 8 tunnels of a node are for its log channel and for short calls. */
const INTERACTIVE_TUNNELS: StreamQuotaLimits = {
  perNode: 24,
  perClient: 16,
  noun: 'commands and forwarded connections',
};
/**
 * Time within which the agent must open a requested tunnel: longer than a congested session takes.
 */
const DIAL_WITHIN_MS = 10_000;
/**
 * Random bytes of a tunnel id, which must not be guessed: the id is the only proof of the agent.
 */
const TUNNEL_ID_BYTES = 16;

/** Opens tunnels to agents. */
export interface TunnelOpener {
  /**
   * Opens a tunnel to the agent of a node and streams its frames.
   * @param input - Frames for the agent, sent within the window that the agent grants.
   * @param client - Client whose quota the tunnel counts against.
   */
  open(
    nodeId: string,
    target: TunnelPurpose,
    signal: StopSignal,
    input?: AsyncIterable<TunnelFrame>,
    client?: StreamClient,
  ): AsyncGenerator<TunnelFrame>;
}

/** One tunnel from its request to its end. */
class AgentTunnel {
  /**
   * Resolves when the reader has left or the tunnel has failed; the call of the agent ends then.
   */
  readonly done: Promise<void>;
  /** Resolves with the frames of the agent once the agent has opened the tunnel. */
  readonly frames: Promise<AsyncIterator<TunnelFrame>>;
  private resolveDone: () => void = () => undefined;
  private resolveFrames: (frames: AsyncIterator<TunnelFrame>) => void = () => undefined;
  private rejectFrames: (reason: unknown) => void = () => undefined;
  private interrupt: ((reason: unknown) => void) | undefined;
  private failure: { readonly reason: unknown } | undefined;
  private isDone = false;
  /** Bytes that the agent still accepts. Below 0 when the last frame exceeded the window. */
  private window = 0;
  private wakeSender: (() => void) | undefined;

  constructor(
    readonly nodeId: string,
    readonly target: TunnelPurpose,
    private readonly input: AsyncIterable<TunnelFrame> | undefined,
    /** Releases the reservation in the quota. */
    readonly releaseQuota: () => void,
  ) {
    this.done = new Promise((resolve) => {
      this.resolveDone = () => {
        this.isDone = true;
        this.wakeSender?.();
        resolve();
      };
    });
    this.frames = new Promise((resolve, reject) => {
      this.resolveFrames = resolve;
      this.rejectFrames = reject;
    });
    this.frames.catch(() => undefined);
  }

  /** Passes the frames of the agent that has opened the tunnel to the reader. */
  connect(frames: AsyncIterator<TunnelFrame>): void {
    this.resolveFrames(frames);
  }

  /**
   * Fails the tunnel. A reader that waits for the next frame receives the error at once, even when
   * the agent never sends another frame. Only the first call has an effect.
   */
  fail(reason: unknown): void {
    this.failure ??= { reason };
    this.rejectFrames(reason);
    this.interrupt?.(reason);
    this.resolveDone();
  }

  /**
   * Returns the next frame of the agent.
   * @throws the error of {@link fail}; kind `unavailable` or `exhausted` when the stream breaks.
   */
  async next(frames: AsyncIterator<TunnelFrame>): Promise<IteratorResult<TunnelFrame, unknown>> {
    if (this.failure !== undefined) throw this.failure.reason;
    return new Promise((resolve, reject) => {
      this.interrupt = reject;
      frames.next().then(resolve, (cause: unknown) => reject(toStreamError(this.nodeId, cause)));
    });
  }

  /** Adds bytes to the window of the agent. */
  grant(bytes: bigint): void {
    this.window += Number(bytes);
    this.wakeSender?.();
  }

  /** Streams frames to the agent, within its window. Ends when the tunnel ends. */
  async *streamOutgoing(): AsyncGenerator<TunnelFrame> {
    const items = this.input?.[Symbol.asyncIterator]();
    try {
      for (
        let item = await this.nextInput(items);
        item !== undefined;
        item = await this.nextInput(items)
      ) {
        this.window -= computeWindowCost(item);
        yield item;
      }
      await this.done;
    } catch (reason) {
      this.fail(reason); // The client has disconnected or sent an invalid message.
    } finally {
      void items?.return?.().catch(() => undefined);
    }
  }

  /** Ends the call of the agent. */
  finish(): void {
    this.resolveDone();
  }

  /** Waits until the window permits a frame and the client has sent one; undefined at the end. */
  private async nextInput(
    items: AsyncIterator<TunnelFrame> | undefined,
  ): Promise<TunnelFrame | undefined> {
    while (this.window <= 0 && !this.isDone)
      await new Promise<void>((resolve) => (this.wakeSender = resolve));
    if (this.isDone || items === undefined) return undefined;
    return new Promise((resolve, reject) => {
      this.wakeSender = () => (this.isDone ? resolve(undefined) : undefined);
      items.next().then(({ done, value }) => resolve(done === true ? undefined : value), reject);
    });
  }
}

/**
 * Converts the failure of a stream from an agent. A frame that is too large for this server gives
 * kind `exhausted`, which clients do not retry: the agent has executed the call. Any other failure
 * gives `unavailable`: the agent has ended, or the connection to it is broken.
 */
function toStreamError(nodeId: string, cause: unknown): CloudlessError {
  return fromConnectError(cause).kind === 'exhausted'
    ? new CloudlessError(
        'RESPONSE_TOO_LARGE',
        `node "${nodeId}" has executed the call, but its response is too large; request less data`,
        {
          cause,
        },
      )
    : new CloudlessError('STREAM_INTERRUPTED', `the stream from node "${nodeId}" was interrupted`, {
        cause,
      });
}

/**
 * Opens tunnels to agents, which accept no connections: the coordinator requests a tunnel through
 * the session of the agent, and the agent opens it by the Tunnel call with the id from the request.
 * Each id is accepted once.
 */
export class TunnelHub implements TunnelOpener {
  /** Requested tunnels that the agents have not opened yet, by tunnel id. */
  private readonly waiting = new Map<string, AgentTunnel>();
  /** Requested and open tunnels, by node id. */
  private readonly byNode = new Map<string, Set<AgentTunnel>>();
  private readonly logQuota = new StreamQuota(LOG_TUNNELS);
  private readonly interactiveQuota = new StreamQuota(INTERACTIVE_TUNNELS);
  private readonly relayQuota = new StreamQuota(RELAY_TUNNELS);
  private closed = false;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'random' | 'clock'>,
    private readonly sessions: TunnelRequester,
    /** Returns true when the client of a call is the agent of the node. */
    private readonly isMadeFor: (nodeId: string, context: HandlerContext) => boolean = () => true,
  ) {
    sessions.setTunnelListener({
      onRefused: (nodeId, { tunnelId, reason }) => {
        const tunnel = this.waiting.get(tunnelId);
        if (tunnel?.nodeId === nodeId)
          tunnel.fail(new CloudlessError('TOO_MANY_STREAMS', `node "${nodeId}": ${reason}`));
      },
      onSessionEnded: (nodeId) => {
        for (const tunnel of this.waiting.values())
          if (tunnel.nodeId === nodeId) tunnel.fail(createUnreachableError(nodeId));
      },
      onNodeLost: (nodeId) => {
        for (const tunnel of this.byNode.get(nodeId) ?? [])
          tunnel.fail(createUnreachableError(nodeId));
      },
    });
  }

  /**
   * Opens a tunnel and streams its frames. Leaving the loop, or aborting the signal, ends the call
   * of the agent as well.
   * @throws kind `unavailable` when the node is not connected or is lost, `exhausted` when too many
   *   tunnels are open, or the error that the agent reports.
   */
  async *open(
    nodeId: string,
    target: TunnelPurpose,
    signal: StopSignal,
    input?: AsyncIterable<TunnelFrame>,
    client?: StreamClient,
  ): AsyncGenerator<TunnelFrame> {
    const { random, clock } = this.deps;
    const tunnelId = randomHex(random, TUNNEL_ID_BYTES);
    const tunnel = this.add(nodeId, target, input, this.getQuota(target)?.acquire(nodeId, client));
    const fail = (message: string): void =>
      tunnel.fail(new CloudlessError('NODE_UNREACHABLE', message));
    const timer = clock.setTimer(DIAL_WITHIN_MS, () =>
      fail(`node "${nodeId}" did not answer within ${DIAL_WITHIN_MS} ms`),
    );
    const release = (): void => {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
      if (this.waiting.delete(tunnelId)) this.sessions.withdrawTunnel(nodeId, tunnelId);
      this.remove(tunnel);
      tunnel.finish();
    };
    // Releases the tunnel at once when the client disconnects: it may never read the next frame, so
    // `finally` may never run.
    const onAbort = (): void => {
      fail('the client has disconnected');
      release();
    };
    signal.addEventListener('abort', onAbort);
    try {
      this.waiting.set(tunnelId, tunnel);
      const dialWithin = durationFromMs(DIAL_WITHIN_MS);
      const execInPieces = target.case === 'exec';
      const request = create(OpenTunnelSchema, { tunnelId, dialWithin, target, execInPieces });
      if (signal.aborted) onAbort();
      else if (!this.sessions.requestTunnel(nodeId, request))
        tunnel.fail(createUnreachableError(nodeId));
      const frames = await tunnel.frames;
      timer.cancel();
      for (
        let item = await tunnel.next(frames);
        item.done !== true;
        item = await tunnel.next(frames)
      ) {
        const { frame } = item.value;
        if (frame.case === 'error') throw fromTunnelError(frame.value);
        if (frame.case === 'end') return;
        if (frame.case === 'window') tunnel.grant(frame.value);
        else yield item.value;
      }
      throw new CloudlessError(
        'STREAM_INTERRUPTED',
        `the stream from node "${nodeId}" was interrupted`,
      );
    } finally {
      release();
    }
  }

  /**
   * Handles the Tunnel call of an agent. The first frame contains the id of the tunnel; the
   * response stays open until the reader of the tunnel has left.
   */
  async *handleTunnel(
    messages: AsyncIterable<TunnelFrame>,
    context: HandlerContext,
  ): AsyncGenerator<TunnelFrame> {
    const frames = messages[Symbol.asyncIterator]();
    const opening = (await readFirstMessage(frames, this.deps.clock))?.frame;
    if (opening?.case !== 'tunnelId')
      throw new CloudlessError('invalid', 'frame: the first frame of a tunnel must be tunnel_id');
    const tunnel = this.waiting.get(opening.value);
    if (tunnel === undefined || !this.isMadeFor(tunnel.nodeId, context))
      throw new CloudlessError(
        'notFound',
        'no request waits for this tunnel; it may have timed out',
      );
    this.waiting.delete(opening.value);
    tunnel.connect(frames);
    yield* tunnel.streamOutgoing();
  }

  /** Fails all tunnels and refuses new ones. */
  close(): void {
    this.closed = true;
    for (const tunnels of this.byNode.values())
      for (const tunnel of tunnels) tunnel.fail(createClosingError());
  }

  /** Number of requested and open tunnels of all nodes. */
  get size(): number {
    let size = 0;
    for (const tunnels of this.byNode.values()) size += tunnels.size;
    return size;
  }

  /** Returns the quota for a kind of long-lived stream; undefined for short calls. */
  private getQuota(target: TunnelPurpose): StreamQuota | undefined {
    if (target.case === 'logs') return this.logQuota;
    if (target.case === 'relay') return this.relayQuota;
    const isInteractive =
      target.case === 'exec' || target.case === 'execStream' || target.case === 'portForward';
    return isInteractive ? this.interactiveQuota : undefined;
  }

  /**
   * @throws kind `unavailable` after {@link close}, `exhausted` when the node has too many tunnels.
   */
  private add(
    nodeId: string,
    target: TunnelPurpose,
    input: AsyncIterable<TunnelFrame> | undefined,
    releaseQuota: () => void = () => undefined,
  ): AgentTunnel {
    const open = this.byNode.get(nodeId) ?? new Set<AgentTunnel>();
    const isFull = (): boolean =>
      target.case !== 'relay' && countOthers(open) >= MAX_TUNNELS_PER_NODE;
    if (this.closed || isFull()) {
      releaseQuota();
      if (this.closed) throw createClosingError();
      throw new CloudlessError(
        'TOO_MANY_STREAMS',
        `${MAX_TUNNELS_PER_NODE} streams to node "${nodeId}" are open; close some first`,
      );
    }
    const tunnel = new AgentTunnel(nodeId, target, input, releaseQuota);
    this.byNode.set(nodeId, open.add(tunnel));
    return tunnel;
  }

  private remove(tunnel: AgentTunnel): void {
    const open = this.byNode.get(tunnel.nodeId);
    open?.delete(tunnel);
    tunnel.releaseQuota();
    if (open?.size === 0) this.byNode.delete(tunnel.nodeId);
  }
}

/** Returns the number of tunnels that are no relayed connections. */
function countOthers(tunnels: Iterable<AgentTunnel>): number {
  let count = 0;
  for (const { target } of tunnels) if (target.case !== 'relay') count += 1;
  return count;
}

function createClosingError(): CloudlessError {
  return new CloudlessError('SHUTTING_DOWN', 'the coordinator is shutting down');
}

function createUnreachableError(nodeId: string): CloudlessError {
  return new CloudlessError('NODE_UNREACHABLE', `node "${nodeId}" is not connected`);
}
