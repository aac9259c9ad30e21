import type { ContainerChecker } from '../checks/container-checker.js';
import type { DurableRecords } from '../parts/durable-records.js';

/**
 * State of each running replica's container, as text, by replica id; undefined for a container that
 * is being stopped, for example because its lease ended before its node was back.
 */
export type ContainerSnapshot = ReadonlyMap<string, string | undefined>;

/** Describes the containers that run now. */
export function describeContainers(
  containers: ContainerChecker,
  records: DurableRecords,
): ContainerSnapshot {
  return new Map(
    [...containers.runningContainers()].map(({ owner, containerId, node }) => {
      if (node.machine.isStopping(containerId)) return [owner.replicaId, undefined];
      const record = records.replica(owner.replicaId)?.value;
      const state = `${record?.ready === true ? 'ready' : 'not ready'}, restarts ${record?.restarts}`;
      return [owner.replicaId, `container ${containerId.slice(0, 8)} on ${node.id}, ${state}`];
    }),
  );
}

/**
 * Returns the differences between two snapshots, before and after a restart of every process. What
 * was being stopped before may be gone or replaced.
 */
export function compareContainers(
  before: ContainerSnapshot,
  after: ContainerSnapshot,
): readonly string[] {
  const changed = [...before].flatMap(([replicaId, former]) => {
    const current = after.get(replicaId);
    return former === undefined || current === former
      ? []
      : [
          `${replicaId} was ${former} before everything was restarted, and is ${current ?? 'gone'} now`,
        ];
  });
  const added = [...after.keys()]
    .filter((replicaId) => !before.has(replicaId))
    .map((replicaId) => `${replicaId} is new after everything was restarted`);
  return [...changed, ...added];
}
