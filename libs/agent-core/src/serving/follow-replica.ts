import { errorKindOf, type ContainerId } from '@cloudless/base';
import type { ContainerRuntime, LogLine, LogRequest } from '@cloudless/runtime';
import type { NodeReplicas } from '../replica/node-replicas.js';
import { isEnded, type ReplicaState } from '../replica/replica-state.js';

/** What {@link followReplica} reads from. */
export interface ReplicaLogs {
  readonly runtime: Pick<ContainerRuntime, 'logs'>;
  readonly replicas: NodeReplicas;
}

/** A line and the container that wrote it. */
export interface ReplicaLine {
  readonly containerId: ContainerId;
  readonly line: LogLine;
}

/**
 * The lines of all kept containers of a replica, oldest first. With `follow` it goes on with the next container after each restart in
 * place, until the replica has ended for good or was forgotten.
 */
export async function* followReplica(
  replicaId: string,
  wanted: LogRequest,
  { runtime, replicas }: ReplicaLogs,
  signal: AbortSignal,
): AsyncGenerator<ReplicaLine> {
  const first = containersOf(replicas.find(replicaId)?.current);
  const tails = wanted.tailLines === undefined ? undefined : await tailsOf(first, wanted.tailLines, wanted, runtime, signal);
  let last: ContainerId | undefined;
  for (;;) {
    const containerId = nextOf(containersOf(replicas.find(replicaId)?.current), last);
    if (containerId === undefined) {
      if (!wanted.follow || signal.aborted || !mayGoOn(replicas.find(replicaId)?.current)) return;
      await changeOf(replicaId, replicas, signal);
      continue;
    }
    last = containerId;
    const { tailLines: _whole, ...rest } = wanted;
    const tailLines = first.includes(containerId) ? tails?.get(containerId) : undefined;
    try {
      for await (const line of runtime.logs(containerId, tailLines === undefined ? rest : { ...rest, tailLines }, signal))
        yield { containerId, line };
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason; // an old container was removed meanwhile
    }
  }
}

/** The kept containers, oldest first, the newest last. */
export function containersOf(state: ReplicaState | undefined): readonly ContainerId[] {
  if (state === undefined) return [];
  const { container, ended } = state;
  return container === undefined || ended.includes(container.id) ? ended : [...ended, container.id];
}

/** The container after the one read last; the oldest when that one is not kept any more. */
function nextOf(containers: readonly ContainerId[], last: ContainerId | undefined): ContainerId | undefined {
  return containers[last === undefined ? 0 : containers.indexOf(last) + 1];
}

function mayGoOn(state: ReplicaState | undefined): boolean {
  return state !== undefined && !isEnded(state.phase);
}

/** How many of the last lines fall to each container: counted from the newest back. */
async function tailsOf(
  containers: readonly ContainerId[],
  tailLines: number,
  wanted: LogRequest,
  runtime: Pick<ContainerRuntime, 'logs'>,
  signal: AbortSignal,
): Promise<ReadonlyMap<ContainerId, number>> {
  const tails = new Map<ContainerId, number>();
  let left = tailLines;
  for (const containerId of [...containers].reverse()) {
    tails.set(containerId, left);
    if (left === 0) continue;
    for await (const _line of runtime.logs(containerId, { ...wanted, follow: false, tailLines: left }, signal))
      left = Math.max(0, left - 1);
  }
  return tails;
}

/** Resolves at the next change of the replica, or when aborted. */
function changeOf(replicaId: string, replicas: NodeReplicas, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      unlisten();
      signal.removeEventListener('abort', done);
      resolve();
    };
    const unlisten = replicas.listen({
      changed: (id) => (id === replicaId ? done() : undefined),
      refused: () => undefined,
      gone: (report) => (report.replicaId === replicaId ? done() : undefined),
    });
    if (signal.aborted) done();
    else signal.addEventListener('abort', done, { once: true });
  });
}
