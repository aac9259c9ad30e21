import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { OpenTunnelSchema, kindOfCode, type OpenTunnel, type TunnelFrame } from '@cloudless/api';
import { CloudlessError, randomHex, type StopSignal, type Timer } from '@cloudless/base';
import type { HandlerContext } from '@connectrpc/connect';
import type { ApiServerDeps } from './ports.js';
import type { SessionHub } from './sessions.js';

/** What a tunnel is for. */
export type TunnelTarget = Exclude<OpenTunnel['target'], { readonly case: undefined }>;

/** Logs, execs and status calls of one node at a time; more are refused, so that none starves its sessions. */
const MAX_TUNNELS_PER_NODE = 32;
const DIAL_WITHIN_MS = 10_000;
const TUNNEL_ID_BYTES = 16;

interface Waiting {
  readonly nodeId: string;
  readonly resolve: (frames: AsyncIterator<TunnelFrame>) => void;
  readonly reject: (reason: unknown) => void;
  /** Resolves when the requester is done; then the agent's call ends. */
  readonly done: Promise<void>;
}

/** Streams to agents that only dial out: the coordinator asks for one by its one-use id, the agent dials. */
export class TunnelHub {
  private readonly waiting = new Map<string, Waiting>();
  private readonly counts = new Map<string, number>();

  constructor(
    private readonly deps: ApiServerDeps,
    private readonly sessions: SessionHub,
  ) {
    sessions.announceTunnels({
      refused: (nodeId, { tunnelId, reason }) =>
        this.refuse(nodeId, tunnelId, new CloudlessError('exhausted', `node "${nodeId}": ${reason}`)),
      gone: (nodeId) => {
        for (const [tunnelId, { nodeId: of }] of this.waiting) {
          if (of === nodeId) this.refuse(nodeId, tunnelId, unreachable(nodeId));
        }
      },
    });
  }

  /**
   * The frames of a new tunnel. Leaving the loop, or aborting, ends the agent's side as well.
   * @throws kind `unavailable` when the node is not connected, `exhausted` when too many are open, or what the agent says.
   */
  async *open(nodeId: string, target: TunnelTarget, signal: StopSignal): AsyncGenerator<TunnelFrame> {
    const { random, clock } = this.deps;
    const count = this.counts.get(nodeId) ?? 0;
    if (count >= MAX_TUNNELS_PER_NODE) {
      throw new CloudlessError('exhausted', `${MAX_TUNNELS_PER_NODE} streams to node "${nodeId}" are open; close some first`);
    }
    this.counts.set(nodeId, count + 1);
    const tunnelId = randomHex(random, TUNNEL_ID_BYTES);
    let finish = (): void => undefined;
    let timer: Timer | undefined;
    let onAbort: (() => void) | undefined;
    try {
      const frames = await new Promise<AsyncIterator<TunnelFrame>>((resolve, reject) => {
        const done = new Promise<void>((ended) => (finish = ended));
        this.waiting.set(tunnelId, { nodeId, resolve, reject, done });
        timer = clock.setTimer(DIAL_WITHIN_MS, () =>
          reject(new CloudlessError('unavailable', `node "${nodeId}" did not answer in time`)),
        );
        onAbort = () => reject(new CloudlessError('unavailable', 'the caller has gone'));
        signal.addEventListener('abort', onAbort, { once: true });
        const request = create(OpenTunnelSchema, { tunnelId, dialWithin: durationFromMs(DIAL_WITHIN_MS), target });
        if (!this.sessions.requestTunnel(nodeId, request)) reject(unreachable(nodeId));
      });
      timer?.cancel();
      signal.addEventListener('abort', finish, { once: true });
      for (let item = await frames.next(); item.done !== true; item = await frames.next()) {
        const { frame } = item.value;
        if (frame.case === 'error') throw new CloudlessError(kindOfCode(frame.value.code), frame.value.message);
        yield item.value;
      }
    } finally {
      timer?.cancel();
      if (onAbort !== undefined) signal.removeEventListener('abort', onAbort);
      signal.removeEventListener('abort', finish);
      this.waiting.delete(tunnelId);
      this.counts.set(nodeId, (this.counts.get(nodeId) ?? 1) - 1);
      finish();
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
    waiting.resolve(frames);
    await waiting.done;
    yield* [];
  }

  private refuse(nodeId: string, tunnelId: string, reason: CloudlessError): void {
    const waiting = this.waiting.get(tunnelId);
    if (waiting?.nodeId !== nodeId) return;
    this.waiting.delete(tunnelId);
    waiting.reject(reason);
  }
}

function unreachable(nodeId: string): CloudlessError {
  return new CloudlessError('unavailable', `node "${nodeId}" is not connected`);
}
