import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { ContainerRuntime, LogBatch, LogRequest } from '@cloudless/runtime';
import type { NodeReplicas } from '../replica/node-replicas.js';
import { isEnded } from '../replica/replica-phase.js';
import type { ReplicaState } from '../replica/replica-state.js';

export interface ReplicaLogSources {
  readonly runtime: Pick<ContainerRuntime, 'logBatches'>;
  readonly replicas: NodeReplicas;
}

/** A batch of lines and the container that wrote them. */
interface ReplicaBatch {
  readonly containerId: ContainerId;
  readonly batch: LogBatch;
  readonly position?: never;
}

/**
 * A batch of lines and the container that wrote them; or, without a batch, the sequence number
 * after which the stream begins.
 */
export type ReplicaLines =
  | ReplicaBatch
  | { readonly containerId: ContainerId; readonly batch?: never; readonly position: bigint };

/**
 * Position at which a stream of a replica begins: after the line `sequence` of one container. The
 * stream leaves out earlier containers.
 */
interface StartPosition {
  readonly containerId: ContainerId;
  readonly sequence: bigint;
}

/**
 * Reads the logs of all kept containers of a replica, oldest first; of a tail that is not followed,
 * no more lines than requested, also while the container writes. With `follow`, continues with
 * the next container after each restart in place, until the replica has a final phase or is
 * forgotten. With a tail, first yields the start position, so that a client that reconnects can
 * resume even if no line was sent.
 * @param after - Last sequence number that the client has received, by container. The stream
 *   resumes after the newest of these containers that is still kept.
 */
export async function* followReplica(
  replicaId: string,
  logRequest: LogRequest,
  after: ReadonlyMap<string, bigint>,
  sources: ReplicaLogSources,
  signal: AbortSignal,
): AsyncGenerator<ReplicaLines> {
  const { runtime, replicas } = sources;
  const { tailLines, ...rest } = logRequest;
  const containerIds = listContainerIds(replicas.find(replicaId)?.current);
  const received = findReceivedPosition(containerIds, after);
  if (received !== undefined || tailLines === undefined) {
    yield* readFrom(received, replicaId, rest, sources, signal);
    return;
  }
  const beginning = await findTailPosition(containerIds, tailLines, rest, runtime, signal);
  const lines = readFrom(beginning, replicaId, rest, sources, signal);
  if (!logRequest.follow) {
    yield* takeLines(lines, tailLines);
    return;
  }
  if (beginning !== undefined)
    yield { containerId: beginning.containerId, position: beginning.sequence };
  yield* lines;
}

/** Yields batches until they have had `count` lines. */
async function* takeLines(
  source: AsyncIterable<ReplicaBatch>,
  count: number,
): AsyncGenerator<ReplicaBatch> {
  let left = count;
  if (left === 0) return;
  for await (const { containerId, batch } of source) {
    const lines = batch.lines.slice(0, left);
    yield { containerId, batch: { ...batch, lines } };
    left -= lines.length;
    if (left === 0) return;
  }
}

/**
 * Reads the logs of a replica after a position.
 * @param beginning - Undefined: from the first line of the oldest container.
 */
async function* readFrom(
  beginning: StartPosition | undefined,
  replicaId: string,
  logRequest: LogRequest,
  { runtime, replicas }: ReplicaLogSources,
  signal: AbortSignal,
): AsyncGenerator<ReplicaBatch> {
  let last: ContainerId | undefined;
  for (;;) {
    const kept = listContainerIds(replicas.find(replicaId)?.current);
    const containerId =
      last === undefined && beginning !== undefined ? beginning.containerId : findNext(kept, last);
    if (containerId === undefined) {
      if (!logRequest.follow || signal.aborted || !canContinue(replicas.find(replicaId)?.current))
        return;
      await waitForChange(replicaId, replicas, signal);
      continue;
    }
    last = containerId;
    const request =
      containerId === beginning?.containerId
        ? resumeAfter(logRequest, beginning.sequence)
        : logRequest;
    try {
      for await (const batch of runtime.logBatches(containerId, request, signal))
        yield { containerId, batch };
    } catch (reason) {
      // The agent may remove an old container while its log is read.
      if (errorKindOf(reason) !== 'notFound') throw reason;
    }
  }
}

