import { clone, create } from '@bufbuild/protobuf';
import {
  ExecInputEndSchema,
  ExecStartSchema,
  PortForwardEndSchema,
  PortForwardStartSchema,
  TunnelFrameSchema,
  firstMessage,
  type ExecRequest,
  type ExecResponse,
  type PortForwardRequest,
  type PortForwardResponse,
  type PortForwardStart,
  type TunnelFrame,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, errorKindOf } from '@cloudless/base';
import type { HandlerContext } from '@connectrpc/connect';
import type { AuditLog } from './audit.js';
import { subjectOf } from './audit-subject.js';
import type { ApiServerDeps } from './ports.js';
import { containerFor, readyReplicas, resolveTarget, runningReplica } from './targets.js';
import type { Tunnels } from './tunnels.js';

/** Handlers of bidirectional calls: Exec, and PortForward. */
export class InteractiveHandlers {
  /** Index by which connections are distributed over the replicas of a workload. */
  private turn = 0;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'connectionOf'> & {
      readonly audit: AuditLog;
    },
    private readonly tunnels: Tunnels,
  ) {}

  async *exec(
    requests: AsyncIterable<ExecRequest>,
    context: HandlerContext,
  ): AsyncGenerator<ExecResponse> {
    const { signal } = context;
    const items = requests[Symbol.asyncIterator]();
    const first = (await firstMessage(items, this.deps.clock))?.request;
    if (first?.case !== 'start') throw startMissing();
    const view = this.deps.state.view();
    const target = resolveTarget(view, first.value);
    const replica = target.kind === 'workload' ? runningReplica(view, target) : target.replica;
    const containerId = containerFor(target, replica);
    const value = Object.assign(clone(ExecStartSchema, first.value), atContainer(containerId));
    await this.deps.audit
      .actOf(context)
      .begins({ ...subjectOf(view, replica), command: first.value.command });
    const input = execInput(items);
    const client = this.deps.connectionOf(context);
    for await (const { frame } of this.tunnels.open(
      replica.nodeId,
      { case: 'execStream', value },
      signal,
      input,
      client,
    )) {
      if (frame.case !== 'execOutput') continue;
      yield frame.value;
      if (frame.value.response.case === 'exit') return;
    }
    throw new CloudlessError(
      'unavailable',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }

  /**
   * Forwards a TCP connection. When the node of a replica cannot be reached, the next replica of
   * the workload is tried, as long as no data was sent.
   */
  async *portForward(
    requests: AsyncIterable<PortForwardRequest>,
    context: HandlerContext,
  ): AsyncGenerator<PortForwardResponse> {
    const { signal } = context;
    const items = requests[Symbol.asyncIterator]();
    const first = (await firstMessage(items, this.deps.clock))?.request;
    if (first?.case !== 'start') throw startMissing();
    const candidates = this.candidates(first.value);
    const act = this.deps.audit.actOf(context);
    for (const [index, { replica, containerId }] of candidates.entries()) {
      // for each attempt, because the reached replica may be another one
      await act.begins(subjectOf(this.deps.state.view(), replica));
      const value = Object.assign(
        clone(PortForwardStartSchema, first.value),
        atContainer(containerId),
      );
      const input = forwardInput(items);
      const client = this.deps.connectionOf(context);
      const frames = this.tunnels.open(
        replica.nodeId,
        { case: 'portForward', value },
        signal,
        input,
        client,
      );
      let started = false;
      try {
        for await (const { frame } of frames) {
          if (frame.case !== 'forwardOutput') continue;
          started = true;
          yield frame.value;
        }
        return;
      } catch (reason) {
        const another =
          !started &&
          index < candidates.length - 1 &&
          errorKindOf(reason) === 'unavailable' &&
          !signal.aborted;
        if (!another) throw reason;
      }
    }
  }

  /** Returns the replicas that the connection may lead to, in the order of the attempts. */
  private candidates(
    start: PortForwardStart,
  ): readonly { readonly replica: ReplicaRecord; readonly containerId: string }[] {
    const view = this.deps.state.view();
    const target = resolveTarget(view, start);
    if (target.kind !== 'workload')
      return [{ replica: target.replica, containerId: containerFor(target, target.replica) }];
    const ready = readyReplicas(view, target);
    const first = this.turn++ % ready.length;
    return [...ready.slice(first), ...ready.slice(0, first)].map((replica) => ({
      replica,
      containerId: replica.containerId,
    }));
  }
}

function startMissing(): InvalidInputError {
  return new InvalidInputError([{ field: 'start', message: 'must be the first message' }]);
}

function atContainer(containerId: string) {
  return { containerId, replicaId: '', namespace: '', name: '' };
}

/**
 * The input frames of a command. Does not close `items`, because the caller may continue to read
 * from it.
 */
async function* execInput(items: AsyncIterator<ExecRequest>): AsyncGenerator<TunnelFrame> {
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    yield create(TunnelFrameSchema, { frame: { case: 'execInput', value: item.value } });
  }
  const value = { request: { case: 'stdinEnd', value: create(ExecInputEndSchema) } } as const;
  yield create(TunnelFrameSchema, { frame: { case: 'execInput', value } });
}

async function* forwardInput(
  items: AsyncIterator<PortForwardRequest>,
): AsyncGenerator<TunnelFrame> {
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    yield create(TunnelFrameSchema, { frame: { case: 'forwardInput', value: item.value } });
  }
  const value = { request: { case: 'end', value: create(PortForwardEndSchema) } } as const;
  yield create(TunnelFrameSchema, { frame: { case: 'forwardInput', value } });
}
