import { clone, create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  ExecInputEndSchema,
  ExecStartSchema,
  PortForwardEndSchema,
  PortForwardStartSchema,
  TunnelFrameSchema,
  readFirstMessage,
  type ExecRequest,
  type ExecResponse,
  type PortForwardRequest,
  type PortForwardResponse,
  type PortForwardStart,
  type TunnelFrame,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, errorKindOf } from '@cloudless/base';
import { CallAccess, type AccessDeps, type TargetPermission } from '../access/call-access.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { toAuditSubject } from '../audit/audit-subject.js';
import type { ApiServerDeps } from '../ports.js';
import {
  requireContainer,
  listReadyReplicas,
  resolveTarget,
  requireRunningReplica,
} from './stream-target.js';
import type { TunnelOpener } from './tunnel-hub.js';

/** The calls whose rules apply; AgentService has the same rules for its calls of these names. */
const calls = CoordinatorService.method;

/** Handlers of the bidirectional calls Exec and PortForward. */
export class InteractiveHandlers {
  private readonly access: CallAccess;
  /** Number of forwarded connections to workloads, by which replicas are chosen in turn. */
  private nextReplica = 0;

  constructor(
    private readonly deps: AccessDeps & Pick<ApiServerDeps, 'clock' | 'getConnection'>,
    private readonly tunnels: TunnelOpener,
  ) {
    this.access = new CallAccess(deps);
  }

  /**
   * Runs a command in a container and streams its input and output. For a workload, the command
   * runs in one of its running replicas.
   * @throws kind `invalid` when the first message is not `start`, `precondition` when no container
   *   runs, `unavailable` when the node cannot be reached or ends the call without a result.
   */
  async *exec(
    requests: AsyncIterable<ExecRequest>,
    entry: AuditEntry,
    context: HandlerContext,
  ): AsyncGenerator<ExecResponse> {
    const { signal } = context;
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.deps.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    const view = this.deps.state.view();
    const permission = this.access.createTargetPermission(context, calls.exec);
    const target = resolveTarget(view, first.value, permission);
    const replica =
      target.kind === 'workload' ? requireRunningReplica(view, target) : target.replica;
    const containerId = requireContainer(target, replica);
    const value = Object.assign(clone(ExecStartSchema, first.value), selectContainer(containerId));
    await entry.recordStart({ ...toAuditSubject(view, replica), command: first.value.command });
    const input = streamExecInput(items);
    const client = this.deps.getConnection(context);
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
      'STREAM_INTERRUPTED',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }

  /**
   * Forwards a TCP connection to a replica. For a workload, connections go to its ready replicas in
   * turn; when the node of a replica cannot be reached and has sent no data, the next replica is
   * tried.
   */
  async *portForward(
    requests: AsyncIterable<PortForwardRequest>,
    entry: AuditEntry,
    context: HandlerContext,
  ): AsyncGenerator<PortForwardResponse> {
    const { signal } = context;
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.deps.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    const permission = this.access.createTargetPermission(context, calls.portForward);
    const candidates = this.listCandidates(first.value, permission);
    for (const [index, { replica, containerId }] of candidates.entries()) {
      // One record for each attempt, because each attempt is about another replica.
      await entry.recordStart(toAuditSubject(this.deps.state.view(), replica));
      const value = Object.assign(
        clone(PortForwardStartSchema, first.value),
        selectContainer(containerId),
      );
      const input = streamForwardInput(items);
      const client = this.deps.getConnection(context);
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
        const hasAnotherAttempt =
          !started &&
          index < candidates.length - 1 &&
          errorKindOf(reason) === 'unavailable' &&
          !signal.aborted;
        if (!hasAnotherAttempt) throw reason;
      }
    }
  }

  /**
   * Returns the replicas that the connection may lead to, in the order of the attempts.
   * @throws kind `precondition` when there is none.
   */
  private listCandidates(
    start: PortForwardStart,
    permission: TargetPermission,
  ): readonly { readonly replica: ReplicaRecord; readonly containerId: string }[] {
    const view = this.deps.state.view();
    const target = resolveTarget(view, start, permission);
    if (target.kind !== 'workload')
      return [{ replica: target.replica, containerId: requireContainer(target, target.replica) }];
    const ready = listReadyReplicas(view, target);
    const first = this.nextReplica++ % ready.length;
    return [...ready.slice(first), ...ready.slice(0, first)].map((replica) => ({
      replica,
      containerId: replica.containerId,
    }));
  }
}

function createStartMissingError(): InvalidInputError {
  return new InvalidInputError([{ field: 'start', message: 'must be the first message' }]);
}

/** Returns the fields of a request to the agent, which needs only the container id. */
function selectContainer(containerId: string) {
  return { containerId, replicaId: '', namespace: '', name: '' };
}

/**
 * Streams the messages after the first one as input frames of a command, then the end of its input.
 * Does not close `items` when the stream is left.
 */
async function* streamExecInput(items: AsyncIterator<ExecRequest>): AsyncGenerator<TunnelFrame> {
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    yield create(TunnelFrameSchema, { frame: { case: 'execInput', value: item.value } });
  }
  const value = { request: { case: 'stdinEnd', value: create(ExecInputEndSchema) } } as const;
  yield create(TunnelFrameSchema, { frame: { case: 'execInput', value } });
}

/** Streams the messages after the first one as frames of a forwarded connection, then its end. */
async function* streamForwardInput(
  items: AsyncIterator<PortForwardRequest>,
): AsyncGenerator<TunnelFrame> {
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    yield create(TunnelFrameSchema, { frame: { case: 'forwardInput', value: item.value } });
  }
  const value = { request: { case: 'end', value: create(PortForwardEndSchema) } } as const;
  yield create(TunnelFrameSchema, { frame: { case: 'forwardInput', value } });
}