/**
 * Returns a request that resumes after a line and has no tail. Returns the request unchanged when
 * `sequence` is undefined.
 */
export function resumeAfter(logRequest: LogRequest, sequence: bigint | undefined): LogRequest {
  if (sequence === undefined) return logRequest;
  const { tailLines: _tailLines, ...rest } = logRequest;
  return { ...rest, afterSequence: sequence };
}

/** Lists the ids of the kept containers, oldest first; empty when `state` is undefined. */
export function listContainerIds(state: ReplicaState | undefined): readonly ContainerId[] {
  if (state === undefined) return [];
  const { container, ended } = state;
  return container === undefined || ended.includes(container.id) ? ended : [...ended, container.id];
}

/**
 * Returns the container after the container that was read last; the oldest container when that
 * container is no longer kept.
 */
function findNext(
  containers: readonly ContainerId[],
  last: ContainerId | undefined,
): ContainerId | undefined {
  return containers[last === undefined ? 0 : containers.indexOf(last) + 1];
}

function canContinue(state: ReplicaState | undefined): boolean {
  return state !== undefined && !isEnded(state.phase);
}

/** Returns the position in the newest kept container of which the client has received lines. */
function findReceivedPosition(
  containers: readonly ContainerId[],
  after: ReadonlyMap<string, bigint>,
): StartPosition | undefined {
  const containerId = containers.findLast((id) => after.has(id));
  return containerId === undefined
    ? undefined
    : { containerId, sequence: after.get(containerId) ?? 0n };
}

/**
 * Returns the position before the last `tailLines` lines, counted back from the newest container.
 * Undefined when there are no containers.
 */
async function findTailPosition(
  containers: readonly ContainerId[],
  tailLines: number,
  logRequest: LogRequest,
  runtime: Pick<ContainerRuntime, 'logBatches'>,
  signal: AbortSignal,
): Promise<StartPosition | undefined> {
  const readLastLines = (
    containerId: ContainerId,
    count: number,
    request: LogRequest,
  ): AsyncIterable<LogBatch> =>
    runtime.logBatches(containerId, { ...request, follow: false, tailLines: count }, signal);
  let beginning: StartPosition | undefined;
  let remaining = tailLines;
  for (const containerId of [...containers].reverse()) {
    if (remaining === 0 && beginning !== undefined) break;
    let first: bigint | undefined;
    // The end is read before the lines are counted: lines written meanwhile follow the position.
    const end =
      beginning === undefined
        ? await findEnd(readLastLines(containerId, 1, { follow: false }))
        : undefined;
    if (remaining > 0) {
      for await (const { lines } of readLastLines(containerId, remaining, logRequest)) {
        first ??= lines[0]?.sequence;
        remaining -= lines.length;
      }
    }
    first ??= end;
    if (first !== undefined || beginning === undefined)
      beginning = { containerId, sequence: (first ?? 1n) - 1n };
  }
  return beginning;
}

/** Returns the sequence number after the last line; undefined without lines. */
async function findEnd(batches: AsyncIterable<LogBatch>): Promise<bigint | undefined> {
  let last: bigint | undefined;
  for await (const { lines } of batches) last = lines.at(-1)?.sequence ?? last;
  return last === undefined ? undefined : last + 1n;
}

/** Resolves at the next change of the replica or when `signal` is aborted. */
function waitForChange(
  replicaId: string,
  replicas: NodeReplicas,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      unsubscribe();
      signal.removeEventListener('abort', finish);
      resolve();
    };
    const unsubscribe = replicas.subscribe({
      onChanged: (id) => (id === replicaId ? finish() : undefined),
      onRefused: () => undefined,
      onForgotten: (report) => (report.replicaId === replicaId ? finish() : undefined),
    });
    if (signal.aborted) finish();
    else signal.addEventListener('abort', finish, { once: true });
  });
}
