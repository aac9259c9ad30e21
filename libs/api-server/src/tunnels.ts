import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { OpenTunnelSchema, kindOfCode, type OpenTunnel, type TunnelFrame } from '@cloudless/api';
import { CloudlessError, randomHex, type StopSignal } from '@cloudless/base';
import type { HandlerContext } from '@connectrpc/connect';
import type { ApiServerDeps } from './ports.js';
import type { TunnelRequests } from './sessions.js';

/** What a tunnel is for. */
export type TunnelTarget = Exclude<OpenTunnel['target'], { readonly case: undefined }>;

/** Logs, execs and status calls of one node at a time; more are refused, so that none starves its sessions. */
const MAX_TUNNELS_PER_NODE = 32;
const DIAL_WITHIN_MS = 10_000;
const TUNNEL_ID_BYTES = 16;

/** What tunnels offer to those who read from agents. */
export interface Tunnels {
  open(nodeId: string, target: TunnelTarget, signal: StopSignal): AsyncGenerator<TunnelFrame>;
}

/** One tunnel from its request to its end. */
class Tunnel {
  /** Resolves when the requester is done; then the agent's call ends. */
  readonly done: Promise<void>;
  /** The agent has dialled. */
  readonly frames: Promise<AsyncIterator<TunnelFrame>>;
  private end: () => void = () => undefined;
  private give: (frames: AsyncIterator<TunnelFrame>) => void = () => undefined;
  private refuse: (reason: unknown) => void = () => undefined;
  private interrupt: ((reason: unknown) => void) | undefined;
  private failure: { readonly reason: unknown } | undefined;

  constructor(readonly nodeId: string) {
    this.done = new Promise((resolve) => (this.end = resolve));
    this.frames = new Promise((resolve, reject) => {
      this.give = resolve;
      this.refuse = reject;
    });
    this.frames.catch(() => undefined);
  }

  dialled(frames: AsyncIterator<TunnelFrame>): void {
    this.give(frames);
  }

  /** Ends it for whoever waits for its next frame, also when its agent never says anything again. */
  fail(reason: unknown): void {
    this.failure ??= { reason };
    this.refuse(reason);
    this.interrupt?.(reason);
    this.end();
  }

  /** The next frame. */
  async next(frames: AsyncIterator<TunnelFrame>): Promise<IteratorResult<TunnelFrame, unknown>> {
    if (this.failure !== undefined) throw this.failure.reason;
    return new Promise((resolve, reject) => {
      this.interrupt = reject;
      // However the stream broke: the agent, or the way to it, has gone.
      frames.next().then(resolve, (cause: unknown) => {
        reject(new CloudlessError('unavailable', `the stream from node "${this.nodeId}" broke`, { cause }));
      });
    });
  }

  finish(): void {
    this.end();
  }
}

/** Streams to agents that only dial out: the coordinator asks for one by its one-use id, the agent dials. */
export class TunnelHub implements Tunnels {
  /** Asked for and not dialled yet. */
  private readonly waiting = new Map<string, Tunnel>();
  private readonly byNode = new Map<string, Set<Tunnel>>();

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'random' | 'clock'>,
    private readonly sessions: TunnelRequests,
  ) {
    sessions.announceTunnels({
      refused: (nodeId, { tunnelId, reason }) => {
        const tunnel = this.waiting.get(tunnelId);
        if (tunnel?.nodeId === nodeId) tunnel.fail(new CloudlessError('exhausted', `node "${nodeId}": ${reason}`));
      },
      gone: (nodeId) => {
        for (const tunnel of this.waiting.values()) if (tunnel.nodeId === nodeId) tunnel.fail(unreachable(nodeId));
      },
      lost: (nodeId) => {
        for (const tunnel of this.byNode.get(nodeId) ?? []) tunnel.fail(unreachable(nodeId));
      },
    });
  }

  /**
   * The frames of a new tunnel. Leaving the loop, or aborting, ends the agent's side as well.
   * @throws kind `unavailable` when the node is not connected or is lost, `exhausted` when too many are open, or what the
   *   agent says.
   */
  async *open(nodeId: string, target: TunnelTarget, signal: StopSignal): AsyncGenerator<TunnelFrame> {
    const { random, clock } = this.deps;
    const tunnelId = randomHex(random, TUNNEL_ID_BYTES);
    const tunnel = this.add(nodeId);
    const fail = (why: string): void => tunnel.fail(new CloudlessError('unavailable', why));
    const timer = clock.setTimer(DIAL_WITHIN_MS, () => fail(`node "${nodeId}" did not answer in time`));
    const onAbort = (): void => fail('the caller has gone');
    signal.addEventListener('abort', onAbort);
    try {
      this.waiting.set(tunnelId, tunnel);
      const request = create(OpenTunnelSchema, { tunnelId, dialWithin: durationFromMs(DIAL_WITHIN_MS), target });
      if (signal.aborted) onAbort();
      else if (!this.sessions.requestTunnel(nodeId, request)) tunnel.fail(unreachable(nodeId));
      const frames = await tunnel.frames;
      timer.cancel();
      for (let item = await tunnel.next(frames); item.done !== true; item = await tunnel.next(frames)) {
        const { frame } = item.value;
        if (frame.case === 'error') throw new CloudlessError(kindOfCode(frame.value.code), frame.value.message);
        yield item.value;
      }
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
      if (this.waiting.delete(tunnelId)) this.sessions.withdrawTunnel(nodeId, tunnelId);
      this.remove(tunnel);
      tunnel.finish();
    }
  }

  /** The Tunnel call: its first frame names the tunnel; the answer stays open until the requester is done. */
  async *tunnel(messages: AsyncIterable<TunnelFrame>, _context: HandlerContext): AsyncGenerator<TunnelFrame> {
    const frames = messages[Symbol.asyncIterator]();
    const first = await frames.next();
    const opening = first.done === true ? undefined : first.value.frame;
    if (opening?.case !== 'tunnelId') throw new CloudlessError('invalid', 'frame: the first frame of a tunnel must be tunnel_id');
    const waiting = this.waiting.get(opening.value);
    if (waiting === undefined) throw new CloudlessError('notFound', 'nobody waits for this tunnel (any more)');
    this.waiting.delete(opening.value);
    waiting.dialled(frames);
    await waiting.done;
    yield* [];
  }

  private add(nodeId: string): Tunnel {
    const open = this.byNode.get(nodeId) ?? new Set<Tunnel>();
    if (open.size >= MAX_TUNNELS_PER_NODE) {
      throw new CloudlessError('exhausted', `${MAX_TUNNELS_PER_NODE} streams to node "${nodeId}" are open; close some first`);
    }
    const tunnel = new Tunnel(nodeId);
    this.byNode.set(nodeId, open.add(tunnel));
    return tunnel;
  }

  private remove(tunnel: Tunnel): void {
    const open = this.byNode.get(tunnel.nodeId);
    open?.delete(tunnel);
    if (open?.size === 0) this.byNode.delete(tunnel.nodeId);
  }
}

function unreachable(nodeId: string): CloudlessError {
  return new CloudlessError('unavailable', `node "${nodeId}" is not connected`);
}
